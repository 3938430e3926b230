//! The writing end.

use super::{CLAIMED, Cursor, Descriptor, GONE, Padded, Reader, Shared, Times, View};
use crate::sync::{Arc, AtomicU64, Ordering};
use ledger::{Amount, EventCounter};
use sys::Source;

/// While readers keep up, the writer starts over at the ring's first byte after this many bytes, or before a batch that would
/// exceed them: a processor's first-level cache holds them.
const HOT_BYTES: usize = 32 * 1024;

/// The same in descriptors.
const HOT_SLOTS: usize = 256;

/// The newest datagram was dropped, because a reader's claim covers the room that it needs or because it is larger than the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Guarded;

/// The single writing end.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    readers: Vec<ReaderEntry>,
    /// Number of the next datagram, published or not.
    head: u64,
    /// Number of the oldest datagram whose room has not been reused.
    tail: u64,
    /// Number of the datagram in the first slot.
    base: u64,
    /// Where the next payload may start.
    position: u64,
    room: Room,
    appended: Amount,
    /// Lower bound of all readers' cursors, refreshed when it is reached.
    cursor_min: u64,
    /// How often datagrams were about to be taken from a reader before it could see them: nobody would have counted them.
    violations: EventCounter,
}

/// Bytes that were handed out to be written in place.
#[derive(Clone, Copy, Default)]
struct Room {
    position: u64,
    bytes: usize,
}

struct ReaderEntry {
    cursor: Arc<Cursor>,
    lost: std::sync::Arc<ledger::Tally>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Writer {
        Writer {
            shared,
            readers: Vec::new(),
            head: 0,
            tail: 0,
            base: 0,
            position: 0,
            room: Room::default(),
            appended: Amount::default(),
            cursor_min: u64::MAX,
            violations: EventCounter::default(),
        }
    }

    /// Creates a reader that starts with the next datagram. What the writer takes from it is added to `lost`.
    pub(crate) fn reader(&mut self, lost: std::sync::Arc<ledger::Tally>) -> Reader {
        self.forget_gone_readers();

        let word = Padded(AtomicU64::new(self.head << 1));
        let cursor = Arc::new(Cursor { word, moves: AtomicU64::new(0) });
        self.readers.push(ReaderEntry { cursor: Arc::clone(&cursor), lost });
        self.cursor_min = self.cursor_min.min(self.head);

        Reader {
            shared: Arc::clone(&self.shared),
            cursor,
            seen: self.appended,
            is_gone: false,
            until: u64::MAX,
        }
    }

    fn forget_gone_readers(&mut self) {
        self.readers.retain(|reader| reader.cursor.word.0.load(Ordering::Acquire) != GONE);
    }

    /// Everything appended so far, published or not.
    pub(crate) fn appended(&self) -> Amount {
        self.appended
    }

    /// How often the ring's own law did not hold.
    pub(crate) fn violations(&self) -> u64 {
        self.violations.load()
    }

    /// Maximum number of datagrams that the ring can hold.
    pub(crate) fn capacity(&self) -> u64 {
        self.shared.slots.len() as u64
    }

    /// Whether a payload of `len` bytes fits without taking an unhandled datagram from a reader.
    pub(crate) fn has_room_without_loss(&mut self, len: usize) -> bool {
        self.has_room_for(1, len)
    }

    /// Whether `count` payloads of `bytes` together fit and leave a quarter of the ring free, or the whole ring is free.
    pub(crate) fn has_quarter_beyond(&mut self, count: usize, bytes: usize) -> bool {
        let (slots, turn_bytes) = (self.shared.slots.len(), self.shared.turn_bytes);
        self.has_room_for((count + slots / 4).min(slots), (bytes + turn_bytes / 4).min(turn_bytes))
    }

