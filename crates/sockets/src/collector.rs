//! The collector: one thread that polls every namespace, hears every close in between, and answers questions.

use crate::access::{Access, Direct, Found, Scope};
use crate::attribution::{Host, ProcessOptions, Processes};
use crate::closing::Drained;
use crate::engine::{Engine, Moment};
use crate::filter::{Filter, Needs};
use crate::held::Settle;
use crate::identity::{Identity, run_id};
use crate::meter::Counts;
use crate::options::{Closes, Options};
use crate::output::Output;
use crate::poll::{POLL_INTERVALS_MAX, PutOff};
use crate::query::{Answer, Answers, QueryError, Question, Turn, WAITING_MAX};
use crate::quiet::{Quiet, Visit};
use crate::scout::Scout;
use crate::split::Split;
use crate::walk::{Ask, Visitor as _, Walker};
use ledger::Meter;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};
use sys::clock::{boottime_ns, monotonic_ns, realtime_ns, thread_cpu_ns};
use sys::poll::{EventFd, Interest, PollSet};
use sys::process::{CAP_NET_ADMIN, CAP_SYS_PTRACE, effective_capabilities};
use sys::socket::namespace_cookie;
use wire::inet_diag::{Extensions, States};

/// A running collector. Dropped without [`stop`](Self::stop), its thread ends after what it is doing.
pub struct Collector {
    questions: Questions,
    counts: Arc<Counts>,
    thread: JoinHandle<Box<dyn Output>>,
    /// Behind the thread's handle: whoever drops all of it leaves the thread, told to end.
    ends: Ends,
}

/// What others tell the thread.
pub(crate) struct Signal {
    wake: EventFd,
    is_stopping: AtomicBool,
}

impl Signal {
    pub(crate) fn new() -> io::Result<Signal> {
        Ok(Signal { wake: EventFd::new()?, is_stopping: AtomicBool::new(false) })
    }

    /// Whether the thread is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Has the thread look at everything.
    pub(crate) fn wake(&self) {
        self.wake.wake();
    }
}

/// Has the thread end when it is dropped.
struct Ends(Arc<Signal>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
        self.0.wake.wake();
    }
}

/// Makes the collector's access, on the thread that will use it.
pub type MakeAccess = Box<dyn FnOnce() -> Box<dyn Access> + Send>;

impl Collector {
    /// Starts to collect by the rights of this process.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(options: Options, host: Host, output: Box<dyn Output>) -> io::Result<Collector> {
        Collector::start_with(options, host, output, Box::new(|| Box::new(Direct::new())))
    }

    /// Starts to collect through another access, such as the helper's.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start_with(
        options: Options,
        host: Host,
        output: Box<dyn Output>,
        access: MakeAccess,
    ) -> io::Result<Collector> {
        let counts = Arc::new(Counts::new(&options.name));
        let signal = Arc::new(Signal::new()?);
        let (asked, receiver) = mpsc::sync_channel(WAITING_MAX);
        let (thread_counts, thread_signal) = (Arc::clone(&counts), Arc::clone(&signal));
        let thread = thread::Builder::new().name(options.name.clone()).spawn(move || {
            let tags: Vec<_> = host.tags().collect();
            let identity = Identity { host: &host, tags: &tags, run_id: run_id() };
            let engine = Engine::new(&options, identity, thread_counts, output);
            let mut runner = Runner::new(engine, access(), &options, thread_signal);
            runner.run(&receiver);
            runner.engine.emission.output
        })?;
        let ends = Ends(Arc::clone(&signal));
        Ok(Collector { questions: Questions { asked, signal }, counts, thread, ends })
    }

    /// What the ledger reads.
    pub fn meter(&self) -> Arc<dyn Meter> {
        Arc::clone(&self.counts) as Arc<dyn Meter>
    }

    /// Grows while the thread is alive: at least four times a second between polls, and during polls with each datagram.
    pub fn heartbeat(&self) -> u64 {
        self.counts.heartbeat.load()
    }

    /// As [`Questions::ask`], with the whole answer in memory.
    ///
    /// # Errors
    /// The collector did not answer in time, or is stopping.
    pub fn query(
        &self,
        filter: Option<Filter>,
        limit: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>, QueryError> {
        self.questions.ask(filter, limit, timeout).and_then(Answer::whole)
    }

    /// A handle for asking from other threads.
    pub fn questions(&self) -> Questions {
        self.questions.clone()
    }

    /// Ends the thread after the namespace that it is reading, and returns its output. Close events that have arrived
    /// until then become records, and a last totals record tells of what happened since the one before.
    ///
    /// # Errors
    /// The thread panicked, which it has said on standard error; its output is lost.
    pub fn stop(self) -> Result<Box<dyn Output>, Panicked> {
        drop(self.ends);
        self.thread.join().map_err(|_| Panicked)
    }
}

