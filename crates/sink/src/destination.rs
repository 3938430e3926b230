//! What a destination and its form have to do.

use crate::batch::{Attempt, Batch, Encoded, Outcome, PartKey};
use ledger::{Event, Gauge, Reason, Trouble};
use record::{Row, RowKind};
use std::time::Duration;

/// A connection to a store, a broker or a file. It knows a protocol and a client; no queue, no retry, no ledger.
///
/// One file of this crate each. The sink's thread owns it and makes every call. It connects when it is first given something,
/// and again when it is called after a connection was lost.
pub trait Destination: Send {
    /// Takes a batch, or gives it back if it has no room for another one in flight.
    ///
    /// # Errors
    /// The attempt itself, unchanged.
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt>;

    /// Goes on with what was submitted until something is known, for `wait` at most, and appends what is known. While something is in
    /// flight it returns early for that alone: the sink's thread calls it again at once. Called at least once a second, also when
    /// nothing is in flight.
    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>);

    /// Looks for a batch that was acknowledged, as a reader of the store would.
    fn read_back(&mut self, _batch: &Batch, _wait: Duration) -> ReadBack {
        ReadBack::Cannot("what is there cannot be read back from here")
    }

    /// Whether a batch that is delivered twice is there once. Within one life: the next one may end its batches at other rows.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// What this kind of destination counts and measures outside the law, as it is now.
    fn figures(&self) -> OwnFigures {
        OwnFigures::default()
    }

    /// Ends the connection: nothing follows.
    fn close(&mut self, _wait: Duration, _done: &mut Vec<Outcome>) {}
}

/// Figures that one kind of destination has.
#[derive(Clone, Debug, Default)]
pub struct OwnFigures {
    pub events: Vec<(Event, u64)>,
    pub gauges: Vec<(Gauge, u64)>,
    /// What keeps its client from delivering what it was given, before it has given up on any of it.
    pub trouble: Option<Trouble>,
}

/// What a look at the destination found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadBack {
    /// The batch, byte for byte or row for row.
    Found,
    /// No such thing, or not in time; the words say what was looked for.
    Missing(String),
    /// This kind of destination gives nothing back; the words say why.
    Cannot(&'static str),
}

/// Rows into the bytes of one batch, on the sink's thread.
pub trait BatchEncoder: Send {
    /// Adds a row, or says why it cannot be written.
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed;

    /// Bytes of the batch so far, estimated where they are known only at its end.
    fn bytes(&self) -> usize;

    /// Ends the batch and begins the next. The parts' rows and row bytes add up to those that were taken since the last one.
    fn finish(&mut self) -> Encoded;

    /// Most memory that it takes when batches end at `batch_bytes`.
    fn memory_max_bytes(&self, batch_bytes: usize) -> usize {
        2 * batch_bytes
    }
}

/// What became of a row that was to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    Taken,
    /// It is not in the batch.
    Skipped(Reason),
}

/// How a destination wants its rows.
pub enum Form {
    /// All kinds of rows in one batch, in their order.
    Mixed(Box<dyn BatchEncoder>),
    /// Batches of one kind of row each. Kinds that are not named have no form here, and are dropped as such.
    ByKind(Vec<(RowKind, Box<dyn BatchEncoder>)>),
}

/// Makes the form, on the sink's thread; again after a panic.
pub type MakeForm = Box<dyn FnMut() -> Form + Send>;

/// Makes the destination, on the sink's thread; again after a panic, or when it answers nothing.
pub type MakeDestination = Box<dyn FnMut() -> Result<Box<dyn Destination>, Trouble> + Send>;

/// What a kind of sink consists of. Each kind has a function that makes it of its options.
pub struct Connector {
    pub form: MakeForm,
    pub destination: MakeDestination,
}
