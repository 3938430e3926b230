//! Two Weirs with a repaired link between them, over a lossy path.

use crate::support::{named, options, sink, udp_to};
use hop::{Identity, Key, Keys, ReceiverOptions, SenderOptions};
use ledger::{Event, HopKind, HopSnapshot, Ledger, Reason, Snapshot};
use relay::{
    Datagram, Flushed, LinkListenOptions, LinkOptions, Listener, ListenerOptions, RowTarget,
    Schedule, Taken, TargetKind, TargetOptions,
};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use sys::Source;
use sys::clock::realtime_ns;
use sys::socket::{LocalAddress, SendOptions, connect_udp, listen_udp, local_address};
use testkit::{DEADLINE, LossyWay};

pub(crate) fn key() -> Key {
    Key::new("near", [7; 32])
}

/// A Weir that others send to, with one target.
pub(crate) struct FarWeir {
    pub(crate) ledger: Arc<Ledger>,
    listener: Listener,
    pub(crate) addr: SocketAddr,
}

impl FarWeir {
    fn start(at: &str, to: SocketAddr) -> FarWeir {
        FarWeir::with(at, vec![(named("out"), udp_to(to))])
    }

    pub(crate) fn with(at: &str, targets: Vec<(TargetOptions, TargetKind)>) -> FarWeir {
        FarWeir::holding(None, at, targets)
    }

    /// As [`with`](Self::with), but in order if datagrams are held.
    fn holding(
        hold_ns: Option<u64>,
        at: &str,
        targets: Vec<(TargetOptions, TargetKind)>,
    ) -> FarWeir {
        let socket = listen_udp(at.parse().unwrap(), &Default::default()).unwrap();
        let Some(LocalAddress::Inet(addr)) = local_address(socket.as_fd()) else { panic!() };
        let link = LinkListenOptions {
            keys: Keys::parse(&key().line()).unwrap(),
            receiver: ReceiverOptions {
                window: 65_536,
                parts_bytes: 8 << 20,
                hold_ns,
                room_bytes: 64 << 20,
                senders_max: 10,
            },
            state: None,
        };
        let ledger = Arc::new(Ledger::new("far".into()));
        let options = ListenerOptions { link: Some(link), ..options(Schedule::Inline) };
        let listener = Listener::start(options, socket, targets, &ledger).unwrap();
        FarWeir { ledger, listener, addr }
    }

    pub(crate) fn stop(self) -> Snapshot {
        self.listener.begin_stop(Instant::now() + DEADLINE);
        self.listener.finish_stop();
        self.ledger.check()
    }
}

pub(crate) fn identity() -> Identity {
    Identity { host: "here".into(), listener: "in".into() }
}

pub(crate) fn sender_options() -> SenderOptions {
    SenderOptions {
        rate_bytes_per_sec: 200_000_000,
        repair_percent: 50,
        part_bytes: 1_150,
        window: 65_536,
        redelivers: true,
    }
}

/// A target that is another Weir.
pub(crate) fn link_to(to: SocketAddr, deadline: Duration) -> TargetKind {
    let (key, identity, sender) = (key(), identity(), sender_options());
    let options = LinkOptions { key, identity, sender, deadline, state: None };
    let answered = SendOptions { is_answered: true, ..Default::default() };
    let socket = connect_udp(to, &answered).unwrap();
    TargetKind::Link { socket: Some(socket), options: Box::new(options) }
}

/// A Weir that sends to another one.
struct NearWeir {
    ledger: Arc<Ledger>,
    listener: Listener,
    sender: UdpSocket,
}

impl NearWeir {
    fn start(to: SocketAddr, deadline: Duration) -> NearWeir {
        NearWeir::beside(to, deadline, Vec::new())
    }

    /// As [`start`](Self::start), with other targets too.
    fn beside(
        to: SocketAddr,
        deadline: Duration,
        mut targets: Vec<(TargetOptions, TargetKind)>,
    ) -> NearWeir {
        let socket = listen_udp("127.0.0.1:0".parse().unwrap(), &Default::default()).unwrap();
        sys::socket::set_receive_buffer(socket.as_fd(), 64 << 20).unwrap();
        let Some(LocalAddress::Inet(addr)) = local_address(socket.as_fd()) else { panic!() };
        let ledger = Arc::new(Ledger::new("near".into()));
        let options = options(Schedule::Inline);
        targets.push((named("far"), link_to(to, deadline)));
        let listener = Listener::start(options, socket, targets, &ledger).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(addr).unwrap();
        NearWeir { ledger, listener, sender }
    }

