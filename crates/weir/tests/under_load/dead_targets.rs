//! Four targets, one of them dead in one way: the three others get everything, and the ledger says to the last datagram
//! what became of the dead one's.

use crate::support::{
    Account, Ended, Generator, Namespace, Place, SCHEDULES, Sent, Verifier, Weir, free_udp_address,
    hop,
};
use ledger::{Event, Gauge, HopKind, IcmpError, Reason, SendError};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use testkit::{TempDir, say, wait_for};

/// Runs of equal length and single datagrams.
const LOAD: [&str; 6] = ["--rate", "6k", "--burst", "30", "--size", "200"];
const MIXED_LOAD: [&str; 6] = ["--rate", "6k", "--burst", "10", "--size", "64:5,200:20,1400:1"];

/// A relay with three living targets, which `weir verify` receives, and one more.
struct Bench<'a> {
    place: &'a Place,
    verifier: Verifier,
    relay: Weir,
}

impl<'a> Bench<'a> {
    fn start(place: &'a Place, schedule: &str, dead: &str, more: &[&str]) -> Bench<'a> {
        let verifier = Verifier::start(place, &["127.0.0.1:0"; 3], &["--until-done"]);
        let [a, b, c] = &verifier.listens[..] else { panic!("{:?}", verifier.listens) };
        let with_name = |address: &str, name: &str| {
            let joint = if address.contains('?') { '&' } else { '?' };
            format!("{address}{joint}name={name}")
        };
        let targets =
            [with_name(a, "a"), with_name(dead, "dead"), with_name(b, "b"), with_name(c, "c")];
        let relay = Weir::tee(place, &targets, &[&["--schedule", schedule], more].concat());
        Bench { place, verifier, relay }
    }

    /// A generator that goes on until [`finish`](Self::finish).
    fn load(&self, load: &[&str]) -> Generator {
        Generator::start(self.place, self.relay.listen(), &[load, &["--duration", "0s"]].concat())
    }

    /// Waits until the kernel has given up on a target's neighbor so many times.
    fn wait_for_failures(&self, target: &str, count: u32) {
        let mut returned = 0;
        for _ in 0..count {
            returned = wait_for("datagrams that come back", || {
                let ledger = self.relay.ledger();
                let hop = hop(&ledger, HopKind::Egress, target);
                let now = hop.dropped_for(Reason::HostUnreachable).count;
                (now > returned).then_some(now)
            });
        }
    }

    /// Waits until the gauges tell the dead target from the living ones.
    fn wait_until_down(&self) {
        wait_for("the gauges", || {
            let ledger = self.relay.ledger();
            let is_up = |name: &&str| hop(&ledger, HopKind::Target, name).gauges[&Gauge::Up] == 1;
            let up: Vec<_> = ["a", "b", "c", "dead"].into_iter().filter(is_up).collect();
            (up == ["a", "b", "c"]).then_some(())
        });
    }

    /// Waits until so many datagrams were offered to the dead target.
    fn wait_until_offered(&self, count: u64) {
        wait_for("datagrams for the dead target", || {
            let ledger = self.relay.ledger();
            let hop = hop(&ledger, HopKind::Target, "dead");
            (hop.received.count >= count).then_some(())
        });
    }

    /// Stops everything and holds the living to their promise. Returns the dead one's account.
    fn finish(self, generator: Generator) -> (Ended, Account) {
        generator.0.signal("TERM");
        let sent = generator.finish();
        self.verifier.expect_all(&sent);
        let ended = self.relay.stop();
        let account = check_living(&ended, &sent);
        (ended, account)
    }
}

fn check_living(ended: &Ended, sent: &Sent) -> Account {
    let socket = ended.hop(HopKind::Socket, None);
    assert_eq!((socket.delivered.count, socket.dropped.len()), (sent.all(), 0), "{socket:?}");
    for name in ["a", "b", "c"] {
        let whole = Account { offered: sent.all(), delivered: sent.all(), dropped: Vec::new() };
        assert_eq!(ended.account(name), whole, "{name}");
    }
    let account = ended.account("dead");
    assert_eq!(account.offered, sent.all(), "{account:?}");
    account
}

fn event(ended: &Ended, kind: HopKind, event: Event) -> u64 {
    ended.hop(kind, Some("dead")).event(event)
}

fn report(fault: &str, schedule: &str, fired: u64, account: &Account) {
    say(&format!("{fault}, {schedule}: fired {fired} times; {account:?}"));
    assert!(fired > 0, "{fault} did not happen");
}

#[test]
fn nobody_listens() {
    for schedule in SCHEDULES {
        let dead = free_udp_address().to_string();
        let bench = Bench::start(&Place::Here, schedule, &dead, &[]);
        let load = bench.load(&MIXED_LOAD);
        bench.wait_until_offered(12_000);
        bench.wait_until_down();
        let (ended, account) = bench.finish(load);
        let fired = event(&ended, HopKind::Egress, Event::IcmpErrors(IcmpError::V4Port));
        report("nobody listens", schedule, fired, &account);
        assert_eq!((account.delivered, account.lost_for(Reason::Refused)), (0, account.offered));
        // Each 10 ms one message is tried; what comes in between costs no call. Twelve thousand came.
        let calls = event(&ended, HopKind::Target, Event::SendCalls);
        assert!(calls * 4 < account.offered, "{calls} calls");
        assert_eq!(ended.code, Some(0), "{}", ended.said);
    }
}

/// A receiver that counts, and that can be gone without one datagram leaving the account.
struct Receiver {
    socket: UdpSocket,
    arrived: u64,
}

impl Receiver {
    fn at(address: SocketAddr) -> Receiver {
        // A process that another test has just made holds a copy of every descriptor until it begins its program.
        let socket = wait_for("the port", || UdpSocket::bind(address).ok());
        sys::socket::set_receive_buffer(socket.as_fd(), 64 << 20).unwrap();
        socket.set_nonblocking(true).unwrap();
        Receiver { socket, arrived: 0 }
    }

