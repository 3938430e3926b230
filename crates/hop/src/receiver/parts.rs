//! Datagrams of several parts, held until all parts have arrived.

use crate::packet::{Origin, Part};
use std::collections::BTreeMap;

/// Parts from the floor up that are always taken. They hold a datagram of maximum length, so that the oldest one can be completed
/// whatever else waits.
const ALWAYS_TAKEN: u64 = 64;

/// One part, keyed by its sequence number.
#[derive(Debug)]
struct Held {
    part: Part,
    origin: Option<Origin>,
    bytes: Vec<u8>,
}

/// Parts that wait for the rest of their datagram.
#[derive(Default, Debug)]
pub(super) struct Parts {
    held: BTreeMap<u64, Held>,
    bytes: usize,
    /// Free buffers for reuse.
    free: Vec<Vec<u8>>,
    whole: Vec<u8>,
}

/// A datagram whose parts have all arrived.
pub(super) struct Whole<'a> {
    pub(super) origin: Origin,
    pub(super) bytes: &'a [u8],
    /// Sequence numbers of its first and last parts.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Parts {
    /// Whether a part may be kept within a total of `bytes_max`.
    pub(super) fn has_room(
        &self,
        sequence: u64,
        floor: u64,
        bytes: usize,
        bytes_max: usize,
    ) -> bool {
        sequence < floor + ALWAYS_TAKEN || self.bytes + bytes <= bytes_max
    }

    /// Whether the part with this sequence number waits for the rest of its datagram.
    pub(super) fn has(&self, sequence: u64) -> bool {
        self.held.contains_key(&sequence)
    }

    /// Keeps a part. Returns the datagram if this was the last part missing.
    pub(super) fn add(
        &mut self,
        sequence: u64,
        part: Part,
        origin: Option<Origin>,
        bytes: &[u8],
    ) -> Option<Whole<'_>> {
        let mut own = self.free.pop().unwrap_or_default();
        own.extend_from_slice(bytes);
        self.bytes += bytes.len();
        self.held.insert(sequence, Held { part, origin, bytes: own });

        let first = self.find(sequence, Part::First, |at| at.checked_sub(1))?;
        let last = self.find(sequence, Part::Last, |at| at.checked_add(1))?;
        let origin = self.held.get(&first)?.origin?;
        self.whole.clear();
        for at in first..=last {
            self.take(at);
        }
        (self.whole.len() == usize::from(origin.bytes)).then_some(())?;
        Some(Whole { origin, bytes: &self.whole, first, last })
    }

    /// Steps from a part to the given end of its datagram. `None` when a part in between is not held.
    fn find(&self, from: u64, end: Part, step: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut at = from;
        loop {
            let held = self.held.get(&at)?;
            if held.part == end {
                return Some(at);
            }
            at = step(at)?;
        }
    }

    /// Moves a part's bytes to the end of the whole datagram.
    fn take(&mut self, sequence: u64) {
        if let Some(held) = self.held.remove(&sequence) {
            self.whole.extend_from_slice(&held.bytes);
            self.release(held.bytes);
        }
    }

    fn release(&mut self, mut bytes: Vec<u8>) {
        self.bytes -= bytes.len();
        bytes.clear();
        if self.free.len() < ALWAYS_TAKEN as usize {
            self.free.push(bytes);
        }
    }

    /// Drops the parts below the floor: their datagrams can no longer be completed.
    pub(super) fn forget_below(&mut self, floor: u64) {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() < floor
        {
            let held = entry.remove();
            self.release(held.bytes);
        }
    }
}
