//! Every kind of address that can be listened on and sent to.

use crate::support::{WEIR, Weir, generate_by, hop};
use ledger::{HopKind, Reason};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use testkit::{
    DEADLINE, Netns, Peer, TempDir, find_tool, free_port, need_python_module, need_root_netns,
    receive, receiver, sender,
};

/// Payloads that show empty datagrams, zero bytes and the largest IPv4 datagram.
fn payloads() -> Vec<Vec<u8>> {
    let sizes = [0, 1, 64, 1_472, 1_473, 9_000, 64_000, 65_507];
    sizes.iter().map(|&len| (0..len).map(|n| (n * 7 + len) as u8).collect()).collect()
}

/// Sends all payloads by `send` and expects each, whole and alone, from `receive`.
fn check_all(send: impl Fn(&[u8]) -> usize, receive: impl Fn() -> Vec<u8>) {
    for payload in payloads() {
        assert_eq!(send(&payload), payload.len());
        let got = receive();
        assert!(got == payload, "sent {} bytes, got {}", payload.len(), got.len());
    }
}

/// Ends the relay, whose every target must have got `count` datagrams.
#[track_caller]
fn check_delivered(weir: Weir, count: u64) {
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    for one in ended.ledger.hops.iter().filter(|hop| hop.hop == HopKind::Target) {
        assert_eq!(one.delivered.count, count, "{}", ended.said);
    }
    assert_eq!(ended.ledger.unintended_losses(), [], "{}", ended.said);
}

#[test]
fn ipv6_listener_and_target() {
    let target = UdpSocket::bind("[::1]:0").unwrap();
    target.set_read_timeout(Some(DEADLINE)).unwrap();
    let to = target.local_addr().unwrap().to_string();
    let weir = Weir::relay(&["--listen", "[::1]:0", "--to", &to]);
    let client = sender(weir.address());
    check_all(|bytes| client.send(bytes).unwrap(), || receive(&target));
    check_delivered(weir, 8);
}

#[test]
fn ipv4_and_ipv6_wildcards_share_a_port_and_cross_over() {
    let (v4, to_v4) = receiver();
    let v6 = UdpSocket::bind("[::1]:0").unwrap();
    v6.set_read_timeout(Some(DEADLINE)).unwrap();
    let to_v6 = v6.local_addr().unwrap().to_string();
    let port = free_port();
    let listen = [format!(":{port}"), format!("[::]:{port}")];
    let weir = Weir::relay(&[
        "--listen", &listen[0], "--listen", &listen[1], "--to", &to_v4, "--to", &to_v6,
    ]);
    for (from, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")] {
        let client = UdpSocket::bind(from).unwrap();
        client.send_to(to.as_bytes(), (to, port)).unwrap();
        assert_eq!(receive(&v4), to.as_bytes());
        assert_eq!(receive(&v6), to.as_bytes());
    }
    check_delivered(weir, 1);
}

#[test]
fn a_name_as_target_and_as_listener() {
    let (target, at) = receiver();
    let port = at.rsplit_once(':').unwrap().1;
    // `localhost` may be both ::1 and 127.0.0.1: the source address says which family is meant.
    let to = format!("localhost:{port}?source_address=127.0.0.1");
    let weir = Weir::relay(&["--listen", "localhost:0", "--to", &to]);
    let client = sender(weir.address());
    client.send(b"by name").unwrap();
    assert_eq!(receive(&target), b"by name");
    check_delivered(weir, 1);
}

/// `localhost` is ::1 and 127.0.0.1 on most hosts, and one of them on some: the name decides, and a datagram goes once.
#[test]
fn localhost_is_one_of_its_addresses() {
    let (v4, at) = receiver();
    let port: u16 = at.rsplit_once(':').unwrap().1.parse().unwrap();
    let v6 = UdpSocket::bind(("::1", port)).unwrap();
    let to = format!("localhost:{port}?name=l");
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to]);
    let client = sender(weir.address());
    for _ in 0..10 {
        client.send(b"by name").unwrap();
    }
    weir.wait_for_rest(10);
    check_delivered(weir, 10);
    v4.set_nonblocking(true).unwrap();
    v6.set_nonblocking(true).unwrap();
    let count = |socket: &UdpSocket| (0..20).filter(|_| socket.recv(&mut [0; 8]).is_ok()).count();
    let counts = (count(&v4), count(&v6));
    assert!(counts == (10, 0) || counts == (0, 10), "{counts:?}");
}