    /// Takes what is there.
    fn read(&mut self) {
        let mut buffer = [0; 2_048];
        while self.socket.recv(&mut buffer).is_ok() {
            self.arrived += 1;
        }
    }

    fn read_until(&mut self, arrived: u64) {
        wait_for("datagrams at the target", || {
            self.read();
            (self.arrived >= arrived).then_some(())
        });
    }

    /// Datagrams that the kernel put into this socket, or would have.
    fn reached(&mut self) -> u64 {
        self.read();
        let dropped = sys::socket::mem_info(self.socket.as_fd()).unwrap().dropped_datagrams;
        self.arrived + u64::from(dropped)
    }
}

/// Stops listening in the middle of a run and comes back; returns what reached it and how much was refused.
fn die_and_come_back(relay: &Weir, first: &mut Receiver, address: SocketAddr) -> (u64, Receiver) {
    let refused = || {
        let ledger = relay.ledger();
        let hops = [HopKind::Target, HopKind::Egress]
            .map(|kind| hop(&ledger, kind, "dead").dropped_for(Reason::Refused).count);
        hops.iter().sum::<u64>()
    };
    first.read_until(5_000);
    assert_eq!(refused(), 0);
    // Connected elsewhere, the socket is not found any more: the port is closed, and no datagram is in between.
    first.socket.connect("127.0.0.1:9").unwrap();
    let fired = wait_for("refusals", || Some(refused()).filter(|&refused| refused > 3_000));
    let reached = first.reached();
    let elsewhere = free_udp_address();
    let old = std::mem::replace(&mut first.socket, UdpSocket::bind(elsewhere).unwrap());
    drop(old);
    say(&format!("refused {fired} so far, comes back"));
    (reached, Receiver::at(address))
}

#[test]
fn a_target_dies_under_runs_and_comes_back() {
    for schedule in SCHEDULES {
        let address = free_udp_address();
        let mut first = Receiver::at(address);
        let bench = Bench::start(&Place::Here, schedule, &address.to_string(), &[]);
        let load = bench.load(&LOAD);
        let (reached, mut second) = die_and_come_back(&bench.relay, &mut first, address);
        second.read_until(3_000);
        let (ended, account) = bench.finish(load);
        // The kernel reports a refusal in a call or in the error queue, whichever is looked at first.
        let fired = account.lost_for(Reason::Refused);
        report("a target died and came back", schedule, fired, &account);
        let calls = event(&ended, HopKind::Target, Event::SendCalls);
        assert!(calls * 2 < account.offered, "no runs: {calls} calls for {}", account.offered);
        assert_eq!(account.delivered, reached + second.reached());
        assert_eq!(account.lost_for(Reason::Refused), account.lost());
        assert_eq!(ended.code, Some(0), "{}", ended.said);
    }
}

/// Two namespaces: the relay and the living targets in the first, one link away from the second.
fn two_namespaces() -> (Namespace, Namespace) {
    let (near, far) = (Namespace::new(), Namespace::new());
    near.connect(&far);
    (near, far)
}

#[test]
fn the_next_hop_does_not_resolve() {
    if !testkit::need_root_netns() {
        return;
    }
    for schedule in SCHEDULES {
        let (near, _far) = two_namespaces();
        // Nobody has this address. The kernel gives up on it every three seconds.
        let more = ["--drain-grace", "1s"];
        let bench = Bench::start(near.place(), schedule, "10.99.0.77:514", &more);
        let load = bench.load(&LOAD);
        bench.wait_for_failures("dead", 2);
        bench.wait_until_down();
        let (ended, account) = bench.finish(load);
        let fired = account.lost_for(Reason::HostUnreachable);
        report("the next hop does not resolve", schedule, fired, &account);
        check_unreachable(&account);
        assert!([Some(0), Some(75)].contains(&ended.code), "{}", ended.said);
    }
}

/// It is alive and reads nothing: what its buffer cannot hold is the kernel's to drop, and the ledger's to name.
#[test]
fn a_receiver_on_this_host_loses_in_its_own_socket() {
    for schedule in SCHEDULES {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        sys::socket::set_receive_buffer(receiver.as_fd(), 64 << 10).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let address = receiver.local_addr().unwrap().to_string();
        let bench = Bench::start(&Place::Here, schedule, &address, &[]);
        let load = bench.load(&LOAD);
        bench.wait_until_offered(3_000);
        let (ended, account) = bench.finish(load);
        let own = sys::socket::mem_info(receiver.as_fd()).unwrap();
        let held = (0..).take_while(|_| receiver.recv(&mut [0; 2_048]).is_ok()).count() as u64;
        let hop = ended.hop(HopKind::Receiver, Some("dead"));
        let dropped = hop.dropped_for(Reason::ReceiverBuffer).count;
        report("the receiver's buffer was full", schedule, dropped, &account);
        assert_eq!((account.delivered, hop.received.count), (account.offered, account.offered));
        assert_eq!((hop.delivered.count, dropped), (held, u64::from(own.dropped_datagrams)));
        assert!(ended.said.contains("the receiver's own buffer was full"), "{}", ended.said);
        assert_eq!(ended.code, Some(0), "{}", ended.said);
    }
}

/// It says so now and then only (`net.ipv4.icmp_ratelimit`): the others get everything, the gauge says down, and it is sent to.
#[test]
fn another_host_refuses() {
    if !testkit::need_root_netns() {
        return;
    }
    for schedule in SCHEDULES {
        let (near, _far) = two_namespaces();
        let bench = Bench::start(near.place(), schedule, "10.99.0.2:9", &[]);
        let load = bench.load(&LOAD);
        bench.wait_until_offered(3_000);
        bench.wait_until_down();
        let (ended, account) = bench.finish(load);
        let fired = event(&ended, HopKind::Egress, Event::IcmpErrors(IcmpError::V4Port));
        report("another host refuses", schedule, fired, &account);
        assert_eq!(account.lost_for(Reason::Refused), account.lost(), "{account:?}");
        let target = ended.hop(HopKind::Target, Some("dead"));
        assert_eq!(target.delivered.count, account.offered, "all of it was handed over");
        // The reports do not say how long the datagrams were.
        let egress = ended.hop(HopKind::Egress, Some("dead"));
        let refused = egress.received.bytes - egress.delivered.bytes;
        assert!(refused >= account.lost(), "{account:?}: {refused} bytes");
        assert_eq!(ended.code, Some(0), "{}", ended.said);
    }
}

/// What was taken by the kernel came back, what waited for it was pushed out by the stream or left at the end.
fn check_unreachable(account: &Account) {
    assert_eq!(account.delivered, 0);
    let reasons = [Reason::HostUnreachable, Reason::QueueFull, Reason::Shutdown];
    let named: u64 = reasons.map(|reason| account.lost_for(reason)).iter().sum();
    assert_eq!(account.lost(), named, "{account:?}");
}

/// The reports about both share one limit (`net.ipv4.icmp_msgs_burst`).
#[test]
fn two_next_hops_fail_at_the_same_moment() {
    if !testkit::need_root_netns() {
        return;
    }
    for schedule in SCHEDULES {
        let (near, _far) = two_namespaces();
        let more = ["--to", "10.99.0.78:514?name=dead-too", "--drain-grace", "1s"];
        let bench = Bench::start(near.place(), schedule, "10.99.0.77:514", &more);
        let load = bench.load(&LOAD);
        bench.wait_for_failures("dead", 1);
        bench.wait_for_failures("dead-too", 1);
        let (ended, account) = bench.finish(load);
        for account in [account, ended.account("dead-too")] {
            let fired = account.lost_for(Reason::HostUnreachable);
            report("two next hops failed", schedule, fired, &account);
            check_unreachable(&account);
        }
    }
}

#[test]
fn the_next_hop_resolves_after_a_while() {
    if !testkit::need_root_netns() {
        return;
    }
    for schedule in SCHEDULES {
        let (near, far) = two_namespaces();
        let bench = Bench::start(near.place(), schedule, "10.99.0.77:5140", &[]);
        let load = bench.load(&LOAD);
        let receiver = Verifier::start(far.place(), &["0.0.0.0:5140"], &[]);
        bench.wait_for_failures("dead", 1);
        far.ip("address add 10.99.0.77/24 dev far");
        wait_for("the neighbor to answer", || {
            let line = near.ip("neigh show 10.99.0.77");
            line.contains("REACHABLE").then_some(())
        });
        let (ended, account) = bench.finish(load);
        receiver.process.signal("TERM");
        let fired = account.lost_for(Reason::HostUnreachable);
        report("the next hop did not resolve for a while", schedule, fired, &account);
        assert_eq!(account.delivered, reached(receiver));
        assert_eq!(ended.code, Some(0), "{}", ended.said);
    }
}

/// What reached the only listener of a verifier.
fn reached(verifier: Verifier) -> u64 {
    let (_, report) = verifier.finish();
    let listener = &report["listeners"][0];
    let counts = &listener["counts"];
    for fault in ["duplicate", "corrupt", "truncated", "foreign", "untracked", "beyond_window"] {
        assert_eq!(counts[fault], 0, "{fault}: {counts:#}");
    }
    let count = |value: &serde_json::Value| value.as_u64().unwrap();
    count(&counts["received"]) + count(&counts["heartbeats"]) + count(&listener["kernel_dropped"])
}

#[test]
fn the_queue_of_the_device_is_full() {
    if !testkit::need_root_netns() {
        return;
    }
    for schedule in SCHEDULES {
        let (near, far) = two_namespaces();
        near.tc("qdisc add dev out root tbf rate 1mbit burst 10kb limit 10kb");
        let receiver = Verifier::start(far.place(), &["10.99.0.2:0"], &[]);
        let bench = Bench::start(near.place(), schedule, &receiver.listens[0], &[]);
        let load = bench.load(&MIXED_LOAD);
        wait_for("drops in the queue", || {
            let shown = near.tc("-s qdisc show dev out");
            let dropped = shown.split("(dropped ").nth(1)?.split(',').next()?;
            dropped.parse::<u64>().ok().filter(|&dropped| dropped > 5_000)
        });
        let (ended, account) = bench.finish(load);
        receiver.process.signal("TERM");
        let fired = event(&ended, HopKind::Target, Event::SendErrors(SendError::NoBufs));
        report("the queue of the device was full", schedule, fired, &account);
        assert_eq!(account.delivered, reached(receiver), "{}", near.tc("-s qdisc show dev out"));
        assert_eq!(account.lost_for(Reason::EgressQueueFull), account.lost());
        assert!(account.delivered > 0 && account.lost() > account.delivered, "{account:?}");
        assert_eq!(ended.code, Some(0), "{}", ended.said);
    }
}

#[test]
fn the_targets_process_is_stopped() {
    let folder = TempDir::new();
    for schedule in SCHEDULES {
        let address = format!("unix:{}", folder.file(schedule).display());
        let receiver = Verifier::start(&Place::Here, &[&address], &[]);
        let more = ["--ring-size", "2MiB", "--drain-grace", "200ms"];
        let bench = Bench::start(&Place::Here, schedule, &address, &more);
        let load = bench.load(&LOAD);
        wait_for("the first datagrams", || {
            let ledger = bench.relay.ledger();
            let hop = hop(&ledger, HopKind::Egress, "dead");
            (hop.delivered.count > 1_000).then_some(())
        });
        receiver.process.signal("STOP");
        wait_for("datagrams pushed out of the ring", || {
            let ledger = bench.relay.ledger();
            let hop = hop(&ledger, HopKind::Target, "dead");
            (hop.dropped_for(Reason::QueueFull).count > 2_000).then_some(())
        });
        bench.wait_until_down();
        let (ended, account) = bench.finish(load);
        receiver.process.signal("TERM");
        receiver.process.signal("CONT");
        report("the process stood still", schedule, account.lost_for(Reason::QueueFull), &account);
        assert_eq!(account.delivered, reached(receiver));
        let named = account.lost_for(Reason::QueueFull) + account.lost_for(Reason::Shutdown);
        assert_eq!(account.lost(), named, "{account:?}");
        assert_eq!(ended.code, Some(75), "{}", ended.said);
    }
}

#[test]
fn the_name_has_no_address() {
    for schedule in SCHEDULES {
        let bench = Bench::start(&Place::Here, schedule, "nobody.weir.invalid:514", &[]);
        let load = bench.load(&LOAD);
        bench.wait_until_offered(6_000);
        let (ended, account) = bench.finish(load);
        let fired = ended.said.matches("cannot resolve nobody.weir.invalid").count();
        report("the name has no address", schedule, fired as u64, &account);
        assert_eq!(account.lost_for(Reason::TargetUnresolved), account.offered);
        assert_eq!((account.delivered, ended.code), (0, Some(0)), "{}", ended.said);
    }
}

#[test]
fn the_name_vanishes() {
    if !testkit::need_root_netns() {
        return;
    }
    for schedule in SCHEDULES {
        let near = Namespace::new();
        near.write_hosts("127.0.0.1 localhost\n127.0.0.1 gone.weir.test\n");
        let receiver = Verifier::start(near.place(), &["127.0.0.1:0"], &[]);
        let port = receiver.listens[0].rsplit(':').next().unwrap();
        let name = format!("gone.weir.test:{port}?resolve_interval=1s");
        let mut bench = Bench::start(near.place(), schedule, &name, &[]);
        let load = bench.load(&LOAD);
        near.write_hosts("127.0.0.1 localhost\n");
        let fired = bench.relay.process.hear("cannot resolve gone.weir.test").len();
        let (ended, account) = bench.finish(load);
        receiver.process.signal("TERM");
        report("the name vanished", schedule, fired as u64, &account);
        // What it stood for last stays in use, so that nothing is lost.
        assert_eq!((account.delivered, account.lost()), (account.offered, 0));
        assert_eq!(account.delivered, reached(receiver));
        assert_eq!(ended.code, Some(0), "{}", ended.said);
    }
}
