//! What the tests of sinks share.

#![allow(dead_code, reason = "each test binary compiles this file and uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic as the test does")]

pub(crate) mod netns;

use ledger::{Gauge, HopKind, HopSnapshot, Ledger, Meter, Reason};
use sink::{Destination, FileOptions, Framing, Payload, QueueLimits, Sink};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that is meant to happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `look` finds something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// A folder of a test's own, removed with it.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-sink-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file without rotation.
pub(crate) fn file_options(path: &Path) -> FileOptions {
    FileOptions {
        path: path.to_owned(),
        rotate_bytes: None,
        rotate_interval: None,
        rotate_keep: 1_000,
    }
}

pub(crate) fn lines() -> Framing {
    Framing { header: Vec::new(), record_end: Some(b'\n') }
}

pub(crate) fn open(name: &str, destination: Box<dyn Destination>, framing: Framing) -> Sink {
    Sink::open("test", name, QueueLimits::default(), destination, framing).unwrap()
}

/// Lines `first..first + count` as one payload, each of its own length.
pub(crate) fn payload_of_lines(first: u64, count: u64) -> Payload {
    let line = |n: u64| format!("{n} {}\n", "x".repeat((n % 97) as usize));
    let text: String = (first..first + count).map(line).collect();
    Payload::new(text.as_bytes(), count)
}

/// The numbers of the lines that [`payload_of_lines`] made; fails on a torn one.
pub(crate) fn numbers_of(text: &str) -> Vec<u64> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is torn");
    let number = |line: &str| {
        let (number, filling) = line.split_once(' ').unwrap_or_else(|| panic!("torn: {line}"));
        let number: u64 = number.parse().unwrap();
        assert_eq!(filling, "x".repeat((number % 97) as usize), "torn: {line}");
        number
    };
    text.lines().map(number).collect()
}

/// The files at `path`, the oldest first.
pub(crate) fn rotated_bytes(path: &Path) -> Vec<Vec<u8>> {
    let numbered = |n: usize| PathBuf::from(format!("{}.{n}", path.display()));
    let mut files: Vec<_> = (1..).map(numbered).map_while(|path| fs::read(path).ok()).collect();
    files.reverse();
    files.extend(fs::read(path).ok());
    files
}

/// The same as text.
pub(crate) fn rotated(path: &Path) -> Vec<String> {
    rotated_bytes(path).into_iter().map(|file| String::from_utf8(file).unwrap()).collect()
}

/// The hop of a sink.
pub(crate) fn hop(meter: &Arc<dyn Meter>) -> HopSnapshot {
    let mut hops = Vec::new();
    meter.read(&mut hops);
    let hop = hops.pop().unwrap();
    assert_eq!((hop.hop, hops.len()), (HopKind::Sink, 0));
    hop
}

pub(crate) fn check_law(hop: &HopSnapshot) {
    assert_eq!(hop.unaccounted, 0, "{hop:?}");
    let left = hop.delivered + hop.dropped_total();
    assert_eq!(hop.received, left + hop.in_flight, "{hop:?}");
    assert!(hop.in_flight.bytes <= hop.gauges[&Gauge::QueueLimitBytes], "{hop:?}");
    assert_eq!(hop.in_flight.bytes, hop.gauges[&Gauge::QueueBytes], "{hop:?}");
}

pub(crate) fn dropped(meter: &Arc<dyn Meter>, reason: Reason) -> u64 {
    hop(meter).dropped_for(reason).count
}

/// Reads a ledger all the time, until dropped, and fails if the law did.
pub(crate) struct Watch {
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Watch {
    pub(crate) fn new(meters: impl IntoIterator<Item = Arc<dyn Meter>>) -> Watch {
        let ledger = Arc::new(Ledger::new("1".into()));
        meters.into_iter().for_each(|meter| ledger.register(meter));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (ledger, stop) = (Arc::clone(&ledger), Arc::clone(&stop));
            move || {
                let mut looks = 0;
                while !stop.load(Ordering::Relaxed) {
                    ledger.check().hops.iter().for_each(check_law);
                    looks += 1;
                }
                looks
            }
        });
        Watch { ledger, stop, thread: Some(thread) }
    }

    /// Ends, and returns how often the law was looked at.
    pub(crate) fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let looks = self.thread.take().unwrap().join().unwrap();
        let last = self.ledger.check();
        assert!(last.is_balanced(), "{last:?}");
        looks
    }
}

/// Prints why a test does nothing. With one of the variables at 1 that is a failure.
pub(crate) fn skip(reason: &str, required_by: &[&str]) {
    for name in required_by {
        assert!(std::env::var_os(name).is_none_or(|value| value != "1"), "{reason} ({name}=1)");
    }
    // Straight to the descriptor: the test harness captures `eprintln!` of tests that pass.
    std::io::stderr().write_all(format!("skipped: {reason}\n").as_bytes()).unwrap();
}

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
}
