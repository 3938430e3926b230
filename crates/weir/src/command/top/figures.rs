//! What to show of the ledger, with rates from two snapshots.

use super::answers::Place;
use ledger::{Gauge, HopKind, HopSnapshot, Snapshot};
use std::collections::HashMap;
use text::Tint;

/// The state of a row, from good to bad.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum State {
    Ok,
    /// It has lost something, but is not losing now.
    Lost,
    /// It reports a problem but continues.
    Trouble,
    /// It refused something before, and takes everything now.
    WasDown,
    /// It is losing now.
    Losing,
    /// It does not accept everything it is given.
    Down,
    /// It holds something, accepts nothing more, and nothing leaves.
    Stuck,
}

impl State {
    pub(super) fn label(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Lost => "lost",
            State::Trouble => "trouble",
            State::WasDown => "was down",
            State::Losing => "LOSING",
            State::Down => "DOWN",
            State::Stuck => "STUCK",
        }
    }

    pub(super) fn tint(self) -> Tint {
        match self {
            State::Ok => Tint::Plain,
            State::Lost | State::Trouble | State::WasDown => Tint::Notice,
            State::Losing | State::Down | State::Stuck => Tint::Alarm,
        }
    }
}

/// The counts of one row at one moment.
#[derive(Clone, PartialEq, Debug)]
struct Figures {
    what: &'static str,
    name: String,
    place: Place,
    received: u64,
    delivered: u64,
    /// Losses, by reason.
    losses: Vec<(String, u64)>,
    inside: u64,
    oldest_ms: Option<u64>,
    queue: Option<(u64, u64)>,
    spool: Option<(u64, u64)>,
    is_up: bool,
    has_trouble: bool,
    trouble: Option<String>,
}

/// A row, ready to be shown.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) name: String,
    /// The hop whose deliveries are the row's.
    pub(super) place: Place,
    /// Per second; `None` until there are two answers from the same run.
    pub(super) received: Option<f64>,
    pub(super) delivered: Option<f64>,
    pub(super) lost: Option<f64>,
    /// Since the start.
    pub(super) received_total: u64,
    pub(super) delivered_total: u64,
    pub(super) lost_total: u64,
    /// The reason of the largest loss; empty if there is none.
    pub(super) reason: String,
    pub(super) inside: u64,
    pub(super) oldest_ms: Option<u64>,
    /// Bytes in the queue of a sink, and how many it may hold.
    pub(super) queue: Option<(u64, u64)>,
    pub(super) spool: Option<(u64, u64)>,
    pub(super) state: State,
    /// What the hop says is wrong, and what helps.
    pub(super) trouble: Option<String>,
}

impl Row {
    /// Whether the page of sinks has it: what the collector makes, and where it goes.
    pub(super) fn is_of_sinks(&self) -> bool {
        matches!(self.what, "polls" | "closes" | "sink")
    }
}

/// The rows of `now`, in the daemon's order, with rates since `before`.
pub(super) fn rows(before: Option<&Snapshot>, now: &Snapshot) -> Vec<Row> {
    let elapsed_ms = elapsed_ms(before, now);
    let earlier = before.filter(|_| elapsed_ms > 0).map(figures).unwrap_or_default();
    let earlier: HashMap<_, _> = earlier.iter().map(|one| ((one.what, &one.name), one)).collect();

    let all = figures(now);
    let row = |one: &Figures| row(earlier.get(&(one.what, &one.name)).copied(), one, elapsed_ms);
    all.iter().map(row).collect()
}

/// The time between two snapshots of one run; 0 if they are not.
pub(super) fn elapsed_ms(before: Option<&Snapshot>, now: &Snapshot) -> u64 {
    let before = before.filter(|before| before.run_id == now.run_id);
    before.map_or(0, |before| now.uptime_ms.saturating_sub(before.uptime_ms))
}

fn row(before: Option<&Figures>, now: &Figures, elapsed_ms: u64) -> Row {
    let rate = |of: fn(&Figures) -> u64| {
        let grown = of(now).saturating_sub(before.map(of)?);
        Some(grown as f64 * 1e3 / elapsed_ms as f64)
    };
    let (received, delivered) = (rate(|one| one.received), rate(|one| one.delivered));
    let (lost, lost_total) = (rate(Figures::lost), now.lost());

    // A sink that gathers a batch also holds something while nothing leaves, but it is up.
    let lets_nothing_go = now.inside > 0 && delivered == Some(0.0);
    let state = if !now.is_up && lets_nothing_go {
        State::Stuck
    // A sink says itself when its store takes something again; a target is down for a while after the last refusal.
    } else if !now.is_up && now.what == "target" && lost == Some(0.0) && delivered > Some(0.0) {
        State::WasDown
    } else if !now.is_up {
        State::Down
    } else if lost > Some(0.0) {
        State::Losing
    } else if now.has_trouble {
        State::Trouble
    } else if lost_total > 0 {
        State::Lost
    } else {
        State::Ok
    };

    let largest = now.losses.iter().max_by_key(|(_, count)| *count);
    Row {
        what: now.what,
        name: now.name.clone(),
        place: now.place.clone(),
        received,
        delivered,
        lost,
        received_total: now.received,
        delivered_total: now.delivered,
        lost_total,
        reason: largest.map(|(reason, _)| reason.clone()).unwrap_or_default(),
        inside: now.inside,
        oldest_ms: now.oldest_ms,
        queue: now.queue,
        spool: now.spool,
        state,
        trouble: now.trouble.clone(),
    }
}

