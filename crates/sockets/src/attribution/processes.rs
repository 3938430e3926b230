mod owners;
mod scan;

use owners::Owners;
use std::path::PathBuf;

/// Where to look for processes, and how much to keep.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The mounted proc file system.
    pub proc: PathBuf,
    /// Most sockets that are kept; the rest is counted. One takes some 32 bytes.
    pub max_sockets: usize,
    /// Most processes that are kept of one socket; the rest is counted. At least 1.
    pub max_owners: u32,
}

impl Default for ProcessOptions {
    fn default() -> ProcessOptions {
        ProcessOptions { proc: PathBuf::from("/proc"), max_sockets: 262_144, max_owners: 8 }
    }
}

/// What one scan saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanSummary {
    /// Processes there were.
    pub processes: u64,
    /// Of those, processes whose descriptors may not be read: other users', and those with capabilities that this one lacks.
    /// It takes `CAP_DAC_READ_SEARCH` to list them and `CAP_SYS_PTRACE` to see what they are; root has the first unless it was
    /// taken away.
    pub denied: u64,
    /// Of those, processes that were gone, or whose descriptors could not be read for another reason.
    pub vanished: u64,
    /// Descriptors that were looked at.
    pub descriptors: u64,
    /// Sockets that are not in the result because `max_sockets` was reached.
    pub sockets_cut: u64,
}

/// A process that holds a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process<'a> {
    /// Its id in the pid namespace of the proc file system.
    pub pid: u32,
    /// What it calls itself (`/proc/PID/comm`), at most 15 bytes of its own choice: any character but NUL, and what is not UTF-8
    /// replaced. Escape it before a terminal sees it. Empty if the process was gone before its name was read.
    pub name: &'a str,
}

/// Which processes hold which sockets, as one scan of `/proc/*/fd` found them. Sockets that no process holds (orphans, TIME-WAIT,
/// the kernel's own) are in none.
#[derive(Debug, Default)]
pub struct Processes {
    owners: Owners,
    summary: ScanSummary,
}

impl Processes {
    /// Looks at every process. What may not be read is counted.
    pub fn scan(options: &ProcessOptions) -> Processes {
        scan::all(options)
    }

    /// Looks at these processes only, for instance those of a cgroup. A socket made there may have been handed to others.
    pub fn scan_only(options: &ProcessOptions, pids: impl IntoIterator<Item = u32>) -> Processes {
        scan::only(options, pids)
    }

    /// What the scan saw.
    pub fn summary(&self) -> ScanSummary {
        self.summary
    }

    /// Number of sockets that are kept.
    pub fn sockets(&self) -> usize {
        self.owners.len()
    }

    /// The first process found that holds the socket: after [`Processes::scan`] the one with the lowest pid.
    pub fn owner(&self, inode: u64) -> Option<Process<'_>> {
        self.owners(inode).next()
    }

    /// All processes that hold the socket, up to `max_owners`.
    pub fn owners(&self, inode: u64) -> impl Iterator<Item = Process<'_>> {
        self.owners.of(inode)
    }

    /// How many processes hold the socket, those beyond `max_owners` included.
    pub fn owner_count(&self, inode: u64) -> u32 {
        self.owners.count(inode)
    }
}