/// The collector's thread panicked: a defect of Weir.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the collector's thread has panicked")
    }
}

impl std::error::Error for Panicked {}

/// Asks a collector from any thread.
#[derive(Clone)]
pub struct Questions {
    asked: SyncSender<Question>,
    signal: Arc<Signal>,
}

impl Questions {
    /// Walks the namespaces now, and returns the sockets that pass as JSON, `limit` of them at most; for people and scripts, not
    /// for records. What is found does not count as a poll.
    ///
    /// One question is answered at a time, and one a second at most; this one waits `timeout` for its turn. The answer comes
    /// while it is made, within some ten seconds, in memory that is bounded whatever its size ([`crate::ANSWER_BYTES_MAX`]).
    ///
    /// # Errors
    /// Too many wait already; the turn did not come in time; the collector has stopped.
    pub fn ask(
        &self,
        filter: Option<Filter>,
        limit: usize,
        timeout: Duration,
    ) -> Result<Answer, QueryError> {
        let (answer, receiver) = mpsc::channel();
        let deadline = Instant::now() + timeout;
        let sent = self.asked.try_send(Question { filter, limit, deadline, answer });
        sent.map_err(|error| match error {
            TrySendError::Full(_) => QueryError::Busy,
            TrySendError::Disconnected(_) => QueryError::Stopped,
        })?;
        self.signal.wake();
        match receiver.recv_timeout(timeout) {
            Ok(answer) => Ok(answer),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(QueryError::Timeout),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(QueryError::Stopped),
        }
    }
}

/// Turns of taking close events before the thread ends: 100,000 events and more.
const DRAINS_AT_STOP_MAX: usize = 8;
/// Longest time between two looks at the clock and the heartbeat.
const IDLE: Duration = Duration::from_millis(250);

/// Longest time that a closing record waits for others, so that few and full payloads are made of them.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// The thread: the engine, and what it needs to reach the kernel.
pub(crate) struct Runner<'h> {
    pub(crate) engine: Engine<'h>,
    pub(crate) access: Box<dyn Access>,
    pub(crate) walker: Walker,
    pub(crate) found: Vec<Found>,
    /// What a poll visits: the place in `found`, and among the namespaces that are known.
    visits: Vec<(usize, u32)>,
    put_off: PutOff,
    pub(crate) options: &'h Options,
    pub(crate) signal: Arc<Signal>,
    pub(crate) answers: Answers,
    split: Split,
    extensions: Extensions,
    quiet: Quiet,
    poll_set: PollSet,
    jitter: u64,
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Stop,
}

