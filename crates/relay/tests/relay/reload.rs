//! The effects of a reload on a running listener: targets change in place, a socket moves to another listener, and no datagram is
//! lost, duplicated or unaccounted for.

use crate::support::{change, named, options, sink, udp_to};
use ledger::{HopKind, Ledger, Snapshot};
use relay::{FileFormat, FileOptions, Listener, Schedule, TargetChange, TargetKind};
use std::net::UdpSocket;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use sys::socket::{LocalAddress, listen_udp, local_address};
use testkit::DEADLINE;

fn file(path: PathBuf) -> TargetKind {
    let format = FileFormat::LengthPrefixed;
    TargetKind::File(FileOptions { path: Some(path), format, rotate_bytes: None, rotate_keep: 0 })
}

/// The numbers in a file of length-prefixed records.
fn numbers_in(path: &PathBuf) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    bytes.chunks(12).map(|record| u64::from_be_bytes(record[4..].try_into().unwrap())).collect()
}

/// A sender of numbers to a socket that successive listeners read.
struct Numbers {
    sender: UdpSocket,
    sent: u64,
}

impl Numbers {
    fn send(&mut self, count: u64) {
        for _ in 0..count {
            self.sender.send(&self.sent.to_be_bytes()).unwrap();
            self.sent += 1;
        }
    }
}

fn start(schedule: Schedule, target: TargetKind) -> (Arc<Ledger>, Listener, Numbers) {
    let socket = listen_udp("127.0.0.1:0".parse().unwrap(), &Default::default()).unwrap();
    sys::socket::set_receive_buffer(socket.as_fd(), 64 << 20).unwrap();
    let Some(LocalAddress::Inet(addr)) = local_address(socket.as_fd()) else { panic!() };
    let ledger = Arc::new(Ledger::new("test".into()));
    let targets = vec![(named("t"), target)];
    let listener = Listener::start(options(schedule), socket, targets, &ledger).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(addr).unwrap();
    (ledger, listener, Numbers { sender, sent: 0 })
}

fn wait_until(ledger: &Ledger, what: &str, condition: impl Fn(&Snapshot) -> bool) {
    let begin = Instant::now();
    loop {
        let snapshot = ledger.check();
        assert!(snapshot.is_balanced(), "{snapshot:#?}");
        if condition(&snapshot) {
            return;
        }
        assert!(begin.elapsed() < DEADLINE, "{what}: {snapshot:#?}");
        std::thread::yield_now();
    }
}

fn stop(listener: Listener, ledger: &Ledger) -> Snapshot {
    listener.begin_stop(Instant::now() + DEADLINE);
    listener.finish_stop();
    let snapshot = ledger.check();
    assert!(snapshot.is_balanced(), "{snapshot:#?}");
    assert_eq!(snapshot.unaccounted(), 0, "{snapshot:#?}");
    snapshot
}

fn receive(socket: &UdpSocket) -> u64 {
    let mut number = [0; 8];
    assert_eq!(socket.recv(&mut number).unwrap(), 8);
    u64::from_be_bytes(number)
}

fn check_change(schedule: Schedule) {
    let (first, first_addr) = sink();
    let (ledger, mut listener, mut numbers) = start(schedule, udp_to(first_addr));
    let mut sinks = vec![first];
    for round in 0..20 {
        numbers.send(100);
        let (next, next_addr) = sink();
        let mut changed = named("t");
        // Every other round has a gate, which lets everything pass.
        changed.rate_limit_per_sec = NonZeroU32::new(u32::MAX).filter(|_| round % 2 == 0);
        change(&mut listener, TargetChange::Change(changed, udp_to(next_addr)));
        sinks.push(next);
    }
    numbers.send(100);
    let last = stop(listener, &ledger);
    let hop = last.hop(HopKind::Egress, "in", Some("t")).unwrap();
    assert_eq!(hop.delivered.count, numbers.sent, "{last:#?}");
    let mut expected = 0;
    for sink in &sinks {
        sink.set_nonblocking(true).unwrap();
        while expected < numbers.sent {
            let mut number = [0; 8];
            if sink.recv(&mut number).is_err() {
                break;
            }
            assert_eq!(u64::from_be_bytes(number), expected);
            expected += 1;
        }
    }
    assert_eq!(expected, numbers.sent);
}

#[test]
fn a_changed_target_goes_on_where_it_is_inline() {
    check_change(Schedule::Inline);
}

#[test]
fn a_changed_target_goes_on_where_it_is_threaded() {
    check_change(Schedule::Threaded);
}

