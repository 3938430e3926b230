//! Generator and receiver against each other, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic as the test does")]

use load::generate::{self, Limit, Rate, Segmentation, Sizes};
use load::verify::{self, Done, Verifier};
use load::{Address, Payload};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

const ANY_PORT: &str = "127.0.0.1:0";

fn udp(text: &str) -> Address {
    Address::Udp(text.parse().unwrap())
}

fn until_done() -> verify::Until {
    let duration = Some(Duration::from_secs(60));
    verify::Until { done: Some(Done::default()), duration, ..verify::Until::default() }
}

/// Binds the listeners, runs the generator against them, and returns both reports.
fn exchange(
    listeners: Vec<Address>,
    gen_options: impl FnOnce(Vec<Address>) -> generate::Options,
) -> (generate::Report, verify::Report) {
    let options = verify::Options { until: until_done(), ..verify::Options::on(listeners) };
    let verifier = Verifier::bind(options).unwrap();
    let options = gen_options(verifier.addresses());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| verifier.run(&stop));
        let sent = generate::run(&options, &stop, &generate::Progress::default()).unwrap();
        (sent, receiver.join().unwrap())
    })
}

/// `count` datagrams at a rate that any machine can sustain.
fn paced(targets: Vec<Address>, count: u64) -> generate::Options {
    generate::Options {
        rate: Rate::DatagramsPerSec(50_000),
        limit: Limit { count: Some(count), duration: None },
        heartbeat: Some(Duration::from_millis(10)),
        ..generate::Options::to(targets)
    }
}

fn assert_clean(sent: &generate::Report, got: &verify::Report) {
    assert!(got.clean, "{got:#?}");
    assert_eq!(got.total.received, sent.sent_datagrams);
    assert_eq!(got.total.bytes, sent.sent_bytes);
    assert_eq!(got.total.heartbeats, sent.heartbeats);
    assert_eq!(got.total.heartbeats_expected, sent.heartbeats);
    assert_eq!(got.total.heartbeat_bytes, sent.heartbeat_bytes);
    assert_eq!((got.missing, got.kernel_dropped, got.total.foreign), (0, 0, 0));
}

#[test]
fn a_hundred_thousand_datagrams_arrive() {
    let (sent, got) = exchange(vec![udp(ANY_PORT)], |targets| paced(targets, 100_000));
    assert_eq!((sent.sent_datagrams, sent.sent_bytes), (100_000, 20_000_000));
    assert!(sent.heartbeats > 5);
    assert_clean(&sent, &got);
    assert_eq!(got.listeners[0].ended_by, "done");
    assert_eq!(got.listeners[0].latency.samples + got.total.from_future, 100_000);
    assert_eq!(got.listeners[0].runs[0].run, sent.run);
}

#[test]
fn every_payload_over_both_families_with_many_flows_and_senders() {
    for payload in
        [Payload::Binary, Payload::Text, Payload::Syslog, Payload::SyslogRfc3164, Payload::Statsd]
    {
        let (sent, got) = exchange(vec![udp(ANY_PORT), udp("[::1]:0")], |targets| {
            let min = payload.size_min_bytes();
            generate::Options {
                payload,
                sizes: Sizes::Mixed(vec![(min, 1), (min + 1, 1), (600, 1), (20_000, 1)]),
                flows: 5,
                senders: 2,
                burst: 3,
                ..paced(targets, 2_000)
            }
        });
        assert_eq!(sent.sent_datagrams, 2_000);
        assert_clean(&sent, &got);
        let streams = got.listeners.iter().map(|listener| listener.runs[0].streams_ended);
        assert_eq!(streams.collect::<Vec<_>>(), [5, 5]);
        assert_eq!(got.listeners[0].counts.received, sent.targets[0].sent_datagrams);
    }
}

#[test]
fn segments_are_the_same_datagrams() {
    let path = std::env::temp_dir().join(format!("weir-load-gso-{}.sock", std::process::id()));
    for sizes in [Sizes::Fixed(200), Sizes::Uniform(100, 300), Sizes::Fixed(30_000)] {
        let listeners = vec![udp(ANY_PORT), Address::Unix(path.clone())];
        let (sent, got) = exchange(listeners, |targets| generate::Options {
            segmentation: Segmentation::Gso,
            sizes: sizes.clone(),
            burst: 100,
            rate: Rate::DatagramsPerSec(5_000),
            ..paced(targets, 1_000)
        });
        assert_clean(&sent, &got);
        assert_eq!(sent.sent_datagrams, 1_000);
    }
}

#[test]
fn the_largest_datagrams_arrive() {
    let (sent, got) = exchange(vec![udp(ANY_PORT)], |targets| generate::Options {
        sizes: Sizes::Fixed(65_507),
        rate: Rate::BitsPerSec(400_000_000),
        ..paced(targets, 100)
    });
    assert_clean(&sent, &got);
    assert_eq!(sent.sent_bytes, 6_550_700);
}

#[test]
fn unix_datagrams_arrive() {
    let path = std::env::temp_dir().join(format!("weir-load-{}.sock", std::process::id()));
    let (sent, got) = exchange(vec![Address::Unix(path.clone())], |targets| paced(targets, 20_000));
    assert_clean(&sent, &got);
    assert!(!path.exists());
}

