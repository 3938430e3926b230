//! Datagrams of several parts, until all have arrived.

use crate::packet::{Origin, Part};
use std::collections::BTreeMap;

/// Parts from the floor on that are always taken: a datagram of the greatest length, so that the oldest one can be completed
/// whatever else waits.
const ALWAYS_TAKEN: u64 = 64;

/// One part, by its sequence number.
#[derive(Debug)]
struct Held {
    part: Part,
    origin: Option<Origin>,
    bytes: Vec<u8>,
}

/// Parts that wait for others.
#[derive(Default, Debug)]
pub(super) struct Parts {
    held: BTreeMap<u64, Held>,
    bytes: usize,
    /// Memory of parts that are gone.
    free: Vec<Vec<u8>>,
    whole: Vec<u8>,
}

/// A datagram whose parts have all arrived.
pub(super) struct Whole<'a> {
    pub(super) origin: Origin,
    pub(super) bytes: &'a [u8],
    /// Sequence numbers of its first and last part.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Parts {
    /// Whether a part may be kept within so many bytes in all.
    pub(super) fn has_room(
        &self,
        sequence: u64,
        floor: u64,
        bytes: usize,
        bytes_max: usize,
    ) -> bool {
        sequence < floor + ALWAYS_TAKEN || self.bytes + bytes <= bytes_max
    }

    /// Whether the part with this sequence number waits for others.
    pub(super) fn has(&self, sequence: u64) -> bool {
        self.held.contains_key(&sequence)
    }

    /// Keeps a part, and returns the datagram if that was the last one missing.
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

    /// From a part on, in one direction, the end of its datagram, if all parts up to there are held.
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

    /// Moves a part's bytes to the whole.
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

    /// Forgets the parts of datagrams that end before the floor, or that began before it and lost a part there.
    pub(super) fn forget_below(&mut self, floor: u64) {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() < floor
        {
            let held = entry.remove();
            self.release(held.bytes);
        }
    }
}
