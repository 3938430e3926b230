//! Chains of Weirs whose clocks differ: what another host says about time is passed on, and decides nothing.

use crate::link::{FarWeir, Seen, identity, key, link_to, sender_options};
use crate::support::named;
use hop::packet::{Origin, Sender};
use hop::{Near, Next, Taken};
use ledger::{HopKind, HopSnapshot, Reason};
use relay::TargetKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sys::clock::{monotonic_ns, realtime_ns};
use testkit::wait_for;

const HOUR_NS: u64 = 3_600_000_000_000;

/// The sending end of a link on a host with another clock.
struct FirstWeir {
    near: Near,
    socket: UdpSocket,
    times_unix_ns: Vec<u64>,
    taken: u64,
}

impl FirstWeir {
    fn start(to: SocketAddr, times_unix_ns: Vec<u64>) -> FirstWeir {
        let near = Near::new(key(), identity(), sender_options(), monotonic_ns());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(to).unwrap();
        socket.set_nonblocking(true).unwrap();
        FirstWeir { near, socket, times_unix_ns, taken: 0 }
    }

    /// Sends one datagram for each time, and waits until all were accepted.
    fn send_all(&mut self) {
        let count = self.times_unix_ns.len() as u64;
        wait_for("the next Weir to accept all", || {
            self.turn();
            (self.near.fates().delivered.datagrams == count).then_some(())
        });
    }

    fn turn(&mut self) {
        let (now_ns, mut packet) = (monotonic_ns(), [0; 2_048]);
        while let Ok(len) = self.socket.recv(&mut packet) {
            self.near.on_packet(now_ns, &mut packet[..len]);
        }
        let mut out = Vec::new();
        if self.near.hello(now_ns, realtime_ns(), &mut out) {
            self.socket.send(&out).unwrap();
        }
        loop {
            out.clear();
            match self.near.next(now_ns) {
                Next::Data(one) => {
                    let received_unix_ns = self.times_unix_ns[one.number as usize];
                    let origin = Origin { received_unix_ns, sender: Sender::Nobody, bytes: 4 };
                    self.near.seal_data(now_ns, &one, origin, b"text", &mut out);
                }
                Next::Floor { packet, floor } => {
                    self.near.seal_floor(now_ns, packet, floor, &mut out);
                }
                Next::Wait { .. } => {
                    let is_more = self.taken < self.times_unix_ns.len() as u64;
                    if !is_more || !self.near.has_room(now_ns, 4) {
                        return;
                    }
                    let expires_ns = now_ns + 60_000_000_000;
                    self.near.take(now_ns, Taken { number: self.taken, bytes: 4, expires_ns });
                    self.taken += 1;
                    continue;
                }
            }
            self.socket.send(&out).unwrap();
        }
    }
}

fn far_hop(weir: &FarWeir) -> HopSnapshot {
    let snapshot = weir.ledger.check();
    assert!(snapshot.is_balanced(), "{snapshot:#?}");
    snapshot.hop(HopKind::Target, "in", Some("far")).unwrap().clone()
}

/// Times by a clock that is an hour ahead, an hour behind, has never been set, and is far in the future.
fn times() -> Vec<u64> {
    let now = realtime_ns();
    [now + HOUR_NS, now - HOUR_NS, 0, u64::MAX].repeat(50)
}

#[test]
fn a_clock_of_the_first_host_expires_nothing_at_the_second() {
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let rows = TargetKind::Rows(Box::new(Seen(Arc::clone(&seen))));
    let third = FarWeir::with("127.0.0.1:0", vec![(named("rows"), rows)]);
    let deadline = Duration::from_secs(20);
    let to_third = vec![(named("far"), link_to(third.addr, deadline))];
    let second = FarWeir::with("127.0.0.1:0", to_third);
    let mut first = FirstWeir::start(second.addr, times());
    first.send_all();

    let hop = wait_for("the second to know the fate of all", || {
        let hop = far_hop(&second);
        (hop.received.count == 200 && hop.in_flight.is_zero()).then_some(hop)
    });
    assert_eq!((hop.delivered.count, hop.dropped_for(Reason::Expired).count), (200, 0));
    second.stop();
    third.stop();
    let mut seen: Vec<_> = seen.lock().unwrap().iter().map(|(_, unix_ns)| *unix_ns).collect();
    let mut sent = first.times_unix_ns.clone();
    seen.sort_unstable();
    sent.sort_unstable();
    assert_eq!(seen, sent, "the third has the times of the first");
}

#[test]
fn a_clock_of_the_first_host_keeps_nothing_alive_at_the_second() {
    // Nobody answers there.
    let third = UdpSocket::bind("127.0.0.1:0").unwrap();
    let deadline = Duration::from_millis(300);
    let to_third = vec![(named("far"), link_to(third.local_addr().unwrap(), deadline))];
    let second = FarWeir::with("127.0.0.1:0", to_third);
    let mut first = FirstWeir::start(second.addr, times());
    first.send_all();
    wait_for("all to expire", || {
        first.turn();
        let hop = far_hop(&second);
        (hop.dropped_for(Reason::Expired).count == 200).then_some(())
    });
    second.stop();
}
