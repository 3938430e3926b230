//! Searches for namespaces between polls, so that connections in new ones are heard from the beginning.
//!
//! The kernel delivers close events of a namespace only once it has an id here, and the next poll may be far off. There are two
//! hints of a new namespace: a change of mounts (`ip netns`, container engines), and an id that was assigned elsewhere, for
//! example by the kernel for a container behind a veth pair. A namespace that only processes are in is found by a search once per
//! second.

use crate::access::{Access, Found, Scope};
use crate::closing::Events;
use crate::engine::Engine;
use crate::missed::Missed;
use crate::namespaces::{Admission, Known};
use crate::options::{Closes, Options};
use crate::unheard::Newcomer;
use crate::walk::Walker;
use ledger::NamespaceError;
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use sys::Errno;
use sys::namespace::{IdChange, IdChanges, MountChanges, Nsids, Target};
use sys::poll::{Interest, PollSet};

/// Maximum time between two searches.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time until the next search after a failed one: this, or [`RETRY_FACTOR`] times its duration if that is longer. A helper that
/// hangs takes seconds.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_FACTOR: u32 = 20;
/// After a search, the scout rests for this many times the search's duration, however often the mounts change, but no longer than
/// [`REST`] or that duration, whichever is longer.
const REST_FACTOR: u32 = 4;
const REST: Duration = Duration::from_millis(20);
/// Time between two checks for changes during a walk: one takes a microsecond.
const LISTEN_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum number of ids remembered for which a search found no namespace.
const STRANGERS_MAX: usize = 4_096;

/// Searches for namespaces. It has its own access, so the indices of a poll's discovery stay valid.
pub(crate) struct Scout {
    pub(crate) access: Box<dyn Access>,
    /// The results of its last search.
    pub(crate) found: Vec<Found>,
    mounts: Option<MountChanges>,
    ids: Option<IdChanges>,
    missed: Missed,
    /// When to search if nothing calls for it.
    due: Instant,
    /// When to search at the earliest if something does.
    rested: Instant,
    listened: Instant,
    /// Something indicated that there may be a new namespace.
    called: Option<Call>,
    /// Whether changes of ids wait to be read.
    has_ids: bool,
    /// Whether an id was assigned that may be the own namespace's.
    may_be_own: bool,
    /// No ids are assigned before this time, because the last attempt was refused.
    gives_from: Instant,
    /// Whether close events of other namespaces are heard at all.
    hears_all: bool,
    /// Ids seen in events for which no search found a namespace.
    strangers: HashSet<i32>,
    pub(crate) newcomers: Vec<Newcomer>,
    pub(crate) walker: Walker,
}

/// What called for a search.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Call {
    /// Something was mounted.
    Mounts,
    /// An id was assigned, or the time is up: any process may be in a new namespace.
    Anything,
}

impl Scout {
    /// Starts watching, if there is anything to watch for.
    pub(crate) fn start(access: &dyn Access, options: &Options) -> Option<Scout> {
        if options.scope == Scope::Own || options.closes == Closes::Off {
            return None;
        }

        let now = Instant::now();
        Some(Scout {
            access: access.second()?,
            found: Vec::new(),
            // Without either, there is still the search once per second.
            mounts: MountChanges::open().ok(),
            ids: IdChanges::open().ok(),
            missed: Missed::new(),
            due: now,
            rested: now,
            listened: now,
            called: Some(Call::Anything),
            has_ids: false,
            may_be_own: true,
            gives_from: now,
            hears_all: false,
            strangers: HashSet::new(),
            newcomers: Vec::new(),
            walker: Walker::default(),
        })
    }

    /// Adds the descriptors that wake it.
    pub(crate) fn wait_in(&self, set: &mut PollSet) {
        if let Some(mounts) = &self.mounts {
            set.add(mounts.as_fd(), Interest::Priority);
        }
        if let Some(ids) = &self.ids {
            set.add(ids.as_fd(), Interest::Readable);
        }
    }

    /// Processes the result of a wait for what [`Self::wait_in`] added from index `first` on. A change of mounts is reported only
    /// once.
    pub(crate) fn note_wait(&mut self, set: &PollSet, first: usize) {
        let ids_at = first + usize::from(self.mounts.is_some());
        if self.mounts.is_some() && set.is_ready(first) {
            self.called = self.called.max(Some(Call::Mounts));
        }
        self.has_ids |= self.ids.is_some() && set.is_ready(ids_at);
    }

