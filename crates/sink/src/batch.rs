//! Batches, and their fates.

use ledger::{Amount, Reason, RejectClass, Trouble};
use record::RowKind;
use std::sync::Arc;
use std::time::Duration;

/// Identifies a batch within one sink.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BatchId(pub u64);

/// Where a row comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartKey {
    /// The boot of the host that made it.
    pub host: [u8; 16],
    /// The connection or the sender on that host.
    pub connection: u64,
    /// The run that made it (`run_id` of its record); rows in a spool can outlive their run.
    pub run: u64,
}

impl PartKey {
    /// Host and connection, which all rows of one connection share.
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

/// The unit in which a destination sends: a message, a datagram, or a whole batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its end offset in the bytes of the batch.
    pub end: usize,
    /// Rows in it.
    pub rows: u32,
    /// Bytes of its rows as stored in their chunks, which the ledger counts.
    pub row_bytes: u64,
    /// The key for destinations that keep order by key; if rows with different keys share a part, that of the last
    /// row.
    pub key: PartKey,
}

/// Rows encoded as the destination sends them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    pub bytes: Vec<u8>,
    /// In the order of the bytes; a batch has at least one.
    pub parts: Vec<Part>,
}

/// Rows encoded for their destination. Immutable, so that a retry sends the same bytes under the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub id: BatchId,
    /// The kind of all its rows; `None` where kinds share batches.
    pub kind: Option<RowKind>,
    /// A hash of the row ids: the same rows in the same batch have the same token, even in another process.
    pub token: u128,
    pub encoded: Encoded,
    /// Rows in all parts.
    pub rows: u64,
    /// When the oldest row arrived at this host or was made here, in nanoseconds since 1970, UTC; 0 if that is unknown. Rows that
    /// came over a link have times of other hosts.
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

    /// The ledger amount of a part.
    pub fn amount_of(&self, at: usize) -> Amount {
        let part = self.encoded.parts.get(at);
        part.map_or(Amount::default(), |part| Amount {
            count: part.rows.into(),
            bytes: part.row_bytes,
        })
    }

    /// The ledger amount of all parts.
    pub fn amount(&self) -> Amount {
        (0..self.encoded.parts.len()).map(|at| self.amount_of(at)).sum()
    }
}

/// Some parts of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parts {
    All,
    /// Indexes of parts, ascending.
    Some(Vec<u32>),
}

impl Parts {
    /// The part indexes in a batch of `count` parts.
    pub fn places(&self, count: usize) -> impl Iterator<Item = usize> {
        let (all, some) = match self {
            Parts::All => (0..count, &[][..]),
            Parts::Some(places) => (0..0, places.as_slice()),
        };
        all.chain(some.iter().map(|&place| place as usize))
    }
}

/// One attempt to deliver the parts of a batch that have not been delivered yet.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub batch: Arc<Batch>,
    pub parts: Parts,
}

/// The fate of parts of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub batch: BatchId,
    pub parts: Parts,
    pub fate: Fate,
}

impl Outcome {
    /// The same fate for all parts of the attempt.
    pub fn all(batch: BatchId, fate: Fate) -> Outcome {
        Outcome { batch, parts: Parts::All, fate }
    }
}

/// The result of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The destination has the rows.
    Acknowledged,
    /// The destination refuses these rows and would refuse them again: they are not retried.
    Rejected {
        class: RejectClass,
        /// The destination's words.
        says: String,
    },
    /// The rows cannot be delivered, for a reason that this sink knows: they are not retried.
    Dropped(Reason),
    /// Nobody can say whether the destination has the rows, and nothing can be tried any more.
    Uncertain,
    /// A retry may succeed.
    Failed(Failure),
}

/// A failed attempt that can be retried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub sent: Sent,
    /// The reason to count for rows that must be dropped in the meantime. `None` if the destination is merely
    /// slow.
    pub reason: Option<Reason>,
    /// How long to wait before the retry, if the destination said so.
    pub after: Option<Duration>,
    pub trouble: Trouble,
}

/// Whether rows may have arrived without an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// None of their bytes left this host.
    No,
    /// Bytes left this host, and no answer came.
    Maybe,
}
