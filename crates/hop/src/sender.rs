//! The sending end: which datagrams are in which packets, what is sent again, what is given up, and what became of it all.

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

/// Bytes of IPv4 and UDP around a packet, which count against the rate too.
const FRAME_BYTES: u64 = 28;

/// How long without anything new until what is settled is said in a packet of its own, in nanoseconds. Before that the next
/// datagram's packet says it.
const QUIET_NS: u64 = 200_000_000;

/// Longest time between two packets that say it, in nanoseconds.
const FLOOR_PAUSE_NS: u64 = 1_000_000_000;

/// How long nothing may be heard while something is waited for, in nanoseconds, until nothing more is sent.
const SILENCE_NS: u64 = 3_000_000_000;

/// How often in a row nothing may be heard, as it happens where much is lost.
const SILENCES_USUAL: u32 = 4;

/// How many patiences the same is at least.
const SILENCE_PATIENCES: u64 = 10;

/// How a sender behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderOptions {
    /// Most that leaves in a second, with all headers, in bytes.
    pub rate_bytes_per_sec: u64,
    /// Of 100 bytes that are sent for the first time, so many may be sent again.
    pub repair_percent: u32,
    /// Bytes of a datagram that fit one packet, at least 64.
    pub part_bytes: u16,
    /// Most sequence numbers that are not settled at both ends.
    pub window: u32,
    /// Whether what was sent and not reported is sent again to a receiver that has lost its memory.
    pub redelivers: bool,
}

/// Why a datagram is not sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// Its deadline is over.
    Expired,
    /// Its memory was needed for newer ones.
    Lapped,
    /// The sender ends.
    Ended,
}

/// Behind the reasons of [`GivenUp`], what was given up and may have been accepted before.
const UNCERTAIN: usize = 3;

/// What became of the datagrams that were taken. What is missing is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fates {
    pub taken: Amount,
    /// Accepted by the receiver.
    pub delivered: Amount,
    pub expired: Amount,
    pub lapped: Amount,
    pub ended: Amount,
    /// Sent, and nobody will ever say what became of them.
    pub uncertain: Amount,
    /// On their way when a former process of this end ended, and not accepted since.
    pub lost_in_crash: Amount,
    /// Beside the law: those that were sent again to a receiver that may have had them.
    pub possible_duplicates: u64,
    /// Reports that cannot be true.
    pub contradictions: u64,
}

/// A datagram to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The caller's number for it: higher than any before.
    pub number: u64,
    pub bytes: u16,
    /// When it is given up, by the caller's monotonic clock. Not before any that was taken earlier.
    pub expires_ns: u64,
}

/// One packet with a datagram or a part of one, which the caller is to seal and send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmission {
    pub packet: u64,
    pub sequence: u64,
    pub floor: u64,
    /// The caller's number of the datagram.
    pub number: u64,
    pub part: Part,
    /// Where in the datagram it begins, and how long it is.
    pub offset: u16,
    pub len: u16,
    pub asks: bool,
    pub may_be_second: bool,
    /// It was sent before.
    pub is_repair: bool,
}

/// What a sender wants now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    Data(Transmission),
    /// A packet that carries a floor alone.
    Floor {
        packet: u64,
        floor: u64,
    },
    /// Nothing, until something arrives, is taken, or this time comes.
    Wait {
        until_ns: u64,
    },
}

/// What became of one sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It was never sent.
    Fresh,
    /// In the packet with this number, and possibly in earlier ones.
    Sent {
        packet: u64,
    },
    /// It waits to be sent again.
    Lost,
    /// A report says that it arrived.
    Arrived,
    GivenUp {
        why: GivenUp,
        was_sent: bool,
    },
    /// Its fate was counted in a former life of the receiver.
    Counted,
}