    fn hop(&self) -> HopSnapshot {
        let snapshot = self.ledger.check();
        assert!(snapshot.is_balanced(), "{snapshot:#?}");
        snapshot.hop(HopKind::Target, "in", Some("far")).unwrap().clone()
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&HopSnapshot) -> bool) -> HopSnapshot {
        let begin = Instant::now();
        loop {
            let hop = self.hop();
            if condition(&hop) {
                return hop;
            }
            assert!(begin.elapsed() < DEADLINE, "{what} within {DEADLINE:?}: {hop:#?}");
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn stop(self) -> Snapshot {
        self.listener.begin_stop(Instant::now() + DEADLINE);
        self.listener.finish_stop();
        self.ledger.check()
    }
}

fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len.max(4)];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Reads until nothing has arrived for a second, and returns how often each number arrived.
fn collect(socket: UdpSocket, count: usize, lens: impl Fn(u32) -> usize) -> Vec<u32> {
    let (mut buffer, mut times) = (vec![0; 65_536], vec![0; count]);
    while times.iter().sum::<u32>() < count as u32 {
        let Ok(len) = socket.recv(&mut buffer) else { break };
        let number = u32::from_le_bytes(*buffer.first_chunk().unwrap());
        assert_eq!(buffer[..len], payload(number, lens(number)), "datagram {number}");
        times[number as usize] += 1;
    }
    times
}

/// Lengths from 4 to 3,000 bytes, most of them short; every hundredth has the maximum length.
fn len_of(number: u32) -> usize {
    match number % 100 {
        0 => 65_507,
        1..10 => 3_000,
        other => 4 + (other as usize * 37) % 1_400,
    }
}

/// Sends datagrams over a path with this loss, and returns what both ends have counted.
fn carry(count: u32, per_sec: u32, lost_per_1000: u32) -> (Snapshot, Snapshot) {
    let (out, to) = sink();
    let far = FarWeir::start("127.0.0.1:0", to);
    let way = LossyWay::to(far.addr, lost_per_1000);
    let near = NearWeir::start(way.addr, Duration::from_secs(20));
    let collector = thread::spawn(move || collect(out, count as usize, len_of));

    let begin = Instant::now();
    for number in 0..count {
        let due = Duration::from_secs_f64(f64::from(number) / f64::from(per_sec));
        while begin.elapsed() < due {
            thread::yield_now();
        }
        near.sender.send(&payload(number, len_of(number))).unwrap();
    }
    near.wait_until("all settled", |hop| {
        hop.received.count == u64::from(count) && hop.in_flight.is_zero()
    });
    let times = collector.join().unwrap();
    let (near, far) = (near.stop(), far.stop());
    let wrong: Vec<_> = times.iter().enumerate().filter(|(_, times)| **times != 1).collect();
    assert!(wrong.is_empty(), "each once: {wrong:?} {near:#?} {far:#?}");
    (near, far)
}

fn compare(near: &Snapshot, far: &Snapshot, count: u64) {
    let target = near.hop(HopKind::Target, "in", Some("far")).unwrap();
    let receive = far.hop(HopKind::Receive, "in", None).unwrap();
    assert_eq!((target.received.count, target.delivered.count), (count, count), "{target:#?}");
    assert_eq!(target.delivered, receive.received);
    for snapshot in [near, far] {
        assert!(snapshot.is_balanced() && snapshot.unaccounted() == 0, "{snapshot:#?}");
    }
}

#[test]
fn on_a_clean_way_everything_arrives_once() {
    let (near, far) = carry(5_000, 5_000, 0);
    compare(&near, &far, 5_000);
}

#[test]
fn on_a_way_that_loses_a_fifth_everything_arrives_once() {
    let (near, far) = carry(5_000, 2_000, 200);
    compare(&near, &far, 5_000);
}

