//! The thread that holds engines and a speaker together: what is wanted, what the speaker accepted, and the difference.

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

/// Most events that wait for the thread.
const EVENTS_MAX: usize = 4_096;
/// How long after its deadline the thread may still wait for the speaker: to connect, and for one answer.
const LAST_ANSWER: Duration =
    ANSWER_TIMEOUT.saturating_mul(2).saturating_add(Duration::from_secs(1));
/// Time between two looks at whether the thread has ended.
const LOOK: Duration = Duration::from_millis(10);

/// What the thread is told of attacks.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Raised(Attack),
    /// The attack of this id is over.
    Cleared(String),
    /// These attacks go on, and no others: what was not told before is made up for.
    GoOn(Vec<Attack>),
}

/// The thread is behind: the event was not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("mitigation is behind by {EVENTS_MAX} events")]
pub struct Full;

/// Hears every entry of the audit log.
pub type Observer = Box<dyn FnMut(&Entry) + Send>;

/// What takes the place of policies while the thread runs.
pub struct Change {
    /// One that is there already goes on with its routes. The routes of one that is not here are withdrawn, on stop kept or not.
    pub policies: Vec<Policy>,
    pub observer: Observer,
    /// Attacks that go on, and no others.
    pub attacks: Vec<Attack>,
    /// Another file of routes; `None`: the one that is in use stays in use.
    pub journal: Option<Journal>,
}

/// What the thread is started with.
pub struct Options {
    /// Of two that announce the same route the first one's actions hold.
    pub policies: Vec<Policy>,
    pub speaker: Box<dyn Speaker>,
    pub observer: Observer,
    /// Where routes are noted that the speaker may have; what is in it is found again. `None`: nowhere.
    pub journal: Option<Journal>,
}

/// The running thread. Dropped, it ends at once, and leaves with the speaker what it has.
pub struct Control {
    sender: Sender<Message>,
    /// The number of the last change or stop that it was told.
    order: AtomicU64,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// What the thread and its owner both see.
#[derive(Default)]
struct Shared {
    /// Events that wait for the thread.
    waiting: AtomicUsize,
    /// The number of the last stop that was told and for which everything is done.
    done: AtomicU64,
}

enum Message {
    Event(Event),
    Change(u64, Change),
    /// Withdraw what is to be withdrawn until then, and then nothing more.
    Stop(u64, Instant),
}

impl Control {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(options: Options) -> io::Result<Control> {
        // What waits in it is bounded: events by `tell`, and the rest is as many as people ask for.
        let (sender, messages) = mpsc::channel();
        let shared = Arc::<Shared>::default();
        let mut state = State::new(options, Arc::clone(&shared));
        let thread = thread::Builder::new().name("mitigation".to_owned());
        let thread = thread.spawn(move || state.run(&messages))?;
        Ok(Control { sender, order: AtomicU64::new(0), shared, thread })
    }

    /// Says that an attack began or ended. Does not wait.
    ///
    /// # Errors
    /// Too many events wait already.
    pub fn tell(&self, event: Event) -> Result<(), Full> {
        if self.shared.waiting.fetch_add(1, Ordering::Relaxed) >= EVENTS_MAX {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Full);
        }
        // Fails only if the thread has ended.
        let _ = self.sender.send(Message::Event(event));
        Ok(())
    }

    /// Goes on with other policies, also after it was told to stop. Does not wait.
    pub fn change(&self, change: Change) {
        // Fails only if the thread has ended.
        let _ = self.sender.send(Message::Change(self.next_order(), change));
    }

    /// Has it withdraw what the policies do not keep until then, and no more. Said again, an earlier deadline holds. Does not wait.
    pub fn begin_stop(&self, deadline: Instant) {
        // Fails only if the thread has ended.
        let _ = self.sender.send(Message::Stop(self.next_order(), deadline));
    }

    fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether it has done what a stop takes.
    pub fn has_stopped(&self) -> bool {
        let done = self.shared.done.load(Ordering::Acquire);
        (done > 0 && done == self.order.load(Ordering::Relaxed)) || self.thread.is_finished()
    }

    /// Stops it and waits for its end: until then, and for a last answer of the speaker, 7 s at most. Returns whether it has ended; else it is
    /// left behind. `meanwhile` is called all the time.
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
