//! Sockets that deliver datagrams together: whatever is lost, and wherever, is counted to the datagram.

use crate::support::{named, options, sink, udp_to};
use ledger::{Accounting, HopKind, HopSnapshot, Ledger, Reason, Snapshot, Way};
use relay::{ListenSocket, Listener, ListenerOptions, Receive, Schedule};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::Errno;
use sys::gro::{self, Counter};
use sys::send::{Message, send_messages};
use sys::socket::{Joining, LocalAddress, listen_udp, local_address};
use testkit::{DEADLINE, Random};

/// Number of floods of each kind. Each sends more than the queue holds, faster than it is read.
const FLOODS: u64 = 10;

/// Messages per flood.
const MESSAGES: usize = 2_000;

/// A receive buffer that a flood overruns, but which holds a few of the largest aggregates.
const BUFFER_BYTES: usize = 400_000;

/// The denied source.
const DENIED: &str = "127.0.0.2";

fn may_count() -> bool {
    testkit::need_root("counting datagrams in the kernel (CAP_BPF)")
}

/// Makes a socket deliver aggregates with a counter.
fn counted(socket: &impl AsFd) -> Receive {
    let counter = Counter::make().unwrap();
    counter.attach(socket.as_fd()).unwrap();
    gro::aggregate(socket.as_fd()).unwrap();
    Receive::Aggregates(Some(counter))
}

/// A listener with one target that counts what it gets.
struct Relay {
    ledger: Arc<Ledger>,
    listener: Listener,
    addr: SocketAddr,
    /// Datagrams of all floods.
    sent: Arc<AtomicU64>,
    arrived: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    receiver: JoinHandle<()>,
}

impl Relay {
    fn start(
        host: &str,
        receive: impl FnOnce(&std::os::fd::OwnedFd) -> Receive,
        change: impl FnOnce(&mut ListenerOptions),
    ) -> Relay {
        let socket = listen_udp(host.parse().unwrap(), &Default::default()).unwrap();
        sys::socket::set_receive_buffer(socket.as_fd(), BUFFER_BYTES).unwrap();
        let Some(LocalAddress::Inet(addr)) = local_address(socket.as_fd()) else { panic!() };
        let receive = receive(&socket);

        let (target, to) = sink();
        target.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (arrived, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, ends) = (Arc::clone(&arrived), Arc::clone(&is_over));
        let receiver = thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            loop {
                match target.recv(&mut bytes) {
                    Ok(_) => _ = counted.fetch_add(1, Ordering::Release),
                    Err(_) if ends.load(Ordering::Acquire) => return,
                    Err(_) => {}
                }
            }
        });

        let ledger = Arc::new(Ledger::new("test".into()));
        let mut options = options(Schedule::Inline);
        change(&mut options);
        let socket = ListenSocket::new(socket, receive);
        let targets = vec![(named("t"), udp_to(to))];
        let listener = Listener::start(options, socket, targets, &ledger).unwrap();
        Relay { ledger, listener, addr, sent: Arc::default(), arrived, is_over, receiver }
    }

    /// Sends messages of random lengths and numbers of datagrams from several sockets, as fast as possible. At each check the
    /// ledger must balance and count no more than was sent, and in the end count all of it.
    fn flood(&self, seed: u64) -> Snapshot {
        let sender = self.begin_flood(seed);
        let begin = Instant::now();
        loop {
            let is_sent = sender.is_finished();
            let snapshot = self.ledger.check();
            assert!(snapshot.is_balanced(), "{snapshot:#?}");
            let received: u64 = sockets(&snapshot).map(|hop| hop.received.count).sum();
            // Read second: it is never behind what has arrived.
            let sent = self.sent.load(Ordering::Acquire);
            assert!(received <= sent, "{received} of {sent}: {snapshot:#?}");
            if is_sent && received == sent {
                sender.join().unwrap();
                return snapshot;
            }
            assert!(begin.elapsed() < DEADLINE, "{received} of {sent}: {snapshot:#?}");
            thread::yield_now();
        }
    }

    fn begin_flood(&self, seed: u64) -> JoinHandle<()> {
        let (addr, sent) = (self.addr, Arc::clone(&self.sent));
        thread::spawn(move || send_flood(addr, seed, &sent))
    }

    fn stop(self) -> Snapshot {
        self.listener.begin_stop(Instant::now() + DEADLINE);
        self.listener.finish_stop();
        self.is_over.store(true, Ordering::Release);
        self.receiver.join().unwrap();

        let snapshot = self.ledger.check();
        assert!(snapshot.is_balanced(), "{snapshot:#?}");
        assert_eq!(snapshot.unaccounted(), 0, "{snapshot:#?}");
        let egress = snapshot.hop(HopKind::Egress, "in", Some("t")).unwrap();
        assert_eq!(egress.delivered.count, self.arrived.load(Ordering::Acquire), "{snapshot:#?}");
        snapshot
    }
}

fn send_flood(addr: SocketAddr, seed: u64, sent: &AtomicU64) {
    let mut random = Random(seed);
    let any = if addr.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let mut flows = vec![UdpSocket::bind(any).unwrap(), UdpSocket::bind(any).unwrap()];
    if addr.is_ipv4() {
        flows.push(UdpSocket::bind((DENIED, 0)).unwrap());
    }
    flows.iter().for_each(|flow| flow.connect(addr).unwrap());

    let bytes = vec![7; 65_000];
    for _ in 0..MESSAGES {
        let flow = &flows[random.index(flows.len())];
        let segment = 1 + random.below(1_400) as usize;
        let count = 1 + random.below(64.min(bytes.len() as u64 / segment as u64)) as usize;
        let short = random.below(segment as u64) as usize;
        let message = match random.below(8) {
            0 => Message::single(&[]),
            1 => Message::single(&bytes[..short]),
            2 => Message::single(&bytes),
            _ if count == 1 => Message::single(&bytes[..segment]),
            _ => Message::run(&bytes[..segment * count - short], segment as u16),
        };
        // Before the send: it may be counted before the call returns.
        sent.fetch_add(u64::from(message.datagrams), Ordering::Release);
        match send_messages(flow.as_fd(), &[message]) {
            Ok(taken) => assert_eq!(taken, 1),
            // The listener has stopped.
            Err(Errno::CONNREFUSED) => return,
            Err(errno) => panic!("{errno}"),
        }
    }
}

