//! Both ends over a bad network, with both ledgers: one seed, one history.
//!
//! Packets are lost, doubled, late and overtaken in both directions; the rate, the window and the deadline are short or ample; the
//! sender's memory is taken from it; the link is dead for a while; either end loses its memory. At every step what was taken must be
//! settled or open; each datagram must have arrived unchanged, and once, but for those that are said to be possible duplicates; and
//! at the end both ends must have counted the same.
//!
//! `WEIR_SIM_SEEDS` sets the number of seeds, `WEIR_SIM_SEED` runs a single one again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::packet::{DataHead, Floor, Origin, Report, Sender as From};
use crate::receiver::{Arrivals, Outcome, Receiver, ReceiverOptions};
use crate::sender::{Next, Sender, SenderOptions, Taken, Transmission};
use std::collections::{BTreeMap, HashMap};

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

/// A packet on its way.
enum Flying {
    Data { session: u32, packet: u64, sealed: Vec<u8> },
    Floor { session: u32, packet: u64, sealed: Vec<u8> },
    Report { session: u32, sealed: Vec<u8> },
}

/// One direction of the network, and the other.
struct Wire {
    flying: BTreeMap<(u64, u64), Flying>,
    count: u64,
    lost_per_1000: u64,
    doubled_per_1000: u64,
    delay_ns: u64,
    jitter_ns: u64,
    dead_until_ns: u64,
}

