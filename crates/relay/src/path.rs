//! What the kernel's tables say about the ways to UDP targets: asked and heard by one thread, read by the data threads as
//! atomics.
//!
//! A question to those tables may wait for a lock that others hold for seconds. So no data thread asks: it reads what is
//! known, and may have the thread look again without waiting for the answer.

mod keeper;

use keeper::Keeper;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;
use sys::poll::EventFd;
use sys::route::{Egress, Ends, Neighbour};

/// The thread that knows the ways to targets; one for a process. Ends when the last handle and the last [`Path`] are gone.
#[derive(Clone)]
pub struct Paths(Arc<Handle>);

struct Handle {
    inbox: Arc<Inbox>,
    /// 1 while the answer to a question is overdue: then no other is waited for.
    unanswered: AtomicU32,
}

/// What the thread is asked, and what wakes it.
struct Inbox {
    new: Mutex<Vec<New>>,
    /// Callers that wait until what is known is up to date.
    waiting: Mutex<Vec<mpsc::Sender<()>>>,
    event: EventFd,
    is_closed: AtomicBool,
}

/// A path that the thread does not know yet.
struct New {
    state: Weak<State>,
    ends: Ends,
    answer: mpsc::Sender<io::Result<Egress>>,
}

/// What is known about the way to one target. Cheap to clone.
#[derive(Clone)]
pub struct Path {
    state: Arc<State>,
    keeper: Keeping,
}

/// Who follows a path.
#[derive(Clone)]
enum Keeping {
    Nobody,
    Thread(Arc<Inbox>),
    #[cfg(all(test, not(loom)))]
    Test,
}

/// Written by the thread alone, but for `asked`.
#[derive(Default)]
struct State {
    is_local: AtomicBool,
    is_broadcast: AtomicBool,
    /// Whether the kinds of queues are known and none of them cuts messages up.
    keeps_messages: AtomicBool,
    neighbour: AtomicU8,
    /// How often what waited for the next hop was dropped.
    failures: AtomicU64,
    /// The number of the last look that was asked for, and of the last that was taken.
    asked: AtomicU64,
    answered: AtomicU64,
    /// The failures, and the neighbour's state in the two lowest bits, when that look was taken.
    seen: AtomicU64,
    /// What was dropped at the sockets of receivers on this host, all together; and 1 once there was one.
    receiver_dropped: AtomicU64,
    has_receiver: AtomicBool,
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Path")
            .field("is_local", &self.is_local())
            .field("neighbour", &self.neighbour())
            .field("failures", &self.failures())
            .finish_non_exhaustive()
    }
}

impl Paths {
    /// Starts the thread. It hears the events of the calling thread's network namespace.
    ///
    /// # Errors
    /// When netlink is not to be had, or the thread cannot be started. [`Path::unknown`] serves then.
    pub fn start() -> io::Result<Paths> {
        let inbox = Arc::new(Inbox {
            new: Mutex::default(),
            waiting: Mutex::default(),
            event: EventFd::new()?,
            is_closed: AtomicBool::new(false),
        });
        let keeper = Keeper::open(Arc::clone(&inbox))?;
        thread::Builder::new().name("paths".to_owned()).spawn(move || keeper.run())?;
        Ok(Paths(Arc::new(Handle { inbox, unanswered: AtomicU32::new(0) })))
    }

    /// The way between two ends, and what the kernel says about it; followed for as long as the path lives.
    ///
    /// Waits for the answer for up to `patience`, and not at all while the answer to an earlier question is overdue: where
    /// the kernel's tables are locked, each of many targets would wait. What is late changes the path when it comes.
    ///
    /// # Errors
    /// `ENETUNREACH` where no route leads there; `ETIMEDOUT` where the answer is late. The path is good all the same.
    pub fn follow(&self, ends: Ends, patience: Duration) -> (Path, io::Result<Egress>) {
        let state = Arc::<State>::default();
        let (sender, answer) = mpsc::channel();
        let new = New { state: Arc::downgrade(&state), ends, answer: sender };
        lock(&self.0.inbox.new).push(new);
        self.0.inbox.event.wake();
        // Of use at once: until the answer arrives it is a way about which nothing is known.
        let path = Path { state, keeper: Keeping::Thread(Arc::clone(&self.0.inbox)) };
        (path, self.0.wait(&answer, patience))
    }
}

