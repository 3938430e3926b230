//! Discovers network namespaces: those with processes in them, and those that are mounted.

mod processes;

use super::{Identity, Namespace, OWN_PATH, identity_of_path};
use crate::mounts::{Mount, unescape};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use processes::Processes;

/// Finds namespaces. Keeps its memory, not descriptors: a scan that finds no more than the one before allocates nothing.
///
/// A process is asked for its namespace in the first three scans that see it and for its first three seconds, and in every eighth
/// scan after that; a later move is noticed that much later. Mounts are read every time.
pub struct Discovery {
    found: Vec<Found>,
    by_inode: HashMap<u64, usize>,
    paths: Vec<u8>,
    processes: Processes,
    buffer: Box<[u8]>,
}

struct Found {
    id: Identity,
    path: Range<usize>,
    process: Option<u32>,
}

/// What a scan encountered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Processes whose namespace was read.
    pub processes: u32,
    /// Processes whose namespace is not readable without `CAP_SYS_PTRACE`. A namespace with only such processes is not found.
    pub unreadable_processes: u32,
    /// The ids of the first of them; 0 in the places that are left. A helper does not report them.
    pub unreadable_first: [u32; 3],
    /// Namespaces mounted as files, each mount counted.
    pub mounts: u32,
}

/// Bytes to read from `/proc` at once.
const BUFFER_BYTES: usize = 64 * 1024;

impl Default for Discovery {
    fn default() -> Discovery {
        Discovery {
            found: Vec::new(),
            by_inode: HashMap::new(),
            paths: Vec::new(),
            processes: Processes::default(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
        }
    }
}

impl Discovery {
    /// Scans again. Our own namespace, the calling thread's, is always the first of [`Self::namespaces`].
    ///
    /// A process hidden by `hidepid` or by another pid namespace is neither seen nor counted.
    ///
    /// # Errors
    /// When `/proc` cannot be read. A process that cannot be read is counted and skipped.
    pub fn scan(&mut self) -> io::Result<Scan> {
        let mut scan = Scan::default();
        let device = self.begin(&mut scan)?;
        let Discovery { found, by_inode, processes, buffer, .. } = self;
        processes.scan(buffer, &mut scan, |process, inode| {
            add_process(found, by_inode, Identity { device, inode }, process);
        })?;
        Ok(scan)
    }

    /// Scans for mounted namespaces again; those of processes stay as the last [`Self::scan`] found them. With 100 processes this
    /// takes a fifth of a full scan, with 3,000 a hundredth.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn scan_mounted(&mut self) -> io::Result<Scan> {
        let mut scan = Scan::default();
        let device = self.begin(&mut scan)?;
        let Discovery { found, by_inode, processes, .. } = self;
        processes.recall(&mut scan, |process, inode| {
            add_process(found, by_inode, Identity { device, inode }, process);
        });
        Ok(scan)
    }

    /// Finds our own namespace and the mounted ones. Returns the device number of nsfs.
    fn begin(&mut self, scan: &mut Scan) -> io::Result<u64> {
        self.found.clear();
        self.by_inode.clear();
        self.paths.clear();
        let own = identity_of_path(Path::new(OWN_PATH))?;
        self.slot(own);
        self.scan_mounts(scan)?;
        Ok(own.device)
    }

    /// Makes the next scan ask every process, for instance because a namespace was not where it was found.
    pub fn forget_processes(&mut self) {
        self.processes.forget();
    }

    /// The namespaces that the last scan found, each once, our own first.
    pub fn namespaces(&self) -> impl ExactSizeIterator<Item = Namespace<'_>> {
        self.found.iter().map(|found| self.namespace_of(found))
    }

    /// The namespace at this index of [`Self::namespaces`].
    pub fn namespace(&self, place: usize) -> Option<Namespace<'_>> {
        self.found.get(place).map(|found| self.namespace_of(found))
    }

    fn namespace_of(&self, found: &Found) -> Namespace<'_> {
        let path = self.paths.get(found.path.clone()).filter(|path| !path.is_empty());
        Namespace {
            id: found.id,
            path: path.map(|path| Path::new(OsStr::from_bytes(path))),
            process: found.process,
        }
    }

    fn slot(&mut self, id: Identity) -> &mut Found {
        slot(&mut self.found, &mut self.by_inode, id)
    }

    /// Reads `/proc/self/mountinfo` (proc_pid_mountinfo(5)) line by line.
    fn scan_mounts(&mut self, scan: &mut Scan) -> io::Result<()> {
        let mut file = File::open("/proc/self/mountinfo")?;
        // Taken out for the loop: `add_mount` borrows the rest.
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

            // A line that fills the whole buffer does not describe a namespace.
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
}

fn add_process(
    found: &mut Vec<Found>,
    by_inode: &mut HashMap<u64, usize>,
    id: Identity,
    process: u32,
) {
    let found = slot(found, by_inode, id);
    found.process = found.process.or(Some(process));
}

fn slot<'a>(
    found: &'a mut Vec<Found>,
    by_inode: &mut HashMap<u64, usize>,
    id: Identity,
) -> &'a mut Found {
    let next = found.len();
    let index = *by_inode.entry(id.inode).or_insert(next);
    if index == next {
        found.push(Found { id, path: 0..0, process: None });
    }
    &mut found[index]
}

/// Calls `f` with the path of a process's namespace, without allocating.
pub(super) fn with_process_path<R>(process: u32, f: impl FnOnce(&Path) -> R) -> R {
    let mut bytes = [0; 40];
    let room = bytes.len();
    let mut rest = &mut bytes[..];
    write!(rest, "/proc/{process}/ns/net").expect("a u32 has at most ten digits");
    let len = room - rest.len();
    f(Path::new(OsStr::from_bytes(&bytes[..len])))
}

/// Parses `net:[4026531840]`.
fn inode_of_link(link: &[u8]) -> Option<u64> {
    let digits = link.strip_prefix(b"net:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Identity and escaped mount point of a mountinfo line that shows a network namespace.
fn parse_mount(line: &[u8]) -> Option<(Identity, &[u8])> {
    let mount = Mount::parse(line)?;
    let inode = inode_of_link(mount.root)?;
    Some((Identity { device: mount.device_number()?, inode }, mount.point))
}

fn is_named_by_ip(path: &[u8]) -> bool {
    path.starts_with(b"/run/netns/") || path.starts_with(b"/var/run/netns/")
}
