//! Both ends over a bad network, with both ledgers. One seed gives one history.
//!
//! Packets are lost, duplicated, delayed and reordered in both directions; the rate, the window and the deadline are short or
//! ample; the sender's memory is taken away; the link is dead for a while; either end stops at any moment and restarts from what
//! it kept; and the receiver loses its memory. At every step each datagram taken must be settled or open. Each must arrive
//! unchanged, and once, except for those counted as possible duplicates. At the end, both ends must have counted the same.
//!
//! `WEIR_SIM_SEEDS` sets the number of seeds; `WEIR_SIM_SEED` replays a single one.

use crate::kept::{KeptSender, Record};
use crate::key::KeyId;
use crate::packet::{DataHead, Floor, Origin, Report, Sender as From};
use crate::receiver::{Accepted, Arrivals, Outcome, Receiver, ReceiverOptions, Room};
use crate::sender::{Next, Sender, SenderOptions, Taken, Transmission};
use crate::{Amount, Totals};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Sebastiano Vigna's splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const MS: u64 = 1_000_000;
const KEY: KeyId = KeyId(1);

/// A packet in flight.
enum Flying {
    Data { session: u32, packet: u64, sealed: Vec<u8> },
    Floor { session: u32, packet: u64, sealed: Vec<u8> },
    Report { session: u32, sealed: Vec<u8> },
}

/// One direction of the network.
struct Wire {
    flying: BTreeMap<(u64, u64), Flying>,
    count: u64,
    lost_per_1000: u64,
    losses: Losses,
    doubled_per_1000: u64,
    delay_ns: u64,
    jitter_ns: u64,
    dead_until_ns: u64,
}

/// How losses are distributed.
#[derive(Clone, Copy)]
enum Losses {
    /// Independent of each other.
    Alone,
    /// In bursts of [`BURST_PACKETS`] on average (the Gilbert-Elliott model): everything is lost in the bad state.
    Bursts { is_bad: bool },
}

const BURST_PACKETS: u64 = 5;

impl Wire {
    fn loses(&mut self, random: &mut Random) -> bool {
        let lost = self.lost_per_1000;
        match &mut self.losses {
            Losses::Alone => random.below(1_000) < lost,
            Losses::Bursts { is_bad } => {
                // The share of time in the bad state is the loss rate.
                *is_bad = match is_bad {
                    true => !random.one_in(BURST_PACKETS),
                    false => random.below(BURST_PACKETS * (1_000 - lost)) < lost,
                };
                *is_bad
            }
        }
    }

    fn send(&mut self, random: &mut Random, now_ns: u64, packet: impl Fn() -> Flying) {
        let copies = 1 + u64::from(random.below(1_000) < self.doubled_per_1000);
        for _ in 0..copies {
            if now_ns < self.dead_until_ns || self.loses(random) {
                continue;
            }
            let arrives_ns = now_ns + self.delay_ns + random.below(self.jitter_ns + 1);
            self.count += 1;
            self.flying.insert((arrives_ns, self.count), packet());
        }
    }
}

/// The receiving end: a run, and the packets of the session.
struct Far {
    receiver: Receiver,
    room: Room,
    arrivals: Arrivals,
    session: u32,
    seen: HashSet<u64>,
    /// How often each datagram was accepted, by the number in it.
    got: HashMap<u64, u32>,
    kept: KeptFar,
}

/// What outlives the receiver's process: a snapshot, and records of what it accepted since.
#[derive(Default)]
struct KeptFar {
    floor: u64,
    accepted: Amount,
    /// By their first sequence number.
    slots: Vec<(u64, Vec<u8>)>,
    records: Vec<u8>,
}

impl KeptFar {
    fn of(receiver: &Receiver) -> KeptFar {
        let Totals { floor, accepted } = receiver.totals();
        let mut kept = KeptFar { floor, accepted, ..KeptFar::default() };
        receiver.kept_slots(&mut |first, slots| kept.slots.push((first, slots.to_vec())));
        kept
    }

