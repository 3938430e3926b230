//! Entries that wait on disk until they are acknowledged: through an outage of their destination, a restart, and a crash.
//!
//! A spool is a directory of *segments*, append-only files, and a *cursor*, which records how far everything is acknowledged. An
//! entry is opaque bytes with a row count. Entries are read in the order in which they were appended, and acknowledged in that
//! order; a segment is removed once its last entry is acknowledged.
//!
//! Each entry records what was appended before it over the spool's life: entries, rows, bytes of rows. Whatever is missing
//! between two entries is therefore a subtraction, a [`Gap`], which is read in its place like an entry. Only data appended since
//! the last [`Spool::sync`] can be missing without a gap.
//!
//! No error needs operator action. A disk error is returned, nothing is left half done, and the same call may be repeated later:
//! a full or failing disk is a temporary state.
//!
//! ```
//! use sink::spool::{Folder, Options, Read, Spool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("weir-doc-{}", std::process::id()));
//! let options = Options { bytes_max: 1 << 30, ..Options::default() };
//! let (mut spool, recovered) = Spool::open(Folder::open(&path)?, options)?;
//! assert!(recovered.waiting.is_zero());
//!
//! spool.append(2, 9, b"two lines")?;
//! spool.sync()?; // from here on a crash does not lose it
//! if let Some(Read::Entry(entry)) = spool.read()? {
//!     assert_eq!((entry.rows, entry.bytes), (2, b"two lines".as_slice()));
//!     let id = entry.id;
//!     spool.acknowledge(id);
//! }
//! spool.close()?;
//! # std::fs::remove_dir_all(&path)?;
//! # Ok(())
//! # }
//! ```

mod cursor;
mod disk;
mod format;
mod open;
mod read;
mod rescue;
mod segments;
mod tally;
#[cfg(test)]
pub(crate) mod tests;
mod walk;

pub use disk::{Disk, DiskFile, Folder};
pub use tally::{EntryId, Tally};

use cursor::Cursor;
use format::{HEAD_BYTES, HEADER_BYTES, Head, Left};
use read::Reader;
use rescue::Rescue;
use segments::{Segments, Torn};
use sys::Errno;

/// Largest entry, in bytes: reading one takes that much memory.
pub const ENTRY_BYTES_MAX: usize = 16 << 20;

/// Limits of a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Limit on the bytes of all segments. Space is freed a segment at a time, so up to one segment of acknowledged entries
    /// counts too.
    pub bytes_max: u64,
    /// Bytes after which the next segment is started; an eighth of `bytes_max` if that is less. A larger entry gets a segment of
    /// its own.
    pub segment_bytes: u64,
}

impl Default for Options {
    /// 1 GiB in segments of 64 MiB.
    fn default() -> Options {
        Options { bytes_max: 1 << 30, segment_bytes: 64 << 20 }
    }
}

/// Why a spool could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Another spool has the directory. Try again when it is closed.
    #[error("the folder of the spool is in use by another sink or another process")]
    Locked,
    /// A newer Weir wrote it. It is left unchanged.
    #[error(
        "the spool was written in version {0} of its format, which this version of Weir does not read: run the newer one until it is empty, or name another folder"
    )]
    Version(u32),
    /// The disk failed. Try again later.
    #[error("opening the spool: {0}")]
    Io(Errno),
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> OpenError {
        OpenError::Io(errno)
    }
}

/// Why an entry was not appended. The spool is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// [`Options::bytes_max`] is reached. There is room again when a segment has been acknowledged.
    #[error("the spool has reached its size limit")]
    Full,
    /// The disk or the user's quota is full (`ENOSPC`, `EDQUOT`).
    #[error("no space is left on the spool's disk")]
    NoSpace,
    /// The disk failed.
    #[error("writing the spool: {0}")]
    Io(Errno),
    /// It is empty, larger than [`ENTRY_BYTES_MAX`], or larger than the whole spool: it can never fit.
    #[error("the entry is empty, or larger than the spool takes")]
    Unfit,
}

impl From<Errno> for AppendError {
    fn from(errno: Errno) -> AppendError {
        if is_no_space(errno) { AppendError::NoSpace } else { AppendError::Io(errno) }
    }
}

