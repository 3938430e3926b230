//! Threads that own targets and sleep until the ring has something for them.

use crate::pump::{CLAIMS_MAX, Command, Targets};
use crate::waker::Waker;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use sys::clock::{Clock, monotonic_ns};
use sys::poll::{Interest, PollSet};

/// State that all threads of a listener share about its end.
#[derive(Default)]
pub(crate) struct StopState {
    /// The receiving thread has read its last datagram.
    pub(crate) is_input_closed: AtomicBool,
    /// When to drop what is left, on the monotonic clock. 0 until a stop is requested.
    pub(crate) deadline_ns: AtomicU64,
    /// The socket continues in another listener: leave it as it is.
    pub(crate) keeps_socket: AtomicBool,
}

impl StopState {
    /// Whether a stop was requested and its deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        let deadline_ns = self.deadline_ns.load(Ordering::Acquire);
        deadline_ns != 0 && monotonic_ns() >= deadline_ns
    }
}

/// A thread that owns targets.
pub(crate) struct Worker {
    pub(crate) targets: Targets,
    pub(crate) commands: Receiver<Command>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) stop: Arc<StopState>,
    /// Grows while the loop turns.
    pub(crate) ticks: Arc<AtomicU64>,
    pub(crate) lifetime: Lifetime,
}

/// When a worker's thread ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lifetime {
    /// With the listener.
    Listener,
    /// With its last target.
    Targets,
}

impl Worker {
    pub(crate) fn run(mut self) {
        let mut set = PollSet::default();
        let mut clock = Clock::default();
        if self.targets.attend() {
            // By default the kernel may wake a thread 50 µs late, which is longer than some round trips.
            sys::poll::set_timer_slack(Duration::ZERO);
        }
        loop {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            // Checked first: a command sent before the end was announced has arrived by now.
            let is_closed = self.stop.is_input_closed.load(Ordering::Acquire);
            while let Ok(command) = self.commands.try_recv() {
                self.targets.apply(command);
            }

            if is_closed {
                let ticks = Arc::clone(&self.ticks);
                self.targets.drain(&self.stop.deadline_ns, || {
                    ticks.fetch_add(1, Ordering::Relaxed);
                });
                return;
            }

            let now = clock.now();
            let has_more = self.targets.pump(now.monotonic_ns, CLAIMS_MAX);
            if self.lifetime == Lifetime::Targets && self.targets.is_empty() {
                return;
            }

            if !has_more {
                self.sleep(&mut set);
            } else if self.targets.has_blocked() {
                self.targets.revive(&mut set);
            }
        }
    }

    fn sleep(&mut self, set: &mut PollSet) {
        // If all targets wait for room, new datagrams are no reason to wake: the receiving thread would make a system call per
        // batch, and this thread would run for nothing.
        if !self.targets.are_all_blocked() || self.targets.attend() {
            self.waker.fall_asleep();
        }
        // Checked after `fall_asleep`: what is published or sent from here on rings the bell.
        if self.targets.has_work() || self.stop.is_input_closed.load(Ordering::Acquire) {
            self.waker.be_awake();
            return;
        }
        if let Ok(command) = self.commands.try_recv() {
            self.waker.be_awake();
            self.targets.apply(command);
            return;
        }

        set.clear();
        set.add(self.waker.bell().as_fd(), Interest::Readable);
        self.targets.watch(set);
        // An interrupted wait is just a short one.
        let _ = set.wait(self.targets.patience());

        self.waker.be_awake();
        if set.is_ready(0) {
            self.waker.bell().clear();
        }
        self.targets.unblock_ready(set, 1);
    }
}