    fn read(&self, options: ReceiverOptions) -> (Receiver, Room) {
        let KeptFar { floor, accepted, slots, records } = self;
        let mut room = Room::new(options.room_bytes);
        let mut receiver = Receiver::from_kept(options, KEY, *floor, *accepted);
        for (first, slots) in slots {
            receiver.restore_slots(*first, slots, &mut room);
        }
        let mut at = &records[..];
        while let Some(record) = Record::decode(&mut at) {
            let Record::Accepted { floor, last, parts, bytes, .. } = record else { panic!() };
            receiver.accept_again(floor, (last, parts), bytes, &mut room);
        }
        (receiver, room)
    }
}

fn payload(number: u64, len: usize) -> Vec<u8> {
    let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len).map(|at| if at < 8 { number.to_le_bytes()[at] } else { bytes[at % 8] }).collect()
}

impl Far {
    fn new(options: ReceiverOptions, floor: u64, session: u32, now_ns: u64) -> Far {
        Far {
            receiver: Receiver::new(options, KEY, floor),
            room: Room::new(options.room_bytes),
            arrivals: Arrivals::new(MS, now_ns),
            session,
            seen: HashSet::new(),
            got: HashMap::new(),
            kept: KeptFar { floor, ..KeptFar::default() },
        }
    }

    fn on_data(&mut self, packet: u64, sealed: &[u8], now_ns: u64) {
        // Stands in for the replay window.
        if self.seen.contains(&packet) {
            return;
        }
        let (head, bytes) = DataHead::decode(sealed).unwrap();
        let Far { got, kept, receiver, room, .. } = self;
        let mut note = |accepted: Accepted<'_>| {
            let Accepted { sequence: last, parts, floor, bytes, .. } = accepted;
            let bytes = bytes.len() as u16;
            Record::Accepted { run: 0, floor, last, parts, bytes }.encode(&mut kept.records);
        };
        let data = (&head, bytes);
        let outcome = receiver.on_data(now_ns, data, room, &mut note, &mut |one| get(got, &one));
        if outcome != Outcome::NoRoom {
            self.seen.insert(packet);
            self.arrivals.note(packet, sealed.len() + 32, head.asks, now_ns);
        }
    }

    /// Passes on what has waited long enough.
    fn release(&mut self, now_ns: u64) {
        let Far { got, receiver, room, .. } = self;
        receiver.release(now_ns, room, &mut |one| get(got, &one));
    }
}

/// Records a datagram that was passed on.
fn get(got: &mut HashMap<u64, u32>, one: &Accepted<'_>) {
    let number = u64::from_le_bytes(*one.bytes.first_chunk().unwrap());
    assert_eq!(one.bytes, payload(number, one.bytes.len()), "changed");
    assert_eq!(one.origin.received_unix_ns, number);
    *got.entry(number).or_default() += 1;
}

/// The datagrams to send, as the relay's ring holds them.
struct Near {
    sender: Sender,
    session: u32,
    lens: HashMap<u64, u16>,
    number: u64,
    /// What outlives its process.
    kept: KeptSender,
}

impl Near {
    fn seal(&self, one: &Transmission) -> Vec<u8> {
        let bytes = self.lens[&one.number];
        let origin = Origin { received_unix_ns: one.number, sender: From::Unknown, bytes };
        let head = DataHead {
            sequence_low: one.sequence as u32,
            beyond_floor: (one.sequence - one.floor).try_into().unwrap(),
            part: one.part,
            asks: one.asks,
            may_be_second: one.may_be_second,
            origin: one.part.begins().then_some(origin),
        };
        let mut sealed = Vec::new();
        head.encode(&mut sealed);
        let whole = payload(one.number, bytes.into());
        sealed.extend(&whole[one.offset.into()..][..one.len.into()]);
        sealed
    }
}

/// How hard a history is.
struct Plan {
    /// Whether events happen in addition to what the network does.
    is_eventful: bool,
    forgets: bool,
    crashes: bool,
    near: SenderOptions,
    datagrams: u64,
    deadline_ns: u64,
    gap_ns: u64,
    far: ReceiverOptions,
}

/// Both ends, and the network between them.
struct History {
    seed: u64,
    random: Random,
    plan: Plan,
    now_ns: u64,
    near: Near,
    far: Far,
    /// To the receiver, and back.
    wires: [Wire; 2],
    /// What earlier lives of the receiver accepted, and how often.
    got_before: HashMap<u64, u32>,
    has_forgotten: bool,
    next_datagram_ns: u64,
    unsent: u64,
    /// From this time on the network is intact.
    ends_ns: u64,
}