/// What a spool held when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Everything not acknowledged: all of it is read, as an entry or in a [`Gap`].
    pub waiting: Tally,
    /// How much of `waiting` may have been acknowledged: after a crash, anything acknowledged since the last [`Spool::sync`] is
    /// repeated. All of it after a crash and after [`Spool::close_handed_on`], none after [`Spool::close`].
    pub maybe_acknowledged: Tally,
    /// Bytes without a whole entry that were truncated. How many entries they were is unknown: they were never made durable.
    pub cut_bytes: u64,
    /// Whether entries may be missing uncounted: those appended after the last [`Spool::sync`].
    pub ended: Ended,
}

/// How the last process that used the spool ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// It closed the spool, or there was no spool.
    #[default]
    Closed,
    /// It did not close the spool.
    Crashed,
}

/// What a spool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of all segments on disk.
    pub bytes: u64,
    /// Entries not acknowledged.
    pub waiting: Tally,
    /// Entries not read.
    pub unread: Tally,
    /// Number of the oldest unacknowledged entry; one more than the newest if there is none.
    pub oldest: u64,
}

/// What a spool has taken and may not have on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsynced {
    /// Number of the last entry that is on the disk.
    pub after: u64,
    /// Those of the later entries that were not read.
    pub unread: Tally,
}

/// The next item in a spool.
#[derive(Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// An entry as it was appended.
    Entry(Entry<'a>),
    /// Entries that are damaged or gone.
    Gap(Gap),
}

/// An entry as it was appended.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// For [`Spool::acknowledge`].
    pub id: EntryId,
    /// Rows in it.
    pub rows: u32,
    /// Bytes of the rows, as the caller counted.
    pub row_bytes: u64,
    /// What was appended.
    pub bytes: &'a [u8],
}

/// Entries that were appended and can no longer be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last of them, for [`Spool::acknowledge`].
    pub id: EntryId,
    /// How many entries, and their rows: exact.
    pub lost: Tally,
}

/// A queue of entries on disk. It belongs to one thread.
pub struct Spool<D: Disk = Folder> {
    disk: D,
    options: Options,
    segments: Segments<D::File>,
    cursor: Cursor<D::File>,
    reader: Reader<D::File>,
    /// Entries that must be written again, because their segment cannot be made durable.
    rescue: Option<Rescue>,
    /// Everything that was ever appended.
    end: Tally,
    /// Everything that was read.
    read: Tally,
    acknowledged: Tally,
}

impl<D: Disk> Spool<D> {
    /// Appends an entry of `rows` rows with `row_bytes` bytes.
    ///
    /// The system has it when this returns; it is durable after the next [`Self::sync`].
    ///
    /// # Errors
    /// The spool is unchanged, and the call may be repeated.
    pub fn append(
        &mut self,
        rows: u32,
        row_bytes: u64,
        bytes: &[u8],
    ) -> Result<EntryId, AppendError> {
        // This includes room for the mark that the next sync writes.
        let entry_bytes = (2 * HEAD_BYTES + bytes.len()) as u64;
        let fits = HEADER_BYTES + entry_bytes <= self.options.bytes_max;
        if bytes.is_empty() || bytes.len() > ENTRY_BYTES_MAX || !fits {
            return Err(AppendError::Unfit);
        }

        self.rescue()?;
        self.make_room(entry_bytes)?;

        let salt = self.segments.all.back().map_or(0, |segment| segment.header.salt);
        let head = Head::entry(salt, self.end, rows, row_bytes, bytes);
        self.write(&head, bytes)?;
        self.end = head.after();
        Ok(EntryId { after: self.end })
    }

    /// Makes everything appended and acknowledged durable.
    ///
    /// # Errors
    /// After an error, entries appended since the last success may be gone from the disk although they can still be read. They
    /// are written again, to another segment, before anything else is appended; success means that all of it is durable.
    pub fn sync(&mut self) -> Result<(), Errno> {
        let entries = self.sync_entries();
        self.reclaim();
        if self.cursor.says(self.acknowledged) {
            return entries;
        }
        let cursor = self.cursor.write(self.acknowledged, self.durable(), Left::Open);
        entries.and(cursor)
    }

    /// Marks everything up to `id` as done: it is not read again. Entries that were not read stay.
    ///
    /// It is durable after the next [`Self::sync`].
    pub fn acknowledge(&mut self, id: EntryId) {
        if id.after.entries <= self.read.entries {
            self.acknowledged = self.acknowledged.max(id.after);
            self.reclaim();
        }
    }

    /// What it holds.
    pub fn figures(&self) -> Figures {
        Figures {
            bytes: self.segments.bytes(),
            waiting: self.end - self.acknowledged,
            unread: self.end - self.read,
            oldest: self.acknowledged.entries.saturating_add(1),
        }
    }

