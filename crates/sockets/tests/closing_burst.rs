//! Many connections that close: none is missing without being counted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "sockets/support.rs"]
mod support;

use ledger::Reason;
use record::CloseReason;
use sockets::Scope;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Keep, RARELY, Rows, Run, options};
use testkit::{Netns, need_root_netns, say, within};

fn only_closes() -> Keep {
    Keep { rows: Rows::Closes, ..Keep::default() }
}

/// Opens one connection with data in both directions, closed in order by its client. Returns how long it lived.
fn live_shortly(listener: &TcpListener) -> Duration {
    let began = Instant::now();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut buffer = [0; 64];
    client.write_all(&[1; 32]).unwrap();
    server.read_exact(&mut buffer[..32]).unwrap();
    server.write_all(&buffer).unwrap();
    client.read_exact(&mut buffer).unwrap();
    drop(client);
    assert_eq!(server.read(&mut buffer).unwrap(), 0);
    drop(server);
    began.elapsed()
}

#[test]
fn ten_thousand_short_connections_between_two_polls_are_all_told() {
    const CONNECTIONS: usize = 10_000;
    const SHORT: Duration = Duration::from_millis(10);
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let run = Run::start(&netns, options(RARELY, Scope::Own), only_closes());
    let listener = netns.inside(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let (mut short, mut opened) = (0, 0);
    netns.inside(|| {
        // One that took longer, because the machine was busy, is reported as well but does not count.
        while short < CONNECTIONS {
            short += usize::from(live_shortly(&listener) < SHORT);
            opened += 1;
        }
    });
    let sockets = 2 * opened as u64;
    assert!(within(Duration::from_secs(20), || run.closed() == sockets), "{}", run.closed());
    let hop = run.close_hop();
    let lost = hop.dropped_for(Reason::EventBuffer).count;
    let polls = run.keep.told.lock().unwrap().polls;
    let told = run.stop();
    say(&format!(
        "10,000 short connections: {sockets} sockets, {} told, {lost} lost",
        told.rows.len()
    ));
    assert_eq!(told.rows.len() as u64 + lost, sockets);
    assert_eq!(hop.dropped_total().count, lost);
    assert_eq!(polls, 1, "all of them are between two polls");
    let mut cookies: Vec<u64> = told.rows.iter().map(|row| row.cookie).collect();
    cookies.sort_unstable();
    cookies.dedup();
    assert_eq!(cookies.len(), told.rows.len(), "none is told twice");
    let count = |reason| told.rows.iter().filter(|row| row.reason == Some(reason)).count() as u64;
    let (ours, theirs) = (count(CloseReason::OUR_CLOSE), count(CloseReason::PEER_CLOSE));
    say(&format!("{ours} our_close, {theirs} peer_close, of {}", told.rows.len()));
    assert!(ours + theirs >= (sockets - lost) * 99 / 100, "{ours} + {theirs}");
}

#[test]
fn what_overruns_the_buffer_is_counted_exactly() {
    const ROUNDS: u64 = 8;
    const PAIRS: u64 = 200;
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let mut options = options(Duration::from_millis(100), Scope::Own);
    options.event_buffer_bytes = 8 * 1_024;
    let keep = Keep { work: Duration::from_micros(200), ..only_closes() };
    let run = Run::start(&netns, options, keep);
    let listener = netns.inside(|| TcpListener::bind("[::1]:0").unwrap());
    let address = listener.local_addr().unwrap();
    for _ in 0..ROUNDS {
        let pairs: Vec<_> = (0..PAIRS)
            .map(|_| {
                let client = netns.inside(|| TcpStream::connect(address).unwrap());
                (client, listener.accept().unwrap().0)
            })
            .collect();
        drop(pairs);
    }
    drop(listener);
    let sockets = ROUNDS * PAIRS * 2 + 1;
    assert!(within(Duration::from_secs(20), || run.closed() == sockets), "{}", run.closed());
    // Events lost for lack of room can only be fewer than the closes; the count does not go on.
    run.poll();
    let hop = run.close_hop();
    let lost = hop.dropped_for(Reason::EventBuffer).count;
    let told = run.stop();
    say(&format!("overrun: {sockets} closed, {} told, {lost} lost", told.rows.len()));
    assert!(lost > 0 && !told.rows.is_empty());
    // The listener is not a connection, if its event was not among those lost.
    assert_eq!(told.rows.len() as u64 + told.never_connected + lost, sockets);
    assert_eq!((told.observed, told.lost, told.emitted), (sockets, lost, told.rows.len() as u64));
    assert_eq!(hop.unaccounted, 0);
}

#[test]
fn namespaces_that_go_right_after_their_connections_lose_none() {
    const PAIRS: usize = 30;
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let others: Vec<Netns> = (0..6).map(|_| Netns::new()).collect();
    let names = others.iter().map(|netns| netns.name.clone()).collect();
    let run =
        Run::start(&home, options(Duration::from_millis(200), Scope::Named(names)), only_closes());
    let mut expected = BTreeMap::new();
    std::thread::scope(|scope| {
        for netns in others {
            expected.insert(netns.name.clone(), 2 * PAIRS);
            scope.spawn(move || {
                netns.inside(|| {
                    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                    for _ in 0..PAIRS {
                        live_shortly(&listener);
                    }
                });
                drop(netns);
            });
        }
    });
    let sockets = expected.values().sum::<usize>();
    run.wait("closing records", |told| told.rows.len() >= sockets);
    run.poll();
    let told = run.stop();
    let mut counts = BTreeMap::new();
    for row in &told.rows {
        *counts.entry(row.netns_name.clone().unwrap_or_default()).or_insert(0) += 1;
    }
    assert_eq!(counts, expected);
    assert_eq!((told.lost, told.unobserved), (0, 0));
}

/// One end of a pair of interfaces disappears with the namespace of the other.
#[test]
fn a_namespace_is_gone_within_a_second_of_its_last_user() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let keep = Keep::default();
    let run = Run::start(&home, options(Duration::from_millis(100), Scope::All), keep);
    let mut longest = Duration::ZERO;
    for round in 0..10 {
        let other = Netns::new();
        home.connect(&format!("v{round}"), &other, "peer");
        let name = other.name.clone();
        let stream = other.inside(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            for _ in 0..20 {
                live_shortly(&listener);
            }
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap())
        });
        run.wait("poll of it", |told| {
            told.rows.iter().any(|row| row.netns_name.as_ref() == Some(&name))
        });
        drop(other);
        // The sockets are its last users.
        drop(stream);
        let began = Instant::now();
        let is_gone = || {
            let list = Command::new("ip").args(["-n", &home.name, "-o", "link"]).output().unwrap();
            !String::from_utf8_lossy(&list.stdout).contains(&format!(" v{round}@"))
        };
        assert!(within(Duration::from_secs(5), is_gone), "v{round} stays");
        longest = longest.max(began.elapsed());
    }
    say(&format!("a namespace was gone after {longest:?} at most"));
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    run.stop();
}
