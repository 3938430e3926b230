//! The receiving end: what is accepted, what is a duplicate, and how far the run is settled.

mod arrivals;
mod line;
mod parts;

use crate::packet::{BEYOND_FLOOR_MAX, DataHead, Origin, Part};
use crate::{Amount, Totals};
pub use arrivals::Arrivals;
use line::Line;
use parts::{Parts, Whole};
use std::collections::VecDeque;

/// Options of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverOptions {
    /// Maximum number of sequence numbers, counted from the floor.
    pub window: u32,
    /// Maximum memory for incomplete datagrams, in bytes. The oldest one may exceed it.
    pub parts_bytes: usize,
    /// Whether to pass datagrams on in the order in which the sending end took them. Each waits up to this long for those before
    /// it, in nanoseconds, within `parts_bytes` of memory. `None` passes each on at once.
    pub hold_ns: Option<u64>,
}

/// What became of a packet's datagram, or part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The part is kept, or it completed a datagram that was accepted.
    New,
    /// It had already arrived.
    Duplicate,
    /// Its sequence number is already settled.
    Late,
    /// There is no room for it: it counts as not arrived.
    NoRoom,
}

/// A whole datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted<'a> {
    /// Sequence number of its last part.
    pub sequence: u64,
    pub parts: u16,
    /// The receiver's floor.
    pub floor: u64,
    pub origin: Origin,
    pub bytes: &'a [u8],
}

impl Accepted<'_> {
    /// Sequence number of its first part.
    fn first(&self) -> u64 {
        (self.sequence + 1).saturating_sub(self.parts.into())
    }
}

/// Callback that receives each accepted datagram once.
pub type Intake<'a> = dyn FnMut(Accepted<'_>) + 'a;

/// State of one sequence number. Bit 31: it has arrived. Bit 30: the datagram that ends with it was accepted. Low 16 bits: the
/// length of that datagram.
type Slot = u32;
const HAS_ARRIVED: Slot = 1 << 31;
const IS_ACCEPTED: Slot = 1 << 30;
const BYTES: Slot = 0xffff;

/// The receiving end of one run.
#[derive(Debug)]
pub struct Receiver {
    options: ReceiverOptions,
    floor: u64,
    slots: VecDeque<Slot>,
    /// Accepted below the floor.
    accepted: Amount,
    /// Accepted from the floor up.
    above: Amount,
    parts: Parts,
    line: Option<Line>,
}

impl Receiver {
    /// A receiver for a run whose first sequence number is `floor`.
    pub fn new(options: ReceiverOptions, floor: u64) -> Receiver {
        Receiver {
            options,
            floor,
            slots: VecDeque::new(),
            accepted: Amount::default(),
            above: Amount::default(),
            parts: Parts::default(),
            line: options.hold_ns.map(|hold_ns| Line::new(hold_ns, options.parts_bytes, floor)),
        }
    }

    /// How far the run is settled, and what was accepted below that.
    pub fn totals(&self) -> Totals {
        Totals { floor: self.floor, accepted: self.accepted }
    }

    /// Everything accepted.
    pub fn accepted(&self) -> Amount {
        let mut all = self.accepted;
        all += self.above;
        all
    }

    /// Number of sequence numbers, counted from the floor, that the receiver can hold.
    pub fn window(&self) -> u32 {
        self.options.window
    }

    /// Takes a datagram or a part of one. If that completes a datagram, it is accepted: `note` is called first, and `intake` gets
    /// it now or [later](Self::release).
    pub fn on_data(
        &mut self,
        now_ns: u64,
        head: &DataHead,
        bytes: &[u8],
        note: &mut Intake<'_>,
        intake: &mut Intake<'_>,
    ) -> Outcome {
        let sequence = self.expand(head.sequence_low);
        if head.beyond_floor < BEYOND_FLOOR_MAX {
            self.adopt(sequence.saturating_sub(head.beyond_floor.into()));
        }
        let outcome = self.take(sequence, (head.part, head.origin), bytes, &mut |line, one| {
            note(one);
            match line {
                Some(line) => line.take(now_ns, &one, intake),
                None => intake(one),
            }
        });
        self.release(now_ns, intake);
        outcome
    }

