//! The sending end: decides which packets carry which datagrams, what to resend and what to give up, and accounts for all of it.

mod allowance;
mod congestion;
mod round_trip;
mod transmissions;

use crate::kept::KeptSender;
use crate::packet::{HEADER_BYTES, PACKET_BYTES_MIN, Part, Report, TAG_BYTES};
use crate::{Amount, Totals};
use allowance::Allowance;
use congestion::{Congestion, Seen};
use round_trip::RoundTrip;
use std::collections::VecDeque;
use transmissions::{Transmissions, What};

/// Length of the IPv4 and UDP headers around a packet, in bytes. They count against the rate too.
const FRAME_BYTES: u64 = 28;

/// How long the sender waits for a new datagram before it announces the floor in a packet of its own, in nanoseconds. A new
/// datagram's packet would carry the floor.
const QUIET_NS: u64 = 200_000_000;

/// Longest time between two floor packets, in nanoseconds.
const FLOOR_PAUSE_NS: u64 = 1_000_000_000;

/// Shortest silence, while packets are unreported, after which the sender stops sending, in nanoseconds.
const SILENCE_NS: u64 = 3_000_000_000;

/// Consecutive timeouts that are normal on a lossy path.
const SILENCES_USUAL: u32 = 4;

/// Shortest such silence in patience intervals: the longer of the two limits counts.
const SILENCE_PATIENCES: u64 = 10;

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

/// Why the sender gave up on a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// Its deadline has passed.
    Expired,
    /// Its memory was needed for newer datagrams.
    Lapped,
    /// The sender is shutting down.
    Ended,
}

/// Row after the [`GivenUp`] reasons: datagrams that were given up but may have been accepted before.
const UNCERTAIN: usize = 3;

/// What became of the datagrams taken. Those missing from the sum are in flight.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fates {
    pub taken: Amount,
    /// Accepted by the receiver.
    pub delivered: Amount,
    pub expired: Amount,
    pub lapped: Amount,
    pub ended: Amount,
    /// Sent, with an outcome that can never be known.
    pub uncertain: Amount,
    /// In flight when an earlier process of this end stopped, and not accepted since.
    pub lost_in_crash: Amount,
    /// Not part of the sum: datagrams resent to a receiver that may already have them.
    pub possible_duplicates: u64,
    /// Reports that cannot be true.
    pub contradictions: u64,
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

/// State of one sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Never sent.
    Fresh,
    /// Sent in packet `packet`, and possibly in earlier ones.
    Sent {
        packet: u64,
    },
    /// Waiting to be resent.
    Lost,
    /// Arrived, according to a report.
    Arrived,
    GivenUp {
        why: GivenUp,
        was_sent: bool,
    },
    /// Already counted in an earlier life of the receiver.
    Counted,
}

/// One sequence number: a datagram, or a part of one.
#[derive(Clone, Copy, Debug)]
struct Item {
    number: u64,
    expires_ns: u64,
    /// Length of the whole datagram.
    bytes: u16,
    offset: u16,
    part: Part,
    state: State,
    may_be_second: bool,
}

impl Item {
    fn is_settled(&self) -> bool {
        matches!(self.state, State::Arrived | State::GivenUp { .. } | State::Counted)
    }
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
        let next = self.base + self.items.len() as u64;
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

