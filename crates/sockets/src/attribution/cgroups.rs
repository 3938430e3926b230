mod cache;
mod cgroup;
mod walk;

pub use cgroup::Cgroup;

use super::CgroupMount;
use cache::{Cache, Slot};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::cgroup::Mount;
use walk::{Walk, WalkLimits};

/// Limits on the cache and on the cost of a walk.
#[derive(Clone, Debug)]
pub struct CgroupOptions {
    /// Maximum number of cgroups kept, including unknown ones. At least 1.
    pub max_cgroups: usize,
    /// Maximum size of the paths and names kept, in bytes. One cgroup has at most 4 KiB.
    pub max_bytes: usize,
    /// Minimum time between two walks of the hierarchy.
    pub walk_interval: Duration,
    /// How long an id without a directory is assumed to have none.
    pub unknown_for: Duration,
    /// Maximum number of directories that one walk visits.
    pub max_walk_directories: usize,
    /// Maximum duration of one walk.
    pub max_walk_time: Duration,
}

impl Default for CgroupOptions {
    fn default() -> CgroupOptions {
        CgroupOptions {
            max_cgroups: 16_384,
            max_bytes: 4 << 20,
            walk_interval: Duration::from_secs(10),
            unknown_for: Duration::from_secs(60),
            max_walk_directories: 65_536,
            max_walk_time: Duration::from_millis(250),
        }
    }
}

/// How the path for an id is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// No cgroup v2 hierarchy is mounted, so no path is ever found.
    Nothing,
    /// By walking all directories, whose inode numbers are the ids. Needs no privilege.
    Walk,
    /// Directly by id, as a file handle. The cost does not depend on the number of cgroups. Needs `CAP_DAC_READ_SEARCH` in the
    /// initial user namespace, and Linux 5.5.
    Handle,
}

/// Counts since the cache was created. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupCounts {
    /// Lookups that the cache could not answer. Repeated lookups of an id that is assumed to have no directory are not counted.
    pub misses: u64,
    /// Misses that found no directory: the cgroup was removed, is outside the mount, or has to wait for the next walk.
    pub unknown: u64,
    /// Entries evicted to make room for others.
    pub evicted: u64,
    /// Walks of the hierarchy.
    pub walks: u64,
    /// Walks that stopped at a limit before they had seen everything.
    pub walks_cut: u64,
}

/// Cache of the cgroups of sockets: from the id in `INET_DIAG_CGROUP_ID` to the path and what it says. For one thread.
///
/// The kernel never reuses an id for another cgroup (fs/kernfs/dir.c, `__kernfs_new_node`: number and generation), and version 2
/// has no rename, so an entry stays valid and outlives the directory.
#[derive(Debug)]
pub struct Cgroups {
    mount: Option<CgroupMount>,
    handles: Option<Mount>,
    options: CgroupOptions,
    cache: Cache,
    last_walk: Option<Instant>,
    counts: CgroupCounts,
}

impl Cgroups {
    /// A cache for the hierarchy that this process sees. Without one, every lookup returns `None`.
    ///
    /// # Errors
    /// Any error of reading `/proc/self/mountinfo`.
    pub fn open(options: CgroupOptions) -> io::Result<Cgroups> {
        Ok(Cgroups::at(CgroupMount::find()?, options))
    }

    /// A cache for a hierarchy mounted elsewhere.
    pub fn at(mount: Option<CgroupMount>, options: CgroupOptions) -> Cgroups {
        let handles = mount.as_ref().and_then(|mount| Mount::open(&mount.point).ok());
        Cgroups { handles, ..Cgroups::by_walk(mount, options) }
    }

    /// Like [`Cgroups::at`], but without trying what needs privilege.
    pub fn by_walk(mount: Option<CgroupMount>, options: CgroupOptions) -> Cgroups {
        let cache = Cache::new(options.max_cgroups, options.max_bytes);
        let counts = CgroupCounts::default();
        Cgroups { mount, handles: None, options, cache, last_walk: None, counts }
    }

