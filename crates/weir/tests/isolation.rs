//! What a target that is dead or under attack costs the living: no datagram, and next to no time of the thread that serves them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;
mod support;

use ledger::{Accounting, Event, HopKind, IcmpError, Reason, SendError};
use rig::netns::{Namespace, Place};
use rig::{
    Ended, Folder, Generator, Relay, SCHEDULES, Sent, Verifier, free_udp_address, say, wait_for,
};
use std::fs;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use support::{find_tool, need_python_module, need_root_netns};

const EQUAL: [&str; 6] = ["--rate", "20k", "--burst", "30", "--size", "200"];
const VARYING: [&str; 6] = ["--rate", "20k", "--burst", "10", "--size", "64:5,200:20,1400:1"];

/// Two living targets, which `weir verify` receives, and a third.
struct Trio<'a> {
    place: &'a Place,
    verifier: Verifier,
    relay: Relay,
}

impl<'a> Trio<'a> {
    fn start(place: &'a Place, schedule: &str, third: &str, more: &[&str]) -> Trio<'a> {
        let verifier = Verifier::start(place, &["127.0.0.1:0"; 2], &["--until-done"]);
        let joint = if third.contains('?') { '&' } else { '?' };
        let targets = [
            format!("{}?name=a", verifier.listens[0]),
            format!("{third}{joint}name=third"),
            format!("{}?name=b", verifier.listens[1]),
        ];
        let relay = Relay::tee(place, &targets, &[&["--schedule", schedule], more].concat());
        Trio { place, verifier, relay }
    }

    fn load(&self, load: &[&str]) -> Generator {
        Generator::start(self.place, self.relay.listen(), load)
    }

    /// CPU time of the relay so far, in nanoseconds.
    fn cpu_ns(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.relay.process.pid())).unwrap();
        let of = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
        };
        tasks.map(|task| of(task.unwrap())).sum()
    }

    /// Ends it, and holds the living to their promise.
    fn finish(self, sent: &Sent) -> Ended {
        self.verifier.expect_all(sent);
        let ended = self.relay.stop();
        for name in ["a", "b"] {
            let account = ended.account(name);
            assert_eq!((account.delivered, account.lost()), (sent.all(), 0), "{name}");
        }
        assert_eq!(ended.hop(HopKind::Socket, None).dropped, []);
        ended
    }
}

/// What a dead third target may cost the living: none of their datagrams, no call more for what arrives together, and no
/// thread that spins. What it costs in time is compared by the bench ("isolation"). Returns how often the third was tried, after
/// how long, and how many batches came.
fn check_cost(
    what: &str,
    place: &Place,
    schedule: &str,
    third: &str,
    load: &[&str],
) -> (u64, Duration, u64) {
    let trio = Trio::start(place, schedule, third, &["--drain-grace", "100ms"]);
    let (begun, used_before_ns) = (Instant::now(), trio.cpu_ns());
    let sent = trio.load(&[load, &["--count", "30k"]].concat()).finish();
    let (elapsed, used_ns) = (begun.elapsed(), trio.cpu_ns() - used_before_ns);
    let ended = trio.finish(&sent);
    let batches = ended.hop(HopKind::Receive, None).event(Event::Batches);
    let [a, b, tries] = ["a", "b", "third"]
        .map(|name| ended.hop(HopKind::Target, Some(name)).event(Event::SendCalls));
    let busy = used_ns as f64 / elapsed.as_nanos() as f64;
    say(&format!(
        "{what}, {schedule}: {batches} batches, {a} and {b} calls, {tries} tries in {elapsed:?}, {:.0} % of a processor",
        busy * 100.0
    ));
    assert!(a.max(b) * 4 <= batches * 5, "{what}, {schedule}: what arrives together leaves so");
    assert!(busy < 0.7, "{what}, {schedule}: {busy}");
    (tries, elapsed, batches)
}

/// A target that does not take anything is tried every 10 ms, after it was found out.
fn check_tries((tries, elapsed, _): (u64, Duration, u64)) {
    assert!(u128::from(tries) <= elapsed.as_millis() / 10 + 100, "{tries} tries in {elapsed:?}");
}

/// The tests of this file measure, or take all that there is: one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_refusing_target_costs_the_living_next_to_nothing() {
    let _alone = alone();
    for schedule in SCHEDULES {
        let refusing = free_udp_address().to_string();
        for (what, load) in [("varying", &VARYING), ("equal", &EQUAL)] {
            let what = format!("refusing, {what} lengths");
            check_tries(check_cost(&what, &Place::Here, schedule, &refusing, load));
        }
    }
}

