//! Passes datagrams on in the order in which the sending end took them, with a bound on how long one waits for those before it.

use super::room::{Room, Share};
use super::{Accepted, Intake};
use crate::packet::Origin;
use std::collections::{BTreeMap, BTreeSet};

/// Memory of a datagram that waits, besides its bytes: its entries in two trees whose nodes are half full.
const HELD_BYTES: usize = 2 * (3 * size_of::<u64>() + size_of::<Held>()) + 32;

/// A datagram that waits for those before it.
#[derive(Debug)]
struct Held {
    last: u64,
    origin: Origin,
    bytes: Vec<u8>,
    due_ns: u64,
}

/// The datagrams that wait for those before them.
#[derive(Debug)]
pub(super) struct Line {
    hold_ns: u64,
    bytes_max: usize,
    /// Everything below this was passed on, will not come, or is no longer waited for.
    next: u64,
    /// Keyed by the sequence number of the first part.
    held: BTreeMap<u64, Held>,
    bytes: usize,
    /// When each stops waiting.
    due: BTreeSet<(u64, u64)>,
}

impl Line {
    /// Starts at sequence number `next`. Nothing waits longer than `hold_ns`, or while others take more than `bytes_max` bytes.
    pub(super) fn new(hold_ns: u64, bytes_max: usize, next: u64) -> Line {
        Line { hold_ns, bytes_max, next, held: BTreeMap::new(), bytes: 0, due: BTreeSet::new() }
    }

