//! The sending end: decides which packets carry which datagrams, what to resend and what to give up, and accounts for all of it.

mod agreement;
mod allowance;
mod congestion;
mod fates;
mod front;
mod item;
mod round_trip;
mod timing;
mod transmissions;

use crate::kept::KeptSender;
use crate::packet::{HEADER_BYTES, PACKET_BYTES_MIN, Part, Report, TAG_BYTES};
use crate::{Amount, Totals};
use allowance::Allowance;
use congestion::{Congestion, Seen};
pub use fates::{Fates, GivenUp};
use item::{Item, State, arrive, lose};
use round_trip::RoundTrip;
use std::collections::VecDeque;
use transmissions::{Transmissions, What};

/// Length of the IPv4 and UDP headers around a packet, in bytes. They count against the rate too.
const FRAME_BYTES: u64 = 28;

/// Options of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderOptions {
    /// Maximum sending rate with all headers, in bytes per second.
    pub rate_bytes_per_sec: u64,
    /// Resent bytes allowed per 100 bytes sent for the first time.
    pub repair_percent: u32,
    /// Largest part of a datagram that fits one packet, in bytes; at least 64.
    pub part_bytes: u16,
    /// Maximum number of sequence numbers that are not settled at both ends.
    pub window: u32,
    /// Whether to resend unreported datagrams to a receiver that has lost its memory.
    pub redelivers: bool,
}

/// A datagram to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The caller's number for the datagram, higher than any before.
    pub number: u64,
    pub bytes: u16,
    /// When to give the datagram up, on the caller's monotonic clock. Not earlier than that of any datagram taken before.
    pub expires_ns: u64,
}

/// One packet carrying a datagram or a part of one, for the caller to seal and send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmission {
    pub packet: u64,
    pub sequence: u64,
    pub floor: u64,
    /// The caller's number for the datagram.
    pub number: u64,
    pub part: Part,
    /// Offset of this part in the datagram, and its length.
    pub offset: u16,
    pub len: u16,
    pub asks: bool,
    pub may_be_second: bool,
    /// Whether this content was sent before.
    pub is_repair: bool,
}

/// What the sender wants to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    Data(Transmission),
    /// Send a packet that carries only the floor.
    Floor {
        packet: u64,
        floor: u64,
    },
    /// Do nothing until something arrives or is taken, or until this time.
    Wait {
        until_ns: u64,
    },
}

/// The sending end of one run.
#[derive(Debug)]
pub struct Sender {
    options: SenderOptions,
    /// Sequence number of the first item. Both ends know that everything below is settled.
    base: u64,
    items: VecDeque<Item>,
    /// Number of items at the front that are settled at this end.
    settled: usize,
    /// Number of items at the front that were sent at least once, or given up before that.
    begun: usize,
    /// Sequence numbers waiting to be resent, oldest loss first. Some may be settled by now.
    lost: VecDeque<u64>,
    sent: Transmissions,
    allowance: Allowance,
    congestion: Congestion,
    round_trip: RoundTrip,
    /// What the receiver had accepted at the last count.
    accepted: Amount,
    /// What was delivered to earlier lives of the receiver.
    delivered_before: Amount,
    /// Why the datagram that begins below the front of the items was given up, if it was.
    front_given_up: Option<GivenUp>,
    peer_window: u32,
    peer_interval_ns: u64,
    last_report_ns: u64,
    /// Timeouts since the last report.
    silences: u32,
    /// When the sender began to wait for a report. Each report with news restarts the wait. `None` when nothing is unreported.
    unanswered_since_ns: Option<u64>,
    last_sent_ns: u64,
    last_new_ns: u64,
    /// When the last floor packet was sent.
    floor_said_ns: Option<u64>,
    /// How often it was repeated since.
    floor_repeats: u32,
    is_draining: bool,
    /// A session has begun and nothing was sent in it yet.
    greets: bool,
    fates: Fates,
    /// What became of the datagrams that earlier processes of this end took in the same run.
    earlier: Fates,
    /// The receiver has not yet been asked about the unsettled ones of those.
    asks_for_earlier: bool,
    /// What the receiver's current life had accepted of the run when this process began to count.
    accepted_earlier: Amount,
    repairs: u64,
    spurious: u64,
    loss: Loss,
}

