//! How a thread drives its targets, of whatever kind.

use crate::TargetKind;
use crate::gate::Gate;
use ledger::Reason;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;
use sys::clock::monotonic_ns;
use sys::poll::{Interest, PollSet};

/// Time between two checks of what changes without datagrams: error queues, ages, deadlines.
pub(crate) const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two tries of a target that waits for something that no descriptor reports, such as an answer from another thread.
const UNWATCHED_INTERVAL: Duration = Duration::from_millis(10);

/// Claims that a target may process before others get their turn.
pub(crate) const CLAIMS_MAX: usize = 8;

/// The same when the socket probably has more: what waits there has less room than the ring.
pub(crate) const CLAIMS_MAX_UNDER_LOAD: usize = 2;

/// A target, as its thread sees it.
pub(crate) trait Pump: Send {
    fn name(&self) -> &str;
    /// Sends what is in the ring, from at most `claims_max` claims.
    fn pump(&mut self, now_ns: u64, claims_max: usize) -> Pumped;
    /// The descriptor to wait for after [`Pumped::Blocked`].
    fn blocked_on(&self) -> Option<BorrowedFd<'_>>;
    /// The readiness to wait for.
    fn blocked_until(&self) -> Interest {
        Interest::Writable
    }
    /// What it wakes for even with nothing to send: something may arrive or be due.
    fn attends(&self) -> Option<Attends<'_>> {
        None
    }
    /// Counts what came back, and sets the gauges.
    fn keep_house(&mut self, now_ns: u64);
    /// Whether everything published has been handled.
    fn is_idle(&self) -> bool;
    /// Number of the next datagram that will enter the ring.
    fn head(&self) -> u64;
    /// Whether everything below `end` has been handled.
    fn has_reached(&self, end: u64) -> bool;
    /// Whether datagrams that were handed over may still come back.
    fn has_outstanding(&mut self) -> bool;
    /// Nothing more will enter the ring.
    fn begin_drain(&mut self, _now_ns: u64) {}
    /// Stops waiting: counts what was handed over and cannot get through.
    fn give_up_outstanding(&mut self) {}
    /// Counts everything up to `end` that is left in the ring as dropped for this reason.
    fn discard_until(&mut self, end: u64, reason: Reason);
    /// Sends to another destination from the next datagram on. With another gate, also takes other datagrams.
    fn replace(&mut self, destination: TargetKind, gate: Option<Gate>) -> Replaced;
    /// Takes nothing from this number on.
    fn stop_at(&mut self, end: u64);
    /// Leaves the ring. May be called again. What was handed over may still come back.
    fn leave(&mut self);
}

/// What a target waits for in addition to the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attends<'a> {
    /// Readable when something has arrived. `None` while no socket is open.
    pub(crate) socket: Option<BorrowedFd<'a>>,
    /// When the target next has to act without outside input, on the monotonic clock.
    pub(crate) due_ns: u64,
}

/// Result of a call to [`Pump::pump`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pumped {
    /// Nothing is left in the ring for this target.
    Idle,
    /// There is more to send; others may go first.
    More,
    /// The outlet takes nothing now: wait until it is writable.
    Blocked,
}

/// Whether a target accepted its new destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replaced {
    Yes,
    /// A file target stays a file, a sink a sink, and a socket target a socket.
    No,
}

/// Requests from other threads to the thread that owns targets.
pub(crate) enum Command {
    Add(Box<dyn Pump>),
    Replace {
        target: String,
        change: Box<Change>,
        done: Sender<Replaced>,
    },
    /// `end` is the first datagram that is no longer for the target; `None` means the next one.
    Remove {
        target: String,
        end: Option<u64>,
        deadline_ns: u64,
        done: Sender<()>,
    },
}

/// The new settings of a target.
pub(crate) struct Change {
    pub(crate) destination: TargetKind,
    /// `None` when it takes the same datagrams as before.
    pub(crate) gate: Option<Gate>,
}

/// The targets of one thread.
#[derive(Default)]
pub(crate) struct Targets {
    entries: Vec<Entry>,
    housekeeping_due_ns: u64,
}

struct Entry {
    target: Box<dyn Pump>,
    is_blocked: bool,
    leaving: Option<Leaving>,
}

