//! File destinations, with real files.

use crate::support::{
    Source, batch_rows, check_law, dropped, fields, hop, line_of, number_and_filling, numbers_of,
    options,
};
use ledger::{Event, Gauge, Reason};
use record::Encoding;
use sink::{Connector, Content, FileOptions, QueueOptions, SinkOptions, WhenFull};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{TempDir, run, skip, wait_for};

/// Sends numbered records in chunks of all sizes and waits until they are written.
fn write(connector: Connector, numbers: Range<u64>) {
    let mut source =
        Source::to_one(SinkOptions { batch: batch_rows(30), ..options("file", connector) });
    let meter = source.meters().remove(0);
    let mut at = numbers.start;
    while at < numbers.end {
        let next = (at + 1 + at % 50).min(numbers.end);
        source.send(at..next);
        at = next;
    }
    assert_eq!(source.stop(Instant::now() + testkit::DEADLINE), []);
    let hop = hop(&meter);
    check_law(&hop);
    assert_eq!(hop.delivered.count, numbers.end - numbers.start, "{hop:?}");
}

fn lines(options: FileOptions) -> Connector {
    sink::file(options, Content::Records(Encoding::Jsonl, number_and_filling()))
}

fn write_lines(options: FileOptions, numbers: Range<u64>) {
    write(lines(options), numbers);
}

fn to_file(file: FileOptions) -> Source {
    Source::to_one(options("file", lines(file)))
}

/// The lines of these records as in a file.
fn text_of(numbers: Range<u64>) -> String {
    numbers.map(line_of).collect()
}

fn all(path: &Path) -> Vec<u64> {
    numbers_of(&crate::support::rotated(path).concat())
}

#[test]
fn rotated_files_together_are_everything_and_no_record_is_torn() {
    let dir = TempDir::new();
    let path = dir.file("records.jsonl");
    let options = FileOptions { rotate_bytes: Some(20_000), ..crate::support::file_options(&path) };
    write_lines(options.clone(), 0..10_000);
    // A second life continues the same file.
    write_lines(options, 10_000..20_000);
    let files = crate::support::rotated(&path);
    assert!(files.len() > 20, "{}", files.len());
    assert!(files.iter().all(|file| file.len() <= 20_000));
    // No file was rotated half empty.
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
    let path = dir.file("records.jsonl");
    let options = FileOptions {
        rotate_bytes: Some(5_000),
        rotate_keep: 3,
        ..crate::support::file_options(&path)
    };
    write_lines(options, 0..5_000);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
    let kept = all(&path);
    let first = kept[0];
    assert_eq!(kept, (first..5_000).collect::<Vec<_>>());
    let options = FileOptions {
        rotate_bytes: Some(5_000),
        rotate_keep: 0,
        ..crate::support::file_options(&dir.file("none"))
    };
    write_lines(options, 0..5_000);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
}

#[test]
fn one_old_file_is_kept_where_one_is_asked_for() {
    let dir = TempDir::new();
    let path = dir.file("records.jsonl");
    let options = FileOptions {
        rotate_bytes: Some(5_000),
        rotate_keep: 1,
        ..crate::support::file_options(&path)
    };
    write_lines(options, 0..2_000);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    assert_eq!(all(&path).last(), Some(&1_999));
}

#[test]
fn a_rotation_costs_as_much_as_files_are_there_and_not_as_may_be_kept() {
    let dir = TempDir::new();
    let path = dir.file("records.jsonl");
    let options = FileOptions {
        rotate_bytes: Some(5_000),
        rotate_keep: u32::MAX,
        ..crate::support::file_options(&path)
    };
    // Files after the first free number are not moved.
    let beyond = dir.file("records.jsonl.40");
    fs::write(&beyond, text_of(7..8)).unwrap();
    write_lines(options, 0..1_000);
    assert_eq!(fs::read_to_string(&beyond).unwrap(), line_of(7));
    fs::remove_file(&beyond).unwrap();
    assert!(crate::support::rotated(&path).len() > 3);
    assert_eq!(all(&path), (0..1_000).collect::<Vec<_>>());
}

