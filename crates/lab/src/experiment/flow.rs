//! One run: a sender and a receiver, each logging what it did.

use super::model::{KernelCounters, Run, Schedule, TcpSample, TcpSummary};
use crate::network::{Counters, End, Network};
use crate::transport::{Receiving, Sending, Sent, Transport};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::clock::{monotonic_ns, realtime_ns};
use wire::inet_diag::TcpInfo;

/// What a run is told.
#[derive(Clone, Copy, Debug)]
pub struct FlowPlan {
    /// At least 16: number and time of the message stand at its beginning.
    pub message_bytes: usize,
    pub interval: Duration,
    pub duration: Duration,
    pub schedule: Schedule,
    /// Between two samples of the age of information.
    pub age_interval: Duration,
    pub seed: u64,
}

/// How long an undisturbed message may be under way when the sender has stopped, and still count as delivered.
const GRACE: Duration = Duration::from_millis(200);
/// Longest wait for a connection: at a high loss the handshake takes several timeouts, which double from 1 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(130);
const TCP_SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

/// What the sender did with one message.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// Its making (closed loop) or due time (open loop).
    at_ns: u64,
}

/// The sender's log.
#[derive(Default)]
struct SenderLog {
    made: Vec<Made>,
    began_ns: u64,
    failure: String,
    tcp: Option<TcpSummary>,
}

/// The receiver's log: number and time of each message as it came.
#[derive(Default)]
struct ReceiverLog {
    arrived: Vec<(u64, u64)>,
}

/// Runs one flow from the first host to the second, and returns what both ends saw. Ends early when `stop` is set.
///
/// # Errors
/// A socket could not be opened or connected.
pub fn run(
    transport: &dyn Transport,
    plan: FlowPlan,
    network: &Network,
    stop: &AtomicBool,
) -> io::Result<Run> {
    let began_unix_ns = realtime_ns();
    let [h1, h2] = [network.host(End::H1), network.host(End::H2)];
    let any_port = SocketAddr::from((h2.ipv4(), 0));
    let listening = h2.run(|| transport.listen(any_port)).map_err(io::Error::other)??;
    network.prepare(End::H2, listening.socket())?;
    let to = listening.address()?;
    let connect_by = Instant::now() + CONNECT_TIMEOUT;
    let (sender, receiver) = thread::scope(|scope| {
        let accepting = scope.spawn(move || listening.accept(connect_by));
        let sender = h1.run(|| transport.connect(to, connect_by)).map_err(io::Error::other)?;
        let receiver = accepting.join().map_err(|_| io::Error::other("the receiver panicked"))?;
        io::Result::Ok((sender?, receiver?))
    })?;
    let before = h1.counters().unwrap_or_default();
    let begin = Instant::now();
    let (sent, received) = thread::scope(|scope| {
        let receiving = scope.spawn(move || receive(receiver, plan, begin, stop));
        let sending = scope.spawn(move || send(sender, plan, begin, stop));
        (sending.join().unwrap_or_default(), receiving.join().unwrap_or_default())
    });
    let end_ns = monotonic_ns();
    let mut run = evaluate(&sent, &received, plan, transport.is_reliable(), end_ns);
    run.began_unix_ns = began_unix_ns;
    run.kernel = h1.counters().map(|now| kernel_counters(&now.since(&before))).unwrap_or_default();
    Ok(run)
}

