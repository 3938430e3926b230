//! The collector's thread: when it polls, what it does in between, and how it visits namespaces.

use crate::access::{Access, Found, Scope};
use crate::attribution::{ProcessOptions, Processes};
use crate::closing::Drained;
use crate::collector::Signal;
use crate::engine::{Engine, Moment};
use crate::filter::{Compiled, Filter, Needs};
use crate::held::Settle;
use crate::options::{Closes, Options};
use crate::poll::{POLL_INTERVALS_MAX, PutOff};
use crate::query::{Answers, Asked, Turn};
use crate::quiet::{Quiet, Visit};
use crate::scout::Scout;
use crate::unseen::{absent, hidden_namespaces, no_such_namespace};
use crate::walk::{Ask, Transport, Visitor as _, Walker};
use ledger::NamespaceError;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::clock::{boottime_ns, monotonic_ns, realtime_ns, thread_cpu_ns};
use sys::poll::{Interest, PollSet};
use sys::process::{CAP_NET_ADMIN, effective_capabilities};
use sys::socket::namespace_cookie;
use text::plural;
use wire::inet_diag::{Extensions, States};

/// Turns of taking close events before the thread ends: at least 100,000 events.
const DRAINS_AT_STOP_MAX: usize = 8;
/// Maximum time between two checks of the clock and the heartbeat.
const IDLE: Duration = Duration::from_millis(250);

/// Maximum time that a closing record waits for others, so that payloads are few and full.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// The thread: the engine, and its means of reaching the kernel.
pub(crate) struct Runner<'h> {
    pub(crate) engine: Engine<'h>,
    pub(crate) access: Box<dyn Access>,
    pub(crate) walker: Walker,
    pub(crate) found: Vec<Found>,
    /// What a poll visits: the index in `found`, and the place among the known namespaces.
    visits: Vec<(usize, u32)>,
    put_off: PutOff,
    pub(crate) options: &'h Options,
    pub(crate) signal: Arc<Signal>,
    pub(crate) answers: Answers,
    split: Compiled,
    extensions: Extensions,
    quiet: Quiet,
    poll_set: PollSet,
    jitter: u64,
}

/// Whether to continue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Stop,
}

impl<'h> Runner<'h> {
    pub(crate) fn new(
        mut engine: Engine<'h>,
        mut access: Box<dyn Access>,
        options: &'h Options,
        signal: Arc<Signal>,
    ) -> Runner<'h> {
        if options.closes == Closes::On {
            engine.closes_start(&mut *access);
        }

        engine.scout = Scout::start(&*access, options);
        let names_devices = options.filter.as_ref().is_some_and(Filter::depends_on_namespace);
        if names_devices && options.scope != Scope::Own {
            engine.problem("filter_device", || {
                "the filter names an interface, which is looked up in the daemon's own network namespace and compared by \
                 its index in all others"
                    .to_owned()
            });
        }

        let needs = options.filter.as_ref().map_or(Needs::NONE, Filter::needs);
        let held = effective_capabilities().unwrap_or_default();
        if needs.contains(Needs::MARK) && held & 1 << CAP_NET_ADMIN == 0 {
            engine.problem("filter_mark", || {
                "the filter asks for a mark, which the kernel shows to CAP_NET_ADMIN only: no socket passes what depends on it"
                    .to_owned()
            });
        }

        let split = Compiled::of(options.filter.as_ref(), options.states);
        engine.filter.adopt(&split);