    /// What was appended since the last [`Self::sync`] that succeeded.
    pub fn unsynced(&self) -> Unsynced {
        let durable = self.durable();
        Unsynced { after: durable.entries, unread: self.end - durable.max(self.read) }
    }

    /// Makes everything durable and releases the directory. Waiting entries are there when it is reopened.
    ///
    /// # Errors
    /// Any error of the disk; the next opening then looks like one after a crash.
    pub fn close(self) -> Result<(), Errno> {
        self.close_as(Left::Closed)
    }

    /// Like [`Self::close`], when some waiting entries were passed on and may have been delivered.
    ///
    /// # Errors
    /// As [`Self::close`].
    pub fn close_handed_on(self) -> Result<(), Errno> {
        self.close_as(Left::ClosedHandedOn)
    }

    fn close_as(mut self, left: Left) -> Result<(), Errno> {
        self.sync()?;
        if self.acknowledged == self.end {
            self.segments.active = None;
            self.reclaim();
        }
        self.cursor.write(self.acknowledged, self.end, left)
    }

    fn write(&mut self, head: &Head, body: &[u8]) -> Result<(), Errno> {
        self.segments.write(head, body).map_err(|(errno, torn)| {
            if torn == Torn::Yes {
                self.distrust();
            }
            errno
        })
    }

    fn sync_entries(&mut self) -> Result<(), Errno> {
        self.rescue()?;
        let is_synced = |synced: Tally| synced == self.end;
        if self.segments.active.as_ref().is_none_or(|active| is_synced(active.synced)) {
            return Ok(());
        }

        self.write(&Head::mark(self.end), &[])?;
        // The kernel reports a failed write-back once and then considers the pages clean (fsync(2), "fsyncgate"): another fsync
        // of this file would succeed without having written them.
        self.segments.sync(&mut self.disk, self.end).inspect_err(|_| self.distrust())
    }

    /// What was durably appended.
    fn durable(&self) -> Tally {
        let rescued = self.rescue.map(|rescue| rescue.from);
        let active = self.segments.active.as_ref().map(|active| active.synced);
        rescued.or(active).unwrap_or(self.end)
    }

    /// Makes sure that there is an active segment with room for an entry of this size.
    fn make_room(&mut self, entry_bytes: u64) -> Result<(), AppendError> {
        if self.segments.is_full(entry_bytes, &self.options) {
            self.sync_entries()?;
            // Unless a rescue has just started another segment.
            if self.segments.is_full(entry_bytes, &self.options) {
                self.segments.active = None;
                self.reclaim();
            }
        }
        if !self.has_room(entry_bytes) && self.acknowledged == self.end {
            // Everything that takes up the room is acknowledged.
            self.segments.active = None;
            self.reclaim();
        }
        if !self.has_room(entry_bytes) {
            return Err(AppendError::Full);
        }

        if self.segments.active.is_none() {
            self.segments.begin(&mut self.disk, self.end)?;
        }
        Ok(())
    }

    fn has_room(&self, entry_bytes: u64) -> bool {
        let header_bytes = if self.segments.active.is_some() { 0 } else { HEADER_BYTES };
        self.segments.bytes().saturating_add(header_bytes + entry_bytes) <= self.options.bytes_max
    }

    /// Removes the segments that are completely acknowledged. The next sync retries those that cannot be removed.
    fn reclaim(&mut self) {
        while let Some(segment) = self.segments.all.front() {
            let is_active = self.segments.all.len() == 1 && self.segments.active.is_some();
            let after = self.segments.after(0, self.end);
            if is_active || after.entries > self.acknowledged.entries {
                return;
            }

            // Write the cursor first: anything missing before it is then known to be acknowledged, and anything else to be lost.
            // Only if the cursor itself finds no space (on a copy-on-write file system) does the segment go first, to free some.
            let written = self.cursor.write_both(self.acknowledged, self.durable());
            if written.is_err_and(|errno| !is_no_space(errno)) {
                return;
            }
            if segments::remove(&mut self.disk, &segment.name()).is_err() {
                return;
            }
            let number = segment.number;
            self.segments.all.pop_front();
            self.rescue.take_if(|rescue| rescue.number == number);
        }
    }
}

fn is_no_space(errno: Errno) -> bool {
    matches!(errno.0, libc::ENOSPC | libc::EDQUOT)
}
