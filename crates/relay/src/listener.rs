//! The handle of a running listener.

mod change;
mod group;
mod place;
mod start;
mod stop;

pub use change::{ChangesUnderWay, TargetChange};
pub(crate) use group::member_ring_bytes;

use crate::meter::{ListenerMeter, TargetMeter};
use crate::options::Class;
use crate::pump::Command;
use crate::receiver::Request;
use crate::thread_time::ThreadTime;
use crate::waker::Waker;
use crate::worker::StopState;
use crate::{Error, ListenSocket, ListenerOptions, Schedule};
use group::MemberHandle;
use ledger::{Ledger, Meter};
use place::thread_name;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use sys::clock::monotonic_ns;

/// A running listener: one receiving thread, its ring and its targets. With several sockets, each has a thread and a ring of its
/// own as well.
///
/// Dropping it without [`finish_stop`](Self::finish_stop) stops it without a grace period.
pub struct Listener {
    options: ListenerOptions,
    socket: Arc<ListenSocket>,
    ledger: Arc<Ledger>,
    meter: Arc<ListenerMeter>,
    ring_capacity: u64,
    targets: Vec<TargetHandle>,
    /// Targets that were removed and may still be sending what the ring held for them.
    leaving: Vec<Arc<TargetMeter>>,
    /// The listener's sockets if it has several, in the order in which they were bound. The first one is `socket`.
    members: Vec<MemberHandle>,
    /// Wakes the receiving thread while it merges.
    waker: Arc<Waker>,
    /// Time of the receiving thread.
    time: Arc<ThreadTime>,
    requests: mpsc::Sender<Request>,
    has_requests: Arc<AtomicBool>,
    /// Set before a target that looks at sources is added, and never cleared.
    asks_for_sources: Arc<AtomicBool>,
    stop: Arc<StopState>,
    threads: Vec<JoinHandle<()>>,
    /// Whether the receiving thread was started.
    is_receiving: bool,
    /// Threads for targets that do not block. Empty in the inline schedule.
    workers: Vec<WorkerHandle>,
    worker_count_max: usize,
    pulse: Mutex<Pulse>,
    pulses: Vec<Arc<AtomicU64>>,
}

struct TargetHandle {
    name: String,
    meter: Arc<TargetMeter>,
    class: Class,
    /// Thread that takes its commands. `None` when the receiving thread owns the target.
    worker: Option<WorkerHandle>,
}

#[derive(Clone)]
struct WorkerHandle {
    commands: mpsc::Sender<Command>,
    waker: Arc<Waker>,
}

/// The last values seen of each loop's counter.
#[derive(Default)]
struct Pulse {
    seen: Vec<u64>,
    beats: u64,
}

impl Listener {
    fn failed(&self, call: &'static str) -> impl FnOnce(io::Error) -> Error {
        let name = self.options.name.clone();
        move |source| Error::Syscall { call, name, source }
    }

    /// The listener's name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The options it was started with.
    pub fn options(&self) -> &ListenerOptions {
        &self.options
    }

    /// Its socket, for querying address and buffers.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The kernel's drop count of the socket when the ledger last read it. The count wraps.
    pub fn counted_drops(&self) -> u32 {
        self.meter.counted_drops().kernel
    }

    /// Counts that the socket has joined its group anew, or that this listener took the place of one whose socket heard nothing any
    /// more.
    pub fn note_renewal(&self) {
        self.meter.socket_renewals.add(1);
    }

    /// The schedule in use: inline or threaded.
    pub fn schedule(&self) -> Schedule {
        if self.worker_count_max == 0 { Schedule::Inline } else { Schedule::Threaded }
    }

    fn request(&self, request: Request) -> Result<(), Error> {
        self.requests.send(request).map_err(|_| self.stopped())?;
        self.has_requests.store(true, Ordering::Release);
        // The thread knows whether it waits for this call, because it merges, or for its socket.
        self.waker.call();
        Ok(())
    }

    fn stopped(&self) -> Error {
        Error::Stopped { listener: self.options.name.clone() }
    }

    fn duplicate(&self, target: String) -> Error {
        Error::DuplicateTarget { listener: self.options.name.clone(), target }
    }

    fn command(&self, target: &TargetHandle, command: Command) -> Result<(), Error> {
        match &target.worker {
            None => self.request(Request::Targets(command)),
            Some(worker) => {
                worker.commands.send(command).map_err(|_| self.stopped())?;
                worker.waker.call();
                Ok(())
            }
        }
    }

    /// As [`command`](Self::command), but not before the receiving thread has finished its current receive call.
    fn command_after_receive(&self, target: &TargetHandle, command: Command) -> Result<(), Error> {
        match &target.worker {
            None => self.command(target, command),
            Some(WorkerHandle { commands, waker }) => {
                let (to, waker) = (commands.clone(), Arc::clone(waker));
                self.request(Request::Forward { to, waker, command })
            }
        }
    }

    fn target(&self, name: &str) -> Result<&TargetHandle, Error> {
        self.position(name).map(|at| &self.targets[at])
    }

    /// Removes a target. It sends what the ring holds for it now, for up to `grace`, and counts the rest as `target_removed`.
    /// Returns at once.
    ///
    /// # Errors
    /// There is no such target, or the listener has stopped.
    pub fn remove_target(&mut self, name: &str, grace: Duration) -> Result<(), Error> {
        let at = self.position(name)?;
        let target = self.targets.remove(at);
        self.begin_removal(&target, None, grace)
    }

    fn position(&self, name: &str) -> Result<usize, Error> {
        let at = self.targets.iter().position(|target| target.name == name);
        at.ok_or_else(|| Error::UnknownTarget {
            listener: self.options.name.clone(),
            target: name.to_owned(),
        })
    }

    /// Lets a target send everything before `end`, by default what the ring holds now, and then closes its account.
    fn begin_removal(
        &mut self,
        target: &TargetHandle,
        end: Option<u64>,
        grace: Duration,
    ) -> Result<(), Error> {
        let (done, is_done) = mpsc::channel();
        let deadline_ns = monotonic_ns() + grace.as_nanos() as u64;
        let name = target.name.clone();
        self.command(target, Command::Remove { target: name, end, deadline_ns, done })?;

        let meter: Arc<dyn Meter> = Arc::clone(&target.meter) as _;

        let ledger = Arc::clone(&self.ledger);
        let thread = thread::Builder::new()
            .name(thread_name("rm", &target.name))
            .spawn(move || {
                // Without an answer the thread has ended, and its counts are final too.
                let _ = is_done.recv();
                ledger.retire(&meter);
            })
            .map_err(self.failed("starting a thread"))?;

        self.threads.push(thread);
        // Clean up after earlier removals: threads that have ended, and meters that nothing else holds.
        self.threads.retain(|thread| !thread.is_finished());
        self.leaving.retain(|meter| Arc::strong_count(meter) > 1);
        self.leaving.push(Arc::clone(&target.meter));
        Ok(())
    }

    /// A number that grows between calls as long as every data loop turns. Each loop turns at least five times a second, with or
    /// without traffic.
    pub fn heartbeat(&self) -> u64 {
        let mut pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Vec<_> = self.pulses.iter().map(|ticks| ticks.load(Ordering::Relaxed)).collect();
        let is_beating = now.len() != pulse.seen.len()
            || now.iter().zip(&pulse.seen).all(|(now, seen)| now != seen);

        if is_beating {
            pulse.beats += 1;
            pulse.seen = now;
        }
        pulse.beats
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.join();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
