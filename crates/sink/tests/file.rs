//! File destinations, with real files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ledger::{Event, Gauge, Reason};
use sink::{FileOptions, Framing, Payload, QueueLimits, Sink};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{
    TempDir, check_law, dropped, hop, lines, numbers_of, open, payload_of_lines, wait_for,
};

/// Offers lines in payloads of all sizes and waits until they are written.
fn write_lines(sink: Sink, lines: std::ops::Range<u64>) {
    let meter = sink.meter();
    let mut at = lines.start;
    while at < lines.end {
        let count = (1 + at % 50).min(lines.end - at);
        sink.offer(&payload_of_lines(at, count));
        at += count;
    }
    let deadline = Instant::now() + support::DEADLINE;
    sink.close(deadline);
    assert!(sink.wait(deadline).is_zero());
    let hop = hop(&meter);
    check_law(&hop);
    assert_eq!(hop.delivered.count, lines.end - lines.start, "{hop:?}");
}

fn to_file(options: FileOptions) -> Sink {
    open("file", sink::file(options), lines())
}

fn all(path: &Path) -> Vec<u64> {
    numbers_of(&support::rotated(path).concat())
}

#[test]
fn rotated_files_together_are_everything_and_no_record_is_torn() {
    let dir = TempDir::new();
    let path = dir.path("records.jsonl");
    let options = FileOptions { rotate_bytes: Some(20_000), ..support::file_options(&path) };
    write_lines(to_file(options.clone()), 0..10_000);
    // A second life goes on in the same file.
    write_lines(to_file(options), 10_000..20_000);
    let files = support::rotated(&path);
    assert!(files.len() > 20, "{}", files.len());
    assert!(files.iter().all(|file| file.len() <= 20_000));
    // No file was put aside half empty.
    let full = files.iter().filter(|file| file.len() > 15_000).count();
    assert_eq!(full, files.len() - 1);
    files.iter().for_each(|file| drop(numbers_of(file)));
    assert_eq!(all(&path), (0..20_000).collect::<Vec<_>>());
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o137, 0, "{mode:o}");
}

#[test]
fn only_so_many_old_files_are_kept() {
    let dir = TempDir::new();
    let path = dir.path("records.jsonl");
    let options =
        FileOptions { rotate_bytes: Some(5_000), rotate_keep: 3, ..support::file_options(&path) };
    write_lines(to_file(options), 0..5_000);
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 4);
    let kept = all(&path);
    let first = kept[0];
    assert_eq!(kept, (first..5_000).collect::<Vec<_>>());
    let options = FileOptions {
        rotate_bytes: Some(5_000),
        rotate_keep: 0,
        ..support::file_options(&dir.path("none"))
    };
    write_lines(to_file(options), 0..5_000);
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 5);
}

#[test]
fn one_old_file_is_kept_where_one_is_asked_for() {
    let dir = TempDir::new();
    let path = dir.path("records.jsonl");
    let options =
        FileOptions { rotate_bytes: Some(5_000), rotate_keep: 1, ..support::file_options(&path) };
    write_lines(to_file(options), 0..2_000);
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 2);
    assert_eq!(all(&path).last(), Some(&1_999));
}

#[test]
fn a_rotation_costs_as_much_as_files_are_there_and_not_as_may_be_kept() {
    let dir = TempDir::new();
    let path = dir.path("records.jsonl");
    let options = FileOptions {
        rotate_bytes: Some(5_000),
        rotate_keep: u32::MAX,
        ..support::file_options(&path)
    };
    // Behind a place that is free nothing moves.
    let beyond = dir.path("records.jsonl.40");
    fs::write(&beyond, payload_of_lines(7, 1).bytes()).unwrap();
    write_lines(to_file(options), 0..1_000);
    assert_eq!(fs::read(&beyond).unwrap(), payload_of_lines(7, 1).bytes());
    fs::remove_file(&beyond).unwrap();
    assert!(support::rotated(&path).len() > 3);
    assert_eq!(all(&path), (0..1_000).collect::<Vec<_>>());
}