/// One sequence number: a datagram, or a part of one.
#[derive(Clone, Copy, Debug)]
struct Item {
    number: u64,
    expires_ns: u64,
    /// Of the whole datagram.
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
    /// Sequence number of the first item: what both ends know to be settled.
    base: u64,
    items: VecDeque<Item>,
    /// Items from the front that are settled here.
    settled: usize,
    /// Items from the front that were sent at least once, or given up before.
    begun: usize,
    /// Sequence numbers that wait to be sent again, oldest loss first; some may be settled by now.
    lost: VecDeque<u64>,
    sent: Transmissions,
    allowance: Allowance,
    congestion: Congestion,
    round_trip: RoundTrip,
    /// What the receiver had accepted, when this was last counted.
    accepted: Amount,
    /// What was delivered to former lives of the receiver.
    delivered_before: Amount,
    /// Of the datagram that the front of the items is in the middle of.
    front_given_up: Option<GivenUp>,
    peer_window: u32,
    peer_interval_ns: u64,
    last_report_ns: u64,
    /// How often nothing was heard for too long since.
    silences: u32,
    /// Since when something is waited for that was not reported, without a report.
    unanswered_since_ns: Option<u64>,
    last_sent_ns: u64,
    last_new_ns: u64,
    /// When the floor was last said in a packet of its own.
    floor_said_ns: Option<u64>,
    /// How often it was said again since.
    floor_repeats: u32,
    is_draining: bool,
    /// A session has begun and nothing was said in it.
    greets: bool,
    fates: Fates,
    /// What became of what former processes of this end took in the same run.
    earlier: Fates,
    /// What of that is open was not asked for yet.
    asks_for_earlier: bool,
    /// What the receiver's life had accepted of the run when this process began to count.
    accepted_earlier: Amount,
    repairs: u64,
    spurious: u64,
    loss: Loss,
}

/// What is measured of the way there.
#[derive(Clone, Copy, Default, Debug)]
struct Loss {
    from_packet: u64,
    from_received: u64,
    lost_per_million: u32,
}

/// Packets over which loss is measured.
const LOSS_PACKETS: u64 = 1_000;

/// What a sender knows of its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Smoothed; `None`: nothing was measured yet.
    pub round_trip_ns: Option<u64>,
    /// Of the last thousand packets that reports spoke of.
    pub lost_per_million: u32,
    /// What may be sent in a second, in bytes: the declared rate, or less while the way is full.
    pub rate_bytes_per_sec: u64,
    /// Packets with datagrams that were sent.
    pub packets: u64,
    /// Of them, those that carried what was sent before.
    pub repairs: u64,
    /// Of those, the ones that were not needed.
    pub spurious: u64,
}

impl Sender {
    /// A sender that goes on with the run of a former process.
    pub fn resume(options: SenderOptions, kept: &KeptSender, now_ns: u64) -> Sender {
        Sender {
            accepted: kept.accepted,
            earlier: kept.fates,
            asks_for_earlier: true,
            ..Sender::new(options, kept.next, now_ns)
        }
    }

    /// A sender whose run begins at sequence number `base`: 0 for the first one.
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

    /// The sequence number below which everything is settled here.
    pub fn floor(&self) -> u64 {
        self.base + self.settled as u64
    }

    /// The sequence number below which both ends agree.
    pub fn confirmed(&self) -> u64 {
        self.base
    }

    /// What became of everything that was taken.
    pub fn fates(&self) -> Fates {
        self.fates
    }

    /// What became of everything that former processes took in the same run.
    pub fn earlier(&self) -> Fates {
        self.earlier
    }

    /// What is to be kept, before anything more is sent.
    pub fn keep(&self, run: [u8; 16], life: u64) -> KeptSender {
        let next = self.base + self.items.len() as u64;
        let mut fates = self.fates;
        fates += self.earlier;
        KeptSender { run, life, next, accepted: self.accepted, fates }
    }

    /// What was delivered before the receiver's life began: all else that was delivered it has accepted in this one.
    pub fn delivered_before(&self) -> Amount {
        self.delivered_before
    }

    /// What the receiver's life had accepted of the run before this process took anything.
    pub fn accepted_earlier(&self) -> Amount {
        self.accepted_earlier
    }

    /// What is known of the way.
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

    /// The caller's number of the oldest datagram that may still have to be sent; `None`: there is none.
    pub fn keeps_from(&self) -> Option<u64> {
        self.items.get(self.settled).map(|item| item.number)
    }

