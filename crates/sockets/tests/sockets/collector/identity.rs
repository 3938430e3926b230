//! What distinguishes records and runs, and what lets a store prove that it has them all.

use super::law::check_all;
use super::people::{Crowd, Ends, cookie};
use super::watch::{Told, Watch};
use crate::support::options;
use serde_json::Value;
use sockets::filter::Filter;
use sockets::{Options, Scope};
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::time::Duration;
use testkit::{Netns, need_root_netns};

/// The number in a field, which must be present.
#[track_caller]
fn number(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or_else(|| panic!("no {field}: {record}"))
}

/// All records of one socket: from polls, from its close, and from its remnant in TIME-WAIT.
fn records_of(told: &Told, cookie: u64) -> Vec<Value> {
    let of = told.seen.iter().filter(|seen| seen.cookie == cookie);
    of.map(super::watch::Seen::fields).collect()
}

#[test]
fn records_of_two_runs_are_told_apart_and_those_of_one_belong_together() {
    if !need_root_netns() {
        return;
    }
    let (home, netns) = (Netns::new(), Netns::new());
    let scope = Scope::Named(vec![netns.name.clone()]);
    let mut runs = Vec::new();
    for _ in 0..2 {
        let crowd = Crowd::new(&netns, Ends::V4, 5);
        let watch = Watch::start(&home, options(Duration::from_millis(20), scope.clone()));
        watch.wait_polls(2);
        drop(crowd);
        watch.wait("close", |told| told.closed().count() >= 10);
        let (told, hops) = watch.stop();
        check_all(&told, &hops);
        let run = told.totals[0]["run_id"];
        assert!(run > 0 && run < 1 << 63, "{run}");
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let netns_cookie = netns.inside(|| {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            sys::socket::namespace_cookie(std::os::fd::AsFd::as_fd(&socket)).ok()
        });
        for seen in &told.seen {
            let record = seen.fields();
            assert_eq!(number(&record, "run_id"), run, "{record}");
            assert_eq!(number(&record, "schema_version"), 1);
            assert_eq!(record["kernel_release"], release.trim());
            assert_eq!(record["netns_cookie"].as_u64(), netns_cookie, "{record}");
            assert_eq!(record["host_id"].as_str(), host_id().as_deref());
        }
        assert!(told.totals.iter().all(|totals| totals["run_id"] == run));
        assert_eq!(told.totals[0]["interval_ms"], 20);
        runs.push(run);
    }
    assert_ne!(runs[0], runs[1]);
}

/// The host id as systemd computes it, if it is installed and there is a machine id.
fn host_id() -> Option<String> {
    let host = sockets::attribution::Host::read(Default::default());
    let ours = host.host_id().map(str::to_owned);
    let purpose = "--app-specific=d02f7c6e84a14b6bb1a5d1c6a4a7e9f3";
    let theirs = std::process::Command::new("systemd-id128")
        .args(["--uuid", "machine-id", purpose])
        .output();
    if let Some(output) = theirs.ok().filter(|output| output.status.success()) {
        let theirs = String::from_utf8(output.stdout).unwrap();
        assert_eq!(ours.as_deref(), Some(theirs.trim()));
    }
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    assert_ne!(ours.as_deref().map(|id| id.replace('-', "")).as_deref(), Some(machine.trim()));
    ours
}

const COUNTERS: [(&str, &str); 7] = [
    ("bytes_sent", "bytes_sent_delta"),
    ("bytes_acked", "bytes_acked_delta"),
    ("bytes_received", "bytes_received_delta"),
    ("segs_out", "segs_out_delta"),
    ("segs_in", "segs_in_delta"),
    ("total_retrans_segments", "total_retrans_segments_delta"),
    ("busy_time_us", "busy_time_us_delta"),
];

/// The first record has the counters so far, and the differences after it must add up to the last one's counters.
#[track_caller]
fn check_sums(records: &[Value]) {
    let (first, last) = (records.first().unwrap(), records.last().unwrap());
    assert_eq!(last["record_kind"], "close", "{last}");
    for (counter, delta) in COUNTERS {
        assert!(first[delta].is_null() && first["since_ns"].is_null(), "{first}");
        let sum: u64 = records[1..].iter().map(|record| record[delta].as_u64().unwrap_or(0)).sum();
        assert_eq!(number(first, counter) + sum, number(last, counter), "{counter}: {records:#?}");
    }
    let times = records[1..].iter().filter(|record| !record["bytes_sent"].is_null());
    assert!(times.into_iter().all(|record| record["since_ns"].as_u64() > Some(0)));
}

