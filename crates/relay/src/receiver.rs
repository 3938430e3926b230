//! The receiving thread: socket to ring, and on to the targets that it owns itself.

use crate::SocketOwner;
use crate::arrivals::Arrivals;
use crate::intake::Intake;
use crate::meter::ListenerMeter;
use crate::pump::{CLAIMS_MAX, CLAIMS_MAX_UNDER_LOAD, Command, HOUSEKEEPING_INTERVAL, Targets};
use crate::ring::Reader;
use crate::waker::Waker;
use crate::worker::StopState;
use ledger::{Amount, Tally};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver as Inbox};
use std::time::Duration;
use sys::Errno;
use sys::clock::{Clock, Now, monotonic_ns};
use sys::poll::{Interest, PollSet};
use sys::recv::{Ask, ReceiveBatch, Room, Sources, Wait};
use sys::socket::{leave_port, mem_info, refuse_new_datagrams};

/// What the control side asks of the receiving thread.
pub(crate) enum Request {
    /// A new reader that joins at the newest datagram.
    Join { lost: Arc<Tally>, reply: mpsc::Sender<(Reader, Amount)> },
    /// A thread to wake after each batch.
    Wake(Arc<Waker>),
    /// Something for the targets that this thread owns.
    Targets(Command),
    /// Something for the targets of another thread, which must not get it before this one asks for sources.
    Forward { to: mpsc::Sender<Command>, waker: Arc<Waker>, command: Command },
}

/// Everything that the receiving thread works with.
pub(crate) struct Receiver {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) socket_owner: SocketOwner,
    pub(crate) intake: Intake,
    pub(crate) arrivals: Arrivals,
    /// Somebody looks at where datagrams come from.
    pub(crate) asks_for_sources: Arc<AtomicBool>,
    pub(crate) targets: Targets,
    pub(crate) wakers: Vec<Arc<Waker>>,
    pub(crate) requests: Inbox<Request>,
    /// Set when `requests` is worth a look.
    pub(crate) has_requests: Arc<AtomicBool>,
    pub(crate) stop: Arc<StopState>,
    pub(crate) ticks: Arc<AtomicU64>,
    pub(crate) clock: Clock,
}

impl Receiver {
    pub(crate) fn run(mut self) {
        let mut batch = ReceiveBatch::default();
        let mut set = PollSet::default();
        let mut has_more = false;
        let mut law_check_due_ns = 0;
        // The kernel may wake a thread 50 µs late by default (timer slack): a pause of 80 µs would last 130.
        sys::poll::set_timer_slack(Duration::ZERO);

        while self.stop.deadline_ns.load(Ordering::Acquire) == 0 {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            if self.has_requests.swap(false, Ordering::Acquire) {
                self.serve_requests();
            }

            let wait = self.wait_for_work(&mut set, has_more);
            // A full batch says that more waits in the socket, which has less room than the ring: then it goes first.
            let (read, now) = self.receive(&mut batch, wait);
            let claims_max = match read {
                Read::Full => CLAIMS_MAX_UNDER_LOAD,
                Read::Some | Read::Nothing | Read::Failed => CLAIMS_MAX,
            };

            // What was received has been waiting for as long as it took to get here.
            let now = if matches!(read, Read::Full | Read::Some) { self.clock.now() } else { now };
            let now_ns = now.monotonic_ns;
            has_more = self.targets.pump(now_ns, now.realtime_ns, claims_max);

            if now_ns >= law_check_due_ns {
                law_check_due_ns = now_ns + HOUSEKEEPING_INTERVAL.as_nanos() as u64;
                self.meter().check_law(self.intake.writer.appended());
            }

            if read == Read::Some
                && !has_more
                && let Some(pause) = self.arrivals.pause(now_ns)
            {
                let began_ns = monotonic_ns();
                sys::poll::pause(pause);
                let was = Duration::from_nanos(monotonic_ns() - began_ns);
                self.arrivals.paused(pause, was);
            }
        }

        self.finish(&mut batch);
    }

    /// Waits until there is something to receive or to send, unless a target `has_more`. Says how the next receive call is
    /// to wait.
    fn wait_for_work(&mut self, set: &mut PollSet, has_more: bool) -> Wait {
        match (has_more, self.targets.has_blocked()) {
            (true, true) => self.targets.revive(set),
            (true, false) => {}
            (false, true) => self.wait_for_socket_or_targets(set),
            (false, false) => return Wait::ForOne,
        }
        Wait::No
    }

