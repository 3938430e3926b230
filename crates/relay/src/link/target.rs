//! A target that is another Weir.
//!
//! The ring holds what may have to be resent: the reader's cursor is at the oldest unsettled datagram. A look at the ring lasts
//! only as long as it takes to seal a batch, and makes no system call.

use super::kept::SenderFile;
use super::{LinkOptions, STATE_PATIENCE, STATE_PAUSE};
use crate::TargetKind;
use crate::gate::Gate;
use crate::meter::{LinkPeer, PeerKind, TargetMeter};
use crate::pump::{Attends, Pump, Pumped, Replaced};
use crate::ring::{Descriptor, Look, Reader};
use hop::packet::{Origin, Sender as From};
use hop::{Fates, Near, Next, Taken};
use ledger::{Amount, Event, Gauge, Reason};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use sys::clock::{monotonic_ns, realtime_ns};
use sys::recv::{Payload, ReceiveBatch, Wait};
use sys::send::{Message, SEGMENTS_MAX, send_messages};
use sys::{Errno, Source};

/// Maximum number of packets sealed before they are sent.
const PACKETS_MAX: usize = 64;

/// Longest packet of the other end, in bytes: a report or a welcome.
const ANSWER_BYTES_MAX: usize = 1_024;

/// Longest run of packets that leaves as one message, in bytes.
const RUN_BYTES_MAX: usize = 65_000;

/// Maximum number of batches of answers read before anything is sent.
const ANSWER_BATCHES_MAX: usize = 8;

/// Sealed packets, one after another.
#[derive(Default)]
struct Sealed {
    bytes: Vec<u8>,
    /// Offset at which each ends.
    ends: Vec<usize>,
    /// Number of packets that have left.
    sent: usize,
}

impl Sealed {
    fn note_end(&mut self) {
        // A packet that could not be sealed is not there.
        if self.bytes.len() > self.ends.last().copied().unwrap_or(0) {
            self.ends.push(self.bytes.len());
        }
    }

    fn is_empty(&self) -> bool {
        self.sent == self.ends.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.sent = 0;
    }

    fn begin(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.ends[at - 1] }
    }

    /// The packets from `from` on that can leave as one message: all of one length, except that the last may be shorter.
    fn message(&self, from: usize, runs: bool) -> (Message<'_>, usize) {
        let begin = self.begin(from);
        let first = self.ends[from] - begin;
        let mut until = from + 1;
        while runs && until < self.ends.len() && until - from < SEGMENTS_MAX {
            let len = self.ends[until] - self.ends[until - 1];
            let is_full = self.ends[until] - begin > RUN_BYTES_MAX;
            let follows = self.ends[until - 1] - self.begin(until - 1) == first;
            if is_full || !follows || len > first {
                break;
            }
            until += 1;
        }
        let bytes = &self.bytes[begin..self.ends[until - 1]];
        match until - from {
            1 => (Message::single(bytes), until),
            _ => (Message::run(bytes, first as u16), until),
        }
    }
}

/// A link target of one listener.
pub(crate) struct LinkTarget {
    reader: Reader,
    gate: Gate,
    meter: Arc<TargetMeter>,
    socket: Option<OwnedFd>,
    near: Near,
    deadline_ns: u64,
    /// Everything in the ring that was examined so far.
    offered: Amount,
    /// The fates counted so far.
    counted: Fates,
    sealed: Sealed,
    state: State,
    /// Whether the kernel accepts runs.
    runs: bool,
    answers: ReceiveBatch,
    answer: Vec<u8>,
    /// When the sender next has to act without outside input, and how far the ring was examined when that was computed.
    due_ns: u64,
    looked_to: u64,
    is_ended: bool,
}

impl LinkTarget {
    pub(crate) fn new(
        socket: Option<OwnedFd>,
        options: LinkOptions,
        reader: Reader,
        gate: Gate,
        meter: Arc<TargetMeter>,
        joined: Amount,
    ) -> LinkTarget {
        let deadline_ns = options.deadline.as_nanos() as u64;
        let LinkOptions { key, identity, sender, .. } = options.clone();
        LinkTarget {
            reader,
            gate,
            meter,
            socket,
            near: Near::new(key, identity, sender, monotonic_ns()),
            deadline_ns,
            offered: joined,
            counted: Fates::default(),
            sealed: Sealed::default(),
            state: State::new(options),
            runs: true,
            answers: ReceiveBatch::with_buffer_bytes(ANSWER_BYTES_MAX),
            answer: Vec::new(),
            due_ns: 0,
            looked_to: 0,
            is_ended: false,
        }
    }

