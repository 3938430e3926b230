//! Network namespaces for tests. Call `need_root_netns()` first.

use crate::process::run;
use crate::wait::within;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use sys::namespace::{Home, Identity, OpenNamespace};

/// A namespace mounted by `ip netns`, with loopback up. It is removed with this value, together with its links.
pub struct Netns {
    /// Its name in `ip netns`.
    pub name: String,
}

impl Netns {
    /// Creates one.
    #[expect(clippy::new_without_default, reason = "it makes a namespace, which no default should")]
    pub fn new() -> Netns {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = || COUNT.fetch_add(1, Ordering::Relaxed);
        let mut names = iter::repeat_with(|| format!("weir-{}-{}", std::process::id(), number()));
        // A process that had this id before was killed and could not remove its own.
        let name = names.find(|name| !Path::new("/run/netns").join(name).exists());
        let netns = Netns { name: name.unwrap() };
        run(Command::new("ip").args(["netns", "add", &netns.name]));
        netns.ip("link set lo up");
        netns
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// A descriptor of it.
    pub fn open(&self) -> OpenNamespace {
        OpenNamespace::open(&self.path()).unwrap()
    }

    /// Its device and inode.
    pub fn id(&self) -> Identity {
        self.open().id()
    }

    /// Runs `f` inside. Threads that it starts stay there.
    pub fn inside<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        Home::remember().unwrap().enter(&self.open(), f).unwrap()
    }

    /// A program inside it; arguments may be added.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `ip` inside it, with arguments as typed in a shell.
    pub fn ip(&self, args: &str) -> String {
        run(Command::new("ip").args(["-n", &self.name]).args(args.split_whitespace()))
    }

    /// Runs `tc` inside it, with arguments as typed in a shell.
    pub fn tc(&self, args: &str) -> String {
        run(Command::new("tc").args(["-n", &self.name]).args(args.split_whitespace()))
    }

    /// Creates a veth pair, `ours` here and `theirs` there, both up.
    pub fn connect(&self, ours: &str, other: &Netns, theirs: &str) {
        self.ip(&format!("link add name {ours} type veth peer name {theirs} netns {}", other.name));
        self.ip(&format!("link set dev {ours} up"));
        other.ip(&format!("link set dev {theirs} up"));
    }

    /// Sets `/etc/hosts` for processes that start in it from now on, and for running ones if it was set before:
    /// `ip netns exec` mounts this file over it.
    pub fn write_hosts(&self, text: &str) {
        fs::create_dir_all(self.etc()).unwrap();
        fs::write(self.etc().join("hosts"), text).unwrap();
    }

    fn etc(&self) -> PathBuf {
        PathBuf::from("/etc/netns").join(&self.name)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // Busy for a moment while another test's process copies the mounts.
        within(Duration::from_secs(2), || {
            let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
            !self.path().exists()
        });
        let _ = fs::remove_dir_all(self.etc());
    }
}
