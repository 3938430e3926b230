//! A sink's queue, and everything that is counted about it.
//!
//! Payloads stay in the queue until their fate is known, those in the hands of the sink's thread too. Every count is
//! made under the lock that moves the payload, so that what is inside is exactly what was offered and has not left.

use crate::Payload;
use crate::events::Events;
use ledger::{
    Amount, Counters, Event, EventCounter, Gauge, HopBuilder, HopKind, HopSnapshot, Meter, Reason,
    Tally,
};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Payloads that a destination is handed at once.
const BATCH_PAYLOADS_MAX: usize = 64;

/// Bytes that a destination is handed at once, unless the first payload alone is larger.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Bytes of all payloads. A larger payload is dropped whole.
    pub bytes: usize,
    /// Payloads; at least one is let in.
    pub payloads: usize,
}

impl Default for QueueLimits {
    /// 32 MiB and 32,768 payloads. A poll comes all at once, faster than a file is written: of 100,000 records of 250 bytes
    /// that were offered within 17 ms, a file with 8 MiB lost 9 %, and none with this. Only what waits takes memory.
    fn default() -> QueueLimits {
        QueueLimits { bytes: 32 << 20, payloads: 32_768 }
    }
}

/// The queue of one sink. Its meter is the queue itself.
pub(crate) struct Queue {
    origin: String,
    name: String,
    limits: QueueLimits,
    state: Mutex<State>,
    /// Something was queued, or the end was announced.
    changed: Condvar,
    /// The sink's thread has ended.
    ended: Condvar,
    pub(crate) events: Events,
    /// Written under the lock.
    offered: Tally,
    counters: Counters,
    payloads: EventCounter,
}

struct State {
    payloads: VecDeque<Payload>,
    bytes: usize,
    /// This many, the first ones, are in the hands of the sink's thread.
    held: usize,
    held_bytes: usize,
    phase: Phase,
    /// The sink's thread has nothing to do.
    is_waiting: bool,
    /// Why the destination takes nothing at present; `None`: it does, or is merely slow.
    failing: Option<Reason>,
    /// What was tried last came through.
    is_up: bool,
    /// What was inside at the end.
    left: Amount,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// Nothing more is let in; what is inside may leave until then.
    Closing(Instant),
    /// The thread has ended, or is no longer waited for. Nothing is inside.
    Closed,
}

/// What the sink's thread has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Deliver the batch.
    Deliver,
    /// Nothing was queued in time: look after the destination.
    Tick,
    /// Everything has left.
    End,
}

