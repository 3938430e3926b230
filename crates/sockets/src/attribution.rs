//! Who a socket belongs to: its cgroup and what the path reveals, its process, its user, its host.
//!
//! - [`cgroup_path`]: from the text of a path to pod, container and unit.
//! - [`Cgroups`]: from the id that the kernel reports with a socket to a path, cached.
//! - [`Processes`]: from the inode of a socket to the processes that hold it, on demand.
//! - [`Users`], [`Host`]: names for uids, and for this machine.
//!
//! None of this asks a container runtime, and the rest of the collector works without it. What may not be read is counted and
//! stays absent.

pub mod cgroup_path;

mod cgroups;
mod holders;
mod host;
mod machine;
mod mounts;
mod processes;
mod users;

pub(crate) use holders::{Holder, Holders};

pub use cgroups::{Cgroup, CgroupCounts, CgroupOptions, Cgroups, Lookup};
pub use host::{Host, HostOptions};
pub use mounts::CgroupMount;
pub use processes::{Process, ProcessOptions, Processes, ScanSummary};
pub use users::Users;

/// Attribution sources, as far as they are in use.
pub(crate) struct Attribution {
    /// `None` when cgroups cannot be looked up.
    pub(crate) cgroups: Option<Cgroups>,
    /// Which processes hold which sockets, as of this poll. `None` when nothing needs it.
    pub(crate) processes: Option<Processes>,
    /// The processes of former polls, for closes.
    pub(crate) holders: Holders,
}

impl Attribution {
    pub(crate) fn open() -> Attribution {
        Attribution {
            cgroups: Cgroups::open(CgroupOptions::default()).ok(),
            processes: None,
            holders: Holders::default(),
        }
    }

    /// Takes the result of the poll's scan.
    pub(crate) fn adopt(&mut self, mut processes: Processes, poll: u32) {
        self.holders.adopt(&mut processes, poll);
        self.processes = Some(processes);
    }

    /// The process that holds a socket, as of this poll.
    pub(crate) fn holder(&self, inode: u32) -> Option<Holder> {
        self.processes.as_ref().filter(|_| inode != 0)?.holder(inode.into())
    }
}
