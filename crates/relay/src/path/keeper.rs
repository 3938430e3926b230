//! The thread that queries the kernel and listens to its events.

use super::{Inbox, New, State, lock};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use sys::poll::{Interest, PollSet};
use sys::receiver::{Receivers, ReceivingSocket};
use sys::route::{Change, Egress, Ends, Neighbour, NextHop, Routes, Watch};

/// Time between a change of routes, addresses, devices or queues and the queries that it causes: changes come in dozens.
const ASK_DELAY: Duration = Duration::from_millis(100);

/// The kernel drops what waited for a neighbor just before it reports the failure. After a drop was seen, the report gets this
/// long to arrive.
const TELL_DELAY: Duration = Duration::from_millis(2);

/// Time between two queries for the drops of receivers on this host.
const RECEIVERS_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum sleep: dropped paths are forgotten then.
const SLEEP_MAX: Duration = Duration::from_secs(10);

pub(super) struct Keeper {
    inbox: Arc<Inbox>,
    watch: Watch,
    routes: Routes,
    /// `None` when this host has no sock_diag.
    receivers: Option<Receivers>,
    receivers_due: Instant,
    known: Vec<Known>,
    /// When to query all paths again.
    ask_at: Option<Instant>,
}

/// A path, and its state at the last query.
struct Known {
    state: Weak<State>,
    ends: Ends,
    next_hop: Option<NextHop>,
    /// The receiver's socket, as last seen.
    receiver: Option<ReceivingSocket>,
}

impl Keeper {
    pub(super) fn open(inbox: Arc<Inbox>) -> io::Result<Keeper> {
        // The watch first, so that changes after a query are not missed.
        let watch = Watch::open()?;
        Ok(Keeper {
            inbox,
            watch,
            routes: Routes::open()?,
            receivers: Receivers::open().ok(),
            receivers_due: Instant::now(),
            known: Vec::new(),
            ask_at: None,
        })
    }

    pub(super) fn run(mut self) {
        let mut set = PollSet::default();
        loop {
            set.clear();
            set.add(self.watch.as_fd(), Interest::Readable);
            set.add(self.inbox.event.as_fd(), Interest::Readable);
            // An interrupted wait is just a short one.
            let _ = set.wait(self.sleep());
            self.inbox.event.clear();

            self.known.retain(|known| known.state.strong_count() > 0);
            // Before lookups are answered: one may be about a new path.
            self.take_new();
            if self.inbox.is_closed.load(Ordering::Acquire) && self.known.is_empty() {
                return;
            }
            self.hear();
            self.answer_looks();
            if self.ask_at.is_some_and(|at| at <= Instant::now()) {
                self.ask_at = None;
                // First: the queries may wait for the kernel's tables.
                self.inbox.changes.fetch_add(1, Ordering::Relaxed);
                self.ask_again();
            }
            self.ask_receivers();
        }
    }

    fn sleep(&self) -> Duration {
        let now = Instant::now();
        let is_local = |known: &Known| known.state.upgrade().is_some_and(|state| state.is_local());
        let has_receivers = self.receivers.is_some() && self.known.iter().any(is_local);
        let due = [self.ask_at, has_receivers.then_some(self.receivers_due)];
        let due = due.into_iter().flatten().min();
        due.map_or(SLEEP_MAX, |due| due.saturating_duration_since(now)).min(SLEEP_MAX)
    }

    /// Queries the drops of receivers on this host, at intervals and when a caller waits for them.
    fn ask_receivers(&mut self) {
        let waiting = std::mem::take(&mut *lock(&self.inbox.waiting));
        if waiting.is_empty() && Instant::now() < self.receivers_due {
            return;
        }

        self.receivers_due = Instant::now() + RECEIVERS_INTERVAL;
        if let Some(receivers) = &mut self.receivers {
            self.known.iter_mut().for_each(|known| known.ask_receiver(receivers));
        }

        // A waiting caller may have gone.
        for done in waiting {
            let _ = done.send(());
        }
    }

    /// Processes what the kernel has reported.
    fn hear(&mut self) {
        let mut is_lost = false;
        let mut are_routes_changed = false;
        let known = &self.known;

        self.watch.drain(|change| match change {
            Change::Neighbour(hop, neighbour) => {
                for state in states_of(known, hop) {
                    if neighbour == Neighbour::Failed {
                        state.note_failure();
                    }
                    state.note_neighbour(neighbour);
                }
            }
            Change::Forgotten(hop) => {
                for state in states_of(known, hop) {
                    // What waited was dropped with the entry. Nothing waits for a known neighbor.
                    if state.neighbour() != Neighbour::Known {
                        state.note_failure();
                    }
                    state.note_neighbour(Neighbour::Unknown);
                }
            }
            Change::Routes => are_routes_changed = true,
            Change::Lost => is_lost = true,
        });

        if are_routes_changed || is_lost {
            self.ask_at.get_or_insert_with(|| Instant::now() + ASK_DELAY);
        }

        // Neighbor changes may be among the lost events, so query each one.
        if is_lost {
            for known in &self.known {
                ask_neighbour(&mut self.routes, known);
            }
        }
    }