fn talk(crowd: &mut Crowd, bytes: usize) {
    for (client, server) in &mut crowd.pairs {
        let mut buffer = vec![7; bytes];
        client.write_all(&buffer).unwrap();
        server.read_exact(&mut buffer).unwrap();
        server.write_all(&buffer[..bytes / 2]).unwrap();
        client.read_exact(&mut buffer[..bytes / 2]).unwrap();
    }
}

#[test]
fn differences_add_up_to_the_counters_of_the_close_whatever_was_left_out() {
    if !need_root_netns() {
        return;
    }
    let (home, netns) = (Netns::new(), Netns::new());
    let mut crowd = Crowd::new(&netns, Ends::Mapped, 4);
    talk(&mut crowd, 5_000);
    // Most polls leave out unchanged sockets, and some leave out what the filter rejects.
    let watch = Watch::start(
        &home,
        Options {
            keyframe_every: NonZeroU32::new(7),
            filter: Some(Filter::parse("not bytes_received = 5001").unwrap()),
            ..options(Duration::from_millis(10), Scope::Named(vec![netns.name.clone()]))
        },
    );
    for bytes in [1, 100_000, 3_000] {
        watch.next_poll();
        talk(&mut crowd, bytes);
    }
    watch.next_poll();
    let cookies: Vec<u64> =
        crowd.pairs.iter().flat_map(|(client, server)| [cookie(client), cookie(server)]).collect();
    drop(crowd);
    watch.wait("close", |told| told.closed().count() >= 8);
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    let mut changed = 0;
    for cookie in cookies {
        let records = records_of(&told, cookie);
        let records: Vec<Value> =
            records.into_iter().filter(|record| !record["bytes_sent"].is_null()).collect();
        check_sums(&records);
        let grown = |record: &&Value| record["bytes_sent_delta"].as_u64() > Some(0);
        changed += records.iter().filter(grown).count();
    }
    assert!(changed >= 8, "{changed} records with something new");
    assert!(told.sum("sockets_unchanged") > 0, "{:?}", told.totals);
}

#[test]
fn an_abort_has_no_differences_and_the_sum_is_what_the_last_poll_saw() {
    if !need_root_netns() {
        return;
    }
    let (home, netns) = (Netns::new(), Netns::new());
    let mut crowd = Crowd::new(&netns, Ends::V4, 1);
    let scope = Scope::Named(vec![netns.name.clone()]);
    let watch = Watch::start(&home, options(Duration::from_millis(10), scope));
    watch.next_poll();
    talk(&mut crowd, 1_000);
    watch.next_poll();
    let (client, _) = crowd.pairs.pop().unwrap();
    let aborted = cookie(&client);
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    watch.wait("close", |told| told.closed().any(|seen| seen.cookie == aborted));
    let (told, _) = watch.stop();
    let records = records_of(&told, aborted);
    // An abort leaves nothing that a later poll could list.
    let last = records.last().unwrap();
    assert_eq!(
        (&last["record_kind"], &last["close_reason"]),
        (&"close".into(), &"our_reset".into())
    );
    assert!(last["since_ns"].is_null() && last["bytes_sent_delta"].is_null(), "{last}");
    let sum: u64 = records.iter().map(|one| one["bytes_sent_delta"].as_u64().unwrap_or(0)).sum();
    assert_eq!(number(&records[0], "bytes_sent") + sum, number(last, "bytes_sent"));
}

#[test]
fn the_end_that_opened_a_connection_is_named() {
    if !need_root_netns() {
        return;
    }
    let (home, netns) = (Netns::new(), Netns::new());
    let mut crowd = Crowd::new(&netns, Ends::V6, 3);
    talk(&mut crowd, 100);
    let scope = Scope::Named(vec![netns.name.clone()]);
    let watch = Watch::start(&home, options(Duration::from_millis(10), scope));
    watch.next_poll();
    let listener = cookie_of_listener(&crowd);
    let ends: Vec<_> =
        crowd.pairs.iter().map(|(client, server)| (cookie(client), cookie(server))).collect();
    drop(crowd);
    watch.wait("close", |told| told.closed().count() >= 6);
    let (told, _) = watch.stop();
    for (client, server) in ends {
        for (cookie, role) in [(client, "opener"), (server, "acceptor")] {
            let records = records_of(&told, cookie);
            assert!(records.iter().any(|record| record["record_kind"] == "close"));
            assert!(records[0]["record_kind"] == "poll", "{records:?}");
            for record in records {
                assert_eq!(record["role"], role, "{record}");
                assert!(number(&record, "first_seen_unix_ns") > 0);
            }
        }
    }
    let listeners = records_of(&told, listener);
    assert!(!listeners.is_empty());
    for record in listeners {
        assert!(record["role"].is_null() && record["since_ns"].is_null(), "{record}");
    }
}

fn cookie_of_listener(crowd: &Crowd) -> u64 {
    socket2::SockRef::from(&crowd.listener).cookie().unwrap()
}
