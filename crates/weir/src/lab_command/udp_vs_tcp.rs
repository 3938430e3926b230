//! `weir lab udp-vs-tcp`: which transport delivers telemetry through a network that loses packets, and how late.

mod args;

use super::report_folder::{Folder, command_line, report_error};
use super::{machine, privilege};
use crate::exit::{self, Failure};
use crate::progress::{rewrites_lines, with_progress};
pub(super) use args::Args;
use lab::experiment::AGE_INTERVAL;
use lab::experiment::model::{Experiment, LossIs, Machine, Settings, TransportName};
use lab::experiment::preset::Plan;
use lab::experiment::runner::{self, Progress, Results};
use lab::network::{LossAt, Privilege};
use lab::report::{Ink, Report};
use lab::statistics::Bootstrap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use sys::clock::realtime_ns;
use sys::signal::stop_flag;

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    // Before anything that starts a thread.
    let privilege = privilege::acquire()?;
    let began_unix_ns = realtime_ns();
    let mut folder = Folder::make(args.out.as_deref(), "weir-lab-udp-vs-tcp", began_unix_ns)?;
    let stop = stop_flag()?;
    let (began, load_before) = (Instant::now(), machine::load());
    let progress = Progress::default();
    let results = with_progress(
        args.progress,
        || progress_line(&progress),
        || runner::run(&plan, stop, &progress),
    )
    .map_err(|error| runner_error(&error))?;
    let experiment = Experiment {
        began_unix_ns,
        took_ns: began.elapsed().as_nanos() as u64,
        machine: Machine {
            load_before,
            load_after: machine::load(),
            ..machine::describe(&results.properties)
        },
        ..describe(args, &plan, privilege, results)
    };
    if experiment.points.is_empty() {
        let why = match experiment.interrupted {
            true => "ended before anything was measured".to_owned(),
            false => experiment.notes.join("; "),
        };
        return Err(Failure::Unavailable.error(format!("no run was finished: {why}")));
    }
    let report = Report::new(&experiment, Bootstrap::default());
    let ink = if rewrites_lines(&io::stdout()) && std::env::var_os("NO_COLOR").is_none() {
        Ink::Color
    } else {
        Ink::Plain
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&report.figures())? + "\n",
        false => report.terminal(ink),
    };
    let folder = folder.keep();
    report.write(folder).map_err(report_error)?;
    let ended = exit::print_and_end(&text, ExitCode::SUCCESS)?;
    // Not on standard output, which may be JSON.
    let _ = writeln!(
        io::stderr(),
        "{}; the report: {}",
        report.claims_in_one_line(),
        folder.join("report.html").display()
    );
    Ok(ended)
}

/// Everything but time and machine.
fn describe(args: &Args, plan: &Plan, privilege: Privilege, results: Results) -> Experiment {
    let injector = match results.loss_at {
        LossAt::Links => {
            "clsact ingress, classic BPF, at the receiving end of each link, both ways"
        }
        LossAt::Sockets => "socket filter, classic BPF, at the receiving sockets, both ways",
    };
    let names: Vec<TransportName> =
        results.transports.iter().map(|(name, _)| name.clone()).collect();
    let options = results.transports.into_iter().filter(|(_, options)| !options.is_empty());
    let settings = Settings {
        message_bytes: plan.message_bytes,
        rate_per_sec: plan.rate_per_sec,
        duration_s: plan.duration.as_secs_f64(),
        runs: plan.runs,
        loss_is: if args.per_link { LossIs::PerLink } else { LossIs::PerPath },
        schedules: plan.schedules.clone(),
        transports: names,
        age_sample_interval_ms: AGE_INTERVAL.as_secs_f64() * 1e3,
        injector: injector.to_owned(),
        privilege: privilege::label(privilege).to_owned(),
        mtu_bytes: results.properties.mtu_bytes,
        gso_max_segs: results.properties.gso_max_segs,
        parallel_runs: (plan.flows_of_one_loss() * plan.parallel_losses()) as u32,
        transport_options: options.collect(),
    };
    Experiment {
        command: command_line(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("WEIR_COMMIT").unwrap_or_default().to_owned(),
        preset: plan.preset.to_owned(),
        interrupted: results.interrupted,
        settings,
        points: results.points,
        notes: results.notes,
        ..Experiment::default()
    }
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

fn runner_error(error: &runner::Error) -> anyhow::Error {
    match error {
        runner::Error::Network(error) => privilege::network_error(error),
        runner::Error::UnknownTransport(_) | runner::Error::LossOutOfRange(_) => {
            Failure::Usage.error(error)
        }
        runner::Error::NoTransport(_) => Failure::Unavailable.error(error),
        runner::Error::Thread(source) => Failure::Unavailable.error(format!(
            "{error}: {source}; see `ulimit -u`, or ask for fewer runs or transports"
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
