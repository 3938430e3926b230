//! A ledger with known numbers, and the server's responses for it.

use admin::{AdminState, Health, Phase};
use ledger::{
    Amount, ConnectionEnd, Counters, DelayHistogram, Event, Gauge, HopBuilder, HopKind,
    HopSnapshot, IcmpError, Ledger, Meter, NamespaceError, PollPhase, Reason, RejectClass,
    SendError, SinkCounters, TcpState,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const HEARTBEAT_LIMIT: Duration = Duration::from_secs(3600);

/// Hops with fixed counts.
pub(crate) struct Fixed(pub(crate) Vec<HopSnapshot>);

impl Meter for Fixed {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        hops.extend(self.0.iter().cloned());
    }
}

pub(crate) fn amount(count: u64) -> Amount {
    Amount { count, bytes: count * 200 }
}

/// A hop that received 1,000 and dropped one datagram for each of these reasons. At a target, one more is uncertain.
fn hop(kind: HopKind, target: Option<&str>, reasons: impl Iterator<Item = Reason>) -> HopBuilder {
    let counters = Counters::default();
    let uncertain = u64::from(kind == HopKind::Target);
    let mut dropped = 0;
    for reason in reasons {
        counters.drop(reason, amount(1));
        dropped += 1;
    }
    HopBuilder::new(kind, source(kind), target, amount(1_000))
        .left(&counters)
        .uncertain(amount(uncertain))
        .delivered(amount(1_000 - dropped - uncertain))
}

fn source(kind: HopKind) -> &'static str {
    match kind {
        HopKind::Socket
        | HopKind::Receive
        | HopKind::Member
        | HopKind::Target
        | HopKind::Egress
        | HopKind::Receiver => "syslog",
        HopKind::Poll | HopKind::Close | HopKind::Sink => "sockets",
        HopKind::Analysis => "flows",
    }
}

/// A listener with one target and a collector with one sink, with every reason, event and gauge.
pub(crate) fn busy_hops() -> Vec<HopSnapshot> {
    let delay = DelayHistogram::default();
    delay.add(40, 900);
    delay.add(10_000_000, 85);
    let of = |kind, target| hop(kind, target, Reason::at(kind));
    vec![
        of(HopKind::Socket, None)
            .gauge(Gauge::ReceiveBufferBytes, 425_984)
            .gauge(Gauge::ReceiveQueueBytes, 832)
            .finish(amount(1_000)),
        busy_receive(of(HopKind::Receive, None)),
        of(HopKind::Member, Some("0")).event(Event::Batches, 20).finish(amount(1_000)),
        busy_target(of(HopKind::Target, Some("old"))).delay(&delay).finish(amount(1_000)),
        of(HopKind::Egress, Some("old"))
            .event(Event::IcmpErrors(IcmpError::V4Port), 5)
            .event(Event::IcmpErrors(IcmpError::Other), 6)
            .finish(amount(1_000)),
        of(HopKind::Receiver, Some("old")).event(Event::SocketDrops, 1).finish(amount(1_000)),
        of(HopKind::Poll, None)
            .event(Event::Polls, 12)
            .event(Event::Spent(PollPhase::Walk), 250_000)
            .event(Event::NamespaceErrors(NamespaceError::Permission), 3)
            .gauge(Gauge::Namespaces, 5)
            .gauge(Gauge::NamespacesLeftOut, 2)
            .gauge(Gauge::TableEntries, 6)
            .gauge(Gauge::TableCapacity, 7)
            .gauge(Gauge::OpenIpv6(TcpState::TimeWait), 17)
            .delay(&delay)
            .finish(amount(1_000)),
        of(HopKind::Close, None)
            .event(Event::Ended(ConnectionEnd::PeerReset), 4)
            .finish(amount(1_000)),
        of(HopKind::Analysis, None)
            .event(Event::AgentDroppedSamples, 6)
            .event(Event::CollectorDropped, 7)
            .event(Event::EventsMissed, 3)
            .event(Event::UnwatchedSamples, 5)
            .gauge(Gauge::FlowAgents, 8)
            .gauge(Gauge::MissingDatagrams, 9)
            .gauge(Gauge::NetworkMissing, 2)
            .finish(amount(1_000)),
        busy_sink(of(HopKind::Sink, Some("kept"))),
    ]
}

