//! Shared code of the sink tests.

use ledger::{Amount, Gauge, HopKind, HopSnapshot, Ledger, Meter, Reason, Trouble};
use record::{ChunkBuilder, FieldSet, SocketRecord};
use sink::batch::{Attempt, Batch, BatchId, Encoded, Part, PartKey, Parts};
use sink::{
    BatchEncoder, BatchLimits, ChunkWriter, Connector, DeliveryOptions, Durability, Fanout,
    FileOptions, QueueOptions, ReadBack, Sink, SinkOptions,
};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::wait_for;

/// A file without rotation.
pub(crate) fn file_options(path: &Path) -> FileOptions {
    FileOptions {
        path: path.to_owned(),
        rotate_bytes: None,
        rotate_interval: None,
        rotate_keep: 1_000,
        durability: Durability::Written,
    }
}

/// Options with all defaults.
pub(crate) fn options(name: &str, connector: Connector) -> SinkOptions {
    SinkOptions {
        name: name.into(),
        origin: "test".into(),
        queue: QueueOptions::default(),
        batch: BatchLimits::default(),
        delivery: DeliveryOptions::default(),
        spool: None,
        connector,
    }
}

/// Batches of at most this many rows, which leave at once.
pub(crate) fn batch_rows(rows: usize) -> BatchLimits {
    BatchLimits { rows, bytes: 1 << 20, age: Duration::ZERO }
}

pub(crate) fn fields(names: &[&str]) -> FieldSet {
    FieldSet::from_names(names.iter().copied()).unwrap()
}

/// The fields of [`numbered`].
pub(crate) fn number_and_filling() -> FieldSet {
    fields(&["sequence", "host"])
}

const FILLING: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// A record with a number and a length that depends on it.
pub(crate) fn numbered(number: u64) -> SocketRecord<'static> {
    SocketRecord {
        sequence: Some(number),
        cookie: Some(number),
        host: Some(&FILLING[..(number % 97) as usize]),
        ..SocketRecord::default()
    }
}

/// The JSON line of [`numbered`].
pub(crate) fn line_of(number: u64) -> String {
    let filling = &FILLING[..(number % 97) as usize];
    format!("{{\"sequence\":{number},\"host\":\"{filling}\"}}\n")
}

/// The numbers in lines made from [`numbered`]; fails on a torn line.
pub(crate) fn numbers_of(text: &str) -> Vec<u64> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is torn");
    let number = |line: &str| {
        let number = line.strip_prefix("{\"sequence\":").and_then(|rest| rest.split_once(','));
        let number = number.and_then(|(number, _)| number.parse().ok());
        let number = number.unwrap_or_else(|| panic!("torn: {line}"));
        assert_eq!(line_of(number).trim_end(), line, "torn");
        number
    };
    text.lines().map(number).collect()
}

/// A source with its sinks.
pub(crate) struct Source {
    pub(crate) writer: ChunkWriter,
    pub(crate) sinks: Vec<Sink>,
}

impl Source {
    pub(crate) fn to(sinks: Vec<Sink>) -> Source {
        let fanout = Fanout::default();
        sinks.iter().for_each(|sink| fanout.attach(sink));
        Source { writer: fanout.writer([7; 16]), sinks }
    }

    pub(crate) fn to_one(options: SinkOptions) -> Source {
        Source::to(vec![Sink::open(options).unwrap()])
    }

    /// Sends numbered records, in one chunk if they fit.
    pub(crate) fn send(&mut self, numbers: Range<u64>) {
        numbers.for_each(|number| self.writer.record(&numbered(number)));
        self.writer.flush();
    }

