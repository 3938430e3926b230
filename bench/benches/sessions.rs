//! Many senders to one receiving end of links, in one process and without a network: what a handshake takes, how much memory a session needs,
//! what a datagram takes with one session and with all of them, and whether one is answered who has no key.
//! `cargo bench -p bench --bench sessions`. Without `--bench` it runs with few, for a moment.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]
#![expect(clippy::print_stdout, reason = "a bench prints what it finds")]

use hop::packet::{Origin, Sender as From};
use hop::{
    Far, Heard, Identity, Key, Keys, Moment, Near, Next, ReceiverOptions, SenderOptions, Taken,
};
use std::fs;
use std::net::SocketAddr;
use std::time::Instant;

/// Senders, and datagrams of each, with `--bench` and without.
const FULL: (usize, u64) = (20_000, 50);
const MOMENT: (usize, u64) = (200, 5);
const STRANGE: u64 = 1_000_000;

const MS: u64 = 1_000_000;
const SENDER: SenderOptions = SenderOptions {
    rate_bytes_per_sec: 1 << 30,
    repair_percent: 50,
    part_bytes: 1_150,
    window: 4_096,
    redelivers: true,
};
const RECEIVER: ReceiverOptions = ReceiverOptions {
    window: 65_536,
    parts_bytes: 1 << 20,
    hold_ns: None,
    room_bytes: 64 << 20,
    senders_max: 20_000,
};

/// Both ends of all links.
struct Both {
    nears: Vec<Near>,
    far: Far,
    now_ns: u64,
    /// Of the newest datagram.
    number: u64,
    /// Which sender the first one is.
    from: usize,
    /// From one round to the next.
    step_ns: u64,
    accepted: u64,
    /// Time that the receiving end took, in nanoseconds.
    far_ns: u64,
}

impl Both {
    fn new(count: usize) -> Both {
        let keys: Vec<Key> = (0..count).map(key).collect();
        let lines: String = keys.iter().map(|key| key.line() + "\n").collect();
        let far = Far::new(Keys::parse(&lines).unwrap(), RECEIVER, moment(0));
        let near = |key| {
            let identity = Identity { host: "host".to_owned(), listener: "syslog".to_owned() };
            Near::new(key, identity, SENDER, 0)
        };
        let nears = keys.into_iter().map(near).collect();
        Both {
            nears,
            far,
            now_ns: MS,
            number: 0,
            from: 0,
            step_ns: 11 * MS,
            accepted: 0,
            far_ns: 0,
        }
    }

    /// Hands a packet to the receiving end, and its answer to the sending end.
    fn hand_over(&mut self, at: usize, packet: &mut [u8], answer: &mut Vec<u8>) {
        answer.clear();
        let (begin, accepted) = (Instant::now(), &mut self.accepted);
        let heard = self.far.on_packet(
            moment(self.now_ns),
            addr(self.from + at),
            packet,
            &mut |_, _| *accepted += 1,
            answer,
        );
        self.far_ns += begin.elapsed().as_nanos() as u64;
        if heard == Heard::Answer {
            self.nears[at].on_packet(self.now_ns, answer);
            // The first packet of a session, at once.
            let Next::Floor { packet, floor } = self.nears[at].next(self.now_ns) else { return };
            let mut first = Vec::new();
            self.nears[at].seal_floor(self.now_ns, packet, floor, &mut first);
            self.hand_over(at, &mut first, answer);
        }
    }

    /// Says hello at all, as fast as they are answered, and returns how long the receiving end took, and what its clock says.
    fn meet(&mut self) -> (u64, u64) {
        let (mut packet, mut answer, begin_ns) = (Vec::new(), Vec::new(), self.now_ns);
        self.far_ns = 0;
        loop {
            let mut is_done = true;
            for at in 0..self.nears.len() {
                if self.nears[at].is_answered(self.now_ns) {
                    continue;
                }
                is_done = false;
                packet.clear();
                if self.nears[at].hello(self.now_ns, self.now_ns, &mut packet) {
                    self.hand_over(at, &mut packet, &mut answer);
                }
            }
            if is_done {
                return (self.far_ns, self.now_ns - begin_ns);
            }
            self.now_ns += 10 * MS;
            self.report();
        }
    }

