//! What the kernel's tables say about the paths to UDP targets. One thread queries them and listens to events; the data threads
//! read the results as atomics.
//!
//! A query of those tables may wait for a lock that others hold for seconds. So no data thread queries: it reads what is known,
//! and may ask the thread for a new lookup without waiting for the answer.

mod keeper;

use keeper::Keeper;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;
use sys::poll::EventFd;
use sys::route::{Egress, Ends, Neighbour};

/// Handle of the thread that follows the paths to targets; one per process. The thread ends when the last handle and the last
/// [`Path`] are dropped.
#[derive(Clone)]
pub struct Paths(Arc<Handle>);

struct Handle {
    inbox: Arc<Inbox>,
    /// 1 while the answer to a query is overdue. Callers then wait only briefly for others.
    unanswered: AtomicU32,
}

/// Requests to the thread, and what wakes it.
struct Inbox {
    new: Mutex<Vec<New>>,
    /// Callers that wait for up-to-date information.
    waiting: Mutex<Vec<mpsc::Sender<()>>>,
    event: EventFd,
    is_closed: AtomicBool,
    changes: AtomicU64,
}

/// A path that the thread has not seen yet.
struct New {
    state: Weak<State>,
    ends: Ends,
    answer: mpsc::Sender<io::Result<Egress>>,
}

/// What is known about the path to one target. Cheap to clone.
#[derive(Clone)]
pub struct Path {
    state: Arc<State>,
    keeper: Keeping,
}

/// What keeps a path up to date.
#[derive(Clone)]
enum Keeping {
    Nobody,
    Thread(Arc<Inbox>),
    #[cfg(all(test, not(loom)))]
    Test,
}

/// Written only by the thread, except for `asked`.
#[derive(Default)]
struct State {
    is_local: AtomicBool,
    is_broadcast: AtomicBool,
    /// Whether the types of queues are known and none of them splits messages.
    keeps_messages: AtomicBool,
    neighbour: AtomicU8,
    /// How often what waited for the next hop was dropped.
    failures: AtomicU64,
    /// Number of the last lookup requested, and of the last one completed.
    asked: AtomicU64,
    answered: AtomicU64,
    /// The failure count, with the neighbor's state in the two lowest bits, as of that lookup.
    seen: AtomicU64,
    /// Total drops at the sockets of receivers on this host, and whether there has been such a socket.
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
    /// Starts the thread. It listens to events in the calling thread's network namespace.
    ///
    /// # Errors
    /// Netlink is not available, or the thread cannot be started. Use [`Path::unknown`] then.
    pub fn start() -> io::Result<Paths> {
        let inbox = Arc::new(Inbox {
            new: Mutex::default(),
            waiting: Mutex::default(),
            event: EventFd::new()?,
            is_closed: AtomicBool::new(false),
            changes: AtomicU64::new(0),
        });
        let keeper = Keeper::open(Arc::clone(&inbox))?;
        thread::Builder::new().name("paths".to_owned()).spawn(move || keeper.run())?;
        Ok(Paths(Arc::new(Handle { inbox, unanswered: AtomicU32::new(0) })))
    }

    /// The path between two ends, and what the kernel says about it. Followed as long as the path is held.
    ///
    /// Waits up to `patience` for the answer, but only briefly while the answer to an earlier query is overdue: with the kernel's
    /// tables locked, each of many targets would wait. A late answer updates the path when it arrives.
    ///
    /// # Errors
    /// `ENETUNREACH` when there is no route; `ETIMEDOUT` when the answer is late. The path is usable either way.
    pub fn follow(&self, ends: Ends, patience: Duration) -> (Path, io::Result<Egress>) {
        let state = Arc::<State>::default();
        let (sender, answer) = mpsc::channel();
        let new = New { state: Arc::downgrade(&state), ends, answer: sender };
        lock(&self.0.inbox.new).push(new);
        self.0.inbox.event.wake();
        // Usable at once: until the answer arrives, nothing is known about it.
        let path = Path { state, keeper: Keeping::Thread(Arc::clone(&self.0.inbox)) };
        (path, self.0.wait(&answer, patience))
    }
}

impl Paths {
    /// How often this host's routes, addresses, devices or queues have changed; changes within a tenth of a second count as one.
    /// What an open socket depends on may have changed with each.
    pub fn changes(&self) -> u64 {
        self.0.inbox.changes.load(Ordering::Relaxed)
    }