    /// Reads what the other end sent.
    fn hear(&mut self, now_ns: u64) {
        let Some(socket) = &self.socket else { return };
        for _ in 0..ANSWER_BATCHES_MAX {
            // An error concerns an earlier send: missing packets are resent, and silence is noticed.
            if self.answers.receive(socket.as_fd(), Wait::No).is_err() {
                return;
            }
            for datagram in self.answers.datagrams() {
                let Payload::Bytes(bytes) = datagram.payload else { continue };
                self.answer.clear();
                self.answer.extend_from_slice(bytes);
                self.near.on_packet(now_ns, &mut self.answer);
            }
        }
    }

    /// Seals what is to be sent now, at most one batch. Returns whether there is more.
    fn seal(&mut self, now_ns: u64) -> bool {
        self.sealed.clear();
        self.looked_to = self.reader.end();
        self.state.open(&mut self.near, now_ns);
        let has_state = !matches!(self.state, State::Awaited { .. });
        let may_begin = has_state && self.socket.is_some();
        if may_begin && self.near.hello(now_ns, realtime_ns(), &mut self.sealed.bytes) {
            self.sealed.note_end();
        }

        let LinkTarget { reader, near, gate, meter, sealed, offered, .. } = self;
        let mut turn =
            Turn { near, gate, meter, sealed, offered, deadline_ns: self.deadline_ns, now_ns };
        let (has_more, due_ns) = match reader.look() {
            Some(mut look) => {
                turn.note_lapped(&look);
                let ended = turn.fill(Some(&look));
                let keeps_from = turn.near.keeps_from().unwrap_or(u64::MAX);
                look.advance(keeps_from.min(turn.offered.count));
                ended
            }
            None => turn.fill(None),
        };
        self.due_ns = due_ns;
        // Persist the state before anything leaves.
        self.state.keep(&self.near);
        has_more
    }

    /// Sends the sealed packets. Returns whether all have left; those lost to an error will be repaired.
    fn send(&mut self) -> bool {
        // Nothing is sealed before there is a socket.
        let Some(socket) = &self.socket else { return true };
        while !self.sealed.is_empty() {
            let (message, until) = self.sealed.message(self.sealed.sent, self.runs);
            self.meter.send_calls.add(1);
            match send_messages(socket.as_fd(), &[message]) {
                Ok(_) => self.sealed.sent = until,
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL | Errno::IO | Errno::MSGSIZE) if message.datagrams > 1 => {
                    self.runs = false;
                }
                Err(errno) => {
                    // This packet was not sent, or an earlier one came back. Either way the other end will not report it.
                    self.meter.count_error(errno);
                    self.sealed.sent = until;
                }
            }
        }
        true
    }

    /// Counts what became of datagrams since the last call.
    fn count(&mut self) {
        let (now, before) = (self.near.fates(), self.counted);
        if now == before {
            return;
        }
        let more = |now: hop::Amount, before: hop::Amount| Amount {
            count: now.datagrams - before.datagrams,
            bytes: now.bytes - before.bytes,
        };
        let sender = &self.meter.sender;
        sender.delivered.add(more(now.delivered, before.delivered));
        let drops = [
            (Reason::Expired, now.expired, before.expired),
            (Reason::QueueFull, now.lapped, before.lapped),
            (Reason::Shutdown, now.ended, before.ended),
        ];
        for (reason, now, before) in drops {
            if now != before {
                sender.drop(reason, more(now, before));
            }
        }
        self.meter.uncertain.add(more(now.uncertain, before.uncertain));
        self.counted = now;
    }

    /// Publishes what is known about the path and the other end.
    fn note_way(&self, now_ns: u64) {
        let (way, counts, fates) = (self.near.way(), self.near.counts(), self.near.fates());
        let events = [
            (Event::Packets, way.packets),
            (Event::Repairs, way.repairs),
            (Event::RepairsSpurious, way.spurious),
            (Event::Reports, counts.reports),
            (Event::Sessions, counts.sessions),
            (Event::PeerRestarts, counts.lost_memories),
            (Event::ForgedPackets, counts.forged),
            (Event::ReplayedPackets, counts.replayed),
            (Event::PossibleDuplicates, fates.possible_duplicates),
            (Event::Contradictions, fates.contradictions),
            (Event::LostInCrash, self.near.earlier().lost_in_crash.datagrams),
        ];
        let gauges = [
            (Gauge::RoundTripUs, way.round_trip_ns.unwrap_or(0) / 1_000),
            (Gauge::PathLossPpm, way.lost_per_million.into()),
            (Gauge::RateBytes, way.rate_bytes_per_sec),
            (Gauge::StateKept, matches!(self.state, State::Kept(_)).into()),
        ];
        self.meter.link.show(&events, &gauges);
        let near = &self.near;
        let peer = near.peer().map(|(run, life)| {
            let kind = PeerKind::Receiver {
                delivered_before: near.delivered_before(),
                accepted_earlier: near.accepted_earlier(),
                earlier: near.earlier(),
            };
            LinkPeer { run, life, kind }
        });
        // If a reader holds the lock, the next attempt follows soon.
        let _ = self.meter.link.show_peers(peer.into_iter());
        match self.near.is_answered(now_ns) {
            true => self.meter.note_state(now_ns),
            false => self.meter.note_unanswered(),
        }
    }

    fn end(&mut self) {
        if !self.is_ended {
            self.is_ended = true;
            self.near.end();
            self.state.keep(&self.near);
            self.count();
        }
    }
}