    /// Time until there is something to do. Zero when it is due.
    pub(crate) fn due_in(&self) -> Duration {
        let look = if self.called.is_some() { self.rested.min(self.due) } else { self.due };
        let due = self.newcomers.iter().map(|newcomer| newcomer.due).fold(look, Instant::min);
        due.saturating_duration_since(Instant::now())
    }

    /// Checks whether anything has changed.
    fn listen(&mut self, engine: &mut Engine<'_>) {
        let now = Instant::now();
        if now.duration_since(self.listened) >= LISTEN_INTERVAL {
            self.listened = now;
            let mut set = PollSet::default();
            self.wait_in(&mut set);
            // An error here is a signal: the next turn checks again.
            let _ = set.wait(Duration::ZERO);
            self.note_wait(&set, 0);
        }

        if self.has_ids {
            self.read_ids(engine);
        }
    }

    fn read_ids(&mut self, engine: &mut Engine<'_>) {
        self.has_ids = false;
        let Some(ids) = &mut self.ids else { return };

        ids.drain(|change| match change {
            IdChange::Given(id) => {
                engine.namespaces.given(id);
                // The id belongs to another namespace now, which is worth a search.
                self.strangers.remove(&id);
                // The ids that we assigned are known.
                let is_new = engine.namespaces.by_nsid(id).is_none();
                if is_new {
                    self.called = Some(Call::Anything);
                    self.may_be_own = true;
                }
            }
            IdChange::Ended(id) => {
                engine.namespaces.end(id);
                self.strangers.remove(&id);
            }
            // The next poll recognizes an inode that was reused.
            IdChange::Lost => self.called = Some(Call::Anything),
        });
    }

    /// Searches, and makes sure that new namespaces are heard.
    fn look(&mut self, engine: &mut Engine<'_>, call: Call) {
        let began = Instant::now();
        self.called = None;
        if call == Call::Anything {
            self.due = began + LOOK_INTERVAL;
        }

        // Namespaces get ids so that their events are heard. If events of other namespaces cannot be heard, there is nothing to
        // do.
        if !self.hears_all {
            return;
        }

        // Before the search: an inode found after the end of its namespace belongs to a new one.
        self.read_ids(engine);
        for _ in 0..self.missed.count(&engine.options.scope) {
            engine.vanished();
        }

        let (scope, found) = (&engine.options.scope, &mut self.found);
        let looked = match call {
            Call::Mounts => self.access.discover_mounted(scope, found),
            Call::Anything => self.access.discover(scope, found),
        };

        if looked.is_err() {
            // The next poll reports the reason.
            self.due = Instant::now() + RETRY_INTERVAL.max(began.elapsed() * RETRY_FACTOR);
            self.rested = self.due;
            return;
        }

        for at in 0..self.found.len() {
            self.welcome(engine, at, call);
        }
        self.missed.note(&self.found);
        engine.namespaces.end_first_look();

        if std::mem::take(&mut self.may_be_own) {
            learn_own(engine);
        }

        let took = began.elapsed();
        self.rested = began + took + (took * REST_FACTOR).min(took.max(REST));
    }

    /// Makes sure that the closes of a namespace are heard from now on.
    fn welcome(&mut self, engine: &mut Engine<'_>, at: usize, call: Call) {
        let Some(found) = self.found.get(at) else { return };
        let poll = engine.moment.poll;
        let known = engine.namespaces.note_known(found, poll);
        if call == Call::Mounts && found.name.is_none() && known.is_none() {
            // Only a process led there, and it may be gone with its namespace since the search that examined it.
            return;
        }

        let place = match known.map_or_else(|| engine.admit(found), Admission::Known) {
            Admission::Known(place) | Admission::New(place) => place,
            Admission::LeftOut => return,
        };

        let is_heard = |known: &Known| known.is_own || known.nsid.is_some();
        if engine.namespaces.get(place).is_none_or(is_heard) || Instant::now() < self.gives_from {
            return;
        }

        match self.access.nsid(at) {
            Ok(nsid) => {
                // If there was no connection so far, none was missed, and that is quickly found.
                if engine.namespaces.set_nsid(place, nsid)
                    && self.access.tcp_counts(at).map(|counts| counts.opened) != Ok(0)
                {
                    self.newcomers.push(Newcomer::new(place, found.id));
                }
            }
            // A process that has left it may lead there for a few more searches: count it once.
            Err(Errno::NOENT) if known.is_none() => engine.vanished(),
            Err(Errno::NOENT) => {}
            // It may not be opened, which the polls report.
            Err(Errno::ACCES) => {}
            Err(errno) => {
                engine.has_no_nsid(errno);
                // The others will not get one either.
                self.gives_from = Instant::now() + RETRY_INTERVAL;
            }
        }
    }

