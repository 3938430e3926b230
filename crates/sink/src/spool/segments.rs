//! The segments of a spool, and the one that is appended to.

use super::Tally;
use super::disk::{Disk, DiskFile, read_all, write_all};
use super::format::{FIXED_BYTES, Fixed, HEADER_BYTES, Head, Header, PAGE_BYTES};
use super::walk::{Extent, Patience, Walk};
use super::{OpenError, Options};
use std::collections::VecDeque;
use sys::Errno;

/// A file of entries.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) header: Header,
    /// Its length; anything in the file beyond that is ignored.
    pub(super) len_bytes: u64,
}

impl Segment {
    pub(super) fn name(&self) -> String {
        name_of(self.number)
    }

    /// What a walk needs to know about it.
    pub(super) fn extent(&self) -> Extent {
        Extent { salt: self.header.salt, len_bytes: self.len_bytes }
    }
}

/// The last segment, while it is appended to.
pub(super) struct Active<F> {
    file: F,
    /// Its durable part, in bytes and as a position.
    pub(super) synced_bytes: u64,
    pub(super) synced: Tally,
    /// Whether its name is durable.
    is_named: Named,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Yes,
    NotYet,
}

/// All segments, oldest first.
pub(super) struct Segments<F> {
    pub(super) all: VecDeque<Segment>,
    /// The file of the last segment, if it is being appended to.
    pub(super) active: Option<Active<F>>,
    next_number: u64,
    /// A file that is not a segment and could not be removed.
    leftover: Option<String>,
    scratch: Vec<u8>,
}

impl<F: DiskFile> Segments<F> {
    /// Finds the existing segments, and removes the remains of one that was being created. Also returns the bytes removed.
    pub(super) fn open<D: Disk<File = F>>(disk: &mut D) -> Result<(Segments<F>, u64), OpenError> {
        let mut numbers: Vec<u64> =
            disk.names()?.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();

        let next_number = numbers.last().map_or(0, |last| last.saturating_add(1));
        let (mut all, mut removed_bytes) = (VecDeque::new(), 0);
        for number in numbers {
            let file = disk.open(&name_of(number))?;
            let len_bytes = file.len_bytes()?;
            match read_header(&file)? {
                Some(header) => all.push_back(Segment { number, header, len_bytes }),
                None => {
                    disk.remove(&name_of(number))?;
                    removed_bytes += len_bytes;
                }
            }
        }

        let (active, leftover) = (None, None);
        Ok((Segments { all, active, next_number, leftover, scratch: Vec::new() }, removed_bytes))
    }

