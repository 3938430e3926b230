//! How busy a thread is, recorded by itself and read by others.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sys::clock::thread_cpu_ns;
use sys::process::{thread_id, waited_ns};

/// How a thread that reads a socket spent its time, in nanoseconds since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadingTime {
    /// Time running. At most a tenth of a second old.
    pub ran_ns: u64,
    /// Time runnable but waiting for a processor. 0 if the kernel does not report it.
    pub waited_ns: u64,
}

/// The time of one thread.
#[derive(Default)]
pub(crate) struct ThreadTime {
    id: AtomicU32,
    ran_ns: AtomicU64,
}

impl ThreadTime {
    /// Records the time. Called by the thread itself.
    pub(crate) fn note(&self) {
        self.id.store(thread_id(), Ordering::Relaxed);
        self.ran_ns.store(thread_cpu_ns(), Ordering::Relaxed);
    }

    /// Reads `/proc`, so only for threads that may block.
    pub(crate) fn look(&self) -> ReadingTime {
        let id = self.id.load(Ordering::Relaxed);
        ReadingTime {
            ran_ns: self.ran_ns.load(Ordering::Relaxed),
            waited_ns: waited_ns(id).unwrap_or(0),
        }
    }
}
