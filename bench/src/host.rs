//! The machine: who runs where, and what a published number must say about it.

use anyhow::Context;
use serde::Serialize;
use std::fs;
use std::process::{Command, Stdio};

/// Which processors are used, as taskset(1) writes lists. Without taskset or with one processor nothing is bound.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Placement {
    pub(crate) load_cpus: String,
    pub(crate) relay_cpus: String,
    /// For the receiving thread of a relay whose other threads, which send, have `relay_cpus`.
    pub(crate) receive_cpus: String,
}

/// Binds the calling thread.
pub(crate) fn pin_this_thread(cpus: &str) -> anyhow::Result<()> {
    pin_thread(crate::process::thread_id()?, cpus)
}

/// Binds one thread.
pub(crate) fn pin_thread(id: u32, cpus: &str) -> anyhow::Result<()> {
    taskset(&["-cp", cpus, &id.to_string()])
}

/// Binds all threads of a process.
pub(crate) fn pin_process(pid: u32, cpus: &str) -> anyhow::Result<()> {
    taskset(&["-acp", cpus, &pid.to_string()])
}

fn taskset(args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("taskset").args(args).output().context("running taskset")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "taskset {}: {}", args.join(" "), said.trim());
    Ok(())
}

/// Raises this process's priority, and that of those it starts. Needs CAP_SYS_NICE.
///
/// Where the kernel weighs sessions against each other (autogroup, sched(7)), the whole session is raised, for a niceness
/// counts within one only.
pub(crate) fn set_niceness(niceness: i32) -> anyhow::Result<()> {
    let pid = std::process::id().to_string();
    let status = Command::new("renice")
        .args(["-n", &niceness.to_string(), "-p", &pid])
        .stdout(Stdio::null())
        .status()
        .context("running renice")?;
    anyhow::ensure!(status.success(), "renice to {niceness} was refused");
    // Without autogroups there is no such file.
    if fs::exists("/proc/self/autogroup").unwrap_or(false) {
        fs::write("/proc/self/autogroup", niceness.to_string()).context("/proc/self/autogroup")?;
    }
    Ok(())
}

/// What the numbers were measured on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) commit: String,
    pub(crate) command: String,
    pub(crate) date_utc: String,
}

impl Machine {
    pub(crate) fn read() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let after = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };

        let memory = after(&meminfo, "MemTotal").unwrap_or_default();
        let memory_kib = memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());

        let mut args = std::env::args().skip(1).collect::<Vec<_>>();
        args.insert(0, "bench".to_owned());

        Machine {
            cpu: after(&cpuinfo, "model name").unwrap_or_default(),
            cpus: sys::process::cpu_count(),
            memory_mib: memory_kib.unwrap_or(0) / 1_024,
            kernel: said_by("uname", &["-sr"]),
            commit: said_by("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
            command: args.join(" "),
            date_utc: said_by("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
        }
    }
}

/// First line of what a command prints, or nothing.
fn said_by(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}
