//! Runs an experiment: builds a network for each loss rate, and runs all flows of that loss rate in it at the same time.
//!
//! Flows of one network do not disturb each other: a hundred messages per second each are far below the capacity of the
//! links, and each packet is lost independently. CPU time limits the number of flows, not the path. Connections are made
//! before the loss begins, so that all runs of a loss rate begin together and have the same length.
//!
//! Memory: 8 bytes for each message and 8 for each sample of the age. The default preset uses 125 MB at its end and up to
//! 250 threads.

use super::disturbance::{Disturbance, disturbed};
use super::flow::{Flow, FlowPlan};
use super::model::{KernelCounters, Point, Run, Schedule, TransportName};
use super::preset::Plan;
use super::probe::{self, Probed};
use crate::network::{self, Counters, End, LossAt, Network, PathLoss, Properties};
use crate::transport::{self, Transport};
use load::Random;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use text::percent;

/// Why an experiment cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no transport {0}")]
    UnknownTransport(String),
    #[error("a loss of {0} is not between 0 and 1")]
    LossOutOfRange(f64),
    #[error("this kernel has none of the transports: {0}")]
    NoTransport(String),
    #[error("the network of the lab")]
    Network(#[from] network::Error),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// The results of an experiment.
#[derive(Debug)]
pub struct Results {
    pub points: Vec<Point>,
    /// What the reader must know: failed runs, and transports that this kernel does not support.
    pub notes: Vec<String>,
    /// The transports that ran, in the order of the plan, with the options of their sockets.
    pub transports: Vec<(TransportName, String)>,
    /// Kernel properties that determine the performance of TCP.
    pub properties: Properties,
    pub loss_at: LossAt,
    /// Whether some runs were not finished.
    pub interrupted: bool,
}

/// The progress of an experiment, for a caller that shows it.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Option<Now>>);

/// The state of an experiment at one moment.
#[derive(Clone, Debug)]
pub struct Now {
    /// The loss rates that are running.
    pub losses: Vec<f64>,
    /// The number of finished rounds, and of all rounds.
    pub rounds_done: usize,
    pub rounds: usize,
    /// Number of running flows.
    pub flows: usize,
    round_began: Instant,
    round_takes: Duration,
}

impl Now {
    /// Share of the experiment that is done, 0 to 1.
    pub fn share(&self) -> f64 {
        let of_round = self.round_began.elapsed().as_secs_f64() / self.round_takes.as_secs_f64();
        (self.rounds_done as f64 + of_round.min(1.0)) / self.rounds as f64
    }

    /// Approximate remaining time.
    pub fn left(&self) -> Duration {
        let rounds_after = self.rounds.saturating_sub(self.rounds_done + 1);
        let of_round = self.round_takes.saturating_sub(self.round_began.elapsed());
        of_round + self.round_takes * rounds_after as u32
    }
}

impl Progress {
    /// `None` until the first round has begun.
    pub fn now(&self) -> Option<Now> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Now>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shorter runs are not meaningful.
const SHORTEST_RUN: Duration = Duration::from_secs(2);
/// From the last flow's connection to the first message: all threads have started by then.
const RUN_UP: Duration = Duration::from_millis(200);

/// Runs the experiment. Setting `stop` ends it with the results up to then.
///
/// # Errors
/// See [`Error`]. A failed flow is not an error: its results are missing, and a note reports it.
pub fn run(plan: &Plan, stop: &AtomicBool, progress: &Progress) -> Result<Results, Error> {
    run_among(&transport::all(), plan, stop, progress)
}

/// As [`run`], with the caller's transports; the plan names some of these.
///
/// # Errors
/// As [`run`].
pub fn run_among(
    known: &[Box<dyn Transport>],
    plan: &Plan,
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<Results, Error> {
    for &loss in &plan.losses {
        PathLoss::per_path(loss).ok_or(Error::LossOutOfRange(loss))?;
    }

    let (transports, mut results) = survey(known, plan)?;
    let mut disturbances = Vec::new();
    for (round, losses) in plan.losses.chunks(plan.parallel_losses()).enumerate() {
        if stop.load(Ordering::Relaxed) {
            results.interrupted = true;
            break;
        }

        let flows = losses.len() * transports.len() * plan.schedules.len() * plan.runs as usize;
        *progress.lock() = Some(Now {
            losses: losses.to_vec(),
            rounds_done: round,
            rounds: plan.rounds(),
            flows,
            round_began: Instant::now(),
            round_takes: plan.expected_round(),
        });

        for outcome in run_losses(plan, &transports, losses, stop)? {
            match outcome {
                Ok(one) => {
                    results.points.extend(one.points);
                    results.notes.extend(one.notes);
                    disturbances.push(one.disturbance);
                }
                Err(error) if results.points.is_empty() => return Err(error),
                // The earlier measurements are worth keeping.
                Err(error) => {
                    results.notes.push(format!("A loss could not be run: {}", text(&error)))
                }
            }
        }
    }

    tell_cut_runs(plan, &mut results);
    results.notes.extend(disturbed(&disturbances));
    results.notes.dedup();
    Ok(results)
}

/// Finds out what this kernel supports, on a network without loss.
fn survey<'t>(
    known: &'t [Box<dyn Transport>],
    plan: &Plan,
) -> Result<(Vec<&'t dyn Transport>, Results), Error> {
    let network = Network::build(&network_plan(plan))?;
    let mut results = Results {
        points: Vec::new(),
        notes: Vec::new(),
        transports: Vec::new(),
        properties: network.properties()?,
        loss_at: network.loss_at(),
        interrupted: false,
    };

    let mut transports = Vec::new();
    for name in &plan.transports {
        let transport = known.iter().find(|transport| transport.name().as_str() == name);
        let transport = &**transport.ok_or_else(|| Error::UnknownTransport(name.clone()))?;
        match Flow::connect(transport, &network) {
            Ok(_) => {
                results.transports.push((transport.name(), transport.options()));
                transports.push(transport);
            }
            Err(error) => {
                results.notes.push(format!("{name} is left out: this host refuses it ({error})"));
            }
        }
    }

    if transports.is_empty() {
        return Err(Error::NoTransport(results.notes.join("; ")));
    }

    if plan.is_heavy() {
        results.notes.push(format!(
            "{} messages a second at a time may be more than this host carries at once: delays may be the host's.",
            plan.flows_of_one_loss() as f64 * plan.rate_per_sec
        ));
    }
    if network.loss_at() == LossAt::Sockets {
        results.notes.push(
            "This kernel cannot drop packets at links (cls_bpf, sch_ingress), so they are dropped at the receiving \
             sockets, with the loss of the whole path."
                .to_owned(),
        );
    }

    Ok((transports, results))
}

fn network_plan(plan: &Plan) -> network::Plan {
    network::Plan { span: plan.span, ..network::Plan::default() }
}

/// The results of one loss rate.
struct OneLoss {
    points: Vec<Point>,
    notes: Vec<String>,
    disturbance: Disturbance,
}

/// Runs several loss rates at the same time.
fn run_losses(
    plan: &Plan,
    transports: &[&dyn Transport],
    losses: &[f64],
    stop: &AtomicBool,
) -> Result<Vec<Result<OneLoss, Error>>, Error> {
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, &loss) in losses.iter().enumerate() {
            let thread = thread::Builder::new().name(format!("loss-{number}"));
            let run = move || run_loss(plan, transports, loss, stop);
            running.push(thread.spawn_scoped(scope, run).map_err(Error::Thread)?);
        }

        // A panic there is a bug; its message is already on standard error.
        let join = |one: thread::ScopedJoinHandle<'_, _>| {
            one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(running.into_iter().map(join).collect())
    })
}

