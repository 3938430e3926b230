//! Datagrams of several parts, held until all parts have arrived.

use super::room::{Room, Share};
use crate::packet::{Origin, Part};
use std::collections::BTreeMap;

/// Parts from the floor up that are taken whatever else of their run waits. They hold a datagram of maximum length, so that the
/// oldest one can be completed.
const ALWAYS_TAKEN: u64 = 64;

/// Parts of the longest datagram, when each but the last has as few bytes as a sender may choose (`SenderOptions::part_bytes`).
const PARTS_MAX: u32 = 1_024;

/// Memory of a part besides its bytes: its entry in a tree whose nodes are half full.
const PART_BYTES: usize = 2 * (size_of::<u64>() + size_of::<Held>()) + 32;

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
}

/// A datagram whose parts have all arrived.
pub(super) struct Whole {
    pub(super) origin: Origin,
    /// Sequence numbers of its first and last parts.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Parts {
    /// Makes sure that a part can be [added](Self::add), within a total of `bytes_max` and what the run may have of the room.
    pub(super) fn reserve(
        &mut self,
        (sequence, floor): (u64, u64),
        bytes: usize,
        bytes_max: usize,
        (room, share): (&mut Room, &mut Share),
    ) -> bool {
        let charge = bytes + PART_BYTES;
        let is_allowed =
            sequence.saturating_sub(floor) < ALWAYS_TAKEN || self.bytes + charge <= bytes_max;
        let has_room = is_allowed && room.take(share, charge);
        if has_room {
            self.bytes += charge;
        }
        has_room
    }

    /// Whether the part with this sequence number waits for the rest of its datagram.
    pub(super) fn has(&self, sequence: u64) -> bool {
        self.held.contains_key(&sequence)
    }

    /// Keeps a part for which there is [room](Self::reserve). Returns the datagram if this was the last part missing; its bytes
    /// are in [`Room::whole`].
    pub(super) fn add(
        &mut self,
        sequence: u64,
        (part, origin): (Part, Option<Origin>),
        bytes: &[u8],
        room: &mut Room,
        share: &mut Share,
    ) -> Option<Whole> {
        let bytes = room.buffer(bytes);
        self.held.insert(sequence, Held { part, origin, bytes });

        let first = self.find(sequence, Part::First, |at| at.checked_sub(1))?;
        let last = self.find(sequence, Part::Last, |at| at.checked_add(1))?;
        let origin = self.held.get(&first)?.origin?;
        room.whole.clear();
        let mut is_fitting = true;
        for at in first..=last {
            if let Some(held) = self.held.remove(&at) {
                // What is longer than the datagram says it is needs no memory.
                is_fitting &= room.whole.len() + held.bytes.len() <= origin.bytes.into();
                if is_fitting {
                    room.whole.extend_from_slice(&held.bytes);
                }
                self.release(held.bytes, room, share);
            }
        }
        (is_fitting && room.whole.len() == usize::from(origin.bytes)).then_some(())?;
        Some(Whole { origin, first, last })
    }

    /// Steps from a part to the given end of its datagram. `None` when a part in between is not held.
    fn find(&self, from: u64, end: Part, step: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut at = from;
        for _ in 0..PARTS_MAX {
            let held = self.held.get(&at)?;
            if held.part == end {
                return Some(at);
            }
            at = step(at)?;
        }
        None
    }

    fn release(&mut self, bytes: Vec<u8>, room: &mut Room, share: &mut Share) {
        let charge = bytes.len() + PART_BYTES;
        self.bytes -= charge;
        room.give_back(share, charge);
        room.reuse(bytes);
    }

    /// Drops the parts below the floor: their datagrams can no longer be completed.
    pub(super) fn forget_below(&mut self, floor: u64, room: &mut Room, share: &mut Share) {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() < floor
        {
            let held = entry.remove();
            self.release(held.bytes, room, share);
        }
    }
}