/// Sends a run's datagrams to the verifier, altered as a hop in between might alter them. Uses unix sockets, which
/// block a sender rather than lose a datagram.
fn through_a_hop(
    name: &str,
    count: u64,
    hop: impl Fn(u64, &[u8]) -> Vec<Vec<u8>>,
) -> verify::Report {
    let path = |role| {
        std::env::temp_dir().join(format!("weir-load-{}-{name}-{role}.sock", std::process::id()))
    };
    let (before, behind) = (path("before"), path("behind"));
    let between = UnixDatagram::bind(&before).unwrap();
    between.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let listeners = vec![Address::Unix(behind.clone())];
    let options = verify::Options { until: until_done(), ..verify::Options::on(listeners) };
    let verifier = Verifier::bind(options).unwrap();
    let options = paced(vec![Address::Unix(before.clone())], count);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| verifier.run(&stop));
        let sender =
            scope.spawn(|| generate::run(&options, &stop, &generate::Progress::default()).unwrap());
        let mut buffer = [0; 2_048];
        let (mut data, mut ends) = (0, 0);
        while ends < 5 {
            let len = between.recv(&mut buffer).unwrap();
            let datagram = &buffer[..len];
            let kind = load::check::decode(datagram).unwrap().check.kind;
            let out = if kind == load::check::Kind::Data {
                data += 1;
                hop(data - 1, datagram)
            } else {
                ends += u32::from(kind == load::check::Kind::End);
                vec![datagram.to_vec()]
            };
            for datagram in out {
                between.send_to(&datagram, &behind).unwrap();
            }
        }
        std::fs::remove_file(before).unwrap();
        assert_eq!(sender.join().unwrap().sent_datagrams, count);
        receiver.join().unwrap()
    })
}

#[test]
fn loss_at_the_end_shows_by_the_heartbeat() {
    let got =
        through_a_hop(
            "tail",
            1_000,
            |nth, datagram| {
                if nth < 900 { vec![datagram.to_vec()] } else { Vec::new() }
            },
        );
    assert!(!got.clean);
    assert_eq!((got.total.received, got.missing), (900, 100));
    let gap = got.listeners[0].runs[0].gaps[0];
    assert_eq!((gap.first, gap.last), (900, 999));
}

#[test]
fn what_a_bad_hop_does_is_named() {
    let got = through_a_hop("bad", 1_000, |nth, datagram| match nth {
        10 => Vec::new(),
        20 => vec![datagram.to_vec(), datagram.to_vec()],
        30 => vec![datagram[..100].to_vec()],
        40 => {
            let mut changed = datagram.to_vec();
            changed[150] ^= 0x10;
            vec![changed]
        }
        50 => vec![[datagram, datagram].concat()],
        60 => vec![b"<13>somebody else".to_vec(), datagram.to_vec()],
        _ => vec![datagram.to_vec()],
    });
    assert!(!got.clean);
    assert_eq!((got.total.received, got.missing), (996, 4));
    assert_eq!((got.total.duplicate, got.total.truncated), (1, 1));
    assert_eq!((got.total.corrupt, got.total.foreign), (2, 1));
}

#[test]
fn a_dead_target_counts_only_what_was_sent() {
    let dead = UdpSocket::bind(ANY_PORT).unwrap().local_addr().unwrap();
    let options = paced(vec![Address::Udp(dead)], 1_000);
    let stop = AtomicBool::new(false);
    let sent = generate::run(&options, &stop, &generate::Progress::default()).unwrap();
    // Every refusal is followed by a retry of the same datagram, which the kernel accepts.
    assert_eq!((sent.sent_datagrams, sent.failed_datagrams), (1_000, 0));
    assert!(sent.targets[0].errors.iter().any(|(name, count)| name == "ECONNREFUSED" && count > 0));
}

#[test]
fn what_the_socket_drops_is_in_the_account() {
    // Nobody reads while the generator runs, so the small buffer overflows.
    let options = verify::Options {
        receive_buffer_bytes: 65_536,
        until: until_done(),
        ..verify::Options::on(vec![udp(ANY_PORT)])
    };
    let verifier = Verifier::bind(options).unwrap();
    let stop = AtomicBool::new(false);
    let options = paced(verifier.addresses(), 2_000);
    let sent = generate::run(&options, &stop, &generate::Progress::default()).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let got = verifier.run(&stop);
    assert!(got.kernel_dropped > 1_000, "{got:#?}");
    assert_eq!(
        sent.sent_datagrams + sent.heartbeats,
        got.total.all_datagrams() + got.kernel_dropped
    );
}

#[test]
fn sizes_too_small_for_the_check_data_are_refused() {
    for size in [0, 1, 47, 65_508] {
        let options = generate::Options {
            sizes: Sizes::Fixed(size),
            ..generate::Options::to(vec![udp("127.0.0.1:9")])
        };
        let stop = AtomicBool::new(false);
        let error = generate::run(&options, &stop, &generate::Progress::default()).unwrap_err();
        let reason = match size {
            65_508 => "65508 bytes are too many".to_owned(),
            _ => format!(
                "{size} bytes are too few for such a payload with its check data. Fix: write --size 48 or more"
            ),
        };
        assert!(error.to_string().starts_with(&reason), "{error}");
    }
}
