//! The table of a run, and its raw values.

use crate::machine::Machine;
use crate::ours::Attempt;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// What one client did, round by round.
#[derive(Serialize)]
pub(crate) struct Side {
    pub(crate) client: String,
    pub(crate) attempts: Vec<Attempt>,
}

/// One destination; the first of its sides is Weir, and so is the second.
#[derive(Serialize)]
pub(crate) struct Contest {
    pub(crate) destination: String,
    pub(crate) sides: Vec<Side>,
    /// Weir with rows faster than it takes them, in memory that the shipped configuration bounds.
    pub(crate) flood: Attempt,
}

#[derive(Serialize)]
pub(crate) struct Report {
    machine: Machine,
    /// Processes that ran or wanted to, on average over one minute (`/proc/loadavg`), before the first destination and after the last.
    load_averages: Vec<String>,
    row_bytes: f64,
    pub(crate) contests: Vec<Contest>,
}

impl Side {
    fn median(&self, of: impl Fn(&Attempt) -> f64) -> f64 {
        median(self.attempts.iter().map(of).collect())
    }

    fn rate(&self) -> f64 {
        self.median(rate)
    }

    /// Seconds of processor time for a million rows.
    fn cpu(&self) -> f64 {
        self.median(|one| one.cpu_seconds * 1e6 / one.rows as f64)
    }
}

fn rate(attempt: &Attempt) -> f64 {
    attempt.rows as f64 / attempt.seconds
}

/// The one in the middle; of an even number, the lower of the two. 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(0.0)
}

impl Contest {
    fn ours(&self) -> &Side {
        &self.sides[0]
    }

    /// The client with the highest median.
    fn best(&self) -> &Side {
        let others = self.sides[2..].iter();
        others.max_by(|a, b| a.rate().total_cmp(&b.rate())).expect("each has one")
    }

    /// The median of the rounds' ratios: each of two runs within the same seconds.
    fn ratio(&self) -> f64 {
        let rounds = self.ours().attempts.iter().zip(&self.best().attempts);
        median(rounds.map(|(ours, theirs)| rate(ours) / rate(theirs)).collect())
    }

    fn row(&self, row_bytes: f64) -> String {
        let (ours, best) = (self.ours(), self.best());
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "| {} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} of {:.0} | {} | {:.0} | {:.1} | {:.2} |\n",
            self.destination,
            ours.rate(),
            ours.rate() * row_bytes / 1e6,
            ours.cpu(),
            self.sides[1].rate(),
            mib(self.flood.memory_bytes),
            mib(self.flood.memory_bound_bytes),
            best.client,
            best.rate(),
            best.cpu(),
            self.ratio(),
        )
    }
}

impl Report {
    pub(crate) fn new(machine: Machine, row_bytes: f64) -> Report {
        Report { machine, load_averages: vec![load_average()], row_bytes, contests: Vec::new() }
    }

    fn markdown(&self) -> String {
        let Machine { cpu, cpus, memory_mib, kernel, commit, command, date_utc } = &self.machine;
        let rounds = self.contests.first().map_or(0, |one| one.ours().attempts.len());
        let mut text = format!(
            "# Sinks beside other clients\n\n{cpu}, {cpus} processors, {memory_mib} MiB, {kernel}; commit {commit}; {date_utc}\n\n    {command}\n\n\
             Load average {}. Medians of {rounds} rounds; a row has {:.0} bytes as protobuf. CPU is the client's, in seconds for a million rows; \
             memory is what the sink takes at most while rows come faster than it takes them, and what its configuration says.\n\n\
             | destination | rows/s | MB/s | CPU | with the source | memory, MiB | other client | rows/s | CPU | Weir / other |\n\
             |---|---:|---:|---:|---:|---:|---|---:|---:|---:|\n",
            self.load_averages.join(", then "),
            self.row_bytes,
        );
        text.extend(self.contests.iter().map(|contest| contest.row(self.row_bytes)));

        text.push_str("\n| destination | client | rows/s in each round |\n|---|---|---|\n");
        for contest in &self.contests {
            for side in &contest.sides {
                let rates = side.attempts.iter().map(|one| format!("{:.0}", rate(one)));
                let rates = rates.collect::<Vec<_>>().join(", ");
                let _ = writeln!(text, "| {} | {} | {rates} |", contest.destination, side.client);
            }
        }
        text
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        Ok(std::io::stdout().lock().write_all(self.markdown().as_bytes())?)
    }

    /// Writes what is known so far.
    pub(crate) fn save(&mut self, folder: &Path) -> anyhow::Result<()> {
        self.load_averages.truncate(1);
        self.load_averages.push(load_average());
        fs::create_dir_all(folder)?;
        fs::write(folder.join("README.md"), self.markdown())?;
        fs::write(folder.join("raw.json"), serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }
}

fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
