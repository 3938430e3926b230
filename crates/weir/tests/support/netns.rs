//! Network namespaces of a test's own. Ask `need_root_netns()` first.

use super::process::run;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A namespace with loopback up. It goes with its owner.
pub(crate) struct Netns {
    pub(crate) name: String,
}

impl Netns {
    pub(crate) fn new() -> Netns {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let netns = Netns { name: format!("weir-{}-{number}", std::process::id()) };
        run(Command::new("ip").args(["netns", "add", &netns.name]));
        netns.ip("link set lo up");
        netns
    }

    /// A program inside it; arguments may follow.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// `ip` inside it, with arguments as one would type them.
    pub(crate) fn ip(&self, args: &str) {
        run(Command::new("ip").args(["-n", &self.name]).args(args.split_whitespace()));
    }

    /// A pair of interfaces, `ours` here and `theirs` there, both up.
    pub(crate) fn connect(&self, ours: &str, other: &Netns, theirs: &str) {
        self.ip(&format!("link add name {ours} type veth peer name {theirs} netns {}", other.name));
        self.ip(&format!("link set dev {ours} up"));
        other.ip(&format!("link set dev {theirs} up"));
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}
