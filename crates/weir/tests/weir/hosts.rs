//! The host changes while Weir runs: addresses, routes and interfaces come and go, and sockets follow.

#[cfg(feature = "all-sinks")]
mod clients;
mod matrix;
mod soak;

use crate::support::{Namespace, Weir, hop};
use ledger::{Event, HopKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use testkit::{Netns, need_root_netns, sender, wait_for};

/// A relay's host with two wires to a receiver's host.
struct Rig {
    relay: Namespace,
    far: Namespace,
}

impl Rig {
    fn new() -> Option<Rig> {
        if !need_root_netns() {
            return None;
        }
        let rig = Rig { relay: Namespace::new(), far: Namespace::new() };
        // The addresses of a new link are probed for a second or two, and a neighbor cannot be asked from one until then.
        for namespace in [&rig.relay, &rig.far] {
            let probes = "/proc/sys/net/ipv6/conf/default/accept_dad";
            namespace.inside(|| std::fs::write(probes, "0").unwrap());
        }
        for n in [1, 2] {
            Netns::connect(&rig.relay, &format!("v{n}"), &rig.far, &format!("w{n}"));
            rig.far.ip(&format!("address add 10.9.{n}.9/24 dev w{n}"));
            rig.far.ip(&format!("address add fd09:{n}::9/64 dev w{n} nodad"));
        }
        rig.far.ip("address add 10.9.9.9/32 dev lo");
        rig.far.ip("address add fd09:9::9/128 dev lo nodad");
        // Whatever address the relay has, answers lead to it.
        for n in [1, 2] {
            rig.add(n, 1);
        }
        rig.route(1);
        Some(rig)
    }

    fn add(&self, n: u32, host: u32) {
        self.relay.ip(&format!("address add 10.9.{n}.{host}/24 dev v{n}"));
        self.relay.ip(&format!("address add fd09:{n}::{host}/64 dev v{n} nodad"));
    }

    fn remove(&self, n: u32, host: u32) {
        self.relay.ip(&format!("address del 10.9.{n}.{host}/24 dev v{n}"));
        self.relay.ip(&format!("address del fd09:{n}::{host}/64 dev v{n}"));
    }

    /// Leads to the receiver's own addresses by wire `n`.
    fn route(&self, n: u32) {
        self.relay.ip(&format!("route replace 10.9.9.9 via 10.9.{n}.9"));
        self.relay.ip(&format!("-6 route replace fd09:9::9 via fd09:{n}::9"));
    }

    fn readyz(&self, weir: &Weir) -> String {
        let admin = weir.admin;
        self.relay.inside(|| testkit::get(admin, "/readyz", "*/*"))
    }

    fn receiver(&self, ip: &str) -> UdpSocket {
        let receiver = self.far.inside(|| UdpSocket::bind((ip, 0)).unwrap());
        receiver.set_nonblocking(true).unwrap();
        receiver
    }
}

/// Waits until a datagram arrives from this address, while more are sent.
fn expect_from(client: &UdpSocket, receiver: &UdpSocket, ip: &str) {
    let ip: IpAddr = ip.parse().unwrap();
    let mut last = None;
    wait_for(
        || format!("a datagram from {ip}"),
        || {
            // Refused as long as nobody listens.
            let _ = client.send(b"x");
            while let Ok((_, from)) = receiver.recv_from(&mut [0; 64]) {
                last = Some(from.ip());
            }
            (last == Some(ip)).then_some(())
        },
    );
}

fn client_of(rig: &Rig, weir: &Weir) -> UdpSocket {
    let at = weir.address();
    rig.relay.inside(|| sender(at))
}

#[test]
fn a_target_leaves_from_the_address_that_the_host_has_now() {
    let Some(rig) = Rig::new() else { return };
    let receivers = ["10.9.9.9", "fd09:9::9"].map(|ip| rig.receiver(ip));
    let to = |at: usize| format!("{}?name=t{at}", receivers[at].local_addr().unwrap());
    let weir = Weir::tee(rig.relay.place(), &[to(0), to(1)], &[]);
    let client = client_of(&rig, &weir);
    let expect = |v4: &str, v6: &str| {
        expect_from(&client, &receivers[0], v4);
        expect_from(&client, &receivers[1], v6);
    };
    expect("10.9.1.1", "fd09:1::1");

    // Another address by DHCP.
    rig.remove(1, 1);
    rig.add(1, 77);
    rig.route(1);
    expect("10.9.1.77", "fd09:1::77");

    // The route moves to the other interface, and the address stays.
    rig.route(2);
    expect("10.9.2.1", "fd09:2::1");

    // The interface is deleted, and made again with another address.
    rig.relay.ip("link del v2");
    rig.relay.ip("route replace 10.9.9.9 via 10.9.1.9");
    rig.relay.ip("-6 route replace fd09:9::9 via fd09:1::9");
    expect("10.9.1.77", "fd09:1::77");

    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    for name in ["t0", "t1"] {
        let target = hop(&ended.ledger, HopKind::Target, name);
        assert!(target.event(Event::SocketRenewals) >= 3, "{}", ended.said);
        assert_eq!(target.unaccounted, 0, "{}", ended.said);
    }
    let said = "target t0: sending from 10.9.1.77, before 10.9.1.1";
    assert!(ended.said.contains(said), "{}", ended.said);
}

#[test]
fn a_udp_sink_leaves_from_the_address_that_the_host_has_now() {
    let Some(rig) = Rig::new() else { return };
    let receivers = ["10.9.9.9", "fd09:9::9"].map(|ip| rig.receiver(ip));
    let sink = |at: usize| {
        let to = receivers[at].local_addr().unwrap();
        let keys = "from = [\"sockets\"]\nbatch_age = \"10ms\"";
        format!("[[sink]]\nname = \"s{at}\"\nto = \"udp://{to}\"\n{keys}\n")
    };
    let listener = "[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nto = \"null:\"\n\
                    [sockets]\ninterval = \"100ms\"\nskip_unchanged = false\n";
    // A socket to tell of.
    let _open = rig.relay.inside(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener)
    });
    let folder = testkit::TempDir::new();
    let file = folder.file("weir.toml");
    std::fs::write(&file, format!("{listener}{}{}", sink(0), sink(1))).unwrap();
    let mut command = rig.relay.place().weir();
    command.args(["run", "-c"]).arg(&file);
    let weir = Weir::run_at(rig.relay.place(), command);
    let client = client_of(&rig, &weir);
    let expect = |v4: &str, v6: &str| {
        expect_from(&client, &receivers[0], v4);
        expect_from(&client, &receivers[1], v6);
    };
    expect("10.9.1.1", "fd09:1::1");
    rig.route(2);
    expect("10.9.2.1", "fd09:2::1");
    rig.remove(2, 1);
    rig.add(2, 77);
    rig.route(2);
    expect("10.9.2.77", "fd09:2::77");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}