/// Measures loss on the way to the receiver.
#[derive(Clone, Copy, Default, Debug)]
struct Loss {
    from_packet: u64,
    from_received: u64,
    lost_per_million: u32,
}

/// Number of packets over which loss is measured.
const LOSS_PACKETS: u64 = 1_000;

/// What the sender knows about its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Smoothed. `None` before the first measurement.
    pub round_trip_ns: Option<u64>,
    /// Over the last thousand packets that reports covered.
    pub lost_per_million: u32,
    /// Allowed sending rate, in bytes per second: the configured rate, or less while the path is congested.
    pub rate_bytes_per_sec: u64,
    /// Data packets sent.
    pub packets: u64,
    /// Data packets that resent something.
    pub repairs: u64,
    /// Repairs that turned out to be unnecessary.
    pub spurious: u64,
}

impl Sender {
    /// A sender that continues the run of an earlier process.
    pub fn resume(options: SenderOptions, kept: &KeptSender, now_ns: u64) -> Sender {
        Sender {
            accepted: kept.accepted,
            earlier: kept.fates,
            asks_for_earlier: true,
            ..Sender::new(options, kept.next, now_ns)
        }
    }

    /// A sender whose run begins at sequence number `base`; 0 for the first run.
    pub fn new(options: SenderOptions, base: u64, now_ns: u64) -> Sender {
        let packet_bytes = usize::from(options.part_bytes) + HEADER_BYTES + TAG_BYTES;
        let SenderOptions { rate_bytes_per_sec, repair_percent, .. } = options;
        Sender {
            options,
            base,
            items: VecDeque::new(),
            settled: 0,
            begun: 0,
            lost: VecDeque::new(),
            sent: Transmissions::default(),
            allowance: Allowance::new(rate_bytes_per_sec, repair_percent, packet_bytes, now_ns),
            congestion: Congestion::new(rate_bytes_per_sec, now_ns),
            round_trip: RoundTrip::unknown(),
            accepted: Amount::default(),
            delivered_before: Amount::default(),
            front_given_up: None,
            peer_window: options.window,
            peer_interval_ns: 1_000_000,
            last_report_ns: now_ns,
            silences: 0,
            unanswered_since_ns: None,
            last_sent_ns: now_ns,
            last_new_ns: now_ns,
            floor_said_ns: None,
            floor_repeats: 0,
            is_draining: false,
            greets: false,
            fates: Fates::default(),
            earlier: Fates::default(),
            asks_for_earlier: false,
            accepted_earlier: Amount::default(),
            repairs: 0,
            spurious: 0,
            loss: Loss::default(),
        }
    }

    /// The sequence number below which everything is settled at this end.
    pub fn floor(&self) -> u64 {
        self.base + self.settled as u64
    }

    /// The sequence number below which both ends agree that everything is settled.
    pub fn confirmed(&self) -> u64 {
        self.base
    }

    /// The sequence number of the next datagram taken.
    pub fn next_sequence(&self) -> u64 {
        self.base + self.items.len() as u64
    }

    /// What became of all datagrams taken.
    pub fn fates(&self) -> Fates {
        self.fates
    }

    /// What became of all datagrams that earlier processes took in the same run.
    pub fn earlier(&self) -> Fates {
        self.earlier
    }

    /// The state to persist before anything more is sent.
    pub fn keep(&self, run: [u8; 16], life: u64) -> KeptSender {
        let next = self.next_sequence();
        let mut fates = self.fates;
        fates += self.earlier;
        KeptSender { run, life, next, accepted: self.accepted, fates }
    }

    /// What was delivered before the receiver's current life began. That life accepted the rest of what was delivered.
    pub fn delivered_before(&self) -> Amount {
        self.delivered_before
    }

    /// What the receiver's current life had accepted of the run before this process took anything.
    pub fn accepted_earlier(&self) -> Amount {
        self.accepted_earlier
    }

    /// What the sender knows about its path.
    pub fn way(&self) -> Way {
        Way {
            round_trip_ns: self.round_trip.is_known().then(|| self.round_trip.smoothed_ns()),
            lost_per_million: self.loss.lost_per_million,
            rate_bytes_per_sec: self.congestion.rate(),
            packets: self.sent.data_packets(),
            repairs: self.repairs,
            spurious: self.spurious,
        }
    }

