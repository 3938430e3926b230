//! The broadcast ring: one writer, any number of readers, each datagram stored once.
//!
//! Payloads lie densely in a ring of bytes, so that a run of datagrams is one slice. Beside it lies a ring of
//! descriptors, one a datagram, numbered from 0 without gaps for the life of the ring. A reader is a cursor: the number
//! of the next datagram that it has not dealt with. The writer never waits: when it needs the room of a datagram that a
//! reader has not dealt with, it moves that reader's cursor on and counts what the reader lost.
//!
//! # The protocol
//! Everything that a reader and the writer must agree on is one word per reader: the cursor and a bit that says that
//! the reader is looking at datagrams from there on.
//!
//! - A reader takes a claim by setting the bit (compare and swap), and lets go by storing a new cursor without the bit
//!   (release).
//! - The writer, before it overwrites datagrams up to `n`, loads each cursor (acquire). At `n` or beyond: go on. Below
//!   and not claimed: compare and swap it to `n`, and count. Below and claimed: the newest datagram is dropped instead
//!   ([`Guarded`]).
//! - `head` is stored (release) after the descriptors and payloads below it are written, and loaded (acquire) by the
//!   reader before it looks at them.
//!
//! So a payload is never written while a claim covers it, and each datagram is either claimed by the reader or counted
//! by the writer, never both. A claim covers a sixteenth of the ring at most and shrinks as its datagrams leave
//! ([`Claim::advance`]), and a reader that is slow but alive gives up its own oldest datagrams in time
//! ([`Reader::claim`]): only a reader that is stopped in the middle of a claim for as long as the ring lasts makes the
//! writer drop.
//!
//! Beside the word stands a number that is odd while the writer takes datagrams from the reader and has not counted them
//! yet. Whoever holds the reader's account against its cursor looks at it before and after ([`Reader::account`]).
//!
//! # Rewinding
//! While every reader keeps up, the ring is empty at the end of each batch. Then the writer begins anew at the first byte
//! and the first slot, so that the same few hundred KiB are used again and stay in the processor's cache. Numbers go on;
//! `base` is the number of the datagram in the first slot. Nobody reads a descriptor without something to claim, and as
//! long as there is something the writer does not rewind.

#![expect(unsafe_code, reason = "the ring shares memory between one writer and its readers")]

mod reader;

pub(crate) use reader::{Claim, Reader};

use crate::sync::{Arc, AtomicU64, Ordering, UnsafeCell};
use ledger::Amount;
use std::alloc::Layout;
use std::mem::MaybeUninit;
use sys::Source;

/// A ring holds at most one datagram for so many bytes of payload memory: smaller ones are limited by descriptors.
const BYTES_PER_SLOT: usize = 128;

/// Most datagrams in one claim.
pub(crate) const CLAIM_MAX: usize = 64;

/// A claim covers at most one part in so many of the ring's bytes, and one datagram at least: a reader that is far behind
/// has an eighth of the ring between its claim and the writer.
const CLAIM_PARTS: usize = 16;

/// What a claim may cover in any ring, in bytes.
const CLAIM_BYTES: usize = 1_024;

/// As long as readers keep up, the writer stays within so many bytes, which a processor's second-level cache holds, and
/// within a quarter of the ring.
const HOT_BYTES: usize = 256 * 1024;

/// The same in descriptors.
const HOT_SLOTS: usize = 1_024;

/// What is known about one datagram in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    /// Where the payload begins, counted in bytes since the ring was made, skipped ones at the end of a turn included.
    /// Rewinding skips nearly a whole turn, so that in years it may wrap: only differences are looked at.
    position: u64,
    /// Payload bytes of all datagrams before this one.
    bytes_before: u64,
    /// When the batch that brought it was read, in nanoseconds since 1970.
    pub(crate) received_ns: u64,
    /// Who sent it.
    pub(crate) source: Source,
    len: u32,
}

#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    payloads: Box<[std::cell::UnsafeCell<u8>]>,
    slots: Box<[UnsafeCell<MaybeUninit<Descriptor>>]>,
    published: Padded<Published>,
}

/// What the writer tells all readers.
struct Published {
    /// Number of the next datagram to be written; everything below is readable.
    head: AtomicU64,
    /// Number of the datagram in the first slot. Stored before the `head` that is the first to need it.
    base: AtomicU64,
}

