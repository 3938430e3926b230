//! One run: a sender and a receiver, each logging what it did.
//!
//! The sender makes messages until the end of the run. Messages that it has made by then, or should have made (open
//! loop), have [`DRAIN`] more to arrive. A message that arrives during this time counts as delivered, with its exact
//! delay. A message that does not arrive is censored at the moment when the receiver stopped listening. So a message that
//! is in transit normally at the end does not turn a figure into a lower bound, but a message that is stuck does. The
//! rate may be too high by what a stuck stream delivers during this time: at most by the ratio of [`DRAIN`] to the run.

use super::model::{Run, Schedule, TcpSample, TcpSummary};
use crate::network::{End, Network};
use crate::statistics::{Delivery, age_at_intervals};
use crate::transport::{Received, Receiving, Sending, Sent, Transport};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::clock::{monotonic_ns, realtime_ns};
use wire::inet_diag::TcpInfo;

/// What a run is to do.
#[derive(Clone, Copy, Debug)]
pub struct FlowPlan {
    /// At least 16: each message begins with its number and time.
    pub message_bytes: usize,
    pub interval: Duration,
    pub duration: Duration,
    pub schedule: Schedule,
    /// Time between two samples of the age of information.
    pub age_interval: Duration,
    /// When the first message is due. Flows of one network begin at different times, so that they do not all send at
    /// once.
    pub begin: Instant,
    pub seed: u64,
}

/// How long messages in flight at the end have to arrive.
pub const DRAIN: Duration = Duration::from_secs(1);
/// Longest wait for a connection. At this time the network does not lose packets yet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How late a thread that sleeps until a message is due may wake up without the message counting as not made.
const SLEPT: Duration = Duration::from_millis(5);
const TCP_SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two checks of the stop flag.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// The threads of a flow need little stack.
const STACK_BYTES: usize = 256 * 1024;

/// Both ends of a flow that has not begun.
pub struct Flow {
    pub(crate) sending: Box<dyn Sending>,
    pub(crate) receiving: Box<dyn Receiving>,
    repairs_for: Duration,
}

impl Flow {
    /// Opens a flow from the first host to the second.
    ///
    /// # Errors
    /// A socket could not be opened or connected, or this kernel lacks one of its options.
    pub fn connect(transport: &dyn Transport, network: &Network) -> io::Result<Flow> {
        let [h1, h2] = [network.host(End::H1), network.host(End::H2)];
        let any_port = SocketAddr::from((h2.ipv4(), 0));
        let listening = h2.run(|| transport.listen(any_port)).map_err(io::Error::other)??;
        let (to, deadline) = (listening.address()?, Instant::now() + CONNECT_TIMEOUT);
        // The kernel completes the connection for the listener, so one thread can open both ends.
        let sending = h1.run(|| transport.connect(to, deadline)).map_err(io::Error::other)??;
        let receiving = listening.accept(deadline)?;
        Ok(Flow { sending, receiving, repairs_for: transport.repairs_for() })
    }

    /// Prepares both ends for the current loss of the network, which then applies to messages and to acknowledgments.
    ///
    /// # Errors
    /// Any error of `setsockopt(2)`.
    pub fn prepare(&self, network: &Network) -> io::Result<()> {
        network.prepare(End::H1, self.sending.socket())?;
        network.prepare(End::H2, self.receiving.socket())
    }

    /// Runs the flow and returns what both ends measured. Ends early when `stop` is set. `name` is a short name for its
    /// threads.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn run(mut self, name: &str, plan: FlowPlan, stop: &AtomicBool) -> io::Result<Run> {
        let now = Instant::now();
        let wait = plan.begin.saturating_duration_since(now);
        let began_ns = monotonic_ns() + nanoseconds(wait);
        let began_unix_ns = realtime_ns() + nanoseconds(wait);

        let (sending, receiving) = (&mut *self.sending, &mut *self.receiving);
        let (sent, received) = thread::scope(|scope| {
            let builder = |end: &str| {
                thread::Builder::new().name(format!("{end}-{name}")).stack_size(STACK_BYTES)
            };
            let receiving =
                builder("recv").spawn_scoped(scope, || receive(receiving, plan, stop))?;
            let sending =
                builder("send").spawn_scoped(scope, || send(sending, plan, began_ns, stop))?;
            let broke = |_| io::Error::other("a thread of the flow panicked");
            io::Result::Ok((sending.join().map_err(broke)?, receiving.join().map_err(broke)?))
        })?;

