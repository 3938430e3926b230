//! One target: takes datagrams from the ring, filters them, and has them sent.
//!
//! Nothing here touches a socket or a clock: the way out is an [`Outlet`], and callers pass in the time. So the same code runs
//! against the kernel and in the simulation.

mod sending;

pub(crate) use sending::reason_of;

use crate::TargetKind;
use crate::gate::Gate;
use crate::meter::TargetMeter;
use crate::pump::{Pump, Pumped, Replaced};
use crate::ring::{CLAIM_MAX, Claim, Reader};
use ledger::Reason;
use sending::{Ended, Work};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use sys::clock::monotonic_ns;
use sys::send::Message;
use sys::{Errno, Source};

/// Longest run that leaves as one message, in bytes: below the largest payload of IPv4 (65,507) and IPv6.
pub(crate) const RUN_BYTES_MAX: usize = 65_000;

/// Where a target's messages go: the kernel, or the simulation.
pub(crate) trait Outlet {
    /// Sends messages in order, without waiting, and returns how many were taken. A number below `messages.len()` means that the
    /// next one failed for a reason not known yet; an error is about the first message. Outlets that keep sources call `sources`.
    fn send(&mut self, messages: &[Message<'_>], sources: Sources<'_>) -> Result<usize, Errno>;

    /// What all datagrams of one message must have in common.
    fn in_common(&self) -> InCommon {
        InCommon::Nothing
    }

    /// Why a call would be pointless now: everything would come back. The rest of the claim is then counted for this reason
    /// without a call. `None` when it may get through or a probe is due. `now_ns` is the pump's time.
    fn refusing(&self, _now_ns: u64) -> Option<Reason> {
        None
    }

    /// Largest datagram that may be part of a run, in bytes. 0 for no runs. `now_ns` is the pump's time.
    fn run_datagram_bytes_max(&self, now_ns: u64) -> usize;

    /// A run of datagrams of this length was refused as such: form shorter ones, or none.
    fn limit_runs(&mut self, datagram_bytes: usize);

    /// Counts what the network has returned since the last call as drops of the egress hop.
    fn take_returned(&mut self, meter: &TargetMeter, now_ns: u64);

    /// Whether the next hop does not answer, so that nothing sent gets through.
    fn is_unanswered(&self) -> bool {
        false
    }

    /// Whether datagrams that were handed over may still come back.
    fn has_outstanding(&mut self) -> bool;

    /// Nothing more will enter the ring, and what is in it has until the stop's deadline.
    fn begin_drain(&mut self, _now_ns: u64) {}

    /// Stops waiting: decides about what was handed over and has not left.
    fn give_up_outstanding(&mut self);

    /// The descriptor to wait for after [`Errno::AGAIN`].
    fn socket(&self) -> Option<BorrowedFd<'_>>;

    /// Whether a socket is open, or will be as soon as its receiver is there.
    fn has_socket(&self) -> bool {
        self.socket().is_some()
    }

    /// Whether every datagram that does not arrive is returned, because the target is on this host.
    fn reports_all(&self) -> bool;

    /// Sends to another destination from the next message on.
    fn replace(&mut self, destination: TargetKind) -> Replaced;
}

/// What the senders of datagrams must share for the datagrams to leave as one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InCommon {
    Nothing,
    Address,
    AddressAndPort,
}

/// The source of the message at an index.
pub(crate) type Sources<'a> = &'a dyn Fn(usize) -> Source;

/// A target of one listener.
pub(crate) struct Target<O> {
    pub(crate) outlet: O,
    reader: Reader,
    gate: Gate,
    meter: Arc<TargetMeter>,
    /// The gate's decisions about the datagrams from `decided_from` on, so that it decides only once about each.
    decided_from: u64,
    decided: [Option<Reason>; CLAIM_MAX],
    decided_len: usize,
}

impl<O: Outlet> Target<O> {
    pub(crate) fn new(outlet: O, reader: Reader, gate: Gate, meter: Arc<TargetMeter>) -> Target<O> {
        Target {
            outlet,
            reader,
            gate,
            meter,
            decided_from: 0,
            decided: [None; CLAIM_MAX],
            decided_len: 0,
        }
    }