    /// Datagrams with numbers below this one whose fate is not counted yet.
    pub fn open_below(&self, number: u64) -> u64 {
        let below = self.items.iter().take_while(|item| item.number < number);
        below.filter(|item| item.part.ends() && item.state != State::Counted).count() as u64
    }

    /// Whether nothing is on its way, and both ends know it.
    pub fn is_at_rest(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether nothing was heard for so long that nothing is sent: the caller says hello now and then instead.
    pub fn is_unanswered(&self, now_ns: u64) -> bool {
        let patience_ns = self.round_trip.patience_ns() + self.peer_interval_ns;
        let silence_ns = SILENCE_NS.max(SILENCE_PATIENCES * patience_ns);
        self.unanswered_since_ns.is_some_and(|since_ns| now_ns >= since_ns + silence_ns)
    }

    /// Whether a datagram of this length may be taken now: it would leave at once.
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

    /// Takes a datagram: it has a sequence number from here on, and each of its parts if it has several.
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

    /// What is to be done next. A transmission counts as sent with this call, whatever becomes of it.
    pub fn next(&mut self, now_ns: u64) -> Next {
        self.allowance.fill(now_ns);
        self.look_at_the_clock(now_ns);
        if self.is_unanswered(now_ns) {
            return Next::Wait { until_ns: self.next_expiry_ns() };
        }

        // At once, so that the receiver knows that the session is used, and both how long the way is.
        if self.greets {
            self.greets = false;
            return self.say_floor(now_ns);
        }

        if !self.allowance.is_open() {
            return Next::Wait { until_ns: self.allowance.opens_ns().max(now_ns + 1) };
        }
        // Without an allowance for repairs what is lost waits for what is new, which brings one.
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

    /// What a packet of this sequence number costs on the wire.
    fn packet_bytes(&self, sequence: u64) -> u64 {
        let item = &self.items[(sequence - self.base) as usize];
        let head = 8 + if item.part.begins() { 16 } else { 0 };
        let packet = HEADER_BYTES + head + TAG_BYTES;
        packet as u64 + u64::from(self.part_len(item)) + FRAME_BYTES
    }

    fn part_len(&self, item: &Item) -> u16 {
        (item.bytes - item.offset).min(self.options.part_bytes)
    }

    /// The first sequence number that waits to be sent again, and what its packet costs.
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
            // What goes again because nothing was heard is to be answered at once.
            asks: is_repair && now_ns > self.last_report_ns + 4 * self.peer_interval_ns,
            may_be_second: item.may_be_second,
            is_repair,
        }
    }

    fn note_sent(&mut self, now_ns: u64) {
        self.last_sent_ns = now_ns;
        self.unanswered_since_ns.get_or_insert(now_ns);
    }