    /// Total size of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.all.iter().map(|segment| segment.len_bytes).sum()
    }

    /// Starts a segment whose first entry is preceded by `before`.
    pub(super) fn begin<D: Disk<File = F>>(
        &mut self,
        disk: &mut D,
        before: Tally,
    ) -> Result<(), Errno> {
        self.active = None;
        if let Some(name) = &self.leftover {
            remove(disk, name)?;
            self.leftover = None;
        }

        let number = self.next_number;
        self.next_number += 1;
        let header = Header { salt: disk.salt(), before };
        let file = disk.create(&name_of(number))?;
        if let Err(errno) = write_all(&file, &header.bytes(), 0) {
            self.discard(disk, number);
            return Err(errno);
        }

        self.all.push_back(Segment { number, header, len_bytes: HEADER_BYTES });
        let (synced_bytes, is_named) = (HEADER_BYTES, Named::NotYet);
        self.active = Some(Active { file, synced_bytes, synced: before, is_named });
        Ok(())
    }

    /// Removes a file that must not count, now or before the next segment is started.
    pub(super) fn discard<D: Disk<File = F>>(&mut self, disk: &mut D, number: u64) {
        let name = name_of(number);
        self.leftover = remove(disk, &name).is_err().then_some(name);
    }

    /// Appends to the active segment, whole or not at all. After `Err` with [`Torn::Yes`] nothing more may be appended to the
    /// segment.
    pub(super) fn write(&mut self, head: &Head, body: &[u8]) -> Result<(), (Errno, Torn)> {
        let (Some(active), Some(segment)) = (&self.active, self.all.back_mut()) else {
            return Err((Errno::INVAL, Torn::No));
        };

        self.scratch.clear();
        self.scratch.extend_from_slice(&head.bytes(segment.header.salt));
        self.scratch.extend_from_slice(body);
        if let Err(errno) = write_all(&active.file, &self.scratch, segment.len_bytes) {
            let is_cut = active.file.cut(segment.len_bytes).is_ok();
            return Err((errno, if is_cut { Torn::No } else { Torn::Yes }));
        }
        segment.len_bytes += self.scratch.len() as u64;
        Ok(())
    }

    /// Makes the active segment durable up to `end`, the position after its last entry.
    pub(super) fn sync<D: Disk<File = F>>(
        &mut self,
        disk: &mut D,
        end: Tally,
    ) -> Result<(), Errno> {
        let (Some(active), Some(segment)) = (&mut self.active, self.all.back()) else {
            return Ok(());
        };
        active.file.sync()?;
        if active.is_named == Named::NotYet {
            disk.sync()?;
            active.is_named = Named::Yes;
        }
        active.synced = end;
        active.synced_bytes = segment.len_bytes;
        Ok(())
    }

    /// Whether an entry of this size should go to a new segment.
    pub(super) fn is_full(&self, entry_bytes: u64, options: &Options) -> bool {
        self.active.is_some()
            && self.all.back().is_some_and(|segment| {
                segment.len_bytes > HEADER_BYTES
                    && segment.len_bytes.saturating_add(entry_bytes) > options.segment_bytes
            })
    }

    /// What came before the segment after the one at `idx`; `end` for the last.
    pub(super) fn after(&self, idx: usize, end: Tally) -> Tally {
        self.all.get(idx + 1).map_or(end, |next| next.header.before)
    }

    /// Truncates what follows the last whole entry of the last segment. Returns what was appended up to there, and the number of
    /// bytes truncated.
    pub(super) fn cut_tail<D: Disk<File = F>>(
        &mut self,
        disk: &mut D,
    ) -> Result<(Tally, u64), Errno> {
        let Some(segment) = self.all.back_mut() else { return Ok((Tally::default(), 0)) };
        let extent = segment.extent();
        let mut walk = Walk::new(disk.open(&segment.name())?, Patience::Now);
        let mut end = segment.header.before;
        let mut end_bytes = HEADER_BYTES.min(segment.len_bytes);
        while let Some(found) = walk.look(&extent)? {
            end = end.max(found.head.after());
            walk.at = found.end();
            end_bytes = walk.at;
        }

        let cut_bytes = segment.len_bytes - end_bytes;
        segment.len_bytes = end_bytes;
        if cut_bytes > 0 {
            // Only to free the space: nothing beyond this length is read, and nothing is appended.
            let _ = walk.file.cut(end_bytes);
        }

        // What a killed process has not synced is only in the page cache.
        walk.file.sync()?;
        disk.sync()?;
        Ok((end, cut_bytes))
    }
}

/// Whether a segment may end with a partial entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Torn {
    Yes,
    No,
}

/// Removes a file; a missing file counts as success.
pub(super) fn remove<D: Disk>(disk: &mut D, name: &str) -> Result<(), Errno> {
    match disk.remove(name) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// The first intact copy; `None` if both are damaged.
fn read_header(file: &impl DiskFile) -> Result<Option<Header>, OpenError> {
    let mut error = None;
    for at in [0, PAGE_BYTES] {
        let mut fixed = [0; FIXED_BYTES];
        match read_all(file, &mut fixed, at) {
            Ok(_) => match Header::read(&fixed) {
                Fixed::Known(header) => return Ok(Some(header)),
                Fixed::Version(version) => return Err(OpenError::Version(version)),
                Fixed::Damaged => {}
            },
            Err(errno) => error = Some(errno),
        }
    }
    error.map_or(Ok(None), |errno| Err(OpenError::Io(errno)))
}

fn name_of(number: u64) -> String {
    format!("{number:016x}.segment")
}

fn number_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(".segment")?, 16).ok()?;
    (name_of(number) == name).then_some(number)
}
