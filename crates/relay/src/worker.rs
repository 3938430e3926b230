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

/// What all threads of a listener share about its end.
#[derive(Default)]
pub(crate) struct StopState {
    /// The receiving thread has read its last datagram.
    pub(crate) is_input_closed: AtomicBool,
    /// When to drop what is left, by the monotonic clock; 0 until a stop was asked for.
    pub(crate) deadline_ns: AtomicU64,
    /// The socket goes on to another listener: it is left as it is.
    pub(crate) keeps_socket: AtomicBool,
}

impl StopState {
    /// Whether a stop was asked for and its deadline is over.
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
            // By default the kernel may be 50 µs late, which is more than some ways there and back.
            sys::poll::set_timer_slack(Duration::ZERO);
        }
        loop {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            // Looked at first: a command that was sent before the end was announced is there by now.
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
            let has_more = self.targets.pump(now.monotonic_ns, now.realtime_ns, CLAIMS_MAX);
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
        // Where all targets wait for room, what is published is nothing to wake for: the receiving thread would make a system
        // call for each batch, and this one run in vain.
        if !self.targets.are_all_blocked() || self.targets.attend() {
            self.waker.fall_asleep();
        }
        // Looked at after saying so: what is published or sent from here on rings the bell.
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
        // An interrupted wait is a short one.
        let _ = set.wait(self.targets.patience());

        self.waker.be_awake();
        if set.is_ready(0) {
            self.waker.bell().clear();
        }
        self.targets.unblock_ready(set, 1);
    }
}
