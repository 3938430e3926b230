//! What a sink is told.

use crate::destination::Connector;
use std::path::PathBuf;
use std::time::Duration;

/// A sink.
pub struct SinkOptions {
    /// The name in the ledger.
    pub name: String,
    /// What its rows come from, for the ledger: `sockets`, or a listener's name.
    pub origin: String,
    pub queue: QueueOptions,
    pub batch: BatchLimits,
    pub delivery: DeliveryOptions,
    /// Where rows wait through an outage, a restart and a crash. `None`: in memory alone.
    pub spool: Option<SpoolOptions>,
    pub connector: Connector,
}

/// What waits in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Memory of the chunks that wait. A larger chunk is dropped whole.
    pub bytes_max: usize,
    pub when_full: WhenFull,
}

impl Default for QueueOptions {
    /// 32 MiB. A poll comes all at once, faster than a file is written: of 100,000 records of 250 bytes that were offered within
    /// 17 ms, a file with 8 MiB lost 9 %, and none with this. Only what waits takes memory.
    fn default() -> QueueOptions {
        QueueOptions { bytes_max: 32 << 20, when_full: WhenFull::DropOldest }
    }
}

/// What a full queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// What waits longest goes: after an outage what is there is the time up to now.
    #[default]
    DropOldest,
    /// What comes goes: after an outage what is there is how it began.
    DropNewest,
    /// What comes stays with its source, if that can keep it, as a listener's ring can. Else it goes.
    LeaveAtSource,
}

/// When a batch is complete: at whichever of these comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    pub rows: usize,
    /// A batch is longer by less than what one row adds.
    pub bytes: usize,
    /// Since its first row was taken; zero: as soon as nothing more waits.
    pub age: Duration,
}

impl Default for BatchLimits {
    /// For streams: whatever waits, in pieces of 64 KiB.
    fn default() -> BatchLimits {
        BatchLimits { rows: 100_000, bytes: 64 << 10, age: Duration::ZERO }
    }
}

/// How batches are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryOptions {
    /// Batches that are submitted and not answered, at most.
    pub in_flight_max: usize,
    /// The longest pause between two attempts. Each pause is random, up to a bound that doubles from 100 ms to this
    /// (<https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>, "full jitter").
    pub retry_max: Duration,
    /// A destination that answers nothing for so long is given up and made anew.
    pub answer_max: Duration,
    /// Rows that are older than this are dropped instead of tried again.
    pub expire_after: Option<Duration>,
}

impl Default for DeliveryOptions {
    fn default() -> DeliveryOptions {
        DeliveryOptions {
            in_flight_max: 1,
            retry_max: Duration::from_secs(10),
            answer_max: Duration::from_secs(60),
            expire_after: None,
        }
    }
}

/// Where and how much a sink keeps on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// A folder of its own.
    pub folder: PathBuf,
    /// All files in it together.
    pub bytes_max: u64,
    pub sync: SpoolSync,
}

/// When what is written to the spool is made to survive the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpoolSync {
    /// At least so often; a crash of the host loses at most what came since.
    Every(Duration),
    /// Before a row is handed on.
    Always,
}
