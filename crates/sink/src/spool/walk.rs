//! Reads a segment from beginning to end, across damage.

use super::disk::{DiskFile, read_all};
use super::format::{HEAD_BYTES, HEADER_BYTES, Head};
use std::ops::Range;
use sys::Errno;

/// Bytes to read from the disk at once, unless an entry is larger.
const READ_BYTES: usize = 256 * 1024;
/// Bytes to treat as unreadable at once.
const BAD_BYTES: usize = 4096;
/// Attempts to read a place before its contents count as damaged.
pub(super) const TRIES: u32 = 10;

/// What a walk needs to know of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) salt: u32,
    /// Where it ends.
    pub(super) len_bytes: u64,
}

/// An entry or mark found in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) head: Head,
    /// Offset of its head.
    pub(super) at: u64,
}

impl Found {
    /// Where the next head should be.
    pub(super) fn end(&self) -> u64 {
        self.at + HEAD_BYTES as u64 + u64::from(self.head.body_bytes)
    }
}

/// When to retry a failed read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// In the caller's next call.
    Later,
    /// At once.
    Now,
}

/// A position in a segment, and the bytes read there.
pub(super) struct Walk<F> {
    pub(super) file: F,
    patience: Patience,
    /// Where to look for the next head.
    pub(super) at: u64,
    window: Vec<u8>,
    window_at: u64,
    /// Failed reads in a row, and where. Successful reads elsewhere in between do not count.
    failures: u32,
    failed_at: u64,
    /// Before this offset some bytes are known to be unreadable.
    bad_until: u64,
}

impl<F: DiskFile> Walk<F> {
    pub(super) fn new(file: F, patience: Patience) -> Walk<F> {
        let (window, window_at) = (Vec::new(), 0);
        let (failures, failed_at, bad_until) = (0, 0, 0);
        Walk { file, patience, at: HEADER_BYTES, window, window_at, failures, failed_at, bad_until }
    }

    /// The next head, or `None` at the end of the segment. The walk stays before it.
    pub(super) fn look(&mut self, extent: &Extent) -> Result<Option<Found>, Errno> {
        loop {
            let body_at = self.at.saturating_add(HEAD_BYTES as u64);
            if body_at > extent.len_bytes {
                return Ok(None);
            }

            // Try one byte after another, within the memory and the segment.
            let at = self.at;
            let start = self.load(at, HEAD_BYTES, extent.len_bytes)?.start;
            let in_segment = usize::try_from(extent.len_bytes - at).unwrap_or(usize::MAX);
            let searched = &self.window[start..];
            let places = searched.len().min(in_segment) - HEAD_BYTES + 1;
            let found = (0..places).find_map(|skip| {
                let body_bytes_max = extent.len_bytes - body_at - skip as u64;
                let head = Head::read(&searched[skip..], extent.salt, body_bytes_max)?;
                Some(Found { head, at: at + skip as u64 })
            });

            self.at = found.map_or(at + places as u64, |found| found.at);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Where the body of `found` is in [`Self::bytes`], or `None` if it is damaged.
    pub(super) fn body(
        &mut self,
        found: &Found,
        extent: &Extent,
    ) -> Result<Option<Range<usize>>, Errno> {
        let at = found.at + HEAD_BYTES as u64;
        let range = self.load(at, found.head.body_bytes as usize, extent.len_bytes)?;
        let is_whole = found.head.is_of(extent.salt, &self.window[range.clone()]);
        Ok(is_whole.then_some(range))
    }

    /// The bytes that the ranges refer to.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.window
    }

    /// Makes sure that these bytes are in memory, and returns where. `end` is the end of the segment.
    fn load(&mut self, at: u64, len: usize, end: u64) -> Result<Range<usize>, Errno> {
        let is_there =
            at >= self.window_at && at + len as u64 <= self.window_at + self.window.len() as u64;
        if !is_there {
            let rest = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            self.read(at, READ_BYTES.min(rest).max(len))?;
        }
        let start = (at - self.window_at) as usize;
        Ok(start..start + len)
    }

    fn read(&mut self, at: u64, len: usize) -> Result<(), Errno> {
        self.window_at = at;
        self.window.clear();
        self.window.resize(len, 0);
        self.window.shrink_to(READ_BYTES.max(len));

        // Bytes missing from a file that was longer are zeros, which are never a head.
        while let Err(errno) = read_all(&self.file, &mut self.window, at) {
            if self.failed_at != at {
                (self.failed_at, self.failures) = (at, 0);
            }
            self.failures += 1;
            if self.failures >= TRIES || at < self.bad_until {
                return self.read_around(at, errno);
            }
            if self.patience == Patience::Later {
                self.window.clear();
                return Err(errno);
            }
        }
        Ok(())
    }

    /// A bad sector never recovers: reads what is around it and treats it as zeros, so that its contents are missing.
    fn read_around(&mut self, at: u64, errno: Errno) -> Result<(), Errno> {
        // A disk on which not even the header can be read is detached, and may come back.
        if read_all(&self.file, &mut [0], 0).is_err() {
            self.failures = 0;
            self.window.clear();
            return Err(errno);
        }

        self.window.fill(0);
        for (piece, bytes) in self.window.chunks_mut(BAD_BYTES).enumerate() {
            if read_all(&self.file, bytes, at + (piece * BAD_BYTES) as u64).is_err() {
                bytes.fill(0);
            }
        }
        self.bad_until = at + self.window.len() as u64;
        Ok(())
    }
}