    fn has_room_for(&mut self, count: usize, len: usize) -> bool {
        let position = self.place(len);
        if self.fits(position, count, len, self.cursor_min.clamp(self.tail, self.head)) {
            return true;
        }
        self.look_at_cursors();
        self.fits(position, count, len, self.cursor_min.clamp(self.tail, self.head))
    }

    fn look_at_cursors(&mut self) {
        let cursors =
            self.readers.iter().map(|reader| reader.cursor.word.0.load(Ordering::Acquire) >> 1);
        self.cursor_min = cursors.min().unwrap_or(u64::MAX);
    }

    /// Starts over at the ring's first byte and slot if the next datagrams, of about `bytes` together, would leave the hot part,
    /// and no reader has anything left. Everything appended must have been published.
    pub(crate) fn rewind_if_empty(&mut self, bytes: usize) {
        let turn_bytes = self.shared.turn_bytes;
        let offset = self.position as usize & (turn_bytes - 1);

        let hot_slots = HOT_SLOTS.min(self.shared.slots.len() / 4) as u64;
        let is_hot =
            offset + bytes <= HOT_BYTES.min(turn_bytes / 4) && self.head - self.base <= hot_slots;

        if is_hot || (offset == 0 && self.head == self.base) {
            return;
        }

        // Checked only when it matters: each cursor is in a cache line that another processor writes.
        self.look_at_cursors();
        if self.cursor_min < self.head {
            return;
        }

        // No reader has anything left, so the whole ring is free.
        self.tail = self.head;
        self.position =
            self.position.wrapping_add(((turn_bytes - offset) & (turn_bytes - 1)) as u64);
        // Readers see it with the next `head`, and there is nothing below that to look at.
        self.base = self.head;
        self.shared.published.0.base.store(self.base, Ordering::Relaxed);
    }

