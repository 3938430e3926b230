//! Runs an experiment: a network for each loss, and in it every flow of that loss at the same time.
//!
//! Flows of one network cannot disturb each other: hundred messages a second each are far below what its links carry, and
//! each packet meets the loss on its own. Their number is bounded by the processors' share of it, not by the path.

use super::flow::{self, FlowPlan};
use super::model::{MeasuredLoss, Point, Run, Schedule, TransportName};
use super::preset::Plan;
use crate::network::{self, End, Network, PathLoss, Properties};
use crate::random::Random;
use crate::transport::{self, Transport};
use std::io;
use std::net::UdpSocket;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no transport {0}")]
    UnknownTransport(String),
    #[error("a loss of {0} is not between 0 and 1")]
    LossOutOfRange(f64),
    #[error("the network of the lab")]
    Network(#[from] network::Error),
}

/// What an experiment gave.
#[derive(Clone, Debug, Default)]
pub struct Results {
    pub points: Vec<Point>,
    /// What the reader must know: runs that failed, transports that this kernel has not.
    pub notes: Vec<String>,
    /// What decided how TCP fared, as the kernel said.
    pub properties: Properties,
    /// Not all runs were finished.
    pub interrupted: bool,
}

/// How far an experiment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Rounds that are over, and all of them.
    pub rounds_done: usize,
    pub rounds: usize,
    pub elapsed: Duration,
    pub expected: Duration,
}

/// Runs the experiment. `progress` is told a few times a second; setting `stop` ends it with what was finished.
///
/// # Errors
/// See [`Error`]. A run that fails is no error: it is missing, and a note says so.
pub fn run(
    plan: &Plan,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Results, Error> {
    for name in &plan.transports {
        transport::named(name).ok_or_else(|| Error::UnknownTransport(name.clone()))?;
    }
    for &loss in &plan.losses {
        PathLoss::per_path(loss).ok_or(Error::LossOutOfRange(loss))?;
    }
    let began = Instant::now();
    let mut results = Results::default();
    for (round, losses) in plan.losses.chunks(plan.parallel_losses.max(1)).enumerate() {
        let tell = || {
            progress(Progress {
                rounds_done: round,
                rounds: plan.rounds(),
                elapsed: began.elapsed(),
                expected: plan.expected(),
            });
        };
        let over = AtomicBool::new(false);
        let outcomes: Vec<_> = thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    tell();
                    thread::sleep(Duration::from_millis(200));
                }
            });
            let networks: Vec<_> = losses
                .iter()
                .map(|&loss| scope.spawn(move || run_loss(plan, loss, stop)))
                .collect();
            let outcomes = networks.into_iter().map(|one| one.join()).collect();
            over.store(true, Ordering::Relaxed);
            outcomes
        });
        for outcome in outcomes {
            // A panic there is a defect; its message is on standard error already.
            let one = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            results.points.extend(one.points);
            results.notes.extend(one.notes);
            results.properties = one.properties;
        }
        if stop.load(Ordering::Relaxed) {
            results.interrupted = true;
            break;
        }
    }
    results.notes.sort();
    results.notes.dedup();
    Ok(results)
}