        let mut run = evaluate(&sent, &received, plan, began_ns, self.repairs_for);
        run.began_unix_ns = began_unix_ns;
        run.tcp = sent.tcp;
        run.link = self.sending.link().map(|mut near| {
            near += self.receiving.link().unwrap_or_default();
            near
        });
        Ok(run)
    }
}

/// The sender's log.
#[derive(Default)]
struct SenderLog {
    /// When each message was made (closed loop) or due (open loop), in the order of the message numbers.
    made_ns: Vec<u64>,
    /// Messages that the transport refused.
    refused: u64,
    ended_ns: u64,
    failure: String,
    tcp: Option<TcpSummary>,
}

/// The receiver's log.
#[derive(Default)]
struct ReceiverLog {
    /// Number and arrival time of each message, in the order of arrival.
    arrived: Vec<(u64, u64)>,
    ended_ns: u64,
    failure: String,
}

/// Number of messages that become due in a run of this length.
fn due_in(duration_ns: u64, plan: FlowPlan) -> u64 {
    duration_ns.div_ceil(nanoseconds(plan.interval).max(1))
}

fn send(sender: &mut dyn Sending, plan: FlowPlan, began_ns: u64, stop: &AtomicBool) -> SenderLog {
    let end = plan.begin + plan.duration;
    let expected = due_in(nanoseconds(plan.duration), plan) as usize;
    let mut log = SenderLog { made_ns: Vec::with_capacity(expected), ..SenderLog::default() };

    log.tcp = sender.tcp().map(|socket| TcpSummary {
        congestion_control: sys::tcp::congestion_control(socket).unwrap_or_default(),
        ..TcpSummary::default()
    });

    let (mut next, mut sample_due) = (plan.begin, plan.begin);
    let mut message = vec![b'x'; plan.message_bytes.max(16)];
    let mut waits = false;

    loop {
        let now = Instant::now();
        // Messages that became due before the end while this thread slept are made a little later.
        let is_over = now >= if !waits && next < end { end + SLEPT } else { end };
        if is_over || stop.load(Ordering::Relaxed) {
            break;
        }

        if now >= sample_due {
            sample_due += TCP_SAMPLE_INTERVAL;
            sample(sender.tcp(), &mut log.tcp, began_ns);
        }

        let look = (end + SLEPT).min(now + LOOK_INTERVAL);
        if !waits && now < next {
            thread::sleep(next.min(look) - now);
            continue;
        }

        let outcome = if waits {
            sender.go_on(look)
        } else {
            let at_ns = match plan.schedule {
                Schedule::ClosedLoop => monotonic_ns(),
                Schedule::OpenLoop => began_ns + nanoseconds(next - plan.begin),
            };
            number(&mut message, log.made_ns.len() as u64, at_ns);
            let outcome = sender.send(&message, look);
            if matches!(outcome, Ok(Sent::Taken | Sent::Waits)) {
                log.made_ns.push(at_ns);
            }
            outcome
        };

        match outcome {
            Ok(sent) => {
                waits = sent == Sent::Waits;
                log.refused += u64::from(sent == Sent::Refused);
            }
            Err(error) => {
                log.failure = error.to_string();
                break;
            }
        }

        match plan.schedule {
            _ if waits => {}
            Schedule::ClosedLoop => next = Instant::now() + plan.interval,
            Schedule::OpenLoop => next += plan.interval,
        }
    }

    log.ended_ns = monotonic_ns().min(began_ns + nanoseconds(plan.duration));
    sample(sender.tcp(), &mut log.tcp, began_ns);
    log
}

/// Writes number and time to the beginning of a message.
fn number(message: &mut [u8], number: u64, at_ns: u64) {
    message[..8].copy_from_slice(&number.to_be_bytes());
    message[8..16].copy_from_slice(&at_ns.to_be_bytes());
}

