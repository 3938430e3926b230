//! Provokes each way in which a connection can end, and checks the records of both ends.

use crate::support::{Keep, RARELY, Run, options};
use ledger::Event;
use record::CloseReason;
use socket2::{Domain, SockRef, Socket, Type};
use sockets::Scope;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use testkit::{Netns, need_root_netns};

/// Below the ports that the kernel chooses from (`ip_local_port_range`).
const FIRST_PORT: u16 = 20_001;

const POLLED: Duration = Duration::from_millis(50);

/// Two namespaces joined by a veth pair. The collector runs in the first and looks into the second.
struct Pair {
    here: Netns,
    there: Netns,
    /// The local port of the next client. The kernel may give two clients of different servers the same port, even while both are
    /// open, and the record of an aborted connection identifies its end only by that port.
    next_port: AtomicU16,
}

impl Pair {
    fn new() -> Pair {
        let (here, there) = (Netns::new(), Netns::new());
        here.connect("va", &there, "vb");
        for (netns, device, number) in [(&here, "va", 1), (&there, "vb", 2)] {
            netns.ip(&format!("addr add 10.79.0.{number}/24 dev {device}"));
            netns.ip(&format!("addr add fd79::{number}/64 dev {device} nodad"));
        }
        // Nobody has this address, and what is sent to it is lost.
        here.ip("neigh add 10.79.0.77 lladdr 02:00:00:00:00:77 dev va nud permanent");
        Pair { here, there, next_port: AtomicU16::new(FIRST_PORT) }
    }

    fn collect(&self, interval: Duration) -> Run {
        let names = [&self.here, &self.there].map(|netns| netns.name.clone());
        let scope = Scope::Named(names.to_vec());
        Run::start(&self.here, options(interval, scope), Keep::default())
    }

