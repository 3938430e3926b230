//! Someone who has a key, and sends what no sender would.

use super::*;
use crate::packet::Part;
use crate::sender::Transmission;

/// Keys `a`, of someone hostile, and `b`.
fn two_keys() -> (Key, Key, Keys) {
    let (a, b) = (Key::new("a", [1; 32]), Key::new("b", [2; 32]));
    let keys = Keys::parse(&format!("{}\n{}\n", a.line(), b.line())).unwrap();
    (a, b, keys)
}

const FEW: ReceiverOptions = ReceiverOptions {
    window: 1 << 22,
    parts_bytes: 1 << 20,
    hold_ns: Some(60_000 * MS),
    room_bytes: 2 << 20,
    senders_max: 50,
};

/// A receiver, and how much it handed on.
struct Target {
    far: Far,
    senders_max: u32,
    now_ns: u64,
    handed_on: Amount,
}

impl Target {
    fn new(keys: Keys) -> Target {
        Target::with(keys, FEW)
    }

    fn with(keys: Keys, options: ReceiverOptions) -> Target {
        let far = Far::new(keys, options, moment(0));
        let senders_max = options.senders_max;
        Target { far, senders_max, now_ns: 0, handed_on: Amount::default() }
    }

    fn deliver(&mut self, packet: &mut [u8], from: SocketAddr) -> Vec<u8> {
        let (mut answer, handed_on) = (Vec::new(), &mut self.handed_on);
        let at = moment(self.now_ns);
        self.far.on_packet(
            at,
            from,
            packet,
            &mut |_, one| *handed_on += Amount::one(one.bytes.len() as u64),
            &mut answer,
        );
        assert!(self.far.room_used() <= FEW.room_bytes, "{}", self.far.room_used());
        let senders_max = self.senders_max as usize;
        assert!(self.far.session_count() <= 2 * senders_max);
        assert!(self.far.run_count() <= 4 * senders_max);
        answer
    }

    /// A sender with this name gets a session. Returns false if it does not within a second.
    fn meet(&mut self, near: &mut Near, from: SocketAddr) -> bool {
        let mut hello = Vec::new();
        for _ in 0..1_000 {
            hello.clear();
            if near.hello(self.now_ns, moment(self.now_ns).unix_ns, &mut hello) {
                let mut answer = self.deliver(&mut hello, from);
                near.on_packet(self.now_ns, &mut answer);
            }
            if near.is_answered(self.now_ns) {
                return true;
            }
            self.now_ns += MS;
        }
        false
    }
}

fn addr(at: usize) -> SocketAddr {
    SocketAddr::from(([10, (at >> 16) as u8, (at >> 8) as u8, at as u8], 7_000))
}

fn near(key: &Key, host: &str) -> Near {
    let identity = Identity { host: host.to_owned(), listener: "in".to_owned() };
    Near::new(key.clone(), identity, OPTIONS, 0)
}

/// A packet that has the sequence number `sequence`, of a run whose floor is 0.
fn packet_at(near: &mut Near, number: u64, sequence: u64, part: Part) -> Vec<u8> {
    let one = Transmission {
        packet: number,
        sequence,
        floor: 0,
        number: 0,
        part,
        offset: 0,
        len: 1_000,
        asks: false,
        may_be_second: false,
        is_repair: false,
    };
    let origin = Origin { received_unix_ns: 1, sender: From::Nobody, bytes: 1_000 };
    let origin = Origin { bytes: if part == Part::Only { 1_000 } else { 60_000 }, ..origin };
    let mut packet = Vec::new();
    near.seal_data(0, &one, origin, &[7; 1_000], &mut packet);
    packet
}

/// Takes whatever this session can get: numbers over all the window, first parts of datagrams, and datagrams that wait.
fn take_all(target: &mut Target, near: &mut Near, from: SocketAddr) {
    let steps = [(Part::Only, 99_991), (Part::First, 70), (Part::Only, 3), (Part::Middle, 1)];
    let mut number = 0;
    for (part, step) in steps {
        for at in 1..40 {
            let mut packet = packet_at(near, number, 5 + at * step, part);
            target.deliver(&mut packet, from);
            number += 1;
        }
    }
}

