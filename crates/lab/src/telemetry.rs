//! What an observer still sees of a source while the network between them loses packets.
//!
//! The source has a counter that moves at a fixed rate, and events at another, each with its number. An exporter reports both in
//! messages like sFlow's: the counter's *value*, so that a message that is lost costs nothing once the next one comes, and
//! the events since the message before, which come once. The same messages go over each transport. A true event is *on
//! screen* when the observer knows it within the window: a step of the counter when a value at least as high has come, an
//! event when a message with it has come.

mod exporter;
mod message;
mod observer;
mod runner;

pub use runner::{Progress, Results, run};

use crate::About;
use crate::experiment::model::{MeasuredLoss, TransportName};
use crate::network::LossAt;
use crate::statistics::{Bootstrap, Estimate, Figure, Pool};
use serde::Serialize;
use std::time::Duration;

/// What a measurement is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One-way losses of the whole path, the same in both directions, 0 to 1.
    pub losses: Vec<f64>,
    /// Names of transports.
    pub transports: Vec<String>,
    /// Independent runs of each transport at each loss.
    pub runs: u32,
    pub duration: Duration,
    /// Between two messages of the exporter.
    pub interval: Duration,
    /// Bytes of a message; at least [`Plan::MESSAGE_BYTES_MIN`].
    pub message_bytes: usize,
    pub events_per_sec: f64,
    /// Steps of the counter.
    pub steps_per_sec: f64,
    /// How soon something must be known to be on screen.
    pub window: Duration,
    /// Losses that are run at the same time, each in a network of its own.
    pub parallel_losses: usize,
}

impl Plan {
    /// The header and one event.
    pub const MESSAGE_BYTES_MIN: usize = message::HEADER_BYTES + message::EVENT_BYTES;
}

impl Default for Plan {
    /// About a minute: 50 messages of 1,000 bytes a second, 100 events and 1,000 steps a second.
    fn default() -> Plan {
        Plan {
            losses: vec![0.0, 0.05, 0.1, 0.2],
            transports: ["udp", "tcp-cubic", "tcp-bbr"].map(String::from).to_vec(),
            runs: 5,
            duration: Duration::from_secs(60),
            interval: Duration::from_millis(20),
            message_bytes: 1_000,
            events_per_sec: 100.0,
            steps_per_sec: 1_000.0,
            window: Duration::from_secs(1),
            parallel_losses: 4,
        }
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Telemetry {
    pub about: About,
    pub settings: Settings,
    /// One per transport and loss: by transport in the order of the settings, then loss ascending.
    pub points: Vec<Point>,
}

/// The plan, for a report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Settings {
    pub duration_s: f64,
    pub runs: u32,
    pub interval_ms: f64,
    pub message_bytes: usize,
    pub events_per_sec: f64,
    pub steps_per_sec: f64,
    pub window_ms: f64,
    pub transports: Vec<TransportName>,
    /// Where the loss happens.
    pub injector: String,
}

impl Settings {
    /// What a plan says.
    pub fn of(plan: &Plan, loss_at: Option<LossAt>) -> Settings {
        Settings {
            duration_s: plan.duration.as_secs_f64(),
            runs: plan.runs,
            interval_ms: plan.interval.as_secs_f64() * 1e3,
            message_bytes: plan.message_bytes,
            events_per_sec: plan.events_per_sec,
            steps_per_sec: plan.steps_per_sec,
            window_ms: plan.window.as_secs_f64() * 1e3,
            transports: plan.transports.iter().map(|name| TransportName::new(name)).collect(),
            injector: loss_at.unwrap_or(LossAt::Links).label().to_owned(),
        }
    }
}

/// All runs of one transport at one loss.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    pub transport: TransportName,
    /// One-way loss of the path, 0 to 1.
    pub configured_loss: f64,
    /// Measured next to the runs with numbered datagrams.
    pub measured_loss: Option<MeasuredLoss>,
    pub runs: Vec<Run>,
}

/// What the observer saw in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// Events of the source.
    pub events: u64,
    /// Events known within the window.
    pub events_on_screen: u64,
    /// Events known before the run, and the window after it, were over.
    pub events_seen: u64,
    /// Steps of the counter.
    pub steps: u64,
    /// Steps known within the window.
    pub steps_on_screen: u64,
    /// Messages that the kernel took from the exporter, until the window after the run was over.
    pub sent: u64,
    /// Messages that found no room and were thrown away.
    pub refused: u64,
    pub received: u64,
    /// Every 10 ms: how old the newest value of the counter was that the observer had; ascending. Not in JSON, whose readers
    /// get the quantiles.
    #[serde(skip)]
    pub ages_ns: Vec<u64>,
    /// Longest time by which the system woke the exporter too late: the machine's delay, not the transport's.
    pub woken_late_ns: u64,
    /// Why the connection broke; empty if it did not.
    pub failure: String,
}

/// A point's figures, with their intervals over runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    /// Share of events on screen within the window, 0 to 1.
    pub events_on_screen: Option<Estimate>,
    /// Share of events that were seen at all.
    pub events_seen: Option<Estimate>,
    /// Share of the counter's steps on screen within the window.
    pub steps_on_screen: Option<Estimate>,
    pub age_mean_ns: Option<Estimate>,
    pub age_p50_ns: Option<Estimate>,
    pub age_p99_ns: Option<Estimate>,
    pub age_max_ns: Option<Estimate>,
}

impl Point {
    /// Its figures. Events of one run depend on each other, so intervals are over runs.
    pub fn figures(&self, bootstrap: Bootstrap) -> Figures {
        let over = |of: &dyn Fn(&[u32]) -> Option<Figure>| bootstrap.estimate(self.runs.len(), of);
        let share = |part: fn(&Run) -> u64, whole: fn(&Run) -> u64| {
            over(&|weights| {
                let sum = |of: fn(&Run) -> u64| {
                    let runs = self.runs.iter().zip(weights);
                    runs.map(|(run, &weight)| of(run) * u64::from(weight)).sum::<u64>()
                };
                let (part, whole) = (sum(part), sum(whole));
                let value = part as f64 / whole as f64;
                (whole > 0).then_some(Figure { value, at_least: false })
            })
        };

        let ages = Pool::new(self.runs.iter().map(|run| (run.ages_ns.as_slice(), &[][..])));
        let age = |share: f64| over(&|weights| ages.quantile(weights, share));

        Figures {
            events_on_screen: share(|run| run.events_on_screen, |run| run.events),
            events_seen: share(|run| run.events_seen, |run| run.events),
            steps_on_screen: share(|run| run.steps_on_screen, |run| run.steps),
            age_mean_ns: over(&|weights| ages.mean(weights)),
            age_p50_ns: age(0.5),
            age_p99_ns: age(0.99),
            age_max_ns: age(1.0),
        }
    }
}