    fn take(
        &mut self,
        sequence: u64,
        (part, origin): (Part, Option<Origin>),
        bytes: &[u8],
        accept: &mut dyn FnMut(Option<&mut Line>, Accepted<'_>),
    ) -> Outcome {
        let floor = self.floor;
        let Some(at) = sequence.checked_sub(floor) else { return Outcome::Late };
        if at >= self.options.window.into() {
            return Outcome::NoRoom;
        }
        if self.slots.get(at as usize).is_some_and(|slot| slot & HAS_ARRIVED != 0) {
            return Outcome::Duplicate;
        }

        let Receiver { slots, above, parts, options, line, .. } = self;
        let mut accept = |first: u64, last: u64, origin, bytes: &[u8]| {
            *above += Amount::one(bytes.len() as u64);
            mark(slots, last - floor, HAS_ARRIVED | IS_ACCEPTED | bytes.len() as Slot);
            let parts = (last - first + 1) as u16;
            accept(line.as_mut(), Accepted { sequence: last, parts, floor, origin, bytes });
        };
        match (part, origin) {
            (Part::Only, Some(origin)) => accept(sequence, sequence, origin, bytes),
            (part, origin) => {
                if !parts.has_room(sequence, floor, bytes.len(), options.parts_bytes) {
                    return Outcome::NoRoom;
                }
                let whole = parts.add(sequence, part, origin, bytes);
                if let Some(Whole { origin, bytes, first, last }) = whole {
                    accept(first, last, origin, bytes);
                }
                mark(slots, at, HAS_ARRIVED);
            }
        }
        Outcome::New
    }

    /// Passes on datagrams that waited for others that will not come, or that have waited as long as they may. At the end of
    /// time, all of them.
    pub fn release(&mut self, now_ns: u64, intake: &mut Intake<'_>) {
        if let Some(line) = &mut self.line {
            line.release(now_ns, self.floor, intake);
        }
    }

    /// When the next datagram has waited as long as it may. `None` when nothing waits.
    pub fn hold_due_ns(&self) -> Option<u64> {
        self.line.as_ref().and_then(Line::due_ns)
    }

    /// Replays a record: accepts a datagram that was passed on before.
    pub fn accept_again(&mut self, floor: u64, last: u64, parts: u16, bytes: u16) {
        self.adopt(floor);
        let Some(at) = last.checked_sub(self.floor) else { return };
        let is_new = |slot: &Slot| slot & IS_ACCEPTED == 0;
        if at >= self.options.window.into() || !self.slots.get(at as usize).is_none_or(is_new) {
            return;
        }
        let first = last.saturating_sub(u64::from(parts).saturating_sub(1)).max(self.floor);
        for part in first..=last {
            mark(&mut self.slots, part - self.floor, HAS_ARRIVED);
        }
        mark(&mut self.slots, at, IS_ACCEPTED | Slot::from(bytes));
        self.above += Amount::one(bytes.into());
        if let Some(line) = &mut self.line {
            line.skip_to(last + 1);
        }
    }

    /// The state to keep for each sequence number from the floor up. Parts of incomplete datagrams are left out, because they are
    /// lost with the memory.
    pub fn kept_slots(&self) -> Vec<u8> {
        let slots = (self.floor..).zip(&self.slots);
        let kept = slots.map(|(at, slot)| if self.parts.has(at) { 0 } else { *slot });
        kept.flat_map(Slot::to_le_bytes).collect()
    }

    /// Restores a run from what was kept.
    pub fn from_kept(
        options: ReceiverOptions,
        floor: u64,
        accepted: Amount,
        slots: &[u8],
    ) -> Receiver {
        let mut receiver = Receiver { accepted, ..Receiver::new(options, floor) };
        let (slots, _) = slots.as_chunks();
        for slot in slots.iter().take(options.window as usize) {
            let slot = Slot::from_le_bytes(*slot) & (HAS_ARRIVED | IS_ACCEPTED | BYTES);
            if slot & IS_ACCEPTED != 0 {
                receiver.above += Amount::one((slot & BYTES).into());
            }
            receiver.slots.push_back(slot);
        }
        if let Some(line) = &mut receiver.line {
            line.skip_to(floor + receiver.slots.len() as u64);
        }
        receiver
    }

    /// The sequence number with these low 32 bits that is nearest to the expected one.
    fn expand(&self, low: u32) -> u64 {
        let expected = self.floor + self.slots.len() as u64;
        let ahead = low.wrapping_sub(expected as u32).cast_signed();
        expected.saturating_add_signed(ahead.into())
    }

    /// Adopts the sender's floor: whatever is below it and has not arrived will not come.
    pub fn adopt(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        // A run may jump: numbers that were never sent are not counted.
        let passed = (floor - self.floor).min(self.slots.len() as u64) as usize;
        for slot in self.slots.drain(..passed) {
            if slot & IS_ACCEPTED != 0 {
                let bytes = u64::from(slot & BYTES);
                self.accepted += Amount::one(bytes);
                self.above.datagrams -= 1;
                self.above.bytes -= bytes;
            }
        }
        self.floor = floor;
        self.parts.forget_below(floor);
    }
}

fn mark(slots: &mut VecDeque<Slot>, at: u64, bits: Slot) {
    let at = at as usize;
    if slots.len() <= at {
        slots.resize(at + 1, 0);
    }
    slots[at] |= bits;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Sender;

    const OPTIONS: ReceiverOptions =
        ReceiverOptions { window: 1 << 20, parts_bytes: 1 << 20, hold_ns: None };

    fn head(sequence: u64, part: Part, bytes: u16) -> DataHead {
        let origin = Origin { received_unix_ns: 1, sender: Sender::Nobody, bytes };
        DataHead {
            sequence_low: sequence as u32,
            beyond_floor: sequence as u32,
            part,
            asks: false,
            may_be_second: false,
            origin: part.begins().then_some(origin),
        }
    }

    #[test]
    fn first_parts_without_the_others_take_no_more_than_their_bound() {
        let mut receiver = Receiver::new(OPTIONS, 0);
        let (mut kept, mut refused) = (0, 0);
        for orphan in 0..100_000u64 {
            let head = head(3 * orphan, Part::First, 3_000);
            match receiver.on_data(0, &head, &[1; 1_000], &mut |_| {}, &mut |_| panic!("whole")) {
                Outcome::New => kept += 1_000,
                Outcome::NoRoom => refused += 1,
                outcome => panic!("{outcome:?}"),
            }
        }
        assert!(kept <= OPTIONS.parts_bytes + 64 * 1_000, "{kept}");
        assert!(refused > 98_000, "{refused}");

        // A datagram that fits one packet passes, and the oldest one can be completed.
        let mut whole = Vec::new();
        let one = head(300_001, Part::Only, 10);
        assert_eq!(
            receiver.on_data(0, &one, &[2; 10], &mut |_| {}, &mut |_| whole.push(10)),
            Outcome::New
        );
        for (sequence, part) in [(2, Part::Last), (1, Part::Middle)] {
            let rest = head(sequence, part, 3_000);
            let outcome = receiver
                .on_data(0, &rest, &[1; 1_000], &mut |_| {}, &mut |of| whole.push(of.bytes.len()));
            assert_eq!(outcome, Outcome::New);
        }
        assert_eq!(whole, [10, 3_000]);
    }
}
