//! What a test asks before it needs root, and network namespaces of its own.

#![allow(dead_code, reason = "each test binary compiles this file and uses a part of it")]

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use sys::namespace::{Identity, OpenNamespace};

/// Whether this process may create network namespaces. Prints `skipped:` otherwise, and fails where they are meant to be there.
pub(crate) fn need_root_netns() -> bool {
    const NEEDED: u64 = 1 << sys::process::CAP_SYS_ADMIN | 1 << sys::process::CAP_NET_ADMIN;
    let effective = sys::process::effective_capabilities().unwrap_or(0);
    let has_ip = Command::new("ip").arg("-V").output().is_ok_and(|output| output.status.success());
    if effective & NEEDED == NEEDED && has_ip {
        return true;
    }
    skip("network namespaces need root and the program ip", &["REQUIRE_NETNS", "REQUIRE_ALL"])
}

/// Says why a test does nothing. Fails where one of the variables says that everything is meant to be there.
pub(crate) fn skip(reason: &str, required_by: &[&str]) -> bool {
    let is_required = required_by.iter().any(|name| env::var(name).is_ok_and(|value| value == "1"));
    assert!(!is_required, "cannot skip: {reason}");
    // Not `eprintln!`, which the test harness would capture; at once, since tests write at the same time.
    let _ = std::io::stderr().write_all(format!("skipped: {reason}\n").as_bytes());
    false
}

/// A namespace mounted by `ip netns`. It goes with its owner.
pub(crate) struct Netns {
    pub(crate) name: String,
}

impl Netns {
    pub(crate) fn new() -> Netns {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let netns = Netns { name: format!("weir-sys-{}-{number}", std::process::id()) };
        run(Command::new("ip").args(["netns", "add", &netns.name]));
        netns.ip("link set lo up");
        netns
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    pub(crate) fn id(&self) -> Identity {
        OpenNamespace::open(&self.path()).unwrap().id()
    }

    pub(crate) fn open(&self) -> OpenNamespace {
        OpenNamespace::open(&self.path()).unwrap()
    }

    /// `ip` inside it, with arguments as one would type them.
    pub(crate) fn ip(&self, args: &str) {
        run(Command::new("ip").args(["-n", &self.name]).args(args.split_whitespace()));
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // Busy for a moment while another test's process copies the mounts.
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.path().exists() && Instant::now() < deadline {
            let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
        }
    }
}

pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

/// Waits for a condition, and says whether it came within the time.
pub(crate) fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
}
