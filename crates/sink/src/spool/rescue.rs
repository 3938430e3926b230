//! Rewrites entries whose segment can no longer be trusted.

use super::disk::DiskFile;
use super::format::HEADER_BYTES;
use super::walk::{Extent, Patience, Walk};
use super::{Disk, Spool, Tally};
use sys::Errno;

/// Entries of the last segment that may never reach the disk.
#[derive(Clone, Copy)]
pub(super) struct Rescue {
    /// Number of the segment.
    pub(super) number: u64,
    /// Their offset in it.
    from_bytes: u64,
    pub(super) from: Tally,
}

impl<D: Disk> Spool<D> {
    /// Abandons the active segment: entries appended to it and not synced must be rescued.
    pub(super) fn distrust(&mut self) {
        let (Some(active), Some(segment)) =
            (self.segments.active.take(), self.segments.all.back_mut())
        else {
            return;
        };
        if active.synced == self.end {
            segment.len_bytes = active.synced_bytes;
            return;
        }

        let (from_bytes, from) = (active.synced_bytes, active.synced);
        self.rescue = Some(Rescue { number: segment.number, from_bytes, from });
    }

    /// Copies entries that need rescue, if any, to a new segment. They are read from the page cache, where they mostly still
    /// are; those no longer there become a gap. Meanwhile the spool may exceed its limit.
    pub(super) fn rescue(&mut self) -> Result<(), Errno> {
        let (Some(rescue), Some(old)) = (self.rescue, self.segments.all.back().cloned()) else {
            return Ok(());
        };
        let mut walk = Walk::new(self.disk.open(&old.name())?, Patience::Now);
        walk.at = rescue.from_bytes;

        self.segments.begin(&mut self.disk, rescue.from)?;
        if let Err(errno) = self.copy_entries(&old.extent(), &mut walk) {
            self.segments.active = None;
            if let Some(begun) = self.segments.all.pop_back() {
                self.segments.discard(&mut self.disk, begun.number);
            }
            return Err(errno);
        }

        self.give_up(rescue, &walk);
        self.rescue = None;
        Ok(())
    }

    /// Keeps only the durable part of the segment. If nothing is durable it removes the file, or a disk that fails every sync
    /// would fill with such files.
    fn give_up(&mut self, rescue: Rescue, walk: &Walk<D::File>) {
        let idx = self.segments.all.len() - 2;
        if rescue.from_bytes <= HEADER_BYTES {
            self.segments.all.remove(idx);
            self.segments.discard(&mut self.disk, rescue.number);
            return;
        }
        self.segments.all[idx].len_bytes = rescue.from_bytes;
        // Only to free the space: nothing beyond that length is read.
        let _ = walk.file.cut(rescue.from_bytes);
    }

    fn copy_entries(&mut self, extent: &Extent, walk: &mut Walk<D::File>) -> Result<(), Errno> {
        while let Some(found) = walk.look(extent)? {
            if !found.head.is_mark()
                && let Some(body) = walk.body(&found, extent)?
            {
                let salt = self.segments.all.back().map_or(0, |segment| segment.header.salt);
                let head = found.head.with_salt(salt, &walk.bytes()[body.clone()]);
                self.segments.write(&head, &walk.bytes()[body]).map_err(|(errno, _)| errno)?;
            }
            walk.at = found.end();
        }
        Ok(())
    }
}
