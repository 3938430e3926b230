//! What must hold for every destination while its server is down, slow or misbehaving.

use crate::support::{
    Source, Watch, check_law, file_options, hop, number_and_filling, numbers_of, options,
};
use ledger::{Event, Gauge, HopSnapshot, Reason};
use record::Encoding;
use sink::{Content, QueueOptions, Sink, SinkOptions, SpoolOptions, SpoolSync};
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};
use testkit::proxy::{Fault, Proxy};
use testkit::servers::Own;
use testkit::{DEADLINE, TempDir, outage, say, wait_for, wait_for_up_to};

/// A server, and how to read what it stored.
pub(crate) trait Outage {
    fn stop(&mut self);
    fn start(&mut self);
    /// The numbers of all rows that it has, including repetitions.
    fn numbers(&mut self) -> Vec<u64>;

    /// The rate at which rows are offered.
    fn rows_per_sec(&self) -> u64 {
        20_000
    }
}

/// A server that is killed and restarted, and a function that reads the numbers of its rows.
pub(crate) struct Killed<F> {
    pub(crate) server: Own,
    pub(crate) read: F,
    pub(crate) rows_per_sec: u64,
}

impl<F: FnMut(&Own) -> Vec<u64>> Outage for Killed<F> {
    fn stop(&mut self) {
        self.server.kill();
    }

    fn start(&mut self) {
        self.server.restart();
    }

    fn numbers(&mut self) -> Vec<u64> {
        (self.read)(&self.server)
    }

    fn rows_per_sec(&self) -> u64 {
        self.rows_per_sec
    }
}

const CHUNK_ROWS: u64 = 200;

/// Sends rows at this rate for this time; returns the next number.
fn send(source: &mut Source, first: u64, rows_per_sec: u64, time: Duration) -> u64 {
    let begin = Instant::now();
    let count = rows_per_sec * time.as_millis() as u64 / 1_000 / CHUNK_ROWS * CHUNK_ROWS;
    for at in (0..count).step_by(CHUNK_ROWS as usize) {
        source.send(first + at..first + at + CHUNK_ROWS);
        let due = Duration::from_micros(at * 1_000_000 / rows_per_sec);
        sys::poll::pause(due.saturating_sub(begin.elapsed()));
    }
    first + count
}

struct Run {
    hop: HopSnapshot,
    sent: u64,
    distinct: BTreeSet<u64>,
    repeated: u64,
    drained_in: Duration,
}

fn run(mut server: impl Outage, options: SinkOptions) -> Run {
    let mut source = Source::to_one(options);
    let meter = source.meters().remove(0);
    let watch = Watch::new(source.meters());
    let rate = server.rows_per_sec();
    let mut next = send(&mut source, 0, rate, Duration::from_secs(1));
    server.stop();
    next = send(&mut source, next, rate, outage());
    wait_for("the trouble to be seen", || hop(&meter).trouble.map(drop));
    server.start();

    let back = Instant::now();
    next = send(&mut source, next, rate, Duration::from_secs(1));
    wait_for_up_to(DEADLINE + 2 * outage(), "everything to leave", || source.is_empty());
    let drained_in = back.elapsed();
    wait_for("the sink to be well", || (source.hop().gauges[&Gauge::Up] == 1).then_some(()));
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
    assert!(watch.end() > 0);

    let numbers = server.numbers();
    let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
    let repeated = (numbers.len() - distinct.len()) as u64;
    let hop = hop(&meter);
    check_law(&hop);
    Run { hop, sent: next, distinct, repeated, drained_in }
}

/// Every lost row is one that the sink counted as lost. Returns its hop at the end.
pub(crate) fn without_spool(
    server: impl Outage,
    options: impl FnOnce() -> SinkOptions,
) -> HopSnapshot {
    let queue = QueueOptions { bytes_max: 512 << 10, ..QueueOptions::default() };
    let Run { hop, sent, distinct, repeated, .. } = run(server, SinkOptions { queue, ..options() });
    assert_eq!(hop.received.count, sent, "{hop:?}");
    let dropped = hop.dropped_for(Reason::Unavailable) + hop.dropped_for(Reason::QueueFull);
    assert!(dropped.count > sent / 2, "{hop:?}");
    assert_eq!(hop.delivered.count + dropped.count, sent, "{hop:?}");
    assert_eq!(distinct.len() as u64, hop.delivered.count, "{hop:?}");
    assert!(repeated <= hop.event(Event::PossibleDuplicates), "{repeated} {hop:?}");
    hop
}