fn sockets(snapshot: &Snapshot) -> impl Iterator<Item = &HopSnapshot> {
    snapshot.hops.iter().filter(|hop| hop.hop == HopKind::Socket)
}

fn lost(snapshot: &Snapshot, reason: Reason) -> u64 {
    let is_it = |loss: &&ledger::Loss| loss.way == Way::Dropped(reason);
    snapshot.losses().iter().filter(is_it).map(|loss| loss.amount.count).sum()
}

#[test]
fn what_a_flood_loses_is_counted_to_the_datagram() {
    if !may_count() {
        return;
    }
    for seed in 0..FLOODS {
        let host = if seed % 2 == 0 { "127.0.0.1:0" } else { "[::1]:0" };
        let relay = Relay::start(host, counted, |options| {
            options.deny_sources = vec![DENIED.parse().unwrap()];
        });
        relay.flood(seed);
        relay.flood(seed + FLOODS);
        let sent = relay.sent.load(Ordering::Acquire);
        let snapshot = relay.stop();

        let socket = snapshot.hop(HopKind::Socket, "in", None).unwrap();
        assert_eq!((socket.received.count, socket.accounting), (sent, Accounting::Exact));
        assert!(lost(&snapshot, Reason::SocketBuffer) > 0, "no flood: {snapshot:#?}");
        assert_eq!(lost(&snapshot, Reason::Shutdown), 0);
        assert_eq!(lost(&snapshot, Reason::SourceDenied) > 0, host.starts_with("127"));
    }
}

#[test]
fn so_it_is_where_the_flood_goes_on_when_the_listener_stops() {
    if !may_count() {
        return;
    }
    for seed in 0..FLOODS {
        let relay = Relay::start("127.0.0.1:0", counted, |_| {});
        let (sender, sent) = (relay.begin_flood(seed), Arc::clone(&relay.sent));
        let begin = Instant::now();
        while sent.load(Ordering::Acquire) < 1_000 + seed * 500 {
            assert!(begin.elapsed() < DEADLINE);
        }

        let snapshot = relay.stop();
        sender.join().unwrap();
        let socket = snapshot.hop(HopKind::Socket, "in", None).unwrap();
        assert!(socket.received.count <= sent.load(Ordering::Acquire), "{snapshot:#?}");
        let lost = |reason| self::lost(&snapshot, reason);
        let named = lost(Reason::SocketBuffer) + lost(Reason::Shutdown);
        assert_eq!(socket.received.count, socket.delivered.count + named);
    }
}

#[test]
fn so_it_is_for_each_of_several_sockets_that_come_and_go() {
    if !may_count() {
        return;
    }
    let mut relay = Relay::start("127.0.0.1:0", counted, |_| {});
    let addr = relay.addr;
    let mut open = || {
        let joining = Joining::open(addr, &sys::socket::ListenOptions::default())?;
        let socket = joining.socket()?;
        sys::socket::set_receive_buffer(socket.as_fd(), BUFFER_BYTES)?;
        Ok((joining, counted(&socket)))
    };

    for (seed, sockets) in (0..).zip([1, 4, 2, 3, 1]) {
        relay.listener.set_sockets(sockets, &mut open, &mut || {}).unwrap();
        relay.flood(seed);
    }
    let sent = relay.sent.load(Ordering::Acquire);
    let snapshot = relay.stop();
    assert_eq!(snapshot.hop(HopKind::Socket, "in", None).unwrap().received.count, sent);
    assert!(lost(&snapshot, Reason::SocketBuffer) > 0, "no flood: {snapshot:#?}");
}

#[test]
fn a_socket_that_is_handed_over_counts_on() {
    if !may_count() {
        return;
    }
    let mut relay = Relay::start("127.0.0.1:0", counted, |_| {});
    for seed in 0..4 {
        let snapshot = relay.flood(seed);
        assert!(lost(&snapshot, Reason::SocketBuffer) > 0, "no flood: {snapshot:#?}");

        let sender = relay.begin_flood(seed + 4);
        let (_, to) = sink();
        let targets = vec![(named("t"), udp_to(to))];
        let options = relay.listener.options().clone();
        let next = relay.listener.hand_over(options, targets, Instant::now() + DEADLINE).unwrap();
        std::mem::replace(&mut relay.listener, next).finish_stop();
        sender.join().unwrap();
    }
    relay.flood(8);
}

#[test]
fn without_a_counter_the_drops_are_at_least_what_is_said() {
    let relay = Relay::start(
        "127.0.0.1:0",
        |socket| {
            gro::aggregate(socket.as_fd()).unwrap();
            Receive::Aggregates(None)
        },
        |_| {},
    );
    relay.begin_flood(1).join().unwrap();
    let sent = relay.sent.load(Ordering::Acquire);
    let snapshot = relay.stop();
    let socket = snapshot.hop(HopKind::Socket, "in", None).unwrap();
    assert_eq!(socket.accounting, Accounting::AtLeast);
    assert!(socket.received.count < sent, "no flood: {snapshot:#?}");
}
