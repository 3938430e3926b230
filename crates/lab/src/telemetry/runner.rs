//! A network for each loss, and in it every run of that loss at the same time.

use super::exporter::{self, Source};
use super::{Plan, Point, Run, observer};
use crate::experiment::model::MeasuredLoss;
use crate::network::{self, End, LossAt, Network, PathLoss};
use crate::transport::{self, Receiving, Sending, Transport};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::clock::monotonic_ns;

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no transport {0}")]
    UnknownTransport(String),
    #[error("a loss of {0} is not between 0 and 1")]
    LossOutOfRange(f64),
    #[error("a message has at least {min} bytes, not {bytes}")]
    MessageTooSmall { bytes: usize, min: usize },
    #[error("{0} must be above 0")]
    NotPositive(&'static str),
    #[error("the network of the lab")]
    Network(#[from] network::Error),
}

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
    /// Not all runs were finished; what was not is missing.
    pub interrupted: bool,
}

/// Longest wait for a connection: at a high loss the handshake takes several timeouts, which double from 1 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(70);

/// Measures everything. Setting `stop` ends it with what was finished.
///
/// # Errors
/// See [`Error`]. A run that fails is no error: it is missing, and a note says so.
pub fn run(plan: &Plan, stop: &AtomicBool, progress: &dyn Fn(Progress)) -> Result<Results, Error> {
    validate(plan)?;
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
            results.loss_at = one.loss_at;
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
    results.notes.sort();
    results.notes.dedup();
    Ok(results)
}

fn validate(plan: &Plan) -> Result<(), Error> {
    for name in &plan.transports {
        transport::named(name).ok_or_else(|| Error::UnknownTransport(name.clone()))?;
    }
    for &loss in &plan.losses {
        PathLoss::per_path(loss).ok_or(Error::LossOutOfRange(loss))?;
    }
    if plan.message_bytes < Plan::MESSAGE_BYTES_MIN {
        let (bytes, min) = (plan.message_bytes, Plan::MESSAGE_BYTES_MIN);
        return Err(Error::MessageTooSmall { bytes, min });
    }
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    for (name, value) in [
        ("the rate of events", plan.events_per_sec),
        ("the rate of steps", plan.steps_per_sec),
        ("the interval", plan.interval.as_secs_f64()),
        ("the duration", plan.duration.as_secs_f64()),
    ] {
        if !is_positive(value) {
            return Err(Error::NotPositive(name));
        }
    }
    Ok(())
}

/// Every run at one loss.
fn run_loss(plan: &Plan, loss: f64, stop: &AtomicBool) -> Result<Results, Error> {
    let path_loss = PathLoss::per_path(loss).ok_or(Error::LossOutOfRange(loss))?;
    let network = Network::build(&network::Plan { loss: path_loss, ..network::Plan::default() })?;
    let transports: Vec<_> =
        plan.transports.iter().filter_map(|name| transport::named(name)).collect();
    let over = AtomicBool::new(false);
    let (outcomes, measured_loss) = thread::scope(|scope| {
        let probing = scope.spawn(|| probe(&network, stop, &over));
        let network = &network;
        let flows: Vec<Vec<_>> = transports
            .iter()
            .map(|transport| {
                let start = || scope.spawn(move || flow(&**transport, plan, network, stop));
                (0..plan.runs).map(|_| start()).collect()
            })
            .collect();
        let join = |flow: thread::ScopedJoinHandle<'_, io::Result<Run>>| {
            flow.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let outcomes: Vec<Vec<io::Result<Run>>> =
            flows.into_iter().map(|flows| flows.into_iter().map(join).collect()).collect();
        over.store(true, Ordering::Relaxed);
        (outcomes, probing.join().unwrap_or_default())
    });
    let mut results = Results { loss_at: Some(network.loss_at()), ..Results::default() };
    // A run that was cut short saw less than it would have.
    let is_whole = !stop.load(Ordering::Relaxed);
    for (transport, outcomes) in transports.iter().zip(outcomes) {
        let mut point = Point {
            transport: transport.name(),
            configured_loss: loss,
            measured_loss,
            runs: Vec::new(),
        };
        for outcome in outcomes {
            match outcome {
                Ok(run) if is_whole => point.runs.push(run),
                Ok(_) => {}
                Err(error) => results.notes.push(format!(
                    "A run of {} at {:.1} % loss could not be made: {error}",
                    transport.name(),
                    loss * 100.0
                )),
            }
        }
        results.points.extend((!point.runs.is_empty()).then_some(point));
    }
    Ok(results)
}

/// One run, from the first host to the second.
fn flow(
    transport: &dyn Transport,
    plan: &Plan,
    network: &Network,
    stop: &AtomicBool,
) -> io::Result<Run> {
    let (mut sender, mut receiver) = connect(transport, network)?;
    let source = Source::new(plan, monotonic_ns());
    let end = Instant::now() + plan.duration + plan.window;
    let (exported, arrivals) = thread::scope(|scope| {
        let exporting = scope.spawn(|| exporter::export(&mut *sender, plan, source, end, stop));
        let arrivals = observer::observe(&mut *receiver, plan.message_bytes, end, stop);
        (exporting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), arrivals)
    });
    Ok(observer::judge(source, plan.window, exported, &arrivals))
}

fn connect(
    transport: &dyn Transport,
    network: &Network,
) -> io::Result<(Box<dyn Sending>, Box<dyn Receiving>)> {
    let [h1, h2] = [network.host(End::H1), network.host(End::H2)];
    let any_port = SocketAddr::from((h2.ipv4(), 0));
    let listening = h2.run(|| transport.listen(any_port)).map_err(io::Error::other)??;
    let to = listening.address()?;
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let (sender, receiver) = thread::scope(|scope| {
        let accepting = scope.spawn(move || listening.accept(deadline));
        let sender = h1.run(|| transport.connect(to, deadline)).map_err(io::Error::other)?;
        let receiver = accepting.join().map_err(|_| io::Error::other("the receiver panicked"))?;
        io::Result::Ok((sender?, receiver?))
    })?;
    network.prepare(End::H1, sender.socket())?;
    network.prepare(End::H2, receiver.socket())?;
    Ok((sender, receiver))
}

/// Numbered datagrams from the first host to the second until `over`: what the path really loses one way.
fn probe(network: &Network, stop: &AtomicBool, over: &AtomicBool) -> Option<MeasuredLoss> {
    const EVERY: Duration = Duration::from_millis(5);
    let [h1, h2] = [network.host(End::H1), network.host(End::H2)];
    let receiver = h2.run(|| UdpSocket::bind((h2.ipv4(), 0))).ok()?.ok()?;
    network.prepare(End::H2, &receiver).ok()?;
    let sender = h1.run(|| UdpSocket::bind((h1.ipv4(), 0))).ok()?.ok()?;
    sender.connect(receiver.local_addr().ok()?).ok()?;
    receiver.set_nonblocking(true).ok()?;
    let (mut packets, mut arrived) = (0_u64, 0_u64);
    let mut take =
        || arrived += std::iter::from_fn(|| receiver.recv(&mut [0; 8]).ok()).count() as u64;
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
        packets += u64::from(sender.send(&packets.to_be_bytes()).is_ok());
        take();
        due += EVERY;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    // The last ones are delivered before the call that sent them returns; the bridge and its queues are in between.
    thread::sleep(Duration::from_millis(50));
    take();
    Some(MeasuredLoss { packets, lost: packets.saturating_sub(arrived) })
}
