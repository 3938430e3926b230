//! What `/proc` and `/sys` say about a host. Tests read prepared trees instead.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A host, as described by files below a root.
pub(crate) struct Host {
    root: PathBuf,
    /// The path of this program, for commands that name it.
    program: PathBuf,
}

impl Host {
    /// The host that this process runs on.
    pub(crate) fn this() -> Host {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("weir"));
        Host { root: PathBuf::from("/"), program }
    }

    #[cfg(test)]
    pub(crate) fn at(root: &Path, program: &str) -> Host {
        Host { root: root.to_owned(), program: PathBuf::from(program) }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The text of a file; `None` if the host does not have or show it.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// The names in a folder, sorted; empty if there is no folder.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Whether a path exists.
    pub(super) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Number of online processors; 1 if unknown.
    pub(super) fn cpu_count(&self) -> usize {
        let online = self.read("sys/devices/system/cpu/online");
        let online: Option<sys::cpus::CpuList> = online.and_then(|list| list.trim().parse().ok());
        online.map_or(1, |list| list.numbers().len())
    }

    /// The text of a sysctl such as `net.core.rmem_max`; `None` if the kernel or the container does not show it.
    pub(crate) fn sysctl_text(&self, name: &str) -> Option<String> {
        // A dot within a part of the name, as in `eth0.100`, is written as a slash (sysctl(8)).
        let swap = |c| match c {
            '.' => '/',
            '/' => '.',
            c => c,
        };
        let path: String = name.chars().map(swap).collect();
        let text = self.read(&format!("proc/sys/{path}"))?;
        Some(text.trim().to_owned())
    }

    /// A sysctl with a single number.
    pub(crate) fn sysctl(&self, name: &str) -> Option<u64> {
        self.sysctl_text(name)?.parse().ok()
    }

    /// Whether this process has a capability, by its bit (capabilities(7)).
    pub(crate) fn has_capability(&self, bit: u32) -> bool {
        let Some(status) = self.read("proc/self/status") else { return false };
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0);
        set >> bit & 1 == 1
    }

    /// The soft limit of open files; `None` if there is none.
    pub(crate) fn open_files_limit(&self) -> Option<u64> {
        let limits = self.read("proc/self/limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Number of network namespaces that have processes or are mounted, as far as this user can see.
    pub(crate) fn network_namespaces(&self) -> usize {
        let is_process = |name: &std::ffi::OsStr| {
            name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        };

        let folders = fs::read_dir(self.root.join("proc")).into_iter().flatten().flatten();
        let of_processes = folders.filter(|folder| is_process(&folder.file_name()));
        let links = of_processes.filter_map(|folder| {
            let link = fs::read_link(folder.path().join("ns/net")).ok()?;
            Some(link.to_str()?.to_owned())
        });

        let mounts = self.read("proc/self/mountinfo").unwrap_or_default();
        let mounted = mounts.lines().filter_map(|line| line.split(' ').nth(3));
        let mounted = mounted.filter(|root| root.starts_with("net:[")).map(str::to_owned);

        links.chain(mounted).collect::<BTreeSet<String>>().len()
    }

    /// A counter of `/proc/net/snmp`, such as `Udp` `RcvbufErrors`, plus the one of the same name in `/proc/net/snmp6`.
    pub(crate) fn snmp(&self, protocol: &str, counter: &str) -> Option<u64> {
        let text = self.read("proc/net/snmp")?;
        let mut rows =
            text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
        let (names, values) = (rows.next()?, rows.next()?);
        let at = names.split_whitespace().position(|name| name == counter)?;
        let v4: u64 = values.split_whitespace().nth(at)?.parse().ok()?;
        let wanted = format!("{protocol}6{counter}");
        let v6 = self.read("proc/net/snmp6").and_then(|text| {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(&wanted))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        Some(v4 + v6.unwrap_or(0))
    }

    /// Packets dropped because the queue between the network and the sockets was full, over all processors (second column of
    /// `/proc/net/softnet_stat`).
    pub(crate) fn softnet_drops(&self) -> Option<u64> {
        let text = self.read("proc/net/softnet_stat")?;
        let drops = text.lines().filter_map(|line| line.split_whitespace().nth(1));
        Some(drops.filter_map(|drops| u64::from_str_radix(drops, 16).ok()).sum())
    }
}