/// The state that outlives the process.
enum State {
    Unwanted,
    /// Another process or target still holds the file.
    Awaited {
        options: Box<LinkOptions>,
        due_ns: u64,
        until_ns: u64,
    },
    Kept(SenderFile),
    /// The file could not be opened. The figures show that; it is no reason to stop sending.
    Failed,
}

impl State {
    fn new(options: LinkOptions) -> State {
        let now_ns = monotonic_ns();
        let until_ns = now_ns + STATE_PATIENCE.as_nanos() as u64;
        match options.state {
            Some(_) => State::Awaited { options: Box::new(options), due_ns: now_ns, until_ns },
            None => State::Unwanted,
        }
    }

    /// Opens the file if it is available now. Nothing was sent before.
    fn open(&mut self, near: &mut Near, now_ns: u64) {
        let State::Awaited { options, due_ns, until_ns } = self else { return };
        if now_ns < *due_ns {
            return;
        }
        *due_ns = now_ns + STATE_PAUSE.as_nanos() as u64;
        let LinkOptions { key, identity, sender, state: Some(path), .. } = &**options else {
            return;
        };
        match SenderFile::open(path) {
            Ok((file, kept)) => {
                if let Some(kept) = kept {
                    *near = Near::resume(key.clone(), identity.clone(), *sender, &kept, now_ns);
                }
                *self = State::Kept(file);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && now_ns < *until_ns => {}
            Err(_) => *self = State::Failed,
        }
    }

    fn keep(&mut self, near: &Near) {
        if let State::Kept(file) = self {
            file.keep(near.keep());
        }
    }
}

/// State for filling one batch.
struct Turn<'a> {
    near: &'a mut Near,
    gate: &'a mut Gate,
    meter: &'a TargetMeter,
    sealed: &'a mut Sealed,
    offered: &'a mut Amount,
    deadline_ns: u64,
    now_ns: u64,
}

impl Turn<'_> {
    /// Accounts for what the ring took back before it was settled.
    fn note_lapped(&mut self, look: &Look<'_>) {
        let first = look.first();
        self.near.give_up_below(first.count);
        if first.count > self.offered.count {
            let lost = first.saturating_sub(*self.offered);
            self.meter.sender.drop(Reason::QueueFull, lost);
            *self.offered = first;
        }
    }

    /// Seals packets until there are enough or nothing is left to send. Returns whether there is more, and when to act again.
    fn fill(&mut self, look: Option<&Look<'_>>) -> (bool, u64) {
        let mut out = std::mem::take(&mut self.sealed.bytes);
        let mut due_ns = 0;
        let has_more = loop {
            if self.sealed.ends.len() >= PACKETS_MAX {
                break true;
            }
            match (self.near.next(self.now_ns), look) {
                (Next::Data(one), Some(look)) => {
                    let (descriptor, bytes, _) = look.get(one.number);
                    let origin = origin_of(&descriptor, bytes.len());
                    let part = &bytes[one.offset.into()..][..one.len.into()];
                    self.near.seal_data(self.now_ns, &one, origin, part, &mut out);
                    if !one.is_repair && one.part.ends() {
                        let delay_ns = self.now_ns.saturating_sub(descriptor.times.arrived_ns);
                        self.meter.delay.add(delay_ns / 1_000, 1);
                    }
                }
                // Nothing can be sent that is not in the ring.
                (Next::Data(_), None) => continue,
                (Next::Floor { packet, floor }, _) => {
                    self.near.seal_floor(self.now_ns, packet, floor, &mut out);
                }
                (Next::Wait { until_ns }, look) => {
                    due_ns = until_ns;
                    if !look.is_some_and(|look| self.take_next(look)) {
                        break false;
                    }
                    continue;
                }
            }
            self.sealed.ends.push(out.len());
        };
        self.sealed.bytes = out;
        (has_more, due_ns)
    }

    /// Takes the next datagram that passes the gate and is worth sending, if there is room for one. Returns whether a datagram
    /// was examined.
    fn take_next(&mut self, look: &Look<'_>) -> bool {
        let number = self.offered.count;
        if number >= look.head() {
            return false;
        }
        let (descriptor, bytes, with_it) = look.get(number);
        let age_ns = self.now_ns.saturating_sub(descriptor.times.arrived_ns);
        let len = bytes.len() as u16;

        let refused = if age_ns >= self.deadline_ns {
            Some(Reason::Expired)
        } else if !self.near.has_room(self.now_ns, len) {
            return false;
        } else {
            self.gate.decide(&descriptor.source, self.now_ns).err()
        };
        match refused {
            Some(reason) => self.meter.sender.drop(reason, Amount::one(bytes.len())),
            None => {
                let expires_ns = self.now_ns + self.deadline_ns - age_ns;
                self.near.take(self.now_ns, Taken { number, bytes: len, expires_ns });
            }
        }
        *self.offered = with_it;
        true
    }
}

