//! A target that takes datagrams as rows: each is copied out of the ring into memory of the receiver, a sink.
//!
//! Nothing is sent, and no claim lasts longer than the copies: what the receiver does with its memory later is its own
//! business. Where it has no room and says so, the datagrams stay in the ring, which is then the queue. The receiver may take a
//! lock, read a datagram's text, or panic, so that each such target has a thread of its own, as files have.

use crate::TargetKind;
use crate::gate::Gate;
use crate::meter::TargetMeter;
use crate::pump::{Pump, Pumped, Replaced};
use crate::ring::{Claim, Reader};
use ledger::{Amount, Reason};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use sys::Source;
use sys::poll::Interest;

/// How long a receiver that panicked is left alone, in nanoseconds: a panic may write to the log, and that not for each datagram.
const PANIC_PAUSE_NS: u64 = 1_000_000_000;

/// What a listener knows about one datagram. A truncated one never gets here: the listener counts it.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The payload.
    pub bytes: &'a [u8],
    /// Who sent it: an address and a port; [`Source::NONE`] for the sender of a unix datagram; unknown
    /// ([`Source::is_unknown`]) for what was received before any target of the listener asked for sources.
    pub source: Source,
    /// When the batch that brought it was read, in nanoseconds since 1970.
    pub received_unix_ns: u64,
}

/// What takes datagrams as rows. Each call copies and returns: it does no I/O, and waits for nothing but a short lock.
///
/// What it has taken counts as delivered, and is its own to account for from then on, also when it is dropped. All
/// calls come from one thread.
pub trait RowTarget: Send {
    /// Copies one datagram, or leaves it in the ring. A receiver that drops what it has no room for takes it and counts
    /// that itself.
    ///
    /// A call that panics has not taken its datagram, which is counted as `sink_panicked`. The receiver is used on after a
    /// second: what it holds of that datagram, it forgets.
    fn take(&mut self, datagram: &Datagram<'_>) -> Taken;

    /// Hands on what was taken since the last time. Called within a quarter of a second after a datagram was taken, and before
    /// the receiver is dropped.
    fn flush(&mut self) -> Flushed;

    /// Becomes readable when there is room again after `Full`. The receiver takes that note back before it looks for room:
    /// one that stays readable while every call says `Full` keeps a processor busy. It is tried again ten times a second
    /// in any case, and a hundred times without a descriptor.
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
    /// It has no room: the datagram stays in the ring, and is offered again.
    Full,
}

/// Whether a receiver handed on what it had taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    Yes,
    /// There is no room for it: asked for again.
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
    fn offer(&mut self, now_ns: u64, realtime_ns: u64, claims_max: usize) -> bool {
        for _ in 0..claims_max {
            let Some(mut claim) = self.reader.claim(&self.meter.sender) else { return true };
            if self.handover.hand_over(&mut claim, &self.meter, now_ns, realtime_ns) != Ended::Done
            {
                return false;
            }
        }
        true
    }
}

/// The receiver, and what is to be known of it between two claims.
struct Handover {
    receiver: Box<dyn RowTarget>,
    gate: Gate,
    /// The number of a datagram that the gate let through and the receiver had no room for: the gate is asked once.
    passed: Option<u64>,
    /// Something was taken since the last flush.
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

/// What became of a claim so far.
#[derive(Default)]
struct Progress {
    /// Datagrams from its beginning that are dealt with.
    done: usize,
    taken: Amount,
    /// Datagrams that were received at `received_ns`, and whose delay is not counted yet.
    same_time: u64,
    received_ns: u64,
}

impl Progress {
    fn note_taken(&mut self, datagram: &Datagram<'_>, meter: &TargetMeter, realtime_ns: u64) {
        self.taken += Amount::one(datagram.bytes.len());
        // Datagrams of one receive batch share their time.
        if datagram.received_unix_ns != self.received_ns {
            self.count_delay(meter, realtime_ns);
            self.received_ns = datagram.received_unix_ns;
        }
        self.same_time += 1;
    }

    fn count_delay(&mut self, meter: &TargetMeter, realtime_ns: u64) {
        if self.same_time > 0 {
            let delay_us = realtime_ns.saturating_sub(self.received_ns) / 1_000;
            meter.delay.add(delay_us, self.same_time);
            self.same_time = 0;
        }
    }
}

impl Handover {
    /// Hands over the datagrams of a claim that pass the gate, and counts all that are dealt with.
    fn hand_over(
        &mut self,
        claim: &mut Claim<'_>,
        meter: &TargetMeter,
        now_ns: u64,
        realtime_ns: u64,
    ) -> Ended {
        let mut progress = Progress::default();

        let caught = catch_unwind(AssertUnwindSafe(|| {
            while progress.done < claim.len() {
                if self.hand_over_next(claim, &mut progress, meter, now_ns, realtime_ns)
                    == Taken::Full
                {
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

        progress.count_delay(meter, realtime_ns);
        self.is_open |= !progress.taken.is_zero();
        meter.sender.delivered.add(progress.taken);
        // Last: from here on the writer may overwrite what was dealt with.
        claim.advance(progress.done);
        ended
    }

    /// Deals with the next datagram of a claim, unless the receiver has no room for it.
    fn hand_over_next(
        &mut self,
        claim: &Claim<'_>,
        progress: &mut Progress,
        meter: &TargetMeter,
        now_ns: u64,
        realtime_ns: u64,
    ) -> Taken {
        let (descriptor, bytes) = claim.get(progress.done);
        let number = claim.first() + progress.done as u64;
        if self.passed != Some(number)
            && let Err(reason) = self.gate.decide(&descriptor.source, now_ns)
        {
            meter.sender.drop(reason, Amount::one(bytes.len()));
            return Taken::Yes;
        }

        let datagram =
            Datagram { bytes, source: descriptor.source, received_unix_ns: descriptor.received_ns };
        let taken = self.receiver.take(&datagram);
        match taken {
            Taken::Yes => progress.note_taken(&datagram, meter, realtime_ns),
            Taken::Full => self.passed = Some(number),
        }
        taken
    }

    /// Whether a panic was so recent that the receiver is left alone.
    fn is_paused(&mut self, now_ns: u64) -> bool {
        self.paused_until_ns = self.paused_until_ns.filter(|until_ns| now_ns < *until_ns);
        self.paused_until_ns.is_some()
    }

    /// Has the receiver hand on what it has taken.
    fn flush(&mut self, now_ns: u64) {
        if !self.is_open {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| self.receiver.flush())) {
            Ok(Flushed::Yes) => self.is_open = false,
            Ok(Flushed::Full) => {}
            // What it had taken is its own to count. What comes next is tried after a pause.
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

    fn pump(&mut self, now_ns: u64, realtime_ns: u64, claims_max: usize) -> Pumped {
        if self.handover.is_paused(now_ns) || !self.offer(now_ns, realtime_ns, claims_max) {
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

    fn keep_house(&mut self, now_ns: u64, realtime_ns: u64) {
        if !self.handover.is_paused(now_ns) {
            self.handover.flush(now_ns);
        }
        self.meter.note_age(self.reader.oldest_received_ns(), realtime_ns);
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
        // A panic has said so on standard error, and there is nothing more to do with it.
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