    /// Loses a datagram without counting it, as a bug would. Returns whether there was one.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn leak_one(&mut self) -> bool {
        let nobodys = ledger::Counters::default();
        let claim = self.reader.claim(&nobodys);
        claim.map(|mut claim| claim.advance(1)).is_some()
    }

    /// Counts what came back from the network, and updates whether more arrives than comes back.
    fn settle(&mut self, now_ns: u64) {
        self.outlet.take_returned(&self.meter, now_ns);
        match self.outlet.is_unanswered() {
            true => self.meter.note_unanswered(),
            false => self.meter.note_state(now_ns),
        }
    }
}

impl<O: Outlet + Send> Pump for Target<O> {
    fn name(&self) -> &str {
        &self.meter.name
    }

    fn pump(&mut self, now_ns: u64, claims_max: usize) -> Pumped {
        for _ in 0..claims_max {
            let Some(mut claim) = self.reader.claim(&self.meter.sender) else {
                return Pumped::Idle;
            };

            let decided = if self.gate.is_open() {
                None
            } else {
                let mut decided = Decided {
                    from: &mut self.decided_from,
                    len: &mut self.decided_len,
                    reasons: &mut self.decided,
                };
                decide_all(&mut self.gate, &claim, now_ns, &mut decided);
                Some(&self.decided[..])
            };

            let mut work = Work {
                outlet: &mut self.outlet,
                meter: &self.meter,
                decided,
                now_ns,
                done: 0,
                retries: 0,
            };
            if work.send_all(&mut claim) == Ended::Blocked {
                return Pumped::Blocked;
            }
        }

        if self.reader.is_empty() { Pumped::Idle } else { Pumped::More }
    }

    fn blocked_on(&self) -> Option<BorrowedFd<'_>> {
        self.outlet.socket()
    }

    fn keep_house(&mut self, now_ns: u64) {
        self.settle(now_ns);
        self.meter.note_oldest(self.reader.oldest(), now_ns);
        self.meter.check_law(&self.reader);

        let can_run = self.outlet.run_datagram_bytes_max(now_ns) > 0;
        self.meter.gso.set(u64::from(can_run));
        self.meter.reports_all.set(u64::from(self.outlet.reports_all()));
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
        self.outlet.has_outstanding()
    }

    fn begin_drain(&mut self, now_ns: u64) {
        self.outlet.begin_drain(now_ns);
    }

    fn give_up_outstanding(&mut self) {
        self.outlet.give_up_outstanding();
    }

    fn discard_until(&mut self, end: u64, reason: Reason) {
        self.reader.discard_until(end, reason, &self.meter.sender);
    }

    fn replace(&mut self, destination: TargetKind, gate: Option<Gate>) -> Replaced {
        // What the old socket has reported so far belongs to this account; the socket closes with its outlet.
        self.outlet.give_up_outstanding();
        self.settle(monotonic_ns());

        let had_socket = self.outlet.has_socket();
        let replaced = self.outlet.replace(destination);
        let is_renewal = had_socket && replaced == Replaced::Yes && self.outlet.has_socket();
        self.meter.socket_renewals.add(is_renewal.into());
        if let (Replaced::Yes, Some(gate)) = (replaced, gate) {
            // The old gate's decisions stand: no datagram is decided about twice.
            self.gate = gate;
        }
        self.keep_house(monotonic_ns());

        replaced
    }

    fn stop_at(&mut self, end: u64) {
        self.reader.stop_at(end);
    }

    fn leave(&mut self) {
        let seen = self.reader.leave(&self.meter.sender);
        self.meter.leave(seen);
    }
}

/// The gate's decisions, by datagram number.
struct Decided<'a> {
    from: &'a mut u64,
    len: &'a mut usize,
    reasons: &'a mut [Option<Reason>; CLAIM_MAX],
}

/// Decides about the datagrams of a claim that were not decided about before.
fn decide_all(gate: &mut Gate, claim: &Claim<'_>, now_ns: u64, decided: &mut Decided<'_>) {
    // A claim that ended early because the outlet was blocked is followed by one that starts in the middle of it. What both cover
    // was already decided, and counted against sample and rate.
    let known_end = *decided.from + *decided.len as u64;
    let known = known_end.saturating_sub(claim.first()).min(claim.len() as u64) as usize;

    if known > 0 {
        let skip = (claim.first() - *decided.from) as usize;
        decided.reasons.copy_within(skip..skip + known, 0);
    }

    for index in known..claim.len() {
        let (descriptor, _) = claim.get(index);
        decided.reasons[index] = gate.decide(&descriptor.source, now_ns).err();
    }

    *decided.from = claim.first();
    *decided.len = claim.len();
}