#[test]
fn a_listener_follows_its_name_to_another_address_of_this_host() {
    let Some(rig) = Rig::new() else { return };
    rig.relay.write_hosts("10.9.1.1 own.test\n");
    let receiver = rig.relay.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    receiver.set_nonblocking(true).unwrap();
    let to = format!("{}?name=out", receiver.local_addr().unwrap());
    let port = testkit::free_port();
    let listen = format!("own.test:{port}?name=named");
    let weir = Weir::relay_at(rig.relay.place(), &["--listen", &listen, "--to", &to]);
    let client = |ip: &str| {
        let at = SocketAddr::new(ip.parse().unwrap(), port);
        rig.relay.inside(|| sender(at))
    };
    expect_from(&client("10.9.1.1"), &receiver, "127.0.0.1");

    rig.relay.write_hosts("10.9.1.77 own.test\n");
    rig.add(1, 77);
    while receiver.recv(&mut [0; 64]).is_ok() {}
    expect_from(&client("10.9.1.77"), &receiver, "127.0.0.1");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(ended.said.contains("listener named: its name has another address"), "{}", ended.said);
}

#[test]
fn a_group_is_joined_anew_when_its_interface_comes_again_and_by_a_start_before_it_is_there() {
    let Some(rig) = Rig::new() else { return };
    rig.relay.ip("link del v1");
    let port = testkit::free_port();
    let receiver = rig.relay.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    receiver.set_nonblocking(true).unwrap();
    let to = format!("{}?name=out", receiver.local_addr().unwrap());
    let groups = ["239.1.2.3", "[ff02::77]"].map(|ip| format!("{ip}:{port}"));
    let listens = groups.each_ref().map(|at| format!("{at}?multicast_interface=v1&name={at}"));
    let weir = Weir::relay_at(
        rig.relay.place(),
        &[
            "--listen",
            "127.0.0.1:0?name=in",
            "--listen",
            &listens[0],
            "--listen",
            &listens[1],
            "--to",
            &to,
        ],
    );
    let ready = rig.readyz(&weir);
    assert!(ready.starts_with("ready\nwaits: listener 239.1.2.3"), "{ready}");

    for life in 0..3 {
        Netns::connect(&rig.relay, "v1", &rig.far, "w1");
        rig.far.ip("address add 10.9.1.9/24 dev w1");
        if life == 2 {
            rig.relay.ip("link set v1 down");
            rig.relay.ip("link set v1 up");
        }
        for group in &groups {
            let options = sys::socket::SendOptions {
                multicast_interface: Some("w1".to_owned()),
                ..sys::socket::SendOptions::default()
            };
            // Of this life: one of the last may still be on its way.
            let text = format!("{life} {group}");
            wait_for(
                || format!("a datagram to {group}"),
                || {
                    // The address of the link takes a moment.
                    let to = group.parse().unwrap();
                    let client = rig.far.inside(|| sys::socket::connect_udp(to, &options)).ok()?;
                    UdpSocket::from(client).send(text.as_bytes()).ok()?;
                    let mut buffer = [0; 64];
                    let len = receiver.recv(&mut buffer).ok()?;
                    (&buffer[..len] == text.as_bytes()).then_some(())
                },
            );
        }
        rig.relay.ip("link del v1");
    }
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let renewals = |origin: &String| {
        let is_it =
            |hop: &&ledger::HopSnapshot| hop.hop == HopKind::Receive && hop.origin == *origin;
        ended.ledger.hops.iter().find(is_it).unwrap().event(Event::SocketRenewals)
    };
    assert!(groups.iter().all(|group| renewals(group) >= 2), "{}", ended.said);
}

