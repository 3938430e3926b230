//! Which datagrams a target takes: limits, samples, filters, and what no target can take. Every one has its name.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic as the test does")]

mod support;

use ledger::{Event, HopKind, Reason, Snapshot};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Instant;
use support::need_root_netns;
use support::netns::Netns;
use support::process::{Peer, TempDir, WEIR, Weir, generate_by, hop, receive, receiver, sender};

/// A socket with this source address on loopback.
fn from(address: &str) -> UdpSocket {
    UdpSocket::bind((address, 0)).unwrap()
}

/// What a target delivered, and what it dropped for a reason, which must be all that it was offered.
#[track_caller]
fn split(ledger: &Snapshot, target: &str, reason: Reason) -> (u64, u64) {
    let hop = hop(ledger, HopKind::Target, target);
    let dropped = hop.dropped_for(reason).count;
    assert_eq!(hop.received.count, hop.delivered.count + dropped, "{}", ledger::waterfall(ledger));
    (hop.delivered.count, dropped)
}

#[test]
fn a_rate_limit_passes_its_rate_and_names_the_rest() {
    const RATE: u64 = 1_000;
    let weir = Weir::relay(&[
        "--listen",
        "127.0.0.1:0",
        "--to",
        "null:?name=all",
        "--to",
        "null:?name=few&rate_limit=1000",
    ]);
    let client = sender(weir.address());
    let begin = Instant::now();
    let mut sent = 0;
    // At least half a second's worth, at several times the rate; a machine that is busy takes longer, which is fine.
    while begin.elapsed().as_millis() < 500 {
        for _ in 0..10 {
            client.send(b"x").unwrap();
        }
        sent += 10;
        if sent % 100 == 0 {
            weir.wait_for_rest(sent);
        }
    }
    let ledger = weir.wait_for_rest(sent);
    let elapsed_ms = begin.elapsed().as_millis() as u64;
    let (passed, limited) = split(&ledger, "few", Reason::RateLimited);
    assert_eq!(passed + limited, sent);
    assert_eq!(split(&ledger, "all", Reason::RateLimited), (sent, 0));
    // The rate, and a tenth of a second's worth that passes at once.
    assert!(passed <= RATE * elapsed_ms / 1_000 + RATE / 10 + 1, "{passed} in {elapsed_ms} ms");
    assert!(passed >= 100, "{passed}");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0));
    // What was asked for is no loss.
    assert_eq!(ended.ledger.unintended_losses(), []);
}

#[test]
fn a_random_sample_is_one_in_n_and_names_the_rest() {
    const SENT: u64 = 20_000;
    let (target, to) = receiver();
    let to = format!("{to}?name=tenth&sample=10");
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to, "--to", "null:"]);
    let client = sender(weir.address());
    let mut arrived = 0;
    for n in 1..=SENT {
        client.send(b"x").unwrap();
        if n % 200 == 0 {
            let ledger = weir.wait_for_rest(n);
            while arrived < split(&ledger, "tenth", Reason::Sampled).0 {
                receive(&target);
                arrived += 1;
            }
        }
    }
    let ended = weir.stop();
    let (passed, sampled) = split(&ended.ledger, "tenth", Reason::Sampled);
    assert_eq!((passed, sampled), (arrived, SENT - arrived));
    // Binomial with p = 0.1: the standard deviation is 42, and six of them happen once in 10^9 runs.
    assert!((1_746..=2_254).contains(&passed), "{passed}");
    target.set_nonblocking(true).unwrap();
    assert!(target.recv(&mut [0; 8]).is_err(), "nothing that is not counted arrives");
}

#[test]
fn a_sample_by_source_takes_all_of_a_source_or_nothing() {
    let (target, to) = receiver();
    let to = format!("{to}?name=some&sample=4&sample_by=source");
    let run = || {
        let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to]);
        for _ in 0..3 {
            for host in 1..=60_u8 {
                from(&format!("127.0.9.{host}")).send_to(&[host], weir.address()).unwrap();
            }
        }
        weir.wait_for_rest(180);
        let ended = weir.stop();
        let (passed, sampled) = split(&ended.ledger, "some", Reason::Sampled);
        assert_eq!(passed + sampled, 180);
        let mut hosts: Vec<u8> = (0..passed).map(|_| receive(&target)[0]).collect();
        hosts.sort_unstable();
        hosts
    };
    let hosts = run();
    for group in hosts.chunks(3) {
        assert_eq!(group, [group[0]; 3], "a source passes with all its datagrams");
    }
    let sources = hosts.len() / 3;
    // Fifteen expected; the hash is fixed, so that this does not change from run to run.
    assert!((5..=25).contains(&sources), "{sources} of 60");
    assert_eq!(run(), hosts, "a restart takes the same sources");
}

