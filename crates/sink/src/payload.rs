use ledger::Amount;
use std::sync::Arc;

/// Encoded records, whole, on their way to sinks. Never changed once made; a clone shares the bytes.
#[derive(Clone, Debug)]
pub struct Payload {
    bytes: Arc<Vec<u8>>,
    records: u64,
}

impl Payload {
    /// Takes a copy of encoded records. `records` is how many there are, totals records included; at least one, or the
    /// ledger could not see the payload.
    pub fn new(bytes: &[u8], records: u64) -> Payload {
        Payload::whole(bytes.to_vec(), records)
    }

    /// Takes a buffer of encoded records itself, which should be nearly full: it counts by what is in it.
    pub(crate) fn whole(buffer: Vec<u8>, records: u64) -> Payload {
        Payload { bytes: Arc::new(buffer), records: records.max(1) }
    }

    /// Whether every sink has let go of it.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.bytes) == 1
    }

    /// The buffer, if every sink has let go of it.
    pub(crate) fn into_buffer(self) -> Option<Vec<u8>> {
        Arc::into_inner(self.bytes)
    }

    /// The encoded records.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Records in it, totals records included.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// What it is in the ledger.
    pub fn amount(&self) -> Amount {
        Amount { count: self.records, bytes: self.bytes.len() as u64 }
    }
}