#[test]
fn a_sender_that_starts_over_a_hundred_times_gets_in_each_time_and_all_is_counted() {
    let (_out, to) = sink();
    let far = FarWeir::start("127.0.0.1:0", to);
    for number in 0..100 {
        // As after a reload that changes the target: another run, from another port.
        let near = NearWeir::start(far.addr, Duration::from_secs(20));
        near.sender.send(&payload(number, 100)).unwrap();
        near.wait_until("delivered", |hop| hop.delivered.count == 1);
        assert_eq!(near.stop().unaccounted(), 0);
    }
    let far = far.stop();
    let receive = far.hop(HopKind::Receive, "in", None).unwrap();
    assert_eq!(receive.received.count, 100, "{receive:#?}");
    let of_peers: u64 = receive.peers.iter().map(|peer| peer.accepted.count).sum();
    assert_eq!((of_peers, receive.event(Event::Sessions)), (100, 100));
    assert_eq!(receive.event(Event::HellosRefused), 0);
}

/// Keeps the numbers in the order in which they arrive.
struct Numbers(Arc<Mutex<Vec<u32>>>);

impl RowTarget for Numbers {
    fn take(&mut self, datagram: &Datagram<'_>) -> Taken {
        let number = u32::from_le_bytes(*datagram.bytes.first_chunk().unwrap());
        self.0.lock().unwrap().push(number);
        Taken::Yes
    }

