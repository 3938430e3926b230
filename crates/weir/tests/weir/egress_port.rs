//! A peer that knows its clients by their address and port, as goben's server does, sees one client where the target has a
//! fixed source port, however many senders there are.

use crate::support::{Ended, Place, SCHEDULES, Weir, free_udp_address};
use ledger::HopKind;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use testkit::{DEADLINE, say};

const SENDERS: u64 = 8;
const EACH: u64 = 50;

/// Answers each datagram to where it came from, and counts its clients' datagrams.
struct Peer {
    socket: UdpSocket,
    clients: BTreeMap<SocketAddr, u64>,
}

impl Peer {
    fn new() -> Peer {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Peer { socket, clients: BTreeMap::new() }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    fn serve(&mut self, count: u64) {
        let mut buffer = [0; 100];
        for _ in 0..count {
            let (len, client) = self.socket.recv_from(&mut buffer).unwrap();
            self.socket.send_to(&buffer[..len], client).unwrap();
            *self.clients.entry(client).or_default() += 1;
        }
    }
}

/// One life of a relay: several senders, two peers. The relay must take their answers for nothing.
fn run(schedule: &str, port: u16, fixed: &mut Peer, free: &mut Peer) -> Ended {
    let targets = [
        format!("{}?name=fixed&source_port={port}", fixed.address()),
        format!("{}?name=free", free.address()),
    ];
    let relay = Weir::tee(&Place::Here, &targets, &["--schedule", schedule]);
    let senders: Vec<_> = (0..SENDERS).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for n in 0..SENDERS * EACH {
        let sender = &senders[(n % SENDERS) as usize];
        sender.send_to(&n.to_be_bytes(), relay.listen()).unwrap();
        fixed.serve(1);
        free.serve(1);
    }
    let ended = relay.stop();
    let socket = ended.hop(HopKind::Socket, None);
    assert_eq!(socket.received.count, SENDERS * EACH, "an answer came in again: {socket:?}");
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    ended
}

#[test]
fn a_peer_sees_one_client_when_the_port_is_fixed() {
    for schedule in SCHEDULES {
        let port = free_udp_address().port();
        let (mut fixed, mut free) = (Peer::new(), Peer::new());
        for _ in 0..2 {
            run(schedule, port, &mut fixed, &mut free);
        }
        say(&format!("{schedule}: fixed {:?}, free {:?}", fixed.clients, free.clients));
        let only = SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(fixed.clients, BTreeMap::from([(only, 2 * SENDERS * EACH)]));
        assert_eq!(free.clients.values().sum::<u64>(), 2 * SENDERS * EACH);
    }
}
