//! A listener with real sockets on loopback: what goes in comes out everywhere, byte for byte, and the ledger agrees.

use crate::support::{Bench, change, named, sink, target, udp_to};
use ledger::{Event, Gauge, HopKind, IcmpError, Reason};
use relay::{Schedule, TargetChange, TargetKind, UnixPeer};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};
use testkit::{DEADLINE, free_port};

fn check_sizes(schedule: Schedule) {
    let (sinks, destinations): (Vec<_>, Vec<_>) = ["a", "b"]
        .iter()
        .map(|name| {
            let (socket, addr) = sink();
            (socket, (named(name), udp_to(addr)))
        })
        .unzip();
    let mut bench = Bench::start(schedule, destinations);
    let sizes = [0, 1, 64, 1_472, 1_473, 9_000, 64_000, 65_507];
    let mut buffer = vec![0; 70_000];
    for (n, size) in sizes.into_iter().enumerate() {
        let sent: Vec<u8> = (0..size).map(|at| (at * 7 + n) as u8).collect();
        bench.sender.send(&sent).unwrap();
        for sink in &sinks {
            let len = sink.recv(&mut buffer).unwrap();
            assert!(buffer[..len] == sent, "{size} bytes, {len} arrived");
        }
    }
    let last = bench.stop();
    for name in ["a", "b"] {
        let hop = target(&last, HopKind::Egress, name);
        assert_eq!(hop.delivered.count, sizes.len() as u64);
        assert_eq!(hop.delivered.bytes, sizes.iter().sum::<usize>() as u64);
    }
}

#[test]
fn every_size_arrives_byte_for_byte_inline() {
    check_sizes(Schedule::Inline);
}

#[test]
fn every_size_arrives_byte_for_byte_threaded() {
    check_sizes(Schedule::Threaded);
}

#[test]
fn a_refusing_target_is_counted_to_the_last_datagram_and_harms_no_other() {
    for schedule in [Schedule::Inline, Schedule::Threaded] {
        let (good, good_addr) = sink();
        let dead_addr = (Ipv4Addr::LOCALHOST, free_port()).into();
        let targets = vec![(named("dead"), udp_to(dead_addr)), (named("good"), udp_to(good_addr))];
        let mut bench = Bench::start(schedule, targets);
        // Runs of equal length and single datagrams, so that each answer is about a different number of them.
        let count = 2_000_u64;
        let len_of = |n: u64| if n % 100 < 50 { 40 } else { 1 + (n * 7 % 90) as usize };
        for n in 0..count {
            bench.sender.send(&vec![n as u8; len_of(n)]).unwrap();
        }
        let mut buffer = [0; 100];
        for n in 0..count {
            assert_eq!(good.recv(&mut buffer).unwrap(), len_of(n));
            assert_eq!(buffer[0], n as u8);
        }
        let bytes = (0..count).map(|n| len_of(n) as u64).sum::<u64>();
        let last = bench.stop();
        assert_eq!(target(&last, HopKind::Egress, "good").delivered.count, count);
        let lost = target(&last, HopKind::Target, "dead").dropped_for(Reason::Refused)
            + target(&last, HopKind::Egress, "dead").dropped_for(Reason::Refused);
        assert_eq!((lost.count, lost.bytes), (count, bytes), "{schedule:?} {last:#?}");
        assert_eq!(target(&last, HopKind::Egress, "dead").delivered.count, 0);
        assert!(
            target(&last, HopKind::Egress, "dead").event(Event::IcmpErrors(IcmpError::V4Port)) > 0
        );
        let is_up = |name| target(&last, HopKind::Target, name).gauges[&Gauge::Up];
        assert_eq!((is_up("dead"), is_up("good")), (0, 1));
    }
}