    /// Room for `count` datagrams of `bytes` together, to be filled and then taken in with
    /// [`append_in_place`](Self::append_in_place). `None` if that would cost a reader a datagram.
    pub(crate) fn room(&mut self, count: usize, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.shared.turn_bytes || !self.has_room_for(count, bytes) {
            return None;
        }

        // No reader has anything left below this.
        self.tail = self.cursor_min.clamp(self.tail, self.head);
        self.room = Room { position: self.place(bytes), bytes };

        // Skip the gap before the room now, because the first datagrams of the room may not be taken in.
        self.position = self.room.position;

        let cells = self.cells(self.room.position, bytes);
        // SAFETY: `place` keeps the room within one turn, and `fits` made sure that no datagram at or above `tail` lies in it, so
        // no claim covers it and nobody else looks there. The borrow of the writer keeps it from writing.
        Some(unsafe { std::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast(), bytes) })
    }

    /// What was written into the last [`room`](Self::room), `offset` bytes from its start.
    ///
    /// # Panics
    /// If it is not within the room.
    pub(crate) fn in_room(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.room.bytes, "beyond the room");
        let cells = self.cells(self.room.position.wrapping_add(offset as u64), len);
        // SAFETY: only the writer writes, which this borrow prevents, and `room` made sure that the room lies within one turn.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), len) }
    }

    /// Takes in a datagram that was written into the last [`room`](Self::room), `offset` bytes from its start and behind
    /// everything taken in from there so far. Visible to readers after the next [`publish`](Self::publish).
    ///
    /// # Panics
    /// If it is not within the room, or not behind what was taken in before.
    pub(crate) fn append_in_place(
        &mut self,
        source: Source,
        times: Times,
        offset: usize,
        len: usize,
    ) {
        assert!(offset + len <= self.room.bytes, "beyond the room");
        let position = self.room.position.wrapping_add(offset as u64);
        let skipped = position.wrapping_sub(self.position);
        assert!(skipped <= self.shared.turn_bytes as u64, "before what is there");

        self.push(source, times, position, len);
    }

    fn cells(&self, position: u64, len: usize) -> &[std::cell::UnsafeCell<u8>] {
        let offset = position as usize & (self.shared.turn_bytes - 1);
        &self.shared.payloads[offset..offset + len]
    }

    /// Stores a datagram, visible to readers after the next [`publish`](Self::publish).
    ///
    /// If [`has_room_without_loss`](Self::has_room_without_loss) returns false, publish first: readers may lose only what they
    /// could have seen.
    pub(crate) fn append(
        &mut self,
        source: Source,
        times: Times,
        bytes: &[u8],
    ) -> Result<(), Guarded> {
        let position = self.place(bytes.len());

        if !self.fits(position, 1, bytes.len(), self.tail) {
            // Drop the oldest datagrams, one by one, until there is room.
            let mut tail = self.tail;
            while !self.fits(position, 1, bytes.len(), tail) {
                if tail == self.head {
                    // Not even an empty ring has room for it.
                    return Err(Guarded);
                }
                tail += 1;
            }
            self.reuse_up_to(tail)?;
        }

        let cells = self.cells(position, bytes.len());
        // SAFETY: `cells` is as long as `bytes`, `place` keeps a payload within one turn, and `fits` and `reuse_up_to`
        // made sure that no datagram at or above `tail`, so none that a reader may claim, lies there.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                cells.as_ptr().cast_mut().cast(),
                bytes.len(),
            );
        }

        self.push(source, times, position, bytes.len());
        Ok(())
    }

    /// Adds the descriptor of the datagram whose payload is at `position`. There must be room for it.
    fn push(&mut self, source: Source, times: Times, position: u64, len: usize) {
        let descriptor = Descriptor {
            position,
            bytes_before: self.appended.bytes,
            times,
            source,
            len: len as u32,
        };

        // SAFETY: the slot's previous datagram is below `tail`, so no claim covers it.
        self.view().slot(self.head).with_mut(|slot| unsafe { (*slot).write(descriptor) });

        self.head += 1;
        self.position = position.wrapping_add(len as u64);
        self.appended += Amount::one(len);
    }

    /// Shows readers everything appended so far.
    pub(crate) fn publish(&mut self) {
        self.shared.published.0.head.store(self.head, Ordering::Release);
    }

    fn view(&self) -> View<'_> {
        self.shared.view(self.base)
    }

    /// Where a payload of `len` bytes would start: here, or at the beginning of the next turn if it does not fit.
    fn place(&self, len: usize) -> u64 {
        let turn_bytes = self.shared.turn_bytes as u64;
        let left_in_turn = turn_bytes - (self.position & (turn_bytes - 1));
        let skipped = if len as u64 <= left_in_turn { 0 } else { left_in_turn };
        // Positions include what is skipped, so the gap counts as used until the datagrams before it are gone.
        self.position.wrapping_add(skipped)
    }

    /// Whether `count` datagrams of `len` bytes together fit at `position` while everything from `tail` on stays.
    fn fits(&self, position: u64, count: usize, len: usize, tail: u64) -> bool {
        let begin = if tail == self.head {
            // Nothing is kept: the payload has the whole ring.
            position
        } else {
            // SAFETY: this is the writer, and `tail` is below `self.head`, whose slots it has written.
            unsafe { self.view().descriptor(tail) }.position
        };
        let bytes = position.wrapping_add(len as u64).wrapping_sub(begin);
        let slots = self.head - tail + count as u64;
        bytes <= self.shared.turn_bytes as u64 && slots <= self.shared.slots.len() as u64
    }

    /// Payload bytes of all datagrams below `number`, which must not be below `tail`.
    fn bytes_before(&self, number: u64) -> u64 {
        if number == self.head {
            return self.appended.bytes;
        }
        // SAFETY: this is the writer, and `number` is between `tail` and `head`.
        unsafe { self.view().descriptor(number) }.bytes_before
    }

    /// Takes the datagrams below `new_tail` from every reader that still has them.
    fn reuse_up_to(&mut self, new_tail: u64) -> Result<(), Guarded> {
        if new_tail > self.cursor_min {
            let mut cursor_min = u64::MAX;
            for index in 0..self.readers.len() {
                cursor_min = cursor_min.min(self.move_on(index, new_tail)?);
            }
            self.cursor_min = cursor_min;
        }
        self.tail = new_tail;
        Ok(())
    }

    /// Makes sure that one reader's cursor is at `new_tail` or beyond, and returns the cursor.
    ///
    /// A reader that has to be moved is moved to three quarters of the ring rather than by single datagrams, so that the next
    /// quarter of a ring enters without moving it again.
    fn move_on(&self, index: usize, new_tail: u64) -> Result<u64, Guarded> {
        let reader = &self.readers[index];
        let Cursor { word, moves } = &*reader.cursor;
        let cursor = word.0.load(Ordering::Acquire) >> 1;
        if cursor >= new_tail {
            return Ok(cursor);
        }

        let moves_before = moves.load(Ordering::Relaxed);
        // Odd until the loss is counted. The compare-and-swap of the cursor releases it.
        moves.store(moves_before + 1, Ordering::Relaxed);
        let moved = self.move_word(&word.0, &reader.lost, new_tail);
        moves.store(moves_before + 2, Ordering::Release);
        moved
    }

    fn move_word(
        &self,
        word: &AtomicU64,
        lost: &ledger::Tally,
        new_tail: u64,
    ) -> Result<u64, Guarded> {
        let mut state = word.load(Ordering::Acquire);

        loop {
            let cursor = state >> 1;
            if cursor >= new_tail {
                return Ok(cursor);
            }
            if state & CLAIMED != 0 {
                return Err(Guarded);
            }

            let published = self.shared.published.0.head.load(Ordering::Relaxed);
            if new_tail > published {
                self.violations.add(1);
            }
            let goal = match new_tail < published {
                // SAFETY: this is the writer, and everything from `new_tail`, which is not below `tail`, is there.
                true => unsafe { self.view().first_within_reach(new_tail, published) },
                false => new_tail,
            };

            match word.compare_exchange(state, goal << 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let bytes = self.bytes_before(goal) - self.bytes_before(cursor);
                    lost.add(Amount { count: goal - cursor, bytes });
                    return Ok(goal);
                }
                Err(moved) => state = moved,
            }
        }
    }
}

