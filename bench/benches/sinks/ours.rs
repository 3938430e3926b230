//! Weir's side, in a process of its own: rows from a source through a sink as the file configures it, until each is acknowledged.

use crate::support::realistic;
use anyhow::{Context, anyhow, ensure};
use config::{Config, Opening, SinkConfig};
use ledger::{Event, Gauge, HopSnapshot, Meter, Reason};
use record::{Chunk, ChunkBuilder, FieldSet, SocketRecord};
use serde::{Deserialize, Serialize};
use sink::{Fanout, Sink, SinkOptions};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Random, wait_for};

/// The boot that rows come from, which is Kafka's key.
pub(crate) const SOURCE_ID: [u8; 16] = *b"weir-bench-sinks";

/// Length of a chunk, as sources cut them.
const CHUNK_BYTES: usize = 64 << 10;

/// The longest time that a run may take.
const TIME_MAX: Duration = Duration::from_secs(600);

/// What one side did in one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) rows: u64,
    /// From the first row to the last acknowledgement, over a connection that was there before.
    pub(crate) seconds: f64,
    /// Processor time of the client, not of the server.
    pub(crate) cpu_seconds: f64,
    /// Most resident memory, without what the process had before the sink was there; 0 where it was not measured.
    #[serde(default)]
    pub(crate) memory_bytes: u64,
    /// What the configuration says that the sink takes at most; 0 for other clients.
    #[serde(default)]
    pub(crate) memory_bound_bytes: u64,
    /// Batches that were sent again.
    #[serde(default)]
    pub(crate) retries: u64,
}

/// Rows in the order in which each side sends them: full records, no two alike.
fn rows(count: u64) -> impl Iterator<Item = SocketRecord<'static>> {
    let mut random = Random(1);
    (0..count).map(move |number| SocketRecord { sequence: Some(number), ..realistic(&mut random) })
}

/// Writes the rows as other clients take them: protobuf messages, the length of each as a varint before it.
/// Returns their bytes without the lengths.
pub(crate) fn write_rows(path: &Path, count: u64) -> anyhow::Result<u64> {
    let (mut out, mut builder) =
        (BufWriter::new(File::create(path)?), ChunkBuilder::new(1, SOURCE_ID));
    let mut bytes = 0;
    for row in rows(count) {
        builder.record(&row);
        let chunk = builder.cut(None).context("a record is a row")?;
        for row in chunk.rows() {
            let len = row.bytes.len();
            ensure!(
                (1 << 7..1 << 14).contains(&len),
                "its length is not a varint of two bytes: {len}"
            );
            out.write_all(&[len as u8 | 0x80, (len >> 7) as u8])?;
            out.write_all(row.bytes)?;
            bytes += len as u64;
        }
    }
    out.flush()?;
    Ok(bytes)
}

/// The rows as a source encodes them, once for all its sinks.
fn chunks(count: u64) -> Vec<Arc<Chunk>> {
    let mut builder = ChunkBuilder::new(1, SOURCE_ID);
    let mut chunks = Vec::new();
    for row in rows(count) {
        builder.record(&row);
        if builder.row_bytes() >= CHUNK_BYTES {
            chunks.extend(builder.cut(None).map(Arc::new));
        }
    }
    chunks.extend(builder.cut(None).map(Arc::new));
    chunks
}

/// How fast rows come, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pace {
    /// As the sink takes them, encoded beforehand into chunks, as a source hands them to each of its sinks.
    Ready,
    /// As the sink takes them, so that none is dropped; made and encoded meanwhile.
    AsTaken,
    /// As fast as they can be made: the queue is full, and drops what does not fit.
    Flood,
}