#[test]
fn a_listener_on_an_address_that_comes_later_joins_the_rest() {
    let Some(rig) = Rig::new() else { return };
    let receiver = rig.relay.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    receiver.set_nonblocking(true).unwrap();
    let to = format!("{}?name=out", receiver.local_addr().unwrap());
    let port = testkit::free_port();
    let vip = format!("192.0.2.55:{port}?name=vip");
    let weir = Weir::relay_at(
        rig.relay.place(),
        &["--listen", "127.0.0.1:0?name=in", "--listen", &vip, "--to", &to],
    );
    let client = client_of(&rig, &weir);
    expect_from(&client, &receiver, "127.0.0.1");
    let ready = rig.readyz(&weir);
    assert!(ready.contains("waits: listener vip: cannot listen on"), "{ready}");
    let ledger = weir.ledger();
    let socket = ledger.hops.iter().find(|hop| hop.origin == "vip").unwrap();
    assert!(socket.trouble.is_some(), "{socket:?}");

    rig.relay.ip("address add 192.0.2.55/32 dev lo");
    let to_vip = rig.relay.inside(|| sender(format!("192.0.2.55:{port}").parse().unwrap()));
    expect_from(&to_vip, &receiver, "127.0.0.1");
    wait_for("nothing that waits", || (rig.readyz(&weir) == "ready\n").then_some(()));
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(ended.said.contains("listener vip: listening on udp://192.0.2.55"), "{}", ended.said);
}

