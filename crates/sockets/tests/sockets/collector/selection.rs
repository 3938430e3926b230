//! Which sockets become records: by filter, sample, and change.

use super::law::check_all;
use super::people::{Crowd, Ends};
use super::watch::{Cookies, Watch};
use crate::support::{RARELY, options};
use ledger::{Gauge, TcpState};
use socket2::SockRef;
use sockets::filter::Filter;
use sockets::{Options, Scope};
use std::fs;
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::time::Duration;
use testkit::{Netns, need_root_netns};

const OFTEN: Duration = Duration::from_millis(50);

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

/// Whether an end of a connection still waits for the other: FIN-WAIT-1, FIN-WAIT-2, LAST-ACK or CLOSING (include/net/tcp_states.h).
fn is_anything_closing() -> bool {
    let is_closing = |line: &str| {
        let state = line.split_whitespace().nth(3);
        state.is_some_and(|state| ["04", "05", "09", "0B"].contains(&state))
    };
    let table = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap();
    ["tcp", "tcp6"].into_iter().any(|name| table(name).lines().skip(1).any(is_closing))
}

#[test]
fn what_does_not_change_is_told_in_keyframes_only_and_what_does_at_once() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let mut crowd = Crowd::new(&netns, Ends::Mapped, 20);
    // Timers run, and remnants of connections wait for their end: only the clock changes them.
    for (client, server) in &crowd.pairs {
        SockRef::from(client).set_keepalive(true).unwrap();
        SockRef::from(server).set_keepalive(true).unwrap();
    }
    for (client, server) in crowd.pairs.drain(15..) {
        drop(client);
        drop(server);
    }
    testkit::wait_for("one end of each that is left", || {
        (!netns.inside(is_anything_closing)).then_some(())
    });
    let options = Options {
        keyframe_every: Some(number(5)),
        listen_every: number(1_000),
        ..options(OFTEN, Scope::Own)
    };
    let watch = Watch::start(&netns, options);
    watch.wait_polls(1);
    let busy = crowd.cookies(0);
    let mut written = Vec::new();
    while watch.polls() < 17 {
        let (client, server) = &mut crowd.pairs[0];
        client.write_all(b"hello").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        // The current poll may have met one end before the write, and the other after it.
        written.push(watch.next_poll());
    }
    let listener = SockRef::from(&crowd.listener).cookie().unwrap();
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    let all = told.cookies_of(1);
    assert_eq!(all.len(), 15 * 2 + 5 + 1);
    for poll in 1..=17 {
        let totals = &told.totals[poll as usize - 1];
        let is_keyframe = poll % 5 == 1;
        assert_eq!(totals["is_keyframe"], u64::from(is_keyframe));
        let told = told.cookies_of(poll);
        if is_keyframe {
            assert_eq!(told, all, "poll {poll}");
            assert!(told.contains(&listener), "a keyframe has listeners");
        } else {
            let idle: Vec<_> = told.iter().filter(|cookie| !busy.contains(cookie)).collect();
            assert_eq!(idle, [] as [&u64; 0], "poll {poll}");
        }
    }
    for cookie in busy {
        let sent: Vec<_> = told.polled().filter(|seen| seen.cookie == cookie).collect();
        let counts = |seen: &&&super::watch::Seen| {
            let fields = seen.fields();
            (fields["bytes_sent"].clone(), fields["bytes_received"].clone())
        };
        for (at, poll) in written.iter().enumerate() {
            // At least this many bytes were written by then.
            let told =
                sent.iter().rfind(|seen| seen.poll <= *poll).map(|seen| counts(&seen)).unwrap();
            let bytes = [told.0, told.1].into_iter().filter_map(|n| n.as_u64()).max().unwrap();
            assert!(bytes >= 5 * (at as u64 + 1), "poll {poll}: {bytes}");
        }
    }
}

