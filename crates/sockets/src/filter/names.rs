//! Names that a filter may use in place of numbers.

use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Resolves names to numbers. Names of a kind that an implementation does not provide are unknown.
pub trait Names {
    /// Port of a TCP service.
    fn service(&self, _name: &str) -> Option<u16> {
        None
    }

    /// Addresses of a host. Empty if it is unknown.
    fn host(&self, _name: &str) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Id of a user.
    fn user(&self, _name: &str) -> Option<u32> {
        None
    }

    /// Index of an interface in the calling thread's network namespace.
    fn device(&self, _name: &str) -> Option<u32> {
        None
    }

    /// Id of a cgroup in the version 2 hierarchy, by its path in the hierarchy or in the file system.
    fn cgroup(&self, _path: &str) -> Option<u64> {
        None
    }
}

/// Knows no names.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {}

/// This host's names: `/etc/services`, `/etc/passwd`, the resolver, the kernel's interfaces and cgroups.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNames;

impl Names for SystemNames {
    fn service(&self, name: &str) -> Option<u16> {
        service_in(&fs::read_to_string("/etc/services").ok()?, name)
    }

    fn host(&self, name: &str) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = (name, 0)
            .to_socket_addrs()
            .map(|found| found.map(|address| address.ip()).collect())
            .unwrap_or_default();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    fn user(&self, name: &str) -> Option<u32> {
        user_in(&fs::read_to_string("/etc/passwd").ok()?, name)
    }

    fn device(&self, name: &str) -> Option<u32> {
        sys::socket::interface_index(name).ok()
    }

    fn cgroup(&self, path: &str) -> Option<u64> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = cgroup_mount(&mounts)?;
        // The id is the inode number of the directory (kernfs, on 64-bit systems).
        let id = |path: &Path| {
            fs::metadata(path).ok().filter(fs::Metadata::is_dir).map(|found| found.ino())
        };

        let path = Path::new(path);
        if path.starts_with(mount) {
            return id(path);
        }
        id(&Path::new(mount).join(path.strip_prefix("/").unwrap_or(path)))
    }
}

/// `name port/protocol alias…`, comments after `#`.
pub(super) fn service_in(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let (service, number) = (words.next()?, words.next()?);
        let port = number.strip_suffix("/tcp")?;
        (service == name || words.any(|alias| alias == name)).then(|| port.parse().ok()).flatten()
    })
}

pub(super) fn user_in(passwd: &str, name: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut columns = line.split(':');
        (columns.next()? == name).then(|| columns.nth(1)?.parse().ok()).flatten()
    })
}

pub(super) fn cgroup_mount(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut columns = line.split(' ');
        let mount = columns.nth(1)?;
        (columns.next()? == "cgroup2").then_some(mount)
    })
}