#[test]
fn a_dead_next_hop_costs_the_living_next_to_nothing() {
    let _alone = alone();
    if !need_root_netns() {
        return;
    }
    let (near, far) = (Namespace::new("near"), Namespace::new("far"));
    near.connect(&far);
    for schedule in SCHEDULES {
        let dead = "10.99.0.77:514";
        let (tries, _, batches) =
            check_cost("dead next hop", near.place(), schedule, dead, &VARYING);
        // It is looked at in each turn, by what a control thread knows of it: that is no call of the kernel.
        assert!(tries <= batches * 2, "{tries} tries in {batches} batches");
    }
}

#[test]
fn an_absent_unix_receiver_costs_the_living_next_to_nothing() {
    let _alone = alone();
    let folder = Folder::new("absent");
    let address = format!("unix:{}", folder.path("socket").display());
    for schedule in SCHEDULES {
        check_tries(check_cost("absent unix receiver", &Place::Here, schedule, &address, &VARYING));
    }
}

/// Sends "port unreachable" about datagrams of the relay, in the name of a target that is alive.
const FORGE: &str = r#"
import socket, struct, sys, time
src, dst, sport, dport = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xffff)
    return ~(total + (total >> 16)) & 0xffff
ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 228, 1, 0, 64, 17, 0, socket.inet_aton(src), socket.inet_aton(dst))
ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
body = ip + struct.pack("!HHHH", sport, dport, 208, 0)
head = struct.pack("!BBHI", 3, 3, 0, 0)
message = struct.pack("!BBHI", 3, 3, checksum(head + body), 0) + body
while True:
    raw.sendto(message, (src, 0))
    time.sleep(0.005)
"#;

#[test]
fn forged_icmp_does_not_take_runs_away() {
    let _alone = alone();
    if !need_root_netns() || !need_python_module("socket") {
        return;
    }
    let (near, far) = (Namespace::new("near"), Namespace::new("far"));
    near.connect(&far);
    let receiver = Verifier::start(far.place(), &["10.99.0.2:5140"], &[]);
    let third = "10.99.0.2:5140?source_port=5555";
    let trio = Trio::start(near.place(), "inline", third, &[]);
    let python = find_tool("weir-python").unwrap();
    let mut forger = far.place().command(python.to_str().unwrap());
    forger.args(["-c", FORGE, "10.99.0.1", "10.99.0.2", "5555", "5140"]);
    let mut forger = forger.stdout(Stdio::null()).spawn().unwrap();
    let sent = trio.load(&[&EQUAL[..], &["--count", "60k"]].concat()).finish();
    forger.kill().unwrap();
    forger.wait().unwrap();
    let ended = trio.finish(&sent);
    receiver.process.signal("TERM");
    let events = |kind, event| ended.hop(kind, Some("third")).event(event);
    let (forged, calls) = (
        events(HopKind::Egress, Event::IcmpErrors(IcmpError::V4Port)),
        events(HopKind::Target, Event::SendCalls),
    );
    say(&format!("{forged} forged messages, {calls} calls for {} datagrams", sent.all()));
    assert!(forged > 50);
    // Bursts of 30 leave as one message each; a call is lost to each report.
    assert!(calls * 4 < sent.all(), "{calls} calls for {}", sent.all());
    let account = ended.account("third");
    assert!(account.lost() <= forged && account.lost_for(Reason::Refused) == account.lost());
}

/// A queue that takes a message whole or not at all: what it refuses is counted with all its datagrams.
#[test]
fn a_full_queue_refuses_runs_whole() {
    let _alone = alone();
    if !need_root_netns() {
        return;
    }
    for schedule in SCHEDULES {
        let (near, far) = (Namespace::new("near"), Namespace::new("far"));
        near.connect(&far);
        near.tc("qdisc add dev out root handle 1: htb default 10");
        near.tc("class add dev out parent 1: classid 1:10 htb rate 8mbit");
        near.tc("qdisc add dev out parent 1:10 pfifo limit 4");
        let receiver = Verifier::start(far.place(), &["10.99.0.2:0"], &[]);
        let trio = Trio::start(near.place(), schedule, &receiver.listens[0], &[]);
        let sent = trio.load(&[&EQUAL[..], &["--count", "40k"]].concat()).finish();
        let ended = trio.finish(&sent);
        receiver.process.signal("TERM");
        let (_, report) = receiver.finish();
        let counts = &report["listeners"][0]["counts"];
        let reached: u64 =
            ["received", "heartbeats"].map(|name| counts[name].as_u64().unwrap()).iter().sum();
        let account = ended.account("third");
        let target = ended.hop(HopKind::Target, Some("third"));
        say(&format!("a queue of four messages, {schedule}: {account:?}"));
        assert!(target.event(Event::SendErrors(SendError::NoBufs)) > 0);
        assert!(target.event(Event::SendCalls) * 2 < account.offered, "runs: {target:?}");
        assert_eq!(account.delivered, reached);
        assert_eq!(account.lost_for(Reason::EgressQueueFull), account.lost());
        assert!(account.lost() > 0);
    }
}