/// Prints the port that it receives on, then the fields of the IP header of one datagram.
const HEADER_FIELDS: &str = r#"
import socket, sys
host = sys.argv[1]
six = ":" in host
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
if six:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
else:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    s.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL, which has no name here
s.bind((host, 0))
print(s.getsockname()[1], flush=True)
_, cmsgs, _, _ = s.recvmsg(100, 200)
print(sorted(int.from_bytes(value, "little") for _, _, value in cmsgs), flush=True)
"#;

#[test]
fn ttl_and_dscp_stand_in_the_header() {
    if !need_python_module("socket") {
        return;
    }
    for host in ["127.0.0.1", "::1"] {
        let mut python = Command::new(find_tool("weir-python").unwrap());
        python.args(["-c", HEADER_FIELDS, host]).stdout(Stdio::piped());
        let mut python = Peer::start(&mut python);
        let mut lines = BufReader::new(python.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let at = SocketAddr::new(host.parse().unwrap(), lines.next().unwrap().parse().unwrap());
        let to = format!("{at}?ttl=7&dscp=46");
        let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to]);
        sender(weir.address()).send(b"x").unwrap();
        // 46, expedited forwarding, stands above the two bits of ECN.
        assert_eq!(lines.next().unwrap(), format!("[7, {}]", 46 << 2), "{at}");
        check_delivered(weir, 1);
    }
}

#[test]
fn a_fixed_source_is_one_client_whoever_sends() {
    let (target, to) = receiver();
    let port = free_port();
    let to = format!("{to}?source_address=127.0.0.9&source_port={port}");
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to]);
    for _ in 0..5 {
        sender(weir.address()).send(b"x").unwrap();
        let (_, from) = target.recv_from(&mut [0; 8]).unwrap();
        assert_eq!(from, SocketAddr::from(([127, 0, 0, 9], port)));
    }
    check_delivered(weir, 5);
}

#[test]
fn several_listeners_of_all_kinds_in_one_process() {
    let dir = TempDir::new();
    let (target, to) = receiver();
    let ports = [free_port(), free_port(), free_port()];
    let unix = dir.text("in.sock");
    let listen = [
        format!("127.0.0.1:{}", ports[0]),
        format!("127.0.0.2:{}", ports[1]),
        format!("[::1]:{}", ports[2]),
        format!("unix:{unix}"),
    ];
    let args: Vec<&str> = listen.iter().flat_map(|one| ["--listen", one.as_str()]).collect();
    let weir = Weir::relay(&[&args[..], &["--to", &to, "--to", "null:"]].concat());
    for address in &listen[..3] {
        sender(address.parse().unwrap()).send(address.as_bytes()).unwrap();
        assert_eq!(receive(&target), address.as_bytes());
    }
    UnixDatagram::unbound().unwrap().send_to(b"unix", &unix).unwrap();
    assert_eq!(receive(&target), b"unix");
    let ledger = weir.wait_for_rest(4);
    for address in &listen {
        let is_of = |hop: &&ledger::HopSnapshot| {
            hop.hop == HopKind::Target && hop.origin.ends_with(address.as_str())
        };
        let targets: Vec<_> = ledger.hops.iter().filter(is_of).collect();
        assert_eq!(targets.len(), 2, "{}", ledger::waterfall(&ledger));
        assert!(targets.iter().all(|hop| hop.delivered.count == 1));
    }
    check_delivered(weir, 1);
    assert!(!fs::exists(&unix).unwrap(), "the socket's file is removed");
}

#[test]
fn unix_listener_and_target_keep_every_datagram() {
    let dir = TempDir::new();
    let (inlet, outlet) = (dir.text("in.sock"), dir.text("out.sock"));
    let target = UnixDatagram::bind(&outlet).unwrap();
    target.set_read_timeout(Some(DEADLINE)).unwrap();
    let weir =
        Weir::relay(&["--listen", &format!("unix:{inlet}"), "--to", &format!("unix:{outlet}")]);
    let client = UnixDatagram::unbound().unwrap();
    client.connect(&inlet).unwrap();
    let next = || {
        let mut buffer = vec![0; 65_536];
        let len = target.recv(&mut buffer).unwrap();
        buffer.truncate(len);
        buffer
    };
    check_all(|bytes| client.send(bytes).unwrap(), next);
    check_delivered(weir, 8);
}

