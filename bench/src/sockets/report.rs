//! The table of a run, and its raw values.

use crate::machine::Machine;
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// The cost of one population, per poll.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Case {
    pub(super) label: String,
    pub(super) sockets: f64,
    pub(super) namespaces: u64,
    pub(super) polls: u64,
    /// All threads of the process, user and system.
    pub(super) cpu_ms: f64,
    pub(super) discover_ms: f64,
    pub(super) open_ms: f64,
    /// In the kernel: requests and reads.
    pub(super) walk_ms: f64,
    /// Decoding, joining, encoding, queueing.
    pub(super) records_ms: f64,
    pub(super) resident_kib: u64,
    /// CPU time of the least work of such a poll, measured in the same minute.
    pub(super) least_ms: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) cases: Vec<Case>,
}

impl Report {
    pub(super) fn markdown(&self) -> String {
        let Machine { cpu, cpus, kernel, commit, command, date_utc, .. } = &self.machine;
        let mut text = format!(
            "# A poll of the socket collector\n\n{cpu}, {cpus} processors, {kernel}; commit {commit}; {date_utc}\n\n    {command}\n\n\
             Per poll, mean over the polls. CPU is all threads of the daemon, user and system. Our part is that less the least work: the \
             CPU of the same request, its answer read and thrown away. Open, walk and records are elapsed time of the collector's \
             thread: entering namespaces, waiting for the kernel, and what is done with each socket.\n\n\
             | what | sockets | namespaces | polls | CPU ms | our part ms | CPU / least | discover ms | open ms | walk ms | records ms \
             | peak RSS MiB |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        );

        for case in &self.cases {
            let Case { label, sockets, namespaces, polls, cpu_ms, .. } = case;
            let Case { discover_ms, open_ms, walk_ms, records_ms, resident_kib, .. } = case;
            let resident_mib = *resident_kib as f64 / 1_024.0;
            let ours =
                case.least_ms.map_or_else(String::new, |least| format!("{:.2}", cpu_ms - least));
            let ratio =
                case.least_ms.map_or_else(String::new, |least| format!("{:.2}", cpu_ms / least));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {label} | {sockets:.0} | {namespaces} | {polls} | {cpu_ms:.2} | {ours} | {ratio} | {discover_ms:.2} | {open_ms:.2} | {walk_ms:.2} \
                 | {records_ms:.2} | {resident_mib:.1} |"
            );
        }
        text
    }

    pub(super) fn print(&self) -> anyhow::Result<()> {
        std::io::stdout().lock().write_all(self.markdown().as_bytes()).context("writing the table")
    }

    pub(super) fn save(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("README.md"), self.markdown())?;
        std::fs::write(folder.join("raw.json"), serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }
}
