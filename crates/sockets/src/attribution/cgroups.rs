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

/// Bounds of what is kept and of what a walk may cost.
#[derive(Clone, Debug)]
pub struct CgroupOptions {
    /// Most cgroups that are kept, unknown ones included. At least 1.
    pub max_cgroups: usize,
    /// Most bytes of paths and names that are kept. One cgroup has 4 KiB at most.
    pub max_bytes: usize,
    /// Least time between two walks of the hierarchy.
    pub walk_interval: Duration,
    /// How long an id without a directory is taken to have none.
    pub unknown_for: Duration,
    /// Most directories that one walk visits.
    pub max_walk_directories: usize,
    /// Longest time that one walk takes.
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

/// How a path is found for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// No cgroup v2 hierarchy is mounted: no path is ever found.
    Nothing,
    /// By a walk of all directories, whose inode numbers are the ids. Needs no privilege.
    Walk,
    /// By the id alone, as a file handle: costs the same however many cgroups there are. Needs `CAP_DAC_READ_SEARCH` in the
    /// initial user namespace, and Linux 5.5.
    Handle,
}

/// What the cache did since it was made. Every count only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupCounts {
    /// Lookups that the cache could not answer. An id that is asked for again while it is taken to have no directory is not
    /// counted again.
    pub misses: u64,
    /// Misses that found no directory: the cgroup is removed, lies outside what is mounted, or waits for the next walk.
    pub unknown: u64,
    /// Entries that made room for others.
    pub evicted: u64,
    /// Walks of the hierarchy.
    pub walks: u64,
    /// Walks that ended at a bound before they had seen everything.
    pub walks_cut: u64,
}

/// The cgroups of sockets: from the id of `INET_DIAG_CGROUP_ID` to the path and what it says. For one thread.
///
/// The kernel never gives an id to a second cgroup (fs/kernfs/dir.c, `__kernfs_new_node`: number and generation), and version 2 has no
/// rename, so what was found once stays true, and outlives the directory.
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
    /// For the hierarchy that this process sees. Without one, every lookup is `None`.
    ///
    /// # Errors
    /// Any error of reading `/proc/self/mountinfo`.
    pub fn open(options: CgroupOptions) -> io::Result<Cgroups> {
        Ok(Cgroups::at(CgroupMount::find()?, options))
    }

    /// For a hierarchy mounted elsewhere.
    pub fn at(mount: Option<CgroupMount>, options: CgroupOptions) -> Cgroups {
        let handles = mount.as_ref().and_then(|mount| Mount::open(&mount.point).ok());
        Cgroups { handles, ..Cgroups::by_walk(mount, options) }
    }

    /// Like [`Cgroups::at`], without trying what needs privilege.
    pub fn by_walk(mount: Option<CgroupMount>, options: CgroupOptions) -> Cgroups {
        let cache = Cache::new(options.max_cgroups, options.max_bytes);
        let counts = CgroupCounts::default();
        Cgroups { mount, handles: None, options, cache, last_walk: None, counts }
    }

    /// Where paths are looked for.
    pub fn mount(&self) -> Option<&CgroupMount> {
        self.mount.as_ref()
    }

    /// How paths are looked for. [`Lookup::Handle`] becomes [`Lookup::Walk`] with the first lookup that is not permitted.
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

    /// The cgroup with this id; `None` while none is known. `now` is any clock reading not older than the last: one per poll will do.
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
        // The table has 0 where the kernel named no cgroup.
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

    /// `None` where handles may not be used; they are not tried again.
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
            // An id that waited for that walk was not found by it; any other may be of a cgroup that was made since.
            let asked_at = self.cache.unknown_since(id).unwrap_or(now);
            let wait = if asked_at < last { unknown_for } else { walk_interval };
            return (None, last + wait.max(walk_interval));
        }

        self.last_walk = Some(now);
        self.walk(id);
        let found = self.cache.find(id).filter(|slot| self.cache.cgroup(*slot).is_some());
        (found, now + unknown_for)
    }

    /// Keeps what a walk finds: the cgroup asked for always, the others while there is room.
    fn walk(&mut self, asked: u64) {
        let Some(mount) = &self.mount else { return };
        self.counts.walks += 1;
        let limits = WalkLimits {
            directories: self.options.max_walk_directories,
            time: self.options.max_walk_time,
        };

        let cache = &mut self.cache;
        let walk = Walk::new(&mount.point, limits).run(|id, below: &str| {
            // The others may be asked for next, but none that is kept is evicted for them.
            if id == asked || (cache.has_room() && !cache.knows(id)) {
                cache.put(Cgroup::new(id, &mount.path_in_hierarchy(below)));
            }
        });

        self.counts.walks_cut += u64::from(walk.is_cut());
    }
}

/// Whether handles cannot be used at all: a capability is missing, the kernel is too old, or a system call filter refuses.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}