    /// Whether the receiver has been silent for so long that the sender stops. The caller then sends a hello now and then.
    pub fn is_unanswered(&self, now_ns: u64) -> bool {
        let patience_ns = self.round_trip.patience_ns() + self.peer_interval_ns;
        let silence_ns = SILENCE_NS.max(SILENCE_PATIENCES * patience_ns);
        self.unanswered_since_ns.is_some_and(|since_ns| now_ns >= since_ns + silence_ns)
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

    /// When the floor is due in a packet of its own.
    fn floor_due_ns(&self) -> u64 {
        // There is nothing to announce, or something in flight will carry the floor.
        if self.settled == 0 || self.settled < self.items.len() {
            return u64::MAX;
        }
        match self.floor_said_ns {
            None if self.is_draining => 0,
            None => self.last_new_ns + QUIET_NS,
            // Each repeat waits twice as long for an answer.
            Some(said_ns) => {
                let patience_ns = self.round_trip.patience_ns() + self.peer_interval_ns;
                said_ns + (patience_ns << self.floor_repeats.min(16)).min(FLOOR_PAUSE_NS)
            }
        }
    }

    fn say_floor(&mut self, now_ns: u64) -> Next {
        let packet = self.sent.add(What::Nothing, now_ns);
        self.note_sent(now_ns);
        self.floor_repeats = if self.floor_said_ns.is_some() { self.floor_repeats + 1 } else { 0 };
        self.floor_said_ns = Some(now_ns);
        self.allowance.take_other(PACKET_BYTES_MIN as u64 + FRAME_BYTES);
        Next::Floor { packet, floor: self.floor() }
    }

    /// When the sender next has to act without outside input.
    fn due_ns(&self, now_ns: u64) -> u64 {
        let timer_ns = self.timer_ns(now_ns).unwrap_or(u64::MAX);
        timer_ns.min(self.next_expiry_ns()).min(self.floor_due_ns())
    }

    fn next_expiry_ns(&self) -> u64 {
        self.items.get(self.settled).map_or(u64::MAX, |item| item.expires_ns)
    }

    /// When the oldest unreported packet counts as lost.
    fn timer_ns(&self, now_ns: u64) -> Option<u64> {
        let oldest_ns = self.sent.oldest_open_ns()?;
        let patience_ns = self.patience_ns();
        // While reports arrive, they decide.
        let interval_ns = self.peer_interval_ns;
        let is_streaming = now_ns.saturating_sub(self.last_sent_ns) < interval_ns;
        let guard_ns = if is_streaming { 4 * interval_ns } else { interval_ns + 500_000 };
        Some((oldest_ns + patience_ns).max(self.last_report_ns + guard_ns))
    }

    /// How long to wait for an answer to a packet. After several timeouts the time doubles with each further one: the path may be
    /// dead, and no report says how much of what is sent is lost.
    fn patience_ns(&self) -> u64 {
        let patience_ns = self.round_trip.patience_ns() + self.peer_interval_ns;
        patience_ns << self.silences.saturating_sub(SILENCES_USUAL).min(10)
    }

    /// Acts on time alone: gives up expired datagrams, and declares packets lost that were unreported for too long.
    fn look_at_the_clock(&mut self, now_ns: u64) {
        self.settle_front(now_ns);
        if self.timer_ns(now_ns).is_some_and(|due_ns| now_ns >= due_ns) {
            let patience_ns = self.patience_ns();
            self.silences += 1;
            self.sent.lose_until(now_ns.saturating_sub(patience_ns), &mut |sequence, packet| {
                lose(&mut self.items, &mut self.lost, self.base, sequence, packet);
            });
        }
    }

    /// Gives up expired datagrams at the front, and moves the floor past what is settled.
    fn settle_front(&mut self, now_ns: u64) {
        while let Some(item) = self.items.get(self.settled) {
            if now_ns >= item.expires_ns {
                self.give_up_front(GivenUp::Expired);
            } else if !self.front_is_settled() {
                break;
            }
            self.settled += self.front_parts();
        }
        self.begun = self.begun.max(self.settled);
    }

    /// Gives up all datagrams numbered below `number`: their memory has been reused.
    pub fn give_up_below(&mut self, number: u64) {
        while self.items.get(self.settled).is_some_and(|item| item.number < number) {
            self.give_up_front(GivenUp::Lapped);
            self.settled += self.front_parts();
        }
        self.begun = self.begun.max(self.settled);
    }

    /// Number of parts of the first unsettled datagram. The floor is never inside a datagram, because the receiver forgets
    /// everything below the floor.
    fn front_parts(&self) -> usize {
        let mut parts = self.items.iter().skip(self.settled);
        parts.position(|item| item.part.ends()).map_or(0, |at| at + 1)
    }

    fn front_is_settled(&self) -> bool {
        self.items.iter().skip(self.settled).take(self.front_parts()).all(Item::is_settled)
    }

    fn give_up_front(&mut self, why: GivenUp) {
        let parts = self.front_parts();
        for item in self.items.iter_mut().skip(self.settled).take(parts) {
            if !item.is_settled() {
                let was_sent = item.state != State::Fresh;
                item.state = State::GivenUp { why, was_sent };
            }
        }
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

    /// Counts the datagrams that both ends now agree on.
    fn confirm(&mut self, totals: Totals) {
        if totals.floor <= self.base {
            return;
        }

        let mut all = Amount::default();
        let mut given_up = [Amount::default(); 4];
        for _ in self.base..totals.floor {
            let Some(item) = self.items.pop_front() else { break };
            if item.part.begins() {
                self.front_given_up = None;
            }
            if let State::GivenUp { why, .. } = item.state {
                self.front_given_up = Some(why);
            }
            if item.part.ends() && item.state != State::Counted {
                let amount = Amount::one(item.bytes.into());
                all += amount;
                if let Some(why) = self.front_given_up {
                    // An earlier life of the receiver may have accepted it.
                    let row = if item.may_be_second { UNCERTAIN } else { why as usize };
                    given_up[row] += amount;
                }
            }
        }
        let settled = (totals.floor - self.base) as usize;
        self.base = totals.floor;
        self.settled = self.settled.saturating_sub(settled);
        self.begun = self.begun.saturating_sub(settled);

        let accepted = difference(totals.accepted, self.accepted);
        self.accepted = totals.accepted;
        self.count(all, accepted, given_up);
    }

    /// Counts `all` datagrams, `accepted` of which were accepted. Those given up may be among them, and nobody knows which, so
    /// the rest is attributed to the reasons in order, the most common first.
    fn count(&mut self, all: Amount, accepted: Amount, given_up: [Amount; 4]) {
        let delivered = Amount {
            datagrams: accepted.datagrams.min(all.datagrams),
            bytes: accepted.bytes.min(all.bytes),
        };
        self.fates.delivered += delivered;
        if delivered != accepted {
            self.fates.contradictions += 1;
        }

        let mut missing = difference(all, delivered);
        let [expired, lapped, ended, uncertain] = given_up;
        let rows = [
            (&mut self.fates.lapped, lapped),
            (&mut self.fates.ended, ended),
            (&mut self.fates.expired, expired),
            (&mut self.fates.uncertain, uncertain),
        ];
        for (row, most) in rows {
            let is_all = most.datagrams >= missing.datagrams;
            let part = match is_all && most.datagrams > 0 {
                true => missing,
                // Which datagrams the missing bytes belong to is not known.
                false => Amount { bytes: most.bytes.min(missing.bytes), ..most },
            };
            *row += part;
            missing = difference(missing, part);
        }
        if missing.datagrams > 0 {
            // Reported as arrived but not accepted: the receiver contradicts itself.
            self.fates.uncertain += missing;
            self.fates.contradictions += 1;
        }
    }

    /// Continues in a new session. `known` is what the receiver remembers of this run; `None` means that it has lost its memory,
    /// and that a new run begins at the sequence number returned.
    pub fn begin_session(&mut self, now_ns: u64, known: Option<Totals>) -> u64 {
        self.sent = Transmissions::default();
        self.loss = Loss::default();
        self.last_report_ns = now_ns;
        self.silences = 0;
        self.unanswered_since_ns = None;
        self.floor_said_ns = None;
        self.greets = true;
        self.peer_window = self.options.window;
        self.lost.clear();

        if std::mem::take(&mut self.asks_for_earlier) {
            self.settle_earlier(known);
        }
        match known {
            Some(totals) if totals.floor <= self.floor() => {
                self.ask_for_parts_again();
                self.confirm(totals);
            }
            Some(_) => {
                self.fates.contradictions += 1;
                self.begin_run();
            }
            None => self.begin_run(),
        }

        // Resend everything sent and not reported, oldest first.
        for (at, item) in self.items.iter_mut().enumerate() {
            if matches!(item.state, State::Sent { .. } | State::Lost) {
                item.state = State::Lost;
                self.lost.push_back(self.base + at as u64);
            }
        }
        self.base
    }

    /// Settles what earlier processes left open: the receiver has settled everything that they sent.
    fn settle_earlier(&mut self, known: Option<Totals>) {
        let open = difference(self.earlier.taken, self.earlier.settled());
        let Some(totals) = known.filter(|totals| totals.floor == self.base) else {
            self.earlier.uncertain += open;
            return;
        };
        let accepted = difference(totals.accepted, self.accepted);
        let delivered = least(accepted, open);
        self.earlier.delivered += delivered;
        self.earlier.lost_in_crash += difference(open, delivered);
        // An earlier process that ended without an answer counted some as uncertain; their outcome is known now.
        let known_now = least(difference(accepted, delivered), self.earlier.uncertain);
        self.earlier.delivered += known_now;
        self.earlier.uncertain = difference(self.earlier.uncertain, known_now);
        self.accepted = totals.accepted;
        self.accepted_earlier = totals.accepted;
    }

    /// Resends the parts of incomplete datagrams: a receiver that restarted from what it kept no longer has them.
    fn ask_for_parts_again(&mut self) {
        let mut at = 0;
        while at < self.items.len() {
            let number = self.items[at].number;
            let parts = self.items.iter().skip(at).take_while(|item| item.number == number).count();
            let items = || self.items.iter().skip(at).take(parts);
            let has_missing = items()
                .any(|item| matches!(item.state, State::Sent { .. } | State::Lost | State::Fresh));
            for item in self.items.iter_mut().skip(at).take(parts) {
                if has_missing && item.state == State::Arrived {
                    item.state = State::Lost;
                }
            }
            at += parts;
        }
    }

    /// Starts over with a receiver that remembers nothing: what it reported was accepted, and this end decides about the rest.
    fn begin_run(&mut self) {
        (self.accepted, self.accepted_earlier) = Default::default();
        let mut at = 0;
        while at < self.items.len() {
            let number = self.items[at].number;
            let parts = self.items.iter().skip(at).take_while(|item| item.number == number).count();
            self.settle_datagram(at, parts);
            at += parts;
        }

        // Sequence numbers continue. Datagrams already counted at the front need no further agreement.
        while self.items.front().is_some_and(|item| item.state == State::Counted) {
            self.items.pop_front();
            self.base += 1;
        }
        self.delivered_before = self.fates.delivered;
        self.settled = 0;
        self.begun = self.items.iter().take_while(|item| item.state != State::Fresh).count();
    }

    /// Decides about one datagram whose receiver has lost its memory.
    fn settle_datagram(&mut self, at: usize, parts: usize) {
        let items = || self.items.iter().skip(at).take(parts);
        let amount = Amount::one(self.items[at].bytes.into());
        let is_fresh = items().all(|item| item.state == State::Fresh);
        let is_there = items().all(|item| item.state == State::Arrived);
        let given_up = items().find_map(|item| match item.state {
            State::GivenUp { why, .. } => Some(why),
            _ => None,
        });
        let was_sent = items().any(|item| {
            !matches!(item.state, State::Fresh | State::GivenUp { was_sent: false, .. })
        });
        if is_fresh || items().all(|item| item.state == State::Counted) {
            return;
        }

        let state = if is_there {
            self.fates.delivered += amount;
            State::Counted
        } else if let Some(why) = given_up.filter(|_| !was_sent) {
            *self.fates.of(why) += amount;
            State::Counted
        } else if given_up.is_some() || !self.options.redelivers {
            self.fates.uncertain += amount;
            State::Counted
        } else {
            self.fates.possible_duplicates += 1;
            State::Lost
        };
        for item in self.items.iter_mut().skip(at).take(parts) {
            item.state = state;
            item.may_be_second = true;
        }
    }

    /// Shuts down: reported datagrams count as delivered, unsent ones as ended, and the rest as uncertain.
    pub fn end(&mut self) {
        self.options.redelivers = false;
        for item in &mut self.items {
            if item.state == State::Fresh {
                item.state = State::GivenUp { why: GivenUp::Ended, was_sent: false };
            }
        }
        let (mut accepted, before) = (self.accepted, self.fates.delivered);
        self.begin_run();
        accepted += difference(self.fates.delivered, before);
        self.accepted = accepted;
    }
}

impl Fates {
    fn of(&mut self, why: GivenUp) -> &mut Amount {
        match why {
            GivenUp::Expired => &mut self.expired,
            GivenUp::Lapped => &mut self.lapped,
            GivenUp::Ended => &mut self.ended,
        }
    }

    /// All datagrams whose outcome is known, or is known to stay unknown.
    pub fn settled(&self) -> Amount {
        let mut all = Amount::default();
        let Fates { delivered, expired, lapped, ended, uncertain, lost_in_crash, .. } = *self;
        for one in [delivered, expired, lapped, ended, uncertain, lost_in_crash] {
            all += one;
        }
        all
    }
}

impl std::ops::AddAssign for Fates {
    fn add_assign(&mut self, more: Fates) {
        self.taken += more.taken;
        self.delivered += more.delivered;
        self.expired += more.expired;
        self.lapped += more.lapped;
        self.ended += more.ended;
        self.uncertain += more.uncertain;
        self.lost_in_crash += more.lost_in_crash;
        self.possible_duplicates += more.possible_duplicates;
        self.contradictions += more.contradictions;
    }
}

fn least(a: Amount, b: Amount) -> Amount {
    Amount { datagrams: a.datagrams.min(b.datagrams), bytes: a.bytes.min(b.bytes) }
}

fn difference(a: Amount, b: Amount) -> Amount {
    Amount {
        datagrams: a.datagrams.saturating_sub(b.datagrams),
        bytes: a.bytes.saturating_sub(b.bytes),
    }
}

/// Marks a sequence number as arrived.
fn arrive(items: &mut VecDeque<Item>, base: u64, sequence: u64) {
    let at = sequence.checked_sub(base).map(|at| at as usize);
    if let Some(item) = at.and_then(|at| items.get_mut(at))
        && matches!(item.state, State::Sent { .. } | State::Lost)
    {
        item.state = State::Arrived;
    }
}

/// Marks a sequence number as lost with packet `packet`, unless it was sent in another packet since.
fn lose(
    items: &mut VecDeque<Item>,
    lost: &mut VecDeque<u64>,
    base: u64,
    sequence: u64,
    packet: u64,
) {
    let at = sequence.checked_sub(base).map(|at| at as usize);
    if let Some(item) = at.and_then(|at| items.get_mut(at))
        && item.state == (State::Sent { packet })
    {
        item.state = State::Lost;
        lost.push_back(sequence);
    }
}
