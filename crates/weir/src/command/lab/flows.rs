//! `weir lab flows`: how good sFlow traffic figures are when datagrams are lost.

mod ours;

use super::{Out, Running, each_once, for_people, privilege};
use crate::exit::Failure;
use crate::progress::{ProgressMode, with_progress};
use lab::About;
use lab::report::SflowReport;
use lab::sflow::{self, Error, Experiment, Plan, Progress};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use text::percent;
use text::units::{parse_count_of, parse_percent};

/// Send sFlow of known traffic through a network that loses packets, and compare the figures with the truth
///
/// Plays agents that sample one frame in 1,000, loses their datagrams at random and in bursts, and compares three estimates: samples
/// times N, by the agent's rate, and by the collector's rate, which is what Weir shows. Then it makes attacks, and measures the time
/// to the event. Prints a table and a verdict, and writes a page, charts, CSV and JSON to a folder. Takes about eight minutes; --quick
/// one. Ends with 1 if something that has to hold does not.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Fewer runs: finds faults of several percent, not of one
    #[arg(long)]
    quick: bool,
    /// Percentages of datagrams that are lost: 0,5,20,50
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', value_parser = parse_percent)]
    loss: Vec<f64>,
    /// Runs in memory at each loss
    #[arg(long, value_name = "N", value_parser = parse_count_of::<1, 1_000_000, u32>)]
    runs: Option<u32>,
    /// Rounds over the network at each loss, of 20 runs, or attacks, each
    #[arg(long, value_name = "N", value_parser = parse_count_of::<1, 10_000, u32>)]
    rounds: Option<u32>,
    /// Another seed is other traffic
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    out: Out,
    /// Print figures as JSON instead of the tables
    #[arg(long)]
    json: bool,
    /// Progress on standard error
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
}

/// Above this loss, too few datagrams arrive for a run to show anything.
const LOSS_MAX_PERCENT: f64 = 95.0;

impl Args {
    fn plan(&self) -> anyhow::Result<Plan> {
        let preset = if self.quick { Plan::quick() } else { Plan::standard() };
        if self.loss.iter().any(|percent| !(0.0..=LOSS_MAX_PERCENT).contains(percent)) {
            return Err(Failure::Usage.error("--loss: a percentage from 0 to 95"));
        }

        let asked = each_once(self.loss.iter().map(|percent| percent / 100.0));
        let or = |preset: Vec<f64>| if asked.is_empty() { preset } else { asked.clone() };
        Ok(Plan {
            losses: or(preset.losses),
            attack_losses: or(preset.attack_losses),
            simulated_runs: self.runs.unwrap_or(preset.simulated_runs),
            path_rounds: self.rounds.unwrap_or(preset.path_rounds),
            attack_rounds: self.rounds.unwrap_or(preset.attack_rounds),
            seed: self.seed,
            ..preset
        })
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    privilege::acquire()?;
    let running = Running::begin(&args.out, "weir-lab-flows")?;

    let state: Mutex<Option<Progress>> = Mutex::default();
    let now = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let results = with_progress(
        args.progress,
        || progress_line(*now()),
        || sflow::run(&plan, &ours::make, running.stop, &|progress| *now() = Some(progress)),
    )
    .map_err(|error| match &error {
        Error::Network(error) => privilege::network_error(error),
        Error::Socket(source) => Failure::Unavailable.error(format!("{error}: {source}")),
    })?;
    let interrupted = running.stop.load(Ordering::Relaxed);
    if results.points.is_empty() {
        return Err(Failure::Unavailable.error("ended before anything was measured"));
    }

    let about = running.beginning.end(&results.properties, results.notes.clone());
    let experiment = Experiment::of(plan, About { interrupted, ..about }, results);
    let report = SflowReport::new(&experiment);
    let text = match args.json {
        true => serde_json::to_string_pretty(&experiment)? + "\n",
        false => for_people(|columns, ink| report.terminal(columns, ink)),
    };
    running.end(|folder| report.write(folder), &text, verdict(&experiment))
}

fn verdict(experiment: &Experiment) -> ExitCode {
    if experiment.holds() { ExitCode::SUCCESS } else { Failure::CheckFailed.code() }
}

fn progress_line(progress: Option<Progress>) -> String {
    let Some(Progress { doing, loss, done, parts }) = progress else {
        return "building the network".to_owned();
    };
    format!("part {} of {parts}: {doing}, {} lost", done + 1, percent(loss))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use lab::sflow::{Check, Rule};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &str) -> anyhow::Result<Plan> {
        let words = std::iter::once("lab").chain(line.split_whitespace());
        Cli::try_parse_from(words)?.args.plan()
    }

    #[test]
    fn presets_and_what_changes_them() {
        assert_eq!(plan("").unwrap(), Plan::standard());
        assert_eq!(plan("--quick").unwrap(), Plan::quick());
        let changed = plan("--quick --loss 10,20,10 --rounds 2 --runs 30 --seed 9").unwrap();
        assert_eq!((changed.losses.as_slice(), changed.seed), ([0.1, 0.2].as_slice(), 9));
        assert_eq!(changed.attack_losses, changed.losses);
        assert_eq!(
            (changed.simulated_runs, changed.path_rounds, changed.attack_rounds),
            (30, 2, 2)
        );
    }

    #[test]
    fn a_check_that_fails_ends_with_1() {
        let check = |holds| Check {
            rule: Rule::Bias,
            place: String::new(),
            measured: String::new(),
            wanted: "",
            holds,
        };
        let ends_with = |checks: Vec<Check>| {
            let (about, plan) = (About::default(), Plan::quick());
            let (points, detections) = (Vec::new(), Vec::new());
            verdict(&Experiment { about, plan, points, detections, checks })
        };
        assert_eq!(ends_with(vec![check(true), check(true)]), ExitCode::SUCCESS);
        assert_eq!(ends_with(vec![check(true), check(false)]), ExitCode::from(1));
        assert_eq!(ends_with(Vec::new()), ExitCode::from(1));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["--loss 96", "--loss -1", "--loss nan", "--runs 0", "--rounds 0"] {
            assert!(plan(line).is_err(), "{line}");
        }
    }
}
