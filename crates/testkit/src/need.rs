//! Checks for things that a machine may lack: `if !need_tool("rsyslogd") { return }`.
//!
//! A test that lacks something prints a line starting with `skipped:` and returns; `scripts/test.sh` counts these lines. To the test
//! harness it has passed, so at the end of each executable, behind its result, stands how many of its tests did not test anything,
//! and why. Where everything should be available (`REQUIRE_ALL=1`, and `REQUIRE_NETNS=1` for namespaces), the test fails instead.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Whether this process may create network namespaces and configure links in them.
pub fn need_root_netns() -> bool {
    static PROBE: OnceLock<Result<(), String>> = OnceLock::new();
    report(PROBE.get_or_init(probe_netns), &["REQUIRE_ALL", "REQUIRE_NETNS"])
}

/// Whether this process is root with the capabilities of root, which `what` needs.
pub fn need_root(what: &str) -> bool {
    const ALL_THAT_TESTS_USE: u64 = 1 << 7 | 1 << 8 | 1 << 12 | 1 << 21; // setuid, setpcap, net_admin, sys_admin
    let effective = sys::process::effective_capabilities().unwrap_or(0);
    let is_root = effective & ALL_THAT_TESTS_USE == ALL_THAT_TESTS_USE;
    is_root || skip(&format!("{what} needs root"), &["REQUIRE_ALL"])
}

/// Whether the program `name` is installed, in `PATH` or among the project's own test tools.
pub fn need_tool(name: &str) -> bool {
    let reason = || format!("{name} is not installed; `make tools` installs it");
    find_tool(name).is_some() || skip(&reason(), &["REQUIRE_ALL"])
}

/// Whether the test tools' Python has `module`, for instance `statsd`. The ClickHouse engine, `chdb`, has a separate Python.
pub fn need_python_module(module: &str) -> bool {
    let python = if module == "chdb" { "weir-clickhouse" } else { "weir-python" };
    let reason =
        || format!("the Python package {module} is not installed; `make tools` installs it");
    let has_it = find_tool(python).is_some_and(|python| {
        quiet(Command::new(python).args(["-c", &format!("import {module}")]))
    });
    has_it || skip(&reason(), &["REQUIRE_ALL"])
}

/// The path of the program `name`. The project's own tools (`make tools`) come first, because their versions are pinned.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/lib/systemd"].map(PathBuf::from);
    own_tools()
        .into_iter()
        .chain(env::split_paths(&path))
        .chain(system)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// Prints why a test does nothing, and returns `false`. Fails if one of the variables is 1.
pub fn skip(reason: &str, required_by: &[&str]) -> bool {
    report(&Err(reason.to_owned()), required_by)
}

/// Prints something on the terminal even though the test passes.
pub fn say(text: &str) {
    // Directly to the descriptor, because the test harness captures `eprintln!` of passing tests. In a single write, because
    // others write too.
    io::stderr().write_all(format!("{text}\n").as_bytes()).expect("standard error is open");
}

fn report(probe: &Result<(), String>, required_by: &[&str]) -> bool {
    let Err(reason) = probe else { return true };
    let is_one = |name: &&&str| env::var_os(name).is_some_and(|value| value == "1");
    if let Some(name) = required_by.iter().find(is_one) {
        panic!("{reason} ({name}=1 turns a skip into a failure)");
    }
    say(&format!("skipped: {reason}"));
    note_for_the_end(reason);
    false
}

/// Hands a reason to a process that prints all of them once this one has ended: the harness ends without a word to its tests.
fn note_for_the_end(reason: &str) {
    static TELLER: OnceLock<Option<Mutex<ChildStdin>>> = OnceLock::new();
    let teller = TELLER.get_or_init(|| {
        let name = env::current_exe().unwrap_or_default();
        let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut teller = Command::new("sh");
        teller.args(["-c", AT_THE_END, "sh", &name]).stdin(Stdio::piped()).stdout(Stdio::null());
        Some(Mutex::new(teller.spawn().ok()?.stdin.take()?))
    });
    if let Some(teller) = teller {
        let mut teller = teller.lock().unwrap_or_else(PoisonError::into_inner);
        // The line that was printed above says it too.
        let _ = writeln!(teller, "{reason}");
    }
}

/// Prints what it reads, each line once with its count, behind a line that no one who reads the result overlooks.
const AT_THE_END: &str = r#"
skipped=$(sort | uniq -c)
printf '\nNOT TESTED: tests of %s that say ok and did nothing:\n%s\n        REQUIRE_ALL=1 lets them fail; `make tools` installs tools; root has the rest.\n\n' "${1%-*}" "$skipped" >&2
"#;

/// The directories filled by `scripts/install-tools.sh`: `$WEIR_TOOLS/bin`, or else `tools/bin` in the target directory in
/// which this program was built.
fn own_tools() -> Vec<PathBuf> {
    let named = env::var_os("WEIR_TOOLS").map(|tools| PathBuf::from(tools).join("bin"));
    let program = env::current_exe().unwrap_or_default();
    let built = program.ancestors().map(|dir| dir.join("tools/bin"));
    named.into_iter().chain(built.filter(|dir| dir.is_dir())).collect()
}

fn probe_netns() -> Result<(), String> {
    if find_tool("ip").is_none() {
        return Err("ip (iproute2) is not installed; `make tools` installs it".to_owned());
    }

    // A new namespace in which a link changes state: the two permissions that namespace tests need.
    let works = quiet(Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]));
    if works { Ok(()) } else { Err("creating a network namespace needs root".to_owned()) }
}

fn quiet(command: &mut Command) -> bool {
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}
