//! Both ends of links with their keys, driven by any sequence of packets that are authentic: what a sender or a receiver would
//! send, what none would, and what was sent before. Each end must count every datagram, a receiving end must keep to its memory,
//! and nothing may be answered with more bytes than it had.

#![no_main]

use hop::kept::{KeptSender, Memory};
use hop::packet::{Kind, Origin, Sender as From};
use hop::{
    Amount, Far, Identity, Key, Keys, Moment, Near, Next, ReceiverOptions, SenderOptions, Taken,
};
use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

const BEGIN_UNIX_NS: u64 = 1_700_000_000_000_000_000;
const NEARS: usize = 4;
const ACTS_MAX: usize = 400;
const SENDER: SenderOptions = SenderOptions {
    rate_bytes_per_sec: 10_000_000,
    repair_percent: 50,
    part_bytes: 200,
    window: 256,
    redelivers: true,
};

/// The fuzzer's input, a few bytes at a time.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Near 0, or anywhere.
    fn number_of_any_size(&mut self) -> u64 {
        let bits = self.number(1) % 65;
        self.number(8) & 1_u64.checked_shl(bits as u32).map_or(u64::MAX, |above| above - 1)
    }
}

#[derive(Clone, Default)]
struct Records(Arc<Mutex<(Vec<u8>, usize)>>);

impl Memory for Records {
    fn note(&mut self, record: &[u8]) {
        self.0.lock().unwrap().0.extend(record);
    }

    fn is_full(&self) -> bool {
        let (records, begun) = &*self.0.lock().unwrap();
        records.len() > begun + 2_000
    }

    fn begin_anew(&mut self, records: &[u8]) {
        *self.0.lock().unwrap() = (records.to_vec(), records.len());
    }
}

struct Scene {
    far: Far,
    options: ReceiverOptions,
    records: Records,
    nears: Vec<Near>,
    now_ns: u64,
    /// Caller's number of the newest datagram.
    number: u64,
    handed_on: Amount,
    /// Packets to the receiver.
    recorded: Vec<(usize, Vec<u8>)>,
    /// Bytes that the receiver got, and that it sent.
    bytes: (usize, usize),
}

/// Three senders have the first key, one the second.
fn key(at: usize) -> Key {
    Key::new(if at < 3 { "a" } else { "b" }, [if at < 3 { 1 } else { 2 }; 32])
}

fn keys() -> Keys {
    Keys::parse(&format!("{}\n{}\n", key(0).line(), key(3).line())).unwrap()
}

fn identity(at: usize) -> Identity {
    Identity { host: format!("host-{}", at % 2), listener: "in".to_owned() }
}

fn addr(at: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, at as u8], 7_000))
}

fn at_rest(near: &Near) {
    let fates = near.fates();
    let (taken, settled) = (fates.taken.datagrams, fates.settled().datagrams);
    assert_eq!(taken, settled + near.open(), "{fates:?}");
    let earlier = near.earlier();
    assert!(earlier.settled().datagrams <= earlier.taken.datagrams, "{earlier:?}");
}

impl Scene {
    fn new(input: &mut Input<'_>) -> Scene {
        let shape = input.number(1) as usize;
        let options = ReceiverOptions {
            window: [64, 4_096, 1 << 22][shape % 3],
            parts_bytes: [0, 2_000, 1 << 20][shape / 3 % 3],
            hold_ns: [None, Some(1_000_000), Some(60_000_000_000)][shape / 9 % 3],
            room_bytes: [0, 2_000, 20_000, 1 << 20][shape / 27 % 4],
            senders_max: 1,
        };
        let moment = Moment { now_ns: 0, unix_ns: BEGIN_UNIX_NS };
        let (mut far, records) = (Far::new(keys(), options, moment), Records::default());
        far.remember(0, &[], Box::new(records.clone()));
        Scene {
            far,
            options,
            records,
            nears: (0..NEARS).map(|at| Near::new(key(at), identity(at), SENDER, 0)).collect(),
            now_ns: 0,
            number: 0,
            handed_on: Amount::default(),
            recorded: Vec::new(),
            bytes: (0, 0),
        }
    }

    fn moment(&self) -> Moment {
        Moment { now_ns: self.now_ns, unix_ns: BEGIN_UNIX_NS + self.now_ns }
    }

    fn deliver(&mut self, at: usize, mut packet: Vec<u8>) {
        let (moment, mut answer, len) = (self.moment(), Vec::new(), packet.len());
        if self.recorded.len() < 64 {
            self.recorded.push((at, packet.clone()));
        }
        let handed_on = &mut self.handed_on;
        self.far.on_packet(
            moment,
            addr(at),
            &mut packet,
            &mut |_, one| *handed_on += Amount::one(one.bytes.len() as u64),
            &mut answer,
        );
        assert!(answer.len() <= len, "{} bytes for {len}", answer.len());
        self.bytes.0 += len;
        self.bytes.1 += answer.len();
        if !answer.is_empty() {
            self.nears[at].on_packet(self.now_ns, &mut answer);
        }
    }

