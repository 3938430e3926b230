use super::{Ancestors, Name};

/// The runtime of a container, as far as the path tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    Containerd,
    Crio,
    Docker,
    /// Amazon ECS, if the path does not name Docker.
    Ecs,
    /// Cloud Foundry and Concourse.
    Garden,
    Kata,
    Lxc,
    Mesos,
    /// systemd-nspawn, or another program that registered a container with systemd-machined.
    Nspawn,
    Podman,
    /// A virtual machine that libvirt registered with systemd-machined.
    Qemu,
}

impl Runtime {
    /// Stable lower-case word for records.
    pub fn as_str(self) -> &'static str {
        match self {
            Runtime::Containerd => "containerd",
            Runtime::Crio => "crio",
            Runtime::Docker => "docker",
            Runtime::Ecs => "ecs",
            Runtime::Garden => "garden",
            Runtime::Kata => "kata",
            Runtime::Lxc => "lxc",
            Runtime::Mesos => "mesos",
            Runtime::Nspawn => "systemd-nspawn",
            Runtime::Podman => "podman",
            Runtime::Qemu => "qemu",
        }
    }
}

type Found<'a> = (Name<'a>, Option<Runtime>);

/// Prefixes of names that end in the 64 digits of an id. Of those that start alike, the longest comes first.
const PREFIXES: &[(&str, Runtime)] = &[
    ("cri-containerd-", Runtime::Containerd),
    ("nerdctl-", Runtime::Containerd),
    ("crio-conmon-", Runtime::Crio),
    ("crio-", Runtime::Crio),
    ("docker-", Runtime::Docker),
    ("libpod-conmon-", Runtime::Podman),
    ("libpod-payload-", Runtime::Podman),
    ("libpod-", Runtime::Podman),
    ("kata_", Runtime::Kata),
];

/// The container whose directory is `component`, below `above`.
pub(super) fn of<'a>(component: &'a str, above: &Ancestors<'_>) -> Option<Found<'a>> {
    prefixed(component)
        .or_else(|| in_three_parts(component))
        .or_else(|| machine(component))
        .or_else(|| lxc(component, above))
        .or_else(|| bare(component, above))
        .or_else(|| named(component, above))
}

/// `docker-<id>.scope` and similar; without the suffix under the cgroupfs driver.
fn prefixed(component: &str) -> Option<Found<'_>> {
    let stem = component.strip_suffix(".scope").unwrap_or(component);
    let (id, runtime) = PREFIXES
        .iter()
        .find_map(|(prefix, runtime)| Some((stem.strip_prefix(prefix)?, *runtime)))?;
    is_id(id).then(|| (Name::plain(id), Some(runtime)))
}

/// `<slice>:<prefix>:<id>`: the form meant for the systemd driver, written verbatim by the cgroupfs driver.
fn in_three_parts(component: &str) -> Option<Found<'_>> {
    let (slice_and_prefix, id) = component.rsplit_once(':')?;
    let (_, prefix) = slice_and_prefix.rsplit_once(':')?;

    let runtime = match prefix {
        "cri-containerd" | "nerdctl" => Some(Runtime::Containerd),
        "crio" => Some(Runtime::Crio),
        "docker" => Some(Runtime::Docker),
        "libpod" => Some(Runtime::Podman),
        // The id is certain, the runtime is not.
        _ => None,
    };

    is_id(id).then(|| (Name::plain(id), runtime))
}

/// systemd-machined's scopes and nspawn's services.
fn machine(component: &str) -> Option<Found<'_>> {
    let service =
        component.strip_prefix("systemd-nspawn@").and_then(|rest| rest.strip_suffix(".service"));
    let scope = component.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope"));
    let name = service.or(scope).filter(|name| is_systemd_name(name))?;

    let runtime = match name {
        _ if name.starts_with("qemu\\x2d") => Runtime::Qemu,
        _ if name.starts_with("lxc\\x2d") => Runtime::Lxc,
        _ => Runtime::Nspawn,
    };

    Some((Name::of_systemd(name), Some(runtime)))
}

/// `lxc.payload.NAME` (LXC 4), `lxc.payload/NAME` (3.1), `lxc/NAME` (before, and Proxmox).
fn lxc<'a>(component: &'a str, above: &Ancestors<'_>) -> Option<Found<'a>> {
    let joined =
        component.strip_prefix("lxc.payload.").or_else(|| component.strip_prefix("lxc.monitor."));
    let below =
        || matches!(above.parent, "lxc" | "lxc.payload" | "lxc.monitor").then_some(component);
    let name = joined.or_else(below).filter(|name| is_name(name))?;
    Some((Name::plain(name), Some(Runtime::Lxc)))
}

/// An id with nothing around it: the directory above tells the runtime.
fn bare<'a>(component: &'a str, above: &Ancestors<'_>) -> Option<Found<'a>> {
    if !is_id(component) {
        return None;
    }

    let runtime = match above.parent {
        "docker" => Some(Runtime::Docker),
        "libpod_parent" => Some(Runtime::Podman),
        "crio" => Some(Runtime::Crio),
        "kata_overhead" => Some(Runtime::Kata),
        "garden" => Some(Runtime::Garden),
        "mesos" => Some(Runtime::Mesos),
        parent if is_containerd_namespace(parent) => Some(Runtime::Containerd),
        _ if above.grandparent == "ecs" => Some(Runtime::Ecs),
        _ => None,
    };

    Some((Name::plain(component), runtime))
}

/// Names of other forms, accepted only if the directories above leave no doubt.
fn named<'a>(component: &'a str, above: &Ancestors<'_>) -> Option<Found<'a>> {
    let garden = above.parent == "garden"
        || (above.grandparent == "garden" && matches!(above.parent, "good" | "bad"));

    let runtime = match above.parent {
        _ if above.ecs && is_fargate_id(component) => Runtime::Ecs,
        _ if garden && !matches!(component, "good" | "bad") => Runtime::Garden,
        "mesos" => Runtime::Mesos,
        // containerd allows any name for a namespace. Directly below the root, only its usual names cannot be something else.
        parent if above.depth == 1 && is_containerd_namespace(parent) => Runtime::Containerd,
        _ => return None,
    };

    is_name(component).then(|| (Name::plain(component), Some(runtime)))
}

fn is_containerd_namespace(component: &str) -> bool {
    matches!(component, "default" | "k8s.io" | "moby" | "buildkit")
}

/// 64 digits, as Docker, containerd, CRI-O and podman generate them.
fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(is_lower_hex)
}

/// `<32 hexadecimal digits>-<decimal digits>`: a container of a Fargate task.
fn is_fargate_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(task, number)| {
        task.len() == 32
            && task.bytes().all(is_lower_hex)
            && (1..=20).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// A name that people give to containers: no white space, no control characters, and nothing special in a shell or a path.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && text.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b':')
        })
}

fn is_systemd_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(super::unit::is_unit_byte)
}
