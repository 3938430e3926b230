//! Parquet files, read by independent implementations: pyarrow and DuckDB.

mod folder;
mod independent;

use ledger::HopSnapshot;
use record::FieldSet;
use sink::parquet::FolderOptions;
use sink::{BatchLimits, DeliveryOptions, NumberEncoding, QueueOptions, Sink, SinkOptions};
use std::path::Path;
use std::time::{Duration, Instant};

#[cfg(feature = "s3")]
pub(crate) use independent::compare;

/// 2026-11-22 18:42:00 UTC.
pub(crate) const START_UNIX_NS: u64 = 1_795_372_920_000_000_000;

fn folder_options(folder: &Path) -> FolderOptions {
    FolderOptions {
        folder: folder.to_owned(),
        host: "web-1".to_owned(),
        keep_age: None,
        keep_bytes: None,
    }
}

/// A sink with room for everything that a test offers at once.
fn open(options: FolderOptions, batch: BatchLimits) -> Sink {
    let delivery =
        DeliveryOptions { retry_max: Duration::from_millis(100), ..DeliveryOptions::default() };
    Sink::open(SinkOptions {
        name: "parquet".into(),
        origin: "sockets".into(),
        queue: QueueOptions { bytes_max: 1 << 30, ..QueueOptions::default() },
        batch,
        delivery,
        spool: None,
        connector: sink::parquet::folder(options, FieldSet::ALL, NumberEncoding::default()),
    })
    .unwrap()
}

/// Waits until everything is delivered, and ends the sink.
fn end(sink: Sink) -> HopSnapshot {
    let meter = sink.meter();
    let left = sink.wait(Instant::now() + testkit::DEADLINE);
    assert!(left.is_zero(), "{left:?}");
    hop(&*meter)
}

pub(crate) fn hop(meter: &dyn ledger::Meter) -> HopSnapshot {
    let mut hops = Vec::new();
    meter.read(&mut hops);
    hops.pop().unwrap()
}
