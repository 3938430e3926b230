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
//! by the writer, never both. A reader that is slow but alive gives up its own oldest datagrams in time
//! ([`Reader::claim`]), so that only a reader that is stopped in the middle of a claim for as long as the ring lasts
//! makes the writer drop.

#![expect(unsafe_code, reason = "the ring shares memory between one writer and its readers")]

mod reader;

pub(crate) use reader::{Claim, Reader};

use crate::sync::{Arc, AtomicU64, Ordering, UnsafeCell};
use ledger::Amount;
use std::mem::MaybeUninit;
use sys::Source;

/// A ring holds at most one datagram for so many bytes of payload memory: smaller ones are limited by descriptors.
const BYTES_PER_SLOT: usize = 128;

/// Most datagrams in one claim.
pub(crate) const CLAIM_MAX: usize = 64;

/// What is known about one datagram in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    /// Where the payload begins, counted in bytes since the ring was made, skipped ones at the end of a turn included.
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
    /// Number of the next datagram to be written; everything below is readable.
    head: Padded<AtomicU64>,
}

// SAFETY: `payloads` and `slots` are written by the one `Writer` only, and only where no claim covers them, and read
// under a claim only (see the protocol above); everything else in there is atomic.
unsafe impl Sync for Shared {}
// SAFETY: nothing in there belongs to a thread.
unsafe impl Send for Shared {}

/// A reader's word: its cursor in the upper 63 bits, the claim in the lowest.
struct Cursor(Padded<AtomicU64>);

const CLAIMED: u64 = 1;

/// A cursor that the writer never needs to move: the reader is gone.
const GONE: u64 = u64::MAX - 1;

