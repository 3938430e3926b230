//! What a test asks before it uses something that a machine may lack: `if !need_tool("rsyslogd") { return }`.
//!
//! A test that lacks something prints one line that starts with `skipped:` and returns; `.ci/run` counts those
//! lines. Where everything is meant to be there (`REQUIRE_ALL=1`, and `REQUIRE_NETNS=1` for namespaces), the lack
//! is a failure instead.

#![allow(dead_code, reason = "each test binary compiles this file and uses a part of it")]

pub(crate) mod netns;
pub(crate) mod process;

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether this process may create network namespaces and configure links in them.
pub(crate) fn need_root_netns() -> bool {
    static PROBE: OnceLock<Result<(), String>> = OnceLock::new();
    report(PROBE.get_or_init(probe_netns), &["REQUIRE_ALL", "REQUIRE_NETNS"])
}

/// Whether this process is root with a root's capabilities, which `what` needs.
pub(crate) fn need_root(what: &str) -> bool {
    const ALL_THAT_TESTS_USE: u64 = 1 << 7 | 1 << 8 | 1 << 12 | 1 << 21; // setuid, setpcap, net_admin, sys_admin
    let effective = sys::process::effective_capabilities().unwrap_or(0);
    let is_root = effective & ALL_THAT_TESTS_USE == ALL_THAT_TESTS_USE;
    let found = if is_root { Ok(()) } else { Err(format!("{what} needs root")) };
    report(&found, &["REQUIRE_ALL"])
}

/// Whether the program `name` is installed, in `PATH` or among the project's own test tools.
pub(crate) fn need_tool(name: &str) -> bool {
    let found = find_tool(name)
        .map(|_| ())
        .ok_or_else(|| format!("{name} is not installed; `make tools` installs it"));
    report(&found, &["REQUIRE_ALL"])
}

/// Whether the Python of the test tools has `module`, for instance `statsd` or `datadog`.
pub(crate) fn need_python_module(module: &str) -> bool {
    report(&probe_python_module(module), &["REQUIRE_ALL"])
}

/// Where the program `name` is. The project's own tools (`make tools`) come first: they have pinned versions.
pub(crate) fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    own_tools()
        .into_iter()
        .chain(env::split_paths(&path))
        .chain(system)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}

/// The folders that `scripts/install-tools.sh` fills: `$WEIR_TOOLS/bin`, else `tools/bin` in the target folder.
fn own_tools() -> Vec<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().map(Path::to_path_buf);
    let named = env::var_os("WEIR_TOOLS").map(PathBuf::from);
    named
        .into_iter()
        .chain(target.map(|dir| dir.join("tools")))
        .map(|dir| dir.join("bin"))
        .collect()
}

fn probe_python_module(module: &str) -> Result<(), String> {
    let missing =
        || format!("the Python package {module} is not installed; `make tools` installs it");
    let python = find_tool("weir-python").ok_or_else(missing)?;
    let status = quiet(Command::new(python).args(["-c", &format!("import {module}")]));
    if status { Ok(()) } else { Err(missing()) }
}

fn probe_netns() -> Result<(), String> {
    if find_tool("ip").is_none() {
        return Err("ip (iproute2) is not installed; `make tools` installs it".to_owned());
    }
    // A namespace of our own in which a link changes state: the two rights that namespace tests need.
    let works = quiet(Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]));
    if works { Ok(()) } else { Err("creating a network namespace needs root".to_owned()) }
}

fn quiet(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn report(probe: &Result<(), String>, required_by: &[&str]) -> bool {
    let Err(reason) = probe else { return true };
    if let Some(name) =
        required_by.iter().find(|name| env::var_os(name).is_some_and(|value| value == "1"))
    {
        panic!("{reason} ({name}=1 turns a skip into a failure)");
    }
    // Straight to the descriptor: the test harness captures `eprintln!` of tests that pass.
    writeln!(std::io::stderr(), "skipped: {reason}").expect("standard error is open");
    false
}