impl Entry {
    /// Whether a leaving target is done, or out of time.
    fn may_go(&mut self, now_ns: u64) -> bool {
        let Some(leaving) = &self.leaving else { return false };
        if now_ns >= leaving.deadline_ns {
            self.target.discard_until(leaving.end, Reason::TargetRemoved);
            return true;
        }
        self.target.has_reached(leaving.end) && !self.target.has_outstanding()
    }

    fn go(mut self, now_ns: u64) {
        self.target.give_up_outstanding();
        self.target.keep_house(now_ns);
        self.target.leave();
        if let Some(leaving) = self.leaving {
            // The caller may have gone.
            let _ = leaving.done.send(());
        }
    }
}

struct Leaving {
    end: u64,
    deadline_ns: u64,
    done: Sender<()>,
}

impl Targets {
    pub(crate) fn add(&mut self, target: Box<dyn Pump>) {
        self.entries.push(Entry { target, is_blocked: false, leaving: None });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn apply(&mut self, command: Command) {
        match command {
            Command::Add(target) => self.add(target),
            Command::Replace { target, change, done } => {
                let entry = self.entry(&target);
                // The caller may have gone.
                let _ = done.send(entry.map_or(Replaced::No, |entry| {
                    entry.is_blocked = false;
                    entry.target.replace(change.destination, change.gate)
                }));
            }
            Command::Remove { target, end, deadline_ns, done } => {
                // Without such a target `done` is dropped here, which ends the caller's wait.
                if let Some(entry) = self.entry(&target) {
                    let end = end.unwrap_or_else(|| entry.target.head());
                    entry.target.stop_at(end);
                    entry.leaving = Some(Leaving { end, deadline_ns, done });
                    // A target that has nothing left goes with the next pump.
                    self.housekeeping_due_ns = 0;
                }
            }
        }
    }

    /// The newest target with this name: an older one may still be leaving.
    fn entry(&mut self, name: &str) -> Option<&mut Entry> {
        let mut named = self.entries.iter_mut().rev().filter(|entry| entry.target.name() == name);
        named.find(|entry| entry.leaving.is_none())
    }

    /// Sends what can be sent now, from at most `claims_max` claims per target. Returns whether there is more that is not
    /// blocked.
    pub(crate) fn pump(&mut self, now_ns: u64, claims_max: usize) -> bool {
        let mut has_more = false;
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_blocked) {
            match entry.target.pump(now_ns, claims_max) {
                Pumped::Idle => {}
                Pumped::More => has_more = true,
                Pumped::Blocked => entry.is_blocked = true,
            }

            if let Some(leaving) = &entry.leaving
                && entry.target.has_reached(leaving.end)
            {
                // At once: from here on the ring would take datagrams from it that it was not offered.
                entry.target.leave();
            }
        }

        if now_ns >= self.housekeeping_due_ns {
            self.housekeeping_due_ns = now_ns + HOUSEKEEPING_INTERVAL.as_nanos() as u64;
            // Blocked targets are tried again after this, before the thread waits: nothing would wake it for them.
            has_more |= self.has_blocked();
            self.keep_house(now_ns);
        }

        has_more
    }

    fn keep_house(&mut self, now_ns: u64) {
        for entry in &mut self.entries {
            // An outlet that never reports that it is writable again is retried here.
            entry.is_blocked = false;
            entry.target.keep_house(now_ns);
        }

        let mut index = 0;
        while index < self.entries.len() {
            match self.entries[index].may_go(now_ns) {
                false => index += 1,
                true => self.entries.swap_remove(index).go(now_ns),
            }
        }
    }

    /// Adds the descriptors that blocked targets wait for.
    pub(crate) fn watch(&self, set: &mut PollSet) {
        for entry in self.entries.iter().filter(|entry| entry.is_blocked) {
            if let Some(fd) = entry.target.blocked_on() {
                set.add(fd, entry.target.blocked_until());
            }
        }
        // After those: the next pump checks them, whatever woke the thread.
        for attends in self.entries.iter().filter_map(|entry| entry.target.attends()) {
            if let Some(socket) = attends.socket {
                set.add(socket, Interest::Readable);
            }
        }
    }

