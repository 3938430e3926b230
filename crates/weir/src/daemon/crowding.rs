//! `sockets = "auto"`: adds a socket where datagrams are lost because the existing sockets' threads cannot read fast enough,
//! and a processor is idle for one more thread.

use super::{Daemon, Running};
use ledger::{HopKind, Reason, Snapshot};
use relay::{ReadingTime, SocketOwner};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use sys::clock::process_cpu_ns;
use sys::cpus::{CpuList, processor_time};
use sys::process::cpu_count;
use text::grouped;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A thread that runs or waits for a processor for at least this percentage of the time never rests. Drops while a thread rests
/// come from bursts that overflow the buffer, and one more socket would not prevent them.
const BUSY_PERCENT: u64 = 85;
/// The idle time needed, in percent of one processor. With less, one more thread would only take time from the others.
const ROOM_PERCENT: u64 = 50;
/// Time between two log lines that say why a listener gets no further socket.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// State of the last look.
#[derive(Default)]
pub(super) struct Crowding {
    due: Option<Instant>,
    processors: Option<Processors>,
    seen: BTreeMap<String, Seen>,
    /// When we last logged that no processor is idle for a listener.
    said: BTreeMap<String, Instant>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    at: Instant,
    dropped: u64,
    times: Vec<ReadingTime>,
}

/// A second in which reading was the bottleneck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Crowded {
    dropped: u64,
    /// Share of the time that the least busy thread ran, in percent.
    ran_percent: u64,
    waited_percent: u64,
}

impl fmt::Display for Crowded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crowded { dropped, ran_percent, waited_percent } = self;
        write!(
            f,
            "the kernel dropped {} datagrams in the last second while each socket's thread ran {ran_percent} % of the time and waited \
             {waited_percent} % for a processor",
            grouped(*dropped)
        )
    }
}

impl Seen {
    fn of(one: &Running, snapshot: &Snapshot, at: Instant) -> Seen {
        let hop = snapshot.hop(HopKind::Socket, one.listener.name(), None);
        let dropped = hop.map_or(0, |hop| hop.dropped_for(Reason::SocketBuffer).count);
        Seen { at, dropped, times: one.listener.reading_times() }
    }

    /// Drops since `then`, and the least busy thread's times; `None` if a thread rested or nothing was dropped.
    fn crowded_since(&self, then: &Seen) -> Option<Crowded> {
        let dropped = self.dropped.checked_sub(then.dropped).filter(|count| *count > 0)?;
        if self.times.len() != then.times.len() {
            return None;
        }
        let elapsed_ns = nanoseconds(then.at, self.at);
        let percent = |now: u64, then: u64| now.saturating_sub(then) * 100 / elapsed_ns;
        let threads = self.times.iter().zip(&then.times).map(|(now, then)| {
            (percent(now.ran_ns, then.ran_ns), percent(now.waited_ns, then.waited_ns))
        });

        let (ran, waited) = threads.min_by_key(|(ran, waited)| ran + waited)?;
        (ran + waited >= BUSY_PERCENT).then_some(Crowded {
            dropped,
            ran_percent: ran.min(100),
            waited_percent: waited.min(100),
        })
    }
}

/// Processor time used and left, up to some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Processors {
    at: Instant,
    /// Time the processors were idle or ran low-priority work.
    idle_ns: u64,
    /// Processor time of this process.
    used_ns: u64,
}

impl Processors {
    fn look(at: Instant) -> Option<Processors> {
        let time = processor_time(&CpuList::of_this_thread().ok()?).ok()?;
        let idle_ns = time.idle_ns + time.low_priority_ns;
        Some(Processors { at, idle_ns, used_ns: process_cpu_ns() })
    }

    /// The time that one more thread could have had since `then`, in percent of one processor: the idle time, limited
    /// to the unused part of this process's quota of `processors`.
    fn room_since(&self, then: &Processors, processors: usize) -> u64 {
        let elapsed_ns = nanoseconds(then.at, self.at);
        let idle_percent = self.idle_ns.saturating_sub(then.idle_ns) * 100 / elapsed_ns;
        let used_percent = self.used_ns.saturating_sub(then.used_ns) * 100 / elapsed_ns;
        idle_percent.min((processors as u64 * 100).saturating_sub(used_percent))
    }
}

