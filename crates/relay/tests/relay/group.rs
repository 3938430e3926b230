//! Several sockets of one listener: one flow is spread over them and leaves in order, with every datagram accounted for.

use crate::support::{named, options, sink, udp_to};
use ledger::{HopKind, Ledger, Reason, Snapshot};
use relay::{Listener, ListenerOptions, Order, Receive, Schedule};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::socket::{Balance, Joining, LocalAddress, listen_udp, local_address};
use testkit::{DEADLINE, datagrams, say};

/// Maximum number of datagrams in flight: fewer than any ring holds while it waits for another.
const WINDOW: u64 = 8_000;

/// Longer than a busy machine keeps a thread from running.
const WAIT: Duration = Duration::from_secs(20);

/// A listener with one target that checks what it gets.
struct Relay {
    ledger: Arc<Ledger>,
    listener: Listener,
    addr: SocketAddr,
    /// Address of its target.
    to: SocketAddr,
    arrived: Arc<Arrived>,
    receiver: JoinHandle<()>,
}

#[derive(Default)]
struct Arrived {
    count: AtomicU64,
    /// Numbers that were not larger than the one before.
    inversions: AtomicU64,
    is_over: AtomicBool,
}

fn open_more(addr: SocketAddr) -> std::io::Result<(Joining, Receive)> {
    let joining = Joining::open(addr, &sys::socket::ListenOptions::default())?;
    sys::socket::set_receive_buffer(joining.socket()?.as_fd(), 64 << 20)?;
    Ok((joining, Receive::Single))
}

impl Relay {
    fn start(change: impl FnOnce(&mut ListenerOptions)) -> Relay {
        let socket = listen_udp("127.0.0.1:0".parse().unwrap(), &Default::default()).unwrap();
        sys::socket::set_receive_buffer(socket.as_fd(), 64 << 20).unwrap();
        let Some(LocalAddress::Inet(addr)) = local_address(socket.as_fd()) else { panic!() };

        let (target, to) = sink();
        target.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let arrived = Arc::<Arrived>::default();
        let shared = Arc::clone(&arrived);
        let receiver = thread::spawn(move || check_order(&target, &shared));

        let ledger = Arc::new(Ledger::new("test".into()));
        let mut options = options(Schedule::Inline);
        options.order = Order::Arrival { wait: WAIT };
        change(&mut options);
        let targets = vec![(named("t"), udp_to(to))];
        let listener = Listener::start(options, socket, targets, &ledger).unwrap();
        Relay { ledger, listener, addr, to, arrived, receiver }
    }

    fn set_sockets(&mut self, count: usize) {
        let addr = self.addr;
        self.listener.set_sockets(count, &mut || open_more(addr), &mut || {}).unwrap();
        assert_eq!(self.listener.socket_count(), count);
    }

    /// Sends numbers until told to stop, never more than a window ahead of what has arrived. Returns how many.
    fn sender(&self, is_enough: impl Fn(u64) -> bool + Send + 'static) -> JoinHandle<u64> {
        let (addr, arrived) = (self.addr, Arc::clone(&self.arrived));
        thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(addr).unwrap();
            let begun = arrived.count.load(Ordering::Acquire);
            let mut sent = begun;
            while !is_enough(sent - begun) {
                while sent - arrived.count.load(Ordering::Acquire) > WINDOW {
                    thread::yield_now();
                }
                let mut bytes = [0; 200];
                bytes[..8].copy_from_slice(&sent.to_be_bytes());
                socket.send(&bytes).unwrap();
                sent += 1;
            }
            sent - begun
        })
    }

    fn wait_for(&self, count: u64) -> Snapshot {
        let begin = Instant::now();
        loop {
            let snapshot = self.ledger.check();
            assert!(snapshot.is_balanced(), "{snapshot:#?}");
            if self.arrived.count.load(Ordering::Acquire) == count {
                return snapshot;
            }
            assert!(begin.elapsed() < DEADLINE, "{count} datagrams: {snapshot:#?}");
            thread::yield_now();
        }
    }

    fn stop(self) -> Snapshot {
        self.listener.begin_stop(Instant::now() + DEADLINE);
        self.listener.finish_stop();
        self.arrived.is_over.store(true, Ordering::Release);
        self.receiver.join().unwrap();
        let snapshot = self.ledger.check();
        assert!(snapshot.is_balanced(), "{snapshot:#?}");
        assert_eq!(snapshot.unaccounted(), 0, "{snapshot:#?}");
        snapshot
    }
}

