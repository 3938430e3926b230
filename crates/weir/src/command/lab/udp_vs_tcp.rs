//! `weir lab udp-vs-tcp`: which transport delivers telemetry through a network that loses packets, and how late.

mod args;

use super::{Running, for_people, privilege};
use crate::exit::Failure;
use crate::progress::with_progress;
pub(super) use args::Args;
use lab::About;
use lab::experiment::model::{Experiment, LossIs};
use lab::experiment::runner::{self, Progress};
use lab::report::Report;
use lab::statistics::Bootstrap;
use std::process::ExitCode;
use std::time::Duration;

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    let privilege = privilege::acquire()?;
    let running = Running::begin(&args.out, "weir-lab-udp-vs-tcp")?;

    let progress = Progress::default();
    let results = with_progress(
        args.progress,
        || progress_line(&progress),
        || runner::run(&plan, running.stop, &progress),
    )
    .map_err(|error| runner_error(&error))?;
    if results.points.is_empty() {
        let why = match results.interrupted {
            true => "ended before anything was measured".to_owned(),
            false => results.notes.join("; "),
        };
        return Err(Failure::Unavailable.error(format!("no run was finished: {why}")));
    }

    let about = About {
        interrupted: results.interrupted,
        ..running.beginning.end(&results.properties, results.notes.clone())
    };
    let loss_is = if args.per_link { LossIs::PerLink } else { LossIs::PerPath };
    let experiment = Experiment::of(&plan, loss_is, privilege, results, about);
    let report = Report::new(&experiment, Bootstrap::default());

    let text = match args.json {
        true => serde_json::to_string_pretty(&report.figures())? + "\n",
        false => for_people(|columns, ink| report.terminal(columns, ink)),
    };
    running.end(|folder| report.write(folder), &text, ExitCode::SUCCESS)
}

/// `[######--------------] 31 %  round 4 of 10 (8 % loss, 80 flows), 10:12 left`.
fn progress_line(progress: &Progress) -> String {
    const CELLS: usize = 20;
    let Some(now) = progress.now() else { return "building the network".to_owned() };
    let done = (now.share() * CELLS as f64) as usize;
    let bar = "#".repeat(done.min(CELLS)) + &"-".repeat(CELLS.saturating_sub(done));

    let percent = |loss: f64| ((loss * 1e4).round() / 1e2).to_string();
    let (least, most) = (
        now.losses.iter().copied().fold(1.0, f64::min),
        now.losses.iter().copied().fold(0.0, f64::max),
    );
    let losses = if least < most {
        format!("{} to {}", percent(least), percent(most))
    } else {
        percent(most)
    };

    format!(
        "[{bar}] {:2.0} %  round {} of {} ({} % loss, {} flows), {} left",
        now.share() * 100.0,
        now.rounds_done + 1,
        now.rounds,
        losses,
        now.flows,
        minutes(now.left())
    )
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

pub(super) fn runner_error(error: &runner::Error) -> anyhow::Error {
    match error {
        runner::Error::Network(error) => privilege::network_error(error),
        runner::Error::UnknownTransport(_) | runner::Error::LossOutOfRange(_) => {
            Failure::Usage.error(error)
        }
        runner::Error::NoTransport(_) => Failure::Unavailable.error(error),
        runner::Error::Thread(source) => Failure::Unavailable.error(format!(
            "{error}: {source}. Fix: see `ulimit -u`, or ask for fewer runs or transports"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_in_minutes() {
        assert_eq!(minutes(Duration::from_millis(59_001)), "1:00");
        assert_eq!(minutes(Duration::from_secs(605)), "10:05");
        assert_eq!(progress_line(&Progress::default()), "building the network");
    }
}
