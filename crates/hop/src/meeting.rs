//! Tests of both ends with their sessions, exchanging packets as they are on the wire.

use crate::Amount;
use crate::far::{Far, FarCounts, Heard, Moment};
use crate::kept::Memory;
use crate::key::{Key, Keys};
use crate::near::{Identity, Near};
use crate::packet::{Kind, Origin, Sender as From};
use crate::receiver::ReceiverOptions;
use crate::sender::{Next, SenderOptions, Taken};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

mod hostile;
mod recordings;

const MS: u64 = 1_000_000;
const OPTIONS: SenderOptions = SenderOptions {
    rate_bytes_per_sec: 100_000_000,
    repair_percent: 50,
    part_bytes: 1_000,
    window: 4_096,
    redelivers: true,
};
const FAR_OPTIONS: ReceiverOptions = ReceiverOptions {
    window: 4_096,
    parts_bytes: 1 << 20,
    hold_ns: None,
    room_bytes: 16 << 20,
    senders_max: 100,
};

/// The time since 1970 at which tests begin.
const BEGIN_UNIX_NS: u64 = 1_700_000_000_000_000_000;

fn moment(now_ns: u64) -> Moment {
    Moment { now_ns, unix_ns: BEGIN_UNIX_NS + now_ns }
}

fn from() -> SocketAddr {
    "192.0.2.1:7000".parse().unwrap()
}

fn keys() -> (Key, Keys) {
    let key = Key::new("a", [1; 32]);
    let keys = Keys::parse(&key.line()).unwrap();
    (key, keys)
}

fn identity() -> Identity {
    Identity { host: "web-1".to_owned(), listener: "syslog".to_owned() }
}

struct Both {
    now_ns: u64,
    near: Near,
    far: Far,
    number: u64,
    got: Vec<(String, Vec<u8>)>,
    /// Every packet sent to the receiver.
    sent: Vec<Vec<u8>>,
    /// Bytes sent back.
    answered: usize,
    /// Number of welcomes still to be lost.
    welcomes_lost: u32,
}

impl Both {
    fn new() -> Both {
        let (key, keys) = keys();
        Both {
            now_ns: 0,
            near: Near::new(key, identity(), OPTIONS, 0),
            far: Far::new(keys, FAR_OPTIONS, moment(0)),
            number: 0,
            got: Vec::new(),
            sent: Vec::new(),
            answered: 0,
            welcomes_lost: 0,
        }
    }

    /// Has the sender get a session. The receiver asks for a cookie first.
    fn meet(&mut self) {
        for _ in 0..3 {
            self.turn(&mut |_| false);
        }
        assert!(self.near.is_answered(self.now_ns));
    }

    fn take(&mut self, bytes: u16) {
        assert!(self.near.has_room(self.now_ns, bytes));
        self.number += 1;
        let expires_ns = self.now_ns + 5_000 * MS;
        self.near.take(self.now_ns, Taken { number: self.number, bytes, expires_ns });
    }

    /// Lets both ends do what they want now. A packet to the receiver for which `is_lost` is true does not arrive.
    fn turn(&mut self, is_lost: &mut dyn FnMut(&[u8]) -> bool) {
        let now_ns = self.now_ns;
        let mut packets = Vec::new();
        let mut out = Vec::new();
        if self.near.hello(now_ns, moment(now_ns).unix_ns, &mut out) {
            packets.push(std::mem::take(&mut out));
        }
        loop {
            match self.near.next(now_ns) {
                Next::Data(one) => {
                    let bytes = one.offset + one.len;
                    let origin =
                        Origin { received_unix_ns: 3, sender: From::Nobody, bytes: bytes.max(1) };
                    let origin =
                        Origin { bytes: self.len_of(one.number).max(origin.bytes), ..origin };
                    let part = vec![one.number as u8; one.len.into()];
                    self.near.seal_data(now_ns, &one, origin, &part, &mut out);
                }
                Next::Floor { packet, floor } => {
                    self.near.seal_floor(now_ns, packet, floor, &mut out);
                }
                Next::Wait { .. } => break,
            }
            packets.push(std::mem::take(&mut out));
        }
        for packet in packets {
            self.sent.push(packet.clone());
            if !is_lost(&packet) {
                self.arrive(packet);
            }
        }
        while self.far.next_report(now_ns, &mut out).is_some() {
            self.answered += out.len();
            self.near.on_packet(now_ns, &mut out);
            out.clear();
        }
        self.now_ns += MS;
    }

    fn len_of(&self, number: u64) -> u16 {
        if number.is_multiple_of(5) { 2_500 } else { 100 }
    }

