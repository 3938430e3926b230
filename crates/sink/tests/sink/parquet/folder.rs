//! The Parquet directory: whole files or none, leftovers, retention, full disks and missing permissions.

use super::{START_UNIX_NS, end, folder_options, hop, open};
use crate::rows;
use ledger::{Event, Gauge};
use record::{DatagramRecord, SocketRecord};
use sink::parquet::FolderOptions;
use sink::{BatchLimits, ChunkWriter, Fanout, Sink};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};
use sys::clock::realtime_ns;
use testkit::{
    OwnProgram, Peer, Random, SmallDisk, TempDir, find_tool, need_python_module, root, run, skip,
    wait_for,
};

/// A file for every `rows` rows.
fn batches(rows: usize) -> BatchLimits {
    BatchLimits { rows, bytes: 64 << 20, age: Duration::from_secs(60) }
}

fn attached(sink: &Sink) -> ChunkWriter {
    let fanout = Fanout::default();
    fanout.attach(sink);
    fanout.writer([7; 16])
}

/// Records `first..first + count` of a run, one per second.
fn write(writer: &mut ChunkWriter, run_id: u64, first: u64, count: u64) {
    let mut random = Random(first + 1);
    for sequence in first..first + count {
        writer.record(&SocketRecord {
            run_id: Some(run_id),
            sequence: Some(sequence),
            time_unix_ns: Some(START_UNIX_NS + sequence * 1_000_000_000),
            ..rows::realistic(&mut random)
        });
    }
    writer.flush();
}

/// Every file below a directory, sorted by path.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn unfinished(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| path.to_string_lossy().ends_with(".tmp")).collect()
}

#[test]
fn files_lie_by_table_day_and_hour_and_sort_by_time() {
    let dir = TempDir::new();
    let sink = open(folder_options(dir.path()), batches(1_000));
    let mut writer = attached(&sink);
    // From 18:42:00 on, so that the third file belongs to the next hour.
    write(&mut writer, 1, 0, 1_000);
    write(&mut writer, 1, 1_000, 1_000);
    drop(writer);
    assert_eq!(end(sink).delivered.count, 2_000);

    let paths = files(dir.path());
    let day = dir.file("table=sockets/date=2026-11-22");
    assert_eq!(paths.len(), 2, "{paths:?}");
    for (path, [hour, stamp]) in paths.iter().zip([
        ["hour=18", "20261122T184200.000000Z-web_1-"],
        ["hour=18", "20261122T185840.000000Z-web_1-"],
    ]) {
        assert_eq!(path.parent().unwrap(), day.join(hour));
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with(stamp), "{path:?}");
    }
}

#[test]
fn old_files_and_too_many_go_and_those_of_others_stay() {
    let dir = TempDir::new();
    let theirs = dir.file("table=sockets/date=2000-01-01/hour=00");
    fs::create_dir_all(&theirs).unwrap();
    let of_another_host = "20000101T000000.000000Z-web_2-00000000000000000000000000000000.parquet";
    for name in ["part-0.parquet", ".part-0.parquet.tmp", of_another_host] {
        fs::write(theirs.join(name), "theirs").unwrap();
    }

    // Each file covers a quarter of an hour.
    let sink = open(folder_options(dir.path()), batches(900));
    let mut writer = attached(&sink);
    (0..12).for_each(|file| write(&mut writer, 1, file * 900, 900));
    drop(writer);
    let before = end(sink);
    let all = files(dir.path());
    assert_eq!(all.len(), 3 + 12);
    assert_eq!(before.gauges[&Gauge::FolderBytes], lengths(&all[3..]));

    // Files of the other tables, one older than all of them and one newer.
    let [oldest, youngest] =
        [("polls", "20260101"), ("datagrams", "20990101")].map(|(table, day)| {
            let hour = dir.file(&format!("table={table}/date={day}/hour=00"));
            fs::create_dir_all(&hour).unwrap();
            let path = hour.join(format!("{day}T000000.000000Z-web_1-{:032}.parquet", 0));
            fs::write(&path, "ours").unwrap();
            path
        });

    // Room for three and a half of them: the next life removes the excess, oldest first, before it gets a record.
    let keep_bytes = lengths(&all[3..]) * 7 / 24;
    let options = FolderOptions { keep_bytes: Some(keep_bytes), ..folder_options(dir.path()) };
    let sink = open(options, batches(900));
    wait_for("files to be removed", || {
        (hop(&*sink.meter()).event(Event::FilesRemoved) == 10).then_some(())
    });
    end(sink);
    assert!(!oldest.exists() && youngest.exists(), "tables are not looked at together");
    fs::remove_file(&youngest).unwrap();
    let left = files(dir.path());
    assert_eq!((&left[..3], &left[3..], left.len()), (&all[..3], &all[12..], 6));
    assert!(!dir.file("table=sockets/date=2026-11-22/hour=18").exists(), "its files are gone");

    // Now two are too old, again before there is a record. A third was written just now: its name does not matter.
    left[3..5].iter().for_each(|path| make_old(path, Duration::from_secs(7_200)));
    look_for_old(dir.path(), &left[4]);
    let young = [&all[..3], &left[5..]].concat();
    wait_for("old files to be removed", || (files(dir.path()) == young).then_some(()));
}