#[test]
fn everybody_may_send_to_a_unix_listener_and_its_file_is_made_again() {
    let folder = testkit::TempDir::new();
    let (receiver, to) = testkit::receiver();
    let path = folder.file("log.sock");
    let mode = || std::fs::metadata(&path).map(|meta| meta.permissions().mode() & 0o777).ok();
    let send = |text: &str| {
        let client = UnixDatagram::unbound().unwrap();
        client.send_to(text.as_bytes(), &path).ok()
    };
    for (more, wanted) in [("", 0o666), ("?mode=0620", 0o620)] {
        let listen = format!("unix:{}{more}", path.display());
        let weir = Weir::relay(&["--listen", &listen, "--to", &to]);
        assert_eq!(mode(), Some(wanted));
        send("first").unwrap();
        assert_eq!(testkit::receive(&receiver), b"first");
        std::fs::remove_file(&path).unwrap();
        wait_for("the file", || (mode() == Some(wanted)).then_some(()));
        send("again").unwrap();
        assert_eq!(testkit::receive(&receiver), b"again");
        let ended = weir.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        assert!(
            ended.said.contains("its socket file was removed; it listens anew"),
            "{}",
            ended.said
        );
    }
}

#[test]
fn a_target_with_a_rebind_interval_takes_another_port_and_loses_nothing() {
    let (receiver, at) = testkit::receiver();
    let to = format!("{at}?name=out&rebind_interval=1s");
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to]);
    let client = sender(weir.address());
    let (mut ports, mut number) = (std::collections::BTreeSet::new(), 0_u64);
    while ports.len() < 3 {
        number += 1;
        client.send(&number.to_le_bytes()).unwrap();
        let mut buffer = [0; 8];
        let (_, from) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!(u64::from_le_bytes(buffer), number);
        ports.insert(from.port());
    }
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "out");
    assert_eq!(target.delivered.count, number, "{}", ended.said);
    assert!(target.event(Event::SocketRenewals) >= 2, "{}", ended.said);
}

#[test]
fn an_interface_is_used_alone_and_a_free_address_is_bound_before_it_is_there() {
    let Some(rig) = Rig::new() else { return };
    rig.relay.ip("route add 10.9.9.9 via 10.9.2.9 dev v2 metric 100");
    let receiver = rig.receiver("10.9.9.9");
    let port = testkit::free_port();
    let to = format!("{}?name=out&interface=v2", receiver.local_addr().unwrap());
    let by = format!("0.0.0.0:{port}?name=by&interface=v1");
    let free_port = testkit::free_port();
    let free = format!("192.0.2.77:{free_port}?name=free&freebind=true");
    let weir = Weir::relay_at(
        rig.relay.place(),
        &["--listen", "127.0.0.1:0?name=in", "--listen", &by, "--listen", &free, "--to", &to],
    );
    // The shortest route is by the other interface.
    expect_from(&client_of(&rig, &weir), &receiver, "10.9.2.1");
    assert_eq!(rig.readyz(&weir), "ready\n");

    let received = |origin: &str| {
        let ledger = weir.ledger();
        let is_it = |hop: &&ledger::HopSnapshot| hop.hop == HopKind::Socket && hop.origin == origin;
        ledger.hops.iter().find(is_it).map_or(0, |hop| hop.received.count)
    };
    let far = |to: &str| {
        let socket = rig.far.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        socket.connect((to, port)).unwrap();
        socket
    };
    let (other, right) = (far("10.9.2.1"), far("10.9.1.1"));
    wait_for("a datagram by the interface", || {
        let _ = (other.send(b"by the other"), right.send(b"by it"));
        (received("by") > 0).then_some(())
    });
    rig.relay.ip("address add 192.0.2.77/32 dev lo");
    let local = rig.relay.inside(|| sender(format!("192.0.2.77:{free_port}").parse().unwrap()));
    wait_for("a datagram to the free address", || {
        let _ = local.send(b"free");
        (received("free") > 0).then_some(())
    });
    assert!(other.send(b"refused by now").is_err() || other.send(b"refused").is_err());

    // An interface is made again: the target that is bound to it sends by the one that has its name now.
    rig.relay.ip("link del v2");
    Netns::connect(&rig.relay, "v2", &rig.far, "w2");
    rig.far.ip("address add 10.9.2.9/24 dev w2");
    rig.add(2, 1);
    rig.relay.ip("route add 10.9.9.9 via 10.9.2.9 dev v2 metric 100");
    while receiver.recv(&mut [0; 64]).is_ok() {}
    expect_from(&client_of(&rig, &weir), &receiver, "10.9.2.1");

    // And the listener that is bound to one listens anew.
    rig.relay.ip("link del v1");
    Netns::connect(&rig.relay, "v1", &rig.far, "w1");
    rig.far.ip("address add 10.9.1.9/24 dev w1");
    rig.add(1, 1);
    let before = received("by");
    wait_for("a datagram by the interface that was made again", || {
        let _ = right.send(b"by it");
        (received("by") > before).then_some(())
    });
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(ended.said.contains("listener by: its interface was made again"), "{}", ended.said);
}

