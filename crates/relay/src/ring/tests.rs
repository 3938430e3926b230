use super::writer::Guarded;
use super::*;
use ledger::{Amount, Counters, Reason, Tally};

fn payload(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at) as u8).collect()
}

fn put(writer: &mut Writer, number: u64, len: usize) -> Result<(), Guarded> {
    let result = writer.append(Source::NONE, times(number), &payload(number, len));
    writer.publish();
    result
}

fn tally() -> std::sync::Arc<Tally> {
    std::sync::Arc::default()
}

#[test]
fn a_reader_sees_each_datagram_once_in_order() {
    let mut writer = ring_with_slots(1_024, 8).unwrap();
    let mut reader = writer.reader(tally());
    assert!(reader.claim(&Counters::default()).is_none());
    for number in 0..100 {
        put(&mut writer, number, number as usize % 50).unwrap();
        let claim = reader.claim(&Counters::default()).unwrap();
        let (descriptor, bytes) = claim.get(0);
        assert_eq!(
            (descriptor.times.arrived_ns, bytes),
            (number, &payload(number, number as usize % 50)[..])
        );
        claim.commit(1);
        assert!(reader.is_empty());
    }
}

#[test]
fn the_writer_counts_what_it_takes_from_a_slow_reader() {
    let mut writer = ring_with_slots(1_024, 1_024).unwrap();
    let (lost, counters) = (tally(), Counters::default());
    let mut slow = writer.reader(lost.clone());
    for number in 0..100 {
        put(&mut writer, number, 100).unwrap();
    }
    // 10 datagrams of 100 bytes fit one turn of 1,024 bytes, and the rest of the turn is skipped. The cursor advances by
    // quarters.
    let lost = lost.load();
    assert!((90..=93).contains(&lost.count) && lost.bytes == lost.count * 100, "{lost:?}");
    let claim = slow.claim(&counters).unwrap();
    let (len, first) = (claim.len(), claim.first());
    assert_eq!(first + len as u64, 100);
    assert_eq!(lost.count + counters.dropped(Reason::QueueFull).count, first);
    claim.commit(len);
    assert_eq!(slow.leave(&counters), Amount { count: 100, bytes: 10_000 });
}

#[test]
fn a_claim_is_never_overwritten() {
    let mut writer = ring_with_slots(1_024, 1_024).unwrap();
    let mut reader = writer.reader(tally());
    put(&mut writer, 0, 600).unwrap();
    let claim = reader.claim(&Counters::default()).unwrap();
    assert_eq!(put(&mut writer, 1, 600), Err(Guarded));
    assert_eq!(put(&mut writer, 2, 400), Ok(()));
    assert_eq!(claim.get(0).1, payload(0, 600));
    claim.commit(1);
    assert_eq!(put(&mut writer, 3, 600), Ok(()));
    let claim = reader.claim(&Counters::default()).unwrap();
    let got: Vec<_> = (0..claim.len()).map(|index| claim.get(index).0.times.arrived_ns).collect();
    assert_eq!(got.last(), Some(&3));
}

#[test]
fn a_datagram_larger_than_the_ring_is_refused() {
    let mut writer = ring_with_slots(1_024, 8).unwrap();
    assert_eq!(put(&mut writer, 0, 1_025), Err(Guarded));
    assert_eq!(put(&mut writer, 0, 1_024), Ok(()));
    assert_eq!(writer.appended(), Amount { count: 1, bytes: 1_024 });
}

#[test]
fn a_claim_covers_a_sixteenth_of_the_ring_at_most() {
    let mut writer = ring_with_slots(65_536, 1_024).unwrap();
    let mut reader = writer.reader(tally());
    for (number, len) in [1_000, 1_000, 1_000, 1_000, 1_000, 5_000, 10].into_iter().enumerate() {
        put(&mut writer, number as u64, len).unwrap();
    }
    for len in [4, 1, 1, 1] {
        let claim = reader.claim(&Counters::default()).unwrap();
        assert_eq!(claim.len(), len);
        claim.commit(len);
    }
}