// SAFETY: `payloads` and `slots` are written by the one `Writer` only, and only where no claim covers them, and read
// under a claim only (see the protocol above); everything else in there is atomic.
unsafe impl Sync for Shared {}
// SAFETY: nothing in there belongs to a thread.
unsafe impl Send for Shared {}

/// What a reader and the writer agree on.
struct Cursor {
    /// The cursor in the upper 63 bits, the claim in the lowest.
    word: Padded<AtomicU64>,
    /// Written by the writer: odd while it moves the cursor and has not counted what it took.
    moves: AtomicU64,
}

const CLAIMED: u64 = 1;

/// A cursor that the writer never needs to move: the reader is gone.
const GONE: u64 = u64::MAX - 1;

impl Shared {
    fn head(&self) -> u64 {
        self.published.0.head.load(Ordering::Acquire)
    }

    /// The ring as it is numbered from `base` on.
    fn view(&self, base: u64) -> View<'_> {
        View { shared: self, base }
    }
}

/// The descriptors, under the number of the one in the first slot.
///
/// Who reads looks at it once for each claim: as long as there is something to claim, the writer does not rewind.
#[derive(Clone, Copy)]
struct View<'a> {
    shared: &'a Shared,
    base: u64,
}

impl<'a> View<'a> {
    fn slot(self, number: u64) -> &'a UnsafeCell<MaybeUninit<Descriptor>> {
        let slots = &self.shared.slots;
        &slots[number.wrapping_sub(self.base) as usize & (slots.len() - 1)]
    }

    /// # Safety
    /// `number` is below `head` and not below any cursor that the writer has passed: the caller holds a claim that
    /// covers it, or is the writer.
    unsafe fn descriptor(self, number: u64) -> Descriptor {
        // SAFETY: the slot was written before `head` passed it, and nobody writes it while the caller may look.
        self.slot(number).with(|slot| unsafe { (*slot).assume_init() })
    }

    /// The first datagram from `oldest` on that is not too far behind `head`: if `oldest` is behind by more than seven
    /// eighths of the ring, the one that is behind by three quarters.
    ///
    /// # Safety
    /// As for [`descriptor`](Self::descriptor), for everything from `oldest` to `head`, of which there is at least one.
    unsafe fn first_within_reach(self, oldest: u64, head: u64) -> u64 {
        // SAFETY: the caller's promise covers every number that is asked for here.
        let position = |number| unsafe { self.descriptor(number) }.position;
        let newest = position(head - 1);
        let capacity = self.shared.payloads.len() as u64;
        let slots = self.shared.slots.len() as u64;
        let is_behind = |number, bytes_max, slots_max| {
            newest.wrapping_sub(position(number)) > bytes_max || head - number > slots_max
        };
        if !is_behind(oldest, capacity - capacity / 8, slots - slots / 8) {
            return oldest;
        }
        let (mut low, mut high) = (oldest, head - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_behind(middle, capacity - capacity / 4, slots - slots / 4) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// How many datagrams from `first` on one claim may cover: at least one, and at most [`CLAIM_MAX`].
    ///
    /// # Safety
    /// As for [`first_within_reach`](Self::first_within_reach), from `first` on.
    unsafe fn claim_len(self, first: u64, head: u64) -> usize {
        // SAFETY: the caller's promise covers every number that is asked for here.
        let descriptor = |number| unsafe { self.descriptor(number) };
        let begin = descriptor(first).position;
        let bytes_max = (self.shared.payloads.len() / CLAIM_PARTS).max(CLAIM_BYTES) as u64;
        let fits = |len: u64| {
            let last = descriptor(first + len - 1);
            last.position.wrapping_add(u64::from(last.len)).wrapping_sub(begin) <= bytes_max
        };
        let len_max = (head - first).min(CLAIM_MAX as u64);
        if fits(len_max) {
            return len_max as usize;
        }
        let (mut low, mut high) = (1, len_max);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        low as usize
    }
}

/// Makes a ring with room for `bytes` of payload, rounded up to a power of two of at least 1 KiB.
///
/// # Errors
/// The memory cannot be had.
pub(crate) fn ring(bytes: usize) -> Result<Writer, NoMemory> {
    ring_with_slots(bytes, slots_of(bytes))
}

/// The memory of a ring cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoMemory;

/// Memory of the descriptors of a ring with so many bytes of payload.
pub(crate) fn descriptor_bytes(bytes: usize) -> usize {
    slots_of(bytes).next_power_of_two() * std::mem::size_of::<Descriptor>()
}

fn slots_of(bytes: usize) -> usize {
    bytes.max(1_024) / BYTES_PER_SLOT
}

pub(crate) fn ring_with_slots(bytes: usize, slots: usize) -> Result<Writer, NoMemory> {
    let bytes = bytes.checked_next_power_of_two().ok_or(NoMemory)?;
    let slot_count = slots.checked_next_power_of_two().ok_or(NoMemory)?;
    let mut slots = Vec::new();
    slots.try_reserve_exact(slot_count).map_err(|_| NoMemory)?;
    slots.extend((0..slot_count).map(|_| UnsafeCell::new(MaybeUninit::uninit())));
    let shared = Shared {
        payloads: zeroed_bytes(bytes)?,
        slots: slots.into_boxed_slice(),
        published: Padded(Published { head: AtomicU64::new(0), base: AtomicU64::new(0) }),
    };
    Ok(Writer {
        shared: Arc::new(shared),
        readers: Vec::new(),
        head: 0,
        tail: 0,
        base: 0,
        position: 0,
        room: Room::default(),
        appended: Amount::default(),
        cursor_min: u64::MAX,
    })
}

/// Zeroed memory that is the kernel's until it is first written, and no abort where there is none: a reload may ask for
/// too much.
fn zeroed_bytes(len: usize) -> Result<Box<[std::cell::UnsafeCell<u8>]>, NoMemory> {
    let layout = Layout::array::<std::cell::UnsafeCell<u8>>(len).map_err(|_| NoMemory)?;
    assert!(len > 0, "a ring without room");
    // SAFETY: the layout has a size of at least one byte.
    let begin = unsafe { std::alloc::alloc_zeroed(layout) };
    if begin.is_null() {
        return Err(NoMemory);
    }
    let cells = std::ptr::slice_from_raw_parts_mut(begin.cast::<std::cell::UnsafeCell<u8>>(), len);
    // SAFETY: `cells` is `len` zeroed bytes from the global allocator with the layout of that slice, and all-zero bytes are
    // valid `UnsafeCell<u8>`s (`repr(transparent)`).
    Ok(unsafe { Box::from_raw(cells) })
}

/// The newest datagram was dropped because a reader's claim covers the room that it needs, or no room could ever do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Guarded;

/// The one writing end.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    readers: Vec<ReaderEntry>,
    /// Number of the next datagram, published or not.
    head: u64,
    /// Number of the oldest datagram whose room has not been reused.
    tail: u64,
    /// Number of the datagram in the first slot.
    base: u64,
    /// Where the next payload may begin.
    position: u64,
    room: Room,
    appended: Amount,
    /// No reader's cursor is below this; a lower bound, refreshed when it is reached.
    cursor_min: u64,
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
    /// A new reader, which begins with the next datagram. What the writer takes from it is added to `lost`.
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

    /// Most datagrams that the ring can hold.
    pub(crate) fn capacity(&self) -> u64 {
        self.shared.slots.len() as u64
    }

    /// Whether a payload of `len` bytes fits without taking a datagram from a reader that has not dealt with it.
    pub(crate) fn has_room_without_loss(&mut self, len: usize) -> bool {
        self.has_room_for(1, len)
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

    /// Begins anew at the ring's first byte and slot if the next datagrams, of about so many bytes together, would leave the
    /// part that is in use and no reader has anything left. Everything appended must have been published.
    pub(crate) fn rewind_if_empty(&mut self, bytes: usize) {
        let turn_bytes = self.shared.payloads.len();
        let offset = self.position as usize & (turn_bytes - 1);
        let hot_slots = HOT_SLOTS.min(self.shared.slots.len() / 4) as u64;
        let is_hot =
            offset + bytes <= HOT_BYTES.min(turn_bytes / 4) && self.head - self.base <= hot_slots;
        if is_hot || (offset == 0 && self.head == self.base) {
            return;
        }
        self.look_at_cursors();
        if self.cursor_min < self.head {
            return;
        }
        self.tail = self.head;
        self.position =
            self.position.wrapping_add(((turn_bytes - offset) & (turn_bytes - 1)) as u64);
        // Readers see it with the next `head`, and nothing below that is there to be looked at.
        self.base = self.head;
        self.shared.published.0.base.store(self.base, Ordering::Relaxed);
    }

    /// Room for `count` datagrams of `bytes` together, to be filled and then taken in by
    /// [`append_in_place`](Self::append_in_place); `None` where that would cost a reader a datagram.
    pub(crate) fn room(&mut self, count: usize, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.shared.payloads.len() || !self.has_room_for(count, bytes) {
            return None;
        }
        // No reader has anything below this left.
        self.tail = self.cursor_min.clamp(self.tail, self.head);
        self.room = Room { position: self.place(bytes), bytes };
        let cells = self.cells(self.room.position, bytes);
        // SAFETY: `place` keeps the room within one turn, and `fits` made sure that no datagram at or above `tail` lies in it,
        // so that no claim covers it and nobody else looks there. The borrow of the writer keeps it from writing.
        Some(unsafe { std::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast(), bytes) })
    }

    /// Takes in a datagram that was written into the last [`room`](Self::room), `offset` bytes from its beginning and behind
    /// everything that was taken in from there so far. Visible to readers after the next [`publish`](Self::publish).
    ///
    /// # Panics
    /// If it is not within the room, or not behind what was taken in before.
    pub(crate) fn append_in_place(
        &mut self,
        source: Source,
        received_ns: u64,
        offset: usize,
        len: usize,
    ) {
        assert!(offset + len <= self.room.bytes, "beyond the room");
        let position = self.room.position.wrapping_add(offset as u64);
        let skipped = position.wrapping_sub(self.position);
        assert!(skipped <= self.shared.payloads.len() as u64, "before what is there");
        self.push(source, received_ns, position, len);
    }

    fn cells(&self, position: u64, len: usize) -> &[std::cell::UnsafeCell<u8>] {
        let offset = position as usize & (self.shared.payloads.len() - 1);
        &self.shared.payloads[offset..offset + len]
    }

    /// Stores a datagram, visible to readers after the next [`publish`](Self::publish).
    ///
    /// Where [`has_room_without_loss`](Self::has_room_without_loss) says no, publish first: what readers lose they must
    /// have been able to see.
    pub(crate) fn append(
        &mut self,
        source: Source,
        received_ns: u64,
        bytes: &[u8],
    ) -> Result<(), Guarded> {
        let position = self.place(bytes.len());
        if !self.fits(position, 1, bytes.len(), self.tail) {
            let mut tail = self.tail;
            while !self.fits(position, 1, bytes.len(), tail) {
                if tail == self.head {
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
        self.push(source, received_ns, position, bytes.len());
        Ok(())
    }

    /// Describes the datagram whose payload is at `position`, for which there is room.
    fn push(&mut self, source: Source, received_ns: u64, position: u64, len: usize) {
        let descriptor = Descriptor {
            position,
            bytes_before: self.appended.bytes,
            received_ns,
            source,
            len: len as u32,
        };
        // SAFETY: the slot's former datagram is below `tail`, so that no claim covers it.
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

    /// Where a payload of `len` bytes would begin: here, or at the beginning of the next turn if it does not fit.
    fn place(&self, len: usize) -> u64 {
        let turn_bytes = self.shared.payloads.len() as u64;
        let left_in_turn = turn_bytes - (self.position & (turn_bytes - 1));
        let skipped = if len as u64 <= left_in_turn { 0 } else { left_in_turn };
        self.position.wrapping_add(skipped)
    }

    /// Whether `count` datagrams of `len` bytes together fit there while everything from `tail` on stays.
    fn fits(&self, position: u64, count: usize, len: usize, tail: u64) -> bool {
        let begin = if tail == self.head {
            position
        } else {
            // SAFETY: this is the writer, and `tail` is below `self.head`, whose slots it has written.
            unsafe { self.view().descriptor(tail) }.position
        };
        let bytes = position.wrapping_add(len as u64).wrapping_sub(begin);
        let slots = self.head - tail + count as u64;
        bytes <= self.shared.payloads.len() as u64 && slots <= self.shared.slots.len() as u64
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
    /// A reader that has to be moved is moved on to three quarters of the ring, not by single datagrams: so the next
    /// quarter of a ring comes in as if nobody were in the way.
    fn move_on(&self, index: usize, new_tail: u64) -> Result<u64, Guarded> {
        let reader = &self.readers[index];
        let Cursor { word, moves } = &*reader.cursor;
        let cursor = word.0.load(Ordering::Acquire) >> 1;
        if cursor >= new_tail {
            return Ok(cursor);
        }
        let moves_before = moves.load(Ordering::Relaxed);
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
            debug_assert!(new_tail <= published, "lost unseen");
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

impl Descriptor {
    fn end_bytes(&self) -> u64 {
        self.bytes_before + u64::from(self.len)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod model;