#[test]
fn files_are_put_aside_when_their_time_is_over_even_if_nothing_follows() {
    let dir = TempDir::new();
    let path = dir.path("records.jsonl");
    let options = FileOptions {
        rotate_interval: Some(Duration::from_millis(500)),
        ..support::file_options(&path)
    };
    let sink = to_file(options);
    let rotations = || hop(&sink.meter()).event(Event::Rotations);
    sink.offer(&payload_of_lines(0, 10));
    wait_for("the first file's time", || (rotations() == 1).then_some(()));
    sink.offer(&payload_of_lines(10, 10));
    wait_for("the second file's time", || (rotations() == 2).then_some(()));
    assert!(!path.exists());
    assert_eq!(support::rotated(&path).len(), 2);
    assert_eq!(all(&path), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_file_of_an_earlier_interval_is_put_aside_by_the_next_life() {
    let dir = TempDir::new();
    let path = dir.path("records.jsonl");
    fs::write(&path, payload_of_lines(0, 10).bytes()).unwrap();
    let earlier = std::time::SystemTime::now() - Duration::from_secs(7_200);
    fs::File::options().append(true).open(&path).unwrap().set_modified(earlier).unwrap();
    let options = FileOptions {
        rotate_interval: Some(Duration::from_secs(3_600)),
        ..support::file_options(&path)
    };
    write_lines(to_file(options), 10..20);
    assert_eq!(support::rotated(&path).len(), 2);
    assert_eq!(all(&path), (0..20).collect::<Vec<_>>());
}

#[test]
fn every_file_begins_with_the_header_and_another_header_begins_another_file() {
    let dir = TempDir::new();
    let path = dir.path("records.csv");
    let csv = |header: &str| Framing { header: header.into(), record_end: Some(b'\n') };
    let options = FileOptions { rotate_bytes: Some(6_000), ..support::file_options(&path) };
    write_lines(open("csv", sink::file(options.clone()), csv("number,filling\n")), 0..500);
    let first = support::rotated(&path).len();
    assert!(first > 2);
    write_lines(open("csv", sink::file(options), csv("number,text\n")), 500..1_000);
    let files = support::rotated(&path);
    let mut numbers = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let header = if at < first { "number,filling\n" } else { "number,text\n" };
        numbers.extend(numbers_of(file.strip_prefix(header).unwrap()));
        assert!(file.len() <= 6_000 && file.len() > header.len());
    }
    assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn a_torn_end_is_not_continued() {
    let dir = TempDir::new();
    let path = dir.path("records.jsonl");
    fs::write(&path, "0 \n1 x\n2 x").unwrap();
    write_lines(to_file(support::file_options(&path)), 3..10);
    let files = support::rotated(&path);
    assert_eq!(files[0], "0 \n1 x\n2 x");
    assert_eq!(numbers_of(&files[1]), (3..10).collect::<Vec<_>>());
}

#[test]
fn a_file_that_was_moved_or_removed_or_emptied_is_noticed() {
    let dir = TempDir::new();
    let (path, moved) = (dir.path("records.jsonl"), dir.path("moved"));
    let sink = to_file(support::file_options(&path));
    let write = |first: u64| {
        sink.offer(&payload_of_lines(first, 10));
        wait_for("a write", || hop(&sink.meter()).in_flight.is_zero().then_some(()));
    };
    write(0);
    fs::rename(&path, &moved).unwrap();
    write(10);
    assert_eq!(numbers_of(&fs::read_to_string(&moved).unwrap()), (0..10).collect::<Vec<_>>());
    assert_eq!(all(&path), (10..20).collect::<Vec<_>>());
    fs::remove_file(&path).unwrap();
    write(20);
    assert_eq!(all(&path), (20..30).collect::<Vec<_>>());
    fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    write(30);
    assert_eq!(all(&path), (30..40).collect::<Vec<_>>());
    assert_eq!(hop(&sink.meter()).event(Event::Reopens), 2);
}

#[test]
fn what_is_no_regular_file_is_not_written_and_what_waits_is_written_once_it_can_be() {
    let dir = TempDir::new();
    let (path, precious) = (dir.path("records.jsonl"), dir.path("precious"));
    fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&precious, &path).unwrap();
    let sink = to_file(support::file_options(&path));
    sink.offer(&payload_of_lines(0, 10));
    let errors = || hop(&sink.meter()).event(Event::Errors);
    wait_for("the link's refusal", || (errors() > 0).then_some(()));
    let seen = hop(&sink.meter());
    assert_eq!((seen.in_flight.count, seen.gauges[&Gauge::Up]), (10, 0));
    // In its place at once: a file would be made where there is none.
    let fifo = dir.path("fifo");
    support::run("mkfifo", &[fifo.to_str().unwrap()]);
    fs::rename(&fifo, &path).unwrap();
    let before = errors();
    wait_for("the FIFO's refusal", || (errors() > before + 1).then_some(()));
    fs::remove_file(&path).unwrap();
    wait_for("the file", || hop(&sink.meter()).in_flight.is_zero().then_some(()));
    assert_eq!(all(&path), (0..10).collect::<Vec<_>>());
    assert_eq!(hop(&sink.meter()).gauges[&Gauge::Up], 1);
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
}

#[test]
fn what_cannot_be_written_goes_by_the_reason_that_it_cannot() {
    let limits = QueueLimits { bytes: 10_000, payloads: 100 };
    let options = support::file_options(Path::new("/proc/weir-does-not-exist"));
    let sink = Sink::open("test", "file", limits, sink::file(options), lines()).unwrap();
    let meter = sink.meter();
    wait_for("the first error", || {
        sink.offer(&Payload::new(&[b'x'; 1_000], 1));
        (dropped(&meter, Reason::WriteError) > 20).then_some(())
    });
    check_law(&hop(&meter));
    let deadline = Instant::now() + Duration::from_millis(300);
    sink.close(deadline);
    assert_eq!(sink.wait(deadline).count, 10);
    check_law(&hop(&meter));
    assert_eq!(hop(&meter).in_flight.count, 0);
    assert_eq!(dropped(&meter, Reason::Shutdown), 0);
}

/// A file system of 256 KiB.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = TempDir::new();
        let at = dir.0.to_str().unwrap().to_owned();
        let args = ["-t", "tmpfs", "-o", "size=256k", "weir-test", &at];
        let done = Command::new("mount").args(args).output();
        done.is_ok_and(|output| output.status.success()).then(|| SmallDisk(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the sink's thread closes its file a moment after its end.
        support::run("umount", &["--lazy", self.0.0.to_str().unwrap()]);
    }
}

#[test]
fn a_full_disk_tears_no_record_and_costs_none_if_it_has_room_again_in_time() {
    let Some(disk) = SmallDisk::mount() else {
        return support::skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
    };
    let (path, filler) = (disk.0.path("records.jsonl"), disk.0.path("filler"));
    fs::write(&filler, vec![0; 150_000]).unwrap();
    let sink = to_file(support::file_options(&path));
    let meter = sink.meter();
    // Payloads that end in the middle of a page, so that the disk takes a part of one.
    for first in (0..3_000).step_by(100) {
        sink.offer(&payload_of_lines(first, 100));
    }
    wait_for("the full disk", || (hop(&meter).gauges[&Gauge::Up] == 0).then_some(()));
    let delivered = hop(&meter).delivered;
    assert_eq!(hop(&meter).gauges[&Gauge::LastErrno], 28);
    assert!(delivered.count > 0 && delivered.count < 3_000, "{delivered:?}");
    let numbers = all(&path);
    assert_eq!(numbers, (0..delivered.count).collect::<Vec<_>>());
    check_law(&hop(&meter));
    fs::remove_file(&filler).unwrap();
    wait_for("the rest", || hop(&meter).in_flight.is_zero().then_some(()));
    assert_eq!(all(&path), (0..3_000).collect::<Vec<_>>());
    assert!(hop(&meter).dropped_total().is_zero());
}