#[test]
fn what_a_claim_has_dealt_with_is_the_writers_again() {
    let mut writer = ring_with_slots(1_024, 16).unwrap();
    let mut reader = writer.reader(tally());
    for number in 0..16 {
        put(&mut writer, number, 4).unwrap();
    }
    let mut claim = reader.claim(&Counters::default()).unwrap();
    assert_eq!((claim.first(), claim.len()), (4, 12));
    claim.advance(3);
    for number in 16..23 {
        assert_eq!(put(&mut writer, number, 4), Ok(()));
    }
    assert_eq!(put(&mut writer, 23, 4), Err(Guarded));
    assert_eq!(claim.get(3).1, payload(7, 4));
}

#[test]
fn looking_at_the_age_gives_nothing_up() {
    let mut writer = ring_with_slots(4_096, 64).unwrap();
    let mut reader = writer.reader(tally());
    assert_eq!(reader.oldest(), None);
    for number in 0..64 {
        put(&mut writer, number, 10).unwrap();
    }
    assert_eq!(reader.oldest(), Some(Oldest { arrived_ns: 0, held_ppm: 1_000_000 }));
    assert_eq!(reader.cursor(), 0);
}

#[test]
fn what_is_held_is_the_larger_share_of_bytes_and_descriptors() {
    let check = |datagrams: u64, len: usize, expected| {
        let mut writer = ring_with_slots(4_096, 64).unwrap();
        let mut reader = writer.reader(tally());
        for number in 0..datagrams {
            put(&mut writer, number, len).unwrap();
        }
        assert_eq!(reader.oldest().map(|oldest| oldest.held_ppm), expected);
    };
    check(0, 64, None);
    check(32, 8, Some(500_000));
    check(2, 1_024, Some(500_000));
    check(3, 1_024, Some(750_000));
}

#[test]
fn the_ring_begins_anew_when_nobody_has_anything_left() {
    const BYTES: usize = if cfg!(miri) { 1 << 12 } else { 1 << 16 };
    const EVERY: u64 = if cfg!(miri) { 4 } else { 100 };
    let mut writer = ring_with_slots(BYTES, 1_024).unwrap();
    let (mut fast, mut slow) = (writer.reader(tally()), writer.reader(tally()));
    let mut places = std::collections::BTreeSet::new();
    const COUNT: u64 = if cfg!(miri) { 40 } else { 100_000 };
    for number in 0..COUNT {
        writer.rewind_if_empty(200);
        put(&mut writer, number, 200).unwrap();
        let claim = fast.claim(&Counters::default()).unwrap();
        let (descriptor, bytes) = claim.get(0);
        assert_eq!((descriptor.times.arrived_ns, bytes), (number, &payload(number, 200)[..]));
        places.insert(bytes.as_ptr().addr());
        claim.commit(1);
        if number % EVERY == 0 {
            // A reader that is behind finds everything where it was.
            while let Some(claim) = slow.claim(&Counters::default()) {
                let len = claim.len();
                for index in 0..len {
                    let (descriptor, bytes) = claim.get(index);
                    assert_eq!(bytes, payload(descriptor.times.arrived_ns, 200));
                }
                claim.commit(len);
            }
        }
    }
    let span = places.last().unwrap() - places.first().unwrap();
    assert!(span < BYTES / 4 + EVERY as usize * 200, "{span}");
}

#[test]
fn datagrams_written_in_place_are_those_that_come_out() {
    let mut writer = ring_with_slots(1_024, 64).unwrap();
    let mut reader = writer.reader(tally());
    for number in 0..100 {
        let room = writer.room(3, 300).unwrap();
        for (index, slot) in room.chunks_mut(100).enumerate() {
            slot.copy_from_slice(&payload(number + index as u64, 100));
        }
        // The second datagram is shorter, and the third one was not wanted.
        writer.append_in_place(Source::NONE, times(number), 0, 100);
        writer.append_in_place(Source::NONE, times(number), 100, 40);
        assert_eq!(writer.append(Source::NONE, times(number), b"copied"), Ok(()));
        writer.publish();
        let claim = reader.claim(&Counters::default()).unwrap();
        assert_eq!(claim.get(0).1, payload(number, 100));
        assert_eq!(claim.get(1).1, &payload(number + 1, 100)[..40]);
        assert!(follows(&claim, 1) && claim.get(2).1 == b"copied");
        claim.commit(3);
    }
    put(&mut writer, 0, 800).unwrap();
    assert!(writer.room(3, 300).is_none(), "a reader has something there");
}

