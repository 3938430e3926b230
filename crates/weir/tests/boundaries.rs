//! Nothing is merged, cut, changed, reordered or lost: a million datagrams of all sizes, and large ones at 100 Mbit/s.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use ledger::{Event, Gauge, HopKind};
use rig::netns::Place;
use rig::{Generator, Relay, SCHEDULES, Verifier, say, wait_for};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::recv::{ReceiveBatch, Wait};
use sys::send::{BATCH, Message, send_messages};
use sys::socket::{charged_bytes, receive_buffer, set_receive_buffer, set_receive_timeout};

const COUNT: u64 = 1_000_000;
const SIZE_MAX: usize = 65_507;
/// Bytes of noise that payloads are cut from.
const NOISE_BYTES: usize = 1 << 18;

/// What every datagram is, by its number.
struct Plan {
    noise: Vec<u8>,
}

impl Plan {
    fn new() -> Plan {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let noise = (0..NOISE_BYTES).map(|_| {
            state = mix(state.wrapping_add(1));
            state as u8
        });
        Plan { noise: noise.collect() }
    }

    /// A third comes in stretches of equal length, which leave as runs; of the others most are small.
    fn size(number: u64) -> usize {
        let (stretch, dice) = (number / 100, mix(number));
        if stretch.is_multiple_of(3) {
            return (mix(stretch) % 600) as usize;
        }
        let (from, to) = match dice % 1_000 {
            0 => (9_001, SIZE_MAX),
            1..10 => (1_473, 9_000),
            10..110 => (301, 1_472),
            110..150 => (0, 0),
            _ => (1, 300),
        };
        from + (dice >> 32) as usize % (to - from + 1)
    }

    fn payload(&self, number: u64) -> &[u8] {
        let begin = mix(number ^ 0x5eed) as usize % (NOISE_BYTES - SIZE_MAX);
        &self.noise[begin..begin + Plan::size(number)]
    }
}

/// The finalizer of splitmix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A target that compares what comes with the plan.
struct Checker {
    address: String,
    buffer_bytes: usize,
    received: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Checker {
    fn start(plan: &Arc<Plan>) -> Checker {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_receive_buffer(socket.as_fd(), 16 << 20).unwrap();
        set_receive_timeout(socket.as_fd(), Duration::from_secs(1)).unwrap();
        let received = Arc::<AtomicU64>::default();
        let (plan, progress) = (Arc::clone(plan), Arc::clone(&received));
        let address = socket.local_addr().unwrap().to_string();
        let buffer_bytes = receive_buffer(socket.as_fd()).unwrap();
        let thread = thread::spawn(move || {
            let mut batch = ReceiveBatch::default();
            let mut next = 0;
            while next < COUNT {
                if batch.receive(socket.as_fd(), Wait::ForOne).is_err() {
                    continue;
                }
                for datagram in batch.datagrams() {
                    assert!(
                        datagram.bytes() == plan.payload(next),
                        "number {next}, {} bytes, is not what came: {} bytes",
                        Plan::size(next),
                        datagram.bytes().len()
                    );
                    next += 1;
                }
                progress.store(next, Ordering::Release);
            }
        });
        Checker { address, buffer_bytes, received, thread }
    }
}

/// Sends the plan, never more ahead of the slowest receiver than every buffer holds.
fn send_plan(plan: &Plan, to: &str, checkers: &[Checker], window_bytes: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    let (mut next, mut arrived, mut ahead_bytes) = (0, 0, 0);
    while next < COUNT {
        let mut messages = [Message::single(b""); BATCH];
        let mut len = 0;
        while len < BATCH && next < COUNT {
            let charge = charged_bytes(Plan::size(next));
            if ahead_bytes > 0 && ahead_bytes + charge > window_bytes {
                break;
            }
            messages[len] = Message::single(plan.payload(next));
            ahead_bytes += charge;
            next += 1;
            len += 1;
        }
        let mut sent = 0;
        while sent < len {
            sent += send_messages(socket.as_fd(), &messages[sent..len]).unwrap_or(0);
        }
        let least = |arrived: u64| {
            let counts = checkers.iter().map(|checker| {
                let has_failed = checker.thread.is_finished();
                let count = checker.received.load(Ordering::Acquire);
                assert!(!has_failed || count == COUNT, "a receiver has ended");
                count
            });
            counts.min().filter(|least| *least > arrived)
        };
        if len < BATCH && next < COUNT {
            let now = wait_for("datagrams at both targets", || least(arrived));
            ahead_bytes -= (arrived..now).map(|n| charged_bytes(Plan::size(n))).sum::<usize>();
            arrived = now;
        }
    }
}

#[test]
fn a_million_datagrams_of_all_sizes_arrive_as_they_were_sent() {
    let plan = Arc::new(Plan::new());
    let bytes: u64 = (0..COUNT).map(|number| Plan::size(number) as u64).sum();
    for schedule in SCHEDULES {
        let begin = Instant::now();
        let checkers = [Checker::start(&plan), Checker::start(&plan)];
        let targets: Vec<_> = checkers.iter().map(|checker| checker.address.clone()).collect();
        let relay = Relay::tee(&Place::Here, &targets, &["--schedule", schedule]);
        let ledger = relay.ledger();
        let socket = rig::hop(&ledger, HopKind::Socket, "in", None);
        let own = socket.gauges[&Gauge::ReceiveBufferBytes] as usize;
        let buffers = checkers.iter().map(|checker| checker.buffer_bytes).chain([own, 4 << 20]);
        send_plan(&plan, relay.listen(), &checkers, buffers.min().unwrap() / 2);
        for checker in checkers {
            checker.thread.join().unwrap();
        }
        let ended = relay.stop();
        for target in &targets {
            // A target without a name is called by its address.
            let name = format!("udp://{target}");
            let egress = ended.hop(HopKind::Egress, Some(&name));
            assert_eq!((egress.delivered.count, egress.delivered.bytes), (COUNT, bytes));
            let calls = ended.hop(HopKind::Target, Some(&name)).event(Event::SendCalls);
            assert!(calls < COUNT, "nothing left in batches: {calls} calls");
        }
        assert_eq!((ended.code, ended.ledger.losses().len()), (0, 0), "{}", ended.said);
        say(&format!(
            "{schedule}: {COUNT} datagrams, {bytes} bytes to each of two in {:?}",
            begin.elapsed()
        ));
    }
}

#[test]
fn large_datagrams_at_100_mbit_arrive_at_both() {
    let benches: Vec<_> = SCHEDULES
        .iter()
        .map(|schedule| {
            let verifier = Verifier::start(&Place::Here, &["127.0.0.1:0"; 2], &["--until-done"]);
            let relay = Relay::tee(&Place::Here, &verifier.listens, &["--schedule", schedule]);
            let load = ["--rate", "195", "--size", "64000", "--count", "1950"];
            let generator = Generator::start(&Place::Here, relay.listen(), &load);
            (schedule, verifier, relay, generator)
        })
        .collect();
    for (schedule, verifier, relay, generator) in benches {
        let sent = generator.finish();
        assert_eq!((sent.datagrams, sent.bytes), (1_950, 1_950 * 64_000));
        verifier.expect_all(&sent);
        let ended = relay.stop();
        assert_eq!((ended.code, ended.ledger.losses().len()), (0, 0), "{}", ended.said);
        say(&format!("{schedule}: {} datagrams of 64,000 bytes to each of two", sent.datagrams));
    }
}
