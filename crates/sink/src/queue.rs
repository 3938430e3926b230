//! The queue in front of a sink's thread: chunks, in order of arrival.
//!
//! Everything is counted under the lock that moves the chunk, so the queue always holds exactly what was offered and has not
//! left.

use crate::options::{QueueOptions, WhenFull};
use ledger::{Amount, Reason, SinkCounters, Tally};
use record::Chunk;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Memory of waiting chunks at which a source wakes the sink's thread although more rows follow at once. A wake costs the source
/// a few microseconds, as much as a dozen rows; few enough chunks remain in the CPU's cache until the next ones are written.
const MUCH_BYTES: usize = 256 * 1024;

/// The queue of one sink.
pub(crate) struct Queue {
    options: QueueOptions,
    state: Mutex<State>,
    /// Signaled when something is queued or closing begins.
    changed: Condvar,
    /// Signaled when the sink's thread has ended.
    ended: Condvar,
    /// Written under the lock.
    pub(crate) offered: Tally,
    /// What left from the queue itself. Written under the lock.
    pub(crate) counters: SinkCounters,
}

struct State {
    chunks: VecDeque<Arc<Chunk>>,
    memory_bytes: usize,
    inside: Amount,
    phase: Phase,
    /// The sink's thread is waiting for something to be queued.
    is_awaited: bool,
    /// Why rows that find no room are lost, if not just because of the queue's size.
    failing: Option<Reason>,
    /// Why rows are lost that come when it is closed.
    refusal: Reason,
}

/// How far the queue is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Open,
    /// Accepts nothing more; what is inside may leave until then.
    Closing(Instant),
    /// The thread has ended, or was abandoned.
    Closed,
}

/// Whether a chunk wakes the sink's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    Yes,
    /// Only once much is waiting: more chunks follow, or a [`wake`](Queue::wake).
    IfMuch,
}

/// There is no room, and the chunk was not accepted.
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
                refusal: Reason::Shutdown,
            }),
            changed: Condvar::new(),
            ended: Condvar::new(),
            offered: Tally::default(),
            counters: SinkCounters::default(),
        })
    }

    /// Limit on the memory of waiting chunks.
    pub(crate) fn bytes_max(&self) -> usize {
        self.options.bytes_max
    }

    /// Adds a chunk, or drops and counts what finds no room. Never blocks.
    pub(crate) fn offer(&self, chunk: &Arc<Chunk>, wake: Wake) {
        let mut state = self.lock();
        let amount = amount_of(chunk);
        self.offered.add(amount);

        if state.phase != Phase::Open {
            self.counters.drop(state.refusal, amount);
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

    /// Wakes the sink's thread, if it waits and something is queued.
    pub(crate) fn wake(&self) {
        let state = self.lock();
        if !state.chunks.is_empty() {
            self.notify(state);
        }
    }

    /// One system call per wait, however much is queued before it ends.
    fn notify(&self, mut state: MutexGuard<'_, State>) {
        let is_awaited = std::mem::take(&mut state.is_awaited);
        drop(state);
        if is_awaited {
            self.changed.notify_one();
        }
    }

    /// Adds a chunk if there is room, or if this queue drops what finds no room.
    ///
    /// # Errors
    /// There is none, and the chunk stays with the caller.
    pub(crate) fn try_offer(&self, chunk: &Arc<Chunk>) -> Result<(), Full> {
        let state = self.lock();
        // Once the queue is closing, new chunks are lost, and counted as such. A chunk that never fits is lost too.
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

    /// Removes the oldest chunk, for the sink's thread.
    pub(crate) fn pop(&self) -> Option<Arc<Chunk>> {
        let mut state = self.lock();
        state.pop()
    }

    /// What the queue holds.
    pub(crate) fn inside(&self) -> Inside {
        let state = self.lock();
        let oldest = state.chunks.front().map_or(0, |chunk| chunk.arrivals().oldest_unix_ns);
        Inside {
            amount: state.inside,
            memory_bytes: state.memory_bytes,
            oldest_unix_ns: oldest,
            received: self.offered.load(),
            left: self.counters.left(),
        }
    }

    /// Sets why rows that find no room are lost.
    pub(crate) fn set_failing(&self, reason: Option<Reason>) {
        self.lock().failing = reason;
    }

    /// Why rows that find no room are lost, if not just because of the queue's size.
    pub(crate) fn failing_reason(&self) -> Option<Reason> {
        self.lock().failing
    }

    /// Waits until something is queued or the phase changes, for at most `time`.
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

    /// Waits until the phase changes, for at most `time`, when more chunks would make no difference.
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

    /// Closes the queue to new chunks. What is inside may leave until the deadline.
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

    /// Ends the queue. Returns what was inside, which is counted as dropped.
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

    /// Ends a queue that no thread serves: everything that comes is lost for this reason.
    pub(crate) fn refuse(&self, reason: Reason) {
        self.lock().refusal = reason;
        self.end();
    }

    /// Waits for the end until this time, and returns whether it has come.
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
        // Nothing panics between two related changes, so a poisoned lock is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a queue holds at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    pub(crate) amount: Amount,
    pub(crate) memory_bytes: usize,
    pub(crate) oldest_unix_ns: u64,
    /// Everything offered so far, and everything that left from the queue itself.
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

/// The ledger amount of a chunk.
pub(crate) fn amount_of(chunk: &Chunk) -> Amount {
    Amount { count: chunk.row_count() as u64, bytes: chunk.row_bytes() as u64 }
}

/// The entrance to a sink for the rows of one source.
#[derive(Clone)]
pub struct Intake {
    pub(crate) queue: Arc<Queue>,
}

impl Intake {
    /// Offers a chunk. A full queue drops by its own rule, and counts it.
    pub fn offer(&self, chunk: &Arc<Chunk>) {
        self.queue.offer(chunk, Wake::Yes);
    }

    /// Offers a chunk, unless there is no room and it should wait at its source ([`WhenFull::LeaveAtSource`]).
    ///
    /// # Errors
    /// It should wait.
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
