//! Readers of flows beside a flood of sFlow: every datagram is accounted for, and readers have the analysis for a tenth of the time at most,
//! in bounded copies.

use crate::support::{Weir, hop};
use ledger::{HopKind, Reason};
use load::sflow::Flood;
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{TempDir, get, say, try_get};

/// Datagrams of five samples each, in all and in a second.
const DATAGRAMS: u64 = 100_000;
const PER_S: u64 = 40_000;
const READERS: usize = 8;

const PAGES: &[&str] = &[
    "/flows",
    "/flows/top?flow=pairs&n=10000",
    "/flows/top?flow=ports",
    "/flows/agents",
    "/flows/interfaces",
    "/flows/events",
    "/metrics",
];

const SCRIPTS: &[&str] = &[
    "/analyzer/json",
    "/agents/json",
    "/flow/json",
    "/metrics/json",
    "/metric/ALL/json",
    "/metric/ALL/sum:ifinoctets,pairs/json",
    "/dump/ALL/ALL/json",
    "/activeflows/ALL/pairs/json?maxFlows=10000&aggMode=sum",
    "/activeflows/192.0.2.1;192.0.2.2/ports/json",
    "/events/json",
    "/prometheus/metrics/ALL/ALL/txt",
    "/prometheus/flows/ALL/txt?metric=m&key=ipsource&value=bytes",
];

#[test]
fn readers_take_a_tenth_of_the_analysis_at_most() {
    testkit::alone();
    let dir = TempDir::new();
    let rest = testkit::free_port();
    let text = format!(
        "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
         [flows]\nfrom = [\"in\"]\nrest = \"127.0.0.1:{rest}\"\n\
         [[flow]]\nname = \"pairs\"\nkeys = [\"src\", \"dst\"]\nmetrics = true\n\
         [[flow]]\nname = \"ports\"\nkeys = [\"src\", \"dst_port\"]\n"
    );
    fs::write(dir.file("weir.toml"), text).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    let scripts = std::net::SocketAddr::from(([127, 0, 0, 1], rest));

    // The same load twice: first alone, then read by all.
    let mut flood = Flood::new(50, 200);
    let dropped_alone = play(&weir, &mut flood, DATAGRAMS);
    let began = Instant::now();
    let before = readers(&weir);
    let (is_over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let dropped_beside = thread::scope(|scope| {
        for first in 0..READERS {
            let (is_over, read, admin) = (&is_over, &read, weir.admin);
            scope.spawn(move || {
                let pages = PAGES.iter().map(|page| (admin, page));
                let asked = pages.chain(SCRIPTS.iter().map(|page| (scripts, page)));
                for (address, page) in asked.cycle().skip(first * 3) {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    // As many long answers as there may be are under way: that is told, and asked again.
                    match try_get(address, page, "*/*") {
                        Ok(_) => _ = read.fetch_add(1, Ordering::Relaxed),
                        Err(why) => assert!(why.contains(" 429 "), "{page}: {why}"),
                    }
                }
            });
        }
        // However it ends: the readers are waited for.
        let _readers = Stop(&is_over);
        play(&weir, &mut flood, 2 * DATAGRAMS) - dropped_alone
    });
    let after = readers(&weir);
    let passed_ns = began.elapsed().as_nanos() as u64;

    let held_ns = after.held_ns - before.held_ns;
    say(&format!(
        "{PER_S} datagrams/s: {dropped_alone} of {DATAGRAMS} dropped alone, {dropped_beside} beside {READERS} readers, {} pages; they held the \
         analysis {} times, {:.2} % of the time, {} flows at most",
        read.into_inner(),
        after.holds - before.holds,
        100.0 * held_ns as f64 / passed_ns as f64,
        after.copied_max,
    ));
    assert!(after.holds > before.holds, "nobody has read");
    assert!(after.copied_max <= 1_024, "{after:?}");
    // What a reader that came first had saved, and one hold that is still to be waited for.
    assert!(held_ns <= passed_ns / 10 + 500_000 + after.longest_ns, "{held_ns} of {passed_ns} ns");
    weir.stop();
}

/// Says that it is over when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends datagrams until so many were sent in all, in even portions. Returns how many the analysis did not get since the start: every
/// datagram is read or dropped by name.
fn play(weir: &Weir, flood: &mut Flood, until: u64) -> u64 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(weir.address()).unwrap();
    let (began, mut sent) = (Instant::now(), 0);
    while sent < DATAGRAMS {
        for datagram in flood.bytes().chunks(flood.datagram_bytes()) {
            if sent == DATAGRAMS {
                break;
            }
            if sent.is_multiple_of(50) {
                let due = Duration::from_micros(sent * 1_000_000 / PER_S);
                thread::park_timeout(due.saturating_sub(began.elapsed()));
            }
            socket.send(datagram).unwrap();
            sent += 1;
        }
        flood.go_on();
    }

    let dropped = std::cell::Cell::new(None);
    weir.wait_for(|ledger| {
        let socket = hop(ledger, HopKind::Socket, "");
        let tap = hop(ledger, HopKind::Target, "flows");
        let late = tap.dropped_for(Reason::QueueFull).count;
        let missing = until - tap.received.count.min(until);
        // Lost by the kernel, or, where the process lacks CPU time, at the ring.
        let earlier = ledger.hops.iter().filter(|hop| hop.hop != HopKind::Target);
        let lost = earlier.flat_map(|hop| &hop.dropped).map(|one| one.amount.count).sum::<u64>();
        let is_all = socket.received.count == until
            && ledger.hops.iter().all(|hop| hop.in_flight.is_zero())
            && tap.delivered.count + late == tap.received.count
            && lost == missing;
        dropped.set(is_all.then_some(late + missing));
        is_all
    });
    dropped.get().unwrap()
}

#[derive(Debug)]
struct Readers {
    holds: u64,
    held_ns: u64,
    longest_ns: u64,
    copied_max: u64,
}

fn readers(weir: &Weir) -> Readers {
    let flows: Value = serde_json::from_str(&get(weir.admin, "/flows", "*/*")).unwrap();
    let readers = &flows["readers"];
    let text = |name: &str| readers[name].as_str().unwrap().parse().unwrap();
    Readers {
        holds: readers["holds"].as_u64().unwrap(),
        held_ns: text("held_ns"),
        longest_ns: text("longest_ns"),
        copied_max: readers["copied_max"].as_u64().unwrap(),
    }
}