    pub(crate) fn serve_requests(&mut self) {
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Join { lost, reply } => {
                    let joined = self.intake.writer.appended();
                    // A caller that has gone does not want the reader; dropping it frees the ring of it.
                    let _ = reply.send((self.intake.writer.reader(lost), joined));
                }
                Request::Wake(waker) => self.wakers.push(waker),
                Request::Targets(command) => self.targets.apply(command),
                Request::Forward { to, waker, command } => {
                    // A thread that has ended has no targets any more.
                    let _ = to.send(command);
                    waker.call();
                }
            }
        }

        // A worker that has ended has dropped its half.
        self.wakers.retain(|waker| Arc::strong_count(waker) > 1);
    }

    fn meter(&self) -> &ListenerMeter {
        &self.intake.meter
    }

    fn wait_for_socket_or_targets(&mut self, set: &mut PollSet) {
        set.clear();
        set.add(self.socket.as_fd(), Interest::Readable);
        self.targets.watch(set);
        // An interrupted wait is a short one.
        let _ = set.wait(self.targets.patience());
        self.targets.unblock_ready(set, 1);
    }

    /// Takes one batch into the ring. Says what it brought, and when.
    fn receive(&mut self, batch: &mut ReceiveBatch, wait: Wait) -> (Read, Now) {
        let plan = self.arrivals.plan();
        let writer = &mut self.intake.writer;
        // Before room is asked for: an empty ring begins again at its first bytes, which are still in the
        // processor's cache.
        writer.rewind_if_empty(plan.bytes);

        let room = plan.stride_bytes.and_then(|stride_bytes| {
            let bytes = writer.room(plan.count, plan.count * stride_bytes)?;
            Some(Room { bytes, stride_bytes })
        });

        let sources = match self.asks_for_sources.load(Ordering::Acquire) {
            true => Sources::Wanted,
            false => Sources::Unwanted,
        };
        let ask = Ask { count_max: plan.count, sources, room };
        let received = batch.receive_into(self.socket.as_fd(), wait, ask);
        // One time for the whole batch: a clock call for each datagram would cost more than it says.
        let now = self.clock.now();

        let read = match received {
            Ok(count) => {
                self.meter().batches.add(1);
                let datagrams = || batch.datagrams();
                self.arrivals.note(datagrams().map(|datagram| datagram.payload.len()));
                self.intake.take_in(datagrams, now.realtime_ns, &mut self.targets);
                for waker in &self.wakers {
                    waker.wake();
                }
                if count == plan.count { Read::Full } else { Read::Some }
            }
            Err(Errno::AGAIN) => Read::Nothing,
            Err(Errno::INTR) => Read::Failed,
            Err(_) => {
                // The loop must go on: the next datagram may well arrive. It goes on slowly, so that an error that
                // stays does not take a processor.
                self.meter().receive_errors.add(1);
                let mut set = PollSet::default();
                let _ = set.wait(HOUSEKEEPING_INTERVAL / 10);
                Read::Failed
            }
        };

        (read, now)
    }

    /// Reads what is left, tells the workers, and drains this thread's own targets.
    fn finish(&mut self, batch: &mut ReceiveBatch) {
        self.serve_requests();

        let keeps_socket = self.stop.keeps_socket.load(Ordering::Acquire);
        if self.socket_owner == SocketOwner::Relay && !keeps_socket {
            self.meter().begin_stop();
            // If the filter cannot be attached, what arrives until the close is the kernel's to lose; there is no
            // other way to say so than the gap between the sender's count and ours.
            let is_refusing = refuse_new_datagrams(self.socket.as_fd()).is_ok();
            self.empty_socket(batch, is_refusing);
            // The socket is empty. What arrives from here on is nobody's, as after the close.
            leave_port(self.socket.as_fd());
        }

        // Stored before the wake-ups: a worker that wakes must see that nothing more comes.
        self.stop.is_input_closed.store(true, Ordering::Release);
        for waker in &self.wakers {
            waker.call();
        }

        let ticks = Arc::clone(&self.ticks);
        self.targets.drain(&self.stop.deadline_ns, || {
            ticks.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Reads what waits in the socket, which takes nothing more if it `is_refusing`.
    fn empty_socket(&mut self, batch: &mut ReceiveBatch, is_refusing: bool) {
        let stop = Arc::clone(&self.stop);
        let mut looks = 0;

        loop {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            let is_late = monotonic_ns() >= stop.deadline_ns.load(Ordering::Acquire);
            let (read, _) = self.receive(batch, Wait::No);

            match read {
                // While the filter does not refuse, a fast sender could keep this going beyond the deadline.
                Read::Full | Read::Some if is_late && !is_refusing => return,
                Read::Full | Read::Some => {
                    let now = self.clock.now();
                    self.targets.pump(now.monotonic_ns, now.realtime_ns, CLAIMS_MAX);
                }
                // What passed the filter before it was there may still be on its way into the queue.
                Read::Nothing if self.has_queued() && looks < EMPTY_LOOKS_MAX => {
                    looks += 1;
                    std::thread::yield_now();
                }
                Read::Nothing => return,
                Read::Failed if is_late => return,
                Read::Failed => {}
            }
        }
    }

    fn has_queued(&self) -> bool {
        mem_info(self.socket.as_fd()).is_ok_and(|info| info.receive_queued_bytes > 0)
    }
}

/// How often a socket that gives no datagram is read again while the kernel still charges something to it.
const EMPTY_LOOKS_MAX: u32 = 1_000;

/// What a receive call brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    /// As much as fits: there is probably more.
    Full,
    Some,
    Nothing,
    Failed,
}
