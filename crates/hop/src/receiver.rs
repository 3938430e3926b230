//! The receiving end: what is accepted, what was there already, and how far it is settled.

mod arrivals;
mod parts;

use crate::packet::{BEYOND_FLOOR_MAX, DataHead, Origin, Part};
use crate::{Amount, Totals};
pub use arrivals::Arrivals;
use parts::{Parts, Whole};
use std::collections::VecDeque;

/// Sequence numbers for which there is room from the beginning.
const WINDOW_MIN: usize = 128;

/// How a receiver behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverOptions {
    /// Most sequence numbers from the floor on.
    pub window: u32,
    /// Most memory of datagrams of which parts are missing, in bytes, but for the oldest one.
    pub parts_bytes: usize,
}

/// What became of a packet's datagram, or part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is kept, or the datagram that it completed was handed over.
    New,
    /// It was there already.
    Duplicate,
    /// Its sequence number is settled.
    Late,
    /// There is no room for it: it counts as not arrived.
    NoRoom,
}

/// A whole datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted<'a> {
    pub sequence: u64,
    pub origin: Origin,
    pub bytes: &'a [u8],
}

/// What accepted datagrams are handed to: each once.
pub type Intake<'a> = dyn FnMut(Accepted<'_>) + 'a;

/// Sequence number by sequence number, what has arrived: bit 31, and in the lower half the bytes of the datagram that ends with
/// it, and bit 30 if that was accepted.
type Slot = u32;
const HAS_ARRIVED: Slot = 1 << 31;
const IS_ACCEPTED: Slot = 1 << 30;

/// The receiving end of one run.
#[derive(Debug)]
pub struct Receiver {
    options: ReceiverOptions,
    floor: u64,
    slots: VecDeque<Slot>,
    /// Below the floor.
    accepted: Amount,
    /// From the floor on.
    above: Amount,
    parts: Parts,
}

impl Receiver {
    /// A run whose first sequence number is `floor`.
    pub fn new(options: ReceiverOptions, floor: u64) -> Receiver {
        Receiver {
            options,
            floor,
            slots: VecDeque::with_capacity(WINDOW_MIN.min(options.window as usize)),
            accepted: Amount::default(),
            above: Amount::default(),
            parts: Parts::default(),
        }
    }

    /// What is settled, and what of that was accepted.
    pub fn totals(&self) -> Totals {
        Totals { floor: self.floor, accepted: self.accepted }
    }

    /// Everything that was accepted.
    pub fn accepted(&self) -> Amount {
        let mut all = self.accepted;
        all += self.above;
        all
    }

    /// Sequence numbers from the floor on that it can hold.
    pub fn window(&self) -> u32 {
        self.options.window
    }

    /// Takes a datagram, or a part of one. Datagrams that are complete then are handed to `intake`.
    pub fn on_data(&mut self, head: &DataHead, bytes: &[u8], intake: &mut Intake<'_>) -> Outcome {
        let sequence = self.expand(head.sequence_low);
        if head.beyond_floor < BEYOND_FLOOR_MAX {
            self.adopt(sequence.saturating_sub(head.beyond_floor.into()));
        }
        if sequence < self.floor {
            return Outcome::Late;
        }

        let at = sequence - self.floor;
        if at >= self.options.window.into() {
            return Outcome::NoRoom;
        }
        let at = at as usize;
        if self.slots.get(at).is_some_and(|slot| slot & HAS_ARRIVED != 0) {
            return Outcome::Duplicate;
        }

        let bytes_max = self.options.parts_bytes;
        let completed = match (head.part, head.origin) {
            (Part::Only, Some(origin)) => {
                intake(Accepted { sequence, origin, bytes });
                Some((sequence, bytes.len()))
            }
            (part, origin) => {
                if !self.parts.has_room(sequence, self.floor, bytes.len(), bytes_max) {
                    return Outcome::NoRoom;
                }
                let whole = self.parts.add(sequence, part, origin, bytes);
                whole.map(|whole| {
                    let Whole { origin, bytes, last } = whole;
                    intake(Accepted { sequence: last, origin, bytes });
                    (last, bytes.len())
                })
            }
        };

        self.mark(sequence, HAS_ARRIVED);
        if let Some((last, bytes)) = completed {
            self.above += Amount::one(bytes as u64);
            self.mark(last, HAS_ARRIVED | IS_ACCEPTED | bytes as Slot);
        }
        Outcome::New
    }

    fn mark(&mut self, sequence: u64, bits: Slot) {
        let at = (sequence - self.floor) as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, 0);
        }
        self.slots[at] |= bits;
    }

    /// The sequence number with this lower half that is nearest to what is expected.
    fn expand(&self, low: u32) -> u64 {
        let expected = self.floor + self.slots.len() as u64;
        let ahead = low.wrapping_sub(expected as u32).cast_signed();
        expected.saturating_add_signed(ahead.into())
    }

    /// Takes over the sender's floor: what is below it and has not arrived does not come any more.
    pub fn adopt(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        // A run may jump: what it never sent is not counted.
        let passed = (floor - self.floor).min(self.slots.len() as u64) as usize;
        for slot in self.slots.drain(..passed) {
            if slot & IS_ACCEPTED != 0 {
                let bytes = u64::from(slot & 0xffff);
                self.accepted += Amount::one(bytes);
                self.above.datagrams -= 1;
                self.above.bytes -= bytes;
            }
        }
        self.floor = floor;
        self.parts.forget_below(floor);
    }
}