/// An address that fails over to another host takes its account with it: nothing there is exact any more.
#[test]
fn an_address_that_moves_is_followed() {
    let _alone = alone();
    if !need_root_netns() {
        return;
    }
    let (near, far) = (Namespace::new("near"), Namespace::new("far"));
    near.connect(&far);
    near.ip("address add 10.99.0.50/32 dev lo");
    let third = "10.99.0.50:5140?source_address=10.99.0.1";
    let trio = Trio::start(near.place(), "inline", third, &[]);
    let load = trio.load(&[&EQUAL[..], &["--duration", "0s"]].concat());
    let wait_for_accounting = |accounting: Accounting| {
        wait_for("the account to follow", || {
            let ledger = trio.relay.ledger();
            let hop = rig::hop(&ledger, HopKind::Egress, "in", Some("third"));
            (hop.accounting == accounting).then_some(())
        });
    };
    wait_for_accounting(Accounting::Exact);
    near.ip("address del 10.99.0.50/32 dev lo");
    far.ip("address add 10.99.0.50/24 dev far");
    wait_for_accounting(Accounting::AtLeast);
    far.ip("address del 10.99.0.50/24 dev far");
    near.ip("address add 10.99.0.50/32 dev lo");
    wait_for_accounting(Accounting::Exact);
    load.0.signal("TERM");
    let sent = load.finish();
    trio.finish(&sent);
}

/// Has the kernel hold its lock over devices, routes and neighbors for long, again and again: it takes many devices away at
/// once. Returns the longest time that a question waited for it.
fn storm(until: Instant) -> Duration {
    const PAIRS: u32 = 5_000;
    let (folder, place) = (Folder::new("storm"), Namespace::new("storm"));
    let pair = |n| format!("link add a{n} group 7 type veth peer name b{n} group 7\n");
    let batch = folder.path("batch");
    fs::write(&batch, (0..PAIRS).map(pair).collect::<String>()).unwrap();
    let mut longest = Duration::ZERO;
    while Instant::now() < until {
        place.ip(&format!("-batch {}", batch.display()));
        thread::scope(|scope| {
            let removal = scope.spawn(|| place.ip("link del group 7"));
            while !removal.is_finished() {
                let begun = Instant::now();
                // About queues: waits for that lock.
                sys::route::egress("127.0.0.1".parse().unwrap()).unwrap();
                longest = longest.max(begun.elapsed());
            }
        });
    }
    longest
}

fn health(place: &Place, admin: &str) -> String {
    let address = admin.trim_start_matches("http://");
    let (host, port) = address.split_once(':').unwrap();
    let script = format!(
        "exec 3<>/dev/tcp/{host}/{port}; printf 'GET /healthz HTTP/1.1\\r\\nHost: {address}\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
         head -n 1 <&3"
    );
    let output = place.command("bash").args(["-c", &script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn locked_tables_of_the_kernel_and_a_dead_next_hop_cost_the_living_nothing() {
    let _alone = alone();
    if !need_root_netns() {
        return;
    }
    for schedule in SCHEDULES {
        let (near, far) = (Namespace::new("near"), Namespace::new("far"));
        near.connect(&far);
        let more = ["--drain-grace", "100ms"];
        let trio = Trio::start(near.place(), schedule, "10.99.0.77:514", &more);
        let load = trio.load(&[&EQUAL[..], &["--duration", "0s"]].concat());
        let until = Instant::now() + Duration::from_secs(5);
        let storm = thread::spawn(move || storm(until));
        while !storm.is_finished() {
            let health = health(near.place(), &trio.relay.admin);
            assert!(health.starts_with("HTTP/1.1 200"), "{health:?}");
        }
        let longest = storm.join().unwrap();
        load.0.signal("TERM");
        let sent = load.finish();
        let ended = trio.finish(&sent);
        let account = ended.account("third");
        say(&format!("locked tables, {schedule}: a question took up to {longest:?}; {account:?}"));
        assert!(account.lost_for(Reason::HostUnreachable) > 0, "{account:?}");
    }
}