/// In tests a violation is a failure at once, in the models of all orders and in the simulation too.
#[cfg(test)]
impl Drop for Writer {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || self.violations() == 0, "lost unseen");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::ring::{Times, ring};
    use crate::{RING_BYTES_MIN, meter::ListenerMeter};
    use ledger::{HopSnapshot, Meter, Tally};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use sys::Source;

    #[test]
    fn taking_a_datagram_from_a_reader_that_cannot_see_it_yet_is_a_violation() {
        let mut writer = ring(RING_BYTES_MIN).unwrap();
        let lost = Arc::<Tally>::default();
        let _reader = writer.reader(Arc::clone(&lost));
        let meter = ListenerMeter::new("in".to_owned(), None, Default::default());
        let violations = || {
            let mut hops: Vec<HopSnapshot> = Vec::new();
            meter.read(&mut hops);
            hops.iter().map(|hop| hop.violations).sum::<u64>()
        };

        writer
            .append(Source::NONE, Times { received_unix_ns: 1, arrived_ns: 1 }, b"datagram")
            .unwrap();
        meter.receive.delivered.add(writer.appended());
        meter.read.add(writer.appended());
        meter.check_law(&writer);
        assert_eq!(violations(), 0);

        // Nothing is published, so this is what must not happen.
        writer.move_on(0, 1).unwrap();
        assert_eq!(lost.load().count, 1);
        meter.check_law(&writer);
        assert_eq!(violations(), 1);
        meter.check_law(&writer);
        assert_eq!(violations(), 1, "it was counted");
        // And that fails every other test.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(writer)));
        assert!(dropped.is_err(), "dropped in silence");
    }
}
