//! The collector: one thread that polls every namespace, hears every close in between, and answers questions.

use crate::access::{Access, Direct, Found, Scope};
use crate::attribution::Host;
use crate::engine::{Engine, Identity, Moment};
use crate::filter::Filter;
use crate::held::Settle;
use crate::meter::{Counts, STATES};
use crate::options::{Closes, Options};
use crate::output::Output;
use crate::query::{self, QueryError};
use crate::split::Split;
use crate::walk::{Ask, Walker};
use ledger::Meter;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};
use sys::clock::{monotonic_ns, realtime_ns, thread_cpu_ns};
use sys::poll::{EventFd, Interest, PollSet};
use sys::socket::namespace_cookie;
use wire::inet_diag::{Extensions, States};

/// A running collector. Dropped without [`stop`](Self::stop), its thread ends after what it is doing.
pub struct Collector {
    commands: Sender<Command>,
    wake: Arc<EventFd>,
    counts: Arc<Counts>,
    thread: JoinHandle<Box<dyn Output>>,
}

pub(crate) enum Command {
    Query { filter: Option<Box<Filter>>, limit: usize, answer: Sender<Result<Vec<u8>, QueryError>> },
    Stop,
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
        let wake = Arc::new(EventFd::new()?);
        let (commands, receiver) = mpsc::channel();
        let (thread_counts, thread_wake) = (Arc::clone(&counts), Arc::clone(&wake));
        let thread = thread::Builder::new().name(options.name.clone()).spawn(move || {
            let tags: Vec<_> = host.tags().collect();
            let identity = Identity { host: &host, tags: &tags };
            let engine = Engine::new(&options, identity, thread_counts, output);
            let mut runner = Runner::new(engine, access(), &options);
            runner.run(&receiver, &thread_wake);
            runner.engine.output
        })?;
        Ok(Collector { commands, wake, counts, thread })
    }

    /// What the ledger reads.
    pub fn meter(&self) -> Arc<dyn Meter> {
        Arc::clone(&self.counts) as Arc<dyn Meter>
    }

    /// Grows while the thread is alive: at least four times a second between polls, and during polls with each datagram.
    pub fn heartbeat(&self) -> u64 {
        self.counts.heartbeat.load()
    }

    /// Walks the namespaces now, and returns the sockets that pass as JSON; for people and scripts, not for records. What
    /// is found does not count as a poll.
    ///
    /// # Errors
    /// The collector did not answer in time, or is stopping.
    pub fn query(
        &self,
        filter: Option<Filter>,
        limit: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>, QueryError> {
        self.questions().ask(filter, limit, timeout)
    }

    /// A handle for asking from other threads.
    pub fn questions(&self) -> Questions {
        Questions { commands: self.commands.clone(), wake: Arc::clone(&self.wake) }
    }

    /// Ends the thread after the datagram that it is reading, and returns its output. Close events that have arrived
    /// until then become records.
    ///
    /// # Errors
    /// The thread panicked, which it has said on standard error; its output is lost.
    pub fn stop(self) -> Result<Box<dyn Output>, Panicked> {
        // A thread that has ended by itself has no receiver any more.
        let _ = self.commands.send(Command::Stop);
        self.wake.wake();
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
    commands: Sender<Command>,
    wake: Arc<EventFd>,
}

impl Questions {
    /// See [`Collector::query`].
    ///
    /// # Errors
    /// The collector did not answer in time, or has stopped.
    pub fn ask(
        &self,
        filter: Option<Filter>,
        limit: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>, QueryError> {
        let (answer, receiver) = mpsc::channel();
        let filter = filter.map(Box::new);
        let sent = self.commands.send(Command::Query { filter, limit, answer });
        sent.map_err(|_| QueryError::Stopped)?;
        self.wake.wake();
        match receiver.recv_timeout(timeout) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Timeout) => Err(QueryError::Timeout),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(QueryError::Stopped),
        }
    }
}

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
    pub(crate) options: &'h Options,
    split: Split,
    extensions: Extensions,
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
    ) -> Runner<'h> {
        if options.closes == Closes::On {
            engine.closes_start(&mut *access);
        }
        let names_devices = options.filter.as_ref().is_some_and(Filter::depends_on_namespace);
        if names_devices && options.scope != Scope::Own {
            engine.problem("filter_device", || {
                "the filter names an interface, which is looked up in the daemon's own network namespace and compared by \
                 its index in all others"
                    .to_owned()
            });
        }
        let split = Split::new(options.filter.as_ref(), options.states);
        engine.rest.clone_from(&split.rest);
        Runner {
            split,
            extensions: options.extensions(),
            engine,
            access,
            walker: Walker::default(),
            found: Vec::new(),
            options,
            poll_set: PollSet::default(),
            jitter: monotonic_ns(),
        }
    }

    fn run(&mut self, commands: &Receiver<Command>, wake: &EventFd) {
        // The first poll is at once: whoever starts the daemon wants to see something.
        let mut due = Instant::now();
        let mut slot = due;
        loop {
            if self.wait(commands, wake, due) == Next::Stop {
                break;
            }
            let began = Instant::now();
            if began >= due {
                self.poll();
                slot += self.options.interval;
                if slot <= Instant::now() {
                    self.engine.counts.overruns.add(1);
                    slot = Instant::now();
                }
                due = slot + self.next_jitter();
            }
        }
        self.engine.take_closes();
        self.engine.settle(&mut *self.access, &self.found, Settle::All);
    }

    /// Waits until the next poll, and does what there is to do until then.
    fn wait(&mut self, commands: &Receiver<Command>, wake: &EventFd, due: Instant) -> Next {
        loop {
            self.engine.counts.heartbeat.add(1);
            loop {
                match commands.try_recv() {
                    Ok(Command::Query { filter, limit, answer }) => {
                        let result = query::answer(self, filter.as_deref(), limit);
                        // Whoever asked may have gone.
                        let _ = answer.send(result);
                    }
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return Next::Stop,
                    Err(TryRecvError::Empty) => break,
                }
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::GoOn;
            }
            self.poll_set.clear();
            self.poll_set.add(wake.as_fd(), Interest::Readable);
            if let Some(events) = &self.engine.events {
                self.poll_set.add(events.as_fd(), Interest::Readable);
            }
            // An error here is a signal: the loop looks at everything again.
            let idle = self.engine.held.due_in().map_or(IDLE, |due| due.min(IDLE));
            let _ = self.poll_set.wait(left.min(idle));
            wake.clear();
            self.engine.moment.at = Instant::now();
            self.engine.take_closes();
            self.engine.settle(&mut *self.access, &self.found, Settle::Due);
            self.flush();
        }
    }

    /// Has the output send closing records on their way that have waited long enough for others to join them.
    fn flush(&mut self) {
        let engine = &mut self.engine;
        if engine.unflushed_since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER) {
            engine.unflushed_since = None;
            engine.output.flush();
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

    /// Visits every namespace once.
    fn poll(&mut self) {
        let (began_ns, cpu_ns) = (monotonic_ns(), thread_cpu_ns());
        let poll = self.engine.moment.poll + 1;
        let unix_ns = realtime_ns();
        self.engine.moment = Moment { poll, unix_ns, at: Instant::now(), place: 0 };
        self.engine.open = [[0; STATES]; 2];
        self.discover();
        self.engine.sums.discovery_ns = monotonic_ns().saturating_sub(began_ns);
        let listening = (poll - 1).is_multiple_of(self.options.listen_every.get());
        let states = self.states(listening);
        for at in 0..self.found.len() {
            self.visit(at, states);
        }
        self.engine.take_closes();
        self.engine.sweep(states);
        self.engine.sums.poll_ns = monotonic_ns().saturating_sub(began_ns);
        self.engine.sums.cpu_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        self.engine.finish_poll(unix_ns);
    }

    /// The states that this poll asks for. Listening sockets are asked for rarely: they change rarely.
    fn states(&self, listening: bool) -> States {
        let states = self.split.states;
        if listening { states } else { states - States::LISTENING }
    }

    fn discover(&mut self) {
        let engine = &mut self.engine;
        match self.access.discover(&self.options.scope, &mut self.found) {
            Ok(scan) => {
                if scan.unreadable_processes > 0 {
                    engine.problem("unreadable_processes", || {
                        format!(
                            "the network namespaces of {} processes cannot be seen without CAP_SYS_PTRACE; sockets in \
                             namespaces of theirs alone are missing",
                            scan.unreadable_processes
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
                        format!("there is no network namespace {name} at the moment; `ip netns` lists those with names")
                    });
                }
            }
        }
        engine.counts.namespaces.set(self.found.len() as u64);
        engine.counts.discover_us.add(engine.since_us());
    }

    /// Walks one namespace. What goes wrong with it is counted, told once, and of no consequence for the others.
    fn visit(&mut self, at: usize, states: States) {
        let Some(found) = self.found.get(at) else { return };
        let engine = &mut self.engine;
        let place = engine.namespaces.note(found, engine.moment.poll);
        engine.moment.place = place;
        let began_ns = monotonic_ns();
        let opened = self.access.open(at);
        let opened_ns = monotonic_ns();
        engine.counts.open_us.add(opened_ns.saturating_sub(began_ns) / 1_000);
        let socket = match opened {
            Ok(socket) => socket,
            Err(error) => return engine.cannot_open(&error),
        };
        let place = engine.namespaces.recognise(place, namespace_cookie(socket.as_fd()).ok());
        engine.moment.place = place;
        engine.learn_nsid(&mut *self.access, at, place);
        engine.moment.unix_ns = realtime_ns();
        let ask = Ask { states, extensions: self.extensions, bytecode: &self.split.bytecode };
        let result = self.walker.walk(&socket, &ask, engine);
        // Closed at once: a netlink socket keeps its namespace alive.
        drop(socket);
        let spent_ns = monotonic_ns().saturating_sub(opened_ns);
        engine.walked(place, spent_ns, result);
        engine.settle(&mut *self.access, &self.found, Settle::Due);
    }
}
