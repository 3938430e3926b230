//! Targets that keep the sender's address: three hosts on two wires, and a receiver that looks at it.

use crate::nobody::Nobody;
use crate::support::{Ended, Namespace, Weir, hop};
use ledger::{Event, HopKind};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use testkit::{DEADLINE, Netns, need_root_netns, run};

/// Datagrams on their way at a time: fewer than any socket's buffer holds.
const WINDOW: usize = 50;

/// Senders behind one wire of the relay, a collector behind the other.
pub(crate) struct Rig {
    pub(crate) senders: Namespace,
    pub(crate) relay: Namespace,
    pub(crate) collector: Namespace,
}

impl Rig {
    pub(crate) fn new() -> Option<Rig> {
        if !need_root_netns() {
            return None;
        }
        let rig =
            Rig { senders: Namespace::new(), relay: Namespace::new(), collector: Namespace::new() };
        Netns::connect(&rig.relay, "in", &rig.senders, "up");
        Netns::connect(&rig.relay, "out", &rig.collector, "down");
        rig.address(&rig.relay, "in", 1);
        rig.address(&rig.senders, "up", 2);
        rig.relay.ip("address add 10.78.0.1/24 dev out");
        rig.relay.ip("address add fd78::1/64 dev out nodad");
        rig.collector.ip("address add 10.78.0.2/24 dev down");
        rig.collector.ip("address add fd78::2/64 dev down nodad");

        // Every address of this network is a sender's own; of IPv6, two are.
        rig.senders.ip("route add local 10.1.0.0/16 dev lo");
        rig.senders.ip("address add fd01::1/128 dev lo nodad");
        rig.senders.ip("address add fd01::2/128 dev lo nodad");
        rig.relay.ip("route add 10.1.0.0/16 via 10.77.0.2");
        rig.relay.ip("-6 route add fd01::/64 via fd77::2");
        rig.collector.ip("route add default via 10.78.0.1");
        rig.collector.ip("-6 route add default via fd78::1");
        Some(rig)
    }

    fn address(&self, of: &Namespace, link: &str, n: u32) {
        of.ip(&format!("address add 10.77.0.{n}/24 dev {link}"));
        of.ip(&format!("address add fd77::{n}/64 dev {link} nodad"));
    }

    /// The collector's socket at this address of its own.
    pub(crate) fn receiver(&self, ip: &str) -> UdpSocket {
        let receiver = self.collector.inside(|| UdpSocket::bind((ip, 0)).unwrap());
        receiver.set_read_timeout(Some(DEADLINE)).unwrap();
        receiver
    }

    pub(crate) fn relay(&self, listen: &str, targets: &[String]) -> Weir {
        let mut args = vec!["--listen", listen];
        targets.iter().for_each(|target| args.extend(["--to", target]));
        Weir::relay_at(self.relay.place(), &args)
    }

    /// A socket of the sender with this address, that sends to the relay.
    pub(crate) fn sender(&self, ip: IpAddr, weir: &Weir) -> UdpSocket {
        let to = SocketAddr::new(
            if ip.is_ipv4() { [10, 77, 0, 1].into() } else { relay_v6() },
            weir.address().port(),
        );
        let socket = self.senders.inside(|| UdpSocket::bind((ip, 0)).unwrap());
        socket.connect(to).unwrap();
        socket
    }
}

fn relay_v6() -> IpAddr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1).into()
}

fn keeping(to: &UdpSocket) -> String {
    format!("{}?name=kept&preserve_source=true", to.local_addr().unwrap())
}

fn keeping_ports(to: &UdpSocket) -> String {
    format!("{}?name=kept&preserve_source=address+port", to.local_addr().unwrap())
}

/// The sender of each datagram stands in it; `more` bytes follow.
fn send(socket: &UdpSocket, number: u32, more: usize) {
    let mut datagram = format!("{} {number} ", socket.local_addr().unwrap()).into_bytes();
    datagram.resize(datagram.len() + more, b'x');
    socket.send(&datagram).unwrap();
}

