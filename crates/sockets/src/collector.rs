//! The collector: one thread that polls every namespace, receives every close in between, and answers questions.

use crate::access::{Access, Direct};
use crate::attribution::Host;
use crate::engine::Engine;
use crate::filter::Filter;
use crate::identity::{Identity, run_id};
use crate::meter::Counts;
use crate::options::Options;
use crate::output::Output;
use crate::query::{
    Answer, Asked, Asker, LISTS_WAITING_MAX, QueryError, RANKINGS_WAITING_MAX, Ranked, Reach,
    listing, ranking,
};
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

/// A running collector. When dropped without [`stop`](Self::stop), its thread ends after its current work.
pub struct Collector {
    questions: Questions,
    counts: Arc<Counts>,
    thread: JoinHandle<Box<dyn Output>>,
    /// Dropped last: a collector that is not stopped detaches its thread, and then signals it to end.
    ends: Ends,
}

/// Signals from other threads to the collector's thread.
pub(crate) struct Signal {
    pub(crate) wake: EventFd,
    is_stopping: AtomicBool,
    /// What the next poll requests from the kernel.
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

    /// What is requested from the kernel.
    pub(crate) fn extensions(&self) -> Extensions {
        Extensions::from_bits(self.extensions.load(Ordering::Relaxed))
    }

    /// Whether the thread should end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Wakes the thread so that it checks everything.
    pub(crate) fn wake(&self) {
        self.wake.wake();
    }
}

/// Ends the thread when dropped.
struct Ends(Arc<Signal>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
        self.0.wake.wake();
    }
}

/// Creates the collector's access, on the thread that will use it.
pub type MakeAccess = Box<dyn FnOnce() -> Box<dyn Access> + Send>;

impl Collector {
    /// Starts collecting with the rights of this process.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(options: Options, host: Host, output: Box<dyn Output>) -> io::Result<Collector> {
        Collector::start_with(options, host, output, Box::new(|| Box::new(Direct::new())))
    }

    /// Starts collecting through another access, such as the helper's.
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
        let (list, lists) = mpsc::sync_channel(LISTS_WAITING_MAX);
        let (rank, rankings) = mpsc::sync_channel(RANKINGS_WAITING_MAX);
        let asked = Asked { lists, rankings };
        let (thread_counts, thread_signal) = (Arc::clone(&counts), Arc::clone(&signal));

        let thread = thread::Builder::new().name(options.name.clone()).spawn(move || {
            let tags: Vec<_> = host.tags().collect();
            let identity = Identity { host: &host, tags: &tags, run_id: run_id() };
            let engine = Engine::new(&options, identity, thread_counts, output);
            // The access is created on this thread, which will enter namespaces.
            let mut runner = Runner::new(engine, access(), &options, thread_signal);
            runner.run(&asked);
            runner.engine.emission.output
        })?;

        let ends = Ends(Arc::clone(&signal));
        let questions = Questions { list, rank, signal, reach: Reach::All };
        Ok(Collector { questions, counts, thread, ends })
    }

    /// The meter for the ledger.
    pub fn meter(&self) -> Arc<dyn Meter> {
        Arc::clone(&self.counts) as Arc<dyn Meter>
    }

    /// Grows while the thread is alive: at least four times a second between polls, and with each datagram during polls.
    pub fn heartbeat(&self) -> u64 {
        self.counts.heartbeat.load()
    }

    /// Requests the data for the fields of these options from the next poll on. Other options are ignored.
    pub fn change_fields(&self, options: &Options) {
        self.questions.signal.extensions.store(options.extensions().bits(), Ordering::Relaxed);
    }

    /// A handle for asking questions from other threads.
    pub fn questions(&self) -> Questions {
        self.questions.clone()
    }

    /// Ends the thread after the namespace that it is reading, and returns its output. Close events that have arrived until then
    /// become records, and a last totals record covers the time since the previous one.
    ///
    /// # Errors
    /// The thread panicked, which it has reported on standard error. Its output is lost.
    pub fn stop(self) -> Result<Box<dyn Output>, Panicked> {
        // Signals the thread to end; only then can it be joined.
        drop(self.ends);
        self.thread.join().map_err(|_| Panicked)
    }
}

/// The collector's thread panicked: a bug in Weir.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the collector's thread has panicked")
    }
}

impl std::error::Error for Panicked {}

/// Asks a collector questions from any thread.
#[derive(Clone)]
pub struct Questions {
    list: SyncSender<listing::Question>,
    rank: SyncSender<ranking::Question>,
    signal: Arc<Signal>,
    reach: Reach,
}

impl Questions {
    /// The same questions, about the sockets of these namespaces.
    #[must_use]
    pub fn within(self, reach: Reach) -> Questions {
        Questions { reach, ..self }
    }

    /// Walks the namespaces now, and returns the sockets that pass as JSON, at most `limit` of them. For people and scripts, not
    /// for records. Does not count as a poll.
    ///
    /// One list is made at a time, and one walk begins each second at most; this one waits `timeout` for its turn. The answer can be
    /// read while it is made, within some ten seconds, in memory that is bounded whatever its size ([`crate::ANSWERS_BYTES_MAX`]).
    ///
    /// # Errors
    /// Too many questions wait already, the turn did not come in time, or the collector has stopped.
    pub fn ask(
        &self,
        filter: Option<Filter>,
        limit: usize,
        timeout: Duration,
    ) -> Result<Answer, QueryError> {
        self.send(&self.list, listing::Wanted { filter, limit }, timeout)
    }

    /// Walks the namespaces now, and returns those sockets that pass and have the largest figures, as JSON. All who ask before the
    /// walk begins share it; one begins each second at most. Waits `timeout` for the whole answer.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn rank(&self, wanted: Ranked, timeout: Duration) -> Result<Vec<u8>, QueryError> {
        self.send(&self.rank, wanted, timeout)
    }

    fn send<Wanted, Answer>(
        &self,
        to: &SyncSender<Asker<Wanted, Answer>>,
        wanted: Wanted,
        timeout: Duration,
    ) -> Result<Answer, QueryError> {
        let (answer, receiver) = mpsc::channel();
        let deadline = Instant::now() + timeout;
        let sent = to.try_send(Asker { wanted, deadline, reach: self.reach, answer });
        sent.map_err(|error| match error {
            TrySendError::Full(_) => QueryError::Busy,
            TrySendError::Disconnected(_) => QueryError::Stopped,
        })?;

        // Otherwise the thread sleeps until its next poll.
        self.signal.wake();
        match receiver.recv_timeout(timeout) {
            Ok(answer) => Ok(answer),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(QueryError::Timeout),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(QueryError::Stopped),
        }
    }
}