#[test]
fn sources_are_allowed_denied_and_filtered_by_prefix() {
    let (target, to) = receiver();
    let to = format!("{to}?name=net&only_sources=127.1.0.0/16,127.2.0.1");
    let listen = "127.0.0.1:0?allow_sources=127.1.0.0/16,127.2.0.0/16&deny_sources=127.1.66.0/24";
    let weir = Weir::relay(&["--listen", listen, "--to", &to, "--to", "null:?name=all"]);
    let sent = [
        ("127.1.0.1", "passes everywhere"),
        ("127.1.255.255", "the last of the prefix"),
        ("127.2.0.1", "a single address"),
        ("127.2.0.2", "filtered"),
        ("127.2.255.1", "filtered"),
        ("127.1.66.1", "denied although allowed"),
        ("127.3.0.1", "not allowed"),
        ("127.0.0.1", "not allowed"),
    ];
    for (address, text) in sent {
        from(address).send_to(text.as_bytes(), weir.address()).unwrap();
    }
    weir.wait_for_rest(8);
    for (_, text) in &sent[..3] {
        assert_eq!(receive(&target), text.as_bytes());
    }
    let ledger = weir.stop().ledger;
    let entry = hop(&ledger, HopKind::Receive, "");
    assert_eq!((entry.received.count, entry.delivered.count), (8, 5));
    assert_eq!(entry.dropped_for(Reason::SourceDenied).count, 3);
    assert_eq!(split(&ledger, "net", Reason::Filtered), (3, 2));
    assert_eq!(split(&ledger, "all", Reason::Filtered), (5, 0));
    assert_eq!(ledger.unintended_losses(), []);
}

/// One datagram passes the filter, the sample and the limit in this order, and is counted at the first that holds it.
#[test]
fn filter_sample_and_limit_together_close_the_account() {
    const EACH: u64 = 2_000;
    let to = "null:?name=t&only_sources=127.1.0.1&sample=2&rate_limit=50";
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", to]);
    let (ours, other) = (from("127.1.0.1"), from("127.1.0.2"));
    for n in 1..=EACH {
        ours.send_to(b"a", weir.address()).unwrap();
        other.send_to(b"b", weir.address()).unwrap();
        if n % 100 == 0 {
            weir.wait_for_rest(2 * n);
        }
    }
    let ledger = weir.stop().ledger;
    let target = hop(&ledger, HopKind::Target, "t");
    let dropped = |reason| target.dropped_for(reason).count;
    assert_eq!(dropped(Reason::Filtered), EACH);
    let (sampled, limited) = (dropped(Reason::Sampled), dropped(Reason::RateLimited));
    assert_eq!(target.delivered.count + sampled + limited, EACH);
    // Binomial with p = 0.5: the standard deviation is 22.
    assert!((860..=1_140).contains(&sampled), "{sampled}");
    assert!(target.delivered.count >= 5 && limited > 0, "{}", ledger::waterfall(&ledger));
}

#[test]
fn empty_datagrams_are_forwarded_and_counted() {
    let (target, to) = receiver();
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to]);
    let client = sender(weir.address());
    for _ in 0..100 {
        client.send(b"").unwrap();
        assert_eq!(receive(&target), b"");
    }
    let ledger = weir.stop().ledger;
    let entry = hop(&ledger, HopKind::Receive, "");
    assert_eq!(entry.event(Event::EmptyDatagrams), 100);
    assert_eq!((entry.delivered.count, entry.delivered.bytes), (100, 0));
}

#[test]
fn what_no_udp_datagram_can_hold_is_too_big_or_truncated_and_never_cut() {
    let dir = TempDir::new();
    let (inlet, outlet) = (dir.text("in.sock"), dir.text("out.sock"));
    let end = UnixDatagram::bind(&outlet).unwrap();
    let (udp, to) = receiver();
    let weir = Weir::relay(&[
        "--listen",
        &format!("unix:{inlet}"),
        "--to",
        &format!("{to}?name=udp"),
        "--to",
        &format!("unix:{outlet}?name=unix"),
    ]);
    let client = UnixDatagram::unbound().unwrap();
    client.connect(&inlet).unwrap();
    // The largest of UDP over IPv4; two that only a unix socket can carry; two that are larger than any slot.
    for len in [65_507, 65_508, 65_536, 65_537, 100_000] {
        assert_eq!(client.send(&vec![len as u8; len]).unwrap(), len);
    }
    client.send(b"after").unwrap();
    weir.wait_for_rest(6);
    let ledger = weir.stop().ledger;
    let entry = hop(&ledger, HopKind::Receive, "");
    assert_eq!(entry.dropped_for(Reason::Truncated).count, 2);
    assert_eq!(entry.delivered.count, 4);
    assert_eq!(split(&ledger, "udp", Reason::TooBig), (2, 2));
    assert_eq!(split(&ledger, "unix", Reason::TooBig), (4, 0));
    assert_eq!((receive(&udp).len(), receive(&udp)), (65_507, b"after".to_vec()));
    let mut buffer = vec![0; 1 << 17];
    let lens: Vec<_> = (0..4).map(|_| end.recv(&mut buffer).unwrap()).collect();
    assert_eq!(lens, [65_507, 65_508, 65_536, 5]);
    udp.set_nonblocking(true).unwrap();
    end.set_nonblocking(true).unwrap();
    assert!(udp.recv(&mut buffer).is_err() && end.recv(&mut buffer).is_err());
}