#[test]
fn targets_join_leave_and_move_under_load() {
    let (first, first_addr) = sink();
    let mut bench = Bench::start(Schedule::Inline, vec![(named("first"), udp_to(first_addr))]);
    let mut sent = 0_u64;
    let mut send = |bench: &Bench, n: u64| {
        for _ in 0..n {
            bench.sender.send(&sent.to_be_bytes()).unwrap();
            sent += 1;
        }
    };
    send(&bench, 500);
    let (second, second_addr) = sink();
    change(bench.listener(), TargetChange::Add(named("second"), udp_to(second_addr)));
    send(&bench, 500);
    let (moved, moved_addr) = sink();
    bench.wait_until("1,000 through", |snapshot| {
        target(snapshot, HopKind::Target, "second").in_flight.is_zero()
            && target(snapshot, HopKind::Egress, "first").delivered.count == 1_000
    });
    change(bench.listener(), TargetChange::Redirect("first".to_owned(), udp_to(moved_addr)));
    send(&bench, 500);
    // What has arrived by then belongs to the second target too.
    bench.wait_until("all 1,500 through", |snapshot| {
        target(snapshot, HopKind::Egress, "first").delivered.count == 1_500
    });
    bench.listener().remove_target("second", DEADLINE).unwrap();
    assert!(bench.listener().remove_target("second", DEADLINE).is_err());
    let last = bench.stop();
    let mut buffer = [0; 100];
    for (socket, expected) in [(&first, 0..1_000), (&moved, 1_000..1_500)] {
        for n in expected {
            socket.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..8], n_bytes(n));
        }
    }
    let got = target(&last, HopKind::Egress, "second").delivered.count;
    second.set_nonblocking(true).unwrap();
    let mut next = || {
        second.recv(&mut buffer).ok().map(|_| u64::from_be_bytes(buffer[..8].try_into().unwrap()))
    };
    let arrived: Vec<u64> = std::iter::from_fn(&mut next).collect();
    assert_eq!(got, arrived.len() as u64);
    // It joined somewhere in the first 500; from there on it has every datagram, in order.
    let joined = arrived[0];
    assert!(
        joined <= 500,
        "datagrams from {joined} on, though the first 500 were sent before it joined"
    );
    assert!(arrived.iter().copied().eq(joined..1_500), "{arrived:?}");
}

/// What waits in the ring for a blocked target leaves as fast as its reader takes it, even while nothing arrives.
#[test]
fn a_blocked_target_catches_up_while_nothing_arrives() {
    for schedule in [Schedule::Inline, Schedule::Threaded] {
        let path = std::env::temp_dir().join(format!("weir-idle-{}", std::process::id()));
        let reader = UnixDatagram::bind(&path).unwrap();
        reader.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut bench = Bench::start(
            schedule,
            vec![(
                named("unix"),
                TargetKind::Unix { peer: UnixPeer::follow(path.clone()).unwrap() },
            )],
        );
        // The reader's queue holds a few hundred at most (net.unix.max_dgram_qlen).
        let count = 10_000_u64;
        for n in 0..count {
            bench.sender.send(&n.to_be_bytes()).unwrap();
        }
        bench.wait_until("all are in the ring", |snapshot| {
            target(snapshot, HopKind::Target, "unix").received.count == count
        });
        let begin = Instant::now();
        let mut buffer = [0; 8];
        for n in 0..count {
            reader.recv(&mut buffer).unwrap();
            assert_eq!(buffer, n_bytes(n));
            assert!(begin.elapsed() < DEADLINE, "{n} of {count} within {DEADLINE:?}");
        }
        bench.stop();
        std::fs::remove_file(&path).unwrap();
    }
}

/// A pipe that nobody empties stands in for a disk that does not respond.
#[test]
fn a_stuck_file_harms_no_other_and_its_rest_is_named() {
    let path = std::env::temp_dir().join(format!("weir-stuck-{}", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    // Held open at both ends, so that opening and writing succeed until the pipe is full.
    let pipe = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let file = relay::FileOptions {
        path: Some(path.clone()),
        format: relay::FileFormat::Lines,
        rotate_bytes: None,
        rotate_keep: 0,
    };
    let (good, good_addr) = sink();
    let targets =
        vec![(named("stuck"), TargetKind::File(file)), (named("good"), udp_to(good_addr))];
    let mut bench = Bench::start(Schedule::Inline, targets);
    let count = 150_000_u64;
    for n in 0..count {
        bench.sender.send(b"x").unwrap();
        if n % 100 == 99 {
            bench.wait_until("the good one keeps up", |snapshot| {
                target(snapshot, HopKind::Egress, "good").delivered.count == n + 1
            });
        }
    }
    let listener = bench.listener.take().unwrap();
    listener.begin_stop(Instant::now() + Duration::from_millis(100));
    listener.finish_stop();
    let last = bench.ledger.check();
    assert!(last.is_balanced() && last.unaccounted() == 0, "{last:#?}");
    let stuck = target(&last, HopKind::Target, "stuck");
    assert_eq!(stuck.received.count, count);
    assert!(stuck.dropped_for(Reason::Shutdown).count > 0, "{stuck:#?}");
    assert!(stuck.dropped_for(Reason::QueueFull).count > 0, "{stuck:#?}");
    assert_eq!(target(&last, HopKind::Egress, "good").delivered.count, count);
    drop((pipe, good));
    std::fs::remove_file(&path).unwrap();
}

fn n_bytes(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}