    /// Where paths are searched.
    pub fn mount(&self) -> Option<&CgroupMount> {
        self.mount.as_ref()
    }

    /// How paths are found. [`Lookup::Handle`] becomes [`Lookup::Walk`] at the first lookup that is not permitted.
    pub fn lookup_by(&self) -> Lookup {
        match (&self.mount, &self.handles) {
            (None, _) => Lookup::Nothing,
            (Some(_), None) => Lookup::Walk,
            (Some(_), Some(_)) => Lookup::Handle,
        }
    }

    /// Counts since the start.
    pub fn counts(&self) -> CgroupCounts {
        CgroupCounts { evicted: self.cache.evicted(), ..self.counts }
    }

    /// The cgroup with this id; `None` while it is unknown. `now` is a clock reading not older than the last one: one per poll is
    /// enough.
    ///
    /// Clone the `Arc` to keep it beyond the cache.
    pub fn lookup(&mut self, id: u64, now: Instant) -> Option<&Arc<Cgroup>> {
        let slot = match self.cache.find(id) {
            Some(slot) if self.cache.is_settled(slot, now) => slot,
            _ => self.miss(id, now)?,
        };
        self.cache.cgroup(slot)
    }

    fn miss(&mut self, id: u64, now: Instant) -> Option<Slot> {
        self.counts.misses += 1;
        // The kernel reports 0 when the socket has no cgroup.
        if self.mount.is_none() || id == 0 {
            return None;
        }

        let (slot, retry_at) = self.by_handle(id, now).unwrap_or_else(|| self.walk_for(id, now));
        if slot.is_none() {
            self.counts.unknown += 1;
            self.cache.put_unknown(id, now, retry_at);
        }
        slot
    }

    /// `None` when handles may not be used; they are not tried again.
    fn by_handle(&mut self, id: u64, now: Instant) -> Option<(Option<Slot>, Instant)> {
        let (mount, handles) = (self.mount.as_ref()?, self.handles.as_ref()?);
        match handles.path_of(id) {
            Ok(directory) => {
                let cgroup = Cgroup::new(id, &mount.path_of(&directory));
                Some((Some(self.cache.put(cgroup)), now))
            }
            Err(error) if is_refused(&error) => {
                self.handles = None;
                None
            }
            Err(_) => Some((None, now + self.options.unknown_for)),
        }
    }

    fn walk_for(&mut self, id: u64, now: Instant) -> (Option<Slot>, Instant) {
        let CgroupOptions { walk_interval, unknown_for, .. } = self.options;
        if let Some(last) = self.last_walk.filter(|last| now < *last + walk_interval) {
            // An id that waited for the last walk was not found by it. Any other may belong to a cgroup created since.
            let asked_at = self.cache.unknown_since(id).unwrap_or(now);
            let wait = if asked_at < last { unknown_for } else { walk_interval };
            return (None, last + wait.max(walk_interval));
        }

        self.last_walk = Some(now);
        self.walk(id);
        let found = self.cache.find(id).filter(|slot| self.cache.cgroup(*slot).is_some());
        (found, now + unknown_for)
    }

    /// Keeps the results of a walk: the requested cgroup always, the others while there is room.
    fn walk(&mut self, asked: u64) {
        let Some(mount) = &self.mount else { return };
        self.counts.walks += 1;
        let limits = WalkLimits {
            directories: self.options.max_walk_directories,
            time: self.options.max_walk_time,
        };

        let cache = &mut self.cache;
        let walk = Walk::new(&mount.point, limits).run(|id, below: &str| {
            // The others may be requested next, but nothing is evicted for them.
            if id == asked || (cache.has_room() && !cache.knows(id)) {
                cache.put(Cgroup::new(id, &mount.path_in_hierarchy(below)));
            }
        });

        self.counts.walks_cut += u64::from(walk.is_cut());
    }
}

/// Whether handles cannot be used at all: a capability is missing, the kernel is too old, or a seccomp filter refuses.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}
