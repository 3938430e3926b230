//! What waits for a sink's thread: chunks, as they came.
//!
//! Every count is made under the lock that moves the chunk, so that what is inside is exactly what was offered and has not left.

use crate::options::{QueueOptions, WhenFull};
use ledger::{Amount, Reason, SinkCounters, Tally};
use record::Chunk;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Memory of waiting chunks from which a source wakes the sink's thread although more follows at once. A wake costs the source some
/// microseconds, as much as a dozen rows; the memory of so few chunks is still in the processor's cache when the next are written.
const MUCH_BYTES: usize = 256 * 1024;

/// The queue of one sink.
pub(crate) struct Queue {
    options: QueueOptions,
    state: Mutex<State>,
    /// Something was queued, or the end was announced.
    changed: Condvar,
    /// The sink's thread has ended.
    ended: Condvar,
    /// Written under the lock.
    pub(crate) offered: Tally,
    /// What left from here. Written under the lock.
    pub(crate) counters: SinkCounters,
}

struct State {
    chunks: VecDeque<Arc<Chunk>>,
    memory_bytes: usize,
    inside: Amount,
    phase: Phase,
    /// The sink's thread rests until something is queued.
    is_awaited: bool,
    /// Why rows that find no room are lost, where it is not the queue's size alone.
    failing: Option<Reason>,
}

/// How far the end is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Open,
    /// Nothing more is let in; what is inside may leave until then.
    Closing(Instant),
    /// The thread has ended, or is no longer waited for.
    Closed,
}

/// Whether a chunk wakes the sink's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    Yes,
    /// Only once much waits: more follows, or a [`wake`](Queue::wake).
    IfMuch,
}

