//! A network for each loss, and in it every run of that loss at the same time.

use super::exporter::{self, Source};
use super::{Plan, Point, Run, observer};
use crate::experiment::flow::Flow;
use crate::experiment::model::{MeasuredLoss, TransportName};
use crate::experiment::probe;
use crate::experiment::runner::Error;
use crate::network::{self, LossAt, Network, PathLoss, Properties};
use crate::transport;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::clock::monotonic_ns;
use text::percent;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Rounds that are over, and all of them.
    pub rounds_done: usize,
    pub rounds: usize,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Results {
    pub points: Vec<Point>,
    /// What the reader must know: runs that failed, transports that this kernel has not.
    pub notes: Vec<String>,
    /// Where the loss happened.
    pub loss_at: Option<LossAt>,
    /// What decided how TCP fared, as the kernel said.
    pub properties: Properties,
    /// Not all runs were finished; what was not is missing.
    pub interrupted: bool,
}

/// Measures everything. Setting `stop` ends it with what was finished.
///
/// # Errors
/// See [`Error`]. A run that fails is not an error: it is missing, and a note says so.
pub fn run(plan: &Plan, stop: &AtomicBool, progress: &dyn Fn(Progress)) -> Result<Results, Error> {
    for name in &plan.transports {
        transport::named(name).ok_or_else(|| Error::UnknownTransport(name.clone()))?;
    }
    for &loss in &plan.losses {
        PathLoss::per_path(loss).ok_or(Error::LossOutOfRange(loss))?;
    }

    let mut results = Results::default();
    let rounds = plan.losses.len().div_ceil(plan.parallel_losses.max(1));

    for (rounds_done, losses) in plan.losses.chunks(plan.parallel_losses.max(1)).enumerate() {
        progress(Progress { rounds_done, rounds });
        let outcomes: Vec<_> = thread::scope(|scope| {
            let networks: Vec<_> = losses
                .iter()
                .map(|&loss| scope.spawn(move || run_loss(plan, loss, stop)))
                .collect();
            networks.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });

        for outcome in outcomes {
            let one = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            results.points.extend(one.points);
            results.notes.extend(one.notes);
            (results.loss_at, results.properties) = (one.loss_at, one.properties);
        }

        if stop.load(Ordering::Relaxed) {
            results.interrupted = true;
            break;
        }
    }

    let place =
        |point: &Point| plan.transports.iter().position(|name| name == point.transport.as_str());
    results.points.sort_by(|a, b| {
        place(a).cmp(&place(b)).then(a.configured_loss.total_cmp(&b.configured_loss))
    });

    results.notes.extend(busy(&results.points));
    results.notes.sort();
    results.notes.dedup();
    Ok(results)
}

/// Lateness that shows in what is measured.
const LATE: Duration = Duration::from_millis(100);

/// A note on a machine that did not wake the exporters in time.
fn busy(points: &[Point]) -> Option<String> {
    let runs = points.iter().flat_map(|point| &point.runs);
    let latest = Duration::from_nanos(runs.map(|run| run.woken_late_ns).max()?);
    (latest > LATE).then(|| {
        let ms = latest.as_millis();
        format!("The machine was busy: an exporter was woken {ms} ms too late, and the ages include that much that is not the network's.")
    })
}

/// Every run at one loss. Connections are made before anything is lost, so that all runs begin together.
fn run_loss(plan: &Plan, loss: f64, stop: &AtomicBool) -> Result<Results, Error> {
    let path_loss = PathLoss::per_path(loss).ok_or(Error::LossOutOfRange(loss))?;
    let mut network = Network::build(&network::Plan::default())?;
    let properties = network.properties()?;
    let mut results =
        Results { properties, loss_at: Some(network.loss_at()), ..Results::default() };

    let mut flows: Vec<(TransportName, Flow)> = Vec::new();
    for transport in plan.transports.iter().filter_map(|name| transport::named(name)) {
        for _ in 0..plan.runs {
            match Flow::connect(&*transport, &network) {
                Ok(flow) => flows.push((transport.name(), flow)),
                Err(error) => results.notes.push(format!(
                    "{} could not connect at {} loss: {error}",
                    transport.name(),
                    percent(loss)
                )),
            }
        }
    }

    network.set_loss(path_loss)?;
    for (_, flow) in &flows {
        flow.prepare(&network).map_err(network::Error::Probe)?;
    }

    let (outcomes, measured_loss) = run_flows(plan, flows, &network, stop);
    // A run that was cut short saw less than it would have.
    let whole = if stop.load(Ordering::Relaxed) { Vec::new() } else { outcomes };
    for (transport, run) in whole {
        if !run.failure.is_empty() {
            let why = &run.failure;
            results.notes.push(format!("{transport} broke at {} loss: {why}", percent(loss)));
        }

        match results.points.iter_mut().find(|point| point.transport == transport) {
            Some(point) => point.runs.push(run),
            None => results.points.push(Point {
                transport,
                configured_loss: loss,
                measured_loss,
                runs: vec![run],
            }),
        }
    }
    Ok(results)
}

/// Numbered datagrams that measure the loss, in hundreds a second.
const PROBES: u32 = 2;

type Outcomes = (Vec<(TransportName, Run)>, Option<MeasuredLoss>);

fn run_flows(
    plan: &Plan,
    flows: Vec<(TransportName, Flow)>,
    network: &Network,
    stop: &AtomicBool,
) -> Outcomes {
    let count = flows.len().max(1) as u32;
    thread::scope(|scope| {
        let duration = plan.duration + plan.window;
        let probing =
            scope.spawn(move || probe::run(network, PROBES, Instant::now(), duration, stop));
        let running: Vec<_> = flows
            .into_iter()
            .enumerate()
            .map(|(number, (name, flow))| {
                // Exporters that all wake at once would wait for each other.
                let phase = plan.interval * number as u32 / count;
                (name, scope.spawn(move || one(flow, plan, phase, stop)))
            })
            .collect();

        let join = |(name, flow): (_, thread::ScopedJoinHandle<'_, Run>)| {
            (name, flow.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        };
        let outcomes = running.into_iter().map(join).collect();

        let measured =
            probing.join().unwrap_or_default().losses.into_iter().reduce(|a, b| MeasuredLoss {
                packets: a.packets + b.packets,
                lost: a.lost + b.lost,
            });
        (outcomes, measured)
    })
}

/// One run, from the first host to the second.
fn one(mut flow: Flow, plan: &Plan, phase: Duration, stop: &AtomicBool) -> Run {
    thread::sleep(phase);
    let (sender, receiver) = (&mut *flow.sending, &mut *flow.receiving);
    let source = Source::new(plan, monotonic_ns());
    let end = Instant::now() + plan.duration + plan.window;
    let (exported, arrivals) = thread::scope(|scope| {
        let exporting = scope.spawn(|| exporter::export(sender, plan, source, end, stop));
        let arrivals = observer::observe(receiver, plan.message_bytes, end, stop);
        (exporting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), arrivals)
    });
    observer::judge(source, plan.window, exported, &arrivals)
}