#[test]
fn a_room_beyond_the_end_of_the_ring_may_lose_its_first_datagrams() {
    let mut writer = ring_with_slots(1_024, 64).unwrap();
    let mut reader = writer.reader(tally());
    put(&mut writer, 0, 10).unwrap();
    reader.claim(&Counters::default()).unwrap().commit(1);
    let room = writer.room(10, 1_020).unwrap();
    room[918..].fill(7);
    writer.append_in_place(Source::NONE, times(1), 918, 102);
    writer.publish();
    assert_eq!(reader.claim(&Counters::default()).unwrap().get(0).1, [7; 102]);
}

#[test]
fn a_leaving_reader_keeps_its_distance_from_the_writer() {
    let mut writer = ring_with_slots(4_096, 64).unwrap();
    let (lost, counters) = (tally(), Counters::default());
    let mut reader = writer.reader(lost.clone());
    for number in 0..20 {
        put(&mut writer, number, 10).unwrap();
    }
    reader.stop_at(20);
    for number in 20..60 {
        put(&mut writer, number, 10).unwrap();
    }
    // Within seven eighths of everything written since, not just of what is for this reader.
    let claim = reader.claim(&counters).unwrap();
    assert_eq!((claim.first(), claim.len()), (12, 8));
    drop(claim);
    for number in 60..74 {
        put(&mut writer, number, 10).unwrap();
    }
    assert!(reader.claim(&counters).is_none(), "all of it is out of reach");
    let gave_up = counters.dropped(Reason::QueueFull);
    assert_eq!(gave_up + lost.load(), Amount { count: 20, bytes: 200 });
    assert_eq!(reader.leave(&counters), Amount { count: 20, bytes: 200 });
}

/// Not under miri, which stops when memory is not available.
#[cfg(not(miri))]
#[test]
fn memory_that_cannot_be_had_is_an_error() {
    assert_eq!(ring(1 << 62).err(), Some(NoMemory));
}

#[test]
fn an_account_is_given_when_all_of_it_is_counted() {
    let mut writer = ring_with_slots(1_024, 16).unwrap();
    let reader = writer.reader(tally());
    for number in 0..40 {
        put(&mut writer, number, 4).unwrap();
    }
    assert_eq!(reader.account(|| ()), Some((reader.cursor(), ())));
    reader.cursor.moves.store(7, Ordering::Relaxed);
    assert_eq!(reader.account(|| ()), None);
}

#[test]
fn a_reader_that_left_holds_nothing() {
    let mut writer = ring_with_slots(1_024, 1_024).unwrap();
    let lost = tally();
    let reader = writer.reader(lost.clone());
    put(&mut writer, 0, 1_000).unwrap();
    drop(reader);
    put(&mut writer, 1, 1_000).unwrap();
    assert_eq!(lost.load(), Amount::default());
}

#[test]
fn a_reader_gives_up_before_the_writer_reaches_it() {
    let mut writer = ring_with_slots(4_096, 64).unwrap();
    let lost = tally();
    let mut reader = writer.reader(lost.clone());
    for number in 0..60 {
        put(&mut writer, number, 10).unwrap();
    }
    let counters = Counters::default();
    let claim = reader.claim(&counters).unwrap();
    let gave_up = counters.dropped(Reason::QueueFull);
    assert_eq!((gave_up, claim.first()), (Amount { count: 12, bytes: 120 }, 12));
    assert!(lost.load().is_zero());
}

#[test]
fn what_a_claim_gave_up_does_not_stand_in_the_writers_way() {
    let mut writer = ring_with_slots(4_096, 64).unwrap();
    let mut reader = writer.reader(tally());
    for number in 0..64 {
        put(&mut writer, number, 10).unwrap();
    }
    let claim = reader.claim(&Counters::default()).unwrap();
    assert_eq!(claim.first(), 16);
    for number in 64..80 {
        assert_eq!(put(&mut writer, number, 10), Ok(()));
    }
    assert_eq!(put(&mut writer, 80, 10), Err(Guarded));
    assert_eq!(claim.get(0).1, payload(16, 10));
}

