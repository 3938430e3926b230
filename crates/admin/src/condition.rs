//! The condition of the daemon, on three pages.
//!
//! `/healthz` is for a supervisor that restarts what is ill, so it says only what a restart fixes. `/readyz` says whether datagrams are
//! taken, and what waits for this host or for a name. `/health` says whether data gets through, from the sockets to where it is wanted, and so also what people have to fix,
//! such as a store that is down.

use crate::AdminState;
use crate::access::{Proof, proof};
use crate::health::{Phase, View};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use ledger::{Gauge, HopKind, HopSnapshot, Snapshot, Trouble};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// How long a violation of the ledger's law counts: afterwards it is a past one, and is only reported.
pub const VIOLATION_RECENT: Duration = Duration::from_secs(300);

/// What is wrong with the daemon, a line each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Condition {
    /// Any of these, and it is unhealthy.
    failed: Vec<String>,
    /// What people should know of.
    degraded: Vec<String>,
}

pub(crate) async fn health(
    State(state): State<Arc<AdminState>>,
    request: Request,
) -> (StatusCode, String) {
    let snapshot = state.ledger.check();
    let is_recent = state.ledger.violated_within(VIOLATION_RECENT);
    let condition = Condition::of(&state.health.view(), &snapshot, is_recent);

    let status = match condition.failed.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, condition.text(may_see_names(&state, &request)))
}

/// The listeners whose data loops do not move, a line each.
fn stalls(view: &View) -> impl Iterator<Item = String> {
    view.stalled().map(|(listener, age)| {
        let age = age.as_secs_f64();
        format!("the data loops of listener {listener} have not moved for {age:.1} s")
    })
}

pub(crate) async fn healthz(State(state): State<Arc<AdminState>>) -> (StatusCode, String) {
    let mut text = String::new();
    for line in stalls(&state.health.view()) {
        writeln!(text, "failed: {line}").expect("writing to a string cannot fail");
    }

    if !text.is_empty() {
        return (StatusCode::SERVICE_UNAVAILABLE, text);
    }

    let snapshot = state.ledger.check();
    if snapshot.is_balanced() {
        text.push_str("ok\n");
    } else {
        // The data path works, and a restart would lose the data it holds: this is for people, not for the supervisor.
        let violations = snapshot.violations;
        writeln!(text, "degraded: the ledger did not balance at {violations} moments; see /ledger")
            .expect("writing to a string cannot fail");
    }

    (StatusCode::OK, text)
}

