mod owners;
mod scan;

use super::Holder;
use owners::Owners;
use std::path::PathBuf;

/// Where to search for processes, and how much to keep.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The mounted proc file system.
    pub proc: PathBuf,
    /// Maximum number of sockets kept; the rest is counted. One takes about 32 bytes.
    pub max_sockets: usize,
    /// Maximum number of processes kept per socket; the rest is counted. At least 1.
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
    /// Number of processes.
    pub processes: u64,
    /// Of those, processes whose descriptors may not be read: those of other users, and those with capabilities that this process
    /// lacks. Listing descriptors takes `CAP_DAC_READ_SEARCH`, and reading what they are takes `CAP_SYS_PTRACE`; root has the
    /// first unless it was dropped.
    pub denied: u64,
    /// Of those, processes that were gone, or whose descriptors could not be read for another reason.
    pub vanished: u64,
    /// Descriptors examined.
    pub descriptors: u64,
    /// Sockets missing from the result because `max_sockets` was reached.
    pub sockets_cut: u64,
}

/// A process that holds a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process<'a> {
    /// Its id in the pid namespace of the proc file system.
    pub pid: u32,
    /// The name it gives itself (`/proc/PID/comm`), at most 15 bytes of any characters but NUL; invalid UTF-8 is replaced. Escape
    /// it before it reaches a terminal. Empty if the process was gone before its name was read.
    pub name: &'a str,
}

/// Which processes hold which sockets, as found by one scan of `/proc/*/fd`. Sockets that no process holds (orphans, TIME-WAIT,
/// the kernel's own) do not appear.
#[derive(Debug, Default)]
pub struct Processes {
    pub(super) owners: Owners,
    summary: ScanSummary,
}

impl Processes {
    /// Scans every process. Counts what may not be read.
    pub fn scan(options: &ProcessOptions) -> Processes {
        scan::all(options)
    }

    /// Scans only these processes, for instance those of a cgroup. Their sockets may have been passed on to others.
    pub fn scan_only(options: &ProcessOptions, pids: impl IntoIterator<Item = u32>) -> Processes {
        scan::only(options, pids)
    }

    /// Counts of the scan.
    pub fn summary(&self) -> ScanSummary {
        self.summary
    }

    /// Number of sockets kept.
    pub fn sockets(&self) -> usize {
        self.owners.len()
    }

    /// The first process found that holds the socket. After [`Processes::scan`], that is the one with the lowest pid.
    pub fn owner(&self, inode: u64) -> Option<Process<'_>> {
        self.owners(inode).next()
    }

    /// The number of that process, if the collector numbered the processes of this scan.
    pub(crate) fn holder(&self, inode: u64) -> Option<Holder> {
        self.owners.holder(inode)
    }

    /// All processes that hold the socket, up to `max_owners`.
    pub fn owners(&self, inode: u64) -> impl Iterator<Item = Process<'_>> {
        self.owners.of(inode)
    }

    /// Number of processes that hold the socket, including those beyond `max_owners`.
    pub fn owner_count(&self, inode: u64) -> u32 {
        self.owners.count(inode)
    }
}
