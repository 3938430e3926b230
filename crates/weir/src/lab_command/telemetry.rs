//! `weir lab telemetry`: what an observer still sees of a source while the network between them loses packets.

use super::udp_vs_tcp::runner_error;
use super::{Running, each_once, privilege};
use crate::exit::Failure;
use crate::progress::{ProgressMode, with_progress};
use lab::About;
use lab::report::TelemetryReport;
use lab::statistics::Bootstrap;
use lab::telemetry::{self, Plan, Progress, Results, Settings, Telemetry};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use text::units::{parse_count, parse_duration, parse_size};

/// Export a counter and events through a network that loses packets, and draw what is on screen within a second
///
/// The source's counter moves and its events happen on a fixed schedule. An exporter reports the counter's value and the new
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

        let least = Plan::MESSAGE_BYTES_MIN;
        if !(least..=MESSAGE_BYTES_MAX).contains(&self.message_size) {
            return usage(&format!("--message-size: a message has {least} to 65507 bytes"));
        }
        if [self.events, self.steps].iter().any(|rate| !(1..=RATE_MAX_PER_SEC).contains(rate)) {
            return usage("--events and --steps: 1 to 100000 a second");
        }

        let plan = Plan {
            losses: each_once(self.loss.clone()),
            transports: each_once(self.transports.clone()),
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

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    privilege::acquire()?;
    let running = Running::begin(args.out.as_deref(), "weir-lab-telemetry")?;

    let began = Instant::now();
    let state: Mutex<Option<Progress>> = Mutex::default();
    let tell = |progress| *state.lock().unwrap_or_else(|e| e.into_inner()) = Some(progress);
    let line = || {
        let progress = *state.lock().unwrap_or_else(|e| e.into_inner());
        let Some(Progress { rounds_done, rounds }) = progress else { return String::new() };
        let left = expected(&plan, rounds).saturating_sub(began.elapsed()).as_secs();
        format!("round {} of {rounds}, about {left} s left", rounds_done + 1)
    };
    let measure = || telemetry::run(&plan, running.stop, &tell);
    let results =
        with_progress(args.progress, line, measure).map_err(|error| runner_error(&error))?;

    let Results { points, notes, loss_at, properties, interrupted } = results;
    if points.is_empty() {
        let why = if interrupted { "ended before a run was" } else { "no run could be made" };
        let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
        return Err(Failure::Unavailable.error(format!("{why}{notes}")));
    }

    let measured = Telemetry {
        about: About { interrupted, ..running.beginning.end(&properties, notes) },
        settings: Settings::of(&plan, loss_at),
        points,
    };
    let report = TelemetryReport::new(&measured, Bootstrap::default());
    running.end(|folder| report.write(folder), &report.terminal())
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
