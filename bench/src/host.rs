//! The machine: who runs where.

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
