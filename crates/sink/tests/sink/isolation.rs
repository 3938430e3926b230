//! Sinks next to a slow, a hanging and a panicking one: they lose nothing, and deliver as fast as without it.

use crate::support::{Watch, check_law, hop, number_and_filling, numbered, options};
use ledger::{Event, HopSnapshot};
use record::{Encoding, FieldSet};
use sink::batch::{Attempt, Fate, Outcome};
use sink::{
    BatchLimits, Connector, Content, DeliveryOptions, Destination, Fanout, Form, Partition,
    QueueOptions, RowEncoder, Sink, SinkOptions, WhenFull,
};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{DEADLINE, OwnProgram, TempDir, alone, run, wait_for};

/// What is wrong with a destination.
#[derive(Clone)]
enum Fault {
    /// It never answers.
    Silent,
    /// It answers one batch per call, slowly.
    Slow,
    /// No call returns until the test allows it.
    Hangs(Arc<Mutex<Receiver<()>>>),
    Panics,
}

#[derive(Clone)]
struct Bad {
    fault: Fault,
    has: Vec<Attempt>,
}

impl Destination for Bad {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if let Fault::Hangs(end) = &self.fault {
            let _ = end.lock().unwrap().recv();
        }
        self.has.push(attempt);
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        match self.fault {
            Fault::Panics if !self.has.is_empty() => panic!("a defect of the client, as planned"),
            Fault::Slow => {
                thread::park_timeout(wait.max(Duration::from_millis(5)));
                let first = self.has.pop();
                done.extend(first.map(|one| Outcome::all(one.batch.id, Fate::Acknowledged)));
            }
            _ => thread::park_timeout(wait),
        }
    }
}

fn bad(fault: Fault) -> Connector {
    let bad = Bad { fault, has: Vec::new() };
    Connector {
        form: Box::new(|| {
            let fields = number_and_filling();
            Form::Mixed(Box::new(RowEncoder::new(Encoding::Jsonl, &fields, Partition::Whole)))
        }),
        destination: Box::new(move || Ok(Box::new(bad.clone()))),
    }
}

fn open(name: &str, connector: Connector) -> Sink {
    let queue = QueueOptions { bytes_max: 1 << 20, when_full: WhenFull::DropOldest };
    let delivery =
        DeliveryOptions { answer_max: Duration::from_secs(1), ..DeliveryOptions::default() };
    Sink::open(SinkOptions { queue, delivery, ..options(name, connector) }).unwrap()
}

fn good(dir: &TempDir) -> [Sink; 2] {
    let content = Content::Records(Encoding::Protobuf, FieldSet::ALL);
    let file = sink::file(crate::support::file_options(&dir.file("records")), content);
    [open("null", sink::null(content)), open("file", file)]
}

/// Sends a chunk of 100 records every millisecond and measures how long each took until both sinks had delivered it; returns the
/// 99th percentile.
fn delays(fanout: &Fanout, good: &[Sink; 2], chunks: u64) -> Duration {
    let mut writer = fanout.writer([3; 16]);
    let mut delays = Vec::new();
    let delivered = |sink: &Sink| hop(&sink.meter()).delivered.count;
    let before = delivered(&good[0]);
    for chunk in 1..=chunks {
        let began = Instant::now();
        (0..100).for_each(|number| writer.record(&numbered(number)));
        writer.flush();
        let target = before + chunk * 100;
        wait_for("both", || good.iter().all(|sink| delivered(sink) >= target).then_some(()));
        delays.push(began.elapsed());
    }
    delays.sort();
    delays[delays.len() * 99 / 100]
}

/// Offers rows as fast as the sound sinks accept them.
fn flood(fanout: &Fanout, good: &[Sink; 2], records: u64) {
    let mut writer = fanout.writer([4; 16]);
    for number in 0..records {
        writer.record(&numbered(number));
        // The sound sinks have a queue of 1 MiB each, and must get no more than they can hold.
        if number.is_multiple_of(1_000) {
            writer.flush();
            wait_for("room", || {
                good.iter().all(|sink| hop(&sink.meter()).in_flight.count < 4_000).then_some(())
            });
        }
    }
    writer.flush();
}