fn check_order(socket: &UdpSocket, arrived: &Arrived) {
    let mut next = 0;
    let mut bytes = [0; 2_048];
    while !arrived.is_over.load(Ordering::Acquire) {
        let Ok(len) = socket.recv(&mut bytes) else { continue };
        assert_eq!(len, 200);
        let number = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        arrived.inversions.fetch_add(u64::from(number < next), Ordering::Relaxed);
        next = number + 1;
        arrived.count.fetch_add(1, Ordering::Release);
    }
}

fn members(snapshot: &Snapshot) -> Vec<u64> {
    let members = snapshot.hops.iter().filter(|hop| hop.hop == HopKind::Member);
    members.map(|hop| hop.delivered.count).collect()
}

#[test]
fn one_flow_over_four_sockets_leaves_in_order() {
    let sent = datagrams(200_000);
    let mut relay = Relay::start(|_| {});
    relay.set_sockets(4);
    relay.sender(move |count| count == sent).join().unwrap();
    let snapshot = relay.wait_for(sent);
    // Binomial with p = 1/4: six standard deviations, 1,162 of 200,000.
    let most_off = 6.0 * (sent as f64 * 0.25 * 0.75).sqrt();
    let counts = members(&snapshot);
    assert_eq!(counts.len(), 4);
    let is_even = |count: &u64| (*count as f64 - sent as f64 / 4.0).abs() <= most_off;
    assert!(counts.iter().all(is_even), "{counts:?}");
    let inversions = relay.arrived.inversions.load(Ordering::Relaxed);
    say(&format!("one flow of {sent} over four sockets: {counts:?}, {inversions} out of order"));
    assert_eq!(inversions, 0);

    let snapshot = relay.stop();
    let receive = snapshot.hop(HopKind::Receive, "in", None).unwrap();
    assert_eq!((receive.received.count, receive.delivered.count), (sent, sent));
    let socket = snapshot.hop(HopKind::Socket, "in", None).unwrap();
    assert_eq!((socket.received.count, socket.delivered.count), (sent, sent));
    assert_eq!(members(&snapshot).iter().sum::<u64>(), sent, "they are seen to the end");
}

fn sockets_come_and_go(balance: Balance) {
    let mut relay = Relay::start(|options| options.balance = balance);
    let is_over = Arc::<AtomicBool>::default();
    let stop = Arc::clone(&is_over);
    let sender = relay.sender(move |_| stop.load(Ordering::Acquire));

    let counts = [4, 2, 3, 1, 2, 1, 4];
    let each = datagrams(35_000).div_ceil(counts.len() as u64);
    for count in counts {
        relay.set_sockets(count);
        let arrived = relay.arrived.count.load(Ordering::Acquire);
        let begin = Instant::now();
        while relay.arrived.count.load(Ordering::Acquire) < arrived + each {
            assert!(relay.ledger.check().is_balanced(), "{:#?}", relay.ledger.snapshot());
            assert!(begin.elapsed() < DEADLINE, "{:#?}", relay.ledger.snapshot());
        }
    }

    is_over.store(true, Ordering::Release);
    let sent = sender.join().unwrap();
    relay.wait_for(sent);
    let inversions = relay.arrived.inversions.load(Ordering::Relaxed);
    say(&format!("one flow of {sent} over {counts:?} sockets: {inversions} out of order"));
    assert_eq!(inversions, 0);
    let snapshot = relay.stop();
    let receive = snapshot.hop(HopKind::Receive, "in", None).unwrap();
    assert_eq!((receive.received.count, receive.delivered.count), (sent, sent));
    assert_eq!(snapshot.losses(), []);
}

#[test]
fn sockets_come_and_go_under_load_with_nothing_lost_and_all_in_order() {
    sockets_come_and_go(Balance::Even);
}

#[test]
fn so_they_do_where_each_flow_stays_at_one() {
    sockets_come_and_go(Balance::Flow);
}

#[test]
fn so_they_do_where_the_processor_chooses() {
    sockets_come_and_go(Balance::Cpu);
}

