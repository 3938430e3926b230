//! The broadcast ring: one writer, any number of readers, each datagram stored once.
//!
//! Payloads are packed densely in a ring of bytes, so a run of datagrams is one slice. Next to it is a ring of descriptors, one
//! per datagram, numbered from 0 without gaps for the life of the ring. A reader is a cursor: the number of the next datagram
//! that it has not handled. The writer never waits: when it needs the room of a datagram that a reader has not handled, it
//! advances that reader's cursor and counts what the reader lost.
//!
//! # The protocol
//! Everything that a reader and the writer must agree on is one word per reader: the cursor, and a bit that is set while the
//! reader looks at datagrams from there on.
//!
//! - A reader takes a claim by setting the bit (compare and swap), and releases it by storing a new cursor without the bit
//!   (release).
//! - Before the writer overwrites datagrams up to `n`, it loads each cursor (acquire). At `n` or beyond: continue. Below and not
//!   claimed: compare and swap it to `n`, and count. Below and claimed: drop the newest datagram instead ([`Guarded`]).
//! - `head` is stored (release) after the descriptors and payloads below it are written, and loaded (acquire) by the reader
//!   before it looks at them.
//!
//! So a payload is never written while a claim covers it, and each datagram is either claimed by the reader or counted by the
//! writer, never both. A claim covers at most a sixteenth of the ring and shrinks as its datagrams leave ([`Claim::advance`]),
//! and a reader that is slow but alive drops its own oldest datagrams in time ([`Reader::claim`]). The writer has to drop only if
//! a reader is stopped in the middle of a claim for a whole turn of the ring.
//!
//! Next to the word is a number that is odd while the writer takes datagrams from the reader and has not counted them yet. Code
//! that compares the reader's account with its cursor reads the number before and after ([`Reader::account`]).
//!
//! # Rewinding
//! While every reader keeps up, the ring is empty at the end of each batch. The writer then starts over at the first byte and the
//! first slot, so that the same few hundred KiB are reused and stay in the processor's cache. Numbers continue; `base` is the
//! number of the datagram in the first slot. A descriptor is read only if there is something to claim, and while there is, the
//! writer does not rewind.

#![expect(unsafe_code, reason = "the ring shares memory between one writer and its readers")]

mod reader;
mod writer;

pub(crate) use reader::{Claim, Look, Reader};
pub(crate) use writer::Writer;

use crate::sync::{Arc, AtomicU64, Ordering, UnsafeCell};
use std::alloc::Layout;
use std::mem::MaybeUninit;
use sys::Source;

/// Bytes of payload memory per descriptor. For shorter datagrams, the descriptors limit how many the ring holds.
const BYTES_PER_SLOT: usize = 128;

/// Maximum number of datagrams in one claim.
pub(crate) const CLAIM_MAX: usize = 64;

/// A claim covers at most this fraction of the ring's bytes, a sixteenth, but always one datagram: a reader that is far behind
/// has an eighth of the ring between its claim and the writer.
const CLAIM_PARTS: usize = 16;

/// What a claim may cover in any ring, in bytes.
const CLAIM_BYTES: usize = 1_024;

/// The two times of a datagram. What a link carries has the first of another host's clock, which may be wrong by years, and a
/// host's own wall clock may be set at any time. So whatever depends on age uses the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Times {
    /// When the first Weir received it, by that host's clock, in nanoseconds since 1970. Information: nothing is decided by it,
    /// except the order of the datagrams of several sockets, which one kernel stamps.
    pub(crate) received_unix_ns: u64,
    /// When this process read it, on the monotonic clock.
    pub(crate) arrived_ns: u64,
}

/// Describes one datagram in the ring: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Descriptor {
    /// Start of the payload, in bytes since the ring was created, including those skipped at the end of a turn. Rewinding skips
    /// nearly a whole turn, so over years the value may wrap: only differences matter.
    position: u64,
    /// Payload bytes of all datagrams before this one.
    bytes_before: u64,
    pub(crate) times: Times,
    /// Who sent it.
    pub(crate) source: Source,
    len: u32,
}

const _: () = assert!(size_of::<Descriptor>() == 64, "more than a cache line");

/// The oldest datagram that a reader has not dealt with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Oldest {
    /// When this process read it, on the monotonic clock.
    pub(crate) arrived_ns: u64,
    /// How much of the ring is held from it on, in millionths.
    pub(crate) held_ppm: u64,
}

#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    /// Length of `payloads`, a power of two.
    turn_bytes: usize,
    payloads: Box<[std::cell::UnsafeCell<u8>]>,
    slots: Box<[UnsafeCell<MaybeUninit<Descriptor>>]>,
    published: Padded<Published>,
}