        Runner {
            split,
            extensions: options.extensions(),
            quiet: Quiet::default(),
            engine,
            access,
            walker: Walker::default(),
            found: Vec::new(),
            visits: Vec::new(),
            put_off: PutOff::default(),
            options,
            signal,
            answers: Answers::default(),
            poll_set: PollSet::default(),
            jitter: monotonic_ns(),
        }
    }

    pub(crate) fn run(&mut self, asked: &Asked) {
        // The first poll is at once: people who start the daemon want to see something.
        let mut due = Instant::now();
        let mut slot = due;

        while self.wait(asked, due) == Next::GoOn {
            self.poll();
            // The schedule itself has no jitter, so polls do not drift.
            slot += self.options.interval;
            if slot <= Instant::now() {
                self.engine.counts.overruns.add(1);
                slot = Instant::now();
            }
            due = slot + self.next_jitter();
        }

        self.answers.stop();
        // What arrived before the stop; more may come for as long as connections close.
        for _ in 0..DRAINS_AT_STOP_MAX {
            if self.engine.take_closes() == Drained::Wholly {
                break;
            }
        }

        self.engine.settle(&mut *self.access, &self.found, Settle::All);
        self.engine.finish();
    }

    /// Waits until the next poll, and does what there is to do until then.
    fn wait(&mut self, asked: &Asked, due: Instant) -> Next {
        loop {
            self.engine.counts.heartbeat.add(1);
            if self.signal.is_stopping() {
                return Next::Stop;
            }

            // This delays a poll by at most one turn.
            let turn = Answers::turn(self, asked);
            self.engine.look_out_and_count();
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::GoOn;
            }

            self.poll_set.clear();
            self.poll_set.add(self.signal.wake.as_fd(), Interest::Readable);
            if let Some(events) = &self.engine.hearing.events {
                self.poll_set.add(events.as_fd(), Interest::Readable);
            }

            let scouts_at = 1 + usize::from(self.engine.hearing.events.is_some());
            let mut idle = self.engine.hearing.held.due_in().map_or(IDLE, |due| due.min(IDLE));
            if let Some(scout) = &self.engine.scout {
                scout.wait_in(&mut self.poll_set);
                idle = idle.min(scout.due_in());
            }

            let idle = match turn {
                Turn::More => Duration::ZERO,
                Turn::Wait(wait) => wait.min(idle).min(left),
            };

            // An error here is a signal: the loop checks everything again.
            let _ = self.poll_set.wait(idle);
            self.signal.wake.clear();
            // The time for cgroup lookups and for sending records that wait.
            self.engine.moment.at = Instant::now();
            if let Some(scout) = &mut self.engine.scout {
                scout.note_wait(&self.poll_set, scouts_at);
            }

            // Namespaces first: events refer to them by the ids that are learned here.
            self.engine.look_out();
            self.engine.take_closes();
            self.engine.settle(&mut *self.access, &self.found, Settle::Due);
            self.flush();
        }
    }

    /// Makes the output send the closing records that have waited long enough for others to join them.
    fn flush(&mut self) {
        let engine = &mut self.engine;
        if engine.emission.unflushed_since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER) {
            engine.emission.unflushed_since = None;
            engine.emission.output.flush();
        }
    }

    /// A random part of the configured jitter (xorshift64, Marsaglia 2003).
    fn next_jitter(&mut self) -> Duration {
        let mut x = self.jitter | 1;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.jitter = x;
        // The upper 53 bits, which a double holds exactly, as a number from 0 to just below 1.
        self.options.jitter.mul_f64((x >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// Visits every namespace once, or until the thread should end.
    fn poll(&mut self) {
        let (began_ns, cpu_ns) = (monotonic_ns(), thread_cpu_ns());
        let poll = self.engine.moment.poll + 1;
        let unix_ns = realtime_ns();
        let boot_ns = boottime_ns();
        self.engine.moment = Moment { poll, unix_ns, boot_ns, at: Instant::now(), place: 0 };

        self.extensions = self.signal.extensions();
        self.look_names_up();
        self.engine.is_keyframe = self.is_keyframe(poll);
        let states = self.states(poll);
        // For states that this poll does not request, the last count stands.
        self.engine.forget_open(states);
        self.engine.refresh_served();
        self.discover();
        self.look_for_processes();

        self.engine.sums.discovery_ns = monotonic_ns().saturating_sub(began_ns);
        if self.visit_all(states) == Next::GoOn {
            // Before absence is judged: what closed during the poll is not missing.
            self.engine.take_closes();
            self.engine.sweep(states);
            self.quiet.forget_gone(poll);
        }

        self.engine.sums.poll_ns = monotonic_ns().saturating_sub(began_ns);
        self.engine.sums.cpu_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        self.engine.finish_poll(unix_ns);
    }

    /// Resolves the filter's paths and interfaces again: a restarted service has another cgroup, and a recreated interface
    /// another index.
    fn look_names_up(&mut self) {
        if self.options.filter.as_ref().is_some_and(Filter::names_may_change) {
            self.split = Compiled::of(self.options.filter.as_ref(), self.options.states);
            self.engine.filter.adopt(&self.split);
        }
    }

    /// Finds which processes hold which sockets, if that is wanted.
    fn look_for_processes(&mut self) {
        if !self.options.processes {
            return;
        }

        let processes = Processes::scan(&ProcessOptions::default());
        let denied = processes.summary().denied;
        if denied > 0 {
            self.engine.problem("processes", || {
                let processes = plural(denied, "process", "processes");
                format!(
                    "cannot read the file descriptors of {processes}: this takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; \
                     records of their sockets name no process"
                )
            });
        }

        let poll = self.engine.moment.poll;
        self.engine.attribution.adopt(processes, poll);
    }

    /// Visits the namespaces that were found, starting with those that the last poll put off. If the thread should end or the
    /// poll takes too long, the rest is not visited, and its sockets do not count as absent.
    fn visit_all(&mut self, states: States) -> Next {
        let ends_at = Instant::now() + self.options.interval * POLL_INTERVALS_MAX;
        let is_keyframe = self.engine.is_keyframe;
        let put_off = std::mem::take(&mut self.put_off);
        let owed: HashMap<u32, usize> = put_off.places.iter().copied().zip(0..).collect();
        // A stable sort: first those put off, in that order, then the others as they were found.
        self.visits.sort_by_key(|(_, place)| owed.get(place).copied().unwrap_or(usize::MAX));

        for visit in 0..self.visits.len() {
            if self.signal.is_stopping() {
                self.engine.is_keyframe = is_keyframe;
                self.engine.sums.namespaces_put_off = (self.visits.len() - visit) as u64;
                return Next::Stop;
            }

            let (at, place) = self.visits[visit];
            let is_owed = owed.contains_key(&place);
            // At least one is visited, so that all get their turn even if every poll is late.
            if visit > 0 && Instant::now() >= ends_at {
                self.put_off = PutOff {
                    places: self.visits[visit..].iter().map(|(_, place)| *place).collect(),
                    states: states | put_off.states,
                    is_keyframe: is_keyframe || put_off.is_keyframe,
                };
                break;
            }

            // A visit that was put off includes what it would have requested then: listeners, unchanged sockets.
            self.engine.is_keyframe = is_keyframe || is_owed && put_off.is_keyframe;
            self.visit((at, place), if is_owed { states | put_off.states } else { states });
            // A namespace with few sockets has no pause of its own.
            self.engine.pause();
        }

        self.engine.is_keyframe = is_keyframe;
        self.engine.put_off(self.put_off.places.len());
        Next::GoOn
    }

    /// Whether this poll makes records of all sockets, including the unchanged ones.
    fn is_keyframe(&self, poll: u32) -> bool {
        self.options.keyframe_every.is_none_or(|every| (poll - 1).is_multiple_of(every.get()))
    }

    /// The states that this poll requests. Listening sockets are requested rarely, because they change rarely; but a keyframe has
    /// everything.
    fn states(&self, poll: u32) -> States {
        let is_keyframe = self.options.keyframe_every.is_some() && self.is_keyframe(poll);
        let listening = is_keyframe || (poll - 1).is_multiple_of(self.options.listen_every.get());
        let states = self.split.states;
        if listening { states } else { states - States::LISTENING }
    }

    fn discover(&mut self) {
        let engine = &mut self.engine;
        match self.access.discover(&self.options.scope, &mut self.found) {
            Ok(scan) => {
                if scan.unreadable_processes > 0 {
                    engine.problem("unreadable_processes", || {
                        hidden_namespaces(&*self.access, &scan)
                    });
                }
                engine.closes_retry(&mut *self.access);
            }
            Err(error) => {
                // A failed search does not show that they are gone.
                engine.namespaces.keep_all(engine.moment.poll);
                engine.counts.namespace_error(NamespaceError::Open);
                engine.problem("discovery", || {
                    format!("cannot look for network namespaces: {error}")
                });
            }
        }

        for name in absent(&self.options.scope, &self.found) {
            engine.problem("no_such_namespace", || no_such_namespace(name));
        }

        engine.take_up(&self.found, &mut self.visits);
        engine.counts.namespaces.set(self.found.len() as u64);
        engine.counts.discover_us.add(engine.since_us());
    }

    /// Walks one namespace. Failures are counted, reported once, and do not affect the others.
    fn visit(&mut self, (at, place): (usize, u32), states: States) {
        let engine = &mut self.engine;
        engine.moment.place = place;
        let began_ns = monotonic_ns();

        let opened = self.access.open(at);
        let opened_ns = monotonic_ns();
        engine.counts.open_us.add(opened_ns.saturating_sub(began_ns) / 1_000);

        let socket = match opened {
            Ok(socket) => socket,
            Err(error) => return engine.cannot_open(&error),
        };

        // The inode may belong to another namespace by now: the cookie tells.
        let cookie = namespace_cookie(socket.as_fd()).ok();
        let place = engine.namespaces.recognize(place, cookie);
        engine.moment.place = place;
        // Before the walk, so that closes after a socket was listed are heard.
        engine.learn_nsid(&mut *self.access, at, place);
        engine.stamp();

        let (transport, extensions) = (Transport::Tcp, self.extensions);
        let ask = Ask { transport, states, extensions, bytecode: &self.split.bytecode };
        let visit = Visit { at, cookie, socket: &socket, ask };
        let result = self.quiet.read(&visit, &mut *self.access, &mut self.walker, engine);

        // Closed at once: a netlink socket keeps its namespace alive.
        drop(socket);

        let spent_ns = monotonic_ns().saturating_sub(opened_ns);
        // After an error, this is what the walk took until then.
        let walked = *result.as_ref().unwrap_or(&self.walker.last());
        engine.walked(place, (spent_ns, walked), result.map(drop));

        engine.settle(&mut *self.access, &self.found, Settle::Due);
    }
}