#[test]
fn who_has_a_key_can_neither_exceed_the_memory_nor_keep_others_out() {
    let (a, b, keys) = two_keys();
    let mut target = Target::new(keys);
    let mut sender = near(&b, "honest");
    assert!(target.meet(&mut sender, addr(0)));
    let mut first = packet_at(&mut sender, 0, 0, Part::Only);
    target.deliver(&mut first, addr(0));
    assert_eq!(target.handed_on, Amount::one(1_000));

    // More runs than are remembered, all with a session that is used. Half of them say that they are the same sender.
    for at in 1..300 {
        let host = if at % 2 == 0 { "same".to_owned() } else { format!("host-{at}") };
        let mut hostile = near(&a, &host);
        assert!(target.meet(&mut hostile, addr(at)), "{:?}", target.far.counts());
        take_all(&mut target, &mut hostile, addr(at));
        target.now_ns += MS;
    }
    let counts = target.far.counts();
    assert!(counts.no_room > 1_000, "{counts:?}");
    assert!(target.far.room_used() > FEW.room_bytes / 4, "{}", target.far.room_used());

    // The other key's session goes on, and another one of it begins, with room for what it sends.
    let (handed_on, sessions) = (target.handed_on, target.far.counts().sessions);
    let mut more = packet_at(&mut sender, 1, 1, Part::Only);
    target.deliver(&mut more, addr(0));
    let mut other = near(&b, "other");
    assert!(target.meet(&mut other, addr(1_000)));
    for at in 0..100 {
        let mut packet = packet_at(&mut other, at, at, Part::Only);
        target.deliver(&mut packet, addr(1_000));
    }
    assert_eq!(target.handed_on.datagrams, handed_on.datagrams + 101);
    assert_eq!(target.far.counts().sessions, sessions + 1);
    assert_eq!(target.far.counts().no_room, counts.no_room);

    // Nothing that was accepted is missing from the sums, whatever was forgotten.
    target.far.release(u64::MAX, &mut |_, one| {
        target.handed_on += Amount::one(one.bytes.len() as u64);
    });
    assert_eq!(target.far.accepted(), target.handed_on);
    let named = |host: &str| target.far.runs().filter(|(_, peer, _)| peer.host == host).count();
    assert!(named("honest") == 1 && named("other") == 1);
}

#[test]
fn the_memory_of_a_session_that_ended_is_free_and_its_totals_stay() {
    let (a, _, keys) = two_keys();
    let mut target = Target::new(keys);
    let mut hostile = near(&a, "host");
    assert!(target.meet(&mut hostile, addr(1)));
    take_all(&mut target, &mut hostile, addr(1));
    assert!(target.far.room_used() > 100_000);
    target.now_ns += 60_000 * MS;
    let handed_on = &mut target.handed_on;
    target.far.release(target.now_ns, &mut |_, one| {
        *handed_on += Amount::one(one.bytes.len() as u64);
    });
    let accepted = target.far.accepted();
    assert_eq!((accepted, target.far.session_count()), (target.handed_on, 1));
    target.now_ns += 181_000 * MS;
    target.far.release(target.now_ns, &mut |_, _| panic!("nothing waits"));
    assert_eq!((target.far.session_count(), target.far.room_used()), (0, 0));
    assert_eq!((target.far.accepted(), target.far.run_count()), (accepted, 1));
}

#[test]
fn one_key_starts_half_of_the_sessions_at_most() {
    let (a, b, keys) = two_keys();
    let mut target = Target::with(keys, ReceiverOptions { senders_max: 1_000, ..FEW });
    let mut answered = 0;
    // All bring their cookie in the same millisecond: a tenth of a second's sessions may begin at once.
    let mut senders: Vec<_> = (0..400).map(|at| near(&a, &format!("host-{at}"))).collect();
    for _ in 0..2 {
        for (at, near) in senders.iter_mut().enumerate() {
            let mut hello = Vec::new();
            if near.hello(0, moment(0).unix_ns, &mut hello) {
                let mut answer = target.deliver(&mut hello, addr(at));
                answered += usize::from(answer.first().is_some_and(|first| first & 0xf == 1));
                near.on_packet(0, &mut answer);
            }
        }
    }
    assert_eq!(answered, 300, "{:?}", target.far.counts());
    let mut other = near(&b, "other");
    assert!(target.meet(&mut other, addr(1_000)));
    assert_eq!(target.now_ns, MS, "without waiting");
}

#[test]
fn names_that_are_no_text_do_not_spoil_what_is_kept() {
    let (key, _, keys) = two_keys();
    let (mut target, shared) = (Target::new(keys.clone()), Shared::default());
    target.far.remember(0, &[], Box::new(shared.clone()));
    // The hello ends in the middle of a character, and what stands for the rest of it is longer.
    let mut odd = near(&key, &"\u{e9}".repeat(200));
    assert!(target.meet(&mut odd, addr(1)));
    let mut sender = near(&key, "plain");
    assert!(target.meet(&mut sender, addr(2)));
    let mut packet = packet_at(&mut sender, 0, 0, Part::Only);
    target.deliver(&mut packet, addr(2));
    let noted = shared.0.lock().unwrap().0.clone();
    let mut again = Far::new(keys, FEW, moment(0));
    assert!(again.remember(0, &noted, Box::new(shared)));
    assert_eq!((again.run_count(), again.accepted()), (2, Amount::one(1_000)));
}