#[test]
fn a_blocked_reader_is_moved_on_in_steps() {
    let mut writer = ring_with_slots(4_096, 64).unwrap();
    let (lost, mut steps) = (tally(), 0);
    let blocked = writer.reader(lost.clone());
    const COUNT: u64 = if cfg!(miri) { 320 } else { 6_400 };
    for number in 0..COUNT {
        let before = lost.load();
        assert!(writer.has_room_without_loss(10) || number >= 64);
        put(&mut writer, number, 10).unwrap();
        steps += u64::from(lost.load() != before);
    }
    assert!(steps <= COUNT / 16, "{steps} steps");
    assert_eq!(lost.load().count, blocked.cursor());
    assert!(blocked.head() - blocked.cursor() >= 48);
}

#[test]
fn runs_are_one_slice_except_over_the_end_of_the_ring() {
    let mut writer = ring_with_slots(1_024, 64).unwrap();
    let mut reader = writer.reader(tally());
    put(&mut writer, 0, 900).unwrap();
    reader.claim(&Counters::default()).unwrap().commit(1);
    for number in 1..4 {
        put(&mut writer, number, 60).unwrap();
    }
    let claim = reader.claim(&Counters::default()).unwrap();
    assert_eq!(claim.run(0, 2, 120), [payload(1, 60), payload(2, 60)].concat());
    assert!(!follows(&claim, 2), "the ring's end lies between them");
    assert_eq!(claim.run(2, 1, 60), payload(3, 60));
}

#[test]
fn a_run_does_not_go_on_where_the_ring_begins_again_without_a_gap() {
    let mut writer = ring_with_slots(1_024, 64).unwrap();
    let mut reader = writer.reader(tally());
    put(&mut writer, 0, 960).unwrap();
    reader.claim(&Counters::default()).unwrap().commit(1);
    put(&mut writer, 1, 64).unwrap();
    put(&mut writer, 2, 64).unwrap();
    let claim = reader.claim(&Counters::default()).unwrap();
    assert!(!follows(&claim, 1));
}

/// Whether a datagram lies directly behind the one before it, checked as the code that forms runs does.
fn follows(claim: &Claim<'_>, index: usize) -> bool {
    std::ptr::eq(claim.get(index - 1).1.as_ptr_range().end, claim.get(index).1.as_ptr())
}

/// Real threads on a small ring. Under miri this also checks for data races and invalid references.
#[test]
fn threads_account_for_every_datagram() {
    const COUNT: u64 = if cfg!(miri) { 300 } else { 200_000 };
    let mut writer = ring_with_slots(4_096, 32).unwrap();
    let mut expected = Amount::default();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let lost = tally();
            let mut reader = writer.reader(lost.clone());
            let thread = std::thread::spawn(move || {
                let counters = Counters::default();
                let mut seen = Amount::default();
                let mut next = 0;
                while next < COUNT {
                    let Some(claim) = reader.claim(&counters) else {
                        std::thread::yield_now();
                        continue;
                    };
                    for index in 0..claim.len() {
                        let (descriptor, bytes) = claim.get(index);
                        assert!(descriptor.times.arrived_ns >= next, "order");
                        next = descriptor.times.arrived_ns + 1;
                        assert_eq!(bytes, payload(descriptor.times.arrived_ns, bytes.len()));
                        seen += Amount::one(bytes.len());
                    }
                    let len = claim.len();
                    claim.commit(len);
                }
                reader.leave(&counters);
                seen + counters.dropped(Reason::QueueFull)
            });
            (thread, lost)
        })
        .collect();
    let mut guarded = 0_u64;
    for number in 0..COUNT {
        let len = (number * 7 % 200) as usize;
        // The last one must get in, or the readers would wait for it forever.
        while put(&mut writer, number, len).is_err() {
            guarded += 1;
            if number + 1 < COUNT {
                break;
            }
            std::thread::yield_now();
        }
    }
    expected += writer.appended();
    for (thread, lost) in readers {
        assert_eq!(thread.join().unwrap() + lost.load(), expected, "{guarded} guarded");
    }
}