    /// A connection whose client is here. It has a listener of its own, so that each port identifies one end.
    fn open(&self, family: Family) -> Connection {
        let listener = self.there.inside(|| TcpListener::bind((family.listens_at(), 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        let (client, client_port) = self.bound(family);
        client.connect(&SocketAddr::new(family.server(), port).into()).unwrap();
        let (server, _) = listener.accept().unwrap();
        Connection { client_port, server_port: port, client: client.into(), server, listener }
    }

    /// A socket here with an unused port: after a failed connect, the peer is lost from its record.
    fn bound(&self, family: Family) -> (Socket, u16) {
        let domain = match family {
            Family::V6 => Domain::IPV6,
            Family::V4 | Family::Mapped => Domain::IPV4,
        };
        let socket = self.here.inside(|| Socket::new(domain, Type::STREAM, None).unwrap());
        let port = self.next_port.fetch_add(1, Ordering::Relaxed);
        socket.bind(&SocketAddr::new(family.client(), port).into()).unwrap();
        (socket, port)
    }
}

#[derive(Clone, Copy, Debug)]
enum Family {
    V4,
    V6,
    /// An IPv4 client of an IPv6 listener.
    Mapped,
}

impl Family {
    fn listens_at(self) -> IpAddr {
        match self {
            Family::V4 => self.server(),
            Family::V6 | Family::Mapped => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    fn server(self) -> IpAddr {
        match self {
            Family::V6 => "fd79::2".parse().unwrap(),
            Family::V4 | Family::Mapped => "10.79.0.2".parse().unwrap(),
        }
    }

    fn client(self) -> IpAddr {
        match self {
            Family::V6 => "fd79::1".parse().unwrap(),
            Family::V4 | Family::Mapped => "10.79.0.1".parse().unwrap(),
        }
    }
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    listener: TcpListener,
    client_port: u16,
    server_port: u16,
}

/// One end, by namespace and local port, and the end that its record should report.
type Expected = BTreeMap<(String, u16), (CloseReason, String)>;

/// What happened to connections, and what should be reported about it.
struct Ends<'a> {
    pair: &'a Pair,
    run: &'a Run,
    expected: Expected,
    listeners: Vec<TcpListener>,
    is_polled: bool,
}

impl Ends<'_> {
    /// Opens a connection, sends data in both directions, lets it be polled if that is wanted, and ends it. The names say which
    /// side acts; every end made by the client is also made by the server, the other way round.
    fn make(
        &mut self,
        family: Family,
        name: &str,
        (first, second): (CloseReason, CloseReason),
        end: impl Fn(TcpStream, TcpStream),
    ) {
        for client_first in [true, false] {
            let connection = self.pair.open(family);
            let Connection { mut client, mut server, listener, client_port, server_port } =
                connection;
            exchange(&mut client, &mut server);
            if self.is_polled {
                self.run.poll();
            }
            let (clients, servers) = if client_first {
                end(client, server);
                (first, second)
            } else {
                end(server, client);
                (second, first)
            };
            let name = format!("{name}, {family:?}, client first: {client_first}");
            let ends =
                [(&self.pair.here, client_port, clients), (&self.pair.there, server_port, servers)];
            for (netns, port, reason) in ends {
                self.expect(netns, port, reason, &name);
            }
            self.listeners.push(listener);
        }
    }

    fn expect(&mut self, netns: &Netns, port: u16, reason: CloseReason, name: &str) {
        let end = (netns.name.clone(), port);
        let former = self.expected.insert(end, (reason, name.to_owned()));
        assert_eq!(former, None, "{name}: another connection had its port {port}");
    }

    fn check(&self) {
        self.run.wait("closing records", |told| told.closes().count() >= self.expected.len());
        let told = self.run.keep.told.lock().unwrap();
        let mut wrong = Vec::new();
        for close in told.closes() {
            let end = (close.netns_name.clone().unwrap(), close.src_port);
            let (reason, name) = &self.expected[&end];
            if close.reason != Some(*reason) {
                wrong.push(format!("{name}, {end:?}: {:?} instead of {reason:?}", close.reason));
            }
            assert_eq!(close.polls_seen > 0, self.is_polled, "{name}: {close:?}");
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(told.closes().count(), self.expected.len());
        assert_eq!(told.lost, 0);
    }
}

fn exchange(client: &mut TcpStream, server: &mut TcpStream) {
    let mut buffer = [0; 2_000];
    for _ in 0..3 {
        client.write_all(&[1; 1_000]).unwrap();
        server.read_exact(&mut buffer[..1_000]).unwrap();
        server.write_all(&buffer).unwrap();
        client.read_exact(&mut buffer).unwrap();
    }
}

fn read_to_end(stream: &mut TcpStream) {
    // A reset is an error; either way nothing more arrives.
    let _ = stream.read_to_end(&mut Vec::new());
}

fn close_in_order(first: TcpStream, mut second: TcpStream) {
    drop(first);
    read_to_end(&mut second);
}

fn close_in_order_with_last_data(mut first: TcpStream, mut second: TcpStream) {
    first.write_all(&[3; 500]).unwrap();
    drop(first);
    read_to_end(&mut second);
}

fn reset(first: TcpStream, mut second: TcpStream) {
    SockRef::from(&first).set_linger(Some(Duration::ZERO)).unwrap();
    drop(first);
    read_to_end(&mut second);
}

/// Closing with unread data is a reset, too (RFC 2525, section 2.17).
fn close_unread(first: TcpStream, mut second: TcpStream) {
    second.write_all(&[4; 700]).unwrap();
    first.peek(&mut [0; 700]).unwrap();
    drop(first);
    read_to_end(&mut second);
}

const FAMILIES: [Family; 3] = [Family::V4, Family::V6, Family::Mapped];

#[test]
fn ends_of_polled_connections_are_told() {
    if !need_root_netns() {
        return;
    }
    let pair = Pair::new();
    let run = pair.collect(POLLED);
    let mut ends = Ends {
        pair: &pair,
        run: &run,
        expected: Expected::new(),
        listeners: Vec::new(),
        is_polled: true,
    };
    for family in FAMILIES {
        let in_order = (CloseReason::OUR_CLOSE, CloseReason::PEER_CLOSE);
        let by_reset = (CloseReason::OUR_RESET, CloseReason::PEER_RESET);
        ends.make(family, "close", in_order, close_in_order);
        ends.make(family, "close with last data", in_order, close_in_order_with_last_data);
        ends.make(family, "reset", by_reset, reset);
        ends.make(family, "close with data unread", by_reset, close_unread);
    }
    ends.check();
    assert_eq!(run.stop().unobserved, 0);
}

#[test]
fn ends_of_connections_that_no_poll_saw_are_told() {
    if !need_root_netns() {
        return;
    }
    let pair = Pair::new();
    let run = pair.collect(RARELY);
    let mut ends = Ends {
        pair: &pair,
        run: &run,
        expected: Expected::new(),
        listeners: Vec::new(),
        is_polled: false,
    };
    for family in FAMILIES {
        let in_order = (CloseReason::OUR_CLOSE, CloseReason::PEER_CLOSE);
        ends.make(family, "close", in_order, close_in_order);
        ends.make(family, "close with last data", in_order, close_in_order_with_last_data);
        ends.make(family, "reset", (CloseReason::OUR_RESET, CloseReason::PEER_RESET), reset);
        // Data arrived from the peer, and whether a reset did cannot be told.
        let unread = (CloseReason::UNKNOWN, CloseReason::PEER_RESET);
        ends.make(family, "close with data unread", unread, close_unread);
        let (client, port) = pair.bound(family);
        let nobody = SocketAddr::new(family.server(), 9);
        client.connect(&nobody.into()).unwrap_err();
        drop(client);
        ends.expect(&pair.here, port, CloseReason::REFUSED, "refused");
    }
    ends.check();
}

#[test]
fn connects_that_nobody_answers_are_told() {
    if !need_root_netns() {
        return;
    }
    let pair = Pair::new();
    for interval in [POLLED, RARELY] {
        let run = pair.collect(interval);
        let (client, port) = pair.bound(Family::V4);
        let nobody: SocketAddr = "10.79.0.77:9".parse().unwrap();
        // One second is the initial retransmission timeout (RFC 6298, section 2).
        client.connect_timeout(&nobody.into(), Duration::from_millis(1_300)).unwrap_err();
        drop(client);
        run.wait("closing record", |told| told.closes().count() == 1);
        let told = run.stop();
        let close = told.closes().next().unwrap();
        assert_eq!((close.src_port, close.reason), (port, Some(CloseReason::TIMED_OUT)));
        assert_eq!(close.dst_address, Some(nobody.ip()));
    }
}

#[test]
fn connections_whose_peer_falls_silent_are_told() {
    if !need_root_netns() {
        return;
    }
    // Without a poll, a timeout and a reset during retransmissions look the same.
    for (interval, reason) in [(POLLED, CloseReason::TIMED_OUT), (RARELY, CloseReason::UNKNOWN)] {
        let pair = Pair::new();
        let run = pair.collect(interval);
        let mut connections: Vec<_> = FAMILIES.iter().map(|&family| pair.open(family)).collect();
        for Connection { client, server, .. } in &mut connections {
            exchange(client, server);
            SockRef::from(&*client).set_tcp_user_timeout(Some(Duration::from_millis(600))).unwrap();
        }
        if interval == POLLED {
            run.poll();
        }
        pair.there.ip("link set dev vb down");
        let mut servers = Vec::new();
        for Connection { mut client, server, listener, .. } in connections {
            client.write_all(&[5; 400]).unwrap();
            client.read(&mut [0]).unwrap_err();
            servers.push((server, listener));
        }
        run.wait("closing records", |told| told.closes().count() == FAMILIES.len());
        let told = run.stop();
        for close in told.closes() {
            assert_eq!(close.reason, Some(reason), "{close:?}");
        }
    }
}

/// A reset removes a connection from every dump, but its event comes when its descriptor is closed.
#[test]
fn a_connection_that_vanished_is_told_once_its_descriptor_is_closed() {
    if !need_root_netns() {
        return;
    }
    let pair = Pair::new();
    let run = pair.collect(POLLED);
    let Connection { client, server, server_port, .. } = pair.open(Family::V4);
    run.poll();
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    run.wait("closing record", |told| told.closes().count() == 1);
    for _ in 0..3 {
        run.poll();
    }
    drop(server);
    run.wait("second closing record", |told| told.closes().count() == 2);
    run.poll();
    let told = run.stop();
    let last = told.closes().last().unwrap();
    assert_eq!((last.src_port, last.reason), (server_port, Some(CloseReason::PEER_RESET)));
    assert_eq!(told.unobserved, 0);
}

/// If the descriptor is never closed, the connection is gone anyway.
#[test]
fn a_connection_that_vanished_for_good_is_counted() {
    if !need_root_netns() {
        return;
    }
    let pair = Pair::new();
    let run = pair.collect(Duration::from_millis(160));
    let Connection { client, server, .. } = pair.open(Family::V6);
    run.poll();
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    run.wait("unobserved close", |told| told.unobserved == 1);
    for _ in 0..3 {
        run.poll();
    }
    drop(server);
    run.wait("late record", |told| told.closes().count() == 2);
    assert_eq!(run.stop().unobserved, 1);
}

#[test]
fn what_was_no_connection_is_counted_and_makes_no_record() {
    if !need_root_netns() {
        return;
    }
    let pair = Pair::new();
    let run = pair.collect(POLLED);
    pair.here.inside(|| {
        drop(TcpListener::bind("127.0.0.1:0").unwrap());
        drop(pair.bound(Family::V6));
        drop(Socket::new(Domain::IPV4, Type::STREAM, None).unwrap());
    });
    run.wait("three events", |told| told.observed == 3);
    let hop = run.close_hop();
    assert_eq!((hop.event(Event::NeverConnected), hop.unaccounted), (3, 0));
    let told = run.stop();
    assert_eq!((told.never_connected, told.emitted, told.closes().count()), (3, 0, 0));
    assert_eq!(told.filtered, 0, "there is no filter");
}
