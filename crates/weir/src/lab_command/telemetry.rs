//! `weir lab telemetry`: what an observer still sees of a source while the network between them loses packets.

use super::report_folder::{Folder, command_line, report_error};
use super::{machine, privilege};
use crate::exit::{self, Failure};
use crate::progress::{ProgressMode, with_progress};
use lab::About;
use lab::experiment::model::Machine;
use lab::network::LossAt;
use lab::report::TelemetryReport;
use lab::statistics::Bootstrap;
use lab::telemetry::{self, Error, Plan, Progress, Results, Settings, Telemetry};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use sys::clock::realtime_ns;
use sys::signal::stop_flag;
use text::units::{parse_count, parse_duration, parse_size};

/// Export a counter and events through a network that loses packets, and draw what is on screen within a second
///
/// The source's counter moves and its events happen on a fixed schedule. An exporter tells the counter's value and the new
/// events in one message after the other, over each transport at each loss several times. The observer is held against
/// the truth: which share of the events, and of the counter's steps, it knew within --window, and how old what it knew was.
///
/// Takes about a minute. Writes a page, charts, CSV and JSON to a folder.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Losses in percent, one way, of the whole path, the same in both directions
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "0,5,10,20", value_parser = parse_percent)]
    loss: Vec<f64>,
    /// Which transports, as `weir lab udp-vs-tcp` names them
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "udp,tcp-cubic,tcp-bbr"
    )]
    transports: Vec<String>,
    /// Independent runs of each transport at each loss; five and more have intervals worth the name
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=200))]
    runs: u32,
    /// Length of a run
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// Between two messages of the exporter
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_duration)]
    interval: Duration,
    /// Bytes of a message
    #[arg(long, value_name = "SIZE", default_value = "1000", value_parser = parse_size::<usize>)]
    message_size: usize,
    /// Events per second
    #[arg(long, value_name = "PER_SEC", default_value = "100", value_parser = parse_count::<u64>)]
    events: u64,
    /// Steps of the counter per second
    #[arg(long, value_name = "PER_SEC", default_value = "1k", value_parser = parse_count::<u64>)]
    steps: u64,
    /// How soon something must be known to be on screen
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    window: Duration,
    /// Where the report goes [default: weir-lab-telemetry-DATE-TIME]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Progress on standard error
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
}

/// Longest that makes sense, so that times add up without overflow.
const DURATION_MAX: Duration = Duration::from_secs(86_400);
/// What fits a datagram over IPv4.
const MESSAGE_BYTES_MAX: usize = 65_507;
const RATE_MAX_PER_SEC: u64 = 100_000;
/// Under way at the same time. Each has two sockets, and the usual limit is 1024.
const FLOWS_MAX: usize = 400;

impl Args {
    fn plan(&self) -> anyhow::Result<Plan> {
        let usage = |text: &str| Err(Failure::Usage.error(text));
        if self.duration < Duration::from_secs(1) || self.duration > DURATION_MAX {
            return usage("--duration: a run takes 1s to 1d");
        }
        if self.window > DURATION_MAX || self.window.is_zero() {
            return usage("--window: it is above 0 and at most 1d");
        }
        if self.interval < Duration::from_millis(1) || self.interval > self.duration {
            return usage("--interval: it is 1ms at least, and at most the length of a run");
        }
        if self.message_size > MESSAGE_BYTES_MAX {
            return usage("--message-size: a message has at most 65507 bytes");
        }
        if [self.events, self.steps].iter().any(|rate| !(1..=RATE_MAX_PER_SEC).contains(rate)) {
            return usage("--events and --steps: 1 to 100000 a second");
        }
        let plan = Plan {
            losses: each_once(&self.loss),
            transports: each_once(&self.transports),
            runs: self.runs,
            duration: self.duration,
            interval: self.interval,
            message_bytes: self.message_size,
            events_per_sec: self.events as f64,
            steps_per_sec: self.steps as f64,
            window: self.window,
            ..Plan::default()
        };
        let at_once = plan.parallel_losses.min(plan.losses.len());
        if plan.transports.len() * plan.runs as usize * at_once > FLOWS_MAX {
            return usage("--runs, --transports, --loss: together at most 400 flows at a time");
        }
        Ok(plan)
    }
}

fn each_once<T: PartialEq + Clone>(values: &[T]) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for value in values {
        if !kept.contains(value) {
            kept.push(value.clone());
        }
    }
    kept
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    // Before anything that starts a thread.
    privilege::acquire()?;
    let began_unix_ns = realtime_ns();
    let mut folder = Folder::make(args.out.as_deref(), "weir-lab-telemetry", began_unix_ns)?;
    let stop = stop_flag()?;
    let (began, load_before) = (Instant::now(), machine::load());
    let state: Mutex<Option<Progress>> = Mutex::default();
    let tell = |progress| *state.lock().unwrap_or_else(|e| e.into_inner()) = Some(progress);
    let line = || {
        let progress = *state.lock().unwrap_or_else(|e| e.into_inner());
        let Some(Progress { rounds_done, rounds }) = progress else { return String::new() };
        let left = expected(&plan, rounds).saturating_sub(began.elapsed()).as_secs();
        format!("round {} of {rounds}, about {left} s left", rounds_done + 1)
    };
    let results = with_progress(args.progress, line, || telemetry::run(&plan, stop, &tell));
    let Results { points, notes, loss_at, properties, interrupted } =
        results.map_err(|error| match &error {
            Error::Network(error) => privilege::network_error(error),
            _ => Failure::Usage.error(error),
        })?;
    if points.is_empty() {
        let why = if interrupted { "ended before a run was" } else { "no run could be made" };
        let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
        return Err(Failure::Unavailable.error(format!("{why}{notes}")));
    }
    let injector = match loss_at {
        Some(LossAt::Sockets) => "socket filter, classic BPF, at the receiving sockets, both ways",
        _ => "clsact ingress, classic BPF, at the receiving end of each link, both ways",
    };
    let measured = Telemetry {
        about: About {
            command: command_line(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("WEIR_COMMIT").unwrap_or_default().to_owned(),
            began_unix_ns,
            took_ns: began.elapsed().as_nanos() as u64,
            interrupted,
            machine: Machine {
                load_before,
                load_after: machine::load(),
                ..machine::describe(&properties)
            },
            notes,
        },
        settings: Settings::of(&plan, injector.to_owned()),
        points,
    };
    let report = TelemetryReport::new(&measured, Bootstrap::default());
    let folder = folder.keep();
    report.write(folder).map_err(report_error)?;
    let ended = exit::print_and_end(&report.terminal(), ExitCode::SUCCESS)?;
    // Not on standard output, which is for the figures.
    let _ = writeln!(io::stderr(), "the report: {}", folder.join("report.html").display());
    Ok(ended)
}

fn expected(plan: &Plan, rounds: usize) -> Duration {
    (plan.duration + plan.window + Duration::from_secs(1)) * rounds as u32
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.trim_end_matches('%').trim().parse().map_err(|_| "not a number")?;
    match percent {
        0.0..=100.0 => Ok(percent / 100.0),
        _ => Err("a loss is 0 to 100 percent".to_owned()),
    }
}