/// A planned run.
struct Job<'t> {
    transport: &'t dyn Transport,
    schedule: Schedule,
    /// Number of the run, from 0.
    number: usize,
}

/// Runs all flows of one loss rate.
fn run_loss(
    plan: &Plan,
    transports: &[&dyn Transport],
    loss: f64,
    stop: &AtomicBool,
) -> Result<OneLoss, Error> {
    let path_loss = PathLoss::per_path(loss).ok_or(Error::LossOutOfRange(loss))?;
    let mut network = Network::build(&network_plan(plan))?;
    let mut notes = Vec::new();
    let at = format!("at {} loss", percent(loss));

    let mut flows = Vec::new();
    for job in jobs(plan, transports) {
        match Flow::connect(job.transport, &network) {
            Ok(flow) => flows.push((job, flow)),
            Err(error) => {
                notes.push(format!("{} could not connect {at}: {error}", job.transport.name()))
            }
        }
    }

    network.set_loss(path_loss)?;
    for (_, flow) in &flows {
        flow.prepare(&network).map_err(network::Error::Probe)?;
    }

    let hosts = [End::H1, End::H2].map(|end| network.host(end));
    let before = hosts.map(|host| host.counters().unwrap_or_default());
    let (finished, probed) = run_flows(plan, flows, &network, loss.to_bits(), stop)?;

    let disturbance = Disturbance { loss, late: probed.late, queue_drops: network.queue_drops() };
    let [h1, h2] = hosts.map(|host| host.counters().unwrap_or_default());
    let kernel = kernel_counters(&h1.since(&before[0]), &h2.since(&before[1]));

    let mut points: Vec<Point> = Vec::new();
    for (job, run) in finished {
        let name = job.transport.name();
        let mut run = match run {
            Ok(run) => run,
            Err(error) => {
                notes.push(format!("{name} could not run {at}: {error}"));
                continue;
            }
        };

        run.measured_loss = probed.losses.get(job.number).copied();
        run.kernel = kernel;
        let is_its = |point: &Point| point.transport == name && point.schedule == job.schedule;
        match points.iter_mut().find(|point| is_its(point)) {
            Some(point) => point.runs.push(run),
            None => points.push(Point {
                transport: name,
                schedule: job.schedule,
                configured_loss: loss,
                runs: vec![run],
            }),
        }
    }

    Ok(OneLoss { points, notes, disturbance })
}