pub(crate) async fn readyz(
    State(state): State<Arc<AdminState>>,
    request: Request,
) -> (StatusCode, String) {
    let view = state.health.view();
    let status = match view.phase {
        Phase::Ready => StatusCode::OK,
        Phase::Starting | Phase::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut text = format!("{}\n", view.phase.label());
    if !view.waiting.is_empty() && !may_see_names(&state, &request) {
        text += "something waits; what it is, is shown with the token of admin.token_file\n";
        return (status, text);
    }
    for line in &view.waiting {
        writeln!(text, "waits: {}", line.escape_debug()).expect("writing to a string cannot fail");
    }
    (status, text)
}

/// Whether the names of sinks and targets are for this client: whoever may see `/metrics` sees them there.
fn may_see_names(state: &AdminState, request: &Request) -> bool {
    state.token.is_none() || proof(state, request) == Proof::Known
}

impl Condition {
    fn of(health: &View, snapshot: &Snapshot, is_violation_recent: bool) -> Condition {
        let mut condition = Condition::default();
        if health.phase == Phase::Starting {
            condition.failed.push("the listeners are not bound yet".to_owned());
        }
        condition.failed.extend(stalls(health));

        if snapshot.violations > 0 {
            let text = format!(
                "the ledger did not balance at {} moments, which is a defect of Weir; see /ledger",
                snapshot.violations
            );
            match is_violation_recent {
                true => condition.failed.push(text),
                false => condition.degraded.push(text),
            }
        }

        condition.add_ways(snapshot);
        let losing = health.losing.iter().map(|component| format!("{component} loses data"));
        condition.degraded.extend(losing);
        let waiting =
            health.waiting.iter().map(|line| format!("{}; it waits", line.escape_debug()));
        condition.degraded.extend(waiting);
        condition
    }

    /// Sinks and targets that take nothing. It is a failure where nothing is left that does: for all that one listener or
    /// collector makes, or among all sinks.
    fn add_ways(&mut self, snapshot: &Snapshot) {
        let mut of_origin: BTreeMap<&str, Vec<&HopSnapshot>> = BTreeMap::new();
        let mut sinks = Vec::new();
        for hop in snapshot.hops.iter().filter(|hop| hop.gauge(Gauge::Up).is_some()) {
            of_origin.entry(&hop.origin).or_default().push(hop);
            if hop.hop == HopKind::Sink {
                sinks.push(hop);
            }
        }

        let is_down = |hop: &&HopSnapshot| !is_up(hop);
        for (origin, ways) in &of_origin {
            if ways.iter().all(is_down) {
                let names: Vec<_> = ways.iter().map(|hop| named(hop)).collect();
                self.failed.push(format!("nothing of {origin} gets through: {}", names.join(", ")));
            }
        }
        if !sinks.is_empty() && sinks.iter().all(is_down) {
            self.failed.push(format!("no sink works, of {}", sinks.len()));
        }
        let down = of_origin.values().flatten().filter(|hop| is_down(hop));
        self.degraded.extend(down.map(|hop| match &hop.trouble {
            Some(Trouble { what, fix }) => {
                let (what, fix) = (what.escape_debug(), fix.escape_debug());
                format!("{} takes nothing: {what}. Fix: {fix}", named(hop))
            }
            None => format!("{} takes nothing", named(hop)),
        }));
    }

    fn text(&self, shows_names: bool) -> String {
        let mut text = match (self.failed.is_empty(), self.degraded.is_empty()) {
            (true, true) => return "healthy\n".to_owned(),
            (true, false) => "healthy, but degraded\n".to_owned(),
            (false, _) => "unhealthy\n".to_owned(),
        };
        if !shows_names {
            text += "what it is, is shown with the token of admin.token_file\n";
            return text;
        }
        for (word, lines) in [("failed", &self.failed), ("degraded", &self.degraded)] {
            for line in lines {
                writeln!(text, "{word}: {line}").expect("writing to a string cannot fail");
            }
        }
        text
    }
}

fn is_up(hop: &HopSnapshot) -> bool {
    hop.gauge(Gauge::Up) != Some(0) && hop.gauge(Gauge::CircuitOpen) != Some(1)
}

fn named(hop: &HopSnapshot) -> String {
    let kind = if hop.hop == HopKind::Sink { "sink" } else { "target" };
    format!("{kind} {}", hop.target.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;
    use ledger::{Amount, HopBuilder};

    fn way(kind: HopKind, origin: &str, name: &str, up: u64) -> HopSnapshot {
        let what = Trouble { what: "broker:9092 refused".into(), fix: "start it".into() };
        HopBuilder::new(kind, origin, Some(name), Amount::default())
            .gauge(Gauge::Up, up)
            .trouble((up == 0).then_some(what))
            .finish(Amount::default())
    }

    fn sink(origin: &str, name: &str, up: u64) -> HopSnapshot {
        way(HopKind::Sink, origin, name, up)
    }

    fn target(name: &str, up: u64) -> HopSnapshot {
        way(HopKind::Target, "in", name, up)
    }

    fn condition(hops: Vec<HopSnapshot>) -> Condition {
        let health = Health::new(Duration::from_secs(5));
        health.set_phase(Phase::Ready);
        Condition::of(&health.view(), &Snapshot { hops, ..Snapshot::default() }, false)
    }

    fn check(hops: Vec<HopSnapshot>, failed: &[&str], degraded: usize) {
        let condition = condition(hops);
        assert_eq!(condition.failed, failed);
        assert_eq!(condition.degraded.len(), degraded, "{condition:?}");
    }

    #[test]
    fn one_way_that_works_is_enough_for_what_comes_from_one_place() {
        check(vec![], &[], 0);
        check(vec![target("old", 1), target("new", 0)], &[], 1);
        check(vec![target("old", 1), sink("sockets", "a", 1), sink("sockets", "b", 0)], &[], 1);
        let one = "nothing of sockets gets through: sink a";
        check(vec![target("old", 1), sink("sockets", "a", 0), sink("in", "b", 1)], &[one], 1);
        let both = "nothing of in gets through: target old, target new";
        check(vec![target("old", 0), target("new", 0)], &[both], 2);
    }

    #[test]
    fn sinks_that_all_fail_are_a_failure_although_a_target_works() {
        check(vec![target("old", 1), sink("in", "a", 0)], &["no sink works, of 1"], 1);
    }

    #[test]
    fn what_is_down_says_how_to_fix_it() {
        let condition = condition(vec![target("old", 1), target("new", 0)]);
        let text = "healthy, but degraded\ndegraded: target new takes nothing: broker:9092 refused. Fix: start it\n";
        assert_eq!(condition.text(true), text);
    }

    #[test]
    fn a_circuit_that_is_open_is_down() {
        let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("a"), Amount::default());
        let hop = hop.gauge(Gauge::Up, 1).gauge(Gauge::CircuitOpen, 1);
        assert_eq!(condition(vec![hop.finish(Amount::default())]).failed.len(), 2);
    }

    #[test]
    fn a_violation_fails_for_a_while_and_is_reported_from_then_on() {
        let health = Health::new(Duration::from_secs(5));
        health.set_phase(Phase::Ready);
        let snapshot = Snapshot { violations: 3, ..Snapshot::default() };
        let recent = Condition::of(&health.view(), &snapshot, true);
        assert!(
            recent.text(true).starts_with("unhealthy\nfailed: the ledger did not balance at 3")
        );
        let past = Condition::of(&health.view(), &snapshot, false);
        assert!(past.text(true).starts_with("healthy, but degraded\ndegraded: the ledger did not"));
        assert!(!past.text(false).contains("ledger"));
    }

    #[test]
    fn a_daemon_that_starts_is_not_healthy_yet_and_one_that_drains_still_is() {
        let health = Health::new(Duration::from_secs(5));
        let failed = || Condition::of(&health.view(), &Snapshot::default(), false).failed;
        assert_eq!(failed(), ["the listeners are not bound yet"]);
        health.set_phase(Phase::Draining);
        assert!(failed().is_empty());
    }
}
