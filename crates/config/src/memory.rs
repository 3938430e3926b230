//! Checks that the memory for a configuration's rings exists: the kernel grants more than it has, and kills the process when the
//! memory is used.

use crate::{Config, FlowsBudget, ListenerBudget};
use std::fs;
use std::path::{Path, PathBuf};
use text::size;

/// The limits on this process's memory; `None` where a limit cannot be read or does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory available without swapping (`MemAvailable`), in bytes; `MemTotal` at the start.
    available_bytes: Option<u64>,
    /// The lowest limit of the control groups that contain the process, in bytes.
    cgroup_bytes: Option<u64>,
}

impl Limits {
    /// The limits for memory taken while the process runs, on top of what is in use.
    pub fn now() -> Limits {
        Limits { available_bytes: meminfo("MemAvailable:"), cgroup_bytes: cgroup_limit() }
    }

    /// The limits for a starting process. Memory that others use at this moment does not keep it from starting.
    pub fn at_start() -> Limits {
        Limits { available_bytes: meminfo("MemTotal:"), cgroup_bytes: cgroup_limit() }
    }
}

/// Says so if a configuration may take more than the control group allows: the kernel would then kill the process, if it ever does.
pub fn warning(config: &Config, limits: Limits) -> Option<String> {
    let budget = config.budget();
    let needed = budget.process_bytes().saturating_add(budget.kernel_bytes());
    let limit = limits.cgroup_bytes.filter(|limit| *limit < needed)?;
    Some(format!(
        "the control group's memory limit is {}, and this configuration takes up to {}: beyond the limit the kernel kills the \
         process. Fix: raise the limit (`weir config check --systemd` prints it for a unit, --json for others)",
        size(limit),
        size(needed)
    ))
}

/// Fails if the rings of the `fresh` listeners (by index in the configuration) need more memory than is available, or if all
/// rings together need more than the control group allows. The sFlow analysis counts like a ring; it may already use up to
/// `analyzed_bytes`.
///
/// # Errors
/// A message that names the largest ring, the limit, and the fix.
pub fn refuse_rings_that_do_not_fit(
    config: &Config,
    fresh: impl Fn(usize) -> bool,
    analyzed_bytes: u64,
    limits: Limits,
) -> Result<(), String> {
    let budget = config.budget();
    let bytes = |one: &ListenerBudget| {
        one.ring_bytes.saturating_add(one.descriptor_bytes).saturating_add(one.member_bytes)
    };
    let sum = |is_in: &dyn Fn(usize) -> bool| {
        let all = budget.listeners.iter().enumerate().filter(|(at, _)| is_in(*at));
        all.fold(0_u64, |sum, (_, one)| sum.saturating_add(bytes(one)))
    };

    let figures = budget.flows.as_ref().map_or(0, FlowsBudget::process_bytes);
    let grown = figures.saturating_sub(analyzed_bytes);
    let (needed, total) =
        (sum(&fresh).saturating_add(grown), sum(&|_| true).saturating_add(figures));

    let why = match limits {
        Limits { available_bytes: Some(limit), .. } if needed > limit => {
            format!("this host has {} of memory for them", size(limit))
        }
        Limits { cgroup_bytes: Some(limit), .. } if total > limit => {
            format!("the control group's memory limit is {}", size(limit))
        }
        _ if !can_be_reserved(needed) => "the kernel refuses to reserve it".to_owned(),
        _ => return Ok(()),
    };

    if figures > total / 2 {
        return Err(format!(
            "[flows] needs up to {} of memory: {why}. Fix: lower flows_max, agents_max or sources_max",
            size(figures)
        ));
    }
    let largest = budget.listeners.iter().max_by_key(|one| bytes(one));
    let (name, ring) = largest.map_or(("", 0), |one| (one.name.as_str(), one.ring_bytes));
    Err(format!(
        "the rings need {} of memory with their descriptors, the largest is ring_size = \"{}\" of listener {name}: {why}. \
         Fix: lower ring_size",
        size(total.max(needed)),
        size(ring),
    ))
}

