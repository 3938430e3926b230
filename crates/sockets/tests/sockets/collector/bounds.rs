//! Tests of limits: memory, time, lateness.

use super::law::check_all;
use super::people::{Crowd, Ends};
use super::spaces::Slow;
use super::watch::{Cookies, Watch};
use crate::support::options;
use ledger::Event;
use sockets::{Collector, Options, Scope};
use std::num::NonZeroU32;
use std::time::Duration;
use testkit::{Netns, need_root_netns, say};

#[test]
fn a_full_table_forgets_and_counts_and_no_socket_is_missing() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let crowd = Crowd::new(&netns, Ends::V4, 1_500);
    let options = Options {
        table_entries_max: 1_024,
        keyframe_every: NonZeroU32::new(1_000),
        listen_every: NonZeroU32::new(1_000).unwrap(),
        ..options(Duration::from_millis(100), Scope::Own)
    };
    let watch = Watch::start(&netns, options);
    watch.wait_polls(20);
    let all: Cookies = (0..1_500).flat_map(|at| crowd.cookies(at)).collect();
    drop(crowd);
    watch.wait("closes", |told| told.sum("closes_observed") >= 3_000);
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    assert!(all.is_subset(&told.cookies_of(1)));
    let emitted: Vec<_> = told.totals.iter().map(|totals| totals["sockets_emitted"]).collect();
    let evicted: Vec<_> = told.totals.iter().map(|totals| totals["table_evicted"]).collect();
    say(&format!("emitted {emitted:?}, evicted {evicted:?}"));
    for (at, totals) in told.totals.iter().enumerate() {
        assert!(totals["table_entries"] <= 1_024);
        assert_eq!(totals["closes_unobserved"], 0);
        assert_eq!(totals["sockets_dropped_duplicate"], 0);
        if (1..19).contains(&at) {
            // A forgotten socket counts as new when it is seen again.
            assert_eq!(totals["sockets_emitted"], totals["table_evicted"], "poll {}", at + 1);
            assert!(totals["sockets_unchanged"] >= 1_000, "poll {}", at + 1);
        }
    }
    assert_eq!(hops[0].event(Event::Evicted), told.sum("table_evicted"));
    let problems = told.problems_of("table_full");
    assert_eq!(problems.len(), 1, "{problems:?}");
    // 3,001 sockets, and a quarter more.
    assert!(
        problems[0].contains("full with 1024") && problems[0].contains("= 4096 "),
        "{problems:?}"
    );
    let closed: Cookies = told.closed().map(|seen| seen.cookie).collect();
    assert_eq!((closed.len(), told.closed().count()), (3_000, 3_000));
    assert_eq!(closed, all);
}

#[test]
fn a_poll_that_takes_longer_than_the_interval_is_an_overrun() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let scope = Scope::Named(vec![netns.name.clone()]);
    let each = Duration::from_millis(60);
    let home = Netns::new();
    let interval = Duration::from_millis(20);
    let watch =
        Watch::start_through(&home, options(interval, scope), move |direct| Slow { direct, each });
    watch.wait_polls(6);
    let (told, hops) = watch.stop();
    let overruns = hops[0].event(Event::Overruns);
    assert!(overruns >= 5 && overruns <= told.totals.len() as u64, "{overruns}");
    for pair in told.totals.windows(2) {
        assert!(pair[0]["poll_ns"] >= 60_000_000);
        // Times are those of the start.
        assert!(pair[1]["time_unix_ns"] - pair[0]["time_unix_ns"] >= 60_000_000);
    }
    check_all(&told, &hops);
}

#[test]
fn namespaces_that_a_poll_does_not_come_to_are_first_in_the_next_and_lose_no_keyframe() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let spaces: Vec<_> = (0..6).map(|_| Netns::new()).collect();
    let crowds: Vec<_> = spaces.iter().map(|space| Crowd::new(space, Ends::V4, 1)).collect();
    let names: Vec<_> = spaces.iter().map(|space| space.name.clone()).collect();
    let options = Options {
        // Every third poll is a keyframe, and each poll covers a third of the namespaces: always the same third, if nothing were
        // owed.
        keyframe_every: NonZeroU32::new(3),
        ..options(Duration::from_millis(10), Scope::Named(names.clone()))
    };
    let each = Duration::from_millis(60);
    let watch = Watch::start_through(&home, options, move |direct| Slow { direct, each });
    watch.wait_polls(15);
    let (told, hops) = watch.stop();
    drop(crowds);
    check_all(&told, &hops);
    let mut put_off = 0;
    for totals in &told.totals[..told.totals.len() - 1] {
        assert_eq!(totals["namespaces_visited"] + totals["namespaces_put_off"], 6, "{totals:?}");
        assert!(totals["namespaces_visited"] > 0);
        put_off += totals["namespaces_put_off"];
    }
    assert!(put_off >= 20, "{put_off}");
    assert_eq!(told.problems_of("put_off").len(), 1);
    for name in &names {
        let of = told.polled().filter(|seen| seen.netns.as_ref() == Some(name)).count();
        assert!(of >= 9, "{name}: {of} records of 3 sockets, so never a keyframe again");
    }
    assert_eq!(told.sum("closes_unobserved"), 0);
}

#[test]
fn polls_begin_in_their_slot_late_by_the_jitter_at_most() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let (interval, jitter) = (Duration::from_millis(80), Duration::from_millis(40));
    let watch = Watch::start(&netns, Options { jitter, ..options(interval, Scope::Own) });
    watch.wait_polls(25);
    let (told, hops) = watch.stop();
    let began: Vec<_> = told.totals.iter().map(|totals| totals["time_unix_ns"]).collect();
    let late = began.iter().zip(0..).map(|(at, slot)| {
        let slot = began[0] + slot * interval.as_nanos() as u64;
        (*at as i64 - slot as i64) / 1_000
    });
    let late: Vec<i64> = late.collect();
    say(&format!("late by {late:?} us"));
    if hops[0].event(Event::Overruns) > 0 {
        // The machine held the thread for longer than the interval, and the slots started over.
        return;
    }
    assert!(late.iter().all(|&late| late >= -1_000), "none is early");
    let in_range = late.iter().filter(|&&late| late <= 45_000).count();
    // Most are on time even if others use the machine.
    assert!(in_range * 2 >= late.len(), "{late:?}");
    let spread = late[1..].iter().max().unwrap() - late[1..].iter().min().unwrap();
    assert!(spread > 15_000, "{late:?}");
}

#[test]
fn a_collector_that_is_dropped_ends() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let watch = Watch::start(&netns, options(crate::support::RARELY, Scope::Own));
    watch.wait_polls(1);
    let questions = watch.collector.questions();
    let told = std::sync::Arc::clone(&watch.told);
    drop::<Collector>(watch.collector);
    drop(watch.told);
    let ended = || std::sync::Arc::strong_count(&told) == 1;
    assert!(testkit::within(Duration::from_secs(10), ended), "its output is still there");
    let answer = questions.ask(None, 1, Duration::from_secs(10)).map(drop);
    assert_eq!(answer, Err(sockets::QueryError::Stopped));
}
