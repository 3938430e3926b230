//! The network namespace of every process, without asking for each one in every scan.

use super::{Scan, inode_of_link};
use crate::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How many scans, and for how long, a newly seen process is asked every time: runtimes start a process first and move it
/// afterwards.
const YOUNG_SCANS: u32 = 3;
const YOUNG: Duration = Duration::from_secs(3);

/// An older process is asked once in this many scans; the processes take turns.
const REFRESH_SCANS: u32 = 8;

/// What is known about the processes of the last scan.
///
/// A `/proc` directory keeps its inode as long as its process lives and the kernel does not need the memory (fs/proc/base.c,
/// proc_fill_cache, get_next_ino), so the same process id with the same inode is the same process. Listing 3,000 of them costs a
/// fifth of following their links.
#[derive(Default)]
pub(super) struct Processes {
    known: Vec<Known>,
    /// The memory of the scan before the last, for reuse.
    previous: Vec<Known>,
    scan: u32,
}

#[derive(Clone, Copy)]
struct Known {
    process: u32,
    folder_inode: u64,
    answer: Answer,
    scans: u32,
    first_seen: Instant,
}

impl Known {
    fn report(&self, scan: &mut Scan, each: &mut impl FnMut(u32, u64)) {
        match self.answer {
            Answer::Namespace(inode) => {
                scan.processes += 1;
                each(self.process, inode);
            }
            Answer::Unreadable => {
                let slot = scan.unreadable_first.get_mut(scan.unreadable_processes as usize);
                if let Some(slot) = slot {
                    *slot = self.process;
                }
                scan.unreadable_processes += 1;
            }
            Answer::None => {}
        }
    }
}

/// The kernel's answer for a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The inode of its namespace.
    Namespace(u64),
    /// Permission was denied.
    Unreadable,
    /// The process has ended in the meantime, or is about to.
    None,
}

impl Processes {
    /// Forgets everything, so that the next scan asks every process.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Lists `/proc` and passes every process whose namespace is known to `each`, as process id and namespace inode.
    pub(super) fn scan(
        &mut self,
        buffer: &mut [u8],
        scan: &mut Scan,
        mut each: impl FnMut(u32, u64),
    ) -> io::Result<()> {
        let proc = File::open("/proc")?;

        mem::swap(&mut self.known, &mut self.previous);
        self.known.clear();
        self.scan = self.scan.wrapping_add(1);

        let now = Instant::now();
        let mut next_previous = 0;

        loop {
            let len = read_folder(proc.as_fd(), buffer)?;
            if len == 0 {
                return Ok(());
            }
            for entry in entries(buffer.get(..len).unwrap_or_default()) {
                let Some(process) = entry.process() else { continue };
                let before = find(&self.previous, &mut next_previous, process);
                let known = self.look((proc.as_fd(), now), &entry, process, before);
                known.report(scan, &mut each);
                self.known.push(known);
            }
        }
    }

    /// Reports the processes of the last scan.
    pub(super) fn recall(&self, scan: &mut Scan, mut each: impl FnMut(u32, u64)) {
        self.known.iter().for_each(|known| known.report(scan, &mut each));
    }