/// Nothing is missing, and duplicates are counted. Returns its hop at the end.
pub(crate) fn with_spool(
    server: impl Outage,
    options: impl FnOnce() -> SinkOptions,
) -> HopSnapshot {
    let dir = TempDir::new();
    let spool = SpoolOptions {
        folder: dir.file("spool"),
        bytes_max: 1 << 30,
        sync: SpoolSync::Every(Duration::from_millis(100)),
    };
    let Run { hop, sent, distinct, repeated, drained_in } =
        run(server, SinkOptions { spool: Some(spool), ..options() });
    assert_eq!(hop.delivered.count, sent, "{hop:?}");
    assert!(distinct.into_iter().eq(0..sent));
    let possible = hop.event(Event::PossibleDuplicates);
    say(&format!(
        "{}: {sent} rows, {:?} away, drained in {drained_in:.1?}, {repeated} there twice of {possible} that may be",
        hop.target.as_deref().unwrap_or_default(),
        outage(),
    ));
    assert!(repeated <= possible, "{repeated} {hop:?}");
    assert!(drained_in < 2 * outage(), "{drained_in:?}");
    hop
}

/// Chunks within which a fault must show: some ten megabytes fit in the buffers of a connection before its sink notices.
const CHUNKS_UNDER_FAULT: Range<u64> = 20..2_000;

/// Under each fault in turn the ledger closes, a file sink next to it gets everything while the faulty sink falls behind, and
/// that sink recovers by itself. Returns its hop at the end.
pub(crate) fn beside(faulty: SinkOptions, proxy: &Proxy, faults: &[Fault]) -> HopSnapshot {
    let dir = TempDir::new();
    let path = dir.file("beside.jsonl");
    let content = Content::Records(Encoding::Jsonl, number_and_filling());
    let file = options("beside", sink::file(file_options(&path), content));
    let sinks = [file, faulty].map(|options| Sink::open(options).unwrap());
    let mut source = Source::to(sinks.into());
    let meters = source.meters();
    let watch = Watch::new(source.meters());
    let mut next = 0;
    let mut send = |count: u64| {
        source.send(next..next + count);
        next += count;
    };

    for fault in faults {
        // It is connected when the fault begins.
        send(1);
        wait_for("an answer", || hop(&meters[1]).in_flight.is_zero().then_some(()));
        proxy.set(*fault);

        // The file has the last chunk, and the faulty sink not even the one before. A refused connection never reaches the proxy.
        let has_fired = || proxy.fired() > 0 || *fault == Fault::Refuse;
        let is_behind = || hop(&meters[1]).in_flight.count > CHUNK_ROWS && has_fired();
        let fell_behind = (1..CHUNKS_UNDER_FAULT.end).any(|chunks| {
            send(CHUNK_ROWS);
            wait_for("the file", || hop(&meters[0]).in_flight.is_zero().then_some(()));
            chunks >= CHUNKS_UNDER_FAULT.start && is_behind()
        });
        assert!(fell_behind, "{fault:?} has no effect: {:?}", hop(&meters[1]));

        proxy.set(Fault::None);
        wait_for("the sink to recover", || hop(&meters[1]).in_flight.is_zero().then_some(()));
        let faulty = hop(&meters[1]);
        assert_eq!(faulty.delivered, faulty.received, "{fault:?}: {faulty:?}");
    }

    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
    assert!(watch.end() > 0);
    assert!(numbers_of(&fs::read_to_string(&path).unwrap()).into_iter().eq(0..next));
    let last = hop(&meters[1]);
    check_law(&last);
    assert_eq!(last.delivered.count, next);
    last
}