/// Adds a sample of `tcp_info` and updates the totals.
fn sample(socket: Option<BorrowedFd<'_>>, summary: &mut Option<TcpSummary>, began_ns: u64) {
    let (Some(socket), Some(summary)) = (socket, summary.as_mut()) else { return };
    let mut buffer = [0; 512];
    let Ok(bytes) = sys::tcp::info(socket, &mut buffer) else { return };
    let Ok(info) = TcpInfo::decode(bytes) else { return };

    summary.retransmits = info.total_retrans_segments().unwrap_or_default().into();
    summary.bytes_retransmitted = info.bytes_retrans().unwrap_or_default();
    summary.segments_out = info.segs_out().unwrap_or_default().into();

    let backoff: u32 = info.backoff().unwrap_or_default().into();
    // Before Linux 6.7 the kernel does not count timeouts: a higher backoff than in the last sample means one or more.
    let before = summary.samples.last().map_or(0, |sample| sample.backoff);
    let seen = summary.timeouts + u64::from(backoff.saturating_sub(before));
    summary.timeouts = info.total_rto().map_or(seen, u64::from);

    summary.samples.push(TcpSample {
        at_ns: monotonic_ns().saturating_sub(began_ns),
        rtt_us: info.rtt_us().unwrap_or_default(),
        rto_us: info.rto_us().unwrap_or_default(),
        cwnd_segments: info.snd_cwnd_segments().unwrap_or_default(),
        unacked_segments: info.unacked_segments().unwrap_or_default(),
        backoff,
        retransmits: info.retransmits().unwrap_or_default().into(),
        unsent_bytes: info.notsent_bytes().unwrap_or_default(),
    });
}

fn receive(receiver: &mut dyn Receiving, plan: FlowPlan, stop: &AtomicBool) -> ReceiverLog {
    let mut end = plan.begin + plan.duration + DRAIN;
    let expected = due_in(nanoseconds(plan.duration), plan) as usize;
    let mut log = ReceiverLog { arrived: Vec::with_capacity(expected), ..ReceiverLog::default() };
    let mut message = vec![0; plan.message_bytes.max(16)];

    loop {
        let now = Instant::now();
        if stop.load(Ordering::Relaxed) {
            end = end.min(now + DRAIN);
            break drain(receiver, &mut message, end, &mut log);
        }
        if now >= end {
            break;
        }
        if take(receiver, &mut message, end.min(now + LOOK_INTERVAL), &mut log) == Take::End {
            break;
        }
    }

    log.ended_ns = monotonic_ns();
    log
}

/// Receives messages until `end`.
fn drain(receiver: &mut dyn Receiving, message: &mut [u8], end: Instant, log: &mut ReceiverLog) {
    while Instant::now() < end && take(receiver, message, end, log) == Take::GoOn {}
}

#[derive(PartialEq, Eq)]
enum Take {
    GoOn,
    End,
}

fn take(
    receiver: &mut dyn Receiving,
    message: &mut [u8],
    until: Instant,
    log: &mut ReceiverLog,
) -> Take {
    match receiver.receive(message, until) {
        Ok(Received::Message) => {
            let mut number = [0; 8];
            number.copy_from_slice(&message[..8]);
            log.arrived.push((u64::from_be_bytes(number), monotonic_ns()));
            Take::GoOn
        }
        Ok(Received::Nothing) => Take::GoOn,
        Ok(Received::End) => Take::End,
        Err(error) => {
            log.failure = error.to_string();
            Take::End
        }
    }
}