impl<'h> Runner<'h> {
    fn new(
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
                "the filter asks for a mark, which the kernel tells to CAP_NET_ADMIN only: no socket passes what depends on it"
                    .to_owned()
            });
        }
        let split = Split::new(options.filter.as_ref(), options.states);
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

    fn run(&mut self, asked: &Receiver<Question>) {
        // The first poll is at once: whoever starts the daemon wants to see something.
        let mut due = Instant::now();
        let mut slot = due;
        while self.wait(asked, due) == Next::GoOn {
            self.poll();
            slot += self.options.interval;
            if slot <= Instant::now() {
                self.engine.counts.overruns.add(1);
                slot = Instant::now();
            }
            due = slot + self.next_jitter();
        }
        self.answers.stop();
        // What had come before the stop; more may come for as long as connections close.
        for _ in 0..DRAINS_AT_STOP_MAX {
            if self.engine.take_closes() == Drained::Wholly {
                break;
            }
        }
        self.engine.settle(&mut *self.access, &self.found, Settle::All);
        self.engine.finish();
    }

    /// Waits until the next poll, and does what there is to do until then.
    fn wait(&mut self, asked: &Receiver<Question>, due: Instant) -> Next {
        loop {
            self.engine.counts.heartbeat.add(1);
            if self.signal.is_stopping() {
                return Next::Stop;
            }
            // A poll is late by one turn of this at most.
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
            // An error here is a signal: the loop looks at everything again.
            let _ = self.poll_set.wait(idle);
            self.signal.wake.clear();
            self.engine.moment.at = Instant::now();
            if let Some(scout) = &mut self.engine.scout {
                scout.note_wait(&self.poll_set, scouts_at);
            }
            self.engine.look_out();
            self.engine.take_closes();
            self.engine.settle(&mut *self.access, &self.found, Settle::Due);
            self.flush();
        }
    }

    /// Has the output send closing records on their way that have waited long enough for others to join them.
    fn flush(&mut self) {
        let engine = &mut self.engine;
        if engine.emission.unflushed_since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER) {
            engine.emission.unflushed_since = None;
            engine.emission.output.flush();
        }
    }

    /// A part of the configured jitter, another one each time (xorshift64, Marsaglia 2003).
    fn next_jitter(&mut self) -> Duration {
        let mut x = self.jitter | 1;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.jitter = x;
        self.options.jitter.mul_f64((x >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// Visits every namespace once, or until the thread is to end.
    fn poll(&mut self) {
        let (began_ns, cpu_ns) = (monotonic_ns(), thread_cpu_ns());
        let poll = self.engine.moment.poll + 1;
        let unix_ns = realtime_ns();
        let boot_ns = boottime_ns();
        self.engine.moment = Moment { poll, unix_ns, boot_ns, at: Instant::now(), place: 0 };
        self.look_names_up();
        self.engine.is_keyframe = self.is_keyframe(poll);
        let states = self.states(poll);
        self.engine.forget_open(states);
        self.discover();
        self.look_for_processes();
        self.engine.sums.discovery_ns = monotonic_ns().saturating_sub(began_ns);
        if self.visit_all(states) == Next::GoOn {
            // Before what is absent is judged.
            self.engine.take_closes();
            self.engine.sweep(states);
            self.quiet.forget_gone(poll);
        }
        self.engine.sums.poll_ns = monotonic_ns().saturating_sub(began_ns);
        self.engine.sums.cpu_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        self.engine.finish_poll(unix_ns);
    }

    /// Has the filter's paths and interfaces stand for what they are now: a service that begins again has another cgroup, an
    /// interface that is made anew another index.
    fn look_names_up(&mut self) {
        if self.options.filter.as_ref().is_some_and(Filter::names_may_change) {
            self.split = Split::new(self.options.filter.as_ref(), self.options.states);
            self.engine.filter.adopt(&self.split);
        }
    }

    /// Finds out which processes hold which sockets, if that is wanted.
    fn look_for_processes(&mut self) {
        if !self.options.processes {
            return;
        }
        let processes = Processes::scan(&ProcessOptions::default());
        let denied = processes.summary().denied;
        if denied > 0 {
            self.engine.problem("processes", || {
                format!(
                    "the descriptors of {denied} processes cannot be seen: this takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; \
                     records of their sockets name no process"
                )
            });
        }
        self.engine.attribution.processes = Some(processes);
    }

    /// Visits the namespaces that were found, first those that the last poll put off. When the thread is to end, or the poll takes
    /// too long, those that are left are not visited, and their sockets not absent.
    fn visit_all(&mut self, states: States) -> Next {
        let ends_at = Instant::now() + self.options.interval * POLL_INTERVALS_MAX;
        let is_keyframe = self.engine.is_keyframe;
        let put_off = std::mem::take(&mut self.put_off);
        let owed: HashMap<u32, usize> = put_off.places.iter().copied().zip(0..).collect();
        self.visits.sort_by_key(|(_, place)| owed.get(place).copied().unwrap_or(usize::MAX));
        for visit in 0..self.visits.len() {
            if self.signal.is_stopping() {
                return Next::Stop;
            }
            let (at, place) = self.visits[visit];
            let is_owed = owed.contains_key(&place);
            if visit > 0 && Instant::now() >= ends_at {
                self.put_off = PutOff {
                    places: self.visits[visit..].iter().map(|(_, place)| *place).collect(),
                    states: states | put_off.states,
                    is_keyframe: is_keyframe || put_off.is_keyframe,
                };
                break;
            }
            self.engine.is_keyframe = is_keyframe || is_owed && put_off.is_keyframe;
            self.visit((at, place), if is_owed { states | put_off.states } else { states });
            // A namespace of few sockets has no pause of its own.
            self.engine.pause();
        }
        self.engine.is_keyframe = is_keyframe;
        self.engine.put_off(self.put_off.places.len());
        Next::GoOn
    }

    /// Whether this poll makes records of all sockets, the unchanged ones included.
    fn is_keyframe(&self, poll: u32) -> bool {
        self.options.keyframe_every.is_none_or(|every| (poll - 1).is_multiple_of(every.get()))
    }

    /// The states that this poll asks for. Listening sockets are asked for rarely, since they change rarely; but a keyframe
    /// has everything.
    fn states(&self, poll: u32) -> States {
        let is_keyframe = self.options.keyframe_every.is_some() && self.is_keyframe(poll);
        let listening = is_keyframe || (poll - 1).is_multiple_of(self.options.listen_every.get());
        let states = self.split.states;
        if listening { states } else { states - States::LISTENING }
    }

    fn discover(&mut self) {
        let is_direct = self.access.is_direct();
        let engine = &mut self.engine;
        match self.access.discover(&self.options.scope, &mut self.found) {
            Ok(scan) => {
                if scan.unreadable_processes > 0 {
                    engine.problem("unreadable_processes", || {
                        // A process that may do more than we cannot be looked into by CAP_SYS_PTRACE alone
                        // (kernel/ptrace.c, __ptrace_may_access).
                        let held = effective_capabilities().unwrap_or_default();
                        let is_lacking = is_direct && held & 1 << CAP_SYS_PTRACE == 0;
                        let lacking = if is_lacking { " without CAP_SYS_PTRACE" } else { "" };
                        let (count, noun) = match scan.unreadable_processes {
                            1 => (1, "process"),
                            count => (count, "processes"),
                        };
                        format!(
                            "the network namespaces of {count} {noun} cannot be seen{lacking}; sockets in namespaces of theirs \
                             alone are missing"
                        )
                    });
                }
                engine.closes_retry(&mut *self.access);
            }
            Err(error) => {
                // Nobody has seen that they are gone.
                engine.namespaces.keep_all(engine.moment.poll);
                engine.counts.namespace_error("open");
                engine.problem("discovery", || {
                    format!("cannot look for network namespaces: {error}")
                });
            }
        }
        if let Scope::Named(names) = &self.options.scope {
            for name in names {
                if !self.found.iter().any(|found| found.name.as_ref() == Some(name)) {
                    engine.problem("no_such_namespace", || {
                        format!("there is no network namespace {} at the moment; `ip netns` lists those with names", name.escape_debug())
                    });
                }
            }
        }
        engine.take_up(&self.found, &mut self.visits);
        engine.counts.namespaces.set(self.found.len() as u64);
        engine.counts.discover_us.add(engine.since_us());
    }

    /// Walks one namespace. What goes wrong with it is counted, told once, and of no consequence for the others.
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
        let cookie = namespace_cookie(socket.as_fd()).ok();
        let place = engine.namespaces.recognise(place, cookie);
        engine.moment.place = place;
        engine.learn_nsid(&mut *self.access, at, place);
        engine.stamp();
        let ask = Ask { states, extensions: self.extensions, bytecode: &self.split.bytecode };
        let visit = Visit { at, cookie, socket: &socket, ask };
        let result = self.quiet.read(&visit, &mut *self.access, &mut self.walker, engine);
        // Closed at once: a netlink socket keeps its namespace alive.
        drop(socket);
        let spent_ns = monotonic_ns().saturating_sub(opened_ns);
        // An error leaves what the walk took until then.
        let walked = *result.as_ref().unwrap_or(&self.walker.last());
        engine.walked(place, (spent_ns, walked), result.map(drop));
        engine.settle(&mut *self.access, &self.found, Settle::Due);
    }
}