    /// Makes it search at the next turn: a poll has found a namespace that it does not know.
    pub(crate) fn call(&mut self) {
        self.called = Some(Call::Anything);
    }
}

/// The own namespace may have been assigned an id within itself. On older kernels its events carry that id; Linux 6.18 omits it.
fn learn_own(engine: &mut Engine<'_>) {
    let Ok(own) = File::open("/proc/thread-self/ns/net") else { return };
    let Ok(mut nsids) = Nsids::open() else { return };
    if let Ok(Some(nsid)) = nsids.lookup(Target::Open(own.as_fd())) {
        engine.namespaces.set_own_nsid(nsid);
    }
}

impl Engine<'_> {
    /// Searches for new namespaces and makes their closes heard, if something indicates that there may be one or a second has
    /// passed. Also called between two datagrams of a walk.
    pub(crate) fn look_out(&mut self) {
        let Some(mut scout) = self.scout.take() else { return };
        scout.hears_all = self.hearing.events.as_ref().is_some_and(Events::hears_all);
        scout.listen(self);
        let now = Instant::now();
        let due = Some(Call::Anything).filter(|_| now >= scout.due);
        let called = scout.called.filter(|_| now >= scout.rested);
        // `Anything` is the greater one, and includes the mounts.
        if let Some(call) = due.max(called) {
            scout.look(self, call);
        }
        self.scout = Some(scout);
    }

    /// As [`Self::look_out`], but also counts what could not be heard. Not for use during a walk: it takes close events.
    pub(crate) fn look_out_and_count(&mut self) {
        self.look_out();
        let now = Instant::now();
        let mut place = 0;

        while let Some(scout) = &mut self.scout
            && let Some(newcomer) = scout.newcomers.get(place)
        {
            if newcomer.due > now {
                place += 1;
                continue;
            }

            let newcomer = scout.newcomers.swap_remove(place);
            self.count_unheard(newcomer);
            // A count takes a walk, and others may have come meanwhile.
            self.look_out();
        }
    }

    /// The place of the namespace behind an unknown id in an event: the id was assigned elsewhere.
    pub(crate) fn place_of_stranger(&mut self, nsid: i32) -> Option<u32> {
        let mut scout = self.scout.take()?;
        if scout.strangers.len() < STRANGERS_MAX && scout.strangers.insert(nsid) {
            scout.look(self, Call::Anything);
        }
        self.scout = Some(scout);
        self.namespaces.by_nsid(nsid)
    }

    /// Records a namespace that was found, if it is one of those to collect.
    pub(crate) fn admit(&mut self, found: &Found) -> Admission {
        let admission = self.namespaces.admit(found, self.moment.poll);
        if let Admission::New(_) = admission {
            self.sums.namespaces_new += 1;
            self.counts.namespaces_new.add(1);
        }
        admission
    }

    /// Records the namespaces that a poll's discovery found, and returns which to visit: their indices in `found` and their
    /// places here.
    pub(crate) fn take_up(&mut self, found: &[Found], visits: &mut Vec<(usize, u32)>) {
        let poll = self.moment.poll;
        visits.clear();

        self.namespaces.note_all(found, poll);
        for (at, one) in found.iter().enumerate() {
            if let Admission::Known(place) | Admission::New(place) = self.admit(one) {
                visits.push((at, place));
            }
        }

        self.namespaces.end_first_look();
        let left_out = found.len() - visits.len();
        self.sums.namespaces_left_out = left_out as u64;
        self.counts.namespaces_left_out.set(left_out as u64);

        if left_out > 0 {
            let (found, max) = (found.len(), self.options.namespaces_max);
            self.problem("namespaces_max", || {
                format!(
                    "there are {found} network namespaces, and namespaces_max is {max}: {left_out} are neither visited nor \
                     heard. Fix: set namespaces_max = {} to collect them",
                    found.next_power_of_two()
                )
            });
        }
    }

    /// Counts a namespace that ended between being found and being entered or assigned an id.
    pub(crate) fn vanished(&mut self) {
        self.sums.namespaces_vanished += 1;
        self.counts.namespace_error(NamespaceError::Gone);
    }

    /// Counts a namespace that cannot be assigned an id, so that its closes are not heard.
    pub(crate) fn has_no_nsid(&mut self, errno: Errno) {
        self.counts.namespace_error(NamespaceError::NoId);
        self.problem("nsid", || {
            format!(
                "a network namespace cannot be given an id ({errno}): this takes CAP_NET_ADMIN; its connections \
                 that close between two polls are missing"
            )
        });
    }
}
