//! The machine: which processes run on which processors.

use anyhow::Context;
use serde::Serialize;
use std::fs;
use std::process::{Command, Stdio};

/// The processors in use, as taskset(1) lists. Without taskset, or with one processor, nothing is pinned.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Placement {
    pub(crate) load_cpus: String,
    pub(crate) relay_cpus: String,
    /// For the receiving thread of a relay whose sending threads run on `relay_cpus`.
    pub(crate) receive_cpus: String,
}

/// Pins the calling thread.
pub(crate) fn pin_this_thread(cpus: &str) -> anyhow::Result<()> {
    pin_thread(crate::process::thread_id()?, cpus)
}

/// Pins one thread.
pub(crate) fn pin_thread(id: u32, cpus: &str) -> anyhow::Result<()> {
    taskset(&["-cp", cpus, &id.to_string()])
}

/// Pins all threads of a process.
pub(crate) fn pin_process(pid: u32, cpus: &str) -> anyhow::Result<()> {
    taskset(&["-acp", cpus, &pid.to_string()])
}

fn taskset(args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("taskset").args(args).output().context("running taskset")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "taskset {}: {}", args.join(" "), said.trim());
    Ok(())
}

/// Sets the niceness of this process and of those it starts. Needs CAP_SYS_NICE.
///
/// If the kernel weighs sessions against each other (autogroup, sched(7)), the session's niceness is set as well, because a
/// process's niceness counts only within its session.
pub(crate) fn set_niceness(niceness: i32) -> anyhow::Result<()> {
    let pid = std::process::id().to_string();
    let status = Command::new("renice")
        .args(["-n", &niceness.to_string(), "-p", &pid])
        .stdout(Stdio::null())
        .status()
        .context("running renice")?;
    anyhow::ensure!(status.success(), "renice to {niceness} was refused");
    // The file does not exist without autogroups.
    if fs::exists("/proc/self/autogroup").unwrap_or(false) {
        fs::write("/proc/self/autogroup", niceness.to_string()).context("/proc/self/autogroup")?;
    }
    Ok(())
}