impl Queue {
    pub(crate) fn new(origin: String, name: String, limits: QueueLimits) -> Queue {
        let limits = QueueLimits { payloads: limits.payloads.max(1), ..limits };
        Queue {
            origin,
            name,
            limits,
            state: Mutex::new(State {
                payloads: VecDeque::new(),
                bytes: 0,
                held: 0,
                held_bytes: 0,
                phase: Phase::Open,
                is_waiting: false,
                failing: None,
                // Nothing speaks against a destination that was given nothing yet.
                is_up: true,
                left: Amount::default(),
            }),
            changed: Condvar::new(),
            ended: Condvar::new(),
            events: Events::default(),
            offered: Tally::default(),
            counters: Counters::default(),
            payloads: EventCounter::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Puts a payload in, or counts what has to go, and wakes the sink's thread. Never waits for the destination.
    ///
    /// A full queue drops its oldest payloads, as a relay's target does: after an outage what is there is the time up
    /// to now, with the latest totals, and not the time before it. Those in the hands of the destination stay: they may
    /// have arrived in part already.
    pub(crate) fn offer(&self, payload: &Payload) {
        drop(self.put(payload));
        self.changed.notify_one();
    }

    /// The same while more follows: the sink's thread is woken once there is a batch for it, and with [`Self::wake`]. A wake-up takes as
    /// long as encoding 50 records.
    pub(crate) fn offer_more(&self, payload: &Payload) {
        let mut state = self.put(payload);
        if state.is_waiting && state.bytes - state.held_bytes >= BATCH_BYTES_MAX {
            state.is_waiting = false;
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Has the sink's thread look for what was offered.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Puts a payload in, or counts what has to go.
    fn put(&self, payload: &Payload) -> MutexGuard<'_, State> {
        let len = payload.bytes().len();
        let mut state = self.lock();
        self.payloads.add(1);
        self.offered.add(payload.amount());

        if state.phase != Phase::Open {
            self.counters.drop(Reason::Shutdown, payload.amount());
            return state;
        }

        let full = state.failing.unwrap_or(Reason::QueueFull);
        if state.held_bytes.saturating_add(len) > self.limits.bytes
            || state.held >= self.limits.payloads
        {
            self.counters.drop(full, payload.amount());
            return state;
        }

        // The oldest go, but for those that the destination has in its hands.
        while state.bytes.saturating_add(len) > self.limits.bytes
            || state.payloads.len() >= self.limits.payloads
        {
            let held = state.held;
            let Some(oldest) = state.payloads.remove(held) else { break };
            state.bytes -= oldest.bytes().len();
            self.counters.drop(full, oldest.amount());
        }

        state.bytes += len;
        state.payloads.push_back(payload.clone());
        state
    }

    /// Counts what is not let in.
    pub(crate) fn refuse(&self, amount: Amount, reason: Reason) {
        let _state = self.lock();
        self.offered.add(amount);
        self.counters.drop(reason, amount);
    }

    /// Waits until there is something to do, fills `batch` with the oldest payloads, and holds those.
    ///
    /// At the deadline of a close it is the end, whatever is inside: that is counted and let go.
    pub(crate) fn next(&self, batch: &mut Vec<Payload>, tick: Duration) -> Work {
        batch.clear();
        let mut state = self.lock();
        let tick_at = Instant::now() + tick;

        loop {
            let now = Instant::now();
            match state.phase {
                Phase::Closed => return Work::End,
                Phase::Closing(deadline) if now >= deadline || state.payloads.is_empty() => {
                    return Work::End;
                }
                Phase::Open | Phase::Closing(_) => {}
            }

            if !state.payloads.is_empty() {
                state.hold(batch);
                return Work::Deliver;
            }
            if now >= tick_at {
                return Work::Tick;
            }

            state.is_waiting = true;
            state = self.wait(state, tick_at - now);
            state.is_waiting = false;
        }
    }

    /// The first `count` payloads have arrived.
    pub(crate) fn delivered(&self, count: usize) {
        let mut state = self.lock();
        (state.failing, state.is_up) = (None, true);
        let amount = state.let_go(count);
        self.counters.delivered.add(amount);
    }

    /// The first `count` payloads are lost.
    pub(crate) fn dropped(&self, count: usize, reason: Reason) {
        let mut state = self.lock();
        (state.failing, state.is_up) = (None, false);
        let amount = state.let_go(count);
        self.counters.drop(reason, amount);
    }

    /// Waits before another attempt, or until the end is announced. What has to go meanwhile goes for this reason.
    pub(crate) fn pause(&self, pause: Duration, failing: Option<Reason>) {
        let mut state = self.lock();
        let until = Instant::now() + pause;
        state.failing = failing;
        state.is_up &= failing.is_none();

        loop {
            let until = match state.phase {
                Phase::Open => until,
                Phase::Closing(deadline) => until.min(deadline),
                Phase::Closed => return,
            };

            let now = Instant::now();
            if now >= until {
                return;
            }
            state = self.wait(state, until - now);
        }
    }

    /// Lets nothing more in. What is inside may leave until the deadline.
    pub(crate) fn close(&self, deadline: Instant) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing(deadline);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The end, for the thread that has nothing more to do or no time, and for callers that no longer wait for that
    /// thread. Counts what is inside as dropped.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.phase = Phase::Closed;

        let reason = state.failing.unwrap_or(Reason::Shutdown);
        let count = state.payloads.len();
        let left = state.let_go(count);
        state.left += left;
        self.counters.drop(reason, left);

        drop(state);
        self.changed.notify_all();
        self.ended.notify_all();
    }

    /// What was inside when the end came, and was dropped then.
    pub(crate) fn left_at_end(&self) -> Amount {
        self.lock().left
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

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn hold(&mut self, batch: &mut Vec<Payload>) {
        let mut bytes = 0;
        for payload in self.payloads.iter().take(BATCH_PAYLOADS_MAX) {
            let len = payload.bytes().len();
            if !batch.is_empty() && bytes + len > BATCH_BYTES_MAX {
                break;
            }
            bytes += len;
            batch.push(payload.clone());
        }

        self.held = batch.len();
        self.held_bytes = bytes;
    }

    /// Takes the first `count` payloads out. There are fewer when the end came meanwhile, which has counted them.
    fn let_go(&mut self, count: usize) -> Amount {
        let count = count.min(self.payloads.len());
        let amount: Amount = self.payloads.drain(..count).map(|payload| payload.amount()).sum();
        self.bytes -= amount.bytes as usize;
        // The rest of the batch stays held: the destination may have begun with it.
        self.held = self.held.saturating_sub(count);
        self.held_bytes = self.held_bytes.saturating_sub(amount.bytes as usize);
        amount
    }
}

impl Meter for Queue {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        let state = self.lock();
        let offered = self.offered.load();
        let is_up = state.is_up && self.events.gives_back.load() == 0;

        let hop = HopBuilder::new(HopKind::Sink, &self.origin, Some(&self.name), offered)
            .left(&self.counters)
            // No record is shorter than a byte; the bytes are what is limited.
            .capacity(self.limits.bytes as u64)
            .event(Event::Payloads, self.payloads.load())
            .gauge(Gauge::QueueBytes, state.bytes as u64)
            .gauge(Gauge::QueueLimitBytes, self.limits.bytes as u64)
            .gauge(Gauge::QueuePayloads, state.payloads.len() as u64)
            .gauge(Gauge::Up, u64::from(is_up));

        drop(state);
        hops.push(self.events.add_to(hop).finish(offered));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};
    use std::thread;

    const LONG: Duration = Duration::from_secs(3_600);

    /// A queue, and how many payloads its thread is handed each time.
    fn served() -> (Arc<Queue>, mpsc::Receiver<usize>) {
        let queue = Arc::new(Queue::new("o".into(), "s".into(), QueueLimits::default()));
        let (handed, receiver) = mpsc::channel();
        let served = Arc::clone(&queue);
        thread::spawn(move || {
            let mut batch = Vec::new();
            while served.next(&mut batch, LONG) != Work::End {
                let count = batch.len();
                served.delivered(count);
                if handed.send(count).is_err() {
                    break;
                }
            }
        });
        (queue, receiver)
    }

    fn wait_until_it_waits(queue: &Queue) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !queue.lock().is_waiting {
            assert!(Instant::now() < deadline, "its thread does not wait");
            thread::yield_now();
        }
    }

    #[test]
    fn a_batch_wakes_the_thread_and_less_waits_for_more() {
        let (queue, handed) = served();
        let quarter = Payload::new(&vec![7; BATCH_BYTES_MAX / 4], 1);
        let soon = Duration::from_secs(30);
        for _ in 0..3 {
            wait_until_it_waits(&queue);
            (0..3).for_each(|_| queue.offer_more(&quarter));
            assert_eq!(handed.try_recv(), Err(mpsc::TryRecvError::Empty));
            queue.offer_more(&quarter);
            assert_eq!(handed.recv_timeout(soon), Ok(4));
            wait_until_it_waits(&queue);
            queue.offer_more(&quarter);
            queue.wake();
            assert_eq!(handed.recv_timeout(soon), Ok(1));
        }
        queue.close(Instant::now() + soon);
    }
}