impl Figures {
    fn lost(&self) -> u64 {
        self.losses.iter().map(|(_, count)| count).sum()
    }
}

fn figures(ledger: &Snapshot) -> Vec<Figures> {
    ledger.hops.iter().filter_map(|hop| of_hop(ledger, hop)).collect()
}

/// The row for a hop, combined with the hops behind it; `None` for those hops themselves.
fn of_hop(ledger: &Snapshot, hop: &HopSnapshot) -> Option<Figures> {
    let at = |kind| ledger.hop(kind, &hop.origin, hop.target.as_deref());
    let part = ledger.part_of_sink(hop).map_or(String::new(), |part| format!(", {part}"));
    let target = || {
        let name = hop.target.as_deref().unwrap_or_default();
        format!("{} → {name}{part}", hop.origin)
    };
    let (what, name, rest) = match hop.hop {
        HopKind::Socket => ("listener", hop.origin.clone(), vec![at(HopKind::Receive)]),
        HopKind::Target => ("target", target(), vec![at(HopKind::Egress), at(HopKind::Receiver)]),
        HopKind::Poll => ("polls", hop.origin.clone(), Vec::new()),
        HopKind::Close => ("closes", hop.origin.clone(), Vec::new()),
        HopKind::Sink => ("sink", target(), Vec::new()),
        HopKind::Analysis => ("analysis", hop.origin.clone(), Vec::new()),
        HopKind::Receive | HopKind::Member | HopKind::Egress | HopKind::Receiver => return None,
    };

    let hops: Vec<&HopSnapshot> = std::iter::once(hop).chain(rest.into_iter().flatten()).collect();
    // A receiver's socket is read by another program, so what that delivers is not this daemon's.
    let last = hops.iter().rfind(|hop| hop.hop != HopKind::Receiver).unwrap_or(&hop);
    let losses = hops.iter().flat_map(|hop| hop.undelivered());
    let losses = losses.filter(|(way, _)| !way.is_intended());
    let gauge = |gauge| hops.iter().filter_map(|hop| hop.gauge(gauge)).max();
    let inside = hops.iter().map(|hop| hop.in_flight.count).sum();
    let trouble = hops.iter().find_map(|hop| hop.trouble.as_ref());

    Some(Figures {
        what,
        name: text::escaped(&name),
        place: place(last),
        received: hop.received.count,
        delivered: last.delivered.count,
        losses: losses.map(|(way, amount)| (way.to_string(), amount.count)).collect(),
        inside,
        oldest_ms: gauge(Gauge::OldestAgeMs).filter(|_| inside > 0),
        queue: gauge(Gauge::QueueBytes).zip(gauge(Gauge::QueueLimitBytes)),
        spool: gauge(Gauge::SpoolBytes).zip(gauge(Gauge::SpoolCapacityBytes)),
        is_up: gauge(Gauge::Up) != Some(0) && gauge(Gauge::CircuitOpen) != Some(1),
        has_trouble: trouble.is_some() || hops.iter().any(|hop| hop.unaccounted != 0),
        trouble: trouble.map(|one| text::escaped(&format!("{}. Fix: {}", one.what, one.fix))),
    })
}

/// The hop as the history names it.
fn place(hop: &HopSnapshot) -> Place {
    let target = hop.target.clone().unwrap_or_default();
    (hop.hop.label().to_owned(), hop.origin.clone(), target)
}

/// What arrived at all listeners, and what was lost at all hops, since the start.
pub(super) fn totals(ledger: &Snapshot) -> [u64; 2] {
    let sockets = ledger.hops.iter().filter(|hop| hop.hop == HopKind::Socket);
    let arrived = sockets.map(|hop| hop.received.count).sum();
    let lost = ledger.unintended_losses().iter().map(|loss| loss.amount.count).sum();
    [arrived, lost]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::top::example::snapshot;

    fn named<'a>(rows: &'a [Row], name: &str) -> &'a Row {
        rows.iter().find(|row| row.name.contains(name)).unwrap()
    }

    #[test]
    fn rates_and_states_come_from_two_answers() {
        let rows = rows(Some(&snapshot(3)), &snapshot(5));
        let listener = named(&rows, "syslog");
        assert_eq!((listener.what, listener.received), ("listener", Some(1_000.0)));
        assert_eq!((listener.lost_total, listener.lost), (7, Some(0.0)));
        assert_eq!((listener.state, &*listener.reason), (State::Lost, "socket_buffer"));
        assert_eq!(named(&rows, "old").state, State::Ok);

        let losing = named(&rows, "collector");
        assert_eq!((losing.state, losing.lost), (State::Losing, Some(250.0)));
        assert_eq!((losing.delivered, &*losing.reason), (Some(750.0), "queue_full"));
        let stuck = named(&rows, "stuck");
        assert_eq!(
            (stuck.state, stuck.inside, stuck.oldest_ms),
            (State::Stuck, 5_000, Some(5_000))
        );
        assert_eq!(named(&rows, "kafka").state, State::Down);
    }

    #[test]
    fn one_answer_and_another_run_have_no_rates() {
        let mut other = snapshot(3);
        other.run_id = "an earlier one".into();
        for before in [None, Some(&other), Some(&snapshot(5))] {
            let rows = rows(before, &snapshot(5));
            assert!(rows.iter().all(|row| row.received.is_none()));
            assert_eq!(named(&rows, "stuck").state, State::Down);
        }
    }
}