/// A sink with rejected and unanswered rows, and with every gauge that it can have.
fn busy_sink(hop: HopBuilder) -> HopSnapshot {
    let counters = SinkCounters::default();
    for class in RejectClass::ALL {
        counters.reject(*class, amount(1 + *class as u64));
    }
    counters.uncertain(amount(40));
    counters.keep(amount(11));

    let gauges = [
        (Gauge::QueueRows, 60),
        (Gauge::QueueBytes, 512),
        (Gauge::QueueLimitBytes, 1_024),
        (Gauge::SpoolRows, 70),
        (Gauge::SpoolBytes, 2_048),
        (Gauge::SpoolCapacityBytes, 4_096),
        (Gauge::EncoderBytes, 128),
        (Gauge::BatchesInFlight, 3),
        (Gauge::OldestAgeMs, 2_500),
        (Gauge::LastAcknowledgedUnixMs, 1_700_000_000_250),
        (Gauge::CircuitOpen, 0),
        (Gauge::Up, 1),
    ];
    let hop = gauges.into_iter().fold(hop, |hop, (gauge, value)| hop.gauge(gauge, value));

    hop.left_sink(&counters)
        .event(Event::PossibleDuplicates, 8)
        .event(Event::Recovered, 9)
        .event(Event::SpoolsUnclosed, 2)
        .event(Event::SocketRenewals, 1)
        .event(Event::SpoolCutBytes, 77)
        .capacity(1_000)
        .finish(amount(2_000))
}

/// A listener with one target and a collector with one sink, with all counts at 0.
pub(crate) fn idle_hops() -> Vec<HopSnapshot> {
    let idle =
        |kind, target| HopBuilder::new(kind, source(kind), target, amount(0)).finish(amount(0));
    vec![
        idle(HopKind::Socket, None),
        idle(HopKind::Receive, None),
        idle(HopKind::Member, Some("0")),
        idle(HopKind::Target, Some("old")),
        idle(HopKind::Egress, Some("old")),
        idle(HopKind::Receiver, Some("old")),
        idle(HopKind::Poll, None),
        idle(HopKind::Close, None),
        idle(HopKind::Analysis, None),
        idle(HopKind::Sink, Some("kept")),
    ]
}

/// A state with these hops, bound to `bind`, ready and with one configuration.
pub(crate) fn state(hops: Vec<HopSnapshot>, bind: &str) -> AdminState {
    let ledger = Arc::new(Ledger::new("5eed".into()));
    ledger.register(Arc::new(Fixed(hops)));
    let health = Arc::new(Health::new(HEARTBEAT_LIMIT));
    health.config_applied("c0ffee");
    health.heartbeat("syslog", 1);
    health.set_phase(Phase::Ready);
    let bind: IpAddr = bind.parse().unwrap();
    AdminState::new(ledger, health, bind)
}

fn busy_receive(hop: HopBuilder) -> HopSnapshot {
    hop.event(Event::Batches, 50)
        .event(Event::EmptyDatagrams, 3)
        .event(Event::ReceiveErrors, 2)
        .event(Event::Overtaken, 1)
        .event(Event::SocketRenewals, 2)
        .event(Event::Packets, 30)
        .event(Event::ForgedPackets, 2)
        .event(Event::ReplayedPackets, 3)
        .event(Event::StrangePackets, 4)
        .event(Event::HellosRefused, 5)
        .event(Event::HelloCookies, 6)
        .event(Event::RepeatedDatagrams, 5)
        .event(Event::LateDatagrams, 6)
        .event(Event::PacketsWithoutRoom, 7)
        .gauge(Gauge::SessionsOpen, 8)
        .finish(amount(1_000))
}

fn busy_target(hop: HopBuilder) -> HopBuilder {
    hop.capacity(65_536)
        .gauge(Gauge::OldestAgeMs, 1_500)
        .gauge(Gauge::RingHeldPpm, 250_000)
        .gauge(Gauge::Gso, 1)
        .gauge(Gauge::Up, 0)
        .event(Event::SendCalls, 60)
        .event(Event::Retries, 7)
        .event(Event::WithoutSource, 8)
        .event(Event::WithoutPort, 9)
        .event(Event::SenderTurnover, 10)
        .event(Event::SocketRenewals, 3)
        .event(Event::FileTailsMended, 1)
        .event(Event::FilesSetAside, 2)
        .event(Event::Packets, 40)
        .event(Event::Repairs, 9)
        .event(Event::RepairsSpurious, 3)
        .event(Event::Sessions, 2)
        .event(Event::PeerRestarts, 1)
        .event(Event::PossibleDuplicates, 5)
        .event(Event::LostInCrash, 6)
        .gauge(Gauge::RoundTripUs, 20_500)
        .gauge(Gauge::PathLossPpm, 200_000)
        .gauge(Gauge::RateBytes, 1_250_000)
        .event(Event::SendErrors(SendError::NoBufs), 4)
        .event(Event::SendErrors(SendError::Other), 1)
        .event(Event::SendErrors(SendError::Unresolved), 2)
}
