//! Individual cases.

use super::fake::{FakeDisk, Faults};
use crate::spool::{AppendError, Ended, Gap, OpenError, Options, Read, Recovered, Spool, Tally};
use sys::Errno;

const FIRST: &str = "0000000000000000.segment";
/// Where the first entry of a segment begins.
const ENTRIES_AT: usize = 8192;
const HEAD: usize = 48;

fn options() -> Options {
    Options { bytes_max: 200_000, segment_bytes: 25_000 }
}

fn open(disk: &FakeDisk) -> (Spool<FakeDisk>, Recovered) {
    Spool::open(disk.clone(), options()).unwrap()
}

/// A disk with entries of these lengths, one row each, synced, whose process has ended.
fn disk_with(lens: &[usize]) -> FakeDisk {
    let disk = FakeDisk::new(1);
    let (mut spool, _) = open(&disk);
    for (idx, len) in lens.iter().enumerate() {
        spool.append(1, *len as u64, &vec![1 + idx as u8; *len]).unwrap();
    }
    spool.sync().unwrap();
    disk
}

/// Reads everything, as lengths of entries and row counts of gaps.
fn read_all(spool: &mut Spool<FakeDisk>) -> Vec<Result<usize, u64>> {
    let mut all = Vec::new();
    while let Some(read) = spool.read().unwrap() {
        all.push(match read {
            Read::Entry(entry) => Ok(entry.bytes.len()),
            Read::Gap(gap) => Err(gap.lost.rows),
        });
    }
    all
}

/// Changes the file of the first segment of a disk and checks what is read afterwards.
#[track_caller]
fn check_damaged(
    lens: &[usize],
    damage: impl FnOnce(&mut Vec<u8>),
    expected: &[Result<usize, u64>],
) {
    let disk = disk_with(lens);
    disk.with_file(FIRST, damage);
    let (mut spool, recovered) = open(&disk);
    assert_eq!(recovered.waiting.rows, lens.len() as u64);
    assert_eq!(read_all(&mut spool), expected);
}

#[test]
fn a_damaged_body_costs_its_entry() {
    check_damaged(
        &[10, 20, 30],
        |file| file[ENTRIES_AT + 10 + 2 * HEAD] ^= 1,
        &[Ok(10), Err(1), Ok(30)],
    );
}

#[test]
fn a_damaged_head_costs_its_entry() {
    check_damaged(
        &[10, 20, 30],
        |file| file[ENTRIES_AT + 10 + HEAD] ^= 1,
        &[Ok(10), Err(1), Ok(30)],
    );
}

#[test]
fn a_damaged_last_entry_is_counted_by_the_mark_behind_it() {
    let at = ENTRIES_AT + 10 + HEAD;
    check_damaged(&[10, 20], |file| file[at] ^= 1, &[Ok(10), Err(1)]);
}

#[test]
fn one_copy_of_a_header_is_enough() {
    check_damaged(&[10, 20], |file| file[20] ^= 1, &[Ok(10), Ok(20)]);
    check_damaged(&[10, 20], |file| file[4096 + 20] ^= 1, &[Ok(10), Ok(20)]);
}

#[test]
fn a_segment_without_header_is_counted_from_the_next_one() {
    let lens = [10_000, 10_000, 10_000];
    let damage = |file: &mut Vec<u8>| file[..ENTRIES_AT].fill(0);
    check_damaged(&lens, damage, &[Err(1), Ok(10_000), Ok(10_000)]);
}

#[test]
fn an_empty_file_in_place_of_a_segment_is_counted_too() {
    check_damaged(&[10_000, 10_000], Vec::clear, &[Err(1), Ok(10_000)]);
}

#[test]
fn a_torn_tail_is_cut_off() {
    let disk = disk_with(&[10, 20]);
    disk.with_file(FIRST, |file| file.extend([7; 1_000]));
    let (mut spool, recovered) = open(&disk);
    assert_eq!(recovered.cut_bytes, 1_000);
    assert_eq!(recovered.ended, Ended::Crashed);
    assert_eq!(read_all(&mut spool), [Ok(10), Ok(20)]);
}

#[test]
fn an_entry_inside_a_damaged_one_is_not_taken_for_one() {
    // The body of the first entry is the whole file of another spool, whose entries claim to be the next ones.
    let other = disk_with(&[10, 20, 30]);
    let forged = other.with_file(FIRST, |file| file.split_off(ENTRIES_AT));
    let disk = FakeDisk::new(2);
    let (mut spool, _) = open(&disk);
    spool.append(1, 1, &forged).unwrap();
    spool.append(1, 1, b"next").unwrap();
    spool.sync().unwrap();
    drop(spool);

    disk.with_file(FIRST, |file| file[ENTRIES_AT] ^= 1);
    assert_eq!(read_all(&mut open(&disk).0), [Err(1), Ok(4)]);
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let disk = disk_with(&[10]);
    disk.with_file(FIRST, |file| {
        file[8] = 9;
        let crc = crc32c::crc32c(&file[..124]);
        file[124..128].copy_from_slice(&crc.to_le_bytes());
    });
    let before = disk.with_file(FIRST, |file| file.clone());
    assert_eq!(Spool::open(disk.clone(), options()).err(), Some(OpenError::Version(9)));
    assert_eq!(disk.with_file(FIRST, |file| file.clone()), before);
}

