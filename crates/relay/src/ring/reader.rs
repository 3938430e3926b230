//! The reading ends.

use super::{CLAIM_MAX, CLAIMED, Cursor, Descriptor, GONE, Shared};
use crate::sync::{Arc, Ordering};
use ledger::{Amount, Counters, Reason};

/// One reading end. Dropping it frees the writer from it.
pub(crate) struct Reader {
    pub(super) shared: Arc<Shared>,
    pub(super) cursor: Arc<Cursor>,
    /// Everything that was appended below the cursor when this reader last moved it.
    pub(super) seen: Amount,
    /// It has left the ring.
    pub(super) is_gone: bool,
    /// Datagrams from this number on are not for this reader.
    pub(super) until: u64,
}

impl Reader {
    /// Whether nothing is there to be claimed.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_gone || self.cursor.0.0.load(Ordering::Relaxed) >> 1 >= self.head().min(self.until)
    }

    /// Takes nothing from this number on.
    pub(crate) fn stop_at(&mut self, end: u64) {
        self.until = end;
    }

    /// Number of the next datagram that this reader has not dealt with.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor.0.0.load(Ordering::Acquire) >> 1
    }

    /// Counts everything up to `end` that this reader has not dealt with as dropped for this reason.
    pub(crate) fn discard_until(&mut self, end: u64, reason: Reason, counters: &Counters) {
        while let Some(claim) = self.claim() {
            counters.drop(Reason::QueueFull, claim.gave_up());
            if claim.first() >= end {
                return;
            }
            counters.drop(reason, claim.discard_until(end));
        }
    }

    /// Takes the reader out of the ring and returns everything that was appended below its cursor: what comes from there
    /// on was never offered to it.
    pub(crate) fn leave(&mut self, counters: &Counters) -> Amount {
        self.until = u64::MAX;
        loop {
            let seen = self.seen;
            let word = &self.cursor.0.0;
            if self.is_gone {
                return seen;
            }
            let swapped =
                word.compare_exchange(seen.count << 1, GONE, Ordering::AcqRel, Ordering::Acquire);
            if swapped.is_ok() {
                self.is_gone = true;
                return seen;
            }
            // The writer has moved the cursor on since this reader last looked; a claim tells to where.
            if let Some(claim) = self.claim() {
                counters.drop(Reason::QueueFull, claim.gave_up());
            }
        }
    }

    /// Number of the next datagram to be appended, as far as published.
    pub(crate) fn head(&self) -> u64 {
        self.shared.head.0.load(Ordering::Acquire)
    }

    /// Claims up to [`CLAIM_MAX`] of the oldest datagrams that this reader has not dealt with; `None` if there are none.
    ///
    /// A reader that has fallen behind by more than seven eighths of the ring gives up its oldest datagrams down to
    /// three quarters, so that the writer does not run into its claim. [`Claim::gave_up`] tells how many.
    pub(crate) fn claim(&mut self) -> Option<Claim<'_>> {
        if self.is_gone {
            return None;
        }
        let word = &self.cursor.0.0;
        let mut state = word.load(Ordering::Acquire);
        let head = loop {
            let head = self.shared.head.0.load(Ordering::Acquire).min(self.until);
            if state >> 1 >= head {
                return None;
            }
            let claimed = state | CLAIMED;
            match word.compare_exchange_weak(state, claimed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break head,
                Err(moved) => state = moved,
            }
        };
        let oldest = state >> 1;
        // SAFETY: the claim covers everything from `oldest` to `head`, and there is something.
        let first = unsafe { self.shared.first_within_reach(oldest, head) };
        // SAFETY: the claim covers everything from `oldest` to `head`.
        let bytes_before = |number| unsafe { self.shared.descriptor(number) }.bytes_before;
        let begin = bytes_before(first);
        let gave_up = Amount { count: first - oldest, bytes: begin - bytes_before(oldest) };
        if first > oldest {
            // What was given up is the writer's again: it must not run into this claim because of it.
            word.store(first << 1 | CLAIMED, Ordering::Release);
        }
        self.seen = Amount { count: first, bytes: begin };
        let len = (head - first).min(CLAIM_MAX as u64) as usize;
        Some(Claim { reader: self, first, len, head, gave_up })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cursor.0.0.store(GONE, Ordering::Release);
    }
}

/// Datagrams that the writer leaves alone until this is committed or dropped.
pub(crate) struct Claim<'a> {
    reader: &'a mut Reader,
    first: u64,
    len: usize,
    head: u64,
    gave_up: Amount,
}

impl Claim<'_> {
    /// Datagrams in the claim, at least 1.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of the first datagram.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// What this claim had to give up because the reader was too far behind.
    pub(crate) fn gave_up(&self) -> Amount {
        self.gave_up
    }

    /// One datagram of the claim.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len).
    pub(crate) fn get(&self, index: usize) -> (Descriptor, &[u8]) {
        assert!(index < self.len, "datagram {index} of a claim of {}", self.len);
        // SAFETY: the claim covers it.
        let descriptor = unsafe { self.reader.shared.descriptor(self.first + index as u64) };
        (descriptor, self.payload(descriptor.position, descriptor.len as usize))
    }

    /// The payloads of `count` datagrams from `index` on as one slice of `len` bytes, which the caller has seen to lie one
    /// behind the other.
    ///
    /// # Panics
    /// If they do not.
    pub(crate) fn run(&self, index: usize, count: usize, len: usize) -> &[u8] {
        let (first, _) = self.get(index);
        let (last, bytes) = self.get(index + count - 1);
        let end = last.position.wrapping_add(bytes.len() as u64);
        assert_eq!(end.wrapping_sub(first.position), len as u64, "a run with a gap");
        // What begins where the ring begins again is out of the slice's bounds, and panics there.
        self.payload(first.position, len)
    }

    fn payload(&self, position: u64, len: usize) -> &[u8] {
        let payloads = &self.reader.shared.payloads;
        let offset = position as usize & (payloads.len() - 1);
        let cells = &payloads[offset..offset + len];
        // SAFETY: the claim keeps the writer from these bytes for as long as the returned borrow of it lives, and they
        // were written before `head` passed the datagram.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// Lets go of the claim: the first `count` datagrams are dealt with, the others stay.
    pub(crate) fn commit(mut self, count: usize) {
        assert!(count <= self.len, "{count} datagrams of a claim of {}", self.len);
        let bytes = match count.checked_sub(1) {
            None => self.reader.seen.bytes,
            Some(last) => self.get(last).0.end_bytes(),
        };
        self.first += count as u64;
        self.reader.seen = Amount { count: self.first, bytes };
    }

    /// Lets go of the claim and deals with everything up to `end` at once; returns what that was.
    ///
    /// `end` is the number of a datagram, or one beyond the newest; numbers below the claim count as its beginning.
    pub(crate) fn discard_until(mut self, end: u64) -> Amount {
        let end = end.clamp(self.first, self.head);
        let begin = self.reader.seen;
        if end > self.first {
            // SAFETY: the claim covers everything up to `head`.
            let last = unsafe { self.reader.shared.descriptor(end - 1) };
            self.reader.seen = Amount { count: end, bytes: last.end_bytes() };
            self.first = end;
        }
        self.reader.seen.saturating_sub(begin)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.reader.cursor.0.0.store(self.first << 1, Ordering::Release);
    }
}
