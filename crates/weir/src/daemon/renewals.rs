//! Logs when data threads have replaced their sockets by themselves. What the control loop replaces, it logs itself.

use ledger::{Event, HopKind, Snapshot};
use std::collections::BTreeMap;

/// Follows unix targets, and sinks that send datagrams.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    /// Sockets replaced as of the last look, by origin and name.
    seen: BTreeMap<(String, String), u64>,
}

impl Renewals {
    /// Log lines for the time since the last look. `is_logged` says of a listener's target whether the control loop logs it.
    pub(crate) fn look(
        &mut self,
        snapshot: &Snapshot,
        is_logged: impl Fn(&str, &str) -> bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for hop in &snapshot.hops {
            let name = hop.target.clone().unwrap_or_default();
            let line = match hop.hop {
                HopKind::Target if !is_logged(&hop.origin, &name) => format!(
                    "target {name}: sending to the socket that is at its path now; what the one before it has not read is its receiver's"
                ),
                HopKind::Sink => format!(
                    "sink {name}: its socket was opened anew, because an address or a route has changed"
                ),
                _ => continue,
            };
            let now = hop.event(Event::SocketRenewals);
            // One that was removed and added again counts from 0.
            let before = self.seen.insert((hop.origin.clone(), name), now).unwrap_or_default();
            if now > before {
                lines.push(line);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder};

    fn snapshot(kind: HopKind, renewals: u64) -> Snapshot {
        let hop = HopBuilder::new(kind, "in", Some("out"), Amount::default());
        let hop = hop.event(Event::SocketRenewals, renewals).finish(Amount::default());
        Snapshot { hops: vec![hop], ..Snapshot::default() }
    }

    #[test]
    fn each_is_said_once() {
        for kind in [HopKind::Target, HopKind::Sink] {
            let mut renewals = Renewals::default();
            let mut said = |count| renewals.look(&snapshot(kind, count), |_, _| false).len();
            assert_eq!([0, 1, 1, 3, 0, 1].map(&mut said), [0, 1, 0, 1, 0, 1]);
        }
        let mut renewals = Renewals::default();
        assert!(renewals.look(&snapshot(HopKind::Target, 1), |_, _| true).is_empty());
    }
}