#[test]
fn a_sample_has_the_same_connections_in_every_poll_and_at_their_end() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let crowd = Crowd::new(&netns, Ends::V4, 1_000);
    let options = Options { sample: number(4), ..options(OFTEN, Scope::Own) };
    let watch = Watch::start(&netns, options);
    watch.wait_polls(4);
    let sampled = watch.told.lock().unwrap().cookies_of(1);
    let listener = SockRef::from(&crowd.listener).cookie().unwrap();
    drop(crowd);
    watch.wait("closes", |told| told.sum("closes_observed") >= 2_000);
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    for poll in 2..=4 {
        let found = told.cookies_of(poll);
        assert!(found.is_subset(&sampled), "poll {poll}");
    }
    assert_eq!(told.cookies_of(2), sampled);
    // 500 expected, with a deviation of 19.
    assert!((400..600).contains(&sampled.len()), "{}", sampled.len());
    let closed: Cookies = told.closed().map(|seen| seen.cookie).collect();
    assert_eq!(closed, sampled.iter().copied().filter(|&cookie| cookie != listener).collect());
    assert_eq!(told.totals[0]["sockets_sampled"] + sampled.len() as u64, 2_001);
    assert_eq!(told.sum("closes_sampled") + closed.len() as u64, 2_000);
}

#[test]
fn a_filter_is_decided_here_and_there_and_counts_what_it_leaves_out_here() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let (near, far) = (Crowd::new(&netns, Ends::V4, 30), Crowd::new(&netns, Ends::Mapped, 20));
    let mut chosen = Crowd::new(&netns, Ends::V4, 10);
    for (client, _) in &mut chosen.pairs {
        client.write_all(b"0123456789").unwrap();
    }
    let filter = format!(
        "state established and ( sport = :{} or sport = :{} ) and bytes_received >= 10",
        near.port(),
        chosen.port()
    );
    let filter = Filter::parse(&filter).unwrap();
    let watch =
        Watch::start(&netns, Options { filter: Some(filter), ..options(OFTEN, Scope::Own) });
    watch.wait_polls(2);
    let wanted: Cookies = (0..10).map(|at| chosen.cookies(at)[1]).collect();
    drop((near, far, chosen));
    watch.wait("closes", |told| told.sum("closes_observed") >= 123);
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    assert_eq!(told.cookies_of(1), wanted);
    let first = &told.totals[0];
    // The kernel left out the others.
    assert_eq!((first["sockets_visited"], first["sockets_filtered"]), (40, 30));
    let closed: Cookies = told.closed().map(|seen| seen.cookie).collect();
    assert_eq!(closed, wanted);
    // Both ends of 60 connections; and three listeners, which are not connections.
    assert_eq!(told.sum("closes_filtered"), 120 - 10);
    assert_eq!(told.sum("closes_never_connected"), 3);
}

#[test]
fn listeners_are_asked_for_rarely_and_known_in_between() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let crowd = Crowd::new(&netns, Ends::V4, 2);
    let options = Options { listen_every: number(3), ..options(OFTEN, Scope::Own) };
    let watch = Watch::start(&netns, options);
    watch.wait_polls(1);
    let gauge = || watch.poll_hop().gauges[&Gauge::OpenIpv4(TcpState::Listen)];
    while watch.polls() < 7 {
        assert_eq!(gauge(), 1, "poll {}", watch.polls());
    }
    let listener = SockRef::from(&crowd.listener).cookie().unwrap();
    let (told, _) = watch.stop();
    for poll in 1..=7 {
        let has = told.cookies_of(poll).contains(&listener);
        assert_eq!(has, poll % 3 == 1, "poll {poll}");
        assert_eq!(told.totals[poll as usize - 1]["closes_unobserved"], 0);
    }
}

#[test]
fn states_that_are_not_asked_for_are_not_told() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let mut crowd = Crowd::new(&netns, Ends::V4, 10);
    for (client, server) in crowd.pairs.drain(5..) {
        drop(client);
        drop(server);
    }
    use wire::inet_diag::{State, States};
    let states = States::of(State::Established);
    let watch = Watch::start(&netns, Options { states, ..options(RARELY, Scope::Own) });
    watch.wait_polls(1);
    let (told, _) = watch.stop();
    let wanted: Cookies = (0..5).flat_map(|at| crowd.cookies(at)).collect();
    assert_eq!(told.cookies_of(1), wanted);
    assert_eq!(told.totals[0]["sockets_visited"], 10);
}
