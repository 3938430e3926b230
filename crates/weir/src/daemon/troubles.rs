//! What goes wrong on the way of records, in the log: once when it begins, and once when it is over. The ledger counts it.

use ledger::{HopKind, HopSnapshot, Reason, Snapshot};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// How long nothing must fail before it counts as over: a network tells of its losses now and then only.
const QUIET: Duration = Duration::from_secs(10);

/// Follows sinks, and what comes to the collector from the kernel.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    hops: BTreeMap<(HopKind, String), State>,
}

/// What was known of a hop at the last look.
#[derive(Debug, Default)]
struct State {
    errors: u64,
    lost: BTreeMap<&'static str, u64>,
    lost_total: u64,
    /// When something failed last, and how much was lost before it began; `None`: all is well.
    trouble: Option<(Instant, u64)>,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Begins(String),
    Over(String),
}

impl Line {
    pub(crate) fn log(&self) {
        match self {
            Line::Begins(text) => tracing::warn!("{text}"),
            Line::Over(text) => tracing::info!("{text}"),
        }
    }
}

impl Troubles {
    /// What there is to say about the time since the last look.
    pub(crate) fn look(&mut self, now: Instant, snapshot: &Snapshot) -> Vec<Line> {
        let hops =
            snapshot.hops.iter().filter(|hop| matches!(hop.hop, HopKind::Sink | HopKind::Close));
        let mut lines = Vec::new();
        for hop in hops {
            let key = (hop.hop, hop.target.clone().unwrap_or_default());
            lines.extend(self.hops.entry(key).or_default().look(now, hop));
        }
        lines
    }
}

impl State {
    fn look(&mut self, now: Instant, hop: &HopSnapshot) -> Option<Line> {
        let errors = hop.events.get("errors").copied().unwrap_or_default();
        let has_error = errors > self.errors;
        self.errors = errors;
        let mut reason = None;
        for drop in hop.dropped.iter().filter(|drop| is_trouble(drop.reason)) {
            let before = self.lost.entry(drop.reason.label()).or_default();
            if drop.amount.count > *before {
                *before = drop.amount.count;
                // With several at once the last is the one of the destination.
                reason = Some(drop.reason);
            }
        }
        let lost_before = self.lost_total;
        self.lost_total = self.lost.values().sum();
        let is_failing = has_error || reason.is_some();
        match self.trouble {
            None if is_failing => {
                self.trouble = Some((now, lost_before));
                let error = hop.gauges.get("last_errno").filter(|_| has_error);
                Some(Line::Begins(begins(hop, error.copied(), reason)))
            }
            Some((_, before)) if is_failing => {
                self.trouble = Some((now, before));
                None
            }
            Some((last, before)) if now.saturating_duration_since(last) >= QUIET => {
                self.trouble = None;
                Some(Line::Over(over(hop, self.lost_total - before)))
            }
            _ => None,
        }
    }
}

/// That a sink's name has no address is said when it is looked up.
fn is_trouble(reason: Reason) -> bool {
    !reason.is_intended() && reason != Reason::TargetUnresolved
}

fn begins(hop: &HopSnapshot, errno: Option<u64>, reason: Option<Reason>) -> String {
    let cause = match errno.and_then(|errno| i32::try_from(errno).ok()) {
        Some(errno) => io::Error::from_raw_os_error(errno).to_string(),
        None => reason.map_or("records are lost", Reason::cause).to_owned(),
    };
    let fate = match reason {
        Some(reason) => {
            format!("what is lost is counted as {}. Fix: {}", reason.label(), reason.advice())
        }
        None => "records wait, and are tried again".to_owned(),
    };
    format!("{}: {cause}; {fate}", name(hop))
}

fn over(hop: &HopSnapshot, lost: u64) -> String {
    let what = if hop.hop == HopKind::Close { "close events" } else { "records" };
    format!("{}: nothing has failed for {} s; {lost} {what} were lost", name(hop), QUIET.as_secs())
}

fn name(hop: &HopSnapshot) -> String {
    match &hop.target {
        Some(sink) => format!("sink {sink}"),
        None => hop.listener.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder};

    /// A sink at one moment: errors so far, and records dropped for a reason.
    fn sink(errors: u64, dropped: &[(Reason, u64)]) -> Snapshot {
        let amount = |count| Amount { count, bytes: 0 };
        let total = amount(dropped.iter().map(|(_, count)| count).sum());
        let hop =
            HopBuilder::new(HopKind::Sink, "sockets", Some("s"), total).event("errors", errors);
        let hop = if errors > 0 { hop.gauge("last_errno", 28) } else { hop };
        let hop =
            dropped.iter().fold(hop, |hop, (reason, count)| hop.dropped(*reason, amount(*count)));
        Snapshot { hops: vec![hop.finish(total)], ..Snapshot::default() }
    }

    #[test]
    fn it_is_said_once_and_again_when_it_is_over() {
        let (mut troubles, start) = (Troubles::default(), Instant::now());
        let mut look = |second, snapshot: Snapshot| {
            troubles.look(start + Duration::from_secs(second), &snapshot)
        };
        assert_eq!(look(0, sink(0, &[])), []);
        let begins =
            "sink s: No space left on device (os error 28); records wait, and are tried again";
        assert_eq!(look(1, sink(1, &[])), [Line::Begins(begins.to_owned())]);
        assert_eq!(look(2, sink(9, &[(Reason::WriteError, 70)])), []);
        assert_eq!(look(11, sink(9, &[(Reason::WriteError, 70)])), []);
        let over = "sink s: nothing has failed for 10 s; 70 records were lost";
        assert_eq!(look(12, sink(9, &[(Reason::WriteError, 70)])), [Line::Over(over.to_owned())]);
        assert_eq!(look(30, sink(9, &[(Reason::WriteError, 70)])), []);
        let again = look(31, sink(9, &[(Reason::WriteError, 70), (Reason::QueueFull, 5)]));
        let [Line::Begins(text)] = &again[..] else { panic!("{again:?}") };
        assert!(text.contains("counted as queue_full") && text.contains("queue_size"), "{text}");
    }

    #[test]
    fn what_was_asked_for_is_no_trouble() {
        let mut troubles = Troubles::default();
        let filtered = sink(0, &[(Reason::Filtered, 7), (Reason::Sampled, 3)]);
        assert_eq!(troubles.look(Instant::now(), &filtered), []);
    }
}