/// Takes a datagram, and returns its sender with the one that stands in it, and its number.
#[track_caller]
fn take_any(receiver: &UdpSocket) -> (SocketAddr, SocketAddr, u32) {
    let mut buffer = vec![0; 65_535];
    let (len, from) = receiver.recv_from(&mut buffer).unwrap();
    let text = String::from_utf8(buffer[..len].to_vec()).unwrap();
    let mut words = text.split(' ');
    let said = words.next().unwrap().parse().unwrap();
    (from, said, words.next().unwrap().parse().unwrap())
}

/// Takes a datagram and returns its sender, which must be the one that stands in it but for the port, with its number.
#[track_caller]
fn take(receiver: &UdpSocket, port: u16) -> (IpAddr, u32) {
    let (from, said, number) = take_any(receiver);
    assert_eq!((from.ip(), from.port()), (said.ip(), port));
    (said.ip(), number)
}

/// As [`take`], with the port too.
#[track_caller]
fn take_with_port(receiver: &UdpSocket) -> (SocketAddr, u32) {
    let (from, said, number) = take_any(receiver);
    assert_eq!(from, said);
    (from, number)
}

/// All of it was delivered, each with its source.
#[track_caller]
fn check_all_kept(ended: &Ended, count: u64) {
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let target = hop(&ended.ledger, HopKind::Target, "kept");
    assert_eq!((target.delivered.count, target.event(Event::WithoutSource)), (count, 0));
}

#[test]
fn twenty_thousand_senders_are_seen_through_one_target() {
    const SENDERS: u32 = 20_000;
    let Some(rig) = Rig::new() else { return };
    let receiver = rig.receiver("10.78.0.2");
    let weir =
        rig.relay("10.77.0.1:0?name=in", &[format!("{}&source_port=5514", keeping(&receiver))]);

    let mut seen = HashSet::new();
    for window in (0..SENDERS).collect::<Vec<_>>().chunks(WINDOW) {
        for number in window {
            let [_, _, high, low] = (number + 257).to_be_bytes();
            let sender = rig.sender(Ipv4Addr::new(10, 1, high, low).into(), &weir);
            send(&sender, *number, 100);
        }
        seen.extend(window.iter().map(|_| take(&receiver, 5514)));
    }
    assert_eq!(seen.len(), SENDERS as usize);
    check_all_kept(&weir.stop(), SENDERS.into());
}

/// What of the sender a target keeps.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kept {
    Address,
    AddressAndPort,
}

/// Every length up to the largest, the kernel cutting up what no packet holds; and runs of senders that take turns.
fn check_lengths_and_runs(
    kept: Kept,
    listen: &str,
    collector: &str,
    senders: [IpAddr; 2],
    bytes_max: usize,
) {
    let Some(rig) = Rig::new() else { return };
    let receiver = rig.receiver(collector);
    let target = match kept {
        Kept::Address => format!("{}&source_port=5514", keeping(&receiver)),
        Kept::AddressAndPort => keeping_ports(&receiver),
    };
    let weir = rig.relay(listen, &[target]);
    let take = |receiver: &UdpSocket, port| match kept {
        Kept::Address => take(receiver, port),
        Kept::AddressAndPort => {
            let (from, number) = take_with_port(receiver);
            (from.ip(), number)
        }
    };

    let sockets = senders.map(|ip| rig.sender(ip, &weir));
    let prefix = sockets[0].local_addr().unwrap().to_string().len() + 10;
    let mut count = 0;

    for bytes in [0, 1, 1_300, 1_472, 1_473, 9_000, 30_000, bytes_max - prefix] {
        for (socket, ip) in sockets.iter().zip(senders) {
            send(socket, 7, bytes);
            assert_eq!(take(&receiver, 5514), (ip, 7), "{bytes} bytes");
            count += 1;
        }
    }

    // Equal lengths, in turns of one, two, three … of each.
    for turn in 1..=8 {
        for (socket, _) in sockets.iter().zip(senders) {
            (0..turn).for_each(|number| send(socket, 10 + number, 64));
        }
        for ip in senders {
            for number in 0..turn {
                assert_eq!(take(&receiver, 5514), (ip, 10 + number));
                count += 1;
            }
        }
    }
    check_all_kept(&weir.stop(), count);
}

