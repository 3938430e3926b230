//! The reading ends.

use super::{CLAIMED, Cursor, Descriptor, GONE, Oldest, Shared, View};
use crate::sync::{Arc, Ordering, yield_now};
use ledger::{Amount, Counters, Reason};

/// One reading end. Dropping it removes it from the ring.
pub(crate) struct Reader {
    pub(super) shared: Arc<Shared>,
    pub(super) cursor: Arc<Cursor>,
    /// Everything appended below the cursor when this reader last moved it.
    pub(super) seen: Amount,
    /// Whether it has left the ring.
    pub(super) is_gone: bool,
    /// Datagrams from this number on are not for this reader.
    pub(super) until: u64,
}

impl Reader {
    /// Whether there is nothing to claim.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_gone
            || self.cursor.word.0.load(Ordering::Relaxed) >> 1 >= self.head().min(self.until)
    }

    /// Takes nothing from this number on.
    pub(crate) fn stop_at(&mut self, end: u64) {
        self.until = end;
    }

    /// Number of the next datagram that this reader has not handled.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor.word.0.load(Ordering::Acquire) >> 1
    }

    /// The cursor and the result of `read`, at a moment when the writer has counted everything that it took from this reader.
    /// `None` if it is taking something right now.
    pub(crate) fn account<T>(&self, read: impl FnOnce() -> T) -> Option<(u64, T)> {
        let moves = &self.cursor.moves;
        let before = moves.load(Ordering::Acquire);
        let cursor = if self.is_gone { self.seen.count } else { self.cursor() };
        let value = read();
        // A read-modify-write, because that sees the newest value.
        let after = moves.fetch_or(0, Ordering::AcqRel);
        (before & 1 == 0 && after == before).then_some((cursor, value))
    }

    /// Counts everything up to `end` that this reader has not handled as dropped for this reason.
    pub(crate) fn discard_until(&mut self, end: u64, reason: Reason, counters: &Counters) {
        while let Some(claim) = self.claim(counters) {
            if claim.first() >= end {
                return;
            }
            counters.drop(reason, claim.discard_until(end));
        }
    }

    /// Takes the reader out of the ring and returns everything appended below its cursor: later datagrams were never offered to
    /// it.
    pub(crate) fn leave(&mut self, counters: &Counters) -> Amount {
        self.until = u64::MAX;

        loop {
            let seen = self.seen;
            let word = &self.cursor.word.0;
            if self.is_gone {
                return seen;
            }

            let swapped =
                word.compare_exchange(seen.count << 1, GONE, Ordering::AcqRel, Ordering::Acquire);
            if swapped.is_ok() {
                self.is_gone = true;
                self.wait_for_the_last_count();
                return seen;
            }

            // The writer has advanced the cursor since this reader last looked; a claim finds out to where.
            drop(self.claim(counters));
        }
    }

    /// The writer may have moved the cursor without having counted what it took: for a few instructions, or for as long as its
    /// thread is kept from running. After that it leaves this reader alone.
    fn wait_for_the_last_count(&self) {
        while self.cursor.moves.load(Ordering::Acquire) & 1 == 1 {
            yield_now();
        }
    }

    /// Number of the next datagram to be appended, as far as published.
    pub(crate) fn head(&self) -> u64 {
        self.shared.head()
    }

    /// One above the number of the newest published datagram that is for this reader.
    pub(crate) fn end(&self) -> u64 {
        self.head().min(self.until)
    }

    /// The oldest datagram that this reader has not dealt with; `None` if there is none. No datagram is dropped for it.
    pub(crate) fn oldest(&mut self) -> Option<Oldest> {
        let (oldest, published) = self.set_claim()?;
        let view = self.view();
        // SAFETY: the claim covers it.
        let arrived_ns = unsafe { view.descriptor(oldest) }.times.arrived_ns;
        // SAFETY: the claim covers everything from `oldest` to `published`, and there is something.
        let held_ppm = unsafe { view.held_ppm(oldest, published) };
        self.cursor.word.0.store(oldest << 1, Ordering::Release);
        Some(Oldest { arrived_ns, held_ppm })
    }

    /// Claims up to [`CLAIM_MAX`](super::CLAIM_MAX) of the oldest datagrams that this reader has not handled. `None` if there are
    /// none.
    ///
    /// A reader that has fallen behind by more than seven eighths of the ring drops its oldest datagrams down to three quarters,
    /// so that the writer does not run into its claim. They are counted as `queue_full`.
    pub(crate) fn claim(&mut self, counters: &Counters) -> Option<Claim<'_>> {
        let (oldest, published) = self.set_claim()?;
        let head = published.min(self.until);
        let view = self.view();

        // SAFETY: the claim covers everything from `oldest` to `published`, and there is something. The distance to the writer is
        // what counts, whether or not those datagrams are for this reader.
        let first = unsafe { view.first_within_reach(oldest, published) }.min(head);
        // SAFETY: as above; `first` is below `published` if it is below `head`, and otherwise `head` is.
        let bytes_before = |number| unsafe { view.descriptor(number) }.bytes_before;
        let (begin, bytes) = (bytes_before(first), bytes_before(first) - bytes_before(oldest));
        // SAFETY: as above; called only if `first` is below `head`.
        let len = if first < head { unsafe { view.claim_len(first, head) } } else { 0 };

        let base = view.base;
        if first > oldest {
            // Counted first, so that what the writer puts there does not make more seem to be inside than fits.
            counters.drop(Reason::QueueFull, Amount { count: first - oldest, bytes });
            // The dropped part belongs to the writer again, so it does not run into this claim because of it.
            let claimed = if len > 0 { CLAIMED } else { 0 };
            self.cursor.word.0.store(first << 1 | claimed, Ordering::Release);
        }

        self.seen = Amount { count: first, bytes: begin };
        if len == 0 {
            return None;
        }

        Some(Claim { reader: self, base, first, dealt: 0, len, head })
    }

    /// Keeps the writer from everything that this reader has not handled, for access in any order. `None` if there is nothing.
    /// Keep it short, like a claim: while it lasts, the writer drops new datagrams rather than old ones.
    ///
    /// A reader that has fallen behind as [`claim`](Self::claim) describes loses its oldest datagrams here too. They are not
    /// counted: [`Look::first`] is beyond them.
    pub(crate) fn look(&mut self) -> Option<Look<'_>> {
        let (oldest, published) = self.set_claim()?;
        let head = published.min(self.until);
        let view = self.view();

        // SAFETY: the claim covers everything from `oldest` to `published`, and there is something.
        let first = unsafe { view.first_within_reach(oldest, published) }.min(head);
        // SAFETY: as above; `first` is below `published`.
        let bytes = unsafe { view.descriptor(first.min(published - 1)) };
        let bytes = if first < published { bytes.bytes_before } else { bytes.end_bytes() };

        let base = view.base;
        self.seen = Amount { count: first, bytes };
        self.cursor.word.0.store(first << 1 | CLAIMED, Ordering::Release);
        Some(Look { reader: self, base, head })
    }

    /// The descriptors, for a caller that has set the claim.
    fn view(&self) -> View<'_> {
        // Relaxed: `set_claim` has seen a `head` that was stored after this.
        self.shared.view(self.shared.published.0.base.load(Ordering::Relaxed))
    }

    /// Sets the claim bit if there is something for this reader. Returns the cursor and what was published.
    fn set_claim(&mut self) -> Option<(u64, u64)> {
        if self.is_gone {
            return None;
        }

        let word = &self.cursor.word.0;
        let mut state = word.load(Ordering::Acquire);

        loop {
            let published = self.shared.head();
            if state >> 1 >= published.min(self.until) {
                return None;
            }
            let claimed = state | CLAIMED;
            match word.compare_exchange_weak(state, claimed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((state >> 1, published)),
                Err(moved) => state = moved,
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cursor.word.0.store(GONE, Ordering::Release);
    }
}

/// Datagrams that the writer leaves alone until they are handled or the claim is dropped.
pub(crate) struct Claim<'a> {
    reader: &'a mut Reader,
    base: u64,
    first: u64,
    /// Datagrams from the start that are handled and belong to the writer again.
    dealt: usize,
    len: usize,
    head: u64,
}