fn send(
    mut sender: Box<dyn Sending>,
    plan: FlowPlan,
    begin: Instant,
    stop: &AtomicBool,
) -> SenderLog {
    let end = begin + plan.duration;
    let mut log = SenderLog { began_ns: monotonic_ns(), ..SenderLog::default() };
    let mut message = vec![b'x'; plan.message_bytes.max(16)];
    let mut tcp = sender.tcp().map(|socket| TcpSummary {
        congestion_control: sys::tcp::congestion_control(socket).unwrap_or_default(),
        ..TcpSummary::default()
    });
    let mut sample_due = begin;
    let mut due = begin;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        if Instant::now() >= sample_due {
            sample_due += TCP_SAMPLE_INTERVAL;
            sample(sender.tcp(), &mut tcp, log.began_ns);
        }
        let at_ns = match plan.schedule {
            Schedule::ClosedLoop => monotonic_ns(),
            Schedule::OpenLoop => log.began_ns + (due - begin).as_nanos() as u64,
        };
        message[..8].copy_from_slice(&(log.made.len() as u64).to_be_bytes());
        message[8..16].copy_from_slice(&at_ns.to_be_bytes());
        match sender.send(&message, end) {
            // A stream may deliver the rest of a message after the deadline: it was made, and is under way.
            Ok(Sent::Taken | Sent::TimedOut) => log.made.push(Made { at_ns }),
            Ok(Sent::Refused) => {}
            Err(error) => {
                log.failure = error.to_string();
                break;
            }
        }
        due += plan.interval;
        let pause = match plan.schedule {
            Schedule::ClosedLoop => plan.interval,
            Schedule::OpenLoop => due.saturating_duration_since(Instant::now()),
        };
        thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
    }
    sample(sender.tcp(), &mut tcp, log.began_ns);
    log.tcp = tcp;
    // What is under way has a moment to arrive; closing would change what TCP does.
    if !stop.load(Ordering::Relaxed) {
        thread::sleep((end + GRACE).saturating_duration_since(Instant::now()));
    }
    log
}

/// Adds a sample of `tcp_info`, and brings the totals up to date.
fn sample(socket: Option<BorrowedFd<'_>>, summary: &mut Option<TcpSummary>, began_ns: u64) {
    let (Some(socket), Some(summary)) = (socket, summary.as_mut()) else { return };
    let mut buffer = [0; 512];
    let Ok(bytes) = sys::tcp::info(socket, &mut buffer) else { return };
    let Ok(info) = TcpInfo::decode(bytes) else { return };
    summary.retransmits = info.total_retrans_segments().unwrap_or_default().into();
    summary.bytes_retransmitted = info.bytes_retrans().unwrap_or_default();
    summary.segments_out = info.segs_out().unwrap_or_default().into();
    summary.timeouts = info.total_rto().unwrap_or_default().into();
    summary.samples.push(TcpSample {
        at_ns: monotonic_ns().saturating_sub(began_ns),
        rtt_us: info.rtt_us().unwrap_or_default(),
        rto_us: info.rto_us().unwrap_or_default(),
        cwnd_segments: info.snd_cwnd_segments().unwrap_or_default(),
        unacked_segments: info.unacked_segments().unwrap_or_default(),
        backoff: info.backoff().unwrap_or_default().into(),
        retransmits: info.retransmits().unwrap_or_default().into(),
        unsent_bytes: info.notsent_bytes().unwrap_or_default(),
    });
}

fn receive(
    mut receiver: Box<dyn Receiving>,
    plan: FlowPlan,
    begin: Instant,
    stop: &AtomicBool,
) -> ReceiverLog {
    let end = begin + plan.duration + GRACE;
    let mut log = ReceiverLog::default();
    let mut message = vec![0; plan.message_bytes.max(16)];
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        let until = end.min(Instant::now() + Duration::from_millis(500));
        match receiver.receive(&mut message, until) {
            Ok(true) => {
                let mut number = [0; 8];
                number.copy_from_slice(&message[..8]);
                log.arrived.push((u64::from_be_bytes(number), monotonic_ns()));
            }
            Ok(false) => {}
            // A connection that broke: the sender says why.
            Err(_) => break,
        }
    }
    log
}