    /// When what is settled here is to be said in a packet of its own.
    fn floor_due_ns(&self) -> u64 {
        // Nothing to say, or something is on its way that will say it.
        if self.settled == 0 || self.settled < self.items.len() {
            return u64::MAX;
        }
        match self.floor_said_ns {
            None if self.is_draining => 0,
            None => self.last_new_ns + QUIET_NS,
            // Each time it waits twice as long for an answer.
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

    /// When something happens by itself.
    fn due_ns(&self, now_ns: u64) -> u64 {
        let timer_ns = self.timer_ns(now_ns).unwrap_or(u64::MAX);
        timer_ns.min(self.next_expiry_ns()).min(self.floor_due_ns())
    }

    fn next_expiry_ns(&self) -> u64 {
        self.items.get(self.settled).map_or(u64::MAX, |item| item.expires_ns)
    }

    /// When the oldest packet that nothing was heard of counts as lost.
    fn timer_ns(&self, now_ns: u64) -> Option<u64> {
        let oldest_ns = self.sent.oldest_open_ns()?;
        let patience_ns = self.patience_ns();
        // While reports come, they decide.
        let interval_ns = self.peer_interval_ns;
        let is_streaming = now_ns.saturating_sub(self.last_sent_ns) < interval_ns;
        let guard_ns = if is_streaming { 4 * interval_ns } else { interval_ns + 500_000 };
        Some((oldest_ns + patience_ns).max(self.last_report_ns + guard_ns))
    }

    /// How long an answer to a packet is waited for. After some that did not come, twice as long each time: the way may be dead, and
    /// no report says how much of what is sent there is lost.
    fn patience_ns(&self) -> u64 {
        let patience_ns = self.round_trip.patience_ns() + self.peer_interval_ns;
        patience_ns << self.silences.saturating_sub(SILENCES_USUAL).min(10)
    }

    /// What time alone decides: what is too old, and what nothing was heard of for too long.
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

    /// Gives up what is at the front and too old, and moves the floor over what is settled.
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

    /// Gives up everything with a number below this one: its memory is somebody else's now.
    pub fn give_up_below(&mut self, number: u64) {
        while self.items.get(self.settled).is_some_and(|item| item.number < number) {
            self.give_up_front(GivenUp::Lapped);
            self.settled += self.front_parts();
        }
        self.begun = self.begun.max(self.settled);
    }

    /// Parts of the first datagram that is not settled. The floor is never in the middle of one: what is below it is forgotten.
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

    /// From here on nothing new comes: what is settled is said at once.
    pub fn begin_drain(&mut self) {
        self.is_draining = true;
    }

    /// What a report says. `packet_bytes` of it are not looked at: who calls has opened and read it.
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

    /// Counts what both ends agree on.
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
                    // A former life of the receiver may have had it.
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

    /// Counts datagrams of which so many were accepted. What was given up may be among those: which of them is not known, so
    /// that the rest is named in the order in which reasons grow rarer.
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
                // Of which of them the bytes are is not known.
                false => Amount { bytes: most.bytes.min(missing.bytes), ..most },
            };
            *row += part;
            missing = difference(missing, part);
        }
        if missing.datagrams > 0 {
            // Reported as arrived, and not accepted: the receiver contradicts itself.
            self.fates.uncertain += missing;
            self.fates.contradictions += 1;
        }
    }

    /// Goes on with a session that was made anew. `known`: what the receiver remembers of this run; `None`: nothing, its memory was
    /// lost, and a new run begins at the sequence number that this returns.
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

        // What was sent and not reported goes again, oldest first.
        for (at, item) in self.items.iter_mut().enumerate() {
            if matches!(item.state, State::Sent { .. } | State::Lost) {
                item.state = State::Lost;
                self.lost.push_back(self.base + at as u64);
            }
        }
        self.base
    }

    /// Names what former processes left open: the receiver has settled everything that they sent.
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
        // An end without an answer left some uncertain that now are known.
        let known_now = least(difference(accepted, delivered), self.earlier.uncertain);
        self.earlier.delivered += known_now;
        self.earlier.uncertain = difference(self.earlier.uncertain, known_now);
        self.accepted = totals.accepted;
        self.accepted_earlier = totals.accepted;
    }

    /// A receiver that has begun anew with what it kept has no parts of datagrams that were not complete.
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

    /// The receiver knows nothing of what it had: what was reported was accepted, and the rest is decided here.
    fn begin_run(&mut self) {
        (self.accepted, self.accepted_earlier) = Default::default();
        let mut at = 0;
        while at < self.items.len() {
            let number = self.items[at].number;
            let parts = self.items.iter().skip(at).take_while(|item| item.number == number).count();
            self.settle_datagram(at, parts);
            at += parts;
        }

        // Numbers go on. What is settled at the front is nobody's business any more.
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

    /// Ends: what was reported is delivered, what was never sent is counted as such, and the rest is uncertain.
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

    /// Everything whose fate is known, or known to stay unknown.
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

/// A packet with this sequence number has arrived.
fn arrive(items: &mut VecDeque<Item>, base: u64, sequence: u64) {
    let at = sequence.checked_sub(base).map(|at| at as usize);
    if let Some(item) = at.and_then(|at| items.get_mut(at))
        && matches!(item.state, State::Sent { .. } | State::Lost)
    {
        item.state = State::Arrived;
    }
}

/// This packet, which carried this sequence number, is lost.
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