/// Sends rows through the sink of a configuration, and says what it took.
pub(crate) fn run(config: &Path, count: u64, pace: Pace) -> anyhow::Result<Attempt> {
    let config = Config::load(config).map_err(|error| anyhow!("{error}"))?;
    let memory_bound_bytes = config.budget().sinks.iter().map(|sink| sink.process_bytes()).sum();
    let sink = open(&config.sinks[0])?;
    let meter = sink.meter();
    let ready = if pace == Pace::Ready { chunks(count) } else { Vec::new() };
    let before_bytes = resident("VmRSS:")?;

    let fanout = Fanout::default();
    fanout.attach(&sink);
    let before_rows = connect(&fanout, &config.sinks[0], &*meter);
    let (began, cpu_ns) = (Instant::now(), sys::clock::process_cpu_ns());
    for chunk in &ready {
        fanout.hand_over(chunk);
        wait_for_room(&*meter);
    }
    if pace != Pace::Ready {
        let mut writer = fanout.writer(SOURCE_ID);
        for (at, row) in (0_u64..).zip(rows(count)) {
            writer.record(&row);
            if pace == Pace::AsTaken && at % 64 == 0 {
                wait_for_room(&*meter);
            }
        }
    }
    let left = sink.wait(began + TIME_MAX);
    let (took, cpu_ns) = (began.elapsed(), sys::clock::process_cpu_ns() - cpu_ns);

    let hop = hop(&*meter);
    let dropped = hop.dropped_for(Reason::QueueFull).count;
    let rows = hop.delivered.count - before_rows;
    let arrived = rows + dropped == count && (pace == Pace::Flood || dropped == 0);
    ensure!(left.is_zero() && arrived, "not everything arrived: {hop:?}");
    Ok(Attempt {
        rows,
        seconds: took.as_secs_f64(),
        cpu_seconds: cpu_ns as f64 / 1e9,
        memory_bytes: resident("VmHWM:")?.saturating_sub(before_bytes),
        memory_bound_bytes,
        retries: hop.event(Event::Retries),
    })
}

fn open(wanted: &SinkConfig) -> anyhow::Result<Sink> {
    let opening = Opening {
        takes_flows: false,
        ledger: None,
        name: wanted.name.clone(),
        fields: Some(FieldSet::ALL),
        remote: sink::Remote::default(),
        durability: sink::Durability::default(),
        host: sink::HostChanges::default(),
    };
    let options = SinkOptions {
        name: wanted.name.clone(),
        origin: "bench".to_owned(),
        queue: wanted.queue(),
        batch: wanted.batch(),
        delivery: wanted.delivery(),
        spool: wanted.spool_options(),
        connector: wanted.to.open(&opening)?,
    };
    Ok(Sink::open(options)?)
}

/// Sends a row before the clock starts, because other clients connect before theirs does. Returns the number of rows sent: none to a
/// destination whose batches wait for more rows, because the wait would be longer than any connection takes.
///
/// librdkafka can take half a second to start as an idempotent producer: `rd_kafka_idemp_pid_fsm` (`rdkafka_idempotence.c`) looks for a
/// broker to ask for a producer id when none is connected, and looks again after 500 ms.
fn connect(fanout: &Fanout, sink: &SinkConfig, meter: &dyn Meter) -> u64 {
    if !sink.batch().age.is_zero() {
        return 0;
    }

    // Of another run: a server that removes duplicates does not take it for one of the rows that follow.
    let mut builder = ChunkBuilder::new(2, SOURCE_ID);
    rows(1).for_each(|row| builder.record(&row));
    if let Some(chunk) = builder.cut(None) {
        fanout.hand_over(&Arc::new(chunk));
    }
    wait_for("the first acknowledgement", || (hop(meter).delivered.count == 1).then_some(()));
    1
}

/// A source does not wait for a sink, which would drop rows; this one does, until what is in flight would fit twice into the queue. How
/// much of it is in the queue itself is written down ten times a second at most, and a source that waits for that starves the sink.
fn wait_for_room(meter: &dyn Meter) {
    loop {
        let hop = hop(meter);
        if hop.in_flight.bytes < hop.gauges[&Gauge::QueueLimitBytes] / 2 {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn hop(meter: &dyn Meter) -> HopSnapshot {
    let mut hops = Vec::new();
    meter.read(&mut hops);
    hops.pop().expect("a sink has a hop")
}

/// A line of `/proc/self/status`, in bytes.
fn resident(name: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
    let kib = line.trim().trim_end_matches(" kB").parse::<u64>().context("not a number")?;
    Ok(kib * 1_024)
}
