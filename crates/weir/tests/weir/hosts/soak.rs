//! Many changes at random, one after the other, while datagrams flow: descriptors, threads and memory stay as they were.
//!
//! `WEIR_SOAK_CHANGES=1000 WEIR_SOAK_SECONDS=600 cargo test -p weir --test weir hosts::soak`

use super::matrix::{Bench, setting};
use std::fs;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Random, say, wait_for};

/// After so many changes every way is waited for.
const STRETCH: u64 = 50;

/// What the host is like now.
struct Host {
    /// The last part of the address of each wire.
    parts: [u32; 2],
    /// The wire of the routes.
    wire: u32,
    /// What reads at the path, and what did before it.
    sockets: Vec<UnixDatagram>,
}

impl Host {
    fn change(&mut self, bench: &mut Bench, random: u64) -> &'static str {
        let n = 1 + (random / 8 % 2) as u32;
        let rig = &bench.rig;
        let what = match random % 8 {
            0 | 1 => {
                let part = &mut self.parts[n as usize - 1];
                rig.remove(n, *part);
                *part = 78 - *part;
                rig.add(n, *part);
                "another address"
            }
            2 | 3 => {
                self.wire = 3 - self.wire;
                "a route by another interface"
            }
            4 => {
                rig.relay.ip(&format!("link del v{n}"));
                rig.make_wire(n);
                rig.join(&bench.receivers.member);
                self.parts[n as usize - 1] = 1;
                "an interface made again"
            }
            5 => {
                rig.relay.ip(&format!("link set v{n} down"));
                rig.relay.ip(&format!("link set v{n} up"));
                let part = self.parts[n as usize - 1];
                rig.relay.ip(&format!("address add fd09:{n}::{part}/64 dev v{n} nodad"));
                "a link that was down"
            }
            6 => {
                let mut at = bench.receivers.named_at.lock().unwrap();
                *at = 1 - *at;
                rig.relay.write_hosts(&format!("10.9.9.{} collector.test\n", 9 - *at));
                "a name that moved"
            }
            _ => {
                self.replace_receiver(bench);
                "another receiver at the path"
            }
        };
        bench.rig.route_all(self.wire);
        bench.rig.relay.ip(&format!("route replace 10.9.9.8 via 10.9.{}.9", self.wire));
        what
    }

    /// The one before lives on, until it is the third.
    fn replace_receiver(&mut self, bench: &mut Bench) {
        fs::remove_file(&bench.receivers.path).unwrap();
        let socket = UnixDatagram::bind(&bench.receivers.path).unwrap();
        bench.judges.ways.retain(|(name, _)| !name.starts_with("unix"));
        let way = bench.judges.way("unix anew");
        bench.judges.watch_unix(&socket, way);
        self.sockets.push(socket);
        if self.sockets.len() > 2 {
            self.sockets.remove(0).shutdown(Shutdown::Both).unwrap();
        }
    }
}

/// Descriptors, threads, and KiB of memory of the relay.
fn holdings(bench: &Bench) -> [u64; 3] {
    let of = |folder: &str| {
        fs::read_dir(format!("/proc/{}/{folder}", bench.near.pid())).unwrap().count() as u64
    };
    [of("fd"), of("task"), bench.near.resident_kib()]
}

#[test]
fn many_changes_leave_nothing_behind() {
    let changes = setting("WEIR_SOAK_CHANGES", 0);
    let time = Duration::from_secs(setting("WEIR_SOAK_SECONDS", 600));
    let Some(mut bench) = (changes > 0).then(Bench::start).flatten() else { return };
    // A membership of an interface that is gone still counts.
    let members = "/proc/sys/net/ipv4/igmp_max_memberships";
    bench.rig.far.inside(|| fs::write(members, "4000").unwrap());
    let mut host = Host { parts: [1, 1], wire: 1, sockets: Vec::new() };
    let seed = setting("WEIR_SOAK_SEED", 26);
    let (mut random, begin) = (Random(seed), Instant::now());
    // The first changes use what is used from then on.
    for kind in 0..16 {
        host.change(&mut bench, kind);
    }
    bench.judges.expect_more("one of each");
    let before = holdings(&bench);
    say(&format!("seed {seed}; descriptors, threads, KiB: {before:?}"));

    let (mut slowest, mut middle) = (Duration::ZERO, before);
    for number in 1..=changes {
        let what = host.change(&mut bench, random.next());
        if number % STRETCH == 0 || number == changes {
            let took = bench.judges.expect_more(&format!("{number}: {what}"));
            slowest = slowest.max(took);
            say(&format!("{:?}: {:?}", begin.elapsed(), holdings(&bench)));
            if number <= changes / 2 {
                middle = holdings(&bench);
            }
        }
        let due = time.mul_f64(number as f64 / changes as f64);
        thread::park_timeout(due.saturating_sub(begin.elapsed()));
    }
    let settled = |bench: &Bench| {
        let [descriptors, threads, _] = holdings(bench);
        descriptors <= before[0] && threads <= before[1]
    };
    wait_for(
        || format!("{:?} as before, {before:?}", holdings(&bench)),
        || settled(&bench).then_some(()),
    );
    let after = holdings(&bench);
    say(&format!("before {before:?}, middle {middle:?}, after {after:?}; slowest {slowest:?}"));
    let said = bench.end();
    // Rings and queues are touched as far as outages fill them, most of which the first half has done.
    assert!(after[2] < middle[2] + middle[2] / 10 + 4_096, "{middle:?} {after:?}: {said}");
}
