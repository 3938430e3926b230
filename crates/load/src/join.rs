//! Joins what a listener received with a relay's ledger: at which hop, and why, each datagram was lost.
//!
//! Every datagram sent is counted in exactly one place: `sent = arrived + our own socket's drops + the relay's drops by
//! hop and reason + what the relay still holds + unexplained`. The unexplained ones were lost between hosts; there are
//! none on a single host.

mod summary;

pub use summary::{Lost, RelayLedger};

use crate::verify::ListenerReport;
use ledger::{HopKind, HopSnapshot, Reason, Snapshot};
use serde::Serialize;

/// What one of our listeners knows without the relay; heartbeats count as datagrams here, as they do for the relay.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// Datagrams sent, according to the generators.
    pub sent: u64,
    /// Datagrams read from the socket.
    pub arrived: u64,
    /// Datagrams that the kernel dropped at the socket.
    pub kernel_dropped: u64,
}

impl Observed {
    /// The datagrams in a listener's report.
    pub fn of(report: &ListenerReport) -> Observed {
        Observed {
            sent: report.counts.expected.saturating_add(report.counts.heartbeats_expected),
            arrived: report.counts.all_datagrams(),
            kernel_dropped: report.kernel_dropped,
        }
    }
}

/// A target of the relay, by its names in the ledger.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Route {
    pub listener: String,
    pub target: String,
}

/// Where the datagrams of one of our listeners went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Join {
    #[serde(flatten)]
    pub route: Route,
    pub sent: u64,
    pub arrived: u64,
    /// In the order of the data path; places without losses are absent.
    pub losses: Vec<Loss>,
    /// What the relay held at the second snapshot.
    pub in_flight: u64,
    /// Sent and not in any counter.
    pub unexplained: u64,
    /// Arrived or counted, but not sent by the known runs: other senders, duplicates, or a run whose end was lost.
    pub surplus: u64,
}

/// Datagrams lost at one place for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Loss {
    /// `before the relay`, the name of one of its hops, `behind the relay`, or `own socket`.
    pub place: &'static str,
    /// The ledger's reason; absent if unknown.
    pub reason: Option<Reason>,
    pub datagrams: u64,
}

/// The relay's target that sends to the listener at `address`: the one that was named, or the only one.
///
/// `wanted` is a target's name, or `listener/target`. The error is a sentence that lists the targets.
pub fn route(ledger: &Snapshot, address: &str, wanted: Option<&str>) -> Result<Route, String> {
    let routes: Vec<Route> = ledger
        .hops
        .iter()
        .filter(|hop| hop.hop == HopKind::Target)
        .filter_map(|hop| Some(Route { listener: hop.origin.clone(), target: hop.target.clone()? }))
        .collect();

    let name = wanted.unwrap_or(address);
    let mut named = routes.iter().filter(|route| {
        route.target == name || format!("{}/{}", route.listener, route.target) == name
    });

    match (named.next(), named.next(), routes.as_slice()) {
        (Some(route), None, _) => Ok(route.clone()),
        (None, _, [only]) if wanted.is_none() => Ok(only.clone()),
        _ => {
            let names: Vec<_> =
                routes.iter().map(|route| format!("{}/{}", route.listener, route.target)).collect();
            Err(format!(
                "which of the relay's targets sends to {address}? Name it with --ledger-target: {}",
                names.join(" ")
            ))
        }
    }
}