/// Every combination of transport, schedule and run number.
fn jobs<'t>(plan: &'t Plan, transports: &'t [&'t dyn Transport]) -> impl Iterator<Item = Job<'t>> {
    transports.iter().flat_map(move |transport| {
        plan.schedules.iter().flat_map(move |&schedule| {
            (0..plan.runs as usize).map(move |number| Job {
                transport: *transport,
                schedule,
                number,
            })
        })
    })
}

type Finished<'t> = Vec<(Job<'t>, io::Result<Run>)>;

/// Runs all flows together and, alongside them, one loss measurement for each run number.
fn run_flows<'t>(
    plan: &Plan,
    flows: Vec<(Job<'t>, Flow)>,
    network: &Network,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(Finished<'t>, Probed), Error> {
    let interval = Duration::from_secs_f64(1.0 / plan.rate_per_sec);
    let places = shuffled(flows.len(), seed);
    let begin = Instant::now() + RUN_UP;

    thread::scope(|scope| {
        let probing = thread::Builder::new()
            .name("probe".to_owned())
            .spawn_scoped(scope, || probe::run(network, plan.runs, begin, plan.duration, stop))
            .map_err(Error::Thread)?;

        let mut running = Vec::new();
        let places_count = flows.len().max(1) as f64;
        for (index, (job, flow)) in flows.into_iter().enumerate() {
            let place = places.get(index).copied().unwrap_or(0);
            let flow_plan = FlowPlan {
                message_bytes: plan.message_bytes,
                interval,
                duration: plan.duration,
                schedule: job.schedule,
                age_interval: super::AGE_INTERVAL,
                begin: begin + interval.mul_f64(place as f64 / places_count),
                seed,
            };
            let thread = thread::Builder::new().name(format!("flow-{index}"));
            let run = move || flow.run(&index.to_string(), flow_plan, stop);
            running.push((job, thread.spawn_scoped(scope, run).map_err(Error::Thread)?));
        }

        let finished = running.into_iter().map(|(job, thread)| {
            let run =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
            (job, run)
        });
        let finished = finished.collect();
        Ok((finished, probing.join().unwrap_or_default()))
    })
}

/// The numbers below `count` in an order that depends on the seed: each flow's start within the interval between two
/// messages. Otherwise flows would wait for each other at the CPUs, and always in the same order.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::seeded(seed);
    let mut places: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        places.swap(last, random.below(last as u64 + 1) as usize);
    }
    places
}