    /// Sends a datagram of `bytes` at each of the first `count`, and has the reports that are due come back.
    fn round(&mut self, count: usize, bytes: u16) {
        self.number += 1;
        let number = self.number;
        let (payload, mut packet, mut answer) = (vec![7; bytes.into()], Vec::new(), Vec::new());
        for at in 0..count {
            let expires_ns = self.now_ns + 5_000 * MS;
            self.nears[at].take(self.now_ns, Taken { number, bytes, expires_ns });
            loop {
                packet.clear();
                match self.nears[at].next(self.now_ns) {
                    Next::Data(one) => {
                        let origin = Origin { received_unix_ns: 1, sender: From::Nobody, bytes };
                        self.nears[at].seal_data(self.now_ns, &one, origin, &payload, &mut packet);
                    }
                    Next::Floor { packet: number, floor } => {
                        self.nears[at].seal_floor(self.now_ns, number, floor, &mut packet);
                    }
                    Next::Wait { .. } => break,
                }
                self.hand_over(at, &mut packet, &mut answer);
            }
        }
        self.now_ns += self.step_ns;
        self.report();
    }

    /// Has the reports that are due come back.
    fn report(&mut self) {
        let mut answer = Vec::new();
        loop {
            answer.clear();
            let begin = Instant::now();
            let to = self.far.next_report(self.now_ns, &mut answer);
            self.far_ns += begin.elapsed().as_nanos() as u64;
            let Some(to) = to else { break };
            let at = place(to) - self.from;
            self.nears[at].on_packet(self.now_ns, &mut answer);
        }
    }
}

/// The senders' clocks say what the receiving end's does.
fn moment(now_ns: u64) -> Moment {
    Moment { now_ns, unix_ns: now_ns }
}

fn key(at: usize) -> Key {
    let mut secret = [3; 32];
    secret[..8].copy_from_slice(&(at as u64).to_le_bytes());
    Key::new(&format!("sender-{at}"), secret)
}

fn addr(at: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (at >> 8) as u8, at as u8], 7_000 + (at >> 16) as u16))
}

fn place(addr: SocketAddr) -> usize {
    let SocketAddr::V4(v4) = addr else { unreachable!() };
    let [_, _, high, low] = v4.ip().octets();
    usize::from(high) << 8 | usize::from(low) | usize::from(v4.port() - 7_000) << 16
}

/// Resident memory in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1_024
}

