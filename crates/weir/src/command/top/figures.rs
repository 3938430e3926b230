//! What to show of a daemon's answers, with rates from two of them.

use super::feed::Answer;
use ledger::{Gauge, HopKind, HopSnapshot, Snapshot};
use std::collections::HashMap;

/// Groups of rows, of which one is shown at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Tab {
    /// Listeners and their targets.
    Listeners,
    /// The socket collector and the sinks.
    Sinks,
    /// The sFlow analysis, its agents, and the heaviest flows.
    Flows,
}

/// The state of a row, from good to bad.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum State {
    Ok,
    /// It has lost something, but is not losing now.
    Lost,
    /// It reports a problem but continues.
    Trouble,
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
            State::Losing => "LOSING",
            State::Down => "DOWN",
            State::Stuck => "STUCK",
        }
    }
}

/// The counts of one row at one moment.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Figures {
    pub(super) tab: Tab,
    pub(super) what: &'static str,
    pub(super) name: String,
    received: Count,
    delivered: Count,
    /// Losses, by reason.
    losses: Vec<(String, u64)>,
    inside: Option<u64>,
    oldest_ms: Option<u64>,
    is_up: bool,
    has_trouble: bool,
}

/// An amount that passes through.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Count {
    Unknown,
    /// Total since the start.
    Total(u64),
    /// Estimated rate per second.
    Rate(f64),
}

/// A row, ready to be shown.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) tab: Tab,
    pub(super) what: &'static str,
    pub(super) name: String,
    /// Per second; `None` until there are two answers from the same run.
    pub(super) received: Option<f64>,
    pub(super) delivered: Option<f64>,
    pub(super) lost: Option<f64>,
    /// Losses since the start.
    pub(super) lost_total: u64,
    /// The reason of the largest loss; empty if there is none.
    pub(super) reason: String,
    pub(super) inside: Option<u64>,
    pub(super) oldest_ms: Option<u64>,
    pub(super) state: State,
}

/// The rows of `now`, in the daemon's order, with rates since `before`.
pub(super) fn rows(before: Option<&Answer>, now: &Answer) -> Vec<Row> {
    let before = before.filter(|before| before.ledger.run_id == now.ledger.run_id);
    let elapsed_ms =
        before.map_or(0, |one| now.ledger.uptime_ms.saturating_sub(one.ledger.uptime_ms));
    let earlier = before.filter(|_| elapsed_ms > 0).map(figures).unwrap_or_default();
    let earlier: HashMap<_, _> = earlier.iter().map(|one| ((one.what, &one.name), one)).collect();

    let all = figures(now);
    let row = |one: &Figures| row(earlier.get(&(one.what, &one.name)).copied(), one, elapsed_ms);
    all.iter().map(row).collect()
}

fn row(before: Option<&Figures>, now: &Figures, elapsed_ms: u64) -> Row {
    let per_second =
        |before: u64, now: u64| now.saturating_sub(before) as f64 * 1e3 / elapsed_ms as f64;
    let rate = |of: fn(&Figures) -> Count| match (before.map(of), of(now)) {
        (_, Count::Rate(rate)) => Some(rate),
        (Some(Count::Total(before)), Count::Total(now)) => Some(per_second(before, now)),
        _ => None,
    };
    let (received, delivered) = (rate(|one| one.received), rate(|one| one.delivered));
    let lost_total = now.lost();
    let lost = before.map(|before| per_second(before.lost(), lost_total));

    // A sink that gathers a batch also holds something while nothing leaves, but it is up.
    let lets_nothing_go = now.inside > Some(0) && delivered == Some(0.0);
    let state = if !now.is_up && lets_nothing_go {
        State::Stuck
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
        tab: now.tab,
        what: now.what,
        name: now.name.clone(),
        received,
        delivered,
        lost,
        lost_total,
        reason: largest.map(|(reason, _)| reason.clone()).unwrap_or_default(),
        inside: now.inside,
        oldest_ms: now.oldest_ms,
        state,
    }
}

impl Figures {
    fn lost(&self) -> u64 {
        self.losses.iter().map(|(_, count)| count).sum()
    }
}

fn figures(answer: &Answer) -> Vec<Figures> {
    let ledger = &answer.ledger;
    let mut all: Vec<Figures> = ledger.hops.iter().filter_map(|hop| of_hop(ledger, hop)).collect();
    if let Some(flows) = &answer.flows {
        all.extend(flows.agents.iter().map(|agent| {
            Figures {
                received: Count::Total(agent.datagrams),
                losses: [
                    ("path".to_owned(), agent.lost),
                    ("agent".to_owned(), agent.dropped_there()),
                ]
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .collect(),
                ..Figures::new(
                    Tab::Flows,
                    "agent",
                    format!("{}/{}", agent.address, agent.sub_agent),
                )
            }
        }));
        all.extend(flows.heaviest.iter().map(|flow| Figures {
            received: Count::Rate(flow.per_second),
            ..Figures::new(Tab::Flows, "flow", format!("{} {}", flow.definition, flow.key))
        }));
    }
    all
}

