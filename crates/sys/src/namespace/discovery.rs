//! Which network namespaces there are: those that processes are in, and those that are mounted.

use super::{Identity, Namespace, OWN_PATH, identity_of_path};
use crate::Errno;
use crate::mounts::{Mount, unescape};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Finds namespaces. Keeps its memory, not descriptors: a scan that finds no more than the one before allocates nothing.
pub struct Discovery {
    found: Vec<Found>,
    by_inode: HashMap<u64, usize>,
    paths: Vec<u8>,
    buffer: Box<[u8]>,
}

struct Found {
    id: Identity,
    path: Range<usize>,
    process: Option<u32>,
}

/// What a scan met.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Processes whose namespace was read.
    pub processes: u32,
    /// Processes whose namespace may not be seen without `CAP_SYS_PTRACE`. A namespace that only they are in is not found.
    pub unreadable_processes: u32,
    /// Namespaces mounted as files, each mount counted.
    pub mounts: u32,
}

/// Bytes read at once from `/proc`.
const BUFFER_BYTES: usize = 64 * 1024;

impl Default for Discovery {
    fn default() -> Discovery {
        Discovery {
            found: Vec::new(),
            by_inode: HashMap::new(),
            paths: Vec::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
        }
    }
}

impl Discovery {
    /// Looks again. The own namespace, the calling thread's, is always the first of [`Self::namespaces`].
    ///
    /// A process mounted away by `hidepid` or by another pid namespace is not seen and not counted.
    ///
    /// # Errors
    /// When `/proc` cannot be read. A process that cannot be read is counted and skipped.
    pub fn scan(&mut self) -> io::Result<Scan> {
        self.found.clear();
        self.by_inode.clear();
        self.paths.clear();
        let own = identity_of_path(Path::new(OWN_PATH))?;
        self.slot(own);
        let mut scan = Scan::default();
        self.scan_mounts(&mut scan)?;
        self.scan_processes(own.device, &mut scan)?;
        Ok(scan)
    }

    /// What the last scan found, each namespace once, the own one first.
    pub fn namespaces(&self) -> impl ExactSizeIterator<Item = Namespace<'_>> {
        self.found.iter().map(|found| Namespace {
            id: found.id,
            path: self
                .paths
                .get(found.path.clone())
                .filter(|path| !path.is_empty())
                .map(|path| Path::new(OsStr::from_bytes(path))),
            process: found.process,
        })
    }

    fn slot(&mut self, id: Identity) -> &mut Found {
        let next = self.found.len();
        let index = *self.by_inode.entry(id.inode).or_insert(next);
        if index == next {
            self.found.push(Found { id, path: 0..0, process: None });
        }
        &mut self.found[index]
    }

    /// Reads `/proc/self/mountinfo` (proc_pid_mountinfo(5)) line by line.
    fn scan_mounts(&mut self, scan: &mut Scan) -> io::Result<()> {
        let mut file = File::open("/proc/self/mountinfo")?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut filled = 0;
        loop {
            let read = match file.read(buffer.get_mut(filled..).unwrap_or_default()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read,
            };
            filled += match read {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) => {
                    self.buffer = buffer;
                    return Err(error);
                }
            };
            let lines = buffer.get(..filled).unwrap_or_default();
            let complete = lines.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            for line in lines[..complete].split(|&byte| byte == b'\n') {
                self.add_mount(line, scan);
            }
            // A line that fills the whole buffer is no namespace's.
            let keep = if complete == 0 && filled == buffer.len() {
                filled..filled
            } else {
                complete..filled
            };
            filled = keep.len();
            buffer.copy_within(keep, 0);
        }
        self.buffer = buffer;
        Ok(())
    }

    fn add_mount(&mut self, line: &[u8], scan: &mut Scan) {
        let Some((id, mount_point)) = parse_mount(line) else { return };
        scan.mounts += 1;
        let start = self.paths.len();
        unescape(mount_point, &mut self.paths);
        let new = start..self.paths.len();
        let has_path = !self.slot(id).path.is_empty();
        if has_path && !is_named_by_ip(self.paths.get(new.clone()).unwrap_or_default()) {
            self.paths.truncate(start);
        } else {
            self.slot(id).path = new;
        }
    }

    fn scan_processes(&mut self, device: u64, scan: &mut Scan) -> io::Result<()> {
        let proc = File::open("/proc")?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = loop {
            match read_folder(proc.as_fd(), &mut buffer) {
                Ok(0) => break Ok(()),
                Ok(len) => {
                    for name in names(buffer.get(..len).unwrap_or_default()) {
                        self.add_process(proc.as_fd(), name, device, scan);
                    }
                }
                Err(errno) => break Err(errno.into()),
            }
        };
        self.buffer = buffer;
        result
    }

    fn add_process(&mut self, proc: BorrowedFd<'_>, name: &[u8], device: u64, scan: &mut Scan) {
        let Some(process) = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok())
        else {
            return;
        };
        match read_namespace_link(proc, name) {
            Ok(inode) => {
                scan.processes += 1;
                let found = self.slot(Identity { device, inode });
                found.process = found.process.or(Some(process));
            }
            Err(Errno::ACCES | Errno::PERM) => scan.unreadable_processes += 1,
            // It has ended in the meantime, or is about to.
            Err(_) => {}
        }
    }
}

/// Calls `f` with the path of a process's namespace, without allocation.
pub(super) fn with_process_path<R>(process: u32, f: impl FnOnce(&Path) -> R) -> R {
    let mut bytes = [0; 40];
    let room = bytes.len();
    let mut rest = &mut bytes[..];
    write!(rest, "/proc/{process}/ns/net").expect("a u32 has at most ten digits");
    let len = room - rest.len();
    f(Path::new(OsStr::from_bytes(&bytes[..len])))
}

/// The inode in `NAME/ns/net`, which reads `net:[4026531840]`.
fn read_namespace_link(proc: BorrowedFd<'_>, name: &[u8]) -> Result<u64, Errno> {
    let mut path = [0_u8; 32];
    let mut rest = &mut path[..];
    // The array is zeroed and stays longer than what is written: the path ends with a zero byte.
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

fn inode_of_link(link: &[u8]) -> Option<u64> {
    let digits = link.strip_prefix(b"net:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Fills the buffer with `struct linux_dirent64` (getdents(2)) and returns the number of bytes; 0 at the end.
fn read_folder(folder: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the pointer and the length describe `buffer`, which outlives the call.
    let rc = unsafe {
        libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
    };
    usize::try_from(rc).map_err(|_| Errno::last())
}

/// The names in what [`read_folder`] wrote: inode (8 bytes), offset (8), length of the entry (2), type (1), name, zero byte.
fn names(mut entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(entries.get(16..18)?.try_into().ok()?));
        let name = entries.get(19..len)?.split(|&byte| byte == 0).next()?;
        entries = entries.get(len..)?;
        Some(name)
    })
}

/// Identity and mount point, escaped, of a line of mountinfo that shows a network namespace.
fn parse_mount(line: &[u8]) -> Option<(Identity, &[u8])> {
    let mount = Mount::parse(line)?;
    let inode = inode_of_link(mount.root)?;
    Some((Identity { device: mount.device_number()?, inode }, mount.point))
}

fn is_named_by_ip(path: &[u8]) -> bool {
    path.starts_with(b"/run/netns/") || path.starts_with(b"/var/run/netns/")
}