/// Whether the kernel reserves that much address space. This finds limits that cannot be read (`ulimit -v`, overcommit).
fn can_be_reserved(bytes: u64) -> bool {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// The lowest memory limit of the process's control group and its ancestors.
fn cgroup_limit() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    text.lines().filter_map(|line| limit_of(line, Path::new("/sys/fs/cgroup"))).min()
}

/// The limit from one line of `/proc/self/cgroup` (cgroups(7)): `0::/path`, or `4:memory:/path` in version 1.
fn limit_of(line: &str, mounted: &Path) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => (mounted.to_owned(), "memory.max"),
        "memory" => (mounted.join("memory"), "memory.limit_in_bytes"),
        _ => return None,
    };

    let mut folder: PathBuf = root.join(path.trim_start_matches('/'));
    let mut least = None;

    // In a container the path may be the one outside. Then only the root exists here, and it is the container's own group.
    while folder.starts_with(&root) {
        // `max` does not parse, and means no limit.
        let limit = fs::read_to_string(folder.join(file)).ok();
        let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
        least = match (least, limit) {
            (Some(least), Some(limit)) => Some(limit.min(least)),
            (least, limit) => least.or(limit),
        };
        if !folder.pop() {
            break;
        }
    }

    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(sizes: &[&str]) -> Config {
        let listener = |(at, size): (usize, &&str)| {
            format!(
                "[[listener]]\nname = \"l{at}\"\nlisten = \"127.0.0.1:{}\"\nring_size = \"{size}\"\n\
                 [[listener.target]]\nto = \"null:\"\n",
                5_000 + at
            )
        };
        let text: String = sizes.iter().enumerate().map(listener).collect();
        Config::parse(&text, "test").unwrap()
    }

    fn check(sizes: &[&str], fresh: &[usize], limits: (u64, u64), expected: Option<&str>) {
        let (available, cgroup) = limits;
        let limits =
            Limits { available_bytes: Some(available << 20), cgroup_bytes: Some(cgroup << 20) };
        let result =
            refuse_rings_that_do_not_fit(&rings(sizes), |at| fresh.contains(&at), 0, limits);
        match (result, expected) {
            (Ok(()), None) => {}
            (Err(said), Some(part)) if said.contains(part) => {}
            (said, expected) => panic!("{said:?}, not {expected:?}"),
        }
    }

    #[test]
    fn rings_fit_or_the_largest_is_named() {
        check(&["8MiB", "16MiB"], &[0, 1], (100, 100), None);
        check(&["8MiB", "16MiB"], &[0, 1], (20, 100), Some("this host has 20 MiB"));
        check(&["8MiB", "16MiB"], &[0, 1], (20, 100), Some("of listener l1"));
        // Running listeners already have their memory.
        check(&["8MiB", "16MiB"], &[0], (20, 100), None);
        check(
            &["8MiB", "16MiB"],
            &[0],
            (20, 30),
            Some("the control group's memory limit is 30 MiB"),
        );
    }

    #[test]
    fn a_limit_below_what_the_configuration_may_take_is_named() {
        let warned = |mib: u64| {
            let limits = Limits { available_bytes: None, cgroup_bytes: Some(mib << 20) };
            warning(&rings(&["8MiB"]), limits)
        };
        let text = warned(16).unwrap();
        assert!(text.contains("limit is 16 MiB") && text.contains("--systemd"), "{text}");
        assert_eq!(warned(64), None);
        assert_eq!(warning(&rings(&["8MiB"]), Limits::default()), None);
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let root = std::env::temp_dir().join(format!("weir-cgroup-{}", std::process::id()));
        let leaf = root.join("a/b");
        fs::create_dir_all(&leaf).unwrap();
        fs::write(leaf.join("memory.max"), "max\n").unwrap();
        fs::write(root.join("a/memory.max"), "1048576\n").unwrap();
        fs::write(root.join("memory.max"), "2097152\n").unwrap();
        assert_eq!(limit_of("0::/a/b", &root), Some(1_048_576));
        assert_eq!(limit_of("0::/elsewhere", &root), Some(2_097_152));
        assert_eq!(limit_of("1:cpu:/a/b", &root), None);
        fs::remove_dir_all(root).unwrap();
    }
}
