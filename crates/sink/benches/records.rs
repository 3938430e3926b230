//! Cost of a record on its way into sinks that discard it: CPU time of the source's thread, and of the whole process. The records
//! are 128 different ones of about 110 fields in turn, in polls of 2,000; the source waits between polls until the sinks are
//! empty, so no record is dropped. `cargo bench -p sink`. Without `--bench` it runs briefly once.

#![expect(clippy::print_stdout, reason = "a bench prints what it finds")]

#[path = "../../record/tests/record/support.rs"]
mod support;

use record::{Encoding, FieldSet, PollTotals, SocketRecord};
use sink::{BatchLimits, Content, DeliveryOptions, Fanout, QueueOptions, Sink, SinkOptions};
use std::time::{Duration, Instant};
use sys::clock::{process_cpu_ns, thread_cpu_ns};

const RECORDS: usize = 128;
const POLL_RECORDS: usize = 2_000;

/// Number of rounds, of which the best counts, and of polls in each.
const FULL: (usize, usize) = (9, 100);
const MOMENT: (usize, usize) = (1, 2);

fn null(name: &str, encoding: Encoding) -> Sink {
    let opened = Sink::open(SinkOptions {
        name: name.into(),
        origin: "bench".into(),
        queue: QueueOptions::default(),
        batch: BatchLimits::default(),
        delivery: DeliveryOptions::default(),
        spool: None,
        connector: sink::null(Content::Records(encoding, FieldSet::ALL)),
    });
    opened.expect("a thread can be started")
}

/// Nanoseconds per record: of the source's thread, and of the whole process.
fn round(sinks: &[Sink], records: &[SocketRecord<'_>], polls: usize) -> (f64, f64) {
    let fanout = Fanout::default();
    sinks.iter().for_each(|sink| fanout.attach(sink));
    let mut writer = fanout.writer([1; 16]);

    let (mut own_ns, began_ns) = (0, process_cpu_ns());
    for poll in 0..polls {
        let poll_ns = thread_cpu_ns();
        for at in 0..POLL_RECORDS {
            writer.record(&records[(poll + at) % RECORDS]);
        }
        writer.end_of_poll(&PollTotals::default());
        own_ns += thread_cpu_ns() - poll_ns;
        wait_until_empty(sinks);
    }

    let count = (polls * POLL_RECORDS) as f64;
    (own_ns as f64 / count, (process_cpu_ns() - began_ns) as f64 / count)
}

fn wait_until_empty(sinks: &[Sink]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    for sink in sinks {
        let meter = sink.meter();
        loop {
            let mut hops = Vec::new();
            meter.read(&mut hops);
            if hops.iter().all(|hop| hop.in_flight.is_zero()) {
                break;
            }
            assert!(Instant::now() < deadline, "a sink is stuck");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (rounds, polls) = if is_bench { FULL } else { MOMENT };
    let mut random = testkit::Random(1);
    let records: Vec<_> = (0..RECORDS).map(|_| support::realistic(&mut random)).collect();

    let cases: [(&str, &[Encoding]); 4] = [
        ("one protobuf sink", &[Encoding::Protobuf]),
        ("one JSON lines sink", &[Encoding::Jsonl]),
        ("four protobuf sinks", &[Encoding::Protobuf; 4]),
        ("no sink", &[]),
    ];
    for (name, encodings) in cases {
        let names = ["a", "b", "c", "d"];
        let sinks: Vec<_> =
            names.iter().zip(encodings).map(|(name, encoding)| null(name, *encoding)).collect();
        let times = (0..rounds).map(|_| round(&sinks, &records, polls));
        let best =
            times.fold((f64::MAX, f64::MAX), |best, one| (best.0.min(one.0), best.1.min(one.1)));
        println!("{name:20}: source {:6.0} ns, all {:6.0} ns a record", best.0, best.1);
    }
}