/// The row for a hop, combined with the hops behind it; `None` for those hops themselves.
fn of_hop(ledger: &Snapshot, hop: &HopSnapshot) -> Option<Figures> {
    let at = |kind| ledger.hop(kind, &hop.origin, hop.target.as_deref());
    let target = || format!("{} → {}", hop.origin, hop.target.as_deref().unwrap_or_default());
    let (tab, what, name, rest) = match hop.hop {
        HopKind::Socket => {
            (Tab::Listeners, "listener", hop.origin.clone(), vec![at(HopKind::Receive)])
        }
        HopKind::Target => {
            let behind = vec![at(HopKind::Egress), at(HopKind::Receiver)];
            (Tab::Listeners, "target", target(), behind)
        }
        HopKind::Poll => (Tab::Sinks, "polls", hop.origin.clone(), Vec::new()),
        HopKind::Close => (Tab::Sinks, "closes", hop.origin.clone(), Vec::new()),
        HopKind::Sink => (Tab::Sinks, "sink", target(), Vec::new()),
        HopKind::Analysis => (Tab::Flows, "analysis", hop.origin.clone(), Vec::new()),
        HopKind::Receive | HopKind::Member | HopKind::Egress | HopKind::Receiver => return None,
    };

    let hops: Vec<&HopSnapshot> = std::iter::once(hop).chain(rest.into_iter().flatten()).collect();
    // A receiver's socket is read by another program, so what that delivers is not this daemon's.
    let last = hops.iter().rfind(|hop| hop.hop != HopKind::Receiver).unwrap_or(&hop);
    let losses = hops.iter().flat_map(|hop| hop.undelivered());
    let losses = losses.filter(|(way, _)| !way.is_intended());
    let gauge = |gauge| hops.iter().filter_map(|hop| hop.gauge(gauge)).max();
    let inside = hops.iter().map(|hop| hop.in_flight.count).sum();

    Some(Figures {
        received: Count::Total(hop.received.count),
        delivered: Count::Total(last.delivered.count),
        losses: losses.map(|(way, amount)| (way.to_string(), amount.count)).collect(),
        inside: Some(inside),
        oldest_ms: gauge(Gauge::OldestAgeMs).filter(|_| inside > 0),
        is_up: gauge(Gauge::Up) != Some(0) && gauge(Gauge::CircuitOpen) != Some(1),
        has_trouble: hops.iter().any(|hop| hop.trouble.is_some() || hop.unaccounted != 0),
        ..Figures::new(tab, what, name)
    })
}

impl Figures {
    fn new(tab: Tab, what: &'static str, name: String) -> Figures {
        Figures {
            tab,
            what,
            name: text::escaped(&name),
            received: Count::Unknown,
            delivered: Count::Unknown,
            losses: Vec::new(),
            inside: None,
            oldest_ms: None,
            is_up: true,
            has_trouble: false,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::command::top::feed::{Agent, Flow, Flows};
    use ledger::{Amount, HopBuilder, Reason};

    fn amount(count: u64) -> Amount {
        Amount { count, bytes: count * 200 }
    }

    /// A daemon `second` seconds after its start: a healthy target, one that drops, one that is stuck, and a sink that is down.
    pub(in crate::command::top) fn answer(second: u64) -> Answer {
        let sent = second * 1_000;
        let hop = |kind, target| HopBuilder::new(kind, "syslog", target, Amount::default());
        let through = |kind, target| hop(kind, target).delivered(amount(sent)).finish(amount(sent));
        let lost = amount(second * 250);
        let hops = vec![
            hop(HopKind::Socket, None)
                .delivered(amount(sent))
                .dropped(Reason::SocketBuffer, amount(7))
                .finish(amount(sent + 7)),
            through(HopKind::Receive, None),
            through(HopKind::Target, Some("old")),
            through(HopKind::Egress, Some("old")),
            hop(HopKind::Target, Some("udp://collector-17.eu-west.example.com:5514"))
                .delivered(amount(sent).saturating_sub(lost))
                .dropped(Reason::QueueFull, lost)
                .finish(amount(sent)),
            hop(HopKind::Target, Some("unix:/run/stuck.sock"))
                .gauge(Gauge::OldestAgeMs, second * 1_000)
                .gauge(Gauge::Up, 0)
                .capacity(1 << 30)
                .finish(amount(sent)),
            hop(HopKind::Sink, Some("kafka"))
                .gauge(Gauge::Up, 0)
                .delivered(amount(sent))
                .finish(amount(sent)),
        ];
        let ledger = Snapshot {
            run_id: "5eed".into(),
            uptime_ms: second * 1_000,
            hops,
            ..Snapshot::default()
        };
        let flow = |key: &str, per_second| Flow {
            definition: "talkers".to_owned(),
            key: key.to_owned(),
            per_second,
        };
        let flows = Flows {
            agents: vec![Agent {
                address: "192.0.2.1".to_owned(),
                sub_agent: 0,
                datagrams: second * 40,
                lost: 3,
                samplers: Vec::new(),
            }],
            heaviest: vec![flow("198.51.100.9,443", 12_500_000.0), flow("10.0.0.1,53", 800.0)],
        };
        Answer { ledger, flows: Some(flows) }
    }

    fn named<'a>(rows: &'a [Row], name: &str) -> &'a Row {
        rows.iter().find(|row| row.name.contains(name)).unwrap()
    }

    #[test]
    fn rates_and_states_come_from_two_answers() {
        let rows = rows(Some(&answer(3)), &answer(5));
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
            (State::Stuck, Some(5_000), Some(5_000))
        );
        assert_eq!(named(&rows, "kafka").state, State::Down);
        assert_eq!(named(&rows, "192.0.2.1").received, Some(40.0));
        assert_eq!(named(&rows, "198.51").received, Some(12.5e6));
    }

    #[test]
    fn one_answer_and_another_run_have_no_rates() {
        let mut other = answer(3);
        other.ledger.run_id = "an earlier one".into();
        for before in [None, Some(&other), Some(&answer(5))] {
            let rows = rows(before, &answer(5));
            assert!(rows.iter().filter(|row| row.what != "flow").all(|row| row.received.is_none()));
            assert_eq!(named(&rows, "stuck").state, State::Down);
        }
    }
}