    /// The caller's number of the oldest datagram that may still have to be sent. `None` when there is none.
    pub fn keeps_from(&self) -> Option<u64> {
        self.items.get(self.settled).map(|item| item.number)
    }

    /// Number of datagrams numbered below `number` that are not counted yet.
    pub fn open_below(&self, number: u64) -> u64 {
        let below = self.items.iter().take_while(|item| item.number < number);
        below.filter(|item| item.part.ends() && item.state != State::Counted).count() as u64
    }

    /// Whether nothing is in flight and both ends know it.
    pub fn is_at_rest(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether a datagram of this length may be taken now, because it would leave at once.
    pub fn has_room(&mut self, now_ns: u64, bytes: u16) -> bool {
        self.allowance.fill(now_ns);
        let window = self.options.window.min(self.peer_window) as usize;
        let parts = self.parts(bytes);
        let has_window = self.items.len() + parts <= window.max(parts);
        has_window && self.begun == self.items.len() && self.allowance.is_open()
    }

    fn parts(&self, bytes: u16) -> usize {
        usize::from(bytes).div_ceil(usize::from(self.options.part_bytes)).max(1)
    }

    /// Takes a datagram and assigns a sequence number to it, or to each of its parts.
    pub fn take(&mut self, now_ns: u64, taken: Taken) {
        self.fates.taken += Amount::one(taken.bytes.into());
        self.last_new_ns = now_ns;
        self.floor_said_ns = None;

        let parts = self.parts(taken.bytes);
        for at in 0..parts {
            let part = match (at == 0, at + 1 == parts) {
                (true, true) => Part::Only,
                (true, false) => Part::First,
                (false, false) => Part::Middle,
                (false, true) => Part::Last,
            };
            self.items.push_back(Item {
                number: taken.number,
                expires_ns: taken.expires_ns,
                bytes: taken.bytes,
                offset: (at * usize::from(self.options.part_bytes)) as u16,
                part,
                state: State::Fresh,
                may_be_second: false,
            });
        }
    }

    /// What to do next. A returned transmission counts as sent, whatever becomes of it.
    pub fn next(&mut self, now_ns: u64) -> Next {
        self.allowance.fill(now_ns);
        self.look_at_the_clock(now_ns);
        if self.is_unanswered(now_ns) {
            return Next::Wait { until_ns: self.next_expiry_ns() };
        }

        // At once, so that the receiver knows that the session is in use and both ends learn the round-trip time.
        if self.greets {
            self.greets = false;
            return self.say_floor(now_ns);
        }

        if !self.allowance.is_open() {
            return Next::Wait { until_ns: self.allowance.opens_ns().max(now_ns + 1) };
        }
        // Without repair allowance, lost datagrams wait for new ones, which add to it.
        if let Some((sequence, bytes)) = self.first_lost()
            && self.allowance.allows_repair(bytes)
        {
            self.lost.pop_front();
            self.allowance.take_repair(bytes);
            self.congestion.note_sent(bytes);
            self.repairs += 1;
            return Next::Data(self.transmit(sequence, now_ns, true));
        }
        if self.begun < self.items.len() {
            let sequence = self.base + self.begun as u64;
            self.begun += 1;
            let bytes = self.packet_bytes(sequence);
            self.allowance.take_new(bytes);
            self.congestion.note_sent(bytes);
            return Next::Data(self.transmit(sequence, now_ns, false));
        }
        if now_ns >= self.floor_due_ns() {
            return self.say_floor(now_ns);
        }
        Next::Wait { until_ns: self.due_ns(now_ns).max(now_ns + 1) }
    }

    /// Bytes on the wire of a packet that carries this sequence number.
    fn packet_bytes(&self, sequence: u64) -> u64 {
        let item = &self.items[(sequence - self.base) as usize];
        let head = 8 + if item.part.begins() { 16 } else { 0 };
        let packet = HEADER_BYTES + head + TAG_BYTES;
        packet as u64 + u64::from(self.part_len(item)) + FRAME_BYTES
    }

    fn part_len(&self, item: &Item) -> u16 {
        (item.bytes - item.offset).min(self.options.part_bytes)
    }

    /// The first sequence number waiting to be resent, and the bytes of its packet on the wire.
    fn first_lost(&mut self) -> Option<(u64, u64)> {
        while let Some(&sequence) = self.lost.front() {
            let at = sequence.checked_sub(self.base).map(|at| at as usize);
            match at.and_then(|at| self.items.get(at)) {
                Some(item) if item.state == State::Lost => {
                    return Some((sequence, self.packet_bytes(sequence)));
                }
                _ => {
                    self.lost.pop_front();
                }
            }
        }
        None
    }

    fn transmit(&mut self, sequence: u64, now_ns: u64, is_repair: bool) -> Transmission {
        let packet = self.sent.add(What::Item(sequence), now_ns);
        self.note_sent(now_ns);

        let floor = self.floor();
        let part_bytes = self.options.part_bytes;
        let item = &mut self.items[(sequence - self.base) as usize];
        item.state = State::Sent { packet };
        Transmission {
            packet,
            sequence,
            floor,
            number: item.number,
            part: item.part,
            offset: item.offset,
            len: (item.bytes - item.offset).min(part_bytes),
            // A repair sent because nothing was heard should be answered at once.
            asks: is_repair && now_ns > self.last_report_ns + 4 * self.peer_interval_ns,
            may_be_second: item.may_be_second,
            is_repair,
        }
    }

    fn note_sent(&mut self, now_ns: u64) {
        self.last_sent_ns = now_ns;
        self.unanswered_since_ns.get_or_insert(now_ns);
    }

    fn say_floor(&mut self, now_ns: u64) -> Next {
        let packet = self.sent.add(What::Nothing, now_ns);
        self.note_sent(now_ns);
        self.floor_repeats = if self.floor_said_ns.is_some() { self.floor_repeats + 1 } else { 0 };
        self.floor_said_ns = Some(now_ns);
        self.allowance.take_other(PACKET_BYTES_MIN as u64 + FRAME_BYTES);
        Next::Floor { packet, floor: self.floor() }
    }

    /// Starts draining: no new datagrams will come, so the floor is announced at once.
    pub fn begin_drain(&mut self) {
        self.is_draining = true;
    }

    /// Processes a report, which the caller has opened and decoded.
    pub fn on_report(&mut self, now_ns: u64, report: &Report<'_>) {
        let totals = Totals {
            floor: report.floor,
            accepted: Amount { datagrams: report.accepted, bytes: report.accepted_bytes },
        };
        if report.largest >= self.sent.next() || totals.floor > self.floor() {
            self.fates.contradictions += 1;
            return;
        }

        self.last_report_ns = now_ns;
        self.silences = 0;
        self.peer_window = report.window;
        self.peer_interval_ns = u64::from(report.interval_us.min(1_000_000)) * 1_000;
        let delay_ns = u64::from(report.delay_us) * 1_000;

        let round_trip_ns = self.round_trip.smoothed_ns();
        let news = self.sent.mark(report, round_trip_ns, &mut |sequence, packet, is_there| {
            if is_there {
                arrive(&mut self.items, self.base, sequence);
            } else {
                lose(&mut self.items, &mut self.lost, self.base, sequence, packet);
            }
        });
        self.spurious += news.spurious;
        if let Some(sent_ns) = news.largest_sent_ns {
            self.round_trip.note(now_ns, now_ns.saturating_sub(sent_ns + delay_ns).max(1));
        }
        if news.any || self.sent.oldest_open_ns().is_none() {
            self.unanswered_since_ns = self.sent.oldest_open_ns().map(|_| now_ns);
        }
        self.note_loss(report);
        let seen = Seen { sent: report.largest + 1, received: report.packets };
        if self.congestion.look(now_ns, &self.round_trip, seen) {
            self.allowance.set_rate(now_ns, self.congestion.rate());
        }

        self.settle_front(now_ns);
        self.confirm(totals);
    }

    fn note_loss(&mut self, report: &Report<'_>) {
        let sent = (report.largest + 1).saturating_sub(self.loss.from_packet);
        if sent >= LOSS_PACKETS {
            let received = report.packets.saturating_sub(self.loss.from_received);
            let lost = sent.saturating_sub(received);
            self.loss = Loss {
                from_packet: report.largest + 1,
                from_received: report.packets,
                lost_per_million: (lost * 1_000_000 / sent) as u32,
            };
        }
    }
}
