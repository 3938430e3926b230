//! The receiving thread: socket to ring, and on to the targets that it owns itself.

use crate::Prefix;
use crate::gate::contains;
use crate::meter::ListenerMeter;
use crate::pump::{Command, HOUSEKEEPING_INTERVAL, Targets};
use crate::ring::{Reader, Writer};
use crate::worker::{StopState, Waker};
use crate::{ListenerOptions, SocketOwner};
use ledger::{Amount, Reason, Tally};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver as Inbox};
use sys::Errno;
use sys::clock::{monotonic_ns, realtime_ns};
use sys::poll::{Interest, PollSet};
use sys::recv::{ReceiveBatch, Wait};
use sys::socket::refuse_new_datagrams;

/// What the control side asks of the receiving thread.
pub(crate) enum Request {
    /// A new reader that joins at the newest datagram.
    Join { lost: Arc<Tally>, reply: mpsc::Sender<(Reader, Amount)> },
    /// A thread to wake after each batch.
    Wake(Arc<Waker>),
    /// Something for the targets that this thread owns.
    Targets(Command),
}

/// Everything that the receiving thread works with.
pub(crate) struct Receiver {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) socket_owner: SocketOwner,
    pub(crate) writer: Writer,
    pub(crate) admission: Admission,
    pub(crate) meter: Arc<ListenerMeter>,
    pub(crate) targets: Targets,
    pub(crate) wakers: Vec<Arc<Waker>>,
    pub(crate) requests: Inbox<Request>,
    /// Set when `requests` is worth a look.
    pub(crate) has_requests: Arc<AtomicBool>,
    pub(crate) stop: Arc<StopState>,
    pub(crate) ticks: Arc<AtomicU64>,
}

/// Which sources may enter.
pub(crate) struct Admission {
    allow: Vec<Prefix>,
    deny: Vec<Prefix>,
}

impl Admission {
    pub(crate) fn new(options: &ListenerOptions) -> Admission {
        Admission { allow: options.allow_sources.clone(), deny: options.deny_sources.clone() }
    }

    fn admits(&self, source: &sys::Source) -> bool {
        (self.allow.is_empty() || contains(&self.allow, source)) && !contains(&self.deny, source)
    }

    fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }
}

impl Receiver {
    pub(crate) fn run(mut self) {
        let mut batch = ReceiveBatch::default();
        let mut set = PollSet::default();
        let mut has_more = false;
        while self.stop.deadline_ns.load(Ordering::Acquire) == 0 {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            if self.has_requests.swap(false, Ordering::Acquire) {
                self.serve_requests();
            }
            let wait = if has_more {
                Wait::No
            } else if self.targets.has_blocked() {
                self.wait_for_socket_or_targets(&mut set);
                Wait::No
            } else {
                Wait::ForOne
            };
            self.receive(&mut batch, wait);
            has_more = self.targets.pump(monotonic_ns(), realtime_ns());
        }
        self.finish(&mut batch);
    }

    pub(crate) fn serve_requests(&mut self) {
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Join { lost, reply } => {
                    let joined = self.writer.appended();
                    // A caller that has gone does not want the reader; dropping it frees the ring of it.
                    let _ = reply.send((self.writer.reader(lost), joined));
                }
                Request::Wake(waker) => self.wakers.push(waker),
                Request::Targets(command) => self.targets.apply(command),
            }
        }
        // A worker that has ended has dropped its half.
        self.wakers.retain(|waker| Arc::strong_count(waker) > 1);
    }

    fn wait_for_socket_or_targets(&mut self, set: &mut PollSet) {
        set.clear();
        set.add(self.socket.as_fd(), Interest::Readable);
        self.targets.watch(set);
        // An interrupted wait is a short one.
        let _ = set.wait(HOUSEKEEPING_INTERVAL);
        self.targets.unblock_ready(set, 1);
    }

    /// Takes one batch into the ring; returns whether there was one.
    fn receive(&mut self, batch: &mut ReceiveBatch, wait: Wait) -> bool {
        match batch.receive(self.socket.as_fd(), wait) {
            Ok(_) => {
                self.take_in(batch);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => {
                // The loop must go on: the next datagram may well arrive. It goes on slowly, so that an error that
                // stays does not take a processor.
                self.meter.receive_errors.add(1);
                let mut set = PollSet::default();
                let _ = set.wait(HOUSEKEEPING_INTERVAL / 10);
                false
            }
        }
    }

    fn take_in(&mut self, batch: &ReceiveBatch) {
        let received_ns = realtime_ns();
        let read: Amount =
            batch.datagrams().map(|datagram| Amount::one(datagram.bytes.len())).sum();
        self.meter.read.add(read);
        self.meter.batches.add(1);
        let mut accepted = Amount::default();
        let is_open = self.admission.is_open();
        for datagram in batch.datagrams() {
            let amount = Amount::one(datagram.bytes.len());
            if datagram.truncated {
                self.meter.receive.drop(Reason::Truncated, amount);
                continue;
            }
            if !is_open && !self.admission.admits(&datagram.source) {
                self.meter.receive.drop(Reason::SourceDenied, amount);
                continue;
            }
            if datagram.bytes.is_empty() {
                self.meter.empty_datagrams.add(1);
            }
            if !self.writer.has_free_room(datagram.bytes.len()) && !self.targets.is_empty() {
                // Targets of this thread get their turn before the ring takes their oldest from them.
                self.show(&mut accepted);
                self.targets.pump(monotonic_ns(), received_ns);
            }
            match self.writer.append(datagram.source, received_ns, datagram.bytes) {
                Ok(()) => accepted += amount,
                Err(_) => self.meter.receive.drop(Reason::RingGuard, amount),
            }
        }
        self.show(&mut accepted);
        for waker in &self.wakers {
            waker.wake();
        }
    }

    /// Counts what was appended, and only then lets readers see it: nothing can leave before it is counted as come in.
    fn show(&mut self, accepted: &mut Amount) {
        self.meter.receive.delivered.add(*accepted);
        *accepted = Amount::default();
        self.writer.publish();
    }

    /// Reads what is left, tells the workers, and drains this thread's own targets.
    fn finish(&mut self, batch: &mut ReceiveBatch) {
        let deadline_ns = self.stop.deadline_ns.load(Ordering::Acquire);
        self.serve_requests();
        if self.socket_owner == SocketOwner::Relay {
            self.meter.begin_stop();
            // If the filter cannot be attached, what arrives until the close is the kernel's to lose; there is no
            // other way to say so than the gap between the sender's count and ours.
            let is_refusing = refuse_new_datagrams(self.socket.as_fd()).is_ok();
            while self.receive(batch, Wait::No) && (is_refusing || monotonic_ns() < deadline_ns) {
                self.ticks.fetch_add(1, Ordering::Relaxed);
                self.targets.pump(monotonic_ns(), realtime_ns());
            }
        }
        self.stop.is_input_closed.store(true, Ordering::Release);
        for waker in &self.wakers {
            waker.wake();
        }
        let ticks = Arc::clone(&self.ticks);
        self.targets.drain(deadline_ns, || {
            ticks.fetch_add(1, Ordering::Relaxed);
        });
    }
}
