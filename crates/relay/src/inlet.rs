//! A listening socket and how it is read: one batch at a time, into a ring.

use crate::SocketOwner;
use crate::arrivals::Arrivals;
use crate::intake::Intake;
use crate::pump::{CLAIMS_MAX, HOUSEKEEPING_INTERVAL, Targets};
use crate::socket::ListenSocket;
use crate::worker::StopState;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::Errno;
use sys::clock::{Clock, Now, monotonic_ns};
use sys::gro::SEGMENTS_MAX;
use sys::poll::PollSet;
use sys::recv::{Aggregates, Ask, ReceiveBatch, Room, Sources, Stamps, Wait};
use sys::socket::{leave_port, mem_info};

/// A socket, as seen by the thread that reads it.
pub(crate) struct Inlet {
    pub(crate) socket: Arc<ListenSocket>,
    pub(crate) owner: SocketOwner,
    pub(crate) arrivals: Arrivals,
    /// Whether any target or filter needs the sources of datagrams.
    pub(crate) asks_for_sources: Arc<AtomicBool>,
    /// Whether datagrams carry the time of their arrival at the host, or of the read of their batch.
    pub(crate) stamps: Stamps,
    pub(crate) batch: ReceiveBatch,
    pub(crate) clock: Clock,
}

/// Result of a receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    /// A full batch: there is probably more.
    Full,
    Some,
    Nothing,
    Failed,
}

/// Assumed maximum length of a datagram when nothing longer was seen lately: the payload of a 1,500-byte frame.
const USUAL_BYTES: usize = 1_472;

/// What to do with datagrams that do not fit the ring while a socket is emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FullRing {
    /// Readers lose their oldest datagrams.
    Loses,
    /// They stay in the socket until there is room, or until the deadline.
    IsWaitedFor,
}

/// Time between two checks for room in the ring.
pub(crate) const ROOM_PAUSE: Duration = Duration::from_micros(100);

/// How often to read again a socket that returns no datagram while the kernel still charges memory to it.
const EMPTY_LOOKS_MAX: u32 = 1_000;

impl Inlet {
    /// Receives one batch into the ring. Returns the result and the time.
    pub(crate) fn receive(
        &mut self,
        intake: &mut Intake,
        targets: &mut Targets,
        wait: Wait,
    ) -> (Read, Now) {
        let plan = self.arrivals.plan();
        let datagrams_max = plan.count * self.datagrams_each_max();
        let writer = &mut intake.writer;
        // Before asking for room: an empty ring starts over at its first bytes, which are still in the processor's cache.
        writer.rewind_if_empty(plan.bytes);

        let room = plan.stride_bytes.and_then(|stride_bytes| {
            let bytes = writer.room(datagrams_max, plan.count * stride_bytes)?;
            Some(Room { bytes, stride_bytes })
        });

        let sources = match self.asks_for_sources.load(Ordering::Acquire) {
            true => Sources::Wanted,
            false => Sources::Unwanted,
        };
        let aggregates = match self.socket.aggregates() {
            Some(_) => Aggregates::Some,
            None => Aggregates::Never,
        };
        let ask = Ask { count_max: plan.count, sources, stamps: self.stamps, aggregates, room };
        let received = self.batch.receive_into(self.socket.as_fd(), wait, ask);
        // One time for the whole batch: a clock call for each datagram would cost more than it is worth.
        let now = self.clock.now();

        let read = match received {
            Ok(count) => {
                intake.meter.batches.add(1);
                self.take_in(count, intake, targets, now);
                if count == plan.count { Read::Full } else { Read::Some }
            }
            Err(Errno::AGAIN) => {
                if let Some(aggregates) = self.socket.aggregates() {
                    aggregates.note_empty();
                }
                Read::Nothing
            }
            Err(Errno::INTR) => Read::Failed,
            Err(_) => {
                // The loop must go on: the next datagram may well arrive. It goes on slowly, so that a persistent error does not
                // use up a processor.
                intake.meter.receive_errors.add(1);
                let mut set = PollSet::default();
                let _ = set.wait(HOUSEKEEPING_INTERVAL / 10);
                Read::Failed
            }
        };

        (read, now)
    }

    /// Takes the `count` messages of the last batch into the ring.
    fn take_in(&mut self, count: usize, intake: &mut Intake, targets: &mut Targets, now: Now) {
        let messages = || self.batch.datagrams();
        self.arrivals.note(messages().map(|message| message.payload.len()));

        let Some(aggregates) = self.socket.aggregates() else {
            intake.take_in(messages, now, targets);
            return;
        };
        let read_before = intake.meter.read.load().count;
        intake.take_in(|| self.batch.segments(), now, targets);
        let datagrams = intake.meter.read.load().count - read_before;
        aggregates.note_read(count as u64, datagrams);
    }

    /// Maximum number of datagrams in one message of this socket.
    fn datagrams_each_max(&self) -> usize {
        if self.socket.aggregates().is_some() { SEGMENTS_MAX } else { 1 }
    }

    /// Whether the ring should take a whole batch without loss, judging by the last ones, and have a quarter left after that: a
    /// reader further behind drops its oldest datagrams.
    pub(crate) fn has_room(&self, intake: &mut Intake) -> bool {
        let plan = self.arrivals.plan();
        let bytes = plan.bytes.max(plan.count * USUAL_BYTES);
        intake.writer.has_quarter_beyond(plan.count * self.datagrams_each_max(), bytes)
    }

    /// Closes the socket to new datagrams and reads what waits in it, unless another process keeps the socket. Calls `shown`
    /// after each batch.
    pub(crate) fn finish(
        &mut self,
        intake: &mut Intake,
        targets: &mut Targets,
        stop: &StopState,
        full_ring: FullRing,
        shown: &mut dyn FnMut(),
    ) {
        let keeps_socket = stop.keeps_socket.load(Ordering::Acquire);
        if self.owner != SocketOwner::Relay || keeps_socket {
            return;
        }

        intake.meter.begin_stop();
        // If the filter cannot be attached, the kernel loses what arrives until the close. Only the gap between the sender's
        // count and ours then shows it.
        let is_refusing = self.socket.refuse_new_datagrams().is_ok();
        self.empty(intake, targets, stop, (is_refusing, full_ring), shown);
        if is_refusing {
            intake.meter.end_stop();
        }
        // The socket is empty. What arrives from here on is lost, as it would be after the close.
        leave_port(self.socket.as_fd());
    }

    /// Reads what waits in the socket. If `is_refusing`, the socket accepts nothing more.
    fn empty(
        &mut self,
        intake: &mut Intake,
        targets: &mut Targets,
        stop: &StopState,
        (is_refusing, full_ring): (bool, FullRing),
        shown: &mut dyn FnMut(),
    ) {
        let mut looks = 0;

        loop {
            let is_late = monotonic_ns() >= stop.deadline_ns.load(Ordering::Acquire);
            if full_ring == FullRing::IsWaitedFor && !is_late && !self.has_room(intake) {
                shown();
                sys::poll::pause(ROOM_PAUSE);
                continue;
            }
            let (read, _) = self.receive(intake, targets, Wait::No);
            shown();

            match read {
                // If the filter does not refuse, a fast sender could keep this going beyond the deadline.
                Read::Full | Read::Some if is_late && !is_refusing => return,
                Read::Full | Read::Some => {
                    let now = self.clock.now();
                    targets.pump(now.monotonic_ns, CLAIMS_MAX);
                }
                // Datagrams that passed before the filter was attached may still be on their way into the queue.
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
