//! The tables as Markdown, and the raw values as JSON.

use crate::case::Question;
use crate::host::Placement;
use crate::machine::Machine;
use crate::measured::{CaseResult, Measured, Quantity};
use crate::requirement::Requirement;
use crate::start::StartResult;
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// All results of a run.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) placement: Placement,
    pub(crate) elapsed_s: f64,
    pub(crate) results: Vec<CaseResult>,
    pub(crate) starts: Vec<StartResult>,
    /// What was not measured, with the reason.
    pub(crate) skipped: Vec<String>,
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
                let Requirement { what, limit, measured, .. } = one;
                writeln!(out, "| {what} | {limit} | {measured} | {} |", one.verdict())?;
            }
        }
        Ok(())
    }

    fn write_machine(&self, out: &mut String) -> std::fmt::Result {
        let Machine { cpu, cpus, memory_mib, kernel, commit, command, date_utc } = &self.machine;
        let Placement { load_cpus, relay_cpus, receive_cpus } = &self.placement;
        let minutes = self.elapsed_s / 60.0;

        writeln!(out, "# Relays side by side\n")?;
        writeln!(out, "{date_utc}, {minutes:.1} minutes, commit {commit}, `{command}`  ")?;
        writeln!(
            out,
            "{cpu}, {cpus} processors, {memory_mib} MiB, {kernel}; load on processor {load_cpus}, relays on {relay_cpus}, the \
             receiving thread of weir threaded on {receive_cpus}"
        )?;

        if receive_cpus == load_cpus {
            writeln!(
                out,
                "\nWeir threaded: its receiving thread shares a processor with the load, for want of a third. Its rates and \
                 latencies are what that leaves it; its CPU per copy is its own."
            )?;
        }

        writeln!(
            out,
            "\nRatios carry from one machine to another, absolute numbers do not. Each is the median of the repetitions' \
             ratios, with the interval of that median in brackets (order statistics; what it covers is below the table). The \
             C loop of a ratio is the better one of limitrelay and limitrelay -r in the same repetition."
        )?;
        for one in &self.skipped {
            writeln!(out, "\nSkipped: {one}")?;
        }
        Ok(())
    }
}

fn write_case(out: &mut String, result: &CaseResult) -> std::fmt::Result {
    writeln!(out, "\n## {}\n", result.case.label())?;
    let columns: &[Column] = match result.case.question {
        Question::Compare => &[
            ("highest rate, k/s", |_, one| highest_rate(one)),
            ("/ better C loop", |result, one| compared(result, one, Quantity::Rate)),
            ("CPU per copy, µs", |_, one| median(one, Quantity::Cpu)),
            ("/ better C loop", |result, one| compared(result, one, Quantity::Cpu)),
            ("saturated, µs", |_, one| median(one, Quantity::SaturatedCpu)),
            ("added p50, µs", |_, one| median(one, Quantity::AddedP50)),
            ("added p99, µs", |_, one| median(one, Quantity::AddedP99)),
            ("p99 - C loop, µs", |result, one| compared(result, one, Quantity::AddedP99)),
            ("RSS, MiB (peak)", |_, one| resident(one)),
        ],
        Question::Isolation(_) => &[
            ("highest rate, k/s", |_, one| highest_rate(one)),
            ("/ without", |result, one| compared(result, one, Quantity::Rate)),
            ("CPU per live copy, saturated, µs", |_, one| median(one, Quantity::SaturatedCpu)),
            ("kept up at 0.9 of the rate without", |_, one| kept_up(one)),
        ],
        Question::Steady => &[
            ("CPU per copy, µs", |_, one| median(one, Quantity::Cpu)),
            ("/ better C loop", |result, one| compared(result, one, Quantity::Cpu)),
            ("added p50, µs", |_, one| median(one, Quantity::AddedP50)),
            ("added p99, µs", |_, one| median(one, Quantity::AddedP99)),
            ("p99 - better C loop, µs", |result, one| compared(result, one, Quantity::AddedP99)),
        ],
    };

    write!(out, "| relay |")?;
    columns.iter().try_for_each(|(title, _)| write!(out, " {title} |"))?;
    write!(out, "\n|---|")?;
    columns.iter().try_for_each(|_| write!(out, "---:|"))?;
    writeln!(out)?;

    for one in &result.measured {
        write!(out, "| {} |", one.contender.label())?;
        columns.iter().try_for_each(|(_, value)| write!(out, " {} |", value(result, one)))?;
        writeln!(out)?;
    }

    let (repetitions, percent) = (result.plan.repetitions, result.disturbance() * 100.0);
    write!(out, "\nMedians of {repetitions}; ")?;
    if let Some(coverage) = lowest_coverage(result) {
        write!(out, "intervals cover {:.1} %; ", coverage * 100.0)?;
    }
    writeln!(out, "others used {percent:.1} % of the processors.")?;
    if result.disturbance() > DISTURBANCE_MAX {
        writeln!(out, "\n**No measurement: others took processors from the load or the relays.**")?;
    }
    Ok(())
}