    /// Updates the drop counts of receivers on this host, and waits for that, for at most `patience`.
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

/// How long to wait for an answer while an earlier one is overdue.
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
    /// A path about which nothing is or ever will be known: not local, no runs, an unknown neighbor.
    pub fn unknown() -> Path {
        Path { state: Arc::default(), keeper: Keeping::Nobody }
    }

    /// A path with fixed properties.
    pub fn fixed(egress: &Egress) -> Path {
        let path = Path::unknown();
        path.state.note_egress(egress);
        path
    }

    /// Whether the destination is this host now. That may change: addresses move.
    pub fn is_local(&self) -> bool {
        self.state.is_local()
    }

    /// Whether datagrams to this destination reach sockets on this host.
    pub fn reaches_this_host(&self) -> bool {
        self.is_local() || self.state.is_broadcast.load(Ordering::Relaxed)
    }

    /// Whether no queue on the path splits a `UDP_SEGMENT` message and drops a part of it unnoticed. `false` while this is not
    /// known.
    pub fn keeps_messages(&self) -> bool {
        self.state.keeps_messages.load(Ordering::Relaxed)
    }

    /// Datagrams from any sender that the kernel dropped at the socket of the receiver on this host, or at its successors, since
    /// the path was first followed. `None` when no such socket was seen.
    pub(crate) fn receiver_dropped(&self) -> Option<u64> {
        let has_receiver = self.state.has_receiver.load(Ordering::Acquire);
        has_receiver.then(|| self.state.receiver_dropped.load(Ordering::Relaxed))
    }

    /// Whether the path is kept up to date.
    pub(crate) fn is_followed(&self) -> bool {
        !matches!(self.keeper, Keeping::Nobody)
    }

    /// The last known state of the next hop.
    pub(crate) fn neighbour(&self) -> Neighbour {
        self.state.neighbour()
    }

    /// Whether the next hop was asked for its link address and has not answered: what is sent waits for it or has been dropped.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.neighbour(), Neighbour::Awaited | Neighbour::Failed)
    }

    /// How often what waited for the next hop was dropped, as far as is known.
    pub(crate) fn failures(&self) -> u64 {
        self.state.failures.load(Ordering::Acquire)
    }

    /// Requests a lookup of the next hop and returns its number, without waiting. Only one thread may call this.
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

    /// The failure count and the neighbor's state as of the last lookup. Later failures do not concern what was gone by then.
    pub(crate) fn seen(&self) -> (u64, Neighbour) {
        let seen = self.state.seen.load(Ordering::Acquire);
        (seen >> 2, neighbour_of(seen as u8 & 3))
    }

    /// Whether a requested lookup is still pending.
    pub(crate) fn is_asked(&self) -> bool {
        !self.has_looked(self.state.asked.load(Ordering::Acquire))
    }

    /// Whether the lookup with this number is done, so that what is known is at least that recent.
    pub(crate) fn has_looked(&self, number: u64) -> bool {
        self.state.answered.load(Ordering::Acquire) >= number
    }
}

/// Indexed by their number.
const NEIGHBOURS: [Neighbour; 4] =
    [Neighbour::Unknown, Neighbour::Awaited, Neighbour::Failed, Neighbour::Known];

fn neighbour_of(number: u8) -> Neighbour {
    NEIGHBOURS.get(usize::from(number)).copied().unwrap_or_default()
}

impl State {
    fn neighbour(&self) -> Neighbour {
        neighbour_of(self.neighbour.load(Ordering::Acquire))
    }

    /// Completes the lookup with this number.
    fn answer(&self, number: u64) {
        let neighbour = self.neighbour.load(Ordering::Relaxed);
        // One word, so a reader never sees the failures of one lookup with the neighbor of another.
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

    /// Records that `dropped` more datagrams were dropped at the receiver's socket.
    fn note_receiver(&self, dropped: u32) {
        self.receiver_dropped.fetch_add(u64::from(dropped), Ordering::Relaxed);
        self.has_receiver.store(true, Ordering::Release);
    }

    fn note_failure(&self) {
        let failures = self.failures.load(Ordering::Relaxed) + 1;
        self.failures.store(failures, Ordering::Release);
    }
}

/// A path whose state a test sets in place of the kernel.
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