impl Wire {
    fn send(&mut self, random: &mut Random, now_ns: u64, packet: impl Fn() -> Flying) {
        let copies = 1 + u64::from(random.below(1_000) < self.doubled_per_1000);
        for _ in 0..copies {
            if now_ns < self.dead_until_ns || random.below(1_000) < self.lost_per_1000 {
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
    arrivals: Arrivals,
    session: u32,
    seen: std::collections::HashSet<u64>,
    /// Accepted, by the number in the datagram: how often.
    got: HashMap<u64, u32>,
}

fn payload(number: u64, len: usize) -> Vec<u8> {
    let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len).map(|at| if at < 8 { number.to_le_bytes()[at] } else { bytes[at % 8] }).collect()
}

impl Far {
    fn new(options: ReceiverOptions, floor: u64, session: u32, now_ns: u64) -> Far {
        Far {
            receiver: Receiver::new(options, floor),
            arrivals: Arrivals::new(MS, now_ns),
            session,
            seen: Default::default(),
            got: HashMap::new(),
        }
    }

    fn on_data(&mut self, packet: u64, sealed: &[u8], now_ns: u64) {
        // What the window against replays does.
        if self.seen.contains(&packet) {
            return;
        }
        let (head, bytes) = DataHead::decode(sealed).unwrap();
        let got = &mut self.got;
        let outcome = self.receiver.on_data(&head, bytes, &mut |accepted| {
            let number = u64::from_le_bytes(*accepted.bytes.first_chunk().unwrap());
            assert_eq!(accepted.bytes, payload(number, accepted.bytes.len()), "changed");
            assert_eq!(accepted.origin.received_unix_ns, number);
            *got.entry(number).or_default() += 1;
        });
        if outcome != Outcome::NoRoom {
            self.seen.insert(packet);
            self.arrivals.note(packet, sealed.len() + 32, head.asks, now_ns);
        }
    }
}

/// What is to be sent, as the relay's ring has it.
struct Near {
    sender: Sender,
    session: u32,
    lens: HashMap<u64, u16>,
    number: u64,
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
    crashes: bool,
    datagrams: u64,
}

/// Plays one history and returns how many were delivered of how many.
fn play(seed: u64) -> (u64, u64) {
    let mut random = Random(seed);
    let plan = Plan { crashes: random.one_in(3), datagrams: 50 + random.below(400) };
    let lost_per_1000 = [0, 10, 50, 200, 300, 500][random.below(6) as usize];
    let delay_ns = [10_000, MS, 10 * MS, 50 * MS][random.below(4) as usize];
    let mut wires = [0, 1].map(|_| Wire {
        flying: BTreeMap::new(),
        count: 0,
        lost_per_1000,
        doubled_per_1000: [0, 0, 20][random.below(3) as usize],
        delay_ns,
        jitter_ns: [0, delay_ns / 40, delay_ns][random.below(3) as usize],
        dead_until_ns: 0,
    });
    let options = SenderOptions {
        rate_bytes_per_sec: [50_000, 1_000_000, 1_000_000_000][random.below(3) as usize],
        repair_percent: [0, 50, 50, 1_000][random.below(4) as usize],
        part_bytes: 200,
        window: [64, 4_096][random.below(2) as usize],
        redelivers: random.one_in(2),
    };
    let far_options = ReceiverOptions {
        window: [64, 4_096][random.below(2) as usize],
        parts_bytes: [0, 10_000][random.below(2) as usize],
    };
    let deadline_ns = [20 * MS, 200 * MS, 5_000 * MS][random.below(3) as usize];
    let gap_ns = [10_000, MS, 20 * MS][random.below(3) as usize];

    let mut now_ns = 1_000 * MS;
    let mut near = Near {
        sender: Sender::new(options, 0, now_ns),
        session: 1,
        lens: HashMap::new(),
        number: 0,
    };
    let mut far = Far::new(far_options, 0, 1, now_ns);
    // What former lives of the receiver have accepted.
    let mut got_before: HashMap<u64, u32> = HashMap::new();
    let mut has_forgotten = false;
    let mut next_datagram_ns = now_ns;
    let mut unsent = 0;

    let mut ends_ns = u64::MAX;
    let mut steps = 0u64;
    loop {
        steps += 1;
        assert!(steps < 4_000_000, "seed {seed}: does not end");

        // What is new.
        while now_ns >= next_datagram_ns && near.number < plan.datagrams {
            next_datagram_ns += gap_ns;
            near.number += 1;
            let len = if random.one_in(20) { 200 + random.below(2_000) } else { 8 + random.below(192) };
            let number = near.number;
            if near.sender.has_room(now_ns, len as u16) {
                near.lens.insert(number, len as u16);
                let expires_ns = now_ns + deadline_ns;
                near.sender.take(now_ns, Taken { number, bytes: len as u16, expires_ns });
            } else {
                unsent += 1;
            }
        }
        if near.number == plan.datagrams && ends_ns == u64::MAX {
            near.sender.begin_drain();
            // The network is whole again in the end, so that both can agree.
            ends_ns = now_ns + 60_000 * MS;
        }

        // What leaves.
        let mut until_ns = loop {
            match near.sender.next(now_ns) {
                Next::Data(one) => {
                    let sealed = near.seal(&one);
                    let session = near.session;
                    let packet = one.packet;
                    let make = || Flying::Data { session, packet, sealed: sealed.clone() };
                    wires[0].send(&mut random, now_ns, make);
                }
                Next::Floor { packet, floor } => {
                    let mut sealed = Vec::new();
                    Floor { floor }.encode(&mut sealed);
                    let session = near.session;
                    let make = || Flying::Floor { session, packet, sealed: sealed.clone() };
                    wires[0].send(&mut random, now_ns, make);
                }
                Next::Wait { until_ns } => break until_ns,
            }
        };
        if let Some(report) = far.arrivals.report(now_ns, &far.receiver) {
            let mut sealed = Vec::new();
            report.encode(&mut sealed);
            let session = far.session;
            wires[1].send(&mut random, now_ns, || Flying::Report { session, sealed: sealed.clone() });
        }
        if let Some(due_ns) = far.arrivals.due_ns() {
            until_ns = until_ns.min(due_ns);
        }

        // The law, at every step.
        let fates = near.sender.fates();
        let open = near.sender.open_below(u64::MAX);
        let settled = fates.settled().datagrams;
        assert_eq!(fates.taken.datagrams, settled + open, "seed {seed}: {fates:?}");
        assert_eq!(fates.contradictions, 0, "seed {seed}: {fates:?}");

        // What happens now and then.
        if random.one_in(200) && now_ns < ends_ns {
            match random.below(4) {
                0 => {
                    let lapped = near.number.saturating_sub(random.below(50));
                    near.sender.give_up_below(lapped);
                }
                1 => wires[random.below(2) as usize].dead_until_ns = now_ns + random.below(4_000) * MS,
                // A session made anew in the same run.
                2 => {
                    near.session += 1;
                    let totals = far.receiver.totals();
                    far.arrivals = Arrivals::new(MS, now_ns);
                    far.seen.clear();
                    far.session = near.session;
                    near.sender.begin_session(now_ns, Some(totals));
                }
                _ if plan.crashes => {
                    has_forgotten = true;
                    near.session += 1;
                    for (number, count) in far.got.drain() {
                        *got_before.entry(number).or_default() += count;
                    }
                    let floor = near.sender.begin_session(now_ns, None);
                    far = Far::new(far_options, floor, near.session, now_ns);
                }
                _ => {}
            }
        }
        if near.sender.is_unanswered(now_ns) && random.one_in(3) {
            near.session += 1;
            far.arrivals = Arrivals::new(MS, now_ns);
            far.seen.clear();
            far.session = near.session;
            near.sender.begin_session(now_ns, Some(far.receiver.totals()));
        }

        if near.number == plan.datagrams && near.sender.is_at_rest() {
            break;
        }
        if now_ns >= ends_ns {
            for wire in &mut wires {
                (wire.lost_per_1000, wire.dead_until_ns) = (0, 0);
            }
            assert!(now_ns < ends_ns + 60_000 * MS, "seed {seed}: not at rest: {fates:?}, {open} open");
        }

        // On to the next thing that happens.
        let arrival_ns = |wire: &Wire| wire.flying.keys().next().map_or(u64::MAX, |(ns, _)| *ns);
        let new_ns = if near.number < plan.datagrams { next_datagram_ns } else { u64::MAX };
        let next_ns = until_ns.min(new_ns).min(arrival_ns(&wires[0])).min(arrival_ns(&wires[1]));
        now_ns = next_ns.clamp(now_ns + 1_000, now_ns + 100 * MS);
        while let Some(entry) = wires[0].flying.first_entry()
            && entry.key().0 <= now_ns
        {
            match entry.remove() {
                Flying::Data { session, packet, sealed } if session == far.session => {
                    far.on_data(packet, &sealed, now_ns);
                }
                Flying::Floor { session, packet, sealed } if session == far.session => {
                    if far.seen.insert(packet) {
                        far.receiver.adopt(Floor::decode(&sealed).unwrap().floor);
                        far.arrivals.note(packet, 40, true, now_ns);
                    }
                }
                _ => {}
            }
        }
        while let Some(entry) = wires[1].flying.first_entry()
            && entry.key().0 <= now_ns
        {
            if let Flying::Report { session, sealed } = entry.remove()
                && session == near.session
            {
                near.sender.on_report(now_ns, &Report::decode(&sealed).unwrap());
            }
        }
    }

    let fates = near.sender.fates();
    assert_eq!(fates.taken, fates.settled(), "seed {seed}: {fates:?}");
    assert_eq!(fates.taken.datagrams + unsent, plan.datagrams);
    assert!(far.got.values().all(|count| *count == 1), "seed {seed}: twice in one life");
    let mut got = got_before;
    for (number, count) in &far.got {
        *got.entry(*number).or_default() += count;
    }
    let bytes: u64 = got.keys().map(|number| u64::from(near.lens[number])).sum();
    let twice: u64 = got.values().map(|count| u64::from(count - 1)).sum();
    assert!(twice <= fates.possible_duplicates, "seed {seed}: {twice} twice: {fates:?}");
    let delivered = fates.delivered;
    if has_forgotten {
        // A former life has accepted some of what is uncertain, or was sent again and then given up.
        let most = delivered.datagrams + fates.uncertain.datagrams + fates.possible_duplicates;
        let arrived = got.len() as u64;
        assert!((delivered.datagrams..=most).contains(&arrived), "seed {seed}: {arrived}, {fates:?}");
    } else {
        assert_eq!(far.receiver.accepted(), delivered, "seed {seed}");
        assert_eq!((delivered.datagrams, delivered.bytes), (got.len() as u64, bytes), "seed {seed}");
        assert_eq!((fates.uncertain.datagrams, fates.possible_duplicates), (0, 0), "seed {seed}");
    }
    (delivered.datagrams, fates.taken.datagrams)
}

#[test]
fn both_ends_count_the_same_whatever_happens_between_them() {
    let of = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let Some(seed) = of("WEIR_SIM_SEED") {
        println!("{:?}", play(seed));
        return;
    }
    let seeds = of("WEIR_SIM_SEEDS").unwrap_or(10_000u64);
    let (mut delivered, mut taken) = (0, 0);
    for seed in 0..seeds {
        let (more, of) = play(seed);
        delivered += more;
        taken += of;
    }
    println!("{seeds} histories: {delivered} of {taken} delivered");
    assert!(delivered * 2 > taken);
}
