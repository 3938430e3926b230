//! What a published number must say about the machine it was measured on.

use serde::Serialize;
use std::fs;
use std::process::{Command, Stdio};

/// The machine, and the run.
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