impl Claim<'_> {
    /// Number of datagrams in the claim, at least 1.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of the first datagram.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// One datagram of the claim.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len), or was already handled.
    pub(crate) fn get(&self, index: usize) -> (Descriptor, &[u8]) {
        assert!((self.dealt..self.len).contains(&index), "datagram {index} of {}", self.len);
        // SAFETY: the claim covers it.
        let descriptor = unsafe { self.view().descriptor(self.first + index as u64) };
        (descriptor, self.payload(descriptor.position, descriptor.len as usize))
    }

    /// Whether what waits from the claim's first unhandled datagram on takes more than half of the ring.
    pub(crate) fn fills_half(&self) -> bool {
        // SAFETY: the claim covers everything unhandled up to `head`, and the writer has passed none of that.
        let position = |number| unsafe { self.view().descriptor(number) }.position;
        let first = self.first + self.dealt as u64;
        if first >= self.head {
            return false;
        }
        let shared = &self.reader.shared;
        let bytes = position(self.head - 1).wrapping_sub(position(first));
        bytes > shared.turn_bytes as u64 / 2 || self.head - first > shared.slots.len() as u64 / 2
    }

    /// The payloads of `count` datagrams from `index` on as one slice of `len` bytes. The caller has checked that they are
    /// contiguous.
    ///
    /// # Panics
    /// If they are not.
    pub(crate) fn run(&self, index: usize, count: usize, len: usize) -> &[u8] {
        let (first, _) = self.get(index);
        let (last, bytes) = self.get(index + count - 1);
        let end = last.position.wrapping_add(bytes.len() as u64);
        assert_eq!(end.wrapping_sub(first.position), len as u64, "a run with a gap");
        // If it crosses the end of the ring, the slice is out of bounds and this panics.
        self.payload(first.position, len)
    }

    fn view(&self) -> View<'_> {
        self.reader.shared.view(self.base)
    }

    fn payload(&self, position: u64, len: usize) -> &[u8] {
        let payloads = &self.reader.shared.payloads;
        let offset = position as usize & (payloads.len() - 1);
        let cells = &payloads[offset..offset + len];
        // SAFETY: the claim keeps the writer from these bytes for as long as the returned borrow of it lives, and they
        // were written before `head` passed the datagram.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// Marks everything before index `index` as handled: it belongs to the writer from here on.
    ///
    /// # Panics
    /// If `index` is beyond [`len`](Self::len), or less than it was.
    pub(crate) fn advance(&mut self, index: usize) {
        assert!(index <= self.len, "{index} datagrams of a claim of {}", self.len);
        if index > self.dealt {
            let bytes = self.get(index - 1).0.end_bytes();
            self.dealt = index;
            self.reader.seen = Amount { count: self.first + index as u64, bytes };
            self.reader
                .cursor
                .word
                .0
                .store(self.reader.seen.count << 1 | CLAIMED, Ordering::Release);
        }

        assert_eq!(index, self.dealt, "datagrams that were dealt with");
    }

    /// Releases the claim: the first `count` datagrams are handled, the others stay.
    #[cfg(test)]
    pub(crate) fn commit(mut self, count: usize) {
        self.advance(count);
    }

    /// Releases the claim and marks everything up to `end` as handled. Returns that amount.
    ///
    /// `end` is the number of a datagram, or one above the newest. Numbers below the claim count as its start.
    pub(crate) fn discard_until(self, end: u64) -> Amount {
        let end = end.clamp(self.first, self.head);
        let begin = self.reader.seen;
        if end > begin.count {
            // SAFETY: the claim covers everything up to `head`.
            let last = unsafe { self.view().descriptor(end - 1) };
            self.reader.seen = Amount { count: end, bytes: last.end_bytes() };
        }
        self.reader.seen.saturating_sub(begin)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.reader.cursor.word.0.store(self.reader.seen.count << 1, Ordering::Release);
    }
}