#[test]
fn every_length_keeps_its_source_over_ipv4() {
    let senders = [[10, 1, 0, 1], [10, 1, 0, 2]].map(IpAddr::from);
    for kept in [Kept::Address, Kept::AddressAndPort] {
        check_lengths_and_runs(kept, "10.77.0.1:0?name=in", "10.78.0.2", senders, 65_507);
    }
}

#[test]
fn every_length_keeps_its_source_over_ipv6() {
    let senders = [1, 2].map(|last| Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, last).into());
    for kept in [Kept::Address, Kept::AddressAndPort] {
        check_lengths_and_runs(kept, "[fd77::1]:0?name=in", "fd78::2", senders, 65_487);
    }
}

#[test]
fn more_senders_than_sockets_keep_their_ports_and_the_turnover_is_counted() {
    const SENDERS: u32 = 20_000;
    const SOCKETS: u64 = 1_000;
    let Some(rig) = Rig::new() else { return };
    let receiver = rig.receiver("10.78.0.2");
    let target = format!("{}&source_sockets={SOCKETS}", keeping_ports(&receiver));
    let weir = rig.relay("10.77.0.1:0?name=in", &[target]);

    let mut seen = HashSet::new();
    for window in (0..SENDERS).collect::<Vec<_>>().chunks(WINDOW) {
        for number in window {
            let [_, _, high, low] = (number + 257).to_be_bytes();
            let sender = rig.sender(Ipv4Addr::new(10, 1, high, low).into(), &weir);
            send(&sender, *number, 100);
        }
        seen.extend(window.iter().map(|_| take_with_port(&receiver)));
    }

    assert_eq!(seen.len(), SENDERS as usize);
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "kept");
    let counts = [Event::WithoutSource, Event::WithoutPort, Event::SenderTurnover];
    assert_eq!(counts.map(|event| target.event(event)), [0, 0, u64::from(SENDERS) - SOCKETS]);
    check_all_kept(&ended, SENDERS.into());
}

#[test]
fn few_senders_keep_their_sockets() {
    let Some(rig) = Rig::new() else { return };
    let receiver = rig.receiver("10.78.0.2");
    let weir = rig
        .relay("10.77.0.1:0?name=in", &[format!("{}&source_sockets=3", keeping_ports(&receiver))]);
    let sockets = [1, 2, 3].map(|last| rig.sender([10, 1, 0, last].into(), &weir));
    for number in 0..100 {
        for socket in &sockets {
            send(socket, number, 10);
            assert_eq!(take_with_port(&receiver), (socket.local_addr().unwrap(), number));
        }
    }
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "kept");
    assert_eq!(target.event(Event::SenderTurnover), 0);
    check_all_kept(&ended, 300);
}

#[test]
fn a_port_that_this_host_has_in_use_is_not_kept_and_that_is_counted() {
    let Some(rig) = Rig::new() else { return };
    let receiver = rig.receiver("10.78.0.2");
    // On every address of the host, so that the port is taken for foreign ones too.
    let weir = rig.relay("0.0.0.0:0?name=in", &[keeping_ports(&receiver)]);
    let port = weir.address().port();
    let sender = rig.senders.inside(|| UdpSocket::bind(("10.1.0.1", port)).unwrap());
    for number in 0..3 {
        sender
            .send_to(format!("10.1.0.1:{port} {number} ").as_bytes(), ("10.77.0.1", port))
            .unwrap();
        let (from, said, seen) = take_any(&receiver);
        assert_eq!((from.ip(), seen), (said.ip(), number));
        assert_ne!(from.port(), port);
    }
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "kept");
    assert_eq!(target.event(Event::WithoutPort), 3);
    check_all_kept(&ended, 3);
}