/// A full unix socket holds its sender up: nothing is lost between programs on one host, however fast they are.
#[test]
fn gen_and_verify_over_unix_sockets_lose_nothing() {
    let dir = TempDir::new();
    let (inlet, outlet) = (format!("unix:{}", dir.text("in")), format!("unix:{}", dir.text("out")));
    let mut judge = start_verify(Command::new(WEIR), &outlet);
    let weir = Weir::relay(&["--listen", &inlet, "--to", &outlet]);
    let args = ["--to", &inlet, "--rate", "20k", "--count", "20k", "--size", "48..1400"];
    let sent = generate_by(Command::new(WEIR), &args);
    assert_eq!(judge.0.wait().unwrap().code(), Some(0));
    check_delivered(weir, sent.all());
}

/// A receiver that is not there is waited for like one that is full: the ring holds what comes meanwhile.
#[test]
fn a_unix_target_that_comes_later_and_comes_again_misses_nothing() {
    for schedule in ["inline", "threaded"] {
        let dir = TempDir::new();
        let path = dir.text("out.sock");
        let to = format!("unix:{path}");
        let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--schedule", schedule, "--to", &to]);
        let client = sender(weir.address());
        let mut sent = 0_u64;
        for life in 0..4_u64 {
            // While nobody listens.
            for _ in 0..100 {
                client.send(&sent.to_le_bytes()).unwrap();
                sent += 1;
            }
            let target = UnixDatagram::bind(&path).unwrap();
            target.set_read_timeout(Some(DEADLINE)).unwrap();
            for number in life * 100..sent {
                let mut buffer = [0; 8];
                target.recv(&mut buffer).unwrap();
                assert_eq!(u64::from_le_bytes(buffer), number);
            }
            fs::remove_file(&path).unwrap();
            // A process that another test is just starting may hold a copy of the socket, which would go on taking datagrams.
            target.shutdown(Shutdown::Read).unwrap();
        }
        weir.wait_for_rest(sent);
        check_delivered(weir, sent);
    }
}

/// Nobody is there at the stop: a receiver that restarts has a second, and the rest of the grace is not waited for.
#[test]
fn what_waits_for_a_unix_target_that_nobody_listens_at_is_left_behind() {
    let dir = TempDir::new();
    let to = format!("unix:{}?name=nobody", dir.text("out.sock"));
    let args = ["--listen", "127.0.0.1:0", "--drain-grace", "1h", "--to", &to];
    let weir = Weir::relay(&args);
    let client = sender(weir.address());
    client.send(b"nobody there").unwrap();
    weir.wait_for(|ledger| hop(ledger, HopKind::Target, "nobody").received.count == 1);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(75), "{}", ended.said);
    let out = hop(&ended.ledger, HopKind::Target, "nobody");
    assert_eq!(out.dropped_for(Reason::Shutdown).count, 1, "{}", ended.said);
}