    fn flush(&mut self) -> Flushed {
        Flushed::Yes
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The numbers of `count` datagrams in the order in which they leave a Weir behind a path that loses a fifth.
fn numbers(hold: Option<Duration>, count: u32) -> Vec<u32> {
    let numbers = Arc::<Mutex<Vec<_>>>::default();
    let rows = TargetKind::Rows(Box::new(Numbers(Arc::clone(&numbers))));
    let hold_ns = hold.map(|hold| hold.as_nanos() as u64);
    let far = FarWeir::holding(hold_ns, "127.0.0.1:0", vec![(named("rows"), rows)]);
    let way = LossyWay::to(far.addr, 200);
    let near = NearWeir::start(way.addr, Duration::from_secs(20));
    for number in 0..count {
        near.sender.send(&payload(number, len_of(number))).unwrap();
        if number % 10 == 0 {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
    near.wait_until("all settled", |hop| {
        hop.received.count == u64::from(count) && hop.in_flight.is_zero()
    });
    let (near, far) = (near.stop(), far.stop());
    compare(&near, &far, count.into());
    std::mem::take(&mut numbers.lock().unwrap())
}

#[test]
fn datagrams_come_out_in_the_order_in_which_they_came_in_if_that_is_asked_for() {
    let in_order = numbers(Some(Duration::from_secs(60)), 3_000);
    assert!(in_order.iter().copied().eq(0..3_000), "{in_order:?}");
    // Without holding, nothing waits for missing datagrams; with too little time, not for long.
    for hold in [None, Some(Duration::from_nanos(1))] {
        let mut any = numbers(hold, 3_000);
        assert!(!any.is_sorted(), "{hold:?}");
        any.sort_unstable();
        assert!(any.into_iter().eq(0..3_000), "{hold:?}");
    }
}

/// Keeps who sent what, and when it was received.
pub(crate) struct Seen(pub(crate) Arc<Mutex<Vec<(Source, u64)>>>);

impl RowTarget for Seen {
    fn take(&mut self, datagram: &Datagram<'_>) -> Taken {
        self.0.lock().unwrap().push((datagram.source, datagram.received_unix_ns));
        Taken::Yes
    }

    fn flush(&mut self) -> Flushed {
        Flushed::Yes
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn who_sent_a_datagram_and_when_it_was_received_goes_with_it() {
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let rows = TargetKind::Rows(Box::new(Seen(Arc::clone(&seen))));
    let far = FarWeir::with("127.0.0.1:0", vec![(named("rows"), rows)]);
    let near = NearWeir::start(far.addr, Duration::from_secs(20));

    let before = realtime_ns();
    near.sender.send(b"one").unwrap();
    near.wait_until("it arrives", |hop| hop.delivered.count == 1);
    let after = realtime_ns();
    near.stop();
    far.stop();
    let (source, received_ns) = seen.lock().unwrap()[0];
    let Some(SocketAddr::V4(from)) = source.address() else { panic!("{source:?}") };
    assert!(from.ip().is_loopback() && (before..=after).contains(&received_ns));
}

#[test]
fn a_dead_way_costs_its_own_datagrams_alone_and_the_next_ones_arrive_when_it_is_back() {
    let (out, to) = sink();
    let (beside, beside_to) = sink();
    let far = FarWeir::start("127.0.0.1:0", to);
    let way = LossyWay::to(far.addr, 0);
    let others = vec![(named("beside"), udp_to(beside_to))];
    let near = NearWeir::beside(way.addr, Duration::from_millis(500), others);
    near.sender.send(&payload(0, 4)).unwrap();
    near.wait_until("the first one arrives", |hop| hop.delivered.count == 1);

    way.lost_per_1000.store(1_000, Ordering::Relaxed);
    for number in 1..1_000 {
        near.sender.send(&payload(number, 4)).unwrap();
    }
    // What was sent is not settled: only the other end knows whether it arrived. The rest is accounted for.
    near.wait_until("they expire", |hop| {
        hop.dropped_for(Reason::Expired).count + hop.in_flight.count == 999
            && hop.received.count == 1_000
    });
    let times = collect(beside, 1_000, |_| 4);
    assert!(times.iter().all(|times| *times == 1), "the other target has all");
    let silent = way.packets[0].load(Ordering::Relaxed);
    assert!(silent < 5_000, "{silent} packets into a dead way");

    way.lost_per_1000.store(0, Ordering::Relaxed);
    near.wait_until("both agree", |hop| hop.in_flight.is_zero());
    near.sender.send(&payload(1_000, 4)).unwrap();
    let hop = near.wait_until("the last one arrives", |hop| {
        hop.received.count == 1_001 && hop.in_flight.is_zero()
    });
    assert_eq!(hop.delivered.count + hop.dropped_for(Reason::Expired).count, 1_001, "{hop:#?}");
    out.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let times = collect(out, 1_001, |_| 4);
    assert_eq!(u64::from(times.iter().sum::<u32>()), hop.delivered.count);
    assert_eq!((times[0], times[1_000]), (1, 1));
    compare_ends(&near.stop(), &far.stop());
}

/// Checks that what one end counts as accepted is what the other accepted.
fn compare_ends(near: &Snapshot, far: &Snapshot) {
    let target = near.hop(HopKind::Target, "in", Some("far")).unwrap();
    let receive = far.hop(HopKind::Receive, "in", None).unwrap();
    assert_eq!(target.delivered, receive.received, "{target:#?} {receive:#?}");
    for snapshot in [near, far] {
        assert!(snapshot.is_balanced() && snapshot.unaccounted() == 0, "{snapshot:#?}");
    }
}

#[test]
fn a_receiver_that_starts_anew_costs_no_datagram_without_a_name() {
    const COUNT: u32 = 20_000;
    let (out, to) = sink();
    let far = FarWeir::start("127.0.0.1:0", to);
    let addr = far.addr;
    let near = NearWeir::start(addr, Duration::from_secs(20));
    let begin = Instant::now();
    let mut far = Some(far);
    for number in 0..COUNT {
        if number == COUNT / 2 {
            // A crash: nothing reports what was in flight.
            drop(far.take());
            far = Some(FarWeir::start(&addr.to_string(), to));
        }
        while begin.elapsed() < Duration::from_micros(u64::from(number) * 200) {
            thread::yield_now();
        }
        near.sender.send(&payload(number, 100)).unwrap();
    }
    let hop = near.wait_until("all settled", |hop| {
        hop.received.count == u64::from(COUNT) && hop.in_flight.is_zero()
    });
    assert_eq!(hop.events.get(&Event::PeerRestarts), Some(&1), "{hop:#?}");

    let again = hop.events.get(&Event::PossibleDuplicates).copied().unwrap_or(0);
    let mut times = vec![0u64; COUNT as usize];
    out.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut buffer = [0; 256];
    while let Ok(len) = out.recv(&mut buffer) {
        let number = u32::from_le_bytes(*buffer.first_chunk().unwrap());
        assert_eq!(buffer[..len], payload(number, 100));
        times[number as usize] += 1;
    }
    let twice: u64 = times.iter().map(|times| times.saturating_sub(1)).sum();
    let arrived = times.iter().filter(|times| **times > 0).count() as u64;
    assert!(twice <= again, "{twice} twice, {again} said");
    // What the earlier life had in its ring when it ended is its own loss; nothing here was slow.
    let least = hop.delivered.count;
    assert!((least..=least + hop.uncertain.count).contains(&arrived), "{arrived} {hop:#?}");
    near.stop();
    far.map(FarWeir::stop);
}
