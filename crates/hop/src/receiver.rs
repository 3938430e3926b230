//! The receiving end: what is accepted, what is a duplicate, and how far the run is settled.

mod arrivals;
mod line;
mod parts;
mod room;
mod slots;

use crate::key::KeyId;
use crate::packet::{BEYOND_FLOOR_MAX, DataHead, Origin, Part};
use crate::{Amount, Totals};
pub use arrivals::Arrivals;
use line::Line;
use parts::{Parts, Whole};
pub(crate) use room::FREE_BYTES_MAX;
pub use room::Room;
use room::Share;
use slots::{BYTES, HAS_ARRIVED, IS_ACCEPTED, Slot, Slots};

/// Highest sequence number below which everything may be settled. A sender would need centuries to get there.
pub(crate) const FLOOR_MAX: u64 = 1 << 62;

/// Above every sequence number that can have arrived: floors beyond the highest are reached by less than a window at a time.
const SEQUENCE_END: u64 = FLOOR_MAX << 1;

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
    /// Maximum memory for sequence numbers, incomplete datagrams and those that wait, of all runs of a listener together, in
    /// bytes. See [`Room`].
    pub room_bytes: usize,
    /// Number of senders that a listener is made for. Twice as many sessions, and four times as many runs, are remembered.
    pub senders_max: u32,
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

/// The receiving end of one run.
#[derive(Debug)]
pub struct Receiver {
    options: ReceiverOptions,
    share: Share,
    floor: u64,
    slots: Slots,
    /// Accepted below the floor.
    accepted: Amount,
    /// Accepted from the floor up.
    above: Amount,
    parts: Parts,
    line: Option<Line>,
}