    /// Looks up the next hop of those paths that requested it.
    fn answer_looks(&mut self) {
        let asked = |known: &Known| {
            let state = known.state.upgrade()?;
            let number = state.asked.load(Ordering::Acquire);
            (state.answered.load(Ordering::Relaxed) < number).then_some(number)
        };

        let numbers: Vec<_> = self.known.iter().map(asked).collect();
        if numbers.iter().all(Option::is_none) {
            return;
        }

        // A lookup is requested because something is gone; the report that explains it may still be on its way.
        thread::sleep(TELL_DELAY);
        self.hear();

        for (known, number) in self.known.iter().zip(numbers) {
            let (Some(number), Some(state)) = (number, known.state.upgrade()) else { continue };
            // Events report the other two states. The start of a resolution is not reported.
            if matches!(state.neighbour(), Neighbour::Unknown | Neighbour::Awaited) {
                ask_neighbour(&mut self.routes, known);
            }
            state.answer(number);
        }
    }

    fn take_new(&mut self) {
        let new = std::mem::take(&mut *lock(&self.inbox.new));

        for New { state, ends, .. } in &new {
            // The query about queues waits for a lock. This one does not, and it matters early whether a target is on this host.
            if let (Ok(route), Some(state)) = (self.routes.route(ends), state.upgrade()) {
                state.note_route(&route);
            }
        }

        for New { state, ends, answer } in new {
            let mut known = Known { state, ends, next_hop: None, receiver: None };
            let egress = self.routes.egress(&ends);
            known.note(egress.as_ref().ok());
            ask_neighbour(&mut self.routes, &known);

            if let Some(receivers) = &mut self.receivers {
                // What the socket dropped before was not ours.
                known.receiver = known.find_receiver(receivers);
                known.ask_receiver(receivers);
            }

            self.known.push(known);
            // The caller does not wait for a late answer.
            let _ = answer.send(egress);
        }
    }

    fn ask_again(&mut self) {
        for known in &mut self.known {
            let before = known.next_hop;
            match self.routes.egress(&known.ends) {
                Ok(egress) => known.note(Some(&egress)),
                // A route that is gone for a moment changes nothing here: the send calls report it.
                Err(_) => continue,
            }

            if known.next_hop != before {
                ask_neighbour(&mut self.routes, known);
            }
        }
    }
}

impl Known {
    fn note(&mut self, egress: Option<&Egress>) {
        let (Some(egress), Some(state)) = (egress, self.state.upgrade()) else { return };
        self.next_hop = egress.next_hop;
        state.note_egress(egress);
    }
}

impl Known {
    fn find_receiver(&self, receivers: &mut Receivers) -> Option<ReceivingSocket> {
        let state = self.state.upgrade()?;
        let from = self.ends.src?;
        if !state.is_local() {
            return None;
        }
        receivers.find(from, self.ends.dst).ok().flatten()
    }

    /// Counts the drops at the receiver's socket since the last query. A new socket counts from its opening.
    fn ask_receiver(&mut self, receivers: &mut Receivers) {
        let (Some(now), Some(state)) = (self.find_receiver(receivers), self.state.upgrade()) else {
            return;
        };
        let before = self.receiver.filter(|before| before.cookie == now.cookie);
        let before = before.map_or(0, |before| before.dropped_datagrams);
        state.note_receiver(now.dropped_datagrams.wrapping_sub(before));
        self.receiver = Some(now);
    }
}

fn states_of(known: &[Known], hop: NextHop) -> impl Iterator<Item = Arc<State>> {
    let goes_there = move |known: &&Known| known.next_hop == Some(hop);
    known.iter().filter(goes_there).filter_map(|known| known.state.upgrade())
}

fn ask_neighbour(routes: &mut Routes, known: &Known) {
    let (Some(hop), Some(state)) = (&known.next_hop, known.state.upgrade()) else { return };
    // Without an answer the previous state stands: kernels before 5.0 do not answer for a single neighbor.
    if let Ok(neighbour) = routes.neighbour(hop) {
        state.note_neighbour(neighbour);
    }
}