/// Makes a file look as if it had been written that long ago.
fn make_old(path: &Path, age: Duration) {
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

/// Runs a sink that keeps files for a second, until it has removed this one.
fn look_for_old(folder: &Path, last: &Path) {
    let keep_age = Some(Duration::from_secs(1));
    let sink = open(FolderOptions { keep_age, ..folder_options(folder) }, batches(900));
    wait_for("an old file to be removed", || (!last.exists()).then_some(()));
    end(sink);
}

#[test]
fn a_time_that_another_host_says_moves_no_file_and_removes_none() {
    let dir = TempDir::new();
    let keep_age = Some(Duration::from_secs(3_600));
    let sink = open(FolderOptions { keep_age, ..folder_options(dir.path()) }, batches(3));
    let mut writer = attached(&sink);
    let arrived = realtime_ns();
    for said in [1, arrived, u64::MAX / 4] {
        let far = DatagramRecord { time_unix_ns: Some(said), ..DatagramRecord::new() };
        writer.try_datagram(&far, 1, arrived).unwrap();
    }
    writer.flush();
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|end| end == "parquet");
    let path = wait_for("a file", || files(dir.path()).into_iter().find(is_whole));
    drop(writer);
    end(sink);
    let text::Civil { year, month, day, .. } = text::Civil::of(arrived);
    let date = format!("date={year:04}-{month:02}-{day:02}");
    assert!(path.to_str().unwrap().contains(&date), "{path:?}");

    // One of an earlier version, named by the row of 1970, and one that is old.
    let folder = dir.file("table=datagrams/date=1970-01-01/hour=00");
    fs::create_dir_all(&folder).unwrap();
    let [young, old] = [1, 2].map(|number| {
        let path = folder.join(format!("19700101T000000.000000Z-web_1-{number:032}.parquet"));
        fs::write(&path, "ours").unwrap();
        path
    });
    make_old(&old, Duration::from_secs(61));
    look_for_old(dir.path(), &old);
    assert!(young.exists() && path.exists(), "younger than a minute");
}

fn lengths(paths: &[PathBuf]) -> u64 {
    paths.iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn a_folder_that_cannot_be_written_is_named_with_cause_and_cure() {
    let dir = TempDir::new();
    // Not even root can create a directory below a file.
    let folder = dir.file("file");
    fs::write(&folder, "").unwrap();
    let sink = open(folder_options(&folder), batches(100));
    let mut writer = attached(&sink);
    write(&mut writer, 1, 0, 100);
    let trouble = wait_for("the trouble", || hop(&*sink.meter()).trouble);
    assert!(trouble.what.ends_with("/file: Not a directory (os error 20)"), "{trouble:?}");
    assert_eq!(trouble.fix, format!("see that {0} can be written: ls -ld {0}", folder.display()));

    // The obstacle is removed.
    fs::remove_file(&folder).unwrap();
    drop(writer);
    assert_eq!(end(sink).delivered.count, 100);
    assert_eq!(files(&folder).len(), 1);
}

#[test]
fn a_full_disk_is_waited_for_and_nothing_is_lost() {
    let Some(disk) = SmallDisk::mount("1m") else {
        skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
        return;
    };
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; 800_000]).unwrap();
    let folder = disk.path().join("records");
    let sink = open(folder_options(&folder), batches(500));
    let meter = sink.meter();
    let mut writer = attached(&sink);
    (0..8).for_each(|file| write(&mut writer, 1, file * 500, 500));
    drop(writer);

    let trouble = wait_for("the disk to be full", || hop(&*meter).trouble);
    assert!(trouble.fix.starts_with("free space on the file system of"), "{trouble:?}");
    let stuck = hop(&*meter);
    assert_eq!(stuck.received, stuck.delivered + stuck.in_flight, "{stuck:?}");
    assert!(stuck.in_flight.count > 0);
    assert_eq!(unfinished(&folder), [] as [PathBuf; 0], "what was begun does not take the space");

    fs::remove_file(&filler).unwrap();
    let hop = end(sink);
    assert_eq!((hop.delivered.count, hop.dropped_total().count), (4_000, 0), "{hop:?}");
    assert_eq!(files(&folder).len(), 8);
}