/// Every flow at one loss.
fn run_loss(plan: &Plan, loss: f64, stop: &AtomicBool) -> Result<Results, Error> {
    let path_loss = PathLoss::per_path(loss).ok_or(Error::LossOutOfRange(loss))?;
    let network = Network::build(&network::Plan { loss: path_loss, ..network::Plan::default() })?;
    let properties = network.properties()?;
    let transports: Vec<_> =
        plan.transports.iter().filter_map(|name| transport::named(name)).collect();
    let finished: Mutex<Vec<(TransportName, Schedule, io::Result<Run>)>> = Mutex::default();
    let over = AtomicBool::new(false);
    let probed = thread::scope(|scope| {
        let probing = scope.spawn(|| probe(&network, plan.duration, stop, &over));
        let flows: Vec<_> = jobs(plan, &transports)
            .map(|(transport, schedule, number)| {
                let (finished, network) = (&finished, &network);
                scope.spawn(move || {
                    let run =
                        flow::run(transport, flow_plan(plan, schedule, number), network, stop);
                    let entry = (transport.name(), schedule, run);
                    finished.lock().unwrap_or_else(|poison| poison.into_inner()).push(entry);
                })
            })
            .collect();
        for flow in flows {
            let _ = flow.join();
        }
        over.store(true, Ordering::Relaxed);
        probing.join().unwrap_or_default()
    });
    let finished = finished.into_inner().unwrap_or_else(|poison| poison.into_inner());
    let mut results = Results { properties, ..Results::default() };
    for (transport, schedule, _) in jobs(plan, &transports).filter(|(_, _, number)| *number == 0) {
        results.points.push(Point {
            transport: transport.name(),
            schedule,
            configured_loss: loss,
            runs: Vec::new(),
        });
    }
    for (transport, schedule, run) in finished {
        match run {
            Ok(mut run) => {
                run.measured_loss = probed;
                let point = results
                    .points
                    .iter_mut()
                    .find(|point| point.transport == transport && point.schedule == schedule);
                if let Some(point) = point {
                    point.runs.push(run);
                }
            }
            Err(error) => results
                .notes
                .push(format!("{transport} could not run at {:.1} % loss: {error}", loss * 100.0)),
        }
    }
    results.points.retain(|point| !point.runs.is_empty());
    Ok(results)
}

/// Every transport, schedule and number of a run.
fn jobs<'t>(
    plan: &'t Plan,
    transports: &'t [Box<dyn Transport>],
) -> impl Iterator<Item = (&'t dyn Transport, Schedule, u32)> {
    transports.iter().flat_map(move |transport| {
        plan.schedules.iter().flat_map(move |&schedule| {
            (0..plan.runs).map(move |number| (&**transport, schedule, number))
        })
    })
}

fn flow_plan(plan: &Plan, schedule: Schedule, number: u32) -> FlowPlan {
    FlowPlan {
        message_bytes: plan.message_bytes,
        interval: Duration::from_secs_f64(1.0 / plan.rate_per_sec),
        duration: plan.duration,
        schedule,
        age_interval: super::AGE_INTERVAL,
        seed: Random::seeded(u64::from(number)).next(),
    }
}

/// Numbered datagrams from the first host to the second, until all flows are over: what the path really loses one way.
fn probe(
    network: &Network,
    duration: Duration,
    stop: &AtomicBool,
    over: &AtomicBool,
) -> Option<MeasuredLoss> {
    const EVERY: Duration = Duration::from_millis(5);
    let [h1, h2] = [network.host(End::H1), network.host(End::H2)];
    let receiver = h2.run(|| UdpSocket::bind((h2.ipv4(), 0))).ok()?.ok()?;
    network.prepare(End::H2, &receiver).ok()?;
    let sender = h1.run(|| UdpSocket::bind((h1.ipv4(), 0))).ok()?.ok()?;
    sender.connect(receiver.local_addr().ok()?).ok()?;
    receiver.set_nonblocking(true).ok()?;
    let (end, mut packets, mut arrived) = (Instant::now() + duration, 0_u64, 0_u64);
    let mut due = Instant::now();
    let mut take = |receiver: &UdpSocket| {
        while receiver.recv(&mut [0; 16]).is_ok() {
            arrived += 1;
        }
    };
    while Instant::now() < end && !stop.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
        packets += u64::from(sender.send(&packets.to_be_bytes()).is_ok());
        take(&receiver);
        due += EVERY;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    // The last ones are delivered before the call that sent them returns; the bridge and its queues are in between.
    thread::sleep(Duration::from_millis(50));
    take(&receiver);
    Some(MeasuredLoss { packets, lost: packets.saturating_sub(arrived) })
}
