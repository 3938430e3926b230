//! The receiving thread: from the socket to the ring, and on to the targets that it owns. With several sockets, it merges what
//! their threads have read.

use crate::inlet::{FullRing, Inlet, Read};
use crate::intake::Intake;
use crate::link::LinkInlet;
use crate::merge::{Merge, Pulled, Seat};
use crate::meter::ListenerMeter;
use crate::pump::{CLAIMS_MAX, CLAIMS_MAX_UNDER_LOAD, Command, HOUSEKEEPING_INTERVAL, Targets};
use crate::ring::Reader;
use crate::thread_time::ThreadTime;
use crate::waker::Waker;
use crate::worker::StopState;
use ledger::{Amount, Tally};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver as Inbox};
use std::time::Duration;
use sys::clock::{Clock, monotonic_ns};
use sys::poll::{Interest, PollSet};
use sys::recv::Wait;

/// Requests from the control side to the receiving thread.
pub(crate) enum Request {
    /// Add a reader that joins at the newest datagram.
    Join { lost: Arc<Tally>, reply: mpsc::Sender<(Reader, Amount)> },
    /// Add a thread to wake after each batch.
    Wake(Arc<Waker>),
    /// Pass a command to the targets that this thread owns.
    Targets(Command),
    /// Pass a command to another thread's targets, but only after this thread has begun to ask for sources.
    Forward { to: mpsc::Sender<Command>, waker: Arc<Waker>, command: Command },
    /// Hand the socket to a thread of its own, and from now on merge what that and others read. The reply channel has no buffer:
    /// either the caller takes the socket, or it stays here.
    Spread { merge: Box<Merge>, reply: mpsc::SyncSender<Box<Inlet>> },
    /// Add a socket that has a thread of its own.
    Enter { reader: Reader, seat: Seat, reply: mpsc::Sender<()> },
    /// Once all members have ended, read this socket in this thread again.
    Gather { inlet: Box<Inlet>, reply: mpsc::Sender<()> },
}

/// Where datagrams come from.
pub(crate) enum Input {
    Socket(Box<Inlet>),
    /// Other Weirs.
    Link(Box<LinkInlet>),
    Members {
        merge: Box<Merge>,
        /// What replaces the members once they have ended.
        next: Option<(Box<Inlet>, mpsc::Sender<()>)>,
    },
}

/// What the receiving thread works with.
pub(crate) struct Receiver {
    input: Input,
    pub(crate) intake: Intake,
    pub(crate) targets: Targets,
    pub(crate) wakers: Vec<Arc<Waker>>,
    requests: Inbox<Request>,
    /// Set when `requests` is worth checking.
    has_requests: Arc<AtomicBool>,
    stop: Arc<StopState>,
    ticks: Arc<AtomicU64>,
    clock: Clock,
    /// Rung by members, and for requests while there are members.
    waker: Arc<Waker>,
    time: Arc<ThreadTime>,
}

/// What the receiving thread shares with the control side.
pub(crate) struct Shared {
    pub(crate) requests: Inbox<Request>,
    pub(crate) has_requests: Arc<AtomicBool>,
    pub(crate) stop: Arc<StopState>,
    pub(crate) ticks: Arc<AtomicU64>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) time: Arc<ThreadTime>,
}

impl Receiver {
    pub(crate) fn new(input: Input, intake: Intake, shared: Shared) -> Receiver {
        let Shared { requests, has_requests, stop, ticks, waker, time } = shared;
        Receiver {
            input,
            intake,
            targets: Targets::default(),
            wakers: Vec::new(),
            requests,
            has_requests,
            stop,
            ticks,
            clock: Clock::default(),
            waker,
            time,
        }
    }

    pub(crate) fn run(mut self) {
        let mut set = PollSet::default();
        let mut has_more = false;
        let mut law_check_due_ns = 0;
        // By default the kernel may wake a thread 50 µs late (timer slack): a pause of 80 µs would last 130.
        sys::poll::set_timer_slack(Duration::ZERO);

        while self.stop.deadline_ns.load(Ordering::Acquire) == 0 {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            if self.has_requests.swap(false, Ordering::Acquire) {
                self.serve_requests();
            }

            let now_ns;
            (has_more, now_ns) = match &self.input {
                Input::Socket(_) => self.read_socket(&mut set, has_more),
                Input::Link(_) => self.read_link(&mut set, has_more),
                Input::Members { .. } => self.read_members(&mut set),
            };

            if now_ns >= law_check_due_ns {
                law_check_due_ns = now_ns + HOUSEKEEPING_INTERVAL.as_nanos() as u64;
                self.meter().check_law(&self.intake.writer);
                self.time.note();
                if let Input::Members { merge, .. } = &self.input {
                    merge.check_law(&self.intake.meter);
                }
            }
        }

        self.finish();
    }

