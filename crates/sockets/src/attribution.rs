//! Who a socket belongs to: its cgroup and what the path says of it, its process, its user, its host.
//!
//! - [`cgroup_path`]: the text of a path to pod, container and unit.
//! - [`Cgroups`]: the id that the kernel reports with a socket to a path, kept.
//! - [`Processes`]: the inode of a socket to the processes that hold it, on demand.
//! - [`Users`], [`Host`]: names for uids, and for this machine.
//!
//! None of it asks a container runtime, and none is needed for the rest of the collector to work: what may not be read
//! is counted and stays absent.

pub mod cgroup_path;

mod cgroups;
mod host;
mod machine;
mod mounts;
mod processes;
mod users;

pub use cgroups::{Cgroup, CgroupCounts, CgroupOptions, Cgroups, Lookup};
pub use host::{Host, HostOptions};
pub use mounts::CgroupMount;
pub use processes::{Process, ProcessOptions, Processes, ScanSummary};
pub use users::Users;

/// Who owns sockets, as far as anybody has asked.
pub(crate) struct Attribution {
    /// `None` where no cgroups can be looked up.
    pub(crate) cgroups: Option<Cgroups>,
    /// Who holds which socket, as of this poll; `None` if nobody asked.
    pub(crate) processes: Option<Processes>,
}

impl Attribution {
    pub(crate) fn open() -> Attribution {
        Attribution { cgroups: Cgroups::open(CgroupOptions::default()).ok(), processes: None }
    }
}
