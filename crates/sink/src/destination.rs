//! The interfaces of destinations and encoders.

use crate::batch::{Attempt, Batch, Encoded, Outcome, PartKey};
use ledger::{Event, Gauge, Reason, Trouble};
use record::{Row, RowKind};
use std::time::Duration;

/// A connection to a store, a broker or a file. It knows a protocol and a client; no queue, no retry, no ledger.
///
/// Each is one file of this crate. The sink's thread owns it and makes every call. It connects when it first gets a batch, and
/// reconnects when it is called after a connection was lost.
pub trait Destination: Send {
    /// Accepts a batch, or gives it back if it has no room for another one in flight.
    ///
    /// # Errors
    /// The attempt itself, unchanged.
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt>;

    /// Makes progress on submitted batches until an outcome is known, for at most `wait`, and appends the outcomes. While a batch
    /// is in flight it returns early only for an outcome: the sink's thread calls it again at once. Called at least once a
    /// second, even when nothing is in flight.
    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>);

    /// Looks for an acknowledged batch, as a reader of the store would.
    fn read_back(&mut self, _batch: &Batch, _wait: Duration) -> ReadBack {
        ReadBack::Cannot("what is there cannot be read back from here")
    }

    /// Whether a batch that is delivered twice is stored once. Only within one process: the next one may cut its batches at other
    /// rows.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// The current figures of this kind of destination, outside the law.
    fn figures(&self) -> OwnFigures {
        OwnFigures::default()
    }

    /// Closes the connection: nothing follows.
    fn close(&mut self, _wait: Duration, _done: &mut Vec<Outcome>) {}
}

/// Figures specific to one kind of destination.
#[derive(Clone, Debug, Default)]
pub struct OwnFigures {
    pub events: Vec<(Event, u64)>,
    pub gauges: Vec<(Gauge, u64)>,
    /// What currently keeps its client from delivering, before it has given up on any message.
    pub trouble: Option<Trouble>,
}

/// The result of looking for a batch in the destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadBack {
    /// The batch, byte for byte or row for row.
    Found,
    /// The data is not there, or did not appear in time; the text names what was looked for.
    Missing(String),
    /// This kind of destination cannot be read; the text explains why.
    Cannot(&'static str),
}

/// Encodes rows into the bytes of one batch, on the sink's thread.
pub trait BatchEncoder: Send {
    /// Adds a row, or reports why it cannot be encoded.
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed;

    /// Bytes of the batch so far; an estimate if the size is only known at the end.
    fn bytes(&self) -> usize;

    /// Completes the batch and begins the next. The rows and row bytes of its parts add up to those accepted since the last call.
    fn finish(&mut self) -> Encoded;

    /// Most memory it uses when batches end at `batch_bytes`.
    fn memory_max_bytes(&self, batch_bytes: usize) -> usize {
        2 * batch_bytes
    }
}

/// The result of adding a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    Taken,
    /// It is not in the batch.
    Skipped(Reason),
}

/// How a destination wants its rows grouped.
pub enum Form {
    /// All kinds of rows in one batch, in their order.
    Mixed(Box<dyn BatchEncoder>),
    /// Batches of one kind of row each. Rows of kinds that are not listed cannot be encoded and are dropped.
    ByKind(Vec<(RowKind, Box<dyn BatchEncoder>)>),
}

/// Creates the form, on the sink's thread; called again after a panic.
pub type MakeForm = Box<dyn FnMut() -> Form + Send>;

/// Creates the destination, on the sink's thread; called again after a panic, or when the destination does not answer.
pub type MakeDestination = Box<dyn FnMut() -> Result<Box<dyn Destination>, Trouble> + Send>;

/// The pieces of a kind of sink. Each kind has a function that builds one from its options.
pub struct Connector {
    pub form: MakeForm,
    pub destination: MakeDestination,
}