    /// What a sender does: a hello if one is due, and packets, those of `lost` do not arrive.
    fn send(&mut self, at: usize, ahead_ns: i64, lost: u64) {
        let mut packet = Vec::new();
        let unix_ns = self.moment().unix_ns.saturating_add_signed(ahead_ns);
        if self.nears[at].hello(self.now_ns, unix_ns, &mut packet) {
            self.deliver(at, packet.clone());
        }
        for turn in 0..64 {
            packet.clear();
            match self.nears[at].next(self.now_ns) {
                Next::Data(one) => {
                    let bytes = one.offset + one.len;
                    let bytes =
                        if one.part.begins() { 1 + (one.number % 997) as u16 } else { bytes };
                    let origin = Origin { received_unix_ns: 1, sender: From::Nobody, bytes };
                    let part = vec![7; one.len.into()];
                    self.nears[at].seal_data(self.now_ns, &one, origin, &part, &mut packet);
                }
                Next::Floor { packet: number, floor } => {
                    self.nears[at].seal_floor(self.now_ns, number, floor, &mut packet);
                }
                Next::Wait { .. } => break,
            }
            if lost >> turn & 1 == 0 {
                self.deliver(at, packet.clone());
            }
        }
    }

    fn report(&mut self) {
        let (mut packet, handed_on) = (Vec::new(), &mut self.handed_on);
        self.far.release(self.now_ns, &mut |_, one| {
            *handed_on += Amount::one(one.bytes.len() as u64);
        });
        while let Some(to) = self.far.next_report(self.now_ns, &mut packet) {
            let at = (0..NEARS).find(|at| addr(*at) == to).unwrap();
            self.bytes.1 += packet.len();
            self.nears[at].on_packet(self.now_ns, &mut packet);
            packet.clear();
        }
    }

    /// Another process of the receiving end, with what this one kept.
    fn restart(&mut self) {
        self.release_all();
        let (moment, accepted) = (self.moment(), self.far.accepted());
        self.far = Far::new(keys(), self.options, moment);
        let noted = self.records.0.lock().unwrap().0.clone();
        assert!(self.far.remember(self.now_ns, &noted, Box::new(self.records.clone())));
        assert_eq!(self.far.accepted(), accepted, "what was kept");
    }

    fn release_all(&mut self) {
        let handed_on = &mut self.handed_on;
        self.far.release(u64::MAX, &mut |_, one| {
            *handed_on += Amount::one(one.bytes.len() as u64);
        });
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let act = input.number(1) as usize;
        let at = act / 16 % NEARS;
        match act % 16 {
            0..=3 => {
                self.number += 1;
                let (number, bytes) = (self.number, 1 + (self.number % 997) as u16);
                if self.nears[at].has_room(self.now_ns, bytes) {
                    let expires_ns = self.now_ns + 5_000_000_000;
                    self.nears[at].take(self.now_ns, Taken { number, bytes, expires_ns });
                }
                self.send(at, 0, 0);
            }
            4 => self.send(at, 0, input.number(8)),
            5 => {
                let hours = input.number(1) as i64 - 128;
                self.send(at, hours * 1_800_000_000_000, 0);
            }
            6 | 7 => {
                // Our own sealer counts on from the number that it is given.
                let number = input.number_of_any_size() % (1 << 63);
                let len = input.number(1) as usize;
                let kind = if act % 16 == 6 { Kind::Data } else { Kind::Floor };
                let mut packet = Vec::new();
                self.nears[at].hostile((kind, number), input.take(len), &mut packet);
                self.deliver(at, packet);
            }
            8 | 9 => {
                let len = input.number(1) as usize;
                let (inside, mut packet) = (input.take(len), Vec::new());
                if self.far.hostile(addr(at), inside, &mut packet) {
                    self.nears[at].on_packet(self.now_ns, &mut packet);
                }
            }
            10 => {
                let shift = input.number(1) % 48;
                self.now_ns = (self.now_ns + (1 << shift)).min(1 << 60);
            }
            11 => self.nears[at] = Near::new(key(at), identity(at), SENDER, self.now_ns),
            12 => {
                let kept = KeptSender::decode(&self.nears[at].keep().encode()).unwrap();
                self.nears[at] = Near::resume(key(at), identity(at), SENDER, &kept, self.now_ns);
            }
            13 => {
                let which = input.number(1) as usize;
                if let Some((at, packet)) = self.recorded.get(which % 64).cloned() {
                    self.deliver(at, packet);
                }
            }
            14 => self.restart(),
            _ => self.report(),
        }
    }

    fn check(&self) {
        let senders_max = self.options.senders_max as usize;
        assert!(self.far.room_used() <= self.options.room_bytes, "{}", self.far.room_used());
        assert!(self.far.session_count() <= 2 * senders_max, "{}", self.far.session_count());
        assert!(self.far.run_count() <= 4 * senders_max, "{}", self.far.run_count());
        let (accepted, handed_on) = (self.far.accepted(), self.handed_on);
        assert!(handed_on.datagrams <= accepted.datagrams && handed_on.bytes <= accepted.bytes);
        assert!(self.bytes.1 <= self.bytes.0, "{:?}", self.bytes);
        self.nears.iter().for_each(at_rest);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut scene = Scene::new(&mut input);
    // A session is what takes most of the time. The others get theirs when they send.
    scene.send(0, 0, 0);
    scene.send(0, 0, 0);
    for _ in 0..ACTS_MAX {
        if input.0.is_empty() {
            break;
        }
        scene.act(&mut input);
        scene.check();
    }
    scene.release_all();
    assert_eq!(scene.far.accepted(), scene.handed_on);
});
