//! From a received batch into the ring: admission, counting, storing.

use crate::ListenerOptions;
use crate::meter::ListenerMeter;
use crate::prefix::PrefixSet;
use crate::pump::{CLAIMS_MAX_UNDER_LOAD, Targets};
use crate::ring::{Times, Writer};
use crate::trust::Trust;
use ledger::{Amount, Reason};
use std::sync::Arc;
use sys::Source;
use sys::clock::{Now, monotonic_ns};
use sys::recv::{Payload, Received};

/// The writing side of a listener. It touches neither a socket nor a clock, so it runs in the simulation too.
pub(crate) struct Intake {
    pub(crate) writer: Writer,
    pub(crate) admission: Admission,
    pub(crate) meter: Arc<ListenerMeter>,
}

/// Which sources are admitted.
pub(crate) struct Admission {
    allow: PrefixSet,
    deny: PrefixSet,
    /// The senders whose headers are stripped first. `None` when there are none.
    trust: Option<Trust>,
}

impl Admission {
    pub(crate) fn new(options: &ListenerOptions) -> Admission {
        Admission {
            allow: PrefixSet::new(&options.allow_sources),
            deny: PrefixSet::new(&options.deny_sources),
            trust: Trust::new(&options.trust_header_from),
        }
    }

    fn admits(&self, source: &Source) -> bool {
        (self.allow.is_empty() || self.allow.contains(source)) && !self.deny.contains(source)
    }

    fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }
}

impl Intake {
    /// Takes a batch into the ring and shows it to the readers. `targets` are those of the same thread: they get a turn before
    /// the ring would take their oldest datagrams. `now` is the time of the read.
    pub(crate) fn take_in<'a, I: Iterator<Item = Received<'a>>>(
        &mut self,
        datagrams: impl Fn() -> I,
        now: Now,
        targets: &mut Targets,
    ) {
        // Counted before anything is dropped or taken in, so the difference, which is in flight, is never negative.
        let read: Amount = datagrams().map(|datagram| Amount::one(datagram.payload.len())).sum();
        let headers_bytes = match &mut self.admission.trust {
            Some(trust) => trust.look_at(datagrams(), &self.writer),
            None => 0,
        };
        self.meter.read.add(Amount { bytes: read.bytes - headers_bytes, ..read });

        let is_open = self.admission.is_open();
        let mut accepted = Amount::default();
        for (at, mut datagram) in datagrams().enumerate() {
            if let Some(trust) = &self.admission.trust
                && trust.take_off(at, &mut datagram).is_err()
            {
                self.meter.receive.drop(Reason::BadHeader, Amount::one(datagram.payload.len()));
                continue;
            }

            let amount = Amount::one(datagram.payload.len());
            if datagram.truncated {
                self.meter.receive.drop(Reason::Truncated, amount);
                continue;
            }
            if !is_open && !self.admission.admits(&datagram.source) {
                self.meter.receive.drop(Reason::SourceDenied, amount);
                continue;
            }

            if datagram.payload.is_empty() {
                self.meter.empty_datagrams.add(1);
            }

            let source = datagram.source;
            let received_unix_ns = datagram.stamp_unix_ns.unwrap_or(now.realtime_ns);
            let times = Times { received_unix_ns, arrived_ns: now.monotonic_ns };
            match datagram.payload {
                Payload::InRoom { offset, len } => {
                    self.writer.append_in_place(source, times, offset, len);
                    accepted += amount;
                }
                Payload::Bytes(bytes) => {
                    self.store(source, times, bytes, &mut accepted, targets);
                }
            }
        }

        self.show(&mut accepted);
    }

    /// Takes one datagram into the ring that did not come through the listener's socket. The caller must soon show what was
    /// `accepted`.
    pub(crate) fn take_one(
        &mut self,
        source: Source,
        times: Times,
        bytes: &[u8],
        accepted: &mut Amount,
        targets: &mut Targets,
    ) {
        let amount = Amount::one(bytes.len());
        self.meter.read.add(amount);
        if !self.admission.is_open() && !self.admission.admits(&source) {
            self.meter.receive.drop(Reason::SourceDenied, amount);
            return;
        }
        if bytes.is_empty() {
            self.meter.empty_datagrams.add(1);
        }
        self.store(source, times, bytes, accepted, targets);
    }

    /// Copies one datagram into the ring. Shows what was `accepted` first if readers would otherwise lose some of it.
    pub(crate) fn store(
        &mut self,
        source: Source,
        times: Times,
        bytes: &[u8],
        accepted: &mut Amount,
        targets: &mut Targets,
    ) {
        if !self.writer.has_room_without_loss(bytes.len()) {
            // A reader may lose only what it could see and what is counted as received. The targets of this thread get their turn
            // first.
            self.show(accepted);
            targets.pump(monotonic_ns(), CLAIMS_MAX_UNDER_LOAD);
        }

        let amount = Amount::one(bytes.len());
        match self.writer.append(source, times, bytes) {
            Ok(()) => *accepted += amount,
            Err(_) => self.meter.receive.drop(Reason::RingGuard, amount),
        }
    }

    /// Counts what was appended, and only then shows it to readers: nothing can leave before it is counted as received.
    pub(crate) fn show(&mut self, accepted: &mut Amount) {
        self.meter.receive.delivered.add(*accepted);
        *accepted = Amount::default();
        self.writer.publish();
    }
}
