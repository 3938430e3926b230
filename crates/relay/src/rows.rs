//! A target that takes datagrams as rows: each is copied out of the ring into the memory of a sink, the receiver.
//!
//! Nothing is sent, and no claim outlasts the copies: what the receiver does with its memory later is up to the receiver. When it
//! reports that it has no room, the datagrams stay in the ring, which is then the queue. The receiver may take a lock, parse a
//! datagram, or panic, so each such target has a thread of its own, as files do.

use crate::TargetKind;
use crate::gate::Gate;
use crate::meter::TargetMeter;
use crate::pump::{Pump, Pumped, Replaced};
use crate::ring::{Claim, Reader, Times};
use ledger::{Amount, Reason};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use sys::Source;
use sys::poll::Interest;

/// How long a receiver that panicked is left alone, in nanoseconds: a panic may write to the log, and must not do so per
/// datagram.
const PANIC_PAUSE_NS: u64 = 1_000_000_000;

/// What a listener knows about one datagram. Truncated ones never get here: the listener counts them.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The payload.
    pub bytes: &'a [u8],
    /// The sender: an address and a port; [`Source::NONE`] for a unix datagram; unknown ([`Source::is_unknown`]) for a datagram
    /// received before any target of the listener asked for sources.
    pub source: Source,
    /// When the batch that contained it was read, in nanoseconds since 1970. For a datagram that came over a link: when the first
    /// Weir received it, by the clock of that host. It says nothing about age.
    pub received_unix_ns: u64,
    /// When this process read it, on the monotonic clock.
    pub arrived_ns: u64,
}

/// A receiver of datagrams as rows. Each call copies and returns: it does no I/O and waits for nothing but a short lock.
///
/// What it has taken counts as delivered, and the receiver accounts for it from then on, even if it drops it. All calls come from
/// one thread.
pub trait RowTarget: Send {
    /// Copies one datagram, or leaves it in the ring. A receiver that drops datagrams when it is out of room takes them and
    /// counts the drops itself.
    ///
    /// A call that panics has not taken its datagram, which is counted as `sink_panicked`. The receiver is used again after a
    /// second, and must discard what it holds of that datagram.
    fn take(&mut self, datagram: &Datagram<'_>) -> Taken;

    /// Passes on what was taken since the last call. Called within a quarter of a second after a datagram was taken, and before
    /// the receiver is dropped.
    fn flush(&mut self) -> Flushed;

    /// A descriptor that becomes readable when there is room again after `Full`. The receiver must clear it before checking for
    /// room: a descriptor that stays readable while every call returns `Full` keeps a processor busy. In any case the receiver is
    /// retried ten times a second, and a hundred times without a descriptor.
    fn ready_fd(&self) -> Option<BorrowedFd<'_>>;
}

impl fmt::Debug for dyn RowTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowTarget")
    }
}

/// Whether a receiver took a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    Yes,
    /// It has no room: the datagram stays in the ring and is offered again.
    Full,
}

/// Whether a receiver passed on what it had taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    Yes,
    /// There is no room for it: the call is repeated.
    Full,
}

/// A target that takes rows.
pub(crate) struct RowsTarget {
    reader: Reader,
    meter: Arc<TargetMeter>,
    handover: Handover,
    is_draining: bool,
}

impl RowsTarget {
    pub(crate) fn new(
        receiver: Box<dyn RowTarget>,
        reader: Reader,
        gate: Gate,
        meter: Arc<TargetMeter>,
    ) -> RowsTarget {
        let handover =
            Handover { receiver, gate, passed: None, is_open: false, paused_until_ns: None };
        RowsTarget { reader, meter, handover, is_draining: false }
    }

    /// Offers up to `claims_max` claims. Returns whether the receiver takes more.
    fn offer(&mut self, now_ns: u64, claims_max: usize) -> bool {
        for _ in 0..claims_max {
            let Some(mut claim) = self.reader.claim(&self.meter.sender) else { return true };
            if self.handover.hand_over(&mut claim, &self.meter, now_ns) != Ended::Done {
                return false;
            }
        }
        true
    }
}

/// The receiver, and the state kept between two claims.
struct Handover {
    receiver: Box<dyn RowTarget>,
    gate: Gate,
    /// Number of a datagram that passed the gate but for which the receiver had no room: the gate decides only once.
    passed: Option<u64>,
    /// Whether something was taken since the last flush.
    is_open: bool,
    /// Until when a receiver that panicked is left alone.
    paused_until_ns: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Done,
    Full,
    Panicked,
}

/// Progress within a claim.
#[derive(Default)]
struct Progress {
    /// Datagrams from its start that are handled.
    done: usize,
    taken: Amount,
    /// Datagrams read at `arrived_ns` whose delay is not counted yet.
    same_time: u64,
    arrived_ns: u64,
}

impl Progress {
    fn note_taken(&mut self, datagram: &Datagram<'_>, meter: &TargetMeter, now_ns: u64) {
        self.taken += Amount::one(datagram.bytes.len());
        // Datagrams of one receive batch share their time.
        if datagram.arrived_ns != self.arrived_ns {
            self.count_delay(meter, now_ns);
            self.arrived_ns = datagram.arrived_ns;
        }
        self.same_time += 1;
    }

    fn count_delay(&mut self, meter: &TargetMeter, now_ns: u64) {
        if self.same_time > 0 {
            let delay_us = now_ns.saturating_sub(self.arrived_ns) / 1_000;
            meter.delay.add(delay_us, self.same_time);
            self.same_time = 0;
        }
    }
}