/// Removes runs that were stopped at once, and adds a note on those that were stopped early.
fn tell_cut_runs(plan: &Plan, results: &mut Results) {
    if !results.interrupted && results.points.iter().all(|point| all_full(plan, point)) {
        return;
    }

    for point in &mut results.points {
        point
            .runs
            .retain(|run| run.duration_ns >= SHORTEST_RUN.min(plan.duration).as_nanos() as u64);
    }
    results.points.retain(|point| !point.runs.is_empty());

    for &loss in &plan.losses {
        let runs = results.points.iter().filter(|point| point.configured_loss == loss);
        let cut = runs.filter(|point| !all_full(plan, point)).flat_map(|point| &point.runs);
        let shortest = cut.filter(|run| run.failure.is_empty()).map(|run| run.duration_ns).min();
        if let Some(shortest) = shortest.filter(|&ns| u128::from(ns) < plan.duration.as_nanos()) {
            results.interrupted = true;
            results.notes.push(format!(
                "The runs at {} loss were ended after {:.0} s of {:.0} s.",
                percent(loss),
                shortest as f64 / 1e9,
                plan.duration.as_secs_f64()
            ));
        }
    }
}

/// Whether all runs had their full length, or failed by themselves.
fn all_full(plan: &Plan, point: &Point) -> bool {
    let is_full = |run: &Run| {
        u128::from(run.duration_ns) >= plan.duration.as_nanos() || !run.failure.is_empty()
    };
    point.runs.iter().all(is_full)
}

/// The counters in a report. They belong to the hosts: all flows of a network share them.
fn kernel_counters(sender: &Counters, receiver: &Counters) -> KernelCounters {
    let tcp = |group, name| sender.value(group, name).unwrap_or(0);
    KernelCounters {
        retransmitted_segments: tcp("Tcp", "RetransSegs"),
        timeouts: tcp("TcpExt", "TCPTimeouts"),
        lost_retransmits: tcp("TcpExt", "TCPLostRetransmit"),
        spurious_timeouts: tcp("TcpExt", "TCPSpuriousRTOs"),
        retransmit_failures: tcp("TcpExt", "TCPRetransFail"),
        udp_receive_buffer_errors: receiver.value("Udp", "RcvbufErrors").unwrap_or(0),
    }
}

fn text(error: &Error) -> String {
    use std::error::Error as _;
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_all_numbers_in_an_order_of_the_seed() {
        let places = shuffled(80, 1);
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..80).collect::<Vec<_>>());
        assert_ne!(places, sorted);
        assert_eq!(places, shuffled(80, 1));
        assert!(shuffled(0, 1).is_empty());
    }

    #[test]
    fn the_rest_is_told_in_rounds() {
        let now = Now {
            losses: vec![0.1],
            rounds_done: 1,
            rounds: 4,
            flows: 8,
            round_began: Instant::now(),
            round_takes: Duration::from_secs(100),
        };
        assert!((0.25..0.26).contains(&now.share()));
        assert!(now.left() > Duration::from_secs(299) && now.left() <= Duration::from_secs(300));
    }
}