fn plan(seed: u64, random: &mut Random) -> (Plan, Wire) {
    let delay_ns = [10_000, MS, 10 * MS, 50 * MS][random.below(4) as usize];
    let wire = Wire {
        flying: BTreeMap::new(),
        count: 0,
        lost_per_1000: [0, 10, 50, 200, 300, 500][random.below(6) as usize],
        losses: match seed % 3 {
            0 => Losses::Bursts { is_bad: false },
            _ => Losses::Alone,
        },
        doubled_per_1000: [0, 0, 20][random.below(3) as usize],
        delay_ns,
        jitter_ns: [0, delay_ns / 40, delay_ns][random.below(3) as usize],
        dead_until_ns: 0,
    };
    let options = SenderOptions {
        rate_bytes_per_sec: [50_000, 1_000_000, 1_000_000_000][random.below(3) as usize],
        repair_percent: [0, 50, 50, 1_000][random.below(4) as usize],
        part_bytes: 200,
        window: [64, 4_096][random.below(2) as usize],
        redelivers: random.one_in(2),
    };
    let plan = Plan {
        is_eventful: true,
        forgets: random.one_in(3),
        crashes: random.one_in(2),
        near: options,
        datagrams: 50 + random.below(400),
        deadline_ns: [20 * MS, 200 * MS, 5_000 * MS][random.below(3) as usize],
        gap_ns: [10_000, MS, 20 * MS][random.below(3) as usize],
        far: ReceiverOptions {
            window: [64, 4_096][random.below(2) as usize],
            parts_bytes: [0, 10_000][random.below(2) as usize],
            hold_ns: [None, None, Some(MS), Some(100 * MS)][random.below(4) as usize],
            room_bytes: [1 << 20, 1 << 20, 20_000][random.below(3) as usize],
            senders_max: 1,
        },
    };
    (plan, wire)
}

impl History {
    fn begin(seed: u64) -> History {
        let mut random = Random(seed);
        let (plan, wire) = plan(seed, &mut random);
        History::with(seed, random, plan, wire)
    }

    fn with(seed: u64, random: Random, plan: Plan, wire: Wire) -> History {
        let now_ns = 1_000 * MS;
        let sender = Sender::new(plan.near, 0, now_ns);
        let kept = sender.keep([1; 16], 1);
        let back = Wire { flying: BTreeMap::new(), ..wire };
        History {
            seed,
            random,
            now_ns,
            near: Near { sender, session: 1, lens: HashMap::new(), number: 0, kept },
            far: Far::new(plan.far, 0, 1, now_ns),
            wires: [Wire { flying: BTreeMap::new(), ..back }, back],
            got_before: HashMap::new(),
            has_forgotten: false,
            next_datagram_ns: now_ns,
            unsent: 0,
            ends_ns: u64::MAX,
            plan,
        }
    }

    /// Plays until everything is at rest.
    fn play(&mut self) {
        let seed = self.seed;
        for _ in 0..4_000_000u64 {
            self.take_what_is_new();
            let until_ns = self.send();
            self.check_law();
            self.happen();

            if self.near.number == self.plan.datagrams && self.near.sender.is_at_rest() {
                return;
            }
            if self.now_ns >= self.ends_ns {
                for wire in &mut self.wires {
                    (wire.lost_per_1000, wire.dead_until_ns) = (0, 0);
                }
                let is_late = self.now_ns >= self.ends_ns + 60_000 * MS;
                assert!(!is_late, "seed {seed}: not at rest: {:?}", self.near.sender.fates());
            }
            self.move_on(until_ns);
            self.arrive();
        }
        panic!("seed {seed}: does not end");
    }

    fn take_what_is_new(&mut self) {
        let now_ns = self.now_ns;
        while now_ns >= self.next_datagram_ns && self.near.number < self.plan.datagrams {
            self.next_datagram_ns += self.plan.gap_ns;
            self.near.number += 1;
            let number = self.near.number;
            let bytes = match self.random.one_in(20) {
                true => 200 + self.random.below(2_000),
                false => 8 + self.random.below(192),
            } as u16;
            if self.near.sender.has_room(now_ns, bytes) {
                self.near.lens.insert(number, bytes);
                let expires_ns = now_ns + self.plan.deadline_ns;
                self.near.sender.take(now_ns, Taken { number, bytes, expires_ns });
            } else {
                self.unsent += 1;
            }
        }
        if self.near.number == self.plan.datagrams && self.ends_ns == u64::MAX {
            self.near.sender.begin_drain();
            self.ends_ns = now_ns + 60_000 * MS;
        }
    }