    fn look(
        &self,
        (proc, now): (BorrowedFd<'_>, Instant),
        entry: &Entry<'_>,
        process: u32,
        before: Option<Known>,
    ) -> Known {
        // Inode 1 means that the kernel could not allocate one.
        let same = before.filter(|before| before.folder_inode == entry.inode && entry.inode > 1);
        let scans = same.map_or(0, |same| same.scans.saturating_add(1));
        let first_seen = same.map_or(now, |same| same.first_seen);

        let is_young = scans < YOUNG_SCANS || now.duration_since(first_seen) < YOUNG;
        let is_due = is_young || process.wrapping_add(self.scan).is_multiple_of(REFRESH_SCANS);

        let answer = match same {
            Some(same) if !is_due => same.answer,
            _ => ask(proc, entry.name),
        };
        Known { process, folder_inode: entry.inode, answer, scans, first_seen }
    }
}

/// Finds a process among those of the last scan. Both lists ascend (fs/proc/base.c, proc_pid_readdir), so the search continues
/// where the last one ended; a process out of order is merely asked again.
fn find(previous: &[Known], next: &mut usize, process: u32) -> Option<Known> {
    let rest = previous.get(*next..)?;
    *next += rest.iter().take_while(|known| known.process < process).count();
    previous.get(*next).copied().filter(|known| known.process == process)
}

fn ask(proc: BorrowedFd<'_>, name: &[u8]) -> Answer {
    match read_namespace_link(proc, name) {
        Ok(inode) => Answer::Namespace(inode),
        Err(Errno::ACCES | Errno::PERM) => Answer::Unreadable,
        Err(_) => Answer::None,
    }
}

/// The inode in `NAME/ns/net`, which reads `net:[4026531840]`.
fn read_namespace_link(proc: BorrowedFd<'_>, name: &[u8]) -> Result<u64, Errno> {
    let mut path = [0_u8; 32];
    let mut rest = &mut path[..];
    // The array is zeroed and longer than what is written, so the path ends with a zero byte.
    if name.len() > 20 || rest.write_all(name).and_then(|()| rest.write_all(b"/ns/net")).is_err() {
        return Err(Errno::NOENT);
    }

    let mut link = [0_u8; 64];
    // SAFETY: `path` holds at least one zero byte; the kernel writes at most `link.len()` bytes to `link`.
    let rc = unsafe {
        libc::readlinkat(
            proc.as_raw_fd(),
            path.as_ptr().cast(),
            link.as_mut_ptr().cast(),
            link.len(),
        )
    };

    let len = usize::try_from(rc).map_err(|_| Errno::last())?;
    link.get(..len).and_then(inode_of_link).ok_or(Errno::NOENT)
}

/// Fills the buffer with `struct linux_dirent64` (getdents(2)) and returns the number of bytes; 0 at the end.
fn read_folder(folder: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the pointer and the length describe `buffer`, which outlives the call.
    let rc = unsafe {
        libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
    };
    usize::try_from(rc).map_err(|_| Errno::last())
}

struct Entry<'a> {
    inode: u64,
    name: &'a [u8],
}

impl Entry<'_> {
    /// The process id, if the directory stands for a process.
    fn process(&self) -> Option<u32> {
        std::str::from_utf8(self.name).ok()?.parse().ok()
    }
}

/// Parses what [`read_folder`] wrote: inode (8 bytes), offset (8), length of the entry (2), type (1), name, zero byte.
fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    std::iter::from_fn(move || {
        let inode = u64::from_ne_bytes(*bytes.first_chunk()?);
        let len = usize::from(u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?));
        let name = bytes.get(19..len)?.split(|&byte| byte == 0).next()?;
        bytes = bytes.get(len..)?;
        Some(Entry { inode, name })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(process: u32) -> Known {
        Known {
            process,
            folder_inode: 1,
            answer: Answer::None,
            scans: 0,
            first_seen: Instant::now(),
        }
    }

    #[test]
    fn the_search_goes_on_where_it_ended_and_survives_disorder() {
        let previous: Vec<Known> = [1, 5, 9].map(known).into();
        let mut next = 0;
        let found: Vec<bool> = [1, 4, 5, 3, 9, 10, 2]
            .into_iter()
            .map(|process| find(&previous, &mut next, process).is_some())
            .collect();
        assert_eq!(found, [true, false, true, false, true, false, false]);
        assert!(find(&[], &mut 0, 1).is_none());
    }

    #[test]
    fn lengths_that_lie_end_a_folder() {
        let mut bytes = [0_u8; 48];
        bytes[..8].copy_from_slice(&77_u64.to_ne_bytes());
        bytes[16..18].copy_from_slice(&24_u16.to_ne_bytes());
        bytes[19..21].copy_from_slice(b"42");
        let found: Vec<_> = entries(&bytes).map(|entry| (entry.inode, entry.process())).collect();
        assert_eq!(found, [(77, Some(42))]);
        for lie in [0_u16, 18, 19, 200, u16::MAX] {
            bytes[16..18].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(entries(&bytes).filter_map(|entry| entry.process()).count(), 0, "{lie}");
        }
        for cut in 0..24 {
            assert_eq!(entries(&bytes[..cut]).count(), 0);
        }
    }
}