const CHILD_FOLDER: &str = "WEIR_TEST_PARQUET";
const CHILD_RUN: &str = "WEIR_TEST_PARQUET_RUN";

/// Writes files until it is killed, and prints how many rows were acknowledged.
#[test]
fn child_that_writes() {
    let Some(folder) = env::var_os(CHILD_FOLDER) else { return };
    let run_id = env::var(CHILD_RUN).unwrap().parse().unwrap();
    let sink = open(folder_options(Path::new(&folder)), batches(200));
    let meter = sink.meter();
    let mut writer = attached(&sink);
    let mut stdout = std::io::stdout();
    for first in (0..).step_by(200) {
        write(&mut writer, run_id, first, 200);
        let hop = wait_for("room", || {
            let hop = hop(&*meter);
            (hop.delivered.count + 600 > first).then_some(hop)
        });
        writeln!(stdout, "acknowledged {}", hop.delivered.count).unwrap();
    }
}

#[test]
fn files_of_a_process_that_is_killed_at_any_moment_are_whole() {
    const KILLS: u64 = 200;
    if !need_python_module("pyarrow") {
        return;
    }
    let dir = TempDir::new();
    let folder = dir.file("records");
    let program = OwnProgram::copy("parquet");
    let mut random = Random(17);
    let (mut lines, mut left, mut removed) = (String::new(), Vec::new(), 0);

    for run_id in 1..=KILLS {
        let this = module_path!().split_once("::").unwrap().1;
        let mut command = program.command(&[&format!("{this}::child_that_writes")]);
        command.env(CHILD_FOLDER, &folder).env(CHILD_RUN, run_id.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = Peer::start(&mut command);
        let acknowledged = kill_at(&mut child, Duration::from_micros(random.below(30_000)));
        lines += &format!("{run_id} {acknowledged}\n");

        // The leftovers of the previous run are gone.
        let now_left = unfinished(&folder);
        assert!(left.iter().all(|path| !now_left.contains(path)), "run {run_id}: {left:?}");
        assert!(now_left.len() <= 1, "a file is written at a time");
        removed += left.len();
        left = now_left;
    }
    assert!(removed > 0, "no kill hit a file that was being written");

    fs::write(dir.file("acknowledged"), lines).unwrap();
    let script = root().join("crates/sink/tests/parquet_files.py");
    let mut python = Command::new(find_tool("weir-python").unwrap());
    let said = run(python.arg(script).arg(&folder).arg(dir.file("acknowledged")));
    testkit::say(&format!("parquet: {KILLS} kills, {removed} leftovers removed, {}", said.trim()));
}

/// Kills the child some time after its first file; returns how many rows it reported as acknowledged.
fn kill_at(child: &mut Peer, after: Duration) -> u64 {
    let (sender, lines) = mpsc::channel();
    let stdout = BufReader::new(child.0.stdout.take().unwrap());
    let reader = thread::spawn(move || {
        stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });

    let mut acknowledged = 0;
    let (mut until, mut is_killed) = (Instant::now() + testkit::DEADLINE, false);
    loop {
        let line = match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                assert!(!is_killed && acknowledged > 0, "the child says nothing");
                child.0.kill().unwrap();
                (until, is_killed) = (Instant::now() + testkit::DEADLINE, true);
                continue;
            }
        };
        let Some((_, rows)) = line.split_once("acknowledged ") else { continue };
        let rows: u64 = rows.parse().unwrap();
        // The time counts from the first file.
        if acknowledged == 0 && rows > 0 {
            until = Instant::now() + after;
        }
        acknowledged = rows;
    }

    child.0.wait().unwrap();
    reader.join().unwrap();
    acknowledged
}