#[test]
fn files_are_put_aside_when_their_time_is_over_even_if_nothing_follows() {
    let dir = TempDir::new();
    let path = dir.file("records.jsonl");
    let options = FileOptions {
        rotate_interval: Some(Duration::from_millis(500)),
        ..crate::support::file_options(&path)
    };
    let mut source = to_file(options);
    let meter = source.meters().remove(0);
    let rotations = || hop(&meter).event(Event::Rotations);
    source.send(0..10);
    wait_for("the first file's time", || (rotations() == 1).then_some(()));
    source.send(10..20);
    wait_for("the second file's time", || (rotations() == 2).then_some(()));
    assert!(!path.exists());
    assert_eq!(crate::support::rotated(&path).len(), 2);
    assert_eq!(all(&path), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_file_of_an_earlier_interval_is_put_aside_by_the_next_life() {
    let dir = TempDir::new();
    let path = dir.file("records.jsonl");
    fs::write(&path, text_of(0..10)).unwrap();
    let earlier = std::time::SystemTime::now() - Duration::from_secs(7_200);
    fs::File::options().append(true).open(&path).unwrap().set_modified(earlier).unwrap();
    let options = FileOptions {
        rotate_interval: Some(Duration::from_secs(3_600)),
        ..crate::support::file_options(&path)
    };
    write_lines(options, 10..20);
    assert_eq!(crate::support::rotated(&path).len(), 2);
    assert_eq!(all(&path), (0..20).collect::<Vec<_>>());
}

#[test]
fn every_file_begins_with_the_header_and_another_header_begins_another_file() {
    let dir = TempDir::new();
    let path = dir.file("records.csv");
    let options = FileOptions { rotate_bytes: Some(6_000), ..crate::support::file_options(&path) };
    let csv = |names: &[&str]| {
        sink::file(options.clone(), Content::Records(Encoding::Csv, fields(names)))
    };
    write(csv(&["sequence", "host"]), 0..500);
    let first = crate::support::rotated(&path).len();
    assert!(first > 2);
    write(csv(&["sequence", "host", "rtt_us"]), 500..1_000);

    let files = crate::support::rotated(&path);
    let mut numbers: Vec<u64> = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let header = if at < first { "sequence,host\n" } else { "sequence,host,rtt_us\n" };
        let lines = file.strip_prefix(header).unwrap();
        assert!(lines.ends_with('\n') && file.len() <= 6_000);
        let number = |line: &str| line.split(',').next().unwrap().parse::<u64>().unwrap();
        numbers.extend(lines.lines().map(number));
    }
    assert_eq!(numbers, (0..1_000).collect::<Vec<u64>>());
}

#[test]
fn a_torn_end_is_not_continued() {
    let dir = TempDir::new();
    let path = dir.file("records.jsonl");
    let torn = text_of(0..3).trim_end().to_owned();
    fs::write(&path, &torn).unwrap();
    write_lines(crate::support::file_options(&path), 3..10);
    let files = crate::support::rotated(&path);
    assert_eq!(files[0], torn);
    assert_eq!(numbers_of(&files[1]), (3..10).collect::<Vec<_>>());
}

#[test]
fn a_file_that_was_moved_or_removed_or_emptied_is_noticed() {
    let dir = TempDir::new();
    let (path, moved) = (dir.file("records.jsonl"), dir.file("moved"));
    let mut source = to_file(crate::support::file_options(&path));
    let mut write = |first: u64| {
        source.send(first..first + 10);
        wait_for("a write", || source.is_empty());
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
    wait_for("the count", || (source.hop().event(Event::Reopens) == 2).then_some(()));
}

#[test]
fn what_is_no_regular_file_is_not_written_and_what_waits_is_written_once_it_can_be() {
    let dir = TempDir::new();
    let (path, precious) = (dir.file("records.jsonl"), dir.file("precious"));
    fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&precious, &path).unwrap();
    let mut source = to_file(crate::support::file_options(&path));
    source.send(0..10);
    let errors = || source.hop().event(Event::Errors);
    wait_for("the link's refusal", || (source.hop().gauges[&Gauge::Up] == 0).then_some(()));
    assert_eq!(source.hop().in_flight.count, 10);
    assert!(errors() > 0);
    // Replaced by a rename: if the file were missing, the sink would create one.
    let fifo = dir.file("fifo");
    run(Command::new("mkfifo").arg(&fifo));
    fs::rename(&fifo, &path).unwrap();
    let before = errors();
    wait_for("the FIFO's refusal", || (errors() > before + 1).then_some(()));
    fs::remove_file(&path).unwrap();
    wait_for("the file", || source.hop().in_flight.is_zero().then_some(()));
    assert_eq!(all(&path), (0..10).collect::<Vec<_>>());
    wait_for("the gauge", || (source.hop().gauges[&Gauge::Up] == 1).then_some(()));
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
}

#[test]
fn what_cannot_be_written_goes_by_the_reason_that_it_cannot() {
    let file = crate::support::file_options(Path::new("/proc/weir-does-not-exist"));
    let queue = QueueOptions { bytes_max: 10_000, when_full: WhenFull::DropOldest };
    let mut source = Source::to_one(SinkOptions { queue, ..options("file", lines(file)) });
    let meter = source.meters().remove(0);
    wait_for("the first error", || {
        source.send(0..10);
        (dropped(&meter, Reason::WriteError) > 200).then_some(())
    });
    check_law(&hop(&meter));
    let inside = hop(&meter).in_flight;
    let left = source.stop(Instant::now() + Duration::from_millis(300));
    assert_eq!(left, [("file".to_owned(), inside)]);
    check_law(&hop(&meter));
    assert_eq!(hop(&meter).in_flight.count, 0);
    assert_eq!(dropped(&meter, Reason::Shutdown), 0);
}

/// A file system of 256 KiB.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = TempDir::new();
        let at = dir.path().to_str().unwrap().to_owned();
        let args = ["-t", "tmpfs", "-o", "size=256k", "weir-test", &at];
        let done = Command::new("mount").args(args).output();
        done.is_ok_and(|output| output.status.success()).then(|| SmallDisk(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because the sink's thread closes its file a moment after its end.
        run(Command::new("umount").arg("--lazy").arg(self.0.path()));
    }
}

#[test]
fn a_full_disk_tears_no_record_and_costs_none_if_it_has_room_again_in_time() {
    let Some(disk) = SmallDisk::mount() else {
        skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
        return;
    };
    let (path, filler) = (disk.0.file("records.jsonl"), disk.0.file("filler"));
    fs::write(&filler, vec![0; 150_000]).unwrap();
    let batch = batch_rows(100);
    let connector = lines(crate::support::file_options(&path));
    let mut source = Source::to_one(SinkOptions { batch, ..options("file", connector) });
    let meter = source.meters().remove(0);
    // Batches that end in the middle of a page, so that the disk accepts part of one.
    for first in (0..3_000).step_by(100) {
        source.send(first..first + 100);
    }
    wait_for("the full disk", || (hop(&meter).gauges[&Gauge::Up] == 0).then_some(()));
    let delivered = hop(&meter).delivered;
    wait_for("the error", || (hop(&meter).gauge(Gauge::LastErrno) == Some(28)).then_some(()));
    assert!(delivered.count > 0 && delivered.count < 3_000, "{delivered:?}");
    let numbers = all(&path);
    assert_eq!(numbers, (0..delivered.count).collect::<Vec<_>>());
    check_law(&hop(&meter));
    fs::remove_file(&filler).unwrap();
    wait_for("the rest", || hop(&meter).in_flight.is_zero().then_some(()));
    assert_eq!(all(&path), (0..3_000).collect::<Vec<_>>());
    assert!(hop(&meter).dropped_total().is_zero());
}