#[test]
fn a_listener_of_several_hands_all_of_them_over() {
    let mut relay = Relay::start(|_| {});
    relay.set_sockets(3);
    let is_over = Arc::<AtomicBool>::default();
    let stop = Arc::clone(&is_over);
    let sender = relay.sender(move |_| stop.load(Ordering::Acquire));

    for turn in 0..3 {
        let to = relay.to;
        let wanted = ListenerOptions {
            ring_bytes: 4 << 20 << (turn % 2),
            ..relay.listener.options().clone()
        };
        let targets = vec![(named("t"), udp_to(to))];
        let next = relay.listener.hand_over(wanted, targets, Instant::now() + DEADLINE).unwrap();
        let former = std::mem::replace(&mut relay.listener, next);
        assert_eq!(relay.listener.socket_count(), 3);
        former.finish_removal();

        let arrived = relay.arrived.count.load(Ordering::Acquire);
        let begin = Instant::now();
        while relay.arrived.count.load(Ordering::Acquire) < arrived + 5_000 {
            assert!(begin.elapsed() < DEADLINE, "{:#?}", relay.ledger.snapshot());
        }
    }

    is_over.store(true, Ordering::Release);
    let sent = sender.join().unwrap();
    relay.wait_for(sent);
    let snapshot = relay.stop();
    let socket = snapshot.hop(HopKind::Socket, "in", None).unwrap();
    assert_eq!((socket.received.count, socket.delivered.count), (sent, sent));
    assert_eq!(snapshot.losses(), []);
}

/// Stops one thread of this process for 50 ms, wherever it is, through the debugger interface.
const STALL: &str = r#"
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT, DETACH, ALL = 0x4206, 0x4207, 17, 0x40000000
tid = int(sys.argv[1])
def trace(request):
    if libc.ptrace(request, tid, 0, 0) != 0:
        sys.exit("ptrace %#x: %s" % (request, os.strerror(ctypes.get_errno())))
for _ in range(int(sys.argv[2])):
    trace(SEIZE)
    trace(INTERRUPT)
    os.waitpid(tid, ALL)
    time.sleep(0.05)
    trace(DETACH)
    time.sleep(0.05)
"#;

fn thread_id(name: &str) -> String {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    let is_it = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    tasks.find(is_it).unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_thread_that_is_stopped_for_50_ms_costs_no_order() {
    const STALLS: u64 = 10;
    let least = datagrams(0);
    if !testkit::need_tool("python3") || !testkit::need_root("the debugger's interface (ptrace)") {
        return;
    }
    let mut relay = Relay::start(|options| options.name = "stalled".into());
    relay.set_sockets(4);
    let is_over = Arc::<AtomicBool>::default();
    let stop = Arc::clone(&is_over);
    let sender = relay.sender(move |_| stop.load(Ordering::Acquire));

    let mut stalls = 0;
    while stalls == 0 || relay.arrived.count.load(Ordering::Acquire) < least {
        let stalled = std::process::Command::new("python3")
            .args(["-c", STALL, &thread_id("rx-stalled-2"), &STALLS.to_string()])
            .output()
            .unwrap();
        assert!(stalled.status.success(), "{}", String::from_utf8_lossy(&stalled.stderr));
        stalls += STALLS;
    }

    is_over.store(true, Ordering::Release);
    let sent = sender.join().unwrap();
    relay.wait_for(sent);
    let inversions = relay.arrived.inversions.load(Ordering::Relaxed);
    say(&format!("one flow of {sent} with {stalls} stalls of 50 ms: {inversions} out of order"));
    assert_eq!(inversions, 0);
    let snapshot = relay.stop();
    let receive = snapshot.hop(HopKind::Receive, "stalled", None).unwrap();
    assert_eq!((receive.received.count, receive.delivered.count), (sent, sent));
    assert_eq!(receive.event(ledger::Event::Overtaken), 0);
}

#[test]
fn a_flood_is_accounted_for_to_the_datagram() {
    let mut relay = Relay::start(|options| {
        options.order = Order::None;
        options.ring_bytes = 256 << 10;
    });
    relay.set_sockets(4);

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..100_000_u64 {
        let mut bytes = [0; 200];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&bytes, relay.addr).unwrap();
        if number % 1_000 == 0 {
            assert!(relay.ledger.check().is_balanced(), "{:#?}", relay.ledger.snapshot());
        }
    }

    let snapshot = relay.stop();
    let socket = snapshot.hop(HopKind::Socket, "in", None).unwrap();
    assert_eq!(socket.received.count, 100_000);
    let of_members: u64 = snapshot
        .hops
        .iter()
        .filter(|hop| hop.hop == HopKind::Member)
        .map(|hop| hop.received.count)
        .sum();
    assert_eq!(of_members, 100_000);
    let dropped_before_the_stop = snapshot
        .losses()
        .iter()
        .all(|loss| !matches!(loss.way, ledger::Way::Dropped(Reason::Shutdown)));
    assert!(dropped_before_the_stop, "{snapshot:#?}");
}