    /// Passes a datagram on, along with those that waited for it, if nothing before it is missing or if it is late. Holds it
    /// otherwise, if there is room.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        one: &Accepted<'_>,
        (room, share): (&mut Room, &mut Share),
        intake: &mut Intake<'_>,
    ) {
        let (first, last) = (one.first(), one.sequence);
        if first > self.next && self.hold(now_ns, one, (room, share)) {
            while self.bytes > self.bytes_max
                && let Some(oldest) = self.held.keys().next()
            {
                self.next = *oldest;
                self.hand_on(one.floor, (room, share), intake);
            }
            return;
        }
        intake(*one);
        if first <= self.next {
            self.next = self.next.max(last + 1);
            self.hand_on(one.floor, (room, share), intake);
        }
    }

    /// Returns false when there is no room.
    fn hold(
        &mut self,
        now_ns: u64,
        one: &Accepted<'_>,
        (room, share): (&mut Room, &mut Share),
    ) -> bool {
        let charge = one.bytes.len() + HELD_BYTES;
        if !room.take(share, charge) {
            return false;
        }
        self.bytes += charge;
        let (first, due_ns) = (one.first(), now_ns.saturating_add(self.hold_ns));
        let bytes = room.buffer(one.bytes);
        let held = Held { last: one.sequence, origin: one.origin, bytes, due_ns };
        self.held.insert(first, held);
        self.due.insert((due_ns, first));
        true
    }

    /// Stops waiting for anything below the floor, which will not come, and passes on what has waited as long as it may.
    pub(super) fn release(
        &mut self,
        now_ns: u64,
        floor: u64,
        (room, share): (&mut Room, &mut Share),
        intake: &mut Intake<'_>,
    ) {
        self.pass(floor, floor, (room, share), intake);
        while let Some((due_ns, first)) = self.due.first().copied()
            && due_ns <= now_ns
        {
            self.pass(first, floor, (room, share), intake);
        }
    }

    /// Does not wait for anything below `next`: an earlier process passed it on.
    pub(super) fn skip_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// When the next datagram stops waiting.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| *due_ns)
    }

    /// Passes on everything below `until`, and what follows without a gap.
    fn pass(
        &mut self,
        until: u64,
        floor: u64,
        (room, share): (&mut Room, &mut Share),
        intake: &mut Intake<'_>,
    ) {
        while let Some(first) = self.held.keys().next().copied().filter(|first| *first < until) {
            self.next = self.next.max(first);
            self.hand_on(floor, (room, share), intake);
        }
        self.next = self.next.max(until);
        self.hand_on(floor, (room, share), intake);
    }

    /// Passes on the datagrams that are no longer waiting for anything.
    fn hand_on(
        &mut self,
        floor: u64,
        (room, share): (&mut Room, &mut Share),
        intake: &mut Intake<'_>,
    ) {
        while let Some(entry) = self.held.first_entry()
            && *entry.key() <= self.next
        {
            let (first, Held { last, origin, bytes, due_ns }) = entry.remove_entry();
            let parts = (last - first + 1) as u16;
            intake(Accepted { sequence: last, parts, floor, origin, bytes: &bytes });
            self.next = self.next.max(last + 1);
            self.due.remove(&(due_ns, first));
            let charge = bytes.len() + HELD_BYTES;
            self.bytes -= charge;
            room.give_back(share, charge);
            room.reuse(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyId;
    use crate::packet::Sender;

    const MS: u64 = 1_000_000;

    /// A line, what it passed on, and the time.
    struct Test {
        line: Line,
        room: Room,
        share: Share,
        got: Vec<u64>,
        now_ns: u64,
    }

    impl Test {
        fn new(bytes_max: usize) -> Test {
            Test {
                line: Line::new(100 * MS, bytes_max, 0),
                room: Room::new(1 << 20),
                share: Share::new(KeyId(1)),
                got: Vec::new(),
                now_ns: MS,
            }
        }

        fn take(&mut self, first: u64, last: u64) -> &[u64] {
            let origin = Origin { received_unix_ns: 1, sender: Sender::Nobody, bytes: 10 };
            let parts = (last - first + 1) as u16;
            let one =
                Accepted { sequence: last, parts, floor: 0, origin, bytes: &[last as u8; 10] };
            let Test { line, room, share, got, .. } = self;
            line.take(self.now_ns, &one, (room, share), &mut |one| {
                assert_eq!(one.bytes, [one.sequence as u8; 10]);
                got.push(one.sequence);
            });
            &self.got
        }

        fn release(&mut self, ms: u64, floor: u64) -> &[u64] {
            self.now_ns = ms * MS;
            let Test { line, room, share, got, .. } = self;
            line.release(self.now_ns, floor, (room, share), &mut |one| got.push(one.sequence));
            assert_eq!((line.bytes, line.due.len()), (room.used(), line.held.len()));
            &self.got
        }
    }

    #[test]
    fn what_is_missing_is_waited_for_and_not_for_ever() {
        let mut test = Test::new(10_000);
        assert_eq!(test.take(0, 0), [0]);
        // A datagram of three parts waits for 1, and 5 waits for both.
        test.take(2, 4);
        assert_eq!(test.take(5, 5), [0]);
        assert_eq!(test.take(1, 1), [0, 1, 4, 5]);
        // 6 does not come. 8 stops waiting first, and 7, which comes before it in the order, goes with it.
        test.take(8, 8);
        test.now_ns = 50 * MS;
        assert_eq!(test.take(7, 7).len(), 4);
        assert_eq!(test.line.due_ns(), Some(101 * MS));
        assert_eq!(test.release(100, 0).len(), 4);
        assert_eq!(test.release(101, 0), [0, 1, 4, 5, 7, 8]);
        // 6 comes after all, late.
        assert_eq!(test.take(6, 6), [0, 1, 4, 5, 7, 8, 6]);
        assert_eq!(test.take(9, 9).last(), Some(&9));
    }

    #[test]
    fn the_floor_says_what_does_not_come() {
        let mut test = Test::new(10_000);
        for one in [3, 5, 9] {
            test.take(one, one);
        }
        assert_eq!(test.release(2, 5), [3, 5]);
        assert_eq!(test.release(3, 8), [3, 5]);
        assert_eq!(test.release(4, 9), [3, 5, 9]);
        assert_eq!(test.line.due_ns(), None);
        assert_eq!(test.line.bytes, 0);
    }

    #[test]
    fn no_more_is_held_than_there_is_room_for() {
        let mut test = Test::new(1_000);
        for one in (2..1_000).rev() {
            test.take(one, one);
            assert!(test.line.bytes <= 1_000);
        }
        test.release(1_000_000, 0);
        let mut all = test.got.clone();
        all.sort_unstable();
        assert_eq!(all, (2..1_000).collect::<Vec<_>>(), "each once");
    }
}