    fn arrive(&mut self, mut packet: Vec<u8>) -> usize {
        let mut out = Vec::new();
        let got = &mut self.got;
        let heard = self.far.on_packet(
            moment(self.now_ns),
            from(),
            &mut packet,
            &mut |peer, accepted| got.push((peer.listener.clone(), accepted.bytes.to_vec())),
            &mut out,
        );
        let answered = out.len();
        if heard == Heard::Answer {
            self.answered += answered;
            if self.welcomes_lost > 0 && out[0] & 0xf == Kind::Welcome as u8 {
                self.welcomes_lost -= 1;
                return answered;
            }
            self.near.on_packet(self.now_ns, &mut out);
        }
        answered
    }

    fn bytes_sent(&self) -> usize {
        self.sent.iter().map(Vec::len).sum()
    }
}

#[test]
fn datagrams_arrive_once_and_both_say_so() {
    const COUNT: u64 = 1_500;
    let mut both = Both::new();
    both.meet();
    let mut at = 0;
    for number in 1..=COUNT {
        both.take(both.len_of(number));
        both.turn(&mut |_| {
            at += 1;
            at % 4 == 0
        });
    }
    both.near.begin_drain();
    for _ in 0..2_000 {
        both.turn(&mut |_| false);
    }
    assert!(both.near.is_at_rest());
    let all = Amount { datagrams: COUNT, bytes: COUNT / 5 * (4 * 100 + 2_500) };
    assert_eq!(both.near.fates().delivered, all);
    assert_eq!(both.got.len() as u64, COUNT);
    assert!(both.got.iter().all(|(listener, bytes)| {
        listener == "syslog" && bytes.iter().all(|byte| *byte == bytes[0])
    }));
    let (run, peer, accepted) = both.far.runs().next().unwrap();
    assert_eq!(both.near.peer(), Some((run, both.far.life())), "both ends have the same names");
    assert_eq!((peer.host.as_str(), peer.name.as_str(), accepted), ("web-1", "a", all));
    assert!(both.answered <= both.bytes_sent(), "{} {}", both.answered, both.bytes_sent());
    assert_eq!(both.far.counts().late + both.far.counts().forged, 0);
    let way = both.near.way();
    // Every fourth packet was lost, until the last datagrams had arrived.
    assert!(way.packets > COUNT && (150_000..300_000).contains(&way.lost_per_million), "{way:?}");
}

#[test]
fn strangers_and_replays_are_not_answered() {
    let mut both = Both::new();
    for _ in 0..20 {
        both.turn(&mut |_| false);
        if both.near.is_answered(both.now_ns) {
            both.take(both.len_of(both.number + 1));
        }
    }
    both.turn(&mut |_| false);
    let (got, before) = (both.got.len(), both.far.counts());
    let kind = |packet: &[u8]| packet[0] & 0xf;
    for packet in both.sent.clone() {
        let replayed = both.far.counts().replayed;
        assert_eq!(both.arrive(packet.clone()), 0, "a replay");
        assert_eq!(both.far.counts().replayed, replayed + 1, "kind {}", kind(&packet));
        if [Kind::Hello as u8, Kind::HelloWithCookie as u8].contains(&kind(&packet)) {
            // Epoch and session of a hello do not matter: it is a replay all the same.
            for byte in [1, 4, 7] {
                let mut changed = packet.clone();
                changed[byte] ^= 1;
                assert_eq!(both.arrive(changed), 0, "byte {byte} of a hello");
            }
            assert_eq!(both.far.counts().replayed, replayed + 4);
        }
        for len in 0..packet.len() {
            assert_eq!(both.arrive(packet[..len].to_vec()), 0, "cut off at {len}");
        }
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(both.arrive(changed), 0, "bit {bit}");
        }
    }
    assert_eq!(both.got.len(), got);
    let FarCounts { replayed, forged, unknown_session, .. } = both.far.counts();
    assert!(replayed > before.replayed && forged > 0 && unknown_session > 0);
    both.take(both.len_of(both.number + 1));
    both.turn(&mut |_| false);
    assert_eq!(both.got.len(), got + 1, "the session goes on");
}

