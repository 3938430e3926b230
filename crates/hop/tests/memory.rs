//! The memory of a receiving end under someone who has a key, as the kernel counts it: an executable of its own, because it measures
//! its process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use hop::packet::{Origin, Part, Sender as From};
use hop::{
    Far, Heard, Identity, Key, Keys, Moment, Near, ReceiverOptions, SenderOptions, Transmission,
    tables_bytes_max,
};
use std::fs;
use std::net::SocketAddr;

const MS: u64 = 1_000_000;
const UNIX_NS: u64 = 1_700_000_000_000_000_000;
const RUNS: u64 = 3_000;
const SENDER: SenderOptions = SenderOptions {
    rate_bytes_per_sec: 1 << 30,
    repair_percent: 50,
    part_bytes: 1_150,
    window: 65_536,
    redelivers: true,
};
const RECEIVER: ReceiverOptions = ReceiverOptions {
    window: 65_536,
    parts_bytes: 1 << 20,
    hold_ns: None,
    room_bytes: 8 << 20,
    senders_max: 1_000,
};

/// Resident memory in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1_024
}

fn addr(at: u64) -> SocketAddr {
    SocketAddr::from(([10, (at >> 16) as u8, (at >> 8) as u8, at as u8], 7_000))
}

/// A run that gets a session and sends what takes most memory: the highest number of the window, and first parts of datagrams.
fn hurt(far: &mut Far, key: &Key, at: u64) {
    let (mut packet, mut answer) = (Vec::new(), Vec::new());
    let identity = Identity { host: format!("{at:0255}"), listener: "l".repeat(255) };
    let now_ns = at * MS;
    let moment = Moment { now_ns, unix_ns: UNIX_NS + now_ns };
    let mut near = Near::new(key.clone(), identity, SENDER, now_ns);
    for _ in 0..2 {
        packet.clear();
        answer.clear();
        assert!(near.hello(now_ns, moment.unix_ns, &mut packet));
        let heard = far.on_packet(moment, addr(at), &mut packet, &mut |_, _| {}, &mut answer);
        assert_eq!(heard, Heard::Answer);
        near.on_packet(now_ns, &mut answer);
    }
    assert!(near.is_answered(now_ns));

    let parts = (0..60).map(|at| (Part::First, 2 * at));
    for (number, (part, sequence)) in parts.chain([(Part::Only, 65_535)]).enumerate() {
        let one = Transmission {
            packet: number as u64,
            sequence,
            floor: 0,
            number: 0,
            part,
            offset: 0,
            len: 1_150,
            asks: false,
            may_be_second: false,
            is_repair: false,
        };
        let bytes = if part == Part::Only { 1_150 } else { 60_000 };
        let origin = Origin { received_unix_ns: 1, sender: From::Nobody, bytes };
        packet.clear();
        near.seal_data(now_ns, &one, origin, &[7; 1_150], &mut packet);
        far.on_packet(moment, addr(at), &mut packet, &mut |_, _| {}, &mut answer);
    }
}

#[test]
fn who_has_a_key_takes_no_more_memory_than_the_options_say() {
    let key = Key::new("a", [1; 32]);
    let keys = Keys::parse(&key.line()).unwrap();
    let mut far = Far::new(keys, RECEIVER, Moment { now_ns: 0, unix_ns: UNIX_NS });
    let before = resident();
    for at in 1..=RUNS {
        hurt(&mut far, &key, at);
    }
    let (grown, most) = (resident() - before, tables_bytes_max(RECEIVER) as u64);
    println!(
        "{RUNS} runs, {} sessions: {grown} bytes more, of at most {most}; {:?}",
        far.session_count(),
        far.counts()
    );
    assert_eq!((far.run_count() as u64, far.counts().sessions), (RUNS, RUNS));
    assert!(
        far.room_used() > RECEIVER.room_bytes / 4 && far.room_used() <= RECEIVER.room_bytes / 2
    );
    assert!(grown <= most, "{grown} of {most}");
}