impl Receiver {
    /// A receiver for a run of this key whose first sequence number is `floor`.
    pub fn new(options: ReceiverOptions, key: KeyId, floor: u64) -> Receiver {
        let floor = floor.min(FLOOR_MAX);
        Receiver {
            options,
            share: Share::new(key),
            floor,
            slots: Slots::new(floor),
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

    /// Bytes of the [`Room`] that the run has.
    pub fn bytes(&self) -> usize {
        self.share.bytes()
    }

    /// Takes a datagram or a part of one. If that completes a datagram, it is accepted: `note` is called first, and `intake` gets
    /// it now or [later](Self::release).
    pub fn on_data(
        &mut self,
        now_ns: u64,
        (head, bytes): (&DataHead, &[u8]),
        room: &mut Room,
        note: &mut Intake<'_>,
        intake: &mut Intake<'_>,
    ) -> Outcome {
        let sequence = self.expand(head.sequence_low);
        if head.beyond_floor < BEYOND_FLOOR_MAX {
            self.adopt(sequence.saturating_sub(head.beyond_floor.into()), room);
        }
        let data = (sequence, head.part, head.origin);
        let outcome = self.take(now_ns, data, bytes, room, (note, &mut *intake));
        self.release(now_ns, room, intake);
        outcome
    }

    fn take(
        &mut self,
        now_ns: u64,
        (sequence, part, origin): (u64, Part, Option<Origin>),
        bytes: &[u8],
        room: &mut Room,
        (note, intake): (&mut Intake<'_>, &mut Intake<'_>),
    ) -> Outcome {
        let floor = self.floor;
        let Some(at) = sequence.checked_sub(floor) else { return Outcome::Late };
        if at >= self.options.window.into() {
            return Outcome::NoRoom;
        }
        if self.slots.get(sequence) & HAS_ARRIVED != 0 {
            return Outcome::Duplicate;
        }

        let Receiver { slots, parts, options, share, .. } = self;
        if !slots.reserve(sequence, room, share) {
            return Outcome::NoRoom;
        }
        if let (Part::Only, Some(origin)) = (part, origin) {
            let one = Accepted { sequence, parts: 1, floor, origin, bytes };
            self.accept(now_ns, one, room, (note, intake));
            return Outcome::New;
        }
        let at = (sequence, floor);
        if !parts.reserve(at, bytes.len(), options.parts_bytes, (room, share)) {
            return Outcome::NoRoom;
        }
        slots.mark(sequence, HAS_ARRIVED);
        let whole = parts.add(sequence, (part, origin), bytes, room, share);
        if let Some(Whole { origin, first, last }) = whole {
            let parts = (last - first + 1) as u16;
            let bytes = std::mem::take(&mut room.whole);
            let one = Accepted { sequence: last, parts, floor, origin, bytes: &bytes };
            self.accept(now_ns, one, room, (note, intake));
            room.whole = bytes;
        }
        Outcome::New
    }

    /// Counts a whole datagram, and passes it on now or later.
    fn accept(
        &mut self,
        now_ns: u64,
        one: Accepted<'_>,
        room: &mut Room,
        (note, intake): (&mut Intake<'_>, &mut Intake<'_>),
    ) {
        let len = one.bytes.len();
        self.above += Amount::one(len as u64);
        self.slots.mark(one.sequence, HAS_ARRIVED | IS_ACCEPTED | len as Slot);
        note(one);
        match &mut self.line {
            Some(line) => line.take(now_ns, &one, (room, &mut self.share), intake),
            None => intake(one),
        }
    }

    /// Passes on datagrams that waited for others that will not come, or that have waited as long as they may. At the end of
    /// time, all of them.
    pub fn release(&mut self, now_ns: u64, room: &mut Room, intake: &mut Intake<'_>) {
        if let Some(line) = &mut self.line {
            line.release(now_ns, self.floor, (room, &mut self.share), intake);
        }
    }

    /// When the next datagram has waited as long as it may. `None` when nothing waits.
    pub fn hold_due_ns(&self) -> Option<u64> {
        self.line.as_ref().and_then(Line::due_ns)
    }

    /// Replays a record: accepts a datagram that was passed on before. It counts wherever it is: there may be less memory than the
    /// earlier process had, so that the floor is already above it.
    pub fn accept_again(
        &mut self,
        floor: u64,
        (last, parts): (u64, u16),
        bytes: u16,
        room: &mut Room,
    ) {
        self.adopt(floor, room);
        if self.slots.get(last) & IS_ACCEPTED != 0 {
            return;
        }
        let first = last.saturating_sub(u64::from(parts).saturating_sub(1)).max(self.floor);
        for part in first..=last {
            self.restore(part, HAS_ARRIVED, room);
        }
        self.restore(last, IS_ACCEPTED | Slot::from(bytes), room);
    }

    /// Marks what was kept. Where there is no place for it any more, in the window or in the room, it is settled along with
    /// everything before it.
    fn restore(&mut self, sequence: u64, bits: Slot, room: &mut Room) {
        if sequence >= SEQUENCE_END {
            return;
        }
        let is_accepted = bits & IS_ACCEPTED != 0;
        let amount = Amount::one((bits & BYTES).into());
        let at = sequence.checked_sub(self.floor);
        let is_in_window = at.is_some_and(|at| at < self.options.window.into());
        if is_in_window && self.slots.reserve(sequence, room, &mut self.share) {
            self.slots.mark(sequence, bits);
            if is_accepted {
                self.above += amount;
            }
        } else {
            if is_accepted {
                self.accepted += amount;
            }
            self.raise_floor(sequence + 1, room);
        }
        if let Some(line) = &mut self.line {
            line.skip_to(sequence + 1);
        }
    }

    /// The state to keep of the sequence numbers from the floor up, four bytes each, in blocks that begin at the number given.
    /// Parts of incomplete datagrams are left out, because they are lost with the memory.
    pub fn kept_slots(&self, keep: &mut dyn FnMut(u64, &[u8])) {
        let mut kept = [0; slots::BLOCK as usize * size_of::<Slot>()];
        for (first, block) in self.slots.blocks() {
            let places = kept.as_chunks_mut().0.iter_mut();
            for ((place, slot), at) in places.zip(block).zip(first..) {
                *place = if self.parts.has(at) { [0; 4] } else { slot.to_le_bytes() };
            }
            keep(first, &kept);
        }
    }

    /// A run as it was kept, without its slots.
    pub fn from_kept(
        options: ReceiverOptions,
        key: KeyId,
        floor: u64,
        accepted: Amount,
    ) -> Receiver {
        Receiver { accepted, ..Receiver::new(options, key, floor) }
    }

    /// Restores kept slots, which begin with that of this sequence number.
    pub fn restore_slots(&mut self, first: u64, slots: &[u8], room: &mut Room) {
        for (slot, at) in slots.as_chunks().0.iter().zip(first..SEQUENCE_END) {
            let slot = Slot::from_le_bytes(*slot) & (HAS_ARRIVED | IS_ACCEPTED | BYTES);
            if slot != 0 {
                self.restore(at, slot, room);
            }
        }
    }

    /// The sequence number with these low 32 bits that is nearest to the expected one.
    fn expand(&self, low: u32) -> u64 {
        let expected = self.slots.end();
        let ahead = low.wrapping_sub(expected as u32).cast_signed();
        expected.saturating_add_signed(ahead.into())
    }

    /// Adopts the sender's floor: whatever is below it and has not arrived will not come.
    pub fn adopt(&mut self, floor: u64, room: &mut Room) {
        if floor <= FLOOR_MAX {
            self.raise_floor(floor, room);
        }
    }

    fn raise_floor(&mut self, floor: u64, room: &mut Room) {
        if floor <= self.floor {
            return;
        }
        // A run may jump: numbers that were never sent are not counted.
        let passed = self.slots.pass(floor, room, &mut self.share);
        self.accepted += passed;
        self.above.datagrams -= passed.datagrams;
        self.above.bytes -= passed.bytes;
        self.floor = floor;
        self.parts.forget_below(floor, room, &mut self.share);
    }

    /// Settles everything up to the highest sequence number that has arrived, so that totals are all that is left to remember.
    pub fn settle(&mut self, room: &mut Room) {
        self.raise_floor(self.slots.end(), room);
        self.slots.clear(room, &mut self.share);
    }

    /// Passes on everything that waits, and gives all memory back. Returns everything accepted.
    pub fn finish(mut self, room: &mut Room, intake: &mut Intake<'_>) -> Amount {
        self.release(u64::MAX, room, intake);
        self.settle(room);
        self.accepted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Sender;

    const OPTIONS: ReceiverOptions = ReceiverOptions {
        window: 1 << 20,
        parts_bytes: 1 << 20,
        hold_ns: None,
        room_bytes: 64 << 20,
        senders_max: 10,
    };

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
        let mut receiver = Receiver::new(OPTIONS, KeyId(1), 0);
        let mut room = Room::new(OPTIONS.room_bytes);
        let (mut kept, mut refused) = (0, 0);
        for orphan in 0..100_000u64 {
            let head = head(3 * orphan, Part::First, 3_000);
            let data = (&head, &[1; 1_000][..]);
            match receiver.on_data(0, data, &mut room, &mut |_| {}, &mut |_| panic!("whole")) {
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
        let mut take = |head: &DataHead, bytes: &[u8]| {
            receiver.on_data(0, (head, bytes), &mut room, &mut |_| {}, &mut |of| {
                whole.push(of.bytes.len());
            })
        };
        assert_eq!(take(&one, &[2; 10]), Outcome::New);
        for (sequence, part) in [(2, Part::Last), (1, Part::Middle)] {
            assert_eq!(take(&head(sequence, part, 3_000), &[1; 1_000]), Outcome::New);
        }
        assert_eq!(whole, [10, 3_000]);

        assert_eq!(room.used(), receiver.bytes());
        let accepted = receiver.finish(&mut room, &mut |_| panic!("nothing waits"));
        assert_eq!((accepted, room.used()), (Amount { datagrams: 2, bytes: 3_010 }, 0));
    }

    #[test]
    fn a_number_far_ahead_takes_one_block_and_what_has_no_room_is_not_accepted() {
        let options = ReceiverOptions { window: 1 << 22, room_bytes: 12_000, ..OPTIONS };
        let (mut receiver, mut room) =
            (Receiver::new(options, KeyId(1), 0), Room::new(options.room_bytes));
        let (mut accepted, mut refused) = (0, 0);
        for sequence in (0..1 << 22).step_by(100_000) {
            let one = head(sequence, Part::Only, 10);
            let data = (&one, &[2; 10][..]);
            match receiver.on_data(0, data, &mut room, &mut |_| {}, &mut |_| accepted += 1) {
                Outcome::New => {}
                Outcome::NoRoom => refused += 1,
                outcome => panic!("{outcome:?}"),
            }
        }
        // A third of the room, for one run.
        assert_eq!((accepted, refused), (4_000 / slots::BLOCK_BYTES as u64, 30));
        assert_eq!(receiver.accepted(), Amount { datagrams: accepted, bytes: 10 * accepted });
        receiver.settle(&mut room);
        assert_eq!((receiver.totals().accepted, room.used()), (receiver.accepted(), 0));
    }
}