    /// Lets both ends send, and returns when one of them next wants to act.
    fn send(&mut self) -> u64 {
        let (now_ns, session) = (self.now_ns, self.near.session);
        self.near.kept = self.near.sender.keep([1; 16], 1);
        let until_ns = loop {
            let (packet, sealed, is_data) = match self.near.sender.next(now_ns) {
                Next::Data(one) => (one.packet, self.near.seal(&one), true),
                Next::Floor { packet, floor } => {
                    let mut sealed = Vec::new();
                    Floor { floor }.encode(&mut sealed);
                    (packet, sealed, false)
                }
                Next::Wait { until_ns } => break until_ns,
            };
            self.wires[0].send(&mut self.random, now_ns, || {
                let sealed = sealed.clone();
                if is_data {
                    Flying::Data { session, packet, sealed }
                } else {
                    Flying::Floor { session, packet, sealed }
                }
            });
        };

        let Far { arrivals, receiver, session, .. } = &mut self.far;
        let mut bitmap = Vec::new();
        if let Some(report) = arrivals.report(now_ns, receiver, &mut bitmap) {
            let mut sealed = Vec::new();
            report.encode(&mut sealed);
            let session = *session;
            self.wires[1].send(&mut self.random, now_ns, || Flying::Report {
                session,
                sealed: sealed.clone(),
            });
        }
        self.far.release(now_ns);
        let hold_ns = self.far.receiver.hold_due_ns().unwrap_or(u64::MAX);
        until_ns.min(self.far.arrivals.due_ns().unwrap_or(u64::MAX)).min(hold_ns)
    }

    fn check_law(&self) {
        let (seed, fates) = (self.seed, self.near.sender.fates());
        let open = self.near.sender.open_below(u64::MAX);
        let settled = fates.settled().datagrams;
        assert_eq!(fates.taken.datagrams, settled + open, "seed {seed}: {fates:?}");
        assert_eq!(fates.contradictions, 0, "seed {seed}: {fates:?}");
    }

    /// Triggers occasional events.
    fn happen(&mut self) {
        let now_ns = self.now_ns;
        if self.plan.is_eventful && self.random.one_in(200) && now_ns < self.ends_ns {
            match self.random.below(7) {
                0 => {
                    let lapped = self.near.number.saturating_sub(self.random.below(50));
                    self.near.sender.give_up_below(lapped);
                }
                1 => {
                    let wire = self.random.below(2) as usize;
                    self.wires[wire].dead_until_ns = now_ns + self.random.below(4_000) * MS;
                }
                2 => self.meet_again(),
                3 if self.plan.forgets => self.forget(),
                4 if self.plan.crashes => self.end_receiver(),
                5 if self.plan.crashes => self.end_sender(),
                6 => self.fall_silent(),
                _ => {}
            }
        }
        if self.near.sender.is_unanswered(now_ns) && self.random.one_in(3) {
            self.meet_again();
        }
    }

    /// Starts a new session in the same run.
    fn meet_again(&mut self) {
        self.near.session += 1;
        self.far.arrivals = Arrivals::new(MS, self.now_ns);
        self.far.seen.clear();
        self.far.session = self.near.session;
        self.near.sender.begin_session(self.now_ns, Some(self.far.receiver.totals()));
    }

    /// The session ends because nothing came for minutes: only totals are left at the receiver.
    fn fall_silent(&mut self) {
        self.far.release(u64::MAX);
        let Far { receiver, room, .. } = &mut self.far;
        receiver.settle(room);
        assert_eq!(room.used(), 0);
        self.far.kept = KeptFar::of(&self.far.receiver);
        self.meet_again();
    }