#[test]
fn a_flipped_version_is_damage() {
    check_damaged(&[10], |file| file[8] ^= 8, &[Ok(10)]);
}

#[test]
fn what_never_fits_is_told_from_what_does_not_fit_now() {
    let (mut spool, _) = open(&FakeDisk::new(1));
    assert_eq!(spool.append(1, 1, b""), Err(AppendError::Unfit));
    assert_eq!(spool.append(1, 1, &vec![0; 200_000]), Err(AppendError::Unfit));
    while spool.append(1, 1, &[0; 5_000]) != Err(AppendError::Full) {}
    assert!(spool.figures().bytes <= 200_000);

    let Some(Read::Entry(entry)) = spool.read().unwrap() else { panic!("nothing to read") };
    let first = entry.id;
    while let Some(Read::Entry(entry)) = spool.read().unwrap() {
        let id = entry.id;
        spool.acknowledge(id);
    }
    spool.acknowledge(first);
    assert!(spool.figures().waiting.is_zero());
    spool.append(1, 1, &[0; 150_000]).unwrap();
}

#[test]
fn a_bad_sector_costs_what_is_in_it_and_no_more_calls_than_ten() {
    let disk = disk_with(&[10_000, 10_000]);
    let (mut spool, _) = open(&disk);
    disk.set(Faults { bad_page: Some((1, 3)), ..Faults::default() });
    for _ in 0..9 {
        assert_eq!(spool.read(), Err(Errno::IO));
    }
    assert_eq!(read_all(&mut spool), [Err(1), Ok(10_000)]);
}

#[test]
fn a_bad_sector_anywhere_in_a_large_entry_is_gone_around() {
    let options = Options { bytes_max: 4 << 20, segment_bytes: 1 << 20 };
    for page in [3, 63, 66, 67, 130, 140] {
        let disk = FakeDisk::new(1);
        let (mut spool, _) = Spool::open(disk.clone(), options).unwrap();
        spool.append(1, 1, &[1; 560_000]).unwrap();
        spool.append(1, 1, &[2; 10]).unwrap();

        disk.set(Faults { bad_page: Some((1, page)), ..Faults::default() });
        let reads: Vec<_> = (0..40).map(|_| spool.read().map(|read| read.is_some())).collect();
        let failed = reads.iter().filter(|read| read.is_err()).count();
        assert!(failed < 20, "page {page}: {reads:?}");
        assert_eq!(reads.last(), Some(&Ok(false)), "page {page}: {reads:?}");
        assert!(spool.figures().unread.is_zero());
    }
}

#[test]
fn a_disk_that_is_away_costs_nothing() {
    let disk = disk_with(&[10_000, 10_000]);
    let (mut spool, _) = open(&disk);
    disk.set(Faults { is_away: true, ..Faults::default() });
    for _ in 0..50 {
        assert_eq!(spool.read(), Err(Errno::IO));
    }
    disk.set(Faults::default());
    assert_eq!(read_all(&mut spool), [Ok(10_000), Ok(10_000)]);
}

#[test]
fn what_could_not_be_synced_is_written_once_more() {
    let disk = FakeDisk::new(5);
    let (mut spool, _) = open(&disk);
    spool.append(1, 1, b"first").unwrap();
    disk.set(Faults { failed_sync: 1000, ..Faults::default() });
    assert_eq!(spool.sync(), Err(Errno::IO));
    disk.set(Faults::default());
    let lost = disk.fired().count(super::fake::Fault::ForgottenPages) > 0;
    spool.sync().unwrap();
    drop(spool);

    disk.crash();
    assert_eq!(read_all(&mut open(&disk).0), [if lost { Err(1) } else { Ok(5) }]);
}

#[test]
fn a_disk_that_fails_each_sync_does_not_fill_with_segments() {
    let disk = disk_with(&[10]);
    let (mut spool, _) = open(&disk);
    spool.append(1, 1, b"first").unwrap();
    disk.set(Faults { failed_sync: 1000, ..Faults::default() });
    for _ in 0..100 {
        assert_eq!(spool.sync(), Err(Errno::IO));
    }
    assert!(spool.figures().bytes < 30_000, "{:?}", spool.figures());
    assert!(disk.bytes() < 40_000, "{}", disk.bytes());
}