#[test]
fn bad_neighbors_cost_a_sink_no_row_and_no_time() {
    alone();
    let dir = TempDir::new();
    let good = good(&dir);
    let fanout = Fanout::default();
    good.iter().for_each(|sink| fanout.attach(sink));
    let without = delays(&fanout, &good, 300);

    let (end, ends): (Sender<()>, _) = channel();
    let faults = [
        ("silent", Fault::Silent),
        ("slow", Fault::Slow),
        ("hangs", Fault::Hangs(Arc::new(Mutex::new(ends)))),
        ("panics", Fault::Panics),
    ];
    let neighbors: Vec<_> =
        faults.into_iter().map(|(name, fault)| open(name, bad(fault))).collect();
    neighbors.iter().for_each(|sink| fanout.attach(sink));
    let all: Vec<_> = good.iter().chain(&neighbors).map(Sink::meter).collect();
    let watch = Watch::new(all.iter().map(Arc::clone));

    let with = delays(&fanout, &good, 300);
    assert!(with < without * 3 + Duration::from_millis(50), "{with:?} with, {without:?} without");
    flood(&fanout, &good, 200_000);
    wait_for("the good ones", || {
        good.iter().all(|sink| hop(&sink.meter()).in_flight.is_zero()).then_some(())
    });
    for sink in &good {
        let hop = hop(&sink.meter());
        check_law(&hop);
        assert_eq!((hop.received, hop.received.count), (hop.delivered, 260_000), "{hop:?}");
    }

    let hops: Vec<HopSnapshot> = neighbors.iter().map(|sink| hop(&sink.meter())).collect();
    assert!(hops.iter().all(|hop| !hop.dropped.is_empty()), "{hops:?}");
    wait_for("a panic", || (hop(&neighbors[3].meter()).event(Event::Panics) > 1).then_some(()));

    let deadline = Instant::now() + Duration::from_millis(200);
    neighbors.iter().for_each(|sink| sink.close(deadline));
    let left: u64 = neighbors.into_iter().map(|sink| sink.wait(deadline).count).sum();
    assert!(left > 0);
    drop(end);
    let hops: Vec<HopSnapshot> = all.iter().map(hop).collect();
    assert!(hops.iter().all(|hop| hop.in_flight.is_zero()), "{hops:?}");
    assert!(watch.end() > 0);
    good.into_iter().for_each(|sink| assert!(sink.wait(Instant::now() + DEADLINE).is_zero()));
}

const CHILD: &str = "WEIR_TEST_SINK_MEMORY";

#[test]
fn a_sink_keeps_to_its_memory_when_nothing_leaves() {
    // Alone in its process, so that the memory of other tests is not counted.
    let program = OwnProgram::copy("memory");
    run(program.command(&["isolation::child_that_fills_a_sink"]).env(CHILD, "1"));
}

#[test]
fn child_that_fills_a_sink() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let queue = QueueOptions { bytes_max: 16 << 20, when_full: WhenFull::DropOldest };
    let batch = BatchLimits { bytes: 1 << 20, ..BatchLimits::default() };
    let connector = bad(Fault::Silent);
    let sink = Sink::open(SinkOptions { queue, batch, ..options("full", connector) }).unwrap();
    let fanout = Fanout::default();
    fanout.attach(&sink);
    let mut writer = fanout.writer([5; 16]);
    let mut send = |records: u64| (0..records).for_each(|number| writer.record(&numbered(number)));

    // Fill the queue, and then offer the same amount again several times.
    let before = resident_bytes();
    send(200_000);
    wait_for("a full queue", || (!hop(&sink.meter()).dropped.is_empty()).then_some(()));
    send(1_000_000);
    let grown = resident_bytes().saturating_sub(before);
    // The queue, two batches with their chunk, and what the allocator keeps.
    let most = (queue.bytes_max + 4 * batch.bytes) * 11 / 10 + (4 << 20);
    assert!(grown <= most, "{grown} bytes more, of {most}");
    assert!(grown >= queue.bytes_max / 2, "{grown} bytes: it was not full");
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
