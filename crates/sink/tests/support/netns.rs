//! Two network namespaces of a test's own, with a wire between them.

use super::{run, skip};
use std::path::PathBuf;
use std::process::Command;
use sys::namespace::{Home, OpenNamespace};

/// `left` (10.9.0.1) and `right` (10.9.0.2); they go with their owner.
pub(crate) struct Wire {
    pub(crate) left: String,
    pub(crate) right: String,
    home: Home,
}

impl Wire {
    /// `None` where namespaces cannot be made, which is said.
    pub(crate) fn new(name: &str, mtu: u32) -> Option<Wire> {
        let args = ["--net", "ip", "link", "set", "lo", "up"];
        let probe = Command::new("unshare").args(args).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            skip("network namespaces need root and iproute2", &["REQUIRE_ALL", "REQUIRE_NETNS"]);
            return None;
        }
        let named = |side: &str| format!("weir-{}-{name}-{side}", std::process::id());
        let home = Home::remember().unwrap();
        let wire = Wire { left: named("left"), right: named("right"), home };
        run("ip", &["netns", "add", &wire.left]);
        run("ip", &["netns", "add", &wire.right]);
        let peer = format!("link add name w type veth peer name w netns {}", wire.right);
        wire.ip(&wire.left, &peer);
        for (netns, address) in [(&wire.left, "10.9.0.1/24"), (&wire.right, "10.9.0.2/24")] {
            // The kernel's own ICMP messages come by loopback.
            wire.ip(netns, "link set lo up");
            wire.ip(netns, &format!("addr add {address} dev w"));
            wire.ip(netns, &format!("link set w mtu {mtu} up"));
        }
        Some(wire)
    }

    /// `ip` in one of them, with arguments as one would type them.
    pub(crate) fn ip(&self, netns: &str, args: &str) {
        Wire::tool("ip", netns, args);
    }

    /// `tc` in one of them.
    pub(crate) fn tc(&self, netns: &str, args: &str) {
        Wire::tool("tc", netns, args);
    }

    fn tool(program: &str, netns: &str, args: &str) {
        let mut all = vec!["-n", netns];
        all.extend(args.split_whitespace());
        run(program, &all);
    }

    /// Runs `f` in one of them. Threads that it starts stay there.
    pub(crate) fn inside<R: Send>(&self, netns: &str, f: impl FnOnce() -> R + Send) -> R {
        let path = PathBuf::from("/run/netns").join(netns);
        self.home.enter(&OpenNamespace::open(&path).unwrap(), f).unwrap()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for netns in [&self.left, &self.right] {
            let _ = Command::new("ip").args(["netns", "del", netns]).status();
        }
    }
}