impl Paths {
    /// Has the receivers on this host asked for their drops, and waits for that, for `patience` at most.
    pub fn refresh(&self, patience: Duration) {
        let (sender, done) = mpsc::channel();
        lock(&self.0.inbox.waiting).push(sender);
        self.0.inbox.event.wake();
        // Without an answer the last numbers stand.
        let _ = done.recv_timeout(patience);
    }
}

impl Handle {
    fn wait(
        &self,
        answer: &mpsc::Receiver<io::Result<Egress>>,
        patience: Duration,
    ) -> io::Result<Egress> {
        let is_stuck = self.unanswered.load(Ordering::Relaxed) > 0;
        let patience = if is_stuck { IMPATIENCE } else { patience };

        match answer.recv_timeout(patience) {
            Ok(answer) => {
                self.unanswered.store(0, Ordering::Relaxed);
                answer
            }
            Err(_) => {
                self.unanswered.store(1, Ordering::Relaxed);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }
}

/// What a question is given while an earlier one is overdue.
const IMPATIENCE: Duration = Duration::from_millis(10);

impl Drop for Handle {
    fn drop(&mut self) {
        self.inbox.is_closed.store(true, Ordering::Release);
        self.inbox.event.wake();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Path {
    /// A way about which nothing is known, and never will be: not local, no runs, an unknown neighbour.
    pub fn unknown() -> Path {
        Path { state: Arc::default(), keeper: Keeping::Nobody }
    }

    /// A way about which this is known, and does not change.
    pub fn fixed(egress: &Egress) -> Path {
        let path = Path::unknown();
        path.state.note_egress(egress);
        path
    }

    /// The destination is this host now. It need not have been a moment ago: addresses move.
    pub fn is_local(&self) -> bool {
        self.state.is_local()
    }

    /// What is sent there reaches sockets of this host.
    pub fn reaches_this_host(&self) -> bool {
        self.is_local() || self.state.is_broadcast.load(Ordering::Relaxed)
    }

    /// No queue on the way cuts a `UDP_SEGMENT` message up and drops a part of it unseen. `false` while it is not known.
    pub fn keeps_messages(&self) -> bool {
        self.state.keeps_messages.load(Ordering::Relaxed)
    }

    /// Datagrams that the kernel dropped at the socket of the receiver on this host, and at its successors, from
    /// any sender, since the path was first followed. `None`: no such socket was seen.
    pub(crate) fn receiver_dropped(&self) -> Option<u64> {
        let has_receiver = self.state.has_receiver.load(Ordering::Acquire);
        has_receiver.then(|| self.state.receiver_dropped.load(Ordering::Relaxed))
    }

    /// Whether anybody follows the way, so that what is known changes with it.
    pub(crate) fn is_followed(&self) -> bool {
        !matches!(self.keeper, Keeping::Nobody)
    }

    /// What was last heard of the next hop.
    pub(crate) fn neighbour(&self) -> Neighbour {
        self.state.neighbour()
    }

    /// The next hop was asked for its link address and is silent: what is sent waits for it, or has been dropped.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.neighbour(), Neighbour::Awaited | Neighbour::Failed)
    }

    /// How often what waited for the next hop was dropped, as far as it was heard.
    pub(crate) fn failures(&self) -> u64 {
        self.state.failures.load(Ordering::Acquire)
    }

    /// Asks for a look at the next hop and returns its number, without waiting. One thread may call this.
    pub(crate) fn look(&self) -> u64 {
        let number = self.state.asked.load(Ordering::Relaxed) + 1;
        self.state.asked.store(number, Ordering::Release);
        match &self.keeper {
            Keeping::Thread(inbox) => inbox.event.wake(),
            Keeping::Nobody => self.state.answer(number),
            #[cfg(all(test, not(loom)))]
            Keeping::Test => {}
        }
        number
    }

    /// The failures and the neighbour's state when the last look was taken. What comes after it is not about what was gone
    /// by then.
    pub(crate) fn seen(&self) -> (u64, Neighbour) {
        let seen = self.state.seen.load(Ordering::Acquire);
        (seen >> 2, neighbour_of(seen as u8 & 3))
    }

    /// Whether a look that was asked for has not been taken yet.
    pub(crate) fn is_asked(&self) -> bool {
        !self.has_looked(self.state.asked.load(Ordering::Acquire))
    }

    /// Whether the look of this number has been taken, so that what is known is as new as the look.
    pub(crate) fn has_looked(&self, number: u64) -> bool {
        self.state.answered.load(Ordering::Acquire) >= number
    }
}

/// In the order of their numbers.
const NEIGHBOURS: [Neighbour; 4] =
    [Neighbour::Unknown, Neighbour::Awaited, Neighbour::Failed, Neighbour::Known];

fn neighbour_of(number: u8) -> Neighbour {
    NEIGHBOURS.get(usize::from(number)).copied().unwrap_or_default()
}

impl State {
    fn neighbour(&self) -> Neighbour {
        neighbour_of(self.neighbour.load(Ordering::Acquire))
    }

    /// The look of this number has been taken.
    fn answer(&self, number: u64) {
        let neighbour = self.neighbour.load(Ordering::Relaxed);
        // One word: a reader never sees the failures of one look with the neighbour of another.
        let seen = self.failures.load(Ordering::Relaxed) << 2 | u64::from(neighbour);
        self.seen.store(seen, Ordering::Release);
        self.answered.store(number, Ordering::Release);
    }

    fn note_route(&self, egress: &Egress) {
        self.is_local.store(egress.is_local, Ordering::Relaxed);
        self.is_broadcast.store(egress.is_broadcast, Ordering::Relaxed);
    }

    fn note_egress(&self, egress: &Egress) {
        self.note_route(egress);
        self.keeps_messages.store(!egress.may_drop_within_messages(), Ordering::Relaxed);
    }

    fn note_neighbour(&self, neighbour: Neighbour) {
        let number = NEIGHBOURS.iter().position(|known| *known == neighbour);
        self.neighbour.store(number.unwrap_or(0) as u8, Ordering::Release);
    }

    fn is_local(&self) -> bool {
        self.is_local.load(Ordering::Relaxed)
    }

    /// `dropped` more datagrams were dropped at the receiver's socket.
    fn note_receiver(&self, dropped: u32) {
        self.receiver_dropped.fetch_add(u64::from(dropped), Ordering::Relaxed);
        self.has_receiver.store(true, Ordering::Release);
    }

    fn note_failure(&self) {
        let failures = self.failures.load(Ordering::Relaxed) + 1;
        self.failures.store(failures, Ordering::Release);
    }
}

/// A path that a test tells what the kernel would.
#[cfg(all(test, not(loom)))]
impl Path {
    pub(crate) fn told() -> Path {
        let path = Path { state: Arc::default(), keeper: Keeping::Test };
        path.state.note_egress(&Egress::default());
        path
    }

    pub(crate) fn tell(&self, neighbour: Neighbour) {
        if neighbour == Neighbour::Failed {
            self.state.note_failure();
        }
        self.state.note_neighbour(neighbour);
    }

    pub(crate) fn answer(&self) {
        if self.is_asked() {
            self.state.answer(self.state.asked.load(Ordering::Acquire));
        }
    }
}
