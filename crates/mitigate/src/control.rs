//! The thread that connects engines and a speaker: it compares what is wanted with what the speaker accepted, and sends the
//! difference.

mod state;

use crate::speaker::ANSWER_TIMEOUT;
use crate::{Attack, Entry, Journal, Policy, Speaker};
use state::State;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Most events that may wait for the thread.
const EVENTS_MAX: usize = 4_096;
/// How long after its deadline the thread may still wait for the speaker: to connect, and for one answer.
const LAST_ANSWER: Duration =
    ANSWER_TIMEOUT.saturating_mul(2).saturating_add(Duration::from_secs(1));
/// Interval between checks whether the thread has ended.
const LOOK: Duration = Duration::from_millis(10);

/// News about attacks for the thread.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Raised(Attack),
    /// The attack with this id is over.
    Cleared(String),
    /// Exactly these attacks are in progress: corrects anything missed before.
    GoOn(Vec<Attack>),
}

/// The thread is behind: the event was not accepted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("mitigation is behind by {EVENTS_MAX} events")]
pub struct Full;

/// Receives every entry of the audit log.
pub type Observer = Box<dyn FnMut(&Entry) + Send>;

/// Replaces the policies while the thread runs.
pub struct Change {
    /// A policy that exists already keeps its routes. Routes of a policy not listed here are withdrawn, even if it keeps them on
    /// stop.
    pub policies: Vec<Policy>,
    pub observer: Observer,
    /// Exactly the attacks in progress.
    pub attacks: Vec<Attack>,
    /// Another file of routes; `None` keeps the current one.
    pub journal: Option<Journal>,
}

/// The options with which the thread is started.
pub struct Options {
    /// If two policies announce the same route, the first one's actions apply.
    pub policies: Vec<Policy>,
    pub speaker: Box<dyn Speaker>,
    pub observer: Observer,
    /// Where to record routes that the speaker may have; recorded routes are found again. `None`: nowhere.
    pub journal: Option<Journal>,
}

/// The running thread. If dropped, it ends at once, and leaves its routes with the speaker.
pub struct Control {
    sender: Sender<Message>,
    /// Number of the last change or stop sent to it.
    order: AtomicU64,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// State shared by the thread and its owner.
#[derive(Default)]
struct Shared {
    /// Number of events that wait for the thread.
    waiting: AtomicUsize,
    /// Number of the last stop that is complete.
    done: AtomicU64,
}

enum Message {
    Event(Event),
    Change(u64, Change),
    /// Withdraw what must be withdrawn until this time, and then stop.
    Stop(u64, Instant),
}

impl Control {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(options: Options) -> io::Result<Control> {
        // The queue is bounded: events by `tell`, and the rest by how often users ask.
        let (sender, messages) = mpsc::channel();
        let shared = Arc::<Shared>::default();
        let mut state = State::new(options, Arc::clone(&shared));
        let thread = thread::Builder::new().name("mitigation".to_owned());
        let thread = thread.spawn(move || state.run(&messages))?;
        Ok(Control { sender, order: AtomicU64::new(0), shared, thread })
    }

    /// Reports that an attack began or ended. Does not wait.
    ///
    /// # Errors
    /// Too many events are waiting already.
    pub fn tell(&self, event: Event) -> Result<(), Full> {
        if self.shared.waiting.fetch_add(1, Ordering::Relaxed) >= EVENTS_MAX {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Full);
        }
        // Fails only if the thread has ended.
        let _ = self.sender.send(Message::Event(event));
        Ok(())
    }

    /// Continues with other policies, even after a stop. Does not wait.
    pub fn change(&self, change: Change) {
        // Fails only if the thread has ended.
        let _ = self.sender.send(Message::Change(self.next_order(), change));
    }

    /// Makes it withdraw everything that the policies do not keep until the deadline, and then stop. If repeated, an earlier
    /// deadline applies. Does not wait.
    pub fn begin_stop(&self, deadline: Instant) {
        // Fails only if the thread has ended.
        let _ = self.sender.send(Message::Stop(self.next_order(), deadline));
    }

    fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether it has completed a stop.
    pub fn has_stopped(&self) -> bool {
        let done = self.shared.done.load(Ordering::Acquire);
        (done > 0 && done == self.order.load(Ordering::Relaxed)) || self.thread.is_finished()
    }

    /// Stops the thread and waits for its end, until the deadline plus at most 7 s for a last answer of the speaker. Returns
    /// whether it has ended; if not, it is left behind. Calls `meanwhile` repeatedly.
    pub fn stop(self, deadline: Instant, mut meanwhile: impl FnMut()) -> bool {
        self.begin_stop(deadline);
        while !self.has_stopped() && Instant::now() < deadline + LAST_ANSWER {
            meanwhile();
            thread::park_timeout(LOOK);
        }

        let has_stopped = self.has_stopped();
        drop(self.sender);
        if has_stopped {
            // Without a sender it ends at once.
            let _ = self.thread.join();
        }
        has_stopped
    }
}