    /// Ends the receiver's process and continues with another from what it kept. Sometimes it takes a new snapshot first.
    fn end_receiver(&mut self) {
        // Datagrams still waiting are lost with the ring: they count as accepted by this process.
        self.far.release(u64::MAX);
        if self.random.one_in(2) {
            self.far.kept = KeptFar::of(&self.far.receiver);
        }
        let far = self.plan.far;
        if self.random.one_in(4) {
            // Other runs have all the room, until a moment later: totals are all that the process can remember.
            (self.far.receiver, _) = self.far.kept.read(ReceiverOptions { room_bytes: 0, ..far });
            self.far.room = Room::new(far.room_bytes);
        } else {
            (self.far.receiver, self.far.room) = self.far.kept.read(far);
        }
        self.meet_again();
    }

    /// Ends the sender's process and continues with another from what it kept.
    fn end_sender(&mut self) {
        let kept = KeptSender::decode(&self.near.kept.encode()).unwrap();
        assert_eq!(kept.fates.taken.datagrams + self.unsent, self.near.number);
        self.near.sender = Sender::resume(self.plan.near, &kept, self.now_ns);
        if self.ends_ns != u64::MAX {
            self.near.sender.begin_drain();
        }
        // Its hello says where the earlier process stopped.
        let Far { receiver, room, .. } = &mut self.far;
        receiver.adopt(kept.next, room);
        self.meet_again();
    }

    /// Makes the receiver lose its memory.
    fn forget(&mut self) {
        self.has_forgotten = true;
        self.far.release(u64::MAX);
        self.near.session += 1;
        for (number, count) in self.far.got.drain() {
            *self.got_before.entry(number).or_default() += count;
        }
        let floor = self.near.sender.begin_session(self.now_ns, None);
        self.far = Far::new(self.plan.far, floor, self.near.session, self.now_ns);
    }

    /// Advances to the next event.
    fn move_on(&mut self, until_ns: u64) {
        let arrival_ns = |wire: &Wire| wire.flying.keys().next().map_or(u64::MAX, |(ns, _)| *ns);
        let has_new = self.near.number < self.plan.datagrams;
        let new_ns = if has_new { self.next_datagram_ns } else { u64::MAX };
        let [there, back] = &self.wires;
        let next_ns = until_ns.min(new_ns).min(arrival_ns(there)).min(arrival_ns(back));
        self.now_ns = next_ns.clamp(self.now_ns + 1_000, self.now_ns + 100 * MS);
    }

    fn arrive(&mut self) {
        let now_ns = self.now_ns;
        while let Some(entry) = self.wires[0].flying.first_entry()
            && entry.key().0 <= now_ns
        {
            let far = &mut self.far;
            match entry.remove() {
                Flying::Data { session, packet, sealed } if session == far.session => {
                    far.on_data(packet, &sealed, now_ns);
                }
                Flying::Floor { session, packet, sealed }
                    if session == far.session && far.seen.insert(packet) =>
                {
                    far.receiver.adopt(Floor::decode(&sealed).unwrap().floor, &mut far.room);
                    far.arrivals.note(packet, 40, true, now_ns);
                }
                _ => {}
            }
        }
        while let Some(entry) = self.wires[1].flying.first_entry()
            && entry.key().0 <= now_ns
        {
            if let Flying::Report { session, sealed } = entry.remove()
                && session == self.near.session
            {
                self.near.sender.on_report(now_ns, &Report::decode(&sealed).unwrap());
            }
        }
    }

    /// Compares the counts of both ends, and returns how many datagrams were delivered and how many were taken.
    fn compare(mut self) -> (u64, u64) {
        self.far.release(u64::MAX);
        assert_eq!(self.far.room.used(), self.far.receiver.bytes());
        let (seed, mut fates) = (self.seed, self.near.sender.fates());
        fates += self.near.sender.earlier();
        assert_eq!(fates.taken, fates.settled(), "seed {seed}: {fates:?}");
        assert_eq!(fates.taken.datagrams + self.unsent, self.plan.datagrams);
        let far = self.far.got;
        assert!(far.values().all(|count| *count == 1), "seed {seed}: twice in one life");

        let mut got = self.got_before;
        for (number, count) in far {
            *got.entry(number).or_default() += count;
        }
        let bytes: u64 = got.keys().map(|number| u64::from(self.near.lens[number])).sum();
        let twice: u64 = got.values().map(|count| u64::from(count - 1)).sum();
        let (arrived, delivered) = (got.len() as u64, fates.delivered);
        assert!(twice <= fates.possible_duplicates, "seed {seed}: {twice} twice: {fates:?}");

        if self.has_forgotten {
            // An earlier life accepted some of the uncertain ones, or of those resent and then given up or lost.
            let more = fates.uncertain.datagrams + fates.possible_duplicates;
            let expected = delivered.datagrams..=delivered.datagrams + more;
            assert!(expected.contains(&arrived), "seed {seed}: {arrived}, {fates:?}");
        } else {
            assert_eq!(self.far.receiver.accepted(), delivered, "seed {seed}");
            assert_eq!((delivered.datagrams, delivered.bytes), (arrived, bytes), "seed {seed}");
            let unknown = (fates.uncertain.datagrams, fates.possible_duplicates);
            assert_eq!(unknown, (0, 0), "seed {seed}");
        }
        (delivered.datagrams, fates.taken.datagrams)
    }
}