/// Packets of a session that is there, changed; first packets with the wrong key; and noise. None may be answered.
fn strangers(both: &mut Both, count: u64) {
    let (mut packet, mut out) = (Vec::new(), Vec::new());
    let identity = Identity { host: "host".to_owned(), listener: "syslog".to_owned() };
    let mut stranger = Near::new(Key::new("sender-0", [9; 32]), identity, SENDER, 0);
    let mut hello = Vec::new();
    assert!(stranger.hello(u64::MAX / 4, 1, &mut hello));
    both.meet();
    let payload = [7; 200];
    let expires_ns = both.now_ns + 5_000 * MS;
    both.nears[0].take(both.now_ns, Taken { number: 1 << 40, bytes: 200, expires_ns });
    let one = loop {
        match both.nears[0].next(both.now_ns) {
            Next::Data(one) => break one,
            Next::Floor { .. } => {}
            Next::Wait { until_ns } => both.now_ns = until_ns.max(both.now_ns + MS),
        }
    };
    let origin = Origin { received_unix_ns: 1, sender: From::Nobody, bytes: 200 };
    let mut good = Vec::new();
    both.nears[0].seal_data(both.now_ns, &one, origin, &payload, &mut good);

    let accepted = both.accepted;
    for (what, base) in [("changed", &good), ("hello of another key", &hello)] {
        let begin = Instant::now();
        for at in 0..count {
            packet.clone_from(base);
            let place = 8 + at as usize % (packet.len() - 8);
            packet[place] ^= 1 << (at % 8);
            let heard = both.far.on_packet(
                moment(both.now_ns),
                addr(0),
                &mut packet,
                &mut |_, _| panic!("accepted"),
                &mut out,
            );
            assert!(heard == Heard::Nothing && out.is_empty());
        }
        println!(
            "{what}: {:.0} ns a packet, none answered",
            begin.elapsed().as_nanos() as f64 / count as f64
        );
    }
    let begin = Instant::now();
    for at in 0..count {
        packet.clear();
        packet.extend((0..at % 64).map(|byte| (at.wrapping_mul(byte + 7) >> 3) as u8));
        let heard = both.far.on_packet(
            moment(both.now_ns),
            addr(0),
            &mut packet,
            &mut |_, _| panic!("accepted"),
            &mut out,
        );
        assert!(heard == Heard::Nothing && out.is_empty());
    }
    println!(
        "noise: {:.0} ns a packet, none answered",
        begin.elapsed().as_nanos() as f64 / count as f64
    );
    assert!(both.far.next_report(both.now_ns + 100 * MS, &mut out).is_none(), "an answer");
    assert_eq!(both.accepted, accepted);
    println!("counted: {:?}", both.far.counts());
}

/// Memory of a receiving end with so many sessions, each of which has had so many datagrams: the sending ends are there one at a time.
fn memory(count: usize, rounds: u64) {
    let mut both = Both::new(count);
    let mut nears = std::mem::take(&mut both.nears);
    // So that none of them was silent for so long that it is forgotten.
    both.step_ns = MS / 2;
    let before = resident();
    for (at, near) in nears.iter_mut().enumerate() {
        let identity = Identity { host: "host".to_owned(), listener: "syslog".to_owned() };
        let one = std::mem::replace(near, Near::new(key(0), identity, SENDER, 0));
        both.nears.push(one);
        both.now_ns += MS / 2;
        let (mut packet, mut answer) = (Vec::new(), Vec::new());
        assert!(both.nears[0].hello(both.now_ns, both.now_ns, &mut packet));
        both.from = at;
        both.hand_over(0, &mut packet, &mut answer);
        for _ in 0..rounds {
            both.round(1, 200);
        }
        both.nears.clear();
    }
    assert_eq!(both.far.session_count(), count);
    let bytes = resident() - before;
    println!(
        "memory of {count} sessions: {:.1} MB, {} bytes each",
        bytes as f64 / 1e6,
        bytes / count as u64
    );
}

fn main() {
    let (count, rounds) = if std::env::args().any(|arg| arg == "--bench") { FULL } else { MOMENT };
    memory(count, rounds / 5);
    let mut both = Both::new(count);
    let (far_ns, clock_ns) = both.meet();
    println!(
        "{count} handshakes: {:.1} us each at the receiver, {:.1} s until all are answered",
        far_ns as f64 / count as f64 / 1e3,
        clock_ns as f64 / 1e9
    );
    for (who, of) in [("one sender", 1), ("all senders", count)] {
        for bytes in [200, 1_000] {
            both.round(of, bytes);
            both.far_ns = 0;
            let accepted = both.accepted;
            let times = if of == 1 { rounds * count as u64 / 10 } else { rounds };
            for _ in 0..times {
                both.round(of, bytes);
            }
            let each = both.far_ns as f64 / (both.accepted - accepted) as f64;
            println!(
                "{who}, {bytes} bytes: {each:.0} ns a datagram at the receiver, reports and two looks at the clock included"
            );
        }
    }
    strangers(&mut both, if count == FULL.0 { STRANGE } else { 1_000 });
}