    /// Reads the socket once and lets the targets send. Returns whether there is more to send, and the time.
    fn read_socket(&mut self, set: &mut PollSet, has_more: bool) -> (bool, u64) {
        let wait = self.wait_for_work(set, has_more);
        let Input::Socket(inlet) = &mut self.input else { return (has_more, 0) };

        // A full batch means that more waits in the socket, which has less room than the ring, so it goes first.
        let (read, now) = inlet.receive(&mut self.intake, &mut self.targets, wait);
        let claims_max = match read {
            Read::Full => CLAIMS_MAX_UNDER_LOAD,
            Read::Some | Read::Nothing | Read::Failed => CLAIMS_MAX,
        };

        // The datagrams have waited for as long as it took to get here.
        let is_read = matches!(read, Read::Full | Read::Some);
        if is_read {
            wake_all(&self.wakers);
        }
        let now = if is_read { self.clock.now() } else { now };
        let now_ns = now.monotonic_ns;
        let has_more = self.targets.pump(now_ns, claims_max);

        if read == Read::Some
            && !has_more
            && let Some(pause) = inlet.arrivals.pause(now_ns)
        {
            let began_ns = monotonic_ns();
            sys::poll::pause(pause);
            let was = Duration::from_nanos(monotonic_ns() - began_ns);
            inlet.arrivals.paused(pause, was);
        }
        (has_more, now_ns)
    }

    /// As [`read_socket`](Self::read_socket), for a link.
    fn read_link(&mut self, set: &mut PollSet, has_more: bool) -> (bool, u64) {
        let Input::Link(inlet) = &mut self.input else { return (has_more, 0) };
        if !has_more {
            let rest_ns = inlet.due_ns().saturating_sub(monotonic_ns());
            let patience = self.targets.patience().min(Duration::from_nanos(rest_ns));
            set.clear();
            set.add(inlet.as_fd(), Interest::Readable);
            set.add(self.waker.bell().as_fd(), Interest::Readable);
            self.targets.watch(set);
            // An interrupted wait is just a short one.
            let _ = set.wait(patience);
            if set.is_ready(1) {
                self.waker.bell().clear();
            }
            self.targets.unblock_ready(set, 2);
        } else if self.targets.has_blocked() {
            self.targets.revive(set);
        }

        let (is_read, now) = inlet.receive(&mut self.intake, &mut self.targets);
        if is_read {
            wake_all(&self.wakers);
        }
        let now = if is_read { self.clock.now() } else { now };
        let claims_max = if is_read { CLAIMS_MAX_UNDER_LOAD } else { CLAIMS_MAX };
        let has_more = self.targets.pump(now.monotonic_ns, claims_max);
        (has_more, now.monotonic_ns)
    }

    /// As [`read_socket`](Self::read_socket), for what the threads of several sockets have read. Sleeps when there is nothing.
    fn read_members(&mut self, set: &mut PollSet) -> (bool, u64) {
        let mut pulled = self.pull();
        let now = self.clock.now();
        if matches!(self.input, Input::Socket(_)) {
            // What waits in the socket must not wait for the bell.
            return (true, now.monotonic_ns);
        }
        let claims_max = match pulled {
            Pulled::Some => CLAIMS_MAX_UNDER_LOAD,
            Pulled::Nothing | Pulled::Waits(_) => CLAIMS_MAX,
        };
        let has_more = self.targets.pump(now.monotonic_ns, claims_max);
        if has_more && self.targets.has_blocked() {
            self.targets.revive(set);
        }

        if pulled != Pulled::Some && !has_more {
            self.waker.fall_asleep();
            // Checked after `fall_asleep`: what members show from here on rings the bell.
            pulled = self.pull();
            let rest = match pulled {
                Pulled::Some => None,
                _ if matches!(self.input, Input::Socket(_)) => None,
                Pulled::Nothing => Some(self.targets.patience()),
                Pulled::Waits(rest) => Some(self.targets.patience().min(rest)),
            };
            if let Some(patience) = rest.filter(|_| !self.has_requests.load(Ordering::Acquire)) {
                set.clear();
                set.add(self.waker.bell().as_fd(), Interest::Readable);
                self.targets.watch(set);
                // An interrupted wait is just a short one.
                let _ = set.wait(patience);
                if set.is_ready(0) {
                    self.waker.bell().clear();
                }
                self.targets.unblock_ready(set, 1);
            }
            self.waker.be_awake();
        }
        (has_more, now.monotonic_ns)
    }