#[test]
fn what_has_no_source_of_the_targets_kind_comes_from_here_and_is_counted() {
    let Some(rig) = Rig::new() else { return };
    let receiver = rig.receiver("fd78::2");
    let weir = rig.relay("10.77.0.1:0?name=in", &[keeping(&receiver)]);
    let sender = rig.sender([10, 1, 0, 1].into(), &weir);
    send(&sender, 1, 0);

    let mut buffer = [0; 100];
    let (_, from) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!(from.ip(), "fd78::1".parse::<IpAddr>().unwrap());
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "kept");
    assert_eq!((target.delivered.count, target.event(Event::WithoutSource)), (1, 1));
}

#[test]
fn another_target_beside_it_sees_this_host() {
    let Some(rig) = Rig::new() else { return };
    let (kept, own) = (rig.receiver("10.78.0.2"), rig.receiver("10.78.0.2"));
    let targets = [
        format!("{}&source_port=5514", keeping(&kept)),
        format!("{}?name=own", own.local_addr().unwrap()),
    ];
    let weir = rig.relay("10.77.0.1:0?name=in", &targets);
    let sender = rig.sender([10, 1, 0, 1].into(), &weir);
    send(&sender, 1, 0);

    take(&kept, 5514);
    let (_, from) = own.recv_from(&mut [0; 100]).unwrap();
    assert_eq!(from.ip(), IpAddr::from([10, 78, 0, 1]));
    check_all_kept(&weir.stop(), 1);
}

#[test]
fn without_the_capability_it_says_which_and_how() {
    let Some(nobody) = Nobody::new() else { return };
    let mut relay = nobody.here();
    relay.args(["relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9?preserve_source=true"]);
    let output = relay.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{said}");
    for part in ["CAP_NET_RAW", "setcap cap_net_raw=+ep", "AmbientCapabilities=CAP_NET_RAW"] {
        assert!(said.contains(part), "{said}");
    }
}

/// A router behind the relay that can pass on 1,400 bytes tells the senders of longer datagrams, not the relay, which could never
/// learn of it.
#[test]
fn a_narrow_path_loses_nothing_of_what_other_hosts_would_be_told() {
    let Some(rig) = Rig::new() else { return };
    let (router, end) = (&rig.collector, Namespace::new());
    Netns::connect(router, "far", &end, "near");
    for (at, link, n) in [(&**router, "far", 1), (&*end, "near", 2)] {
        at.ip(&format!("link set dev {link} mtu 1400"));
        at.ip(&format!("address add 10.79.0.{n}/24 dev {link}"));
        at.ip(&format!("address add fd79::{n}/64 dev {link} nodad"));
    }
    let forward = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"];
    run(router.command("sysctl").args(["-q", "-w"]).args(forward));
    rig.relay.ip("route add 10.79.0.0/24 via 10.78.0.2");
    rig.relay.ip("-6 route add fd79::/64 via fd78::2");
    end.ip("route add default via 10.79.0.1");
    end.ip("-6 route add default via fd79::1");

    for kept in [keeping, keeping_ports] {
        // Over IPv6 this host fragments, and only what its own way out does not take.
        let cases = [
            ("10.77.0.1:0?name=in", "10.79.0.2", "10.1.0.1", 1_420),
            ("[fd77::1]:0?name=in", "fd79::2", "fd01::1", 3_000),
        ];
        for (listen, to, from, bytes) in cases {
            let receiver = end.inside(|| UdpSocket::bind((to, 0)).unwrap());
            receiver.set_read_timeout(Some(DEADLINE)).unwrap();
            let weir = rig.relay(listen, &[kept(&receiver)]);
            let sender = rig.sender(from.parse().unwrap(), &weir);
            for number in 0..20 {
                send(&sender, number, bytes);
                let (source, said, seen) = take_any(&receiver);
                assert_eq!((source.ip(), seen), (said.ip(), number));
            }
            check_all_kept(&weir.stop(), 20);
        }
    }
}
