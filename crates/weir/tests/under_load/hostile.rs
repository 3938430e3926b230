//! Nothing that arrives can crash the relay, grow its memory, or make it answer.

use crate::support::{Weir, hop};
use ledger::{HopKind, Reason};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use testkit::{DEADLINE, find_tool, need_python_module, need_root, run, sender, signal};

/// Random numbers by seed (splitmix64, Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Sources of one thread. They are read as well as written: an answer would show.
struct Flood {
    sockets: Vec<UdpSocket>,
    to: SocketAddr,
    random: Random,
    noise: Vec<u8>,
}

impl Flood {
    fn new(to: SocketAddr, sources: &[&str], seed: u64) -> Flood {
        let mut random = Random(seed);
        let noise = (0..1 << 17).map(|_| random.next() as u8).collect();
        let sockets = sources.iter().map(|source| {
            let socket = UdpSocket::bind((*source, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        Flood { sockets: sockets.collect(), to, random, noise }
    }

    /// Sends datagrams of random sizes and contents, most of them small: one in 64 may have any size there is.
    fn send(&mut self, count: u64) {
        for _ in 0..count {
            let any = self.random.below(64) == 0;
            let len = self.random.below(if any { 65_508 } else { 1_500 });
            let at = self.random.below(self.noise.len() - len);
            // Where one datagram ended, the next ones differ.
            let change = self.random.next().to_ne_bytes();
            let changed = self.random.below(self.noise.len() - 8);
            self.noise[changed..changed + 8].copy_from_slice(&change);
            let socket = &self.sockets[self.random.below(self.sockets.len())];
            loop {
                match socket.send_to(&self.noise[at..at + len], self.to) {
                    Ok(sent) => break assert_eq!(sent, len),
                    // The send buffer is full for a moment: loopback empties it.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn check_no_answer(&self) {
        for socket in &self.sockets {
            let answer = socket.recv(&mut [0; 16]).map_err(|error| error.kind());
            assert_eq!(answer, Err(ErrorKind::WouldBlock), "the relay has answered");
        }
    }
}

#[test]
fn a_million_random_datagrams_are_accounted_for_in_flat_memory_and_without_an_answer() {
    const LARGEST: u64 = 130;
    const WARM_UP: u64 = 250_000;
    const ALL: u64 = LARGEST + 1_000_000;
    let unread = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = [
        format!("{}?name=unread", unread.local_addr().unwrap()),
        "file:/dev/null?name=capture&format=pcap&sample=16".to_owned(),
        "127.0.0.1:11?name=nobody&rate_limit=1000".to_owned(),
        "null:?name=some&only_sources=127.0.0.2&sample=3&sample_by=source".to_owned(),
        "null:?name=all".to_owned(),
    ];
    let listen = "127.0.0.1:0?deny_sources=127.0.0.4";
    let targets: Vec<&str> = to.iter().flat_map(|one| ["--to", one.as_str()]).collect();
    let weir = Weir::relay(&[&["--listen", listen], &targets[..]].concat());
    let mut floods = [
        Flood::new(weir.address(), &["127.0.0.1", "127.0.0.2"], 1),
        Flood::new(weir.address(), &["127.0.0.3", "127.0.0.4"], 2),
    ];
    let mut send = |count: u64| {
        thread::scope(|scope| {
            for flood in &mut floods {
                scope.spawn(move || flood.send(count / 2));
            }
        });
    };
    // Buffers cost memory from their first use on: a full batch of the largest datagrams uses all.
    signal(weir.process(), "STOP");
    let client = sender(weir.address());
    for _ in 0..LARGEST {
        client.send(&[b'x'; 65_507]).unwrap();
    }
    signal(weir.process(), "CONT");
    send(WARM_UP);
    weir.wait_for_rest(LARGEST + WARM_UP);
    let before_kib = weir.resident_kib();
    send(ALL - LARGEST - WARM_UP);
    let ledger = weir.wait_for_rest(ALL);
    let after_kib = weir.resident_kib();
    println!("{before_kib} KiB, then {after_kib} KiB\n{}", ledger::waterfall(&ledger));
    assert!(after_kib < before_kib + 2_048, "{before_kib} KiB grew to {after_kib} KiB");
    floods.iter().for_each(Flood::check_no_answer);
    let socket = hop(&ledger, HopKind::Socket, "");
    assert_eq!(socket.received.count, ALL, "{}", ledger::waterfall(&ledger));
    let entry = hop(&ledger, HopKind::Receive, "");
    let denied = entry.dropped_for(Reason::SourceDenied).count;
    assert_eq!(entry.delivered.count + denied, socket.delivered.count);
    assert!(denied > 0);
    // It is alive: the next datagram passes.
    sender(weir.address()).send(b"alive").unwrap();
    weir.wait_for_rest(ALL + 1);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.ledger.violations, 0);
    let all = hop(&ended.ledger, HopKind::Target, "all");
    assert_eq!(all.delivered.count, entry.delivered.count + 1, "{}", ended.said);
    let nobody = hop(&ended.ledger, HopKind::Target, "nobody");
    let named =
        [Reason::Refused, Reason::RateLimited].map(|reason| nobody.dropped_for(reason).count);
    // What the kernel had taken before it came back.
    let returned = hop(&ended.ledger, HopKind::Egress, "nobody").dropped_for(Reason::Refused).count;
    assert_eq!(nobody.delivered.count, returned);
    assert_eq!(named[0] + named[1] + returned, entry.delivered.count + 1);
}

/// Sends packets that no ordinary program sends: port 0 as source, wrong checksums, wrong lengths.
const FORGE: &str = r#"
import socket, struct, sys
host, port, count = "127.0.0.1", int(sys.argv[1]), int(sys.argv[2])
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
def fold(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return total
def send(source, payload, length=None, bad=0):
    length = 8 + len(payload) if length is None else length
    head = struct.pack("!HHHH", source, port, length, 0)
    pseudo = socket.inet_aton(host) * 2 + struct.pack("!BBH", 0, 17, length)
    whole = (head + payload)[:length]
    checksum = (~fold(pseudo + whole + b"\0" * (len(whole) % 2)) & 0xffff) ^ bad
    raw.sendto(struct.pack("!HHHH", source, port, length, checksum) + payload, (host, 0))
raw.bind((host, 0))
for n in range(count):
    send(0, b"port zero")
    send(9, b"bad checksum", bad=0x5555)
    send(9, b"bad checksum, long" * 20, bad=0x5555)
    send(9, b"longer than told", length=8 + 6)
    send(9, b"shorter", length=100, bad=1)
    send(9, b"", length=4, bad=1)
    raw.sendto(b"\x00\x09", (host, 0))
"#;

#[test]
fn forged_packets_do_no_harm() {
    const COUNT: u64 = 30;
    if !need_root("a raw socket") || !need_python_module("socket") {
        return;
    }
    let target = UdpSocket::bind("127.0.0.1:0").unwrap();
    target.set_read_timeout(Some(DEADLINE)).unwrap();
    let to = target.local_addr().unwrap().to_string();
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to]);
    let port = weir.address().port().to_string();
    let python = find_tool("weir-python").unwrap();
    run(Command::new(python).args(["-c", FORGE, &port, &COUNT.to_string()]));
    sender(weir.address()).send(b"the end").unwrap();
    let mut got = Vec::new();
    while got.last().is_none_or(|last| last != b"the end") {
        got.push(testkit::receive(&target));
    }
    let count = |text: &[u8]| got.iter().filter(|one| *one == text).count() as u64;
    assert_eq!((count(b"port zero"), count(b"longer")), (COUNT, COUNT));
    assert_eq!(got.len() as u64, 2 * COUNT + 1, "nothing else passes");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let socket = hop(&ended.ledger, HopKind::Socket, "");
    assert_eq!(socket.delivered.count, 2 * COUNT + 1);
    // A wrong checksum of more than 76 bytes (CHECKSUM_BREAK, linux/skbuff.h) is found when the datagram is read, and
    // counts where a full buffer does; a shorter one, and a packet of wrong length, never reaches a socket.
    assert_eq!(socket.dropped_for(Reason::SocketBuffer).count, COUNT, "{}", ended.said);
}
