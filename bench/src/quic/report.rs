//! The table of a comparison, and the values of every run.

use crate::machine::Machine;
use anyhow::Context;
use lab::experiment::model::{LinkSummary, Point, Run};
use lab::experiment::preset::Plan;
use lab::experiment::runner::Results;
use lab::statistics::Pool;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use text::{grouped, percent};

pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) plan: Plan,
    pub(super) results: Results,
}

const CSV_HEADER: &str = "began_utc,round_trip_ms,rate_per_sec,burst_packets,loss,transport,run,offered,delivered,\
                          duplicates,measured_loss,mean_ms,p50_ms,p99_ms,p99_9_ms,max_ms,packets,packets_lost,sent_bytes,\
                          bytes_back,failure\n";

impl Report {
    pub(super) fn print(&self) -> anyhow::Result<()> {
        std::io::stdout().lock().write_all(self.markdown().as_bytes()).context("writing the table")
    }

    /// Appends the table and the runs to those of other settings in the folder.
    pub(super) fn add_to(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        let csv = folder.join("runs.csv");
        let header = if csv.exists() { "" } else { CSV_HEADER };
        for (path, text) in
            [(folder.join("README.md"), self.markdown()), (csv, header.to_owned() + &self.csv())]
        {
            let file = OpenOptions::new().create(true).append(true).open(&path);
            let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
            written.with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    fn markdown(&self) -> String {
        let Machine { cpu, cpus, kernel, commit, command, date_utc, .. } = &self.machine;
        let Plan { span, rate_per_sec, runs, duration, message_bytes, .. } = &self.plan;
        let bursts =
            span.burst_packets.map_or(String::new(), |packets| format!(" in bursts of {packets}"));
        let mut text = format!(
            "## {rate_per_sec} a second, {} ms of round trip{bursts}\n\n{cpu}, {cpus} processors, {kernel}; commit {commit}; {date_utc}; \
             {runs} runs of {} s at the same time, {message_bytes} bytes a message\n\n    {command}\n\n\
             | loss | transport | delivered | mean ms | p99 ms | p99.9 ms | max ms | packets a message | bytes a message, there and back |\n\
             |---|---|---|---|---|---|---|---|---|\n",
            span.round_trip.as_millis(),
            duration.as_secs(),
        );
        for point in &self.results.points {
            text += &row(point);
        }
        text.push('\n');
        for note in &self.results.notes {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- {note}");
        }
        text.push('\n');
        text
    }

    fn csv(&self) -> String {
        let Plan { span, rate_per_sec, .. } = &self.plan;
        let mut text = String::new();
        for point in &self.results.points {
            for (index, run) in point.runs.iter().enumerate() {
                let link = run.link.unwrap_or_default();
                let [mean, p50, p99, p99_9, max] = [
                    mean(run),
                    quantile(run, 0.5),
                    quantile(run, 0.99),
                    quantile(run, 0.999),
                    quantile(run, 1.0),
                ];
                let lost = run.measured_loss.and_then(|loss| loss.share()).unwrap_or_default();
                let _ = writeln!(
                    text,
                    "{},{},{rate_per_sec},{},{},{},{},{},{},{},{lost:.4},{mean:.4},{p50:.4},{p99:.4},{p99_9:.4},{max:.4},{},{},{},{},{}",
                    self.machine.date_utc,
                    span.round_trip.as_millis(),
                    span.burst_packets.unwrap_or_default(),
                    point.configured_loss,
                    point.transport,
                    index + 1,
                    run.offered,
                    run.delivered,
                    run.duplicates,
                    link.packets,
                    link.repairs,
                    link.sent_bytes,
                    link.report_bytes,
                    run.failure.replace(',', ";"),
                );
            }
        }
        text
    }
}

/// The range over the runs, from lowest to highest.
fn row(point: &Point) -> String {
    let runs = &point.runs;
    let range = |of: &dyn Fn(&Run) -> f64, digits: usize| {
        let low = runs.iter().map(of).fold(f64::INFINITY, f64::min);
        let high = runs.iter().map(of).fold(0.0, f64::max);
        let [low, high] = [low, high].map(|value| format!("{value:.digits$}"));
        if low == high { low } else { format!("{low} to {high}") }
    };
    let a_message =
        |of: fn(&LinkSummary) -> u64, digits| match runs.iter().all(|run| run.link.is_some()) {
            true => range(
                &|run| run.link.map_or(0.0, |link| of(&link) as f64 / link.taken.max(1) as f64),
                digits,
            ),
            false => String::new(),
        };
    let sum = |of: fn(&Run) -> u64| grouped(runs.iter().map(of).sum());
    format!(
        "| {} | {} | {} of {} | {} | {} | {} | {} | {} | {}, {} |\n",
        percent(point.configured_loss),
        point.transport,
        sum(|run| run.delivered),
        sum(|run| run.offered),
        range(&mean, 2),
        range(&|run| quantile(run, 0.99), 1),
        range(&|run| quantile(run, 0.999), 1),
        range(&|run| quantile(run, 1.0), 1),
        a_message(|link| link.packets, 3),
        a_message(|link| link.sent_bytes, 0),
        a_message(|link| link.report_bytes, 0),
    )
}

fn mean(run: &Run) -> f64 {
    pool(run).mean(&[1]).map_or(0.0, |figure| figure.value / 1e6)
}

fn quantile(run: &Run, share: f64) -> f64 {
    pool(run).quantile(&[1], share).map_or(0.0, |figure| figure.value / 1e6)
}

/// Messages still in flight at the end count with the time they had taken so far.
fn pool(run: &Run) -> Pool<'_> {
    Pool::new([(run.delays_ns.as_slice(), run.censored_ns.as_slice())])
}
