//! Network namespaces that a test makes and that go with it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where a process runs.
#[derive(Clone)]
pub(crate) enum Place {
    /// Where the test runs.
    Here,
    In(String),
}

impl Place {
    pub(crate) fn command(&self, program: &str) -> Command {
        match self {
            Place::Here => Command::new(program),
            Place::In(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name, program]);
                command
            }
        }
    }
}

/// A namespace with its loopback up. Dropping it removes it, and with it the links in it.
pub(crate) struct Namespace {
    name: String,
    place: Place,
}

impl Namespace {
    pub(crate) fn new(role: &str) -> Namespace {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-{role}-{}-{number}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Namespace { place: Place::In(name.clone()), name };
        namespace.ip("link set lo up");
        namespace
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Runs `ip` in it with these words.
    pub(crate) fn ip(&self, words: &str) -> String {
        run(Command::new("ip").args(["-n", &self.name]).args(words.split(' ')))
    }

    /// Runs `tc` in it with these words.
    pub(crate) fn tc(&self, words: &str) -> String {
        run(Command::new("tc").args(["-n", &self.name]).args(words.split(' ')))
    }

    /// Joins the two with a veth pair: `out` here with 10.99.0.1, `far` there with 10.99.0.2.
    pub(crate) fn connect(&self, other: &Namespace) {
        self.ip(&format!("link add out type veth peer name far netns {}", other.name));
        self.ip("address add 10.99.0.1/24 dev out");
        self.ip("link set out up");
        other.ip("address add 10.99.0.2/24 dev far");
        other.ip("link set far up");
    }

    /// What `/etc/hosts` says to processes that start in it from here on, and to those that run in it if it said
    /// something before: `ip netns exec` mounts this file over it.
    pub(crate) fn write_hosts(&self, text: &str) {
        fs::create_dir_all(self.etc()).unwrap();
        fs::write(self.etc().join("hosts"), text).unwrap();
    }

    fn etc(&self) -> PathBuf {
        PathBuf::from("/etc/netns").join(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever looks after the machine.
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
        let _ = fs::remove_dir_all(self.etc());
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}