impl Shared {
    fn slot(&self, number: u64) -> &UnsafeCell<MaybeUninit<Descriptor>> {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    /// # Safety
    /// `number` is below `head` and not below any cursor that the writer has passed: the caller holds a claim that
    /// covers it, or is the writer.
    unsafe fn descriptor(&self, number: u64) -> Descriptor {
        // SAFETY: the slot was written before `head` passed it, and nobody writes it while the caller may look.
        self.slot(number).with(|slot| unsafe { (*slot).assume_init() })
    }
}

impl Shared {
    /// The first datagram from `oldest` on that is not too far behind `head`: if `oldest` is behind by more than seven
    /// eighths of the ring, the one that is behind by three quarters.
    ///
    /// # Safety
    /// As for [`descriptor`](Self::descriptor), for everything from `oldest` to `head`, of which there is at least one.
    unsafe fn first_within_reach(&self, oldest: u64, head: u64) -> u64 {
        // SAFETY: the caller's promise covers every number that is asked for here.
        let position = |number| unsafe { self.descriptor(number) }.position;
        let newest = position(head - 1);
        let capacity = self.payloads.len() as u64;
        let slots = self.slots.len() as u64;
        let is_behind = |number, bytes_max, slots_max| {
            newest - position(number) > bytes_max || head - number > slots_max
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
}

/// Makes a ring with room for `bytes` of payload, rounded up to a power of two of at least 1 KiB.
pub(crate) fn ring(bytes: usize) -> Writer {
    ring_with_slots(bytes, slots_of(bytes))
}

/// Memory of the descriptors of a ring with so many bytes of payload.
pub(crate) fn descriptor_bytes(bytes: usize) -> usize {
    slots_of(bytes).next_power_of_two() * std::mem::size_of::<Descriptor>()
}

fn slots_of(bytes: usize) -> usize {
    bytes.max(1_024) / BYTES_PER_SLOT
}

pub(crate) fn ring_with_slots(bytes: usize, slots: usize) -> Writer {
    let bytes = bytes.next_power_of_two();
    let payloads = vec![0_u8; bytes].into_boxed_slice();
    // SAFETY: `UnsafeCell<u8>` has the layout of `u8` (it is `repr(transparent)`), and the box is whole.
    let payloads =
        unsafe { Box::from_raw(Box::into_raw(payloads) as *mut [std::cell::UnsafeCell<u8>]) };
    let slots =
        (0..slots.next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Shared { payloads, slots, head: Padded(AtomicU64::new(0)) };
    Writer {
        shared: Arc::new(shared),
        readers: Vec::new(),
        head: 0,
        tail: 0,
        position: 0,
        appended: Amount::default(),
        cursor_min: u64::MAX,
    }
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
    /// Where the next payload may begin.
    position: u64,
    appended: Amount,
    /// No reader's cursor is below this; a lower bound, refreshed when it is reached.
    cursor_min: u64,
}

struct ReaderEntry {
    cursor: Arc<Cursor>,
    lost: std::sync::Arc<ledger::Tally>,
}

impl Writer {
    /// A new reader, which begins with the next datagram. What the writer takes from it is added to `lost`.
    pub(crate) fn reader(&mut self, lost: std::sync::Arc<ledger::Tally>) -> Reader {
        self.forget_gone_readers();
        let cursor = Arc::new(Cursor(Padded(AtomicU64::new(self.head << 1))));
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
        self.readers.retain(|reader| reader.cursor.0.0.load(Ordering::Acquire) != GONE);
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
        let position = self.place(len);
        if self.fits(position, len, self.cursor_min.clamp(self.tail, self.head)) {
            return true;
        }
        let cursors =
            self.readers.iter().map(|reader| reader.cursor.0.0.load(Ordering::Acquire) >> 1);
        self.cursor_min = cursors.min().unwrap_or(u64::MAX);
        self.fits(position, len, self.cursor_min.clamp(self.tail, self.head))
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
        if !self.fits(position, bytes.len(), self.tail) {
            let mut tail = self.tail;
            while !self.fits(position, bytes.len(), tail) {
                if tail == self.head {
                    return Err(Guarded);
                }
                tail += 1;
            }
            self.reuse_up_to(tail)?;
        }
        let offset = position as usize & (self.shared.payloads.len() - 1);
        let cells = &self.shared.payloads[offset..offset + bytes.len()];
        // SAFETY: `cells` is as long as `bytes`, `place` keeps a payload within one turn, and `fits` and `reuse_up_to`
        // made sure that no datagram at or above `tail`, so none that a reader may claim, lies there.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                cells.as_ptr().cast_mut().cast(),
                bytes.len(),
            );
        }
        let descriptor = Descriptor {
            position,
            bytes_before: self.appended.bytes,
            received_ns,
            source,
            len: bytes.len() as u32,
        };
        // SAFETY: the slot's former datagram is below `tail`, so that no claim covers it.
        self.shared.slot(self.head).with_mut(|slot| unsafe { (*slot).write(descriptor) });
        self.head += 1;
        self.position = position + bytes.len() as u64;
        self.appended += Amount::one(bytes.len());
        Ok(())
    }

    /// Shows readers everything appended so far.
    pub(crate) fn publish(&mut self) {
        self.shared.head.0.store(self.head, Ordering::Release);
    }

    /// Where a payload of `len` bytes would begin: here, or at the beginning of the next turn if it does not fit.
    fn place(&self, len: usize) -> u64 {
        let turn_bytes = self.shared.payloads.len() as u64;
        let left_in_turn = turn_bytes - self.position % turn_bytes;
        if len as u64 <= left_in_turn { self.position } else { self.position + left_in_turn }
    }

    /// Whether a payload fits there while everything from `tail` on stays.
    fn fits(&self, position: u64, len: usize, tail: u64) -> bool {
        let begin = if tail == self.head {
            position
        } else {
            // SAFETY: this is the writer, and `tail` is below `self.head`, whose slots it has written.
            unsafe { self.shared.descriptor(tail) }.position
        };
        position + len as u64 - begin <= self.shared.payloads.len() as u64
            && self.head - tail < self.shared.slots.len() as u64
    }

    /// Payload bytes of all datagrams below `number`, which must not be below `tail`.
    fn bytes_before(&self, number: u64) -> u64 {
        if number == self.head {
            return self.appended.bytes;
        }
        // SAFETY: this is the writer, and `number` is between `tail` and `head`.
        unsafe { self.shared.descriptor(number) }.bytes_before
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
        let word = &reader.cursor.0.0;
        let mut state = word.load(Ordering::Acquire);
        loop {
            let cursor = state >> 1;
            if cursor >= new_tail {
                return Ok(cursor);
            }
            if state & CLAIMED != 0 {
                return Err(Guarded);
            }
            let published = self.shared.head.0.load(Ordering::Relaxed);
            debug_assert!(new_tail <= published, "lost unseen");
            let goal = match new_tail < published {
                // SAFETY: this is the writer, and everything from `new_tail`, which is not below `tail`, is there.
                true => unsafe { self.shared.first_within_reach(new_tail, published) },
                false => new_tail,
            };
            match word.compare_exchange(state, goal << 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    reader.lost.add(Amount {
                        count: goal - cursor,
                        bytes: self.bytes_before(goal) - self.bytes_before(cursor),
                    });
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
