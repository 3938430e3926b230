//! The table, as Markdown, and the raw values, as JSON.

use crate::contender::Contender;
use crate::host::{Machine, Placement};
use crate::measure::{CaseResult, Measured};
use crate::requirement::{self, Requirement};
use crate::start::StartResult;
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Everything that a run of the bench found.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) placement: Placement,
    pub(crate) results: Vec<CaseResult>,
    pub(crate) starts: Vec<StartResult>,
    pub(crate) requirements: Vec<Requirement>,
}

impl Report {
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        self.write_machine(out)?;
        for result in &self.results {
            write_case(out, result)?;
        }
        if !self.starts.is_empty() {
            writeln!(out, "\n## From starting the process to the first datagram forwarded\n")?;
            writeln!(out, "| relay | median ms | max ms |\n|---|---:|---:|")?;
            for start in &self.starts {
                let (label, median) = (start.contender.label(), start.median_ms());
                writeln!(out, "| {label} | {median:.1} | {:.1} |", start.max_ms())?;
            }
        }
        if !self.requirements.is_empty() {
            writeln!(out, "\n## Requirements\n")?;
            writeln!(out, "| what | required | measured | |\n|---|---:|---:|---|")?;
            for one in &self.requirements {
                let verdict = if one.is_met { "met" } else { "**missed**" };
                writeln!(out, "| {} | {} | {} | {verdict} |", one.what, one.limit, one.measured)?;
            }
        }
        Ok(())
    }

    fn write_machine(&self, out: &mut String) -> std::fmt::Result {
        let Machine { cpu, cpus, memory_mib, kernel, network, commit, command, date_utc } =
            &self.machine;
        let Placement { load_cpus, relay_cpus } = &self.placement;
        writeln!(out, "# Relays side by side\n")?;
        writeln!(out, "{date_utc}, commit {commit}, `{command}`  ")?;
        writeln!(
            out,
            "{cpu}, {cpus} processors, {memory_mib} MiB, {kernel}, {network}; load on processor {load_cpus}, relays on {relay_cpus}"
        )?;
        writeln!(out, "\nRatios carry from one machine to another, absolute numbers do not.")
    }
}

fn write_case(out: &mut String, result: &CaseResult) -> std::fmt::Result {
    let other = requirement::yardstick(result.case.sizes);
    writeln!(out, "\n## {}\n", result.case.label())?;
    writeln!(
        out,
        "| relay | highest rate, k/s | / {0} | CPU per copy, µs | / {0} | saturated, µs | added p50, µs | added p99, µs | RSS, MiB | peak |",
        other.label()
    )?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")?;
    for measured in &result.measured {
        write_row(out, measured, result.of(other))?;
    }
    let percent = result.disturbance() * 100.0;
    let repetitions = result.plan.repetitions;
    writeln!(out, "\nMedians of {repetitions}; others used {percent:.1} % of the processors.")
}

fn write_row(out: &mut String, one: &Measured, other: Option<&Measured>) -> std::fmt::Result {
    let ratio = |of: fn(&Measured, usize) -> f64| {
        other.map_or_else(String::new, |other| format!("{:.2}", one.ratio(other, of)))
    };
    let limited = if one.is_limited_by_load() { "≥ " } else { "" };
    writeln!(
        out,
        "| {} | {limited}{:.1} | {} | {:.2} | {} | {:.2} | {:.0} | {:.0} | {:.1} | {:.1} |",
        one.contender.label(),
        one.rate_per_sec() / 1e3,
        ratio(requirement::rate),
        one.cpu_ns_per_copy() / 1e3,
        ratio(requirement::cpu),
        one.saturation_cpu_ns_per_copy() / 1e3,
        one.added_p50_us(),
        one.added_p99_us(),
        one.resident_kib as f64 / 1_024.0,
        one.resident_peak_kib as f64 / 1_024.0,
    )
}

/// One line about a repetition, for those who wait.
pub(crate) fn progress_line(measured: &[Measured]) -> String {
    let mut line = String::new();
    for one in measured {
        let (Some(found), Some(cpu), Some(latency)) =
            (one.found.last(), one.cpu.last(), one.latency.last())
        else {
            continue;
        };
        let added_us = latency.p99_us - latency.direct_p99_us;
        let _ = write!(
            line,
            "  {}: {:.1} k/s, {:.2} µs a copy, p99 +{added_us:.0} µs;",
            label(one.contender),
            found.rate_per_sec / 1e3,
            cpu.ns_per_copy / 1e3
        );
    }
    line
}

fn label(contender: Contender) -> &'static str {
    contender.label()
}

/// Writes `README.md` and `raw.json` into a folder, which is made if need be.
pub(crate) fn save(report: &Report, folder: &Path) -> anyhow::Result<()> {
    let name = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("making {name}"))?;
    fs::write(folder.join("README.md"), report.markdown())
        .with_context(|| format!("writing {name}/README.md"))?;
    let raw = serde_json::to_string_pretty(report).context("the report as JSON")?;
    fs::write(folder.join("raw.json"), raw).with_context(|| format!("writing {name}/raw.json"))
}