#[test]
fn what_the_caller_has_in_memory_is_passed_over() {
    let disk = FakeDisk::new(1);
    let (mut spool, _) = open(&disk);
    let first = spool.append(1, 1, b"1").unwrap();
    spool.pass(first);
    assert_eq!(spool.read(), Ok(None));

    let second = spool.append(1, 1, b"22").unwrap();
    let third = spool.append(1, 1, b"333").unwrap();
    spool.pass(third); // the second was not read
    spool.pass(second); // not the newest
    assert_eq!(read_all(&mut spool), [Ok(2), Ok(3)]);

    spool.acknowledge(second);
    spool.sync().unwrap();
    drop(spool);
    assert_eq!(read_all(&mut open(&disk).0), [Ok(3)]);
}

#[test]
fn what_was_acknowledged_after_the_last_sync_comes_again_after_a_crash() {
    let disk = disk_with(&[10, 20]);
    let (mut spool, _) = open(&disk);
    let Some(Read::Entry(entry)) = spool.read().unwrap() else { panic!("nothing to read") };
    let id = entry.id;
    spool.acknowledge(id);
    drop(spool);

    let (spool, recovered) = open(&disk);
    let waiting = Tally { entries: 2, rows: 2, row_bytes: 30 };
    let expected =
        Recovered { waiting, maybe_acknowledged: waiting, cut_bytes: 0, ended: Ended::Crashed };
    assert_eq!(recovered, expected);
    spool.close().unwrap();

    let (_, recovered) = open(&disk);
    let closed =
        Recovered { maybe_acknowledged: Tally::default(), ended: Ended::Closed, ..expected };
    assert_eq!(recovered, closed);
}

#[test]
fn what_was_handed_on_before_a_close_comes_again_and_is_no_crash() {
    let disk = disk_with(&[10, 20]);
    let (mut spool, _) = open(&disk);
    assert!(matches!(spool.read(), Ok(Some(Read::Entry(_)))));
    spool.close_handed_on().unwrap();

    let waiting = Tally { entries: 2, rows: 2, row_bytes: 30 };
    let expected =
        Recovered { waiting, maybe_acknowledged: waiting, cut_bytes: 0, ended: Ended::Closed };
    assert_eq!(open(&disk).1, expected);
}

#[test]
fn a_gap_is_acknowledged_like_an_entry() {
    let disk = disk_with(&[10, 20]);
    disk.with_file(FIRST, |file| file[ENTRIES_AT] ^= 1);
    let (mut spool, _) = open(&disk);
    let Some(Read::Gap(Gap { id, lost })) = spool.read().unwrap() else { panic!("no gap") };
    assert_eq!(lost, Tally { entries: 1, rows: 1, row_bytes: 10 });
    spool.acknowledge(id);
    spool.close().unwrap();
    assert_eq!(read_all(&mut open(&disk).0), [Ok(20)]);
}

#[test]
fn acknowledging_frees_the_disk() {
    let disk = disk_with(&[10_000; 8]);
    assert!(disk.bytes() > 80_000);
    let (mut spool, _) = open(&disk);
    while let Some(Read::Entry(entry)) = spool.read().unwrap() {
        let id = entry.id;
        spool.acknowledge(id);
    }
    assert!(disk.bytes() < 10_000, "{}", disk.bytes());
}

#[test]
fn either_slot_of_the_cursor_knows_that_a_removed_segment_was_acknowledged() {
    for slot in [0, 4096] {
        let disk = disk_with(&[10_000; 4]);
        let (mut spool, _) = open(&disk);
        for _ in 0..3 {
            let Some(Read::Entry(entry)) = spool.read().unwrap() else { panic!("no entry") };
            let id = entry.id;
            spool.acknowledge(id);
        }
        drop(spool);

        disk.with_file("cursor", |file| file[slot + 30] ^= 1);
        let read = read_all(&mut open(&disk).0);
        assert!(!read.is_empty() && read.iter().all(Result::is_ok), "{read:?}");
    }
}

#[test]
fn what_a_segment_has_beyond_the_begin_of_the_next_one_does_not_count() {
    // An entry whose append failed after all of it was written, and which could not be truncated: the next entry has
    // the same number.
    let with_failed = disk_with(&[10, 20]).with_file(FIRST, |file| file.clone());
    let disk = disk_with(&[10]);
    let (mut spool, _) = open(&disk);
    spool.append(1, 30, &[3; 30]).unwrap();
    spool.sync().unwrap();
    drop(spool);

    disk.with_file(FIRST, |file| *file = with_failed);
    assert_eq!(read_all(&mut open(&disk).0), [Ok(10), Ok(30)]);
}
