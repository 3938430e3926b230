//! How good figures from sFlow are when datagrams are lost: bias, coverage of intervals, and time to an alarm.
//!
//! Agents whose true traffic is known ([`load::sflow`]) send to a [`Collector`]. Three estimates are compared with the truth:
//! samples times the configured rate, samples times the agent's rate, and the collector's own figures. Statistics need many runs,
//! so most are simulated in memory, where datagrams are lost independently or in bursts. Fewer runs, and all attacks, cross a
//! [`Network`] in real time. The first two estimates are computed here, without any of the collector's code.

mod attack;
mod path;
mod played;
mod simulated;
mod tally;
mod verdict;

pub use attack::Detection;
pub use verdict::{Check, Rule};

use crate::About;
use crate::network::{Error as NetworkError, Network, PathLoss, Plan as NetworkPlan, Properties};
use played::Shown;
use serde::Serialize;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One in this many frames is sampled.
pub const SAMPLING_RATE: u32 = 1_000;

/// The rate that an attack must exceed to be noticed.
pub const LIMIT_BITS_PER_S: f64 = 1e9;

/// Time between two queries of a collector for destinations over the limit.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// Shares of datagrams to lose, 0 to below 1.
    pub losses: Vec<f64>,
    /// Runs in memory for each loss and pattern.
    pub simulated_runs: u32,
    /// Rounds over the network for each loss.
    pub path_rounds: u32,
    /// Shares of datagrams to lose during attacks.
    pub attack_losses: Vec<f64>,
    /// Rounds with attacks over the network for each of these shares.
    pub attack_rounds: u32,
    /// Agents in a round, each of which is a run or an attack. At most 250.
    pub agents: u32,
    /// Length of a run.
    pub run_s: f64,
    /// The same seed gives the same traffic, and the same losses in memory; losses in the network are not seeded.
    pub seed: u64,
}

impl Plan {
    /// Thousands of runs in memory, hundreds over the network: about eight minutes.
    pub fn standard() -> Plan {
        Plan {
            losses: vec![0.0, 0.05, 0.2, 0.5],
            simulated_runs: 2_000,
            path_rounds: 10,
            attack_losses: vec![0.0, 0.2, 0.5],
            attack_rounds: 10,
            agents: 20,
            run_s: 4.0,
            seed: 1,
        }
    }

    /// The same plan with fewer runs: less than a minute.
    pub fn quick() -> Plan {
        Plan { simulated_runs: 100, path_rounds: 1, attack_rounds: 1, ..Plan::standard() }
    }
}

/// An analyzer of sFlow that counts bytes by destination and has no data at first.
pub trait Collector {
    /// Processes a datagram that arrived at `now_ns`, on a clock that does not go back.
    fn datagram(&mut self, bytes: &[u8], now_ns: u64);

    /// Bytes of each destination since the beginning.
    fn bytes(&self, now_ns: u64) -> Vec<Bytes>;

    /// Destinations that exceeded [`LIMIT_BITS_PER_S`] since the previous call.
    fn passed(&mut self, now_ns: u64) -> Vec<Ipv4Addr>;
}

/// Creates collectors.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Collector>;

/// A collector's figure for a destination, with its 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bytes {
    /// The destination.
    pub dst: Ipv4Addr,
    /// Estimated bytes.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// How a figure is computed from samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// Samples times the configured rate.
    Raw,
    /// Samples times the number of frames per sample, from the agent's counters.
    AgentRate,
    /// The collector's own figure.
    Collector,
}

impl Estimator {
    /// All estimators, in the order of every table.
    pub const ALL: [Estimator; 3] = [Estimator::Raw, Estimator::AgentRate, Estimator::Collector];

    /// The estimator as readable text.
    pub fn label(self) -> &'static str {
        match self {
            Estimator::Raw => "raw × N",
            Estimator::AgentRate => "by the agent's rate",
            Estimator::Collector => "by the collector's rate",
        }
    }
}

/// Where and how datagrams are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// In memory, each datagram independently.
    Simulated,
    /// In memory, in bursts of ten datagrams on average (Gilbert, 1960).
    SimulatedBursts,
    /// On the links of a network, each datagram independently.
    Network,
}

impl Path {
    /// The path as readable text.
    pub fn label(self) -> &'static str {
        match self {
            Path::Simulated => "in memory",
            Path::SimulatedBursts => "in memory, bursts",
            Path::Network => "over the network",
        }
    }
}

/// The figures of one estimator at one loss, as multiples of the truth.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Accuracy {
    /// The estimator.
    pub estimator: Estimator,
    /// Mean over all figures.
    pub mean: f64,
    /// Standard error of the mean, over runs.
    pub error: f64,
    /// Figures whose 95 % interval contains the truth.
    pub covered: u64,
    /// Number of figures.
    pub figures: u64,
}

impl Accuracy {
    /// Share of the intervals that contain the truth.
    pub fn coverage(&self) -> f64 {
        self.covered as f64 / self.figures.max(1) as f64
    }
}

/// All runs at one loss.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// Where and how datagrams are lost.
    pub path: Path,
    /// Configured loss, 0 to 1.
    pub loss: f64,
    /// Actual loss, according to the numbers of the datagrams.
    pub measured_loss: f64,
    /// Number of independent runs.
    pub runs: u64,
    /// By estimator, in the order of [`Estimator::ALL`].
    pub accuracy: [Accuracy; 3],
    /// Mean of raw × N minus the share of datagrams that arrived: 0 if it is too low by exactly the loss.
    pub raw_beyond_loss: f64,
}

