//! `sockets = "auto"`: one more socket where the reading of those that are there is what datagrams are lost by.

use super::{Daemon, Running};
use ledger::{HopKind, Reason, Snapshot};
use relay::SocketOwner;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use text::grouped;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// From this part of a processor on, in percent, a thread has no time left. What the kernel drops while it has is due to
/// bursts that no buffer held, which one more socket would not change.
const BUSY_PERCENT: u64 = 85;

/// What was seen at the last look.
#[derive(Default)]
pub(super) struct Crowding {
    due: Option<Instant>,
    seen: BTreeMap<String, Seen>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    at: Instant,
    dropped: u64,
    cpu_ns: Vec<u64>,
}

impl Seen {
    fn of(one: &Running, snapshot: &Snapshot, at: Instant) -> Seen {
        let hop = snapshot.hop(HopKind::Socket, one.listener.name(), None);
        let dropped = hop.map_or(0, |hop| hop.dropped_for(Reason::SocketBuffer).count);
        Seen { at, dropped, cpu_ns: one.listener.reading_cpu_ns() }
    }

    /// What was dropped since then, and the percentage of a processor that the least busy thread used; `None` where a thread had
    /// time left, or nothing was dropped.
    fn crowded_since(&self, then: &Seen) -> Option<(u64, u64)> {
        let dropped = self.dropped.checked_sub(then.dropped).filter(|count| *count > 0)?;
        if self.cpu_ns.len() != then.cpu_ns.len() {
            return None;
        }
        let elapsed_ns = u64::try_from(self.at.duration_since(then.at).as_nanos()).ok()?.max(1);
        let threads = self.cpu_ns.iter().zip(&then.cpu_ns);
        let percent = threads.map(|(now, then)| now.saturating_sub(*then) * 100 / elapsed_ns);
        let percent = percent.min()?;
        (percent >= BUSY_PERCENT).then_some((dropped, percent.min(100)))
    }
}

impl Daemon {
    /// Gives a crowded listener one more socket, and says why.
    pub(super) fn add_sockets(&mut self, now: Instant) {
        if self.crowding.due.is_some_and(|due| now < due) {
            return;
        }
        self.crowding.due = Some(now + INTERVAL);

        // A service manager's socket stays alone.
        let may_grow = |one: &Running| {
            one.owner() == SocketOwner::Relay
                && one.listener.socket_count() < one.config.sockets_max()
        };
        if !self.running.iter().any(may_grow) {
            self.crowding.seen.clear();
            return;
        }

        let snapshot = self.ledger.snapshot();
        let mut running = std::mem::take(&mut self.running);
        for one in running.iter_mut().filter(|one| may_grow(one)) {
            let seen = Seen::of(one, &snapshot, now);
            let then = self.crowding.seen.insert(one.config.name.clone(), seen.clone());
            let Some((dropped, percent)) = then.and_then(|then| seen.crowded_since(&then)) else {
                continue;
            };

            let count = one.listener.socket_count();
            match one.set_sockets(count + 1, &mut || self.keep_alive(&[])) {
                Ok(()) => tracing::info!(
                    "listener {}: {} sockets now, because reading was the bottleneck: the kernel dropped {} datagrams in the last \
                     second while reading took {percent} % of a processor for each socket",
                    one.config.name,
                    count + 1,
                    grouped(dropped),
                ),
                Err(error) => tracing::warn!("{error:#}"),
            }
        }
        self.running = running;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: Instant, dropped: u64, cpu_ms: &[u64]) -> Seen {
        Seen { at, dropped, cpu_ns: cpu_ms.iter().map(|ms| ms * 1_000_000).collect() }
    }

    #[test]
    fn only_busy_threads_that_lose_are_crowded() {
        let then = seen(Instant::now(), 10, &[100, 100]);
        let later = then.at + Duration::from_secs(1);
        let since = |dropped, cpu_ms: &[u64]| seen(later, dropped, cpu_ms).crowded_since(&then);
        assert_eq!(since(15, &[1_050, 1_000]), Some((5, 90)));
        assert_eq!(since(10, &[1_050, 1_000]), None, "nothing was lost");
        assert_eq!(since(15, &[1_050, 900]), None, "one has time");
        assert_eq!(since(15, &[1_050]), None, "another number of sockets");
    }
}
