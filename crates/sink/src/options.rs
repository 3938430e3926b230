//! Options of a sink.

use crate::destination::Connector;
use std::path::PathBuf;
use std::time::Duration;

/// Options of a sink.
pub struct SinkOptions {
    /// The name in the ledger.
    pub name: String,
    /// The source of its rows, for the ledger: `sockets`, or a listener's name.
    pub origin: String,
    pub queue: QueueOptions,
    pub batch: BatchLimits,
    pub delivery: DeliveryOptions,
    /// Where rows wait through an outage, a restart and a crash. `None`: only in memory.
    pub spool: Option<SpoolOptions>,
    pub connector: Connector,
}

/// Options of the queue in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Limit on the memory of waiting chunks. A larger chunk is dropped whole.
    pub bytes_max: usize,
    pub when_full: WhenFull,
}

impl Default for QueueOptions {
    /// 32 MiB. A poll arrives in a burst, faster than a file can be written: of 100,000 records of 250 bytes offered within 17
    /// ms, a file sink with 8 MiB lost 9 %, and with this size none. Only waiting chunks use memory.
    fn default() -> QueueOptions {
        QueueOptions { bytes_max: 32 << 20, when_full: WhenFull::DropOldest }
    }
}

/// What a full queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// Drops the oldest rows: after an outage, the most recent ones are there.
    #[default]
    DropOldest,
    /// Drops new rows: after an outage, those from its beginning are there.
    DropNewest,
    /// Leaves new rows with their source if it can keep them, as a listener's ring can. Otherwise drops them.
    LeaveAtSource,
}

/// When a batch is complete: at whichever limit is reached first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    pub rows: usize,
    /// A batch exceeds this by less than one row.
    pub bytes: usize,
    /// Time since its first row was added; zero: as soon as no more rows wait.
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
    /// Most batches that are submitted and unanswered.
    pub in_flight_max: usize,
    /// The longest pause between attempts. Each pause is random, up to a bound that doubles from 100 ms to this value
    /// (<https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>, "full jitter").
    pub retry_max: Duration,
    /// A destination that does not answer for this long is abandoned and recreated.
    pub answer_max: Duration,
    /// Rows older than this are dropped instead of retried.
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

/// Where a sink spools to disk, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// A directory used by nothing else.
    pub folder: PathBuf,
    /// Limit on the total size of its files.
    pub bytes_max: u64,
    pub sync: SpoolSync,
}

/// When data in the spool is made to survive a crash of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpoolSync {
    /// At least this often; a crash of the host loses at most what was written since.
    Every(Duration),
    /// Before a row is passed on.
    Always,
}