    /// Moves what the members have into the ring, and removes those that have ended.
    fn pull(&mut self) -> Pulled {
        let Input::Members { merge, next } = &mut self.input else { return Pulled::Nothing };
        let meter = &self.intake.meter;
        // When the listener stops, ended members stay visible.
        let is_stopping = self.stop.deadline_ns.load(Ordering::Relaxed) != 0;
        merge.remove_ended(|member| {
            meter.given.add(member.merged.delivered.load().count);
            match is_stopping {
                true => member.own.finish_stop(),
                false => meter.fold_member(member),
            }
        });

        if merge.is_empty() {
            // Nothing more is merged, so this is the last look.
            merge.check_law(meter);
        }
        if merge.is_empty()
            && let Some((inlet, reply)) = next.take()
        {
            self.input = Input::Socket(inlet);
            // The caller may have gone.
            let _ = reply.send(());
            return Pulled::Nothing;
        }

        let now = self.clock.now();
        merge.note_clock(now.realtime_ns.wrapping_sub(now.monotonic_ns).cast_signed());
        let pulled = merge.pull(&mut self.intake, &mut self.targets, monotonic_ns());
        if pulled == Pulled::Some {
            wake_all(&self.wakers);
        }
        pulled
    }

    /// Waits until there is something to receive or to send, unless a target `has_more`. Returns how the next receive call should
    /// wait.
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
                    // The caller may have gone; dropping the reader removes it from the ring.
                    let _ = reply.send((self.intake.writer.reader(lost), joined));
                }
                Request::Wake(waker) => self.wakers.push(waker),
                Request::Targets(command) => self.targets.apply(command),
                Request::Forward { to, waker, command } => {
                    // A thread that has ended has no targets.
                    let _ = to.send(command);
                    waker.call();
                }
                Request::Spread { merge, reply } => self.spread(merge, &reply),
                Request::Enter { reader, seat, reply } => {
                    if let Input::Members { merge, .. } = &mut self.input {
                        self.intake.meter.add_member(Arc::clone(&seat.meter));
                        merge.add(reader, seat);
                        let _ = reply.send(());
                    }
                }
                Request::Gather { inlet, reply } => {
                    if let Input::Members { next, .. } = &mut self.input {
                        *next = Some((inlet, reply));
                    }
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
        let Input::Socket(inlet) = &self.input else { return };
        set.clear();
        set.add(inlet.socket.as_fd(), Interest::Readable);
        self.targets.watch(set);
        // An interrupted wait is just a short one.
        let _ = set.wait(self.targets.patience());
        self.targets.unblock_ready(set, 1);
    }

    /// Starts merging what members read, and hands the socket to the caller. If the caller has gone, nothing changes.
    fn spread(&mut self, merge: Box<Merge>, reply: &mpsc::SyncSender<Box<Inlet>>) {
        if !matches!(self.input, Input::Socket(_)) {
            return;
        }

        let members = Input::Members { merge, next: None };
        if let Input::Socket(inlet) = std::mem::replace(&mut self.input, members)
            && let Err(mpsc::SendError(inlet)) = reply.send(inlet)
        {
            self.input = Input::Socket(inlet);
        }
    }

    /// Reads what is left, notifies the workers, and drains this thread's own targets.
    fn finish(&mut self) {
        self.serve_requests();

        match &mut self.input {
            Input::Socket(inlet) => {
                let (ticks, wakers) = (&self.ticks, &self.wakers);
                let loses = FullRing::Loses;
                inlet.finish(&mut self.intake, &mut self.targets, &self.stop, loses, &mut || {
                    ticks.fetch_add(1, Ordering::Relaxed);
                    wake_all(wakers);
                });
            }
            // The next reader of the socket knows none of the sessions: new ones are set up.
            Input::Link(_) if self.stop.keeps_socket.load(Ordering::Acquire) => {}
            Input::Link(inlet) => {
                let stop = &self.stop;
                inlet.finish(&mut self.intake, &mut self.targets, &|| stop.is_late());
                wake_all(&self.wakers);
            }
            Input::Members { .. } => self.finish_members(),
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

    /// Stops the members, and takes what they deliver until they have ended or the deadline has passed.
    fn finish_members(&mut self) {
        let mut set = PollSet::default();
        loop {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            let is_late = self.stop.is_late();
            let Input::Members { merge, next } = &mut self.input else { return };
            // A socket that was to return here stays where it is.
            *next = None;

            let keeps_socket = self.stop.keeps_socket.load(Ordering::Acquire);
            let deadline_ns = self.stop.deadline_ns.load(Ordering::Acquire);
            for seat in merge.seats() {
                seat.state.stop.keeps_socket.store(keeps_socket, Ordering::Release);
                seat.state.stop.deadline_ns.store(deadline_ns, Ordering::Release);
            }
            if merge.is_empty() {
                return;
            }
            if is_late {
                merge.discard_closed();
            }

            self.read_members(&mut set);
        }
    }
}

fn wake_all(wakers: &[Arc<Waker>]) {
    for waker in wakers {
        waker.wake();
    }
}