/// All measurements and their settings.
#[derive(Clone, Debug, Serialize)]
pub struct Experiment {
    /// Where, when and how the experiment ran.
    #[serde(flatten)]
    pub about: About,
    /// What was requested.
    pub plan: Plan,
    /// By path, then by loss.
    pub points: Vec<Point>,
    /// By loss.
    pub detections: Vec<Detection>,
    /// The requirements, and whether they are met.
    pub checks: Vec<Check>,
}

/// The measurements, and the network in which they were made.
pub struct Results {
    /// By path, then by loss.
    pub points: Vec<Point>,
    /// By loss.
    pub detections: Vec<Detection>,
    /// Properties of the network.
    pub properties: Properties,
    /// What a reader must know.
    pub notes: Vec<String>,
}

impl Experiment {
    /// Checks the measurements against the requirements.
    pub fn of(plan: Plan, about: About, results: Results) -> Experiment {
        let Results { points, detections, .. } = results;
        let checks = verdict::checks(&points, &detections);
        Experiment { about, plan, points, detections, checks }
    }

    /// Whether everything was measured and all checks hold.
    pub fn holds(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.holds)
    }
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// An error of the lab's sockets or threads.
    #[error("the lab's sockets")]
    Socket(#[from] io::Error),
}

/// The progress of the experiment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// The current activity.
    pub doing: &'static str,
    /// The current loss.
    pub loss: f64,
    /// Finished parts, out of `parts`.
    pub done: usize,
    /// Number of all parts.
    pub parts: usize,
}

/// Measures everything. `progress` is called before each part. Setting `stop` ends it after the parts that are finished.
///
/// # Errors
/// The network cannot be built.
pub fn run(
    plan: &Plan,
    make: Make<'_>,
    stop: &AtomicBool,
    progress: &dyn Fn(Progress),
) -> Result<Results, Error> {
    let mut network = Network::build(&NetworkPlan::default())?;
    let properties = network.properties()?;
    let notes = vec![format!("Packets were dropped by {}.", network.loss_at().label())];
    let (mut points, mut detections) = (Vec::new(), Vec::new());

    let parts = parts(plan);
    for (done, part) in parts.iter().enumerate() {
        progress(Progress { doing: part.doing(), loss: part.loss(), done, parts: parts.len() });
        match *part {
            Part::Figures(Path::Network, loss) => {
                set_loss(&mut network, loss)?;
                let runs = path::runs(&network, plan, loss, make, stop)?;
                points.extend(finished(stop).then(|| Point::of(Path::Network, loss, &runs)));
            }
            Part::Figures(path, loss) => {
                let runs = simulated::runs(plan, path, loss, make, stop);
                points.extend(finished(stop).then(|| Point::of(path, loss, &runs)));
            }
            Part::Attacks(loss) => {
                set_loss(&mut network, loss)?;
                let detection = attack::detections(&network, plan, loss, make, stop)?;
                detections.extend(finished(stop).then_some(detection));
            }
        }
    }
    Ok(Results { points, detections, properties, notes })
}

/// Whether the current part was not cut short.
fn finished(stop: &AtomicBool) -> bool {
    !stop.load(Ordering::Relaxed)
}

/// A part of the experiment that is measured as a unit.
enum Part {
    Figures(Path, f64),
    Attacks(f64),
}

impl Part {
    fn doing(&self) -> &'static str {
        match self {
            Part::Figures(path, _) => path.label(),
            Part::Attacks(_) => "attacks over the network",
        }
    }

    fn loss(&self) -> f64 {
        let (Part::Figures(_, loss) | Part::Attacks(loss)) = self;
        *loss
    }
}

fn parts(plan: &Plan) -> Vec<Part> {
    let mut parts = Vec::new();
    for path in [Path::Simulated, Path::SimulatedBursts, Path::Network] {
        // Without loss there are no bursts.
        let losses =
            plan.losses.iter().filter(|loss| path != Path::SimulatedBursts || **loss > 0.0);
        parts.extend(losses.map(|&loss| Part::Figures(path, loss)));
    }
    parts.extend(plan.attack_losses.iter().map(|&loss| Part::Attacks(loss)));
    parts
}

/// Sets the loss of datagrams from agents; nothing is sent back.
fn set_loss(network: &mut Network, loss: f64) -> Result<(), Error> {
    let loss = PathLoss::per_path(loss).unwrap_or(PathLoss::NONE);
    Ok(network.set_loss_towards(crate::network::End::H2, loss)?)
}

impl Point {
    fn of(path: Path, loss: f64, runs: &[Shown]) -> Point {
        let accuracy = Estimator::ALL.map(|estimator| accuracy(estimator, runs));
        let lost: f64 = runs.iter().map(|run| run.lost_share).sum();
        let measured_loss = lost / runs.len().max(1) as f64;
        let raw_beyond_loss = accuracy[0].mean - (1.0 - measured_loss);
        let runs = runs.len() as u64;
        Point { path, loss, measured_loss, runs, accuracy, raw_beyond_loss }
    }
}

fn accuracy(estimator: Estimator, runs: &[Shown]) -> Accuracy {
    let of = |run: &Shown| -> f64 {
        let flows = run.of(estimator);
        flows.iter().map(|ratio| ratio.value).sum::<f64>() / flows.len().max(1) as f64
    };
    let means: Vec<f64> = runs.iter().map(of).collect();
    let count = means.len().max(1) as f64;
    let mean = means.iter().sum::<f64>() / count;
    // Figures of one run are not independent of each other, so the error is computed over runs.
    let squares: f64 = means.iter().map(|one| (one - mean).powi(2)).sum();
    let error = (squares / (count - 1.0).max(1.0) / count).sqrt();

    let figures = runs.iter().flat_map(|run| run.of(estimator));
    let covered = figures.clone().filter(|ratio| ratio.holds()).count() as u64;
    Accuracy { estimator, mean, error, covered, figures: figures.count() as u64 }
}
