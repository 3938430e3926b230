//! What a cgroup's path says about who runs in it: pod, container, systemd unit.
//!
//! Only the text of the path is parsed: no container runtime's socket, no file. The forms are those written by runc, crun, the
//! kubelet (`pkg/kubelet/cm/cgroup_manager_linux.go`), podman, LXC, systemd (`src/basic/cgroup-util.c`) and cloud container
//! services. With nested containers, the innermost one is reported.

mod container;
mod name;
mod pod;
mod unit;

#[cfg(test)]
mod tests;

pub use container::Runtime;
pub use name::Name;

use unit::Units;

/// Longest path that is parsed, in bytes (`PATH_MAX`). Longer ones yield nothing.
pub const MAX_PATH_BYTES: usize = 4_096;

/// Longest directory name, in bytes (`NAME_MAX`). Longer components are never taken for names.
const MAX_COMPONENT_BYTES: usize = 255;

/// What a path says. All slices point into the parsed path. `None` when the path does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupPath<'a> {
    /// Uid of the Kubernetes pod; for a static pod, the 32 hexadecimal digits that the kubelet makes up.
    pub pod_uid: Option<Name<'a>>,
    /// Id (mostly 64 hexadecimal digits) or name (LXC, nspawn) of the innermost container.
    pub container_id: Option<Name<'a>>,
    /// The runtime of the container, if the path names it: the kubelet's own form does not.
    pub container_runtime: Option<Runtime>,
    /// Unit of the innermost systemd system manager, escaped as `systemctl` shows it. A slice alone is not a unit.
    pub systemd_unit: Option<&'a str>,
    /// Unit of the user's own manager, below `user@UID.service`.
    pub systemd_user_unit: Option<&'a str>,
    /// The deepest slice above the unit.
    pub systemd_slice: Option<&'a str>,
    /// Login session, such as `3` for `session-3.scope`.
    pub session: Option<&'a str>,
    /// Owner of the user slice, such as 1000 for `user-1000.slice`.
    pub owner_uid: Option<u32>,
}

/// Parses a path relative to the root of the cgroup hierarchy, as `/proc/PID/cgroup` shows it.
///
/// Never fails: components of an unknown form are skipped. Costs one pass and no allocation.
pub fn parse(path: &str) -> CgroupPath<'_> {
    let mut found = CgroupPath::default();
    if path.len() > MAX_PATH_BYTES {
        return found;
    }

    // The kernel's mark of a removed directory (fs/d_path.c, kernel/cgroup/cgroup.c proc_cgroup_show).
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);

    let mut units = Units::default();
    let mut above = Ancestors::default();

    for component in path.split('/').filter(|component| !matches!(*component, "" | "." | "..")) {
        if component.len() <= MAX_COMPONENT_BYTES {
            step(component, &above, &mut units, &mut found);
        }
        above.enter(component);
    }

    found
}

fn step<'a>(
    component: &'a str,
    above: &Ancestors<'_>,
    units: &mut Units,
    found: &mut CgroupPath<'a>,
) {
    if let Some(uid) = pod::uid(component, above.kubepods) {
        // A container further up the path is around the pod, not in it.
        found.pod_uid = Some(uid);
        found.container_id = None;
        found.container_runtime = None;
    }

    // A container's own directory is still a unit of the outer manager, so `units` sees it before entering.
    let container = container::of(component, above);
    units.step(component, found);
    if let Some((id, runtime)) = container {
        found.container_id = Some(id);
        found.container_runtime = runtime;
        units.enter_container();
    }
}

/// What is known about the directories above a component.
#[derive(Default)]
struct Ancestors<'a> {
    depth: usize,
    parent: &'a str,
    grandparent: &'a str,
    /// Below a directory in which the kubelet keeps its pods.
    kubepods: bool,
    /// Below a directory of Amazon's container agent.
    ecs: bool,
}

impl<'a> Ancestors<'a> {
    fn enter(&mut self, component: &'a str) {
        self.depth += 1;
        self.grandparent = self.parent;
        self.parent = component;
        self.kubepods |= pod::is_root(component);
        self.ecs |= matches!(component, "ecs" | "ecstasks.slice");
    }
}
