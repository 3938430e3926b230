//! A ledger with known numbers, and the server's answers to it.

use admin::metrics::reasons_at;
use admin::{AdminState, Health, Phase};
use ledger::{
    Amount, Counters, DelayHistogram, HopBuilder, HopKind, HopSnapshot, Ledger, Meter, Reason,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const HEARTBEAT_LIMIT: Duration = Duration::from_secs(3600);

/// Hops that stay as they are.
pub(crate) struct Fixed(pub(crate) Vec<HopSnapshot>);

impl Meter for Fixed {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        hops.extend(self.0.iter().cloned());
    }
}

pub(crate) fn amount(count: u64) -> Amount {
    Amount { count, bytes: count * 200 }
}

/// A hop that received 1,000 and dropped one datagram for each of these reasons.
fn hop(kind: HopKind, target: Option<&str>, reasons: &[Reason]) -> HopBuilder {
    let counters = Counters::default();
    for &reason in reasons {
        counters.drop(reason, amount(1));
    }
    HopBuilder::new(kind, source(kind), target, amount(1_000))
        .left(&counters)
        .delivered(amount(1_000 - reasons.len() as u64))
}

fn source(kind: HopKind) -> &'static str {
    match kind {
        HopKind::Socket
        | HopKind::Receive
        | HopKind::Target
        | HopKind::Egress
        | HopKind::Receiver => "syslog",
        HopKind::Poll | HopKind::Close | HopKind::Sink => "sockets",
    }
}

/// A listener with one target and a collector with one sink, at which every reason, event and gauge occurs.
pub(crate) fn busy_hops() -> Vec<HopSnapshot> {
    let delay = DelayHistogram::default();
    delay.add(40, 900);
    delay.add(10_000_000, 85);
    let of = |kind, target| hop(kind, target, reasons_at(kind));
    vec![
        of(HopKind::Socket, None)
            .gauge("receive_buffer_bytes", 425_984)
            .gauge("receive_queue_bytes", 832)
            .finish(amount(1_000)),
        of(HopKind::Receive, None)
            .event("batches", 50)
            .event("empty_datagrams", 3)
            .event("receive_errors", 2)
            .finish(amount(1_000)),
        of(HopKind::Target, Some("old"))
            .capacity(65_536)
            .gauge("oldest_age_ms", 1_500)
            .gauge("gso", 1)
            .gauge("up", 0)
            .event("send_calls", 60)
            .event("retries", 7)
            .event("file_tails_mended", 1)
            .event("files_set_aside", 2)
            .event("send_errors_ENOBUFS", 4)
            .event("send_errors_EFAULT", 1)
            .event("send_errors_unresolved", 2)
            .delay(&delay)
            .finish(amount(1_000)),
        of(HopKind::Egress, Some("old"))
            .event("icmp_3_3", 5)
            .event("icmp_11_0", 6)
            .finish(amount(1_000)),
        of(HopKind::Receiver, Some("old")).event("socket_drops", 1).finish(amount(1_000)),
        of(HopKind::Poll, None)
            .event("polls", 12)
            .event("walk_us", 250_000)
            .event("namespace_errors_permission", 3)
            .gauge("namespaces", 5)
            .gauge("namespaces_left_out", 2)
            .gauge("table_entries", 6)
            .gauge("table_capacity", 7)
            .gauge("open_time_wait_ipv6", 17)
            .delay(&delay)
            .finish(amount(1_000)),
        of(HopKind::Close, None).event("ended_peer_reset", 4).finish(amount(1_000)),
        of(HopKind::Sink, Some("kept"))
            .gauge("queue_bytes", 512)
            .gauge("up", 1)
            .finish(amount(1_000)),
    ]
}

/// A listener with one target and a collector with one sink, at which nothing has happened yet.
pub(crate) fn idle_hops() -> Vec<HopSnapshot> {
    let idle =
        |kind, target| HopBuilder::new(kind, source(kind), target, amount(0)).finish(amount(0));
    vec![
        idle(HopKind::Socket, None),
        idle(HopKind::Receive, None),
        idle(HopKind::Target, Some("old")),
        idle(HopKind::Egress, Some("old")),
        idle(HopKind::Receiver, Some("old")),
        idle(HopKind::Poll, None),
        idle(HopKind::Close, None),
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