fn origin_of(descriptor: &Descriptor, bytes: usize) -> Origin {
    let sender = match descriptor.source.address() {
        Some(SocketAddr::V4(v4)) => From::V4(v4.ip().octets(), v4.port()),
        Some(SocketAddr::V6(v6)) => From::V6(v6.ip().octets(), v6.port()),
        None if descriptor.source.is_unknown() => From::Unknown,
        None => From::Nobody,
    };
    Origin { received_unix_ns: descriptor.times.received_unix_ns, sender, bytes: bytes as u16 }
}

/// The sender of a datagram, as the first Weir reported it.
pub(super) fn source_of(sender: From) -> Source {
    match sender {
        From::Unknown => Source::UNKNOWN,
        From::Nobody => Source::NONE,
        From::V4(ip, port) => SocketAddr::new(IpAddr::from(ip), port).into(),
        From::V6(ip, port) => SocketAddr::new(IpAddr::from(ip), port).into(),
    }
}

impl Pump for LinkTarget {
    fn name(&self) -> &str {
        &self.meter.name
    }

    fn pump(&mut self, now_ns: u64, claims_max: usize) -> Pumped {
        self.hear(now_ns);
        let mut ended = Pumped::More;
        for _ in 0..claims_max {
            if !self.send() {
                ended = Pumped::Blocked;
                break;
            }
            if self.is_ended || !self.seal(now_ns) {
                ended = if self.send() { Pumped::Idle } else { Pumped::Blocked };
                break;
            }
        }
        self.count();
        ended
    }

    fn blocked_on(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    fn attends(&self) -> Option<Attends<'_>> {
        Some(Attends { socket: self.blocked_on(), due_ns: self.due_ns })
    }

    fn keep_house(&mut self, now_ns: u64) {
        self.count();
        self.note_way(now_ns);
        self.meter.note_oldest(self.reader.oldest(), now_ns);
        self.meter.check_link(self.offered, self.near.open());
        self.meter.reports_all.set(1);
        self.meter.gso.set(self.runs.into());
    }

    fn is_idle(&self) -> bool {
        // Datagrams that wait for room or for an answer need no look until they are due; new ones do.
        self.looked_to == self.reader.end() && self.due_ns > monotonic_ns()
    }

    fn head(&self) -> u64 {
        self.reader.head()
    }

    fn has_reached(&self, end: u64) -> bool {
        self.is_ended || (self.offered.count >= end && self.near.is_at_rest())
    }

    fn has_outstanding(&mut self) -> bool {
        !self.is_ended && (!self.near.is_at_rest() || self.offered.count < self.reader.end())
    }

    fn begin_drain(&mut self, _now_ns: u64) {
        self.near.begin_drain();
    }

    fn give_up_outstanding(&mut self) {
        self.end();
    }

    fn discard_until(&mut self, end: u64, reason: Reason) {
        if let Some(mut look) = self.reader.look() {
            let end = end.min(look.head());
            let first = look.first();
            if first.count > self.offered.count {
                self.meter.sender.drop(Reason::QueueFull, first.saturating_sub(self.offered));
                self.offered = first;
            }
            if end > self.offered.count {
                let (_, _, all) = look.get(end - 1);
                self.meter.sender.drop(reason, all.saturating_sub(self.offered));
                self.offered = all;
            }
            look.advance(self.offered.count);
        }
        self.end();
    }

    /// Takes the new socket only: key, options and everything that is on its way stay.
    fn replace(&mut self, destination: TargetKind, _gate: Option<Gate>) -> Replaced {
        let TargetKind::LinkSocket(socket) = destination else { return Replaced::No };
        // What the old socket has received is the last that it is good for.
        self.hear(monotonic_ns());
        let former = self.socket.replace(socket);
        self.meter.socket_renewals.add(former.is_some().into());
        Replaced::Yes
    }

    fn stop_at(&mut self, end: u64) {
        self.reader.stop_at(end);
        self.near.begin_drain();
    }

    fn leave(&mut self) {
        self.discard_until(u64::MAX, Reason::TargetRemoved);
        let seen = self.reader.leave(&self.meter.sender);
        self.meter.leave(seen);
        self.note_way(monotonic_ns());
    }
}