/// What the writer shows to all readers.
struct Published {
    /// Number of the next datagram to be written. Everything below is readable.
    head: AtomicU64,
    /// Number of the datagram in the first slot. Stored before the first `head` that needs it.
    base: AtomicU64,
}

// SAFETY: `payloads` and `slots` are written by the one `Writer` only, and only where no claim covers them, and read
// under a claim only (see the protocol above); everything else in there is atomic.
unsafe impl Sync for Shared {}
// SAFETY: nothing in there is tied to a thread.
unsafe impl Send for Shared {}

/// The state that a reader and the writer agree on.
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

    /// The ring, numbered from `base`.
    fn view(&self, base: u64) -> View<'_> {
        View { shared: self, base }
    }
}

/// The descriptors, with the number of the one in the first slot.
///
/// A reader creates it once per claim: while there is something to claim, the writer does not rewind.
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

    /// The first datagram from `oldest` on that is not too far behind `head`. If `oldest` is behind by more than seven eighths of
    /// the ring, that is the first one behind by at most three quarters.
    ///
    /// # Safety
    /// As for [`descriptor`](Self::descriptor), for everything from `oldest` to `head`, of which there is at least one.
    unsafe fn first_within_reach(self, oldest: u64, head: u64) -> u64 {
        // SAFETY: the caller's promise covers every number requested here.
        let position = |number| unsafe { self.descriptor(number) }.position;
        let newest = position(head - 1);
        let capacity = self.shared.turn_bytes as u64;
        let slots = self.shared.slots.len() as u64;

        let is_behind = |number, bytes_max, slots_max| {
            newest.wrapping_sub(position(number)) > bytes_max || head - number > slots_max
        };

        if !is_behind(oldest, capacity - capacity / 8, slots - slots / 8) {
            return oldest;
        }

        // Positions grow with the numbers, so bisection finds it.
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

    /// How much of the ring everything from `oldest` on takes, in millionths: of the bytes or of the descriptors, whichever is more.
    ///
    /// # Safety
    /// As for [`first_within_reach`](Self::first_within_reach).
    unsafe fn held_ppm(self, oldest: u64, head: u64) -> u64 {
        // SAFETY: the caller's promise covers every number that is asked for here.
        let descriptor = |number| unsafe { self.descriptor(number) };
        let newest = descriptor(head - 1);
        let end = newest.position.wrapping_add(u64::from(newest.len));
        let bytes = end.wrapping_sub(descriptor(oldest).position);

        // A ring of 64 GiB times a million is 2^56.
        let share = |part: u64, whole: usize| part * 1_000_000 / whole as u64;
        share(bytes, self.shared.turn_bytes).max(share(head - oldest, self.shared.slots.len()))
    }

    /// How many datagrams from `first` on one claim may cover: at least one, and at most [`CLAIM_MAX`].
    ///
    /// # Safety
    /// As for [`first_within_reach`](Self::first_within_reach), from `first` on.
    unsafe fn claim_len(self, first: u64, head: u64) -> usize {
        // SAFETY: the caller's promise covers every number requested here.
        let descriptor = |number| unsafe { self.descriptor(number) };

        let begin = descriptor(first).position;
        let bytes_max = (self.shared.turn_bytes / CLAIM_PARTS).max(CLAIM_BYTES) as u64;
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

/// Creates a ring with room for `bytes` of payload, rounded up to a power of two of at least 1 KiB.
///
/// # Errors
/// There is not enough memory.
pub(crate) fn ring(bytes: usize) -> Result<Writer, NoMemory> {
    ring_with_slots(bytes, slots_of(bytes))
}

/// There is not enough memory for a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoMemory;

/// Memory of the descriptors of a ring with `bytes` of payload, in bytes.
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
        turn_bytes: bytes,
        payloads: zeroed_bytes(bytes)?,
        slots: slots.into_boxed_slice(),
        published: Padded(Published { head: AtomicU64::new(0), base: AtomicU64::new(0) }),
    };

    Ok(Writer::new(Arc::new(shared)))
}

/// Zeroed memory that the kernel commits only when it is first written. Does not abort when there is none: a reload may ask for
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

impl Descriptor {
    fn end_bytes(&self) -> u64 {
        self.bytes_before + u64::from(self.len)
    }
}

/// Times of a test's datagram, with its number as the arrival and a wall clock that runs backwards.
#[cfg(test)]
fn times(number: u64) -> Times {
    Times { received_unix_ns: u64::MAX - number, arrived_ns: number }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod model;