#[test]
fn broadcast_listener_and_target_on_loopback() {
    let target = UdpSocket::bind("127.255.255.255:0").unwrap();
    target.set_read_timeout(Some(DEADLINE)).unwrap();
    let to = target.local_addr().unwrap().to_string();
    let listen = format!("127.255.255.255:{}", free_port());
    let weir = Weir::relay(&["--listen", &listen, "--to", &to]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_broadcast(true).unwrap();
    client.connect(weir.address()).unwrap();
    check_all(|bytes| client.send(bytes).unwrap(), || receive(&target));
    check_delivered(weir, 8);
}

#[test]
fn multicast_group_on_loopback() {
    let group = Ipv4Addr::new(239, 255, 77, 1);
    let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    any.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
    any.set_read_timeout(Some(DEADLINE)).unwrap();
    let to = SocketAddr::new(IpAddr::V4(group), any.local_addr().unwrap().port());
    let to = format!("{to}?multicast_interface=lo&ttl=1");
    let listen = format!("{}:{}?multicast_interface=127.0.0.1", "239.255.77.2", free_port());
    let weir = Weir::relay(&["--listen", &listen, "--to", &to]);
    let options = sys::socket::SendOptions {
        multicast_interface: Some("lo".to_owned()),
        ..sys::socket::SendOptions::default()
    };
    let client = UdpSocket::from(sys::socket::connect_udp(weir.address(), &options).unwrap());
    check_all(|bytes| client.send(bytes).unwrap(), || receive(&any));
    check_delivered(weir, 8);
}

/// A verifier that has bound its socket, and ends when it has everything.
fn start_verify(mut weir: Command, listen: &str) -> Peer {
    weir.args(["verify", "--until-done", "--deadline", "60s", "--progress", "off"]);
    if listen.starts_with("[ff") {
        weir.args(["--multicast-interface", "wire-left"]);
    }
    weir.args(["--listen", listen]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut judge = Peer::start(&mut weir);
    let mut line = String::new();
    BufReader::new(judge.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line}");
    judge
}

/// Two hosts on a wire: groups and broadcasts go over a real link, in both families.
struct Wire {
    left: Netns,
    right: Netns,
}

impl Wire {
    fn new() -> Wire {
        let (left, right) = (Netns::new(), Netns::new());
        left.connect("wire-left", &right, "wire-right");
        for (netns, link, n) in [(&left, "wire-left", 1), (&right, "wire-right", 2)] {
            netns.ip(&format!("addr add 10.77.0.{n}/24 brd + dev {link}"));
            netns.ip(&format!("addr add fd77::{n}/64 dev {link} nodad"));
            netns.ip(&format!("route add 224.0.0.0/4 dev {link}"));
        }
        Wire { left, right }
    }

    /// A relay on the right that listens on `listen` and forwards to `to`, of which a verifier on the left gets
    /// everything that a generator on the left sends to `send`.
    fn check(&self, send: &str, listen: &str, to: &str, verify: &str) {
        let mut judge = start_verify(self.left.command(WEIR), verify);
        let mut relay = self.right.command(WEIR);
        relay.args(["relay", "--progress", "off", "--listen", listen, "--to", to]);
        let weir = Weir::start(relay);
        let generator = self.left.command(WEIR);
        let sent = generate_by(generator, &["--to", send, "--rate", "2k", "--count", "500"]);
        assert_eq!(judge.0.wait().unwrap().code(), Some(0), "{listen} to {to}");
        check_delivered(weir, sent.all());
    }
}

#[test]
fn groups_and_broadcasts_over_a_wire() {
    if !need_root_netns() {
        return;
    }
    let wire = Wire::new();
    // Unicast in, IPv4 multicast out.
    wire.check("10.77.0.2:7001", "10.77.0.2:7001", "239.1.2.3:7101?ttl=4", "239.1.2.3:7101");
    // IPv4 multicast in, unicast out.
    wire.check(
        "239.1.2.4:7002",
        "239.1.2.4:7002?multicast_interface=wire-right",
        "10.77.0.1:7102",
        "10.77.0.1:7102",
    );
    // IPv6 multicast in and out, by interface.
    let group_in = "[ff05::77]:7003?multicast_interface=wire-right";
    let group_out = "[ff05::78]:7103?multicast_interface=wire-right";
    wire.check("[ff05::77]:7003", group_in, group_out, "[ff05::78]:7103");
    // Groups that do not leave the link need its name on both sides.
    let group_in = "[ff02::79]:7007?multicast_interface=wire-right";
    let group_out = "[ff02::80]:7107?multicast_interface=wire-right";
    let verify = "[ff02::80]:7107";
    wire.check("[ff02::79%wire-left]:7007", group_in, group_out, verify);
    // The subnet's broadcast in, the limited broadcast out.
    wire.check("10.77.0.255:7004", "10.77.0.255:7004", "10.77.0.255:7104", "0.0.0.0:7104");
    wire.check(
        "10.77.0.255:7005",
        "0.0.0.0:7005",
        "255.255.255.255:7105?source_address=10.77.0.2",
        "0.0.0.0:7105",
    );
    // IPv6 unicast.
    wire.check("[fd77::2]:7006", "[::]:7006", "[fd77::1]:7106", "[fd77::1]:7106");
}