/// There is no room, and the chunk was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl Queue {
    pub(crate) fn new(options: QueueOptions) -> io::Result<Queue> {
        Ok(Queue {
            options,
            state: Mutex::new(State {
                chunks: VecDeque::new(),
                memory_bytes: 0,
                inside: Amount::default(),
                phase: Phase::Open,
                is_awaited: false,
                failing: None,
            }),
            changed: Condvar::new(),
            ended: Condvar::new(),
            offered: Tally::default(),
            counters: SinkCounters::default(),
        })
    }

    /// Most memory of what waits.
    pub(crate) fn bytes_max(&self) -> usize {
        self.options.bytes_max
    }

    /// Puts a chunk in, or counts what has to go. Never waits.
    pub(crate) fn offer(&self, chunk: &Arc<Chunk>, wake: Wake) {
        let mut state = self.lock();
        let amount = amount_of(chunk);
        self.offered.add(amount);

        if state.phase != Phase::Open {
            self.counters.drop(Reason::Shutdown, amount);
            return;
        }

        let full = state.failing.unwrap_or(Reason::QueueFull);
        if self.options.when_full == WhenFull::DropOldest {
            while !self.fits(&state, chunk)
                && let Some(oldest) = state.pop()
            {
                self.counters.drop(full, amount_of(&oldest));
            }
        }
        if !self.fits(&state, chunk) {
            self.counters.drop(full, amount);
            return;
        }

        state.push(Arc::clone(chunk));
        let much = MUCH_BYTES.min(self.options.bytes_max / 4);
        if wake == Wake::Yes || state.memory_bytes >= much {
            self.notify(state);
        }
    }

    /// Wakes the sink's thread, if it rests and something waits.
    pub(crate) fn wake(&self) {
        let state = self.lock();
        if !state.chunks.is_empty() {
            self.notify(state);
        }
    }

    /// One call of the kernel for each rest, whatever is queued until its end.
    fn notify(&self, mut state: MutexGuard<'_, State>) {
        let is_awaited = std::mem::take(&mut state.is_awaited);
        drop(state);
        if is_awaited {
            self.changed.notify_one();
        }
    }

    /// Puts a chunk in if there is room, or if what finds no room is dropped.
    ///
    /// # Errors
    /// There is none, and the chunk stays where it is.
    pub(crate) fn try_offer(&self, chunk: &Arc<Chunk>) -> Result<(), Full> {
        let state = self.lock();
        // Once it ends, what comes is lost, and counted as such. What never fits is lost too.
        let may_wait = self.options.when_full == WhenFull::LeaveAtSource
            && state.phase == Phase::Open
            && !state.chunks.is_empty();
        if may_wait && !self.fits(&state, chunk) {
            return Err(Full);
        }
        drop(state);
        self.offer(chunk, Wake::Yes);
        Ok(())
    }

    fn fits(&self, state: &State, chunk: &Chunk) -> bool {
        state.memory_bytes.saturating_add(chunk.memory_bytes()) <= self.options.bytes_max
    }

    /// The oldest chunk, which leaves the queue for the sink's thread.
    pub(crate) fn pop(&self) -> Option<Arc<Chunk>> {
        let mut state = self.lock();
        state.pop()
    }

    /// What is inside.
    pub(crate) fn inside(&self) -> Inside {
        let state = self.lock();
        let oldest = state.chunks.front().map_or(0, |chunk| chunk.oldest_unix_ns());
        Inside {
            amount: state.inside,
            memory_bytes: state.memory_bytes,
            oldest_unix_ns: oldest,
            received: self.offered.load(),
            left: self.counters.left(),
        }
    }

    /// Says why rows that find no room are lost.
    pub(crate) fn set_failing(&self, reason: Option<Reason>) {
        self.lock().failing = reason;
    }

    /// What rows that find no room are lost to, if it is not the queue's size alone.
    pub(crate) fn failing_reason(&self) -> Option<Reason> {
        self.lock().failing
    }

    /// Waits until something is queued or the phase changes, for `time` at most.
    pub(crate) fn wait(&self, time: Duration, seen: Phase) {
        let until = Instant::now() + time;
        let mut state = self.lock();
        while state.chunks.is_empty() && state.phase == seen {
            let now = Instant::now();
            if now >= until {
                break;
            }
            state.is_awaited = true;
            let waited = self.changed.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_awaited = false;
    }

    /// Waits until the phase changes, for `time` at most: more chunks would change nothing.
    pub(crate) fn wait_for_phase(&self, time: Duration, seen: Phase) {
        let until = Instant::now() + time;
        let mut state = self.lock();
        while state.phase == seen {
            let now = Instant::now();
            if now >= until {
                return;
            }
            let waited = self.changed.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Lets nothing more in. What is inside may leave until the deadline.
    pub(crate) fn close(&self, deadline: Instant) {
        let mut state = self.lock();
        state.phase = match state.phase {
            Phase::Open => Phase::Closing(deadline),
            Phase::Closing(earlier) => Phase::Closing(earlier.min(deadline)),
            Phase::Closed => Phase::Closed,
        };
        drop(state);
        self.changed.notify_all();
    }

    /// The end. Returns what was inside, which is counted as dropped.
    pub(crate) fn end(&self) -> Amount {
        let mut state = self.lock();
        state.phase = Phase::Closed;
        let reason = state.failing.unwrap_or(Reason::Shutdown);
        let left = state.inside;
        while state.pop().is_some() {}
        self.counters.drop(reason, left);

        drop(state);
        self.changed.notify_all();
        self.ended.notify_all();
        left
    }

    /// Waits for the end until then, and says whether it has come.
    pub(crate) fn wait_for_end(&self, until: Instant) -> bool {
        let mut state = self.lock();
        while state.phase != Phase::Closed {
            let now = Instant::now();
            if now >= until {
                return false;
            }
            let waited = self.ended.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a queue holds at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    pub(crate) amount: Amount,
    pub(crate) memory_bytes: usize,
    pub(crate) oldest_unix_ns: u64,
    /// All that was offered until then, and all that left from the queue itself.
    pub(crate) received: Amount,
    pub(crate) left: Amount,
}

impl State {
    fn push(&mut self, chunk: Arc<Chunk>) {
        self.memory_bytes += chunk.memory_bytes();
        self.inside += amount_of(&chunk);
        self.chunks.push_back(chunk);
    }

    fn pop(&mut self) -> Option<Arc<Chunk>> {
        let chunk = self.chunks.pop_front()?;
        self.memory_bytes -= chunk.memory_bytes();
        self.inside = self.inside.saturating_sub(amount_of(&chunk));
        Some(chunk)
    }
}

/// What a chunk is in the ledger.
pub(crate) fn amount_of(chunk: &Chunk) -> Amount {
    Amount { count: chunk.row_count() as u64, bytes: chunk.row_bytes() as u64 }
}

/// Rows from one source into a sink.
#[derive(Clone)]
pub struct Intake {
    pub(crate) queue: Arc<Queue>,
}

impl Intake {
    /// Hands a chunk over. A full queue drops by its own rule, and counts it.
    pub fn offer(&self, chunk: &Arc<Chunk>) {
        self.queue.offer(chunk, Wake::Yes);
    }

    /// Hands a chunk over, unless there is no room and it is to wait where it is ([`WhenFull::LeaveAtSource`]).
    ///
    /// # Errors
    /// It is to wait.
    pub fn try_offer(&self, chunk: &Arc<Chunk>) -> Result<(), Full> {
        self.queue.try_offer(chunk)
    }

    pub(crate) fn is_of(&self, queue: &Arc<Queue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{ChunkBuilder, SocketRecord};
    use std::thread;
    use testkit::{DEADLINE, wait_for};

    fn chunk(bytes: usize) -> Arc<Chunk> {
        let mut builder = ChunkBuilder::new(1, [0; 16]);
        let host = "x".repeat(bytes);
        builder.record(&SocketRecord { host: Some(&host), ..SocketRecord::default() });
        Arc::new(builder.cut(None).unwrap())
    }

    #[test]
    fn a_source_that_goes_on_wakes_nobody_until_much_waits_or_it_says_so() {
        let queue = Arc::new(Queue::new(QueueOptions::default()).unwrap());
        let rest = || {
            let of_thread = Arc::clone(&queue);
            let rest = thread::spawn(move || of_thread.wait(100 * DEADLINE, Phase::Open));
            wait_for("the rest", || queue.lock().is_awaited.then_some(()));
            rest
        };

        let resting = rest();
        queue.offer(&chunk(100), Wake::IfMuch);
        assert!(queue.lock().is_awaited);
        queue.wake();
        wait_for("the end of a poll", || resting.is_finished().then_some(()));
        assert!(queue.pop().is_some());

        let resting = rest();
        queue.offer(&chunk(MUCH_BYTES / 2), Wake::IfMuch);
        assert!(queue.lock().is_awaited);
        queue.offer(&chunk(MUCH_BYTES / 2), Wake::IfMuch);
        wait_for("much", || resting.is_finished().then_some(()));
        assert!(!queue.lock().is_awaited);
    }
}