/// What `weir config check --environment` says about this file, in the relay's host.
fn check(rig: &Rig, text: &str) -> String {
    let folder = testkit::TempDir::new();
    let file = folder.file("weir.toml");
    std::fs::write(&file, text).unwrap();
    let mut check = rig.relay.place().weir();
    let output = check.args(["config", "check", "--environment"]).arg(&file).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_check_says_which_address_of_a_name_is_used_and_judges_the_others() {
    let Some(rig) = Rig::new() else { return };
    let hosts = "::1 localhost\n127.0.0.1 localhost\n10.9.1.1 own.test\nfd09:1::1 own.test\n";
    rig.relay.write_hosts(&format!("{hosts}10.9.1.9 far.test\n2001:db8::9 far.test\n"));
    let listen = |at: &str, to: &str| {
        check(&rig, &format!("[[listener]]\nlisten = '{at}'\n[[listener.target]]\nto = '{to}'\n"))
    };
    let said = listen("localhost:5514", "far.test:514");
    let both = "localhost:5514 is 127.0.0.1:5514 and [::1]:5514, and it listens at both";
    assert!(said.contains(both), "{said}");
    let unused = "if its name loses 10.9.1.9:514, which is used: what is sent there is dropped";
    assert!(said.contains("no way to [2001:db8::9]:514") && said.contains(unused), "{said}");
    let said = listen("own.test:5514", "null:");
    assert!(said.contains("it listens at the first alone"), "{said}");
    // A loop is one where the address that is used is a listener's.
    let said = listen("[::1]:5514", "localhost:5514");
    assert!(said.contains("if its name loses 127.0.0.1:5514, which is used"), "{said}");
    let said = listen("localhost:5514", "[::1]:5514");
    assert!(said.contains("would come back for ever"), "{said}");

    let said = listen("unix:/tmp/weir-check.sock'\nowner = 'no-such-user", "null:");
    assert!(said.contains("owner no-such-user is not in /etc/passwd"), "{said}");
    assert!(said.contains("Fix: write a name that is, or its number"), "{said}");
}

#[test]
fn a_listener_on_localhost_hears_both_families_from_this_host_alone() {
    let Some(rig) = Rig::new() else { return };
    rig.relay.write_hosts("::1 localhost\n127.0.0.1 localhost\n");
    let receiver = rig.relay.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    receiver.set_nonblocking(true).unwrap();
    let to = format!("{}?name=out", receiver.local_addr().unwrap());
    for sockets in [1, 2] {
        let listen = format!("localhost:0?name=in&sockets={sockets}");
        let weir = Weir::relay_at(rig.relay.place(), &["--listen", &listen, "--to", &to]);
        let port = weir.address().port();
        for ip in ["127.0.0.1", "::1"] {
            let at = SocketAddr::new(ip.parse().unwrap(), port);
            let client = rig.relay.inside(|| sender(at));
            client.send(ip.as_bytes()).unwrap();
            wait_for(
                || format!("a datagram to {at}"),
                || {
                    let mut buffer = [0; 128];
                    let len = receiver.recv(&mut buffer).ok()?;
                    buffer[..len].ends_with(ip.as_bytes()).then_some(())
                },
            );
        }
        let outside = rig.far.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        outside.connect(("10.9.1.1", port)).unwrap();
        wait_for("a refusal", || outside.send(b"x").is_err().then_some(()));
        let ended = weir.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        let socket = hop(&ended.ledger, HopKind::Socket, "");
        assert_eq!(socket.received.count, 2, "{}", ended.said);
        let said = format!("udp://127.0.0.1:{port} and udp://[::1]:{port}");
        assert!(ended.said.contains(&said), "{}", ended.said);
    }
}