#[test]
fn a_file_becomes_another_file_and_a_socket() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("relay-change");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let paths = [folder.join("a"), folder.join("b")];
    let (ledger, mut listener, mut numbers) = start(Schedule::Inline, file(paths[0].clone()));
    numbers.send(500);
    wait_until(&ledger, "500 written", |snapshot| {
        snapshot.hop(HopKind::Egress, "in", Some("t")).unwrap().delivered.count == 500
    });
    change(&mut listener, TargetChange::Change(named("t"), file(paths[1].clone())));
    numbers.send(500);
    wait_until(&ledger, "1,000 written", |snapshot| {
        snapshot.hop(HopKind::Egress, "in", Some("t")).unwrap().delivered.count == 1_000
    });
    let (socket, addr) = sink();
    change(&mut listener, TargetChange::Change(named("t"), udp_to(addr)));
    numbers.send(500);
    stop(listener, &ledger);
    let mut written = numbers_in(&paths[0]);
    written.extend(numbers_in(&paths[1]));
    assert!(written == (0..1_000).collect::<Vec<_>>(), "{} written", written.len());
    for number in 1_000..1_500 {
        assert_eq!(receive(&socket), number);
    }
}

fn check_hand_over(schedule: Schedule) {
    let (socket, addr) = sink();
    let (ledger, mut listener, mut numbers) = start(schedule, udp_to(addr));
    let mut retired = Vec::new();
    for _ in 0..20 {
        numbers.send(200);
        let targets = vec![(named("t"), udp_to(addr))];
        let deadline = Instant::now() + DEADLINE;
        let next = listener.hand_over(options(schedule), targets, deadline).unwrap();
        numbers.send(200);
        retired.push(std::mem::replace(&mut listener, next));
    }
    numbers.send(200);
    for old in retired {
        old.finish_removal();
    }
    let last = stop(listener, &ledger);
    let read = last.received_at(HopKind::Receive).count;
    let dropped = last.received_at(HopKind::Socket).count - read;
    assert_eq!((read, dropped), (numbers.sent, 0), "{last:#?}");
    let mut seen = vec![false; numbers.sent as usize];
    for _ in 0..numbers.sent {
        let number = receive(&socket) as usize;
        assert!(!std::mem::replace(&mut seen[number], true), "{number} came twice");
    }
}

#[test]
fn a_socket_that_is_handed_over_loses_nothing_inline() {
    check_hand_over(Schedule::Inline);
}

#[test]
fn a_socket_that_is_handed_over_loses_nothing_threaded() {
    check_hand_over(Schedule::Threaded);
}

#[test]
fn what_a_full_socket_drops_while_it_is_handed_over_is_counted_once() {
    let socket = listen_udp("127.0.0.1:0".parse().unwrap(), &Default::default()).unwrap();
    sys::socket::set_receive_buffer(socket.as_fd(), 16 << 10).unwrap();
    let Some(LocalAddress::Inet(addr)) = local_address(socket.as_fd()) else { panic!() };
    let ledger = Arc::new(Ledger::new("test".into()));
    let targets = || vec![(named("t"), TargetKind::Null)];
    let mut listener =
        Listener::start(options(Schedule::Inline), socket, targets(), &ledger).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(addr).unwrap();
    let mut numbers = Numbers { sender, sent: 0 };
    let mut retired = Vec::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                numbers.send(100);
            }
        });
        for _ in 0..50 {
            let deadline = Instant::now() + DEADLINE;
            let next = listener.hand_over(options(Schedule::Inline), targets(), deadline).unwrap();
            retired.push(std::mem::replace(&mut listener, next));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for old in retired {
        old.finish_removal();
    }
    let last = stop(listener, &ledger);
    assert_eq!(last.received_at(HopKind::Socket).count, numbers.sent, "{last:#?}");
    let dropped = numbers.sent - last.received_at(HopKind::Receive).count;
    assert!(dropped > 0, "the socket was never full");
}

#[test]
fn a_start_that_fails_leaves_neither_threads_nor_rows() {
    let ledger = Arc::new(Ledger::new("test".into()));
    let socket = listen_udp("127.0.0.1:0".parse().unwrap(), &Default::default()).unwrap();
    let targets = vec![(named("twice"), TargetKind::Null), (named("twice"), TargetKind::Null)];
    let begin = Instant::now();
    let started = Listener::start(options(Schedule::Threaded), socket, targets, &ledger);
    assert!(started.is_err());
    assert!(begin.elapsed() < std::time::Duration::from_millis(900), "{:?}", begin.elapsed());
    assert!(ledger.snapshot().hops.is_empty());
}

/// No source was requested so far, and the receiving thread waits in a call that does not request any.
#[test]
fn a_source_filter_holds_from_the_moment_that_the_change_is_answered() {
    for schedule in [Schedule::Inline, Schedule::Threaded] {
        let (ledger, mut listener, mut numbers) = start(schedule, TargetKind::Null);
        numbers.send(1);
        let target = |snapshot: &Snapshot| snapshot.hop(HopKind::Target, "in", Some("t")).cloned();
        wait_until(&ledger, "the first", |all| target(all).unwrap().delivered.count == 1);
        let mut options = named("t");
        options.only_sources = vec!["10.0.0.0/8".parse().unwrap()];
        change(&mut listener, TargetChange::Change(options, TargetKind::Null));
        numbers.send(100);
        let snapshot = stop(listener, &ledger);
        let hop = target(&snapshot).unwrap();
        let filtered = hop.dropped_for(ledger::Reason::Filtered).count;
        assert_eq!((hop.delivered.count, filtered), (1, 100), "{schedule:?}");
    }
}