/// Share of the processors used by others above which the figures reflect the scheduler rather than the relays.
const DISTURBANCE_MAX: f64 = 0.1;

/// A title, and the function that fills the cell of a relay.
type Column = (&'static str, fn(&CaseResult, &Measured) -> String);

fn highest_rate(one: &Measured) -> String {
    // The generator could not offer more.
    let limited = if one.is_limited_by_load() { "≥ " } else { "" };
    format!("{limited}{:.1}", one.median(Quantity::Rate) / 1e3)
}

fn median(one: &Measured, quantity: Quantity) -> String {
    let median = one.median(quantity);
    match quantity {
        Quantity::Rate => format!("{:.1}", median / 1e3),
        Quantity::Cpu | Quantity::SaturatedCpu => format!("{:.2}", median / 1e3),
        Quantity::AddedP50 | Quantity::AddedP99 => format!("{median:.0}"),
    }
}

fn compared(result: &CaseResult, one: &Measured, quantity: Quantity) -> String {
    let Some(estimate) = result.comparison(one.contender, quantity) else {
        return String::new();
    };
    match quantity {
        Quantity::AddedP50 | Quantity::AddedP99 => estimate.text(|value| format!("{value:+.0}")),
        Quantity::Rate | Quantity::Cpu | Quantity::SaturatedCpu => {
            estimate.text(|value| format!("{value:.2}"))
        }
    }
}

fn resident(one: &Measured) -> String {
    let mib = |kib| kib as f64 / 1_024.0;
    format!("{:.1} ({:.1})", mib(one.resident_kib), mib(one.resident_peak_kib))
}

fn kept_up(one: &Measured) -> String {
    let kept_up = one.held.iter().filter(|held| held.keeps_up).count();
    let lost: u64 = one.held.iter().map(|held| held.lost).sum();
    format!("{kept_up} of {}, {lost} copies lost", one.held.len())
}

fn lowest_coverage(result: &CaseResult) -> Option<f64> {
    result.comparisons.iter().map(|one| one.estimate.coverage).reduce(f64::min)
}

/// One line of progress about a repetition.
pub(crate) fn progress_line(measured: &[Measured]) -> String {
    let mut line = String::new();
    for one in measured {
        let last = one.found.len().max(one.cpu.len()).saturating_sub(1);
        let label = one.contender.label();
        let mut values = Vec::new();

        if let Some(rate) = Quantity::Rate.of(one, last) {
            values.push(format!("{:.1} k/s", rate / 1e3));
        }
        if let Some(cpu) = Quantity::Cpu.of(one, last) {
            values.push(format!("{:.2} µs a copy", cpu / 1e3));
        }
        if let Some(p99) = Quantity::AddedP99.of(one, last) {
            values.push(format!("p99 {p99:+.0} µs"));
        }

        let _ = write!(line, "  {label}: {};", values.join(", "));
    }
    line
}

/// Writes `README.md` and `raw.json` into a folder, which is created if it is missing.
pub(crate) fn save(report: &Report, folder: &Path) -> anyhow::Result<()> {
    let name = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("making {name}"))?;
    fs::write(folder.join("README.md"), report.markdown())
        .with_context(|| format!("writing {name}/README.md"))?;
    let raw = serde_json::to_string(report).context("the report as JSON")?;
    fs::write(folder.join("raw.json"), raw + "\n")
        .with_context(|| format!("writing {name}/raw.json"))
}