/// Combines the logs of both ends.
fn evaluate(
    sent: &SenderLog,
    received: &ReceiverLog,
    plan: FlowPlan,
    began_ns: u64,
    repairs_for: Duration,
) -> Run {
    let mut waiting: Vec<Option<u64>> = sent.made_ns.iter().copied().map(Some).collect();
    let (mut duplicates, mut deliveries) = (0, Vec::with_capacity(received.arrived.len()));

    for &(number, arrived_ns) in &received.arrived {
        let message = usize::try_from(number).ok().and_then(|number| waiting.get_mut(number));
        // This number was never sent, so the message is not from this run.
        let Some(message) = message else { continue };
        match message.take() {
            Some(made_ns) => deliveries.push(Delivery { made_ns, arrived_ns }),
            None => duplicates += 1,
        }
    }

    let duration_ns = sent.ended_ns.saturating_sub(began_ns);
    let offered = due_in(duration_ns, plan);

    let mut censored_ns = Vec::new();
    if !repairs_for.is_zero() {
        let under_way = waiting.into_iter().flatten();
        let ages = under_way.chain(never_sent(sent, plan, began_ns, offered));
        let ages = ages.map(|made_ns| received.ended_ns.saturating_sub(made_ns));
        // Older messages have been given up: they are lost like datagrams.
        censored_ns.extend(ages.filter(|age_ns| *age_ns < nanoseconds(repairs_for)));
        censored_ns.sort_unstable();
    }

    let mut age_ns =
        age_at_intervals(&deliveries, began_ns, sent.ended_ns, nanoseconds(plan.age_interval));
    age_ns.sort_unstable();
    let delays = deliveries.iter().map(|one| one.arrived_ns.saturating_sub(one.made_ns));
    let mut delays_ns: Vec<u64> = delays.collect();
    delays_ns.sort_unstable();

    let failure = [&sent.failure, &received.failure].into_iter().find(|text| !text.is_empty());
    Run {
        seed: plan.seed,
        duration_ns,
        offered,
        sent: sent.made_ns.len() as u64,
        delivered: delays_ns.len() as u64,
        duplicates,
        delays_ns,
        censored_ns,
        age_ns,
        failure: failure.cloned().unwrap_or_default(),
        ..Run::default()
    }
}

/// The due times of messages that a blocked sender on the open loop never sent. For those who wait for these messages,
/// they are as late as if they had been sent.
fn never_sent(
    sent: &SenderLog,
    plan: FlowPlan,
    began_ns: u64,
    offered: u64,
) -> impl Iterator<Item = u64> {
    let tried = match plan.schedule {
        Schedule::ClosedLoop => offered,
        Schedule::OpenLoop => sent.made_ns.len() as u64 + sent.refused,
    };
    (tried..offered).map(move |number| began_ns + number * nanoseconds(plan.interval))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(schedule: Schedule) -> FlowPlan {
        FlowPlan {
            message_bytes: 16,
            interval: Duration::from_nanos(10),
            duration: Duration::from_nanos(40),
            schedule,
            age_interval: Duration::from_nanos(10),
            begin: Instant::now(),
            seed: 1,
        }
    }

    fn logs() -> (SenderLog, ReceiverLog) {
        let made_ns = vec![100, 110, 120];
        let sent = SenderLog { made_ns, ended_ns: 140, ..SenderLog::default() };
        let arrived = vec![(0, 105), (2, 139), (2, 139), (9, 139)];
        (sent, ReceiverLog { arrived, ended_ns: 200, ..ReceiverLog::default() })
    }

    #[test]
    fn what_has_not_arrived_is_censored_and_ages_grow_until_something_does() {
        let (sent, received) = logs();
        let run = evaluate(&sent, &received, plan(Schedule::ClosedLoop), 100, Duration::MAX);
        assert_eq!((run.sent, run.delivered, run.duplicates, run.offered), (3, 2, 1, 4));
        assert_eq!((run.duration_ns, run.delays_ns), (40, vec![5, 19]));
        // Until 200, when the receiver stopped listening.
        assert_eq!(run.censored_ns, [90]);
        // At 100 the age is 0. At 110, 120 and 130 the newest message is from 100; at 140 it is from 120.
        assert_eq!(run.age_ns, [0, 10, 20, 20, 30]);
        let lossy = evaluate(&sent, &received, plan(Schedule::ClosedLoop), 100, Duration::ZERO);
        assert!(lossy.censored_ns.is_empty());
    }

    #[test]
    fn what_was_due_and_never_sent_is_censored_from_its_due_time() {
        let (mut sent, received) = logs();
        let run = |sent: &SenderLog| {
            evaluate(sent, &received, plan(Schedule::OpenLoop), 100, Duration::MAX).censored_ns
        };
        // The fourth was due at 130.
        assert_eq!(run(&sent), [70, 90]);
        // A refused message is not waiting to be sent.
        sent.refused = 1;
        assert_eq!(run(&sent), [90]);
    }
}