/// Joins both ends' logs.
fn evaluate(
    sent: &SenderLog,
    received: &ReceiverLog,
    plan: FlowPlan,
    is_reliable: bool,
    end_ns: u64,
) -> Run {
    let mut arrival_ns: Vec<Option<u64>> = vec![None; sent.made.len()];
    let mut duplicates = 0;
    for &(number, at_ns) in &received.arrived {
        match usize::try_from(number).ok().and_then(|number| arrival_ns.get_mut(number)) {
            Some(Some(_)) => duplicates += 1,
            Some(first) => *first = Some(at_ns),
            // Not a number that was sent: a message that is not ours.
            None => {}
        }
    }
    let (mut delays_ns, mut censored_ns) = (Vec::new(), Vec::new());
    for (made, arrived) in sent.made.iter().zip(&arrival_ns) {
        match arrived {
            Some(at_ns) => delays_ns.push(at_ns.saturating_sub(made.at_ns)),
            None if is_reliable => censored_ns.push(end_ns.saturating_sub(made.at_ns)),
            None => {}
        }
    }
    delays_ns.sort_unstable();
    censored_ns.sort_unstable();
    let duration_ns = end_ns.saturating_sub(sent.began_ns).saturating_sub(GRACE.as_nanos() as u64);
    Run {
        seed: plan.seed,
        duration_ns,
        offered: (duration_ns as f64 / plan.interval.as_nanos() as f64) as u64,
        sent: sent.made.len() as u64,
        delivered: delays_ns.len() as u64,
        duplicates,
        delays_ns,
        censored_ns,
        age_ns: ages(sent, &arrival_ns, plan.age_interval, duration_ns),
        tcp: sent.tcp.clone(),
        failure: sent.failure.clone(),
        ..Run::default()
    }
}

/// Age of information at regular times: now minus the making of the newest message that has arrived by then.
fn ages(
    sent: &SenderLog,
    arrival_ns: &[Option<u64>],
    every: Duration,
    duration_ns: u64,
) -> Vec<u64> {
    let arrived =
        sent.made.iter().zip(arrival_ns).filter_map(|(made, at)| Some(((*at)?, made.at_ns)));
    let mut arrived: Vec<(u64, u64)> = arrived.collect();
    arrived.sort_unstable();
    let every_ns = (every.as_nanos() as u64).max(1);
    let (mut next, mut newest_ns) = (0, sent.began_ns);
    let mut ages: Vec<u64> = (1..=duration_ns / every_ns)
        .map(|step| {
            let now_ns = sent.began_ns + step * every_ns;
            while let Some((_, made_ns)) = arrived.get(next).filter(|(at_ns, _)| *at_ns <= now_ns) {
                newest_ns = newest_ns.max(*made_ns);
                next += 1;
            }
            now_ns.saturating_sub(newest_ns)
        })
        .collect();
    ages.sort_unstable();
    ages
}

/// The counters that a report names. They are the host's: all flows of a point that ran at the same time share them.
fn kernel_counters(counters: &Counters) -> KernelCounters {
    let value = |group, name| counters.value(group, name).unwrap_or(0);
    KernelCounters {
        retransmitted_segments: value("Tcp", "RetransSegs"),
        timeouts: value("TcpExt", "TCPTimeouts"),
        lost_retransmits: value("TcpExt", "TCPLostRetransmit"),
        spurious_timeouts: value("TcpExt", "TCPSpuriousRTOs"),
        retransmit_failures: value("TcpExt", "TCPRetransFail"),
        udp_receive_buffer_errors: value("Udp", "RcvbufErrors"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> FlowPlan {
        FlowPlan {
            message_bytes: 16,
            interval: Duration::from_nanos(10),
            duration: Duration::from_nanos(40),
            schedule: Schedule::ClosedLoop,
            age_interval: Duration::from_nanos(10),
            seed: 1,
        }
    }

    #[test]
    fn what_has_not_arrived_is_censored_and_ages_grow_until_something_does() {
        let made = [100, 110, 120].map(|at_ns| Made { at_ns }).to_vec();
        let sent = SenderLog { made, began_ns: 100, ..SenderLog::default() };
        let received = ReceiverLog { arrived: vec![(0, 105), (2, 139), (2, 139), (9, 139)] };
        let end_ns = 140 + GRACE.as_nanos() as u64;
        let run = evaluate(&sent, &received, plan(), true, end_ns);
        assert_eq!((run.sent, run.delivered, run.duplicates, run.offered), (3, 2, 1, 4));
        assert_eq!(run.delays_ns, [5, 19]);
        assert_eq!(run.censored_ns, [end_ns - 110]);
        // At 110, 120 and 130 the newest is of 100; at 140 it is of 120.
        assert_eq!(run.age_ns, [10, 20, 20, 30]);
        assert!(evaluate(&sent, &received, plan(), false, end_ns).censored_ns.is_empty());
    }
}