/// A router whose next link is narrow reports the first large datagram as lost; the kernel then cuts the next ones into
/// fragments that fit, and they arrive.
#[test]
fn a_datagram_too_large_for_the_path_is_counted_as_too_big() {
    if !need_root_netns() {
        return;
    }
    let (near, router, far) = (Netns::new(), Netns::new(), Netns::new());
    near.connect("nic", &router, "near");
    router.connect("far", &far, "nic");
    near.ip("addr add 10.78.1.1/24 dev nic");
    router.ip("addr add 10.78.1.2/24 dev near");
    router.ip("addr add 10.78.2.2/24 dev far");
    far.ip("addr add 10.78.2.1/24 dev nic");
    near.ip("route add default via 10.78.1.2");
    far.ip("route add default via 10.78.2.2");
    router.ip("link set far mtu 1000");
    support::process::run(router.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
    let mut verify = far.command(WEIR);
    verify.args(["verify", "--listen", "10.78.2.1:7000", "--duration", "60s", "--json"]);
    verify.args(["--progress", "off"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut verify = Peer::start(&mut verify);
    let mut said = std::io::BufReader::new(verify.0.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut String::new()).unwrap();
    let mut relay = near.command(WEIR);
    relay.args(["relay", "--progress", "off", "--listen", "127.0.0.1:7000"]);
    relay.args(["--to", "10.78.2.1:7000?name=far"]);
    let weir = Weir::start(relay);
    // A small one first, so that the error about the second is not found by the relay's next look for errors: the third
    // meets it, and must not be taken for the one that is too big.
    let sent: u64 = [["100", "1"], ["1400", "1"], ["1400", "100"]]
        .iter()
        .map(|[size, count]| {
            let args =
                ["--to", "127.0.0.1:7000", "--rate", "500", "--size", size, "--count", count];
            generate_by(near.command(WEIR), &[&args[..], &["--heartbeat", "off"]].concat())
                .datagrams
        })
        .sum();
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let egress = hop(&ended.ledger, HopKind::Egress, "far");
    let too_big = egress.dropped_for(Reason::TooBig).count;
    support::process::signal(&verify.0, "INT");
    let mut report = String::new();
    std::io::Read::read_to_string(&mut verify.0.stdout.take().unwrap(), &mut report).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let total = |key: &str| report["total"][key].as_u64().unwrap();
    let arrived = total("received");
    assert_eq!(too_big, 1, "{}", ended.said);
    assert_eq!(hop(&ended.ledger, HopKind::Target, "far").dropped, [], "{}", ended.said);
    assert_eq!(arrived + too_big, sent, "{report:#} {}", ended.said);
    assert_eq!(total("corrupt"), 0);
}

/// A router that forbids the way says so: at least that one is named, in both families.
#[test]
fn what_a_router_prohibits_comes_back_with_a_name() {
    if !need_root_netns() {
        return;
    }
    let (near, router) = (Netns::new(), Netns::new());
    near.connect("nic", &router, "near");
    router.ip("addr add 10.79.1.2/24 dev near");
    router.ip("addr add fd79:1::2/64 dev near nodad");
    near.ip("addr add 10.79.1.1/24 dev nic");
    near.ip("addr add fd79:1::1/64 dev nic nodad");
    near.ip("route add default via 10.79.1.2");
    near.ip("-6 route add default via fd79:1::2");
    router.ip("route add prohibit 10.79.2.0/24");
    router.ip("-6 route add prohibit fd79:2::/64");
    let forward = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"];
    support::process::run(router.command("sysctl").args(["-q", "-w"]).args(forward));
    let mut relay = near.command(WEIR);
    relay.args(["relay", "--progress", "off", "--listen", "127.0.0.1:7000"]);
    relay.args(["--to", "10.79.2.1:7000?name=v4", "--to", "[fd79:2::1]:7000?name=v6"]);
    let weir = Weir::start(relay);
    let args = ["--to", "127.0.0.1:7000", "--rate", "100", "--count", "5", "--heartbeat", "off"];
    generate_by(near.command(WEIR), &args);
    let ended = weir.stop();
    for name in ["v4", "v6"] {
        let egress = hop(&ended.ledger, HopKind::Egress, name);
        let prohibited = egress.dropped_for(Reason::HostUnreachable).count;
        assert!((1..=5).contains(&prohibited), "{name}: {} {:?}", ended.said, egress.events);
        assert_eq!(hop(&ended.ledger, HopKind::Target, name).dropped, [], "{name}: {}", ended.said);
    }
}
