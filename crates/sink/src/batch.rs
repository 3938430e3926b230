//! Batches, and what becomes of them.

use ledger::{Amount, Reason, RejectClass, Trouble};
use record::RowKind;
use std::sync::Arc;
use std::time::Duration;

/// Tells the batches of one sink apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BatchId(pub u64);

/// Where a row comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartKey {
    /// The boot of the host that made it.
    pub host: [u8; 16],
    /// The connection, or the sender, on that host.
    pub connection: u64,
    /// The run that made it (`run_id` of its record), which a spool may outlive.
    pub run: u64,
}

impl PartKey {
    /// Host and connection, which the rows of one connection share.
    #[cfg(feature = "kafka")]
    pub(crate) fn bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.host);
        bytes[16..].copy_from_slice(&self.connection.to_be_bytes());
        bytes
    }

    /// No host, no connection, no run.
    pub const NONE: PartKey = PartKey { host: [0; 16], connection: 0, run: 0 };
}

/// What a destination sends as one: a message, a datagram, or the whole of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where it ends in the bytes of the batch.
    pub end: usize,
    /// Rows in it.
    pub rows: u32,
    /// Bytes that its rows had in their chunks, which the ledger counts.
    pub row_bytes: u64,
    /// For destinations that keep an order by key; where rows with different keys share a part, that of the last.
    pub key: PartKey,
}

/// Encoded rows, as the destination sends them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    pub bytes: Vec<u8>,
    /// In the order of the bytes, at least one in a batch.
    pub parts: Vec<Part>,
}

/// Rows in the form of their destination. Never changed, so that a second attempt is the same bytes under the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub id: BatchId,
    /// What all of its rows are; `None` where kinds share batches.
    pub kind: Option<RowKind>,
    /// From the ids of its rows: the same rows in the same batch have the same, in another life of the program too.
    pub token: u128,
    pub encoded: Encoded,
    /// Rows in all parts.
    pub rows: u64,
    /// Time of the oldest row, in nanoseconds since 1970, UTC; 0 if no row says.
    pub oldest_unix_ns: u64,
}

impl Batch {
    /// The bytes of a part.
    pub fn part(&self, at: usize) -> &[u8] {
        let parts = &self.encoded.parts;
        let start =
            at.checked_sub(1).and_then(|before| parts.get(before)).map_or(0, |part| part.end);
        let end = parts.get(at).map_or(start, |part| part.end);
        self.encoded.bytes.get(start..end).unwrap_or_default()
    }

    /// What a part is in the ledger.
    pub fn amount_of(&self, at: usize) -> Amount {
        let part = self.encoded.parts.get(at);
        part.map_or(Amount::default(), |part| Amount {
            count: part.rows.into(),
            bytes: part.row_bytes,
        })
    }

    /// What all parts are in the ledger.
    pub fn amount(&self) -> Amount {
        (0..self.encoded.parts.len()).map(|at| self.amount_of(at)).sum()
    }
}

/// Some parts of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parts {
    All,
    /// These, by their places, in rising order.
    Some(Vec<u32>),
}

impl Parts {
    /// Their places in a batch of `count` parts.
    pub fn places(&self, count: usize) -> impl Iterator<Item = usize> {
        let (all, some) = match self {
            Parts::All => (0..count, &[][..]),
            Parts::Some(places) => (0..0, places.as_slice()),
        };
        all.chain(some.iter().map(|&place| place as usize))
    }
}

/// One attempt to deliver what of a batch has not been delivered yet.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub batch: Arc<Batch>,
    pub parts: Parts,
}

/// What became of parts of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub batch: BatchId,
    pub parts: Parts,
    pub fate: Fate,
}

impl Outcome {
    /// The same for all parts that were attempted.
    pub fn all(batch: BatchId, fate: Fate) -> Outcome {
        Outcome { batch, parts: Parts::All, fate }
    }
}

/// What an attempt came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The destination has them.
    Acknowledged,
    /// The destination says no to these rows, and will again: they are not tried again.
    Rejected {
        class: RejectClass,
        /// What it said.
        says: String,
    },
    /// They do not get through, and this sink knows why: they are not tried again.
    Dropped(Reason),
    /// They may get through another time.
    Failed(Failure),
}

/// An attempt that failed and can be made again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub sent: Sent,
    /// What rows are counted under that have to go meanwhile. `None`: the destination is merely slow.
    pub reason: Option<Reason>,
    /// When the destination asks to be tried again.
    pub after: Option<Duration>,
    pub trouble: Trouble,
}

/// Whether rows may have arrived although nobody said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// None of their bytes left this host.
    No,
    /// Bytes left, and no answer came.
    Maybe,
}