    /// Whether a target wakes for more than the ring.
    pub(crate) fn attend(&self) -> bool {
        self.entries.iter().any(|entry| entry.target.attends().is_some())
    }

    /// Maximum time to wait for descriptors: short while a target waits for something that no descriptor reports.
    pub(crate) fn patience(&self) -> Duration {
        let is_unwatched = |entry: &Entry| entry.is_blocked && entry.target.blocked_on().is_none();
        let patience = match self.entries.iter().any(is_unwatched) {
            true => UNWATCHED_INTERVAL,
            false => HOUSEKEEPING_INTERVAL,
        };
        let due = self.entries.iter().filter_map(|entry| entry.target.attends());
        match due.map(|attends| attends.due_ns).min() {
            Some(due_ns) => {
                let rest_ns = due_ns.saturating_sub(monotonic_ns());
                patience.min(Duration::from_nanos(rest_ns))
            }
            None => patience,
        }
    }

    /// Unblocks the targets whose descriptor is ready, and those without one: a try costs those an atomic load. The targets'
    /// descriptors begin at `first` in the set, in the order in which [`watch`](Self::watch) added them.
    pub(crate) fn unblock_ready(&mut self, set: &PollSet, first: usize) {
        let mut index = first;
        for entry in self.entries.iter_mut().filter(|entry| entry.is_blocked) {
            let is_watched = entry.target.blocked_on().is_some();
            entry.is_blocked = is_watched && !set.is_ready(index);
            index += usize::from(is_watched);
        }
    }

    /// Unblocks the targets that can continue, without waiting. For a loop that never sleeps because another target always has
    /// work.
    pub(crate) fn revive(&mut self, set: &mut PollSet) {
        set.clear();
        self.watch(set);
        // An interrupted check is repeated soon.
        if set.wait(Duration::ZERO).is_ok() {
            self.unblock_ready(set, 0);
        }
    }

    pub(crate) fn has_blocked(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_blocked)
    }

    pub(crate) fn are_all_blocked(&self) -> bool {
        self.entries.iter().all(|entry| entry.is_blocked)
    }

    /// Whether a target that is not blocked has something to send.
    pub(crate) fn has_work(&self) -> bool {
        self.entries.iter().any(|entry| !entry.is_blocked && !entry.target.is_idle())
    }

    /// Sends the rest until everything has left or the deadline has passed. Counts what is left then as `shutdown`.
    ///
    /// Call it once nothing enters the ring any more. The deadline may be moved meanwhile.
    pub(crate) fn drain(&mut self, deadline_ns: &AtomicU64, mut tick: impl FnMut()) {
        let mut set = PollSet::default();
        self.entries.iter_mut().for_each(|entry| entry.target.begin_drain(monotonic_ns()));

        loop {
            tick();
            let now_ns = monotonic_ns();
            let deadline_ns = deadline_ns.load(Ordering::Acquire);
            if now_ns >= deadline_ns {
                break;
            }

            if self.pump(now_ns, CLAIMS_MAX) {
                if self.has_blocked() {
                    self.revive(&mut set);
                }
                continue;
            }

            // Being idle is not enough: what was handed over may still come back and must be counted.
            let is_done =
                |entry: &mut Entry| entry.target.is_idle() && !entry.target.has_outstanding();
            if self.entries.iter_mut().all(is_done) {
                break;
            }

            let rest = Duration::from_nanos(deadline_ns - now_ns);
            set.clear();
            self.watch(&mut set);
            // An interrupted wait is just a short one.
            let _ = set.wait(rest.min(HOUSEKEEPING_INTERVAL / 10).min(self.patience()));
            self.unblock_ready(&set, 0);
        }

        self.discard_rest(monotonic_ns());
    }

    /// Counts what is left in the ring as `shutdown`, and drops all targets.
    pub(crate) fn discard_rest(&mut self, now_ns: u64) {
        for mut entry in self.entries.drain(..) {
            entry.target.discard_until(u64::MAX, Reason::Shutdown);
            if entry.leaving.is_some() {
                entry.go(now_ns);
            } else {
                entry.target.give_up_outstanding();
                entry.target.keep_house(now_ns);
            }
        }
    }
}