/// Joins the growth of the counts between two snapshots with the observations. Without `before`, or when the relay was
/// restarted in between, uses all counts of `after`.
pub fn join(
    before: Option<&Snapshot>,
    after: &Snapshot,
    route: &Route,
    observed: Observed,
) -> Join {
    let before = before.filter(|before| before.run_id == after.run_id);
    let earlier = |hop: &HopSnapshot| {
        before.and_then(|before| before.hop(hop.hop, &hop.origin, hop.target.as_deref()))
    };
    let grown = |hop: &HopSnapshot, count: fn(&HopSnapshot) -> u64| {
        count(hop).saturating_sub(earlier(hop).map_or(0, count))
    };
    let mut hops: Vec<&HopSnapshot> = after
        .hops
        .iter()
        .filter(|hop| hop.origin == route.listener)
        // That socket is ours, and we know it better.
        .filter(|hop| hop.hop != HopKind::Receiver && !hop.hop.is_part())
        .filter(|hop| hop.target.as_ref().is_none_or(|target| *target == route.target))
        .collect();
    hops.sort_by_key(|hop| hop.hop);
    let reached = hops.first().map_or(0, |hop| grown(hop, |hop| hop.received.count));
    let left = hops.last().map_or(0, |hop| grown(hop, |hop| hop.delivered.count));
    let at_our_socket = observed.arrived + observed.kernel_dropped;

    let mut losses = Vec::new();
    let mut lose = |place, reason, datagrams| {
        if datagrams > 0 {
            losses.push(Loss { place, reason, datagrams });
        }
    };
    lose("before the relay", None, observed.sent.saturating_sub(reached));
    for hop in &hops {
        for reason in Reason::ALL {
            let dropped_before = earlier(hop).map_or(0, |hop| hop.dropped_for(*reason).count);
            let dropped = hop.dropped_for(*reason).count.saturating_sub(dropped_before);
            lose(hop.hop.label(), Some(*reason), dropped);
        }
    }
    lose("behind the relay", None, left.saturating_sub(at_our_socket));
    lose("own socket", Some(Reason::SocketBuffer), observed.kernel_dropped);
    let unexplained =
        losses.iter().filter(|loss| loss.reason.is_none()).map(|loss| loss.datagrams).sum();
    Join {
        route: route.clone(),
        sent: observed.sent,
        arrived: observed.arrived,
        losses,
        // What was inside before the run does not belong to it, so only the difference counts.
        in_flight: hops.iter().map(|hop| grown(hop, |hop| hop.in_flight.count)).sum(),
        unexplained,
        surplus: reached.saturating_sub(observed.sent) + at_our_socket.saturating_sub(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder};

    fn amount(count: u64) -> Amount {
        Amount { count, bytes: count * 200 }
    }

    fn hop(
        kind: HopKind,
        target: Option<&str>,
        received: u64,
        dropped: &[(Reason, u64)],
        in_flight: u64,
    ) -> HopSnapshot {
        let lost: u64 = dropped.iter().map(|(_, count)| count).sum();
        let hop = HopBuilder::new(kind, "in", target, Amount::default())
            .delivered(amount(received - lost - in_flight))
            .capacity(1_000_000);
        let add =
            |hop: HopBuilder, (reason, count): &(Reason, u64)| hop.dropped(*reason, amount(*count));
        dropped.iter().fold(hop, add).finish(amount(received))
    }

    /// A relay with targets `a` and `b` that received `received` datagrams and lost some on the way to `a`.
    fn snapshot(run_id: &str, received: u64, socket: u64, queue: u64, refused: u64) -> Snapshot {
        let read = received - socket;
        let sent = read - queue;
        let hops = vec![
            hop(HopKind::Socket, None, received, &[(Reason::SocketBuffer, socket)], 0),
            hop(HopKind::Receive, None, read, &[], 0),
            hop(HopKind::Target, Some("a"), read, &[(Reason::QueueFull, queue)], 0),
            hop(HopKind::Egress, Some("a"), sent, &[(Reason::Refused, refused)], 0),
            hop(HopKind::Target, Some("b"), read, &[(Reason::Sampled, read / 2)], 0),
            hop(HopKind::Egress, Some("b"), read - read / 2, &[], 0),
        ];
        Snapshot { run_id: run_id.to_owned(), hops, ..Snapshot::default() }
    }

    fn to_a() -> Route {
        Route { listener: "in".to_owned(), target: "a".to_owned() }
    }

    fn loss(place: &'static str, reason: impl Into<Option<Reason>>, datagrams: u64) -> Loss {
        Loss { place, reason: reason.into(), datagrams }
    }

    #[test]
    fn every_loss_has_its_place() {
        let before = snapshot("r", 5_000, 100, 10, 1);
        let after = snapshot("r", 15_000, 400, 60, 21);
        // 10,000 reached the relay: it lost 300 + 50 + 20, and 9,630 left, of which our own socket dropped 30.
        let observed = Observed { sent: 10_000, arrived: 9_600, kernel_dropped: 30 };
        let joined = join(Some(&before), &after, &to_a(), observed);
        assert_eq!(
            joined.losses,
            [
                loss("socket", Reason::SocketBuffer, 300),
                loss("target", Reason::QueueFull, 50),
                loss("egress", Reason::Refused, 20),
                loss("own socket", Reason::SocketBuffer, 30),
            ]
        );
        assert_eq!((joined.unexplained, joined.surplus, joined.in_flight), (0, 0, 0));
        let lost: u64 = joined.losses.iter().map(|loss| loss.datagrams).sum();
        assert_eq!(joined.sent, joined.arrived + lost);
    }

    #[test]
    fn what_no_counter_knows_is_said() {
        let after = snapshot("r", 990, 0, 0, 0);
        let observed = Observed { sent: 1_000, arrived: 985, kernel_dropped: 0 };
        let joined = join(None, &after, &to_a(), observed);
        assert_eq!(
            joined.losses,
            [loss("before the relay", None, 10), loss("behind the relay", None, 5)]
        );
        assert_eq!(joined.unexplained, 15);
    }

    #[test]
    fn other_senders_are_a_surplus() {
        let after = snapshot("r", 1_200, 0, 0, 0);
        let observed = Observed { sent: 1_000, arrived: 1_201, kernel_dropped: 0 };
        let joined = join(None, &after, &to_a(), observed);
        assert_eq!((joined.losses.len(), joined.surplus), (0, 201));
    }

    #[test]
    fn a_restarted_relay_starts_from_zero() {
        let before = snapshot("first", 9_000, 900, 0, 0);
        let after = snapshot("second", 1_000, 10, 0, 0);
        let observed = Observed { sent: 1_000, arrived: 990, kernel_dropped: 0 };
        let joined = join(Some(&before), &after, &to_a(), observed);
        assert_eq!(joined.losses, [loss("socket", Reason::SocketBuffer, 10)]);
    }

    #[test]
    fn targets_are_found_by_name() {
        let ledger = snapshot("r", 10, 0, 0, 0);
        assert_eq!(route(&ledger, "a", None), Ok(to_a()));
        assert_eq!(route(&ledger, "udp://x", Some("a")), Ok(to_a()));
        assert_eq!(route(&ledger, "udp://x", Some("in/a")), Ok(to_a()));
        let error = route(&ledger, "udp://x", None).unwrap_err();
        assert!(error.ends_with("--ledger-target: in/a in/b"), "{error}");
        let mut single = ledger;
        single.hops.retain(|hop| hop.target.as_deref() != Some("b"));
        assert_eq!(route(&single, "udp://x", None), Ok(to_a()));
        assert!(route(&single, "udp://x", Some("c")).is_err());
    }
}