/// Nanoseconds from one moment to another; at least 1.
fn nanoseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.duration_since(from).as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl Daemon {
    /// Gives a crowded listener one more socket, and logs why.
    pub(super) fn add_sockets(&mut self, now: Instant) {
        if self.crowding.due.is_some_and(|due| now < due) {
            return;
        }
        self.crowding.due = Some(now + INTERVAL);

        // A service manager's socket cannot be joined by others.
        let may_grow = |one: &Running| {
            one.owner() == SocketOwner::Relay
                && one.listener.socket_count() < one.config.sockets_max()
        };
        if !self.running.iter().any(may_grow) {
            self.crowding.seen.clear();
            self.crowding.processors = None;
            return;
        }

        let processors = Processors::look(now);
        let before = std::mem::replace(&mut self.crowding.processors, processors);
        let room_percent = match (processors, before) {
            (Some(processors), Some(before)) => processors.room_since(&before, cpu_count()),
            _ => 0,
        };

        let snapshot = self.ledger.snapshot();
        let mut running = std::mem::take(&mut self.running);
        for one in running.iter_mut().filter(|one| may_grow(one)) {
            let seen = Seen::of(one, &snapshot, now);
            let then = self.crowding.seen.insert(one.config.name.clone(), seen.clone());
            let Some(crowded) = then.and_then(|then| seen.crowded_since(&then)) else {
                continue;
            };
            if room_percent < ROOM_PERCENT {
                self.crowding.say_no(&one.config.name, crowded, room_percent, now);
                continue;
            }

            let count = one.listener.socket_count();
            match one.set_sockets(count + 1, &mut || self.keep_alive(&[])) {
                Ok(()) => tracing::info!(
                    "listener {}: {} sockets now, because reading was the bottleneck: {crowded}",
                    one.config.name,
                    count + 1,
                ),
                Err(error) => tracing::warn!("{error:#}"),
            }
        }
        self.running = running;
    }
}

impl Crowding {
    fn say_no(&mut self, listener: &str, crowded: Crowded, room_percent: u64, now: Instant) {
        if self.said.get(listener).is_some_and(|said| now < *said + SAY_AGAIN) {
            return;
        }
        self.said.insert(listener.to_owned(), now);
        tracing::warn!(
            "listener {listener}: reading is the bottleneck, but no socket is added, because its thread would find no idle processor \
             ({room_percent} % of one was left): {crowded}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: Instant, dropped: u64, times_ms: &[(u64, u64)]) -> Seen {
        let of = |&(ran, waited): &(u64, u64)| ReadingTime {
            ran_ns: ran * 1_000_000,
            waited_ns: waited * 1_000_000,
        };
        Seen { at, dropped, times: times_ms.iter().map(of).collect() }
    }

    #[test]
    fn only_threads_that_never_rest_and_lose_are_crowded() {
        let then = seen(Instant::now(), 10, &[(100, 0), (100, 0)]);
        let later = then.at + Duration::from_secs(1);
        let since = |dropped, times: &[(u64, u64)]| {
            let crowded = seen(later, dropped, times).crowded_since(&then)?;
            Some((crowded.dropped, crowded.ran_percent, crowded.waited_percent))
        };
        assert_eq!(since(15, &[(1_050, 0), (1_000, 0)]), Some((5, 90, 0)));
        assert_eq!(since(15, &[(1_050, 0), (200, 800)]), Some((5, 10, 80)), "one is starved");
        assert_eq!(since(10, &[(1_050, 0), (1_000, 0)]), None, "nothing was lost");
        assert_eq!(since(15, &[(1_050, 0), (800, 100)]), None, "one has time");
        assert_eq!(since(15, &[(1_050, 0)]), None, "another number of sockets");
    }

    #[test]
    fn room_is_what_is_idle_and_within_the_quota() {
        let then = Processors { at: Instant::now(), idle_ns: 7, used_ns: 9 };
        let later = |idle_ms: u64, used_ms: u64| {
            let at = then.at + Duration::from_secs(1);
            let (idle_ns, used_ns) = (7 + idle_ms * 1_000_000, 9 + used_ms * 1_000_000);
            Processors { at, idle_ns, used_ns }.room_since(&then, 2)
        };
        assert_eq!(later(700, 1_000), 70);
        assert_eq!(later(3_000, 1_600), 40, "a quota of two processors");
        assert_eq!(later(3_000, 2_500), 0);
        assert_eq!(later(0, 1_000), 0);
    }
}