/// Everything that a reader has not handled. The writer leaves it alone while this value lives.
pub(crate) struct Look<'a> {
    reader: &'a mut Reader,
    base: u64,
    head: u64,
}

impl Look<'_> {
    /// Everything before the oldest datagram that is there.
    pub(crate) fn first(&self) -> Amount {
        self.reader.seen
    }

    /// One above the number of the newest datagram that is there.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// One datagram, and everything up to and including it.
    ///
    /// # Panics
    /// If it is not there.
    pub(crate) fn get(&self, number: u64) -> (Descriptor, &[u8], Amount) {
        let is_there = (self.reader.seen.count..self.head).contains(&number);
        assert!(is_there, "datagram {number} of {} to {}", self.reader.seen.count, self.head);

        let shared = &self.reader.shared;
        // SAFETY: the claim covers it.
        let descriptor = unsafe { shared.view(self.base).descriptor(number) };
        let offset = descriptor.position as usize & (shared.payloads.len() - 1);
        let cells = &shared.payloads[offset..offset + descriptor.len as usize];
        // SAFETY: the claim keeps the writer from these bytes for as long as the returned borrow of it lives, and they
        // were written before `head` passed the datagram.
        let bytes = unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) };
        let with_it = Amount { count: number + 1, bytes: descriptor.end_bytes() };
        (descriptor, bytes, with_it)
    }

    /// Marks everything before this number as handled: it belongs to the writer from here on.
    ///
    /// # Panics
    /// If it is beyond the newest.
    pub(crate) fn advance(&mut self, number: u64) {
        if number > self.reader.seen.count {
            self.reader.seen = self.get(number - 1).2;
            self.reader.cursor.word.0.store(number << 1 | CLAIMED, Ordering::Release);
        }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.reader.cursor.word.0.store(self.reader.seen.count << 1, Ordering::Release);
    }
}