#[test]
fn a_receiver_without_memory_is_told_again_and_a_dead_one_is_left_alone() {
    let mut both = Both::new();
    both.meet();
    for _ in 0..10 {
        both.take(100);
        both.turn(&mut |_| false);
    }
    let (_, keys) = keys();
    both.far = Far::new(keys, FAR_OPTIONS, moment(both.now_ns));
    both.take(100);
    let at = both.sent.len();
    for _ in 0..20_000 {
        both.turn(&mut |_| true);
    }
    // The datagram less and less often until it expires, and then a hello every three seconds.
    let sent = both.sent.len() - at;
    assert!((5..=60).contains(&sent), "{sent} packets in 20 s");
    let hellos = both.sent.iter().filter(|packet| packet[0] & 0xf == Kind::Hello as u8).count();
    assert!((6..=8).contains(&hellos), "{hellos}");
    // The first answer is lost. By the second hello the new life knows the run, but still nothing of what was in it.
    both.welcomes_lost = 1;
    for _ in 0..7_000 {
        both.turn(&mut |_| false);
    }
    assert!(both.near.is_answered(both.now_ns));
    assert_eq!(both.near.counts().lost_memories, 1);
    both.take(100);
    both.near.begin_drain();
    for _ in 0..100 {
        both.turn(&mut |_| false);
    }
    let fates = both.near.fates();
    assert!(both.near.is_at_rest(), "{fates:?}");
    assert_eq!(fates.delivered.datagrams + fates.uncertain.datagrams, 12, "{fates:?}");
    // The one sent to the dead receiver, and those that had arrived but were not reported yet.
    assert!((1..=3).contains(&fates.uncertain.datagrams), "{fates:?}");
}

/// A memory that outlives a receiving end, with room for only a few records beyond its first ones.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<(Vec<u8>, usize)>>);

impl Memory for Shared {
    fn note(&mut self, record: &[u8]) {
        self.0.lock().unwrap().0.extend(record);
    }

    fn is_full(&self) -> bool {
        let (records, begun) = &*self.0.lock().unwrap();
        records.len() > begun + 1_000
    }

    fn begin_anew(&mut self, records: &[u8]) {
        *self.0.lock().unwrap() = (records.to_vec(), records.len());
    }
}

#[test]
fn either_end_ends_at_any_moment_and_goes_on_with_what_it_kept() {
    let mut both = Both::new();
    let shared = Shared::default();
    assert!(!both.far.remember(0, &[], Box::new(shared.clone())));
    let life = both.far.life();
    let (mut at, mut crashes) = (0u64, 0);
    let mut is_lost = |_: &[u8]| {
        at += 1;
        at % 7 == 0
    };
    while both.number < 400 {
        let bytes = both.len_of(both.number + 1);
        if both.near.has_room(both.now_ns, bytes) {
            both.take(bytes);
        }
        // The state is persisted before anything leaves.
        let kept = both.near.keep();
        both.turn(&mut is_lost);
        let (key, keys) = keys();
        match both.number {
            number if number < 40 * (crashes + 1) => continue,
            number if number.is_multiple_of(80) => {
                both.near = Near::resume(key, identity(), OPTIONS, &kept, both.now_ns);
            }
            _ => {
                both.far = Far::new(keys, FAR_OPTIONS, moment(both.now_ns));
                let noted = shared.0.lock().unwrap().0.clone();
                let memory = Box::new(shared.clone());
                assert!(both.far.remember(both.now_ns, &noted, memory), "at {}", both.number);
                assert_eq!(both.far.life(), life);
            }
        }
        crashes += 1;
    }
    both.near.begin_drain();
    for _ in 0..10_000 {
        both.turn(&mut |_| false);
    }

    let mut fates = both.near.earlier();
    fates += both.near.fates();
    assert!(both.near.is_at_rest(), "{fates:?}");
    assert_eq!((crashes, fates.taken.datagrams), (10, 400));
    assert_eq!(fates.taken, fates.settled(), "{fates:?}");
    assert!(fates.lost_in_crash.datagrams > 0, "{fates:?}");
    assert_eq!((fates.uncertain.datagrams, fates.possible_duplicates), (0, 0), "{fates:?}");
    assert_eq!(both.got.len() as u64, fates.delivered.datagrams, "{fates:?}");
    assert_eq!(both.far.accepted(), fates.delivered, "both count the same");
    let (run, _, accepted) = both.far.runs().next().unwrap();
    assert_eq!((both.near.peer(), accepted), (Some((run, life)), fates.delivered));
    let mut said = both.near.fates().delivered;
    said += both.near.accepted_earlier();
    assert_eq!(said, fates.delivered, "so does a process that knows of the former ones");
}

#[test]
fn a_sender_whose_memory_is_older_than_what_it_sent_begins_a_run_of_its_own() {
    let mut both = Both::new();
    both.meet();
    let old = both.near.keep();
    for number in 1..=10 {
        both.take(both.len_of(number));
        both.turn(&mut |_| false);
    }
    for _ in 0..300 {
        both.turn(&mut |_| false);
    }
    let (key, _) = keys();
    both.near = Near::resume(key, identity(), OPTIONS, &old, both.now_ns);
    for _ in 0..300 {
        both.turn(&mut |_| false);
    }
    both.take(100);
    both.near.begin_drain();
    for _ in 0..300 {
        both.turn(&mut |_| false);
    }
    assert_eq!((both.got.len(), both.far.run_count()), (11, 2));
    assert_eq!(both.near.fates().delivered, Amount::one(100));
}