/// Plays one history, and returns how many datagrams were delivered and how many were taken.
fn play(seed: u64) -> (u64, u64) {
    let mut history = History::begin(seed);
    history.play();
    history.compare()
}

#[test]
fn both_ends_count_the_same_whatever_happens_between_them() {
    let of = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let Some(seed) = of("WEIR_SIM_SEED") {
        play(seed);
        return;
    }
    let seeds = of("WEIR_SIM_SEEDS").unwrap_or(10_000u64);
    let (mut delivered, mut taken) = (0, 0);
    for seed in 0..seeds {
        let (more, of) = play(seed);
        delivered += more;
        taken += of;
    }
    assert!(delivered * 3 > taken * 2, "{delivered} of {taken}");
}

/// A link at 2,000 datagrams per second on which nothing happens except that a fifth of the packets is lost in each direction.
#[derive(Clone, Copy)]
struct Steady {
    losses: Losses,
    round_trip_ns: u64,
    deadline_ns: u64,
}

impl Steady {
    /// Share of datagrams delivered, and average number of packets per datagram.
    fn play(self, seed: u64) -> (f64, f64) {
        let Steady { losses, round_trip_ns, deadline_ns } = self;
        let wire = Wire {
            flying: BTreeMap::new(),
            count: 0,
            lost_per_1000: 200,
            losses,
            doubled_per_1000: 0,
            delay_ns: round_trip_ns / 2,
            jitter_ns: round_trip_ns / 40,
            dead_until_ns: 0,
        };
        let plan = Plan {
            is_eventful: false,
            forgets: false,
            crashes: false,
            near: SenderOptions {
                rate_bytes_per_sec: 1_000_000_000,
                repair_percent: 50,
                part_bytes: 4_000,
                window: 65_536,
                redelivers: true,
            },
            datagrams: 60_000,
            deadline_ns,
            gap_ns: MS / 2,
            far: ReceiverOptions {
                window: 65_536,
                parts_bytes: 10_000,
                hold_ns: None,
                room_bytes: 1 << 20,
                senders_max: 1,
            },
        };
        let datagrams = plan.datagrams;
        let mut history = History::with(seed, Random(seed), plan, wire);
        // An eighth of the round trip, as the receiving end derives it from the first packet.
        history.far.arrivals = Arrivals::new(round_trip_ns / 8, history.now_ns);
        history.play();
        let packets = history.near.sender.way().packets;
        let (delivered, taken) = history.compare();
        assert_eq!(taken, datagrams, "seed {seed}");
        (delivered as f64 / datagrams as f64, packets as f64 / datagrams as f64)
    }
}

#[test]
fn losses_in_bursts_cost_few_packets_more_than_those_that_come_alone() {
    let alone = Steady { losses: Losses::Alone, round_trip_ns: 20 * MS, deadline_ns: 1_000 * MS };
    let bursts = Steady { losses: Losses::Bursts { is_bad: false }, ..alone };
    for seed in 0..5 {
        let ((all, alone), (also_all, bursts)) = (alone.play(seed), bursts.play(seed));
        println!(
            "seed {seed}: {alone:.3} packets a datagram, {bursts:.3} where they are in bursts"
        );
        assert_eq!((all, also_all), (1.0, 1.0), "seed {seed}");
        // The minimum is 1.25.
        assert!(alone <= 1.02 / 0.8 && bursts <= 1.45, "seed {seed}: {alone} {bursts}");
    }
}
