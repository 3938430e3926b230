//! Reads a spool from the acknowledged position to its end.

use super::walk::{Patience, Walk};
use super::{Disk, Entry, EntryId, Gap, Read, Spool, Tally};
use std::ops::Range;
use sys::Errno;

/// The read position.
pub(super) struct Reader<F> {
    /// Number of the segment.
    number: u64,
    /// The position in it; `None` if it is not open.
    walk: Option<Walk<F>>,
}

impl<F> Default for Reader<F> {
    fn default() -> Reader<F> {
        Reader { number: 0, walk: None }
    }
}

/// The next item, without borrowed data.
enum Next {
    Entry { rows: u32, row_bytes: u64, body: Range<usize>, after: Tally },
    Missing { up_to: Tally },
}

impl<D: Disk> Spool<D> {
    /// The next item, or `None` if everything was read. Keeps memory for one entry, or for 256 KiB of entries.
    ///
    /// # Errors
    /// The next call reads the same item again; wait about a second. What cannot be read in ten calls becomes a gap.
    pub fn read(&mut self) -> Result<Option<Read<'_>>, Errno> {
        let Some(next) = self.next()? else { return Ok(None) };
        match next {
            Next::Missing { up_to } => {
                let lost = up_to - self.read;
                self.read = up_to;
                Ok(Some(Read::Gap(Gap { id: EntryId { after: up_to }, lost })))
            }
            Next::Entry { rows, row_bytes, body, after } => {
                self.read = after;
                let id = EntryId { after };
                let bytes = self.reader.walk.as_ref().map_or(&[][..], |walk| &walk.bytes()[body]);
                Ok(Some(Read::Entry(Entry { id, rows, row_bytes, bytes })))
            }
        }
    }

    /// Skips the newest entry, which the caller still has in memory. Does nothing unless everything before it was read.
    pub fn pass(&mut self, id: EntryId) {
        if id.after != self.end || self.read.entries.checked_add(1) != Some(id.after.entries) {
            return;
        }
        self.read = self.end;
        // Nothing in the segment so far is needed any more.
        if let (Some(walk), Some(segment)) = (&mut self.reader.walk, self.segments.all.back())
            && self.reader.number == segment.number
        {
            walk.at = segment.len_bytes;
        }
    }

    fn next(&mut self) -> Result<Option<Next>, Errno> {
        loop {
            let number = self.reader.number;
            let Some(idx) = self.segments.all.iter().position(|segment| segment.number >= number)
            else {
                return Ok(self.missing(self.end));
            };
            let after = self.segments.after(idx, self.end);
            // Anything beyond the beginning of the next segment was rescued, or its append failed.
            let is_done = after.entries <= self.read.entries;
            if !is_done && let Some(next) = self.next_in(idx)? {
                return Ok(Some(next));
            }

            // What the segment lacks is missing; the next one may follow.
            let missing = self.missing(after);
            let is_last = idx + 1 == self.segments.all.len();
            if missing.is_some() || is_last {
                return Ok(missing);
            }
            self.reader = Reader { number: self.segments.all[idx + 1].number, walk: None };
        }
    }

    fn next_in(&mut self, idx: usize) -> Result<Option<Next>, Errno> {
        let segment = &self.segments.all[idx];
        if segment.number != self.reader.number {
            self.reader = Reader { number: segment.number, walk: None };
        }
        let walk = match &mut self.reader.walk {
            Some(walk) => walk,
            none => none.insert(Walk::new(self.disk.open(&segment.name())?, Patience::Later)),
        };

        let extent = segment.extent();
        while let Some(found) = walk.look(&extent)? {
            let (before, after) = (found.head.before, found.head.after());
            if before.entries > self.read.entries {
                return Ok(Some(Next::Missing { up_to: before }));
            }
            if after.entries <= self.read.entries {
                walk.at = found.end();
                continue;
            }

            let body = walk.body(&found, &extent)?;
            walk.at = found.end();
            let (rows, row_bytes) = (found.head.rows, found.head.row_bytes);
            return Ok(Some(match body {
                Some(body) => Next::Entry { rows, row_bytes, body, after },
                None => Next::Missing { up_to: after },
            }));
        }
        Ok(None)
    }

    fn missing(&self, up_to: Tally) -> Option<Next> {
        (up_to.entries > self.read.entries).then_some(Next::Missing { up_to })
    }
}
