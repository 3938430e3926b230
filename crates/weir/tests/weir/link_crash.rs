//! Either end of a link is killed, again and again, while much is on its way: what became of it has a name.
//!
//! `WEIR_LINK_CRASHES` sets how often.

use crate::support::{Weir, hop};
use ledger::{Earlier, HopKind, Peer, Snapshot};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{LossyWay, TempDir, free_port, wait_for};

/// Datagrams a second.
const RATE: u64 = 20_000;

/// Packets of a thousand that are lost, in each direction.
const LOST_PER_1000: u32 = 100;

/// What arrived behind the receiving Weir, by its number: how often.
struct Oracle {
    address: String,
    count: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<HashMap<u64, u32>>,
}

impl Oracle {
    fn start() -> Oracle {
        let (socket, address) = testkit::receiver();
        sys::socket::set_receive_buffer(socket.as_fd(), 64 << 20).unwrap();
        let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ends) = (Arc::clone(&count), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let (mut buffer, mut times) = ([0; 2_048], HashMap::new());
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            loop {
                match socket.recv(&mut buffer) {
                    Ok(len) => {
                        let number = u64::from_le_bytes(*buffer[..len].first_chunk().unwrap());
                        *times.entry(number).or_default() += 1;
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) if ends.load(Ordering::Relaxed) => return times,
                    Err(_) => {}
                }
            }
        });
        Oracle { address, count, is_over, thread }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Sends numbered datagrams at [`RATE`] until it is told to stop. Those that nobody takes are nobody's.
fn load(to: SocketAddr, is_over: &AtomicBool) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (begin, mut number) = (Instant::now(), 0u64);
    while !is_over.load(Ordering::Relaxed) {
        let due = begin.elapsed().as_micros() as u64 * RATE / 1_000_000;
        while number < due {
            let mut datagram = [0; 200];
            datagram[..8].copy_from_slice(&number.to_le_bytes());
            let _ = socket.send_to(&datagram, to);
            number += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The other end of a link in a ledger.
fn peer(ledger: &Snapshot, kind: HopKind, target: &str) -> Option<Peer> {
    hop(ledger, kind, target).peers.first().cloned()
}

/// Waits until more arrives behind the receiving Weir.
fn wait_for_more(oracle: &Oracle) {
    let before = oracle.count();
    wait_for("datagrams go on", || (oracle.count() > before + RATE / 4).then_some(()));
}

#[test]
fn after_either_end_was_killed_everything_has_a_name_and_nothing_came_twice() {
    let crashes: u64 = std::env::var("WEIR_LINK_CRASHES").map_or(4, |times| times.parse().unwrap());
    let folder = TempDir::new();
    let key = crate::link::key(&folder, "web-1");
    let oracle = Oracle::start();
    let to = format!("udp://{}", oracle.address);
    let (far_port, near_port) = (free_port(), free_port());
    let state = |name: &str| folder.file(name).display().to_string();
    let shown = |path: &Path| path.display().to_string();

    let far = || {
        let (key, state) = (shown(&key), state("far.state"));
        let listen = format!("weir://127.0.0.1:{far_port}?name=in&keys={key}&state={state}");
        Weir::relay(&["--listen", &listen, "--to", &to])
    };
    let way = LossyWay::to(SocketAddr::from(([127, 0, 0, 1], far_port)), LOST_PER_1000);
    let near = || {
        let (key, state, addr) = (shown(&key), state("near.state"), way.addr);
        let to = format!(
            "weir://{addr}?name=far&bandwidth=1Gbit/s&window=1048576&key={key}&state={state}"
        );
        Weir::relay(&["--listen", &format!("127.0.0.1:{near_port}?name=in"), "--to", &to])
    };

    let (mut at_far, mut at_near) = (far(), near());
    let is_over = AtomicBool::new(false);
    let (near_ledger, far_ledger) = thread::scope(|scope| {
        let source = scope.spawn(|| load(SocketAddr::from(([127, 0, 0, 1], near_port)), &is_over));
        for crash in 0..crashes {
            wait_for_more(&oracle);
            if crash % 2 == 0 {
                at_far.kill();
                at_far = far();
            } else {
                at_near.kill();
                at_near = near();
            }
        }
        wait_for_more(&oracle);
        is_over.store(true, Ordering::Relaxed);
        source.join().unwrap();
        let near_ledger = at_near.wait_for(|ledger| {
            let target = hop(ledger, HopKind::Target, "far");
            target.in_flight.is_zero() && peer(ledger, HopKind::Target, "far").is_some()
        });
        let far_ledger = at_far.wait_for(|ledger| {
            ledger.hops.iter().all(|hop| hop.in_flight.is_zero())
                && peer(ledger, HopKind::Receive, "").is_some()
        });
        (near_ledger, far_ledger)
    });

    let (delivered, earlier) = compare(&near_ledger, &far_ledger);

    // What the receiving Weir had accepted and not passed on when it was killed is what it held: no more than its ring has.
    oracle.is_over.store(true, Ordering::Relaxed);
    let times = oracle.thread.join().unwrap();
    let twice = times.values().filter(|count| **count > 1).count();
    assert_eq!(twice, 0, "came twice");
    let came = times.len() as u64;
    assert!(came <= delivered, "{came} of {delivered}");
    let held = delivered - came;
    testkit::say(&format!(
        "{crashes} crashes: {} taken before the last, {delivered} delivered, {} lost in a crash of the sender, {held} held by the \
         receiver, {} dropped",
        earlier.received.count, earlier.lost_in_crash.count, earlier.dropped.count
    ));
    assert!(held <= crashes.div_ceil(2) * RATE, "{held} held in {crashes} crashes");
}

/// Holds what both ends say against each other: what was delivered in all, and what former processes of the sender took.
fn compare(near_ledger: &Snapshot, far_ledger: &Snapshot) -> (u64, Earlier) {
    let target = hop(near_ledger, HopKind::Target, "far");
    let here = peer(near_ledger, HopKind::Target, "far").unwrap();
    let there = peer(far_ledger, HopKind::Receive, "").unwrap();
    let earlier = here.earlier.unwrap();
    let named = earlier.delivered.count
        + earlier.dropped.count
        + earlier.uncertain.count
        + earlier.lost_in_crash.count;
    assert_eq!(earlier.received.count, named, "{earlier:?}");
    assert_eq!(earlier.uncertain.count, 0, "{earlier:?}");
    let delivered = earlier.delivered.count + target.delivered.count;
    assert_eq!((&here.run, &here.life), (&there.run, &there.life));
    assert_eq!(there.accepted.count, delivered, "both ends say the same: {here:?} {there:?}");
    assert_eq!(here.accepted.count, delivered);
    (delivered, earlier)
}
