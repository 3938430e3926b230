//! Wakes a thread that sleeps until there is something to do, without a system call while it is awake.
//!
//! The sleeper announces that it sleeps, and then checks once more for work. The waker publishes work, and then checks whether
//! the other sleeps. Each writes before it reads what the other writes, and a fence on each side keeps that order, so at least
//! one of them sees the other (Dekker). The model at the end of this file tests every interleaving.

use crate::sync::{AtomicBool, Ordering, fence};
use sys::poll::EventFd;

/// What ends a sleep. If it was rung before the sleep began, the sleep ends at once.
pub(crate) trait Bell {
    fn ring(&self);
}

impl Bell for EventFd {
    fn ring(&self) {
        self.wake();
    }
}

/// Wakes one sleeping thread. Costs one atomic load when the thread is awake.
pub(crate) struct Waker<B = EventFd> {
    is_sleeping: AtomicBool,
    bell: B,
}

impl Waker {
    pub(crate) fn new() -> std::io::Result<Waker> {
        Ok(Waker::with_bell(EventFd::new()?))
    }
}

impl<B: Bell> Waker<B> {
    fn with_bell(bell: B) -> Waker<B> {
        Waker { is_sleeping: AtomicBool::new(false), bell }
    }

    /// What the sleeper waits for.
    pub(crate) fn bell(&self) -> &B {
        &self.bell
    }

    /// Call after publishing something. Has no effect on a sleeper that has not called [`fall_asleep`](Self::fall_asleep).
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `fall_asleep`: either the sleeper sees what was published, or this thread sees that it sleeps.
        fence(Ordering::SeqCst);
        if self.is_sleeping.load(Ordering::Relaxed) && self.take_sleep() {
            self.bell.ring();
        }
    }

    /// Call after sending something that the sleeper must see in any case: a command, or the end. The bell stays rung until the
    /// sleeper has heard it.
    pub(crate) fn call(&self) {
        self.bell.ring();
    }

    /// Whether the sleeper slept; only one waker gets `true`. A compare-exchange stores nothing if the sleeper is awake by now,
    /// so its next store cannot be confused with an older value.
    fn take_sleep(&self) -> bool {
        self.is_sleeping.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Called by the sleeper before its last check for work. It sleeps only if there is none, and calls
    /// [`be_awake`](Self::be_awake) either way.
    pub(crate) fn fall_asleep(&self) {
        self.is_sleeping.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
    }

    /// Called by the sleeper when it has woken or did not go to sleep.
    pub(crate) fn be_awake(&self) {
        self.is_sleeping.store(false, Ordering::Relaxed);
    }
}

/// A lost wake-up leaves the sleeper asleep although there is work, which loom reports as a deadlock.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::{Arc, AtomicU64};
    use loom::sync::{Condvar, Mutex};
    use loom::thread;

    /// A bell that stays rung until a thread waits for it, like an eventfd.
    #[derive(Default)]
    struct ModelBell {
        is_rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Bell for ModelBell {
        fn ring(&self) {
            *self.is_rung.lock().unwrap() = true;
            self.changed.notify_one();
        }
    }

    impl ModelBell {
        fn wait(&self) {
            let mut is_rung = self.is_rung.lock().unwrap();
            while !*is_rung {
                is_rung = self.changed.wait(is_rung).unwrap();
            }
            *is_rung = false;
        }
    }

    struct Shared {
        waker: Waker<ModelBell>,
        /// Like the head of the ring: stored with release, loaded with acquire.
        published: AtomicU64,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            let waker = Waker::with_bell(ModelBell::default());
            Arc::new(Shared { waker, published: AtomicU64::new(0) })
        }

        fn publish(&self) {
            self.published.fetch_add(1, Ordering::Release);
            self.waker.wake();
        }

        /// Does what `Worker::sleep` does, until `wanted` is published.
        fn wait_for(&self, wanted: u64) {
            let has_come = || self.published.load(Ordering::Acquire) >= wanted;
            while !has_come() {
                self.waker.fall_asleep();
                if !has_come() {
                    self.waker.bell.wait();
                }
                self.waker.be_awake();
            }
        }
    }

    #[test]
    fn loom_no_wake_up_is_lost() {
        loom::model(|| {
            let shared = Shared::new();
            let sleeper = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                // The thread works between its sleeps. A ring that came too late ends the next sleep early.
                sleeper.wait_for(1);
                sleeper.wait_for(2);
            });
            shared.publish();
            shared.publish();
            thread.join().unwrap();
        });
    }

    /// The receiving thread, and one that sends commands.
    #[test]
    fn loom_two_wakers_lose_no_wake_up() {
        let mut builder = loom::model::Builder::new();
        // All interleavings of three threads are too many. Two preemptions suffice to show a lost wake-up.
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let shared = Shared::new();
            let threads = [(); 2].map(|()| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.publish())
            });
            shared.wait_for(2);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