    /// Sends all of them, as the queues have room.
    pub(crate) fn send_all<'a>(&mut self, rows: impl Iterator<Item = SocketRecord<'a>>) {
        for (at, row) in rows.enumerate() {
            self.writer.record(&row);
            if at % 1_000 == 999 {
                self.writer.flush();
                self.wait_for_room();
            }
        }
        self.writer.flush();
    }

    /// Waits until what is in flight would fit twice into every queue: the part of it that is in the queue itself is only updated
    /// ten times a second.
    pub(crate) fn wait_for_room(&self) {
        let meters = self.meters();
        let has_room = |meter: &Arc<dyn Meter>| {
            let hop = hop(meter);
            hop.in_flight.bytes < hop.gauges[&Gauge::QueueLimitBytes] / 2
        };
        wait_for("room", || meters.iter().all(has_room).then_some(()));
    }

    pub(crate) fn meters(&self) -> Vec<Arc<dyn Meter>> {
        self.sinks.iter().map(Sink::meter).collect()
    }

    /// The hop of the only sink.
    pub(crate) fn hop(&self) -> HopSnapshot {
        assert_eq!(self.sinks.len(), 1);
        hop(&self.sinks[0].meter())
    }

    pub(crate) fn is_empty(&self) -> Option<()> {
        self.meters().iter().all(|meter| hop(meter).in_flight.is_zero()).then_some(())
    }

    /// Ends the sinks; returns what did not leave.
    pub(crate) fn stop(self, deadline: Instant) -> Vec<(String, Amount)> {
        drop(self.writer);
        self.sinks.iter().for_each(|sink| sink.close(deadline));
        let wait = |sink: Sink| (sink.name().to_owned(), sink.wait(deadline));
        let left = self.sinks.into_iter().map(wait);
        left.filter(|(_, amount)| !amount.is_zero()).collect()
    }
}

/// The files at `path`, oldest first.
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

/// A batch of one record.
pub(crate) fn batch_of(encoder: &mut dyn BatchEncoder, id: u64) -> Attempt {
    let mut builder = ChunkBuilder::new(1, [7; 16]);
    builder.record(&numbered(id));
    let chunk = builder.cut(None).unwrap();
    let key = PartKey { host: [7; 16], connection: id, run: 1 };
    for row in chunk.rows() {
        encoder.push(&row, key);
    }
    let encoded = encoder.finish();
    let id = BatchId(id);
    let batch = Batch { id, kind: None, token: 0, encoded, rows: 1, oldest_unix_ns: 0 };
    Attempt { batch: Arc::new(batch), parts: Parts::All }
}

/// The hop of a sink.
pub(crate) fn hop(meter: &Arc<dyn Meter>) -> HopSnapshot {
    let mut hops = Vec::new();
    meter.read(&mut hops);
    let hop = hops.pop().unwrap();
    assert_eq!((hop.hop, hops.len()), (HopKind::Sink, 0));
    hop
}

/// The last step of checking a destination with ten records.
pub(crate) fn found(connector: Connector) -> (&'static str, Result<String, Trouble>) {
    let mut builder = ChunkBuilder::new(1, [7; 16]);
    (0..10).for_each(|number| builder.record(&numbered(number)));
    let steps = sink::check(connector, builder.cut(None).unwrap(), Duration::from_secs(30));
    let last = steps.into_iter().next_back().unwrap();
    (last.what, last.result)
}

/// What a destination answers when asked for a batch that was never sent.
pub(crate) fn missing(mut connector: Connector) -> ReadBack {
    let part = Part {
        end: 7,
        rows: 1,
        row_bytes: 7,
        key: PartKey { host: [0; 16], connection: 0, run: 0 },
    };
    let batch = Batch {
        id: BatchId(1),
        kind: None,
        token: 0,
        encoded: Encoded { bytes: b"nowhere".to_vec(), parts: vec![part] },
        rows: 1,
        oldest_unix_ns: 0,
    };
    (connector.destination)().unwrap().read_back(&batch, Duration::from_secs(10))
}

pub(crate) fn check_law(hop: &HopSnapshot) {
    assert_eq!(hop.unaccounted, 0, "{hop:?}");
    assert_eq!(hop.received, hop.left() + hop.in_flight, "{hop:?}");
    let queue = (hop.gauges[&Gauge::QueueBytes], hop.gauges[&Gauge::QueueLimitBytes]);
    assert!(queue.0 <= queue.1, "{hop:?}");
}

pub(crate) fn dropped(meter: &Arc<dyn Meter>, reason: Reason) -> u64 {
    hop(meter).dropped_for(reason).count
}

/// Reads a ledger continuously until dropped, and fails if the law did.
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

    /// Watches one more hop.
    pub(crate) fn add(&self, meter: Arc<dyn Meter>) {
        self.ledger.register(meter);
    }

    /// Ends, and returns how often the law was checked.
    pub(crate) fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let looks = self.thread.take().unwrap().join().unwrap();
        let last = self.ledger.check();
        assert!(last.is_balanced(), "{last:?}");
        looks
    }
}
