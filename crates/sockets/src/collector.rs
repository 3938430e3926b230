//! The collector: one thread that polls every namespace, hears every close in between, and answers questions.

use crate::access::{Access, Direct};
use crate::attribution::Host;
use crate::engine::Engine;
use crate::filter::Filter;
use crate::identity::{Identity, run_id};
use crate::meter::Counts;
use crate::options::Options;
use crate::output::Output;
use crate::query::{Answer, QueryError, Question, WAITING_MAX};
use crate::runner::Runner;
use ledger::Meter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};
use sys::poll::EventFd;
use wire::inet_diag::Extensions;

/// A running collector. Dropped without [`stop`](Self::stop), its thread ends after what it is doing.
pub struct Collector {
    questions: Questions,
    counts: Arc<Counts>,
    thread: JoinHandle<Box<dyn Output>>,
    /// Dropped last: a collector that is not stopped detaches its thread, and then signals it to end.
    ends: Ends,
}

/// What other threads say to this one.
pub(crate) struct Signal {
    pub(crate) wake: EventFd,
    is_stopping: AtomicBool,
    /// What the next poll asks the kernel for.
    extensions: AtomicU8,
}

impl Signal {
    pub(crate) fn new(extensions: Extensions) -> io::Result<Signal> {
        Ok(Signal {
            wake: EventFd::new()?,
            is_stopping: AtomicBool::new(false),
            extensions: AtomicU8::new(extensions.bits()),
        })
    }

    /// What the kernel is asked for.
    pub(crate) fn extensions(&self) -> Extensions {
        Extensions::from_bits(self.extensions.load(Ordering::Relaxed))
    }

    /// Whether the thread is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Makes the thread look at everything.
    pub(crate) fn wake(&self) {
        self.wake.wake();
    }
}

/// Ends the thread when it is dropped.
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
        let signal = Arc::new(Signal::new(options.extensions())?);
        // Bounded: a question that finds no room is refused as busy.
        let (asked, receiver) = mpsc::sync_channel(WAITING_MAX);
        let (thread_counts, thread_signal) = (Arc::clone(&counts), Arc::clone(&signal));

        let thread = thread::Builder::new().name(options.name.clone()).spawn(move || {
            let tags: Vec<_> = host.tags().collect();
            let identity = Identity { host: &host, tags: &tags, run_id: run_id() };
            let engine = Engine::new(&options, identity, thread_counts, output);
            // The access is made on this thread, with which it enters namespaces.
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

    /// Asks the kernel for what the fields of these options are made of, from the next poll on. Nothing else of them counts.
    pub fn change_fields(&self, options: &Options) {
        self.questions.signal.extensions.store(options.extensions().bits(), Ordering::Relaxed);
    }

    /// A handle for asking from other threads.
    pub fn questions(&self) -> Questions {
        self.questions.clone()
    }

    /// Ends the thread after the namespace that it is reading, and returns its output. Close events that have arrived
    /// until then become records, and a last totals record covers what happened since the one before.
    ///
    /// # Errors
    /// The thread panicked, which it has said on standard error; its output is lost.
    pub fn stop(self) -> Result<Box<dyn Output>, Panicked> {
        // Signals the thread to end; only then can it be waited for.
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
    /// One question is answered at a time, and one a second at most; this one waits `timeout` for its turn. The answer can be
    /// read while it is made, within some ten seconds, in memory that is bounded whatever its size ([`crate::ANSWERS_BYTES_MAX`]).
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

        // The thread sleeps until its next poll otherwise.
        self.signal.wake();
        match receiver.recv_timeout(timeout) {
            Ok(answer) => Ok(answer),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(QueryError::Timeout),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(QueryError::Stopped),
        }
    }
}