impl Handover {
    /// Hands over the datagrams of a claim that pass the gate, and counts all that are handled.
    fn hand_over(&mut self, claim: &mut Claim<'_>, meter: &TargetMeter, now_ns: u64) -> Ended {
        let mut progress = Progress::default();

        let caught = catch_unwind(AssertUnwindSafe(|| {
            while progress.done < claim.len() {
                if self.hand_over_next(claim, &mut progress, meter, now_ns) == Taken::Full {
                    return Ended::Full;
                }
                progress.done += 1;
            }
            Ended::Done
        }));

        let ended = caught.unwrap_or_else(|_| {
            let (_, bytes) = claim.get(progress.done);
            meter.sender.drop(Reason::SinkPanicked, Amount::one(bytes.len()));
            progress.done += 1;
            self.paused_until_ns = Some(now_ns + PANIC_PAUSE_NS);
            Ended::Panicked
        });

        progress.count_delay(meter, now_ns);
        self.is_open |= !progress.taken.is_zero();
        meter.sender.delivered.add(progress.taken);
        // Last: from here on the writer may overwrite what was handled.
        claim.advance(progress.done);
        ended
    }

    /// Handles the next datagram of a claim, unless the receiver has no room for it.
    fn hand_over_next(
        &mut self,
        claim: &Claim<'_>,
        progress: &mut Progress,
        meter: &TargetMeter,
        now_ns: u64,
    ) -> Taken {
        let (descriptor, bytes) = claim.get(progress.done);
        let number = claim.first() + progress.done as u64;
        if self.passed != Some(number)
            && let Err(reason) = self.gate.decide(&descriptor.source, now_ns)
        {
            meter.sender.drop(reason, Amount::one(bytes.len()));
            return Taken::Yes;
        }

        let Times { received_unix_ns, arrived_ns } = descriptor.times;
        let datagram = Datagram { bytes, source: descriptor.source, received_unix_ns, arrived_ns };
        let taken = self.receiver.take(&datagram);
        match taken {
            Taken::Yes => progress.note_taken(&datagram, meter, now_ns),
            Taken::Full => self.passed = Some(number),
        }
        taken
    }

    /// Whether a panic was so recent that the receiver is left alone.
    fn is_paused(&mut self, now_ns: u64) -> bool {
        self.paused_until_ns = self.paused_until_ns.filter(|until_ns| now_ns < *until_ns);
        self.paused_until_ns.is_some()
    }

    /// Asks the receiver to pass on what it has taken.
    fn flush(&mut self, now_ns: u64) {
        if !self.is_open {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| self.receiver.flush())) {
            Ok(Flushed::Yes) => self.is_open = false,
            Ok(Flushed::Full) => {}
            // The receiver accounts for what it had taken. The next datagrams are tried after a pause.
            Err(_) => {
                self.is_open = false;
                self.paused_until_ns = Some(now_ns + PANIC_PAUSE_NS);
            }
        }
    }
}

impl Pump for RowsTarget {
    fn name(&self) -> &str {
        &self.meter.name
    }

    fn pump(&mut self, now_ns: u64, claims_max: usize) -> Pumped {
        if self.handover.is_paused(now_ns) || !self.offer(now_ns, claims_max) {
            return Pumped::Blocked;
        }
        if !self.reader.is_empty() {
            return Pumped::More;
        }

        if self.is_draining {
            self.handover.flush(now_ns);
        }
        if self.is_draining && self.handover.is_open { Pumped::Blocked } else { Pumped::Idle }
    }

    fn blocked_on(&self) -> Option<BorrowedFd<'_>> {
        // A receiver that panicked may well have room.
        if self.handover.paused_until_ns.is_some() {
            None
        } else {
            self.handover.receiver.ready_fd()
        }
    }

    fn blocked_until(&self) -> Interest {
        Interest::Readable
    }

    fn keep_house(&mut self, now_ns: u64) {
        if !self.handover.is_paused(now_ns) {
            self.handover.flush(now_ns);
        }
        self.meter.note_oldest(self.reader.oldest(), now_ns);
        self.meter.check_law(&self.reader);
        self.meter.reports_all.set(1);
        self.meter.note_state(now_ns);
    }

    fn is_idle(&self) -> bool {
        self.reader.is_empty()
    }

    fn head(&self) -> u64 {
        self.reader.head()
    }

    fn has_reached(&self, end: u64) -> bool {
        self.reader.cursor() >= end
    }

    fn has_outstanding(&mut self) -> bool {
        self.handover.is_open
    }

    fn begin_drain(&mut self, _now_ns: u64) {
        self.is_draining = true;
    }

    fn give_up_outstanding(&mut self) {
        self.handover.flush(sys::clock::monotonic_ns());
    }

    fn discard_until(&mut self, end: u64, reason: Reason) {
        self.reader.discard_until(end, reason, &self.meter.sender);
    }

    fn replace(&mut self, destination: TargetKind, gate: Option<Gate>) -> Replaced {
        let TargetKind::Rows(receiver) = destination else { return Replaced::No };
        self.handover.flush(sys::clock::monotonic_ns());

        let former = std::mem::replace(&mut self.handover.receiver, receiver);
        // A panic has been reported on standard error, and nothing more can be done about it.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(former)));
        self.handover.is_open = false;
        self.handover.paused_until_ns = None;
        if let Some(gate) = gate {
            self.handover.gate = gate;
        }
        Replaced::Yes
    }

    fn stop_at(&mut self, end: u64) {
        self.reader.stop_at(end);
    }

    fn leave(&mut self) {
        let seen = self.reader.leave(&self.meter.sender);
        self.meter.leave(seen);
    }
}
