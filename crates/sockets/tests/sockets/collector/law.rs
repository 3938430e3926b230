//! What enters and what becomes of it: in each totals record, in their sum, and in the ledger at any moment.

use super::people::{Crowd, Ends, storm};
use super::watch::{RECORDS_BEFORE, Told, Totals, Watch};
use crate::support::options;
use ledger::{HopKind, HopSnapshot, Reason};
use sockets::filter::Filter;
use sockets::{Options, Scope};
use std::io::Write;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{Netns, need_root_netns, say, within};

/// Each outcome of a socket in a totals record, with the ledger's reason. `None` is a record, or the remaining reasons together.
type Ways<'a> = &'a [(&'static str, Option<Reason>)];

const POLL_WAYS: Ways<'_> = &[
    ("sockets_emitted", None),
    ("sockets_unchanged", Some(Reason::Unchanged)),
    ("sockets_filtered", Some(Reason::Filtered)),
    ("sockets_sampled", Some(Reason::Sampled)),
    ("sockets_dropped_decode_failed", Some(Reason::Malformed)),
    ("sockets_dropped_duplicate", Some(Reason::Duplicate)),
    ("sockets_dropped_other", None),
];
const CLOSE_WAYS: Ways<'_> = &[
    ("closes_emitted", None),
    ("closes_filtered", Some(Reason::Filtered)),
    ("closes_undecided", Some(Reason::Undecided)),
    ("closes_never_connected", Some(Reason::NeverConnected)),
    ("closes_elsewhere", Some(Reason::Elsewhere)),
    ("closes_sampled", Some(Reason::Sampled)),
    ("closes_dropped_event_buffer", Some(Reason::EventBuffer)),
    ("closes_dropped_decode_failed", Some(Reason::Malformed)),
    ("closes_dropped_duplicate", Some(Reason::Duplicate)),
    ("closes_dropped_other", None),
];

#[track_caller]
fn check_totals(totals: &Totals) {
    let sum = |ways: Ways<'_>| ways.iter().map(|(way, _)| totals[*way]).sum::<u64>();
    assert_eq!(totals["sockets_visited"], sum(POLL_WAYS), "{totals:?}");
    assert_eq!(totals["closes_observed"], sum(CLOSE_WAYS), "{totals:?}");
}

/// Compares the reports with the ledger's hops after the end.
#[track_caller]
pub(crate) fn check_all(told: &Told, hops: &[HopSnapshot]) {
    told.totals.iter().for_each(check_totals);
    for (at, seen) in told.seen.iter().enumerate() {
        assert_eq!(seen.sequence, at as u64, "no record is missing");
    }
    for (at, totals) in told.totals.iter().enumerate() {
        assert_eq!(totals["poll"], at as u64 + 1);
        assert_eq!(totals["next_sequence"], totals[RECORDS_BEFORE], "{totals:?}");
    }
    // So that a store can prove that it is complete.
    let last = told.totals.last().map_or(0, |totals| totals["next_sequence"]);
    assert_eq!(last, told.seen.len() as u64, "no record follows the last totals");
    for (kind, received, records, ways) in [
        (HopKind::Poll, "sockets_visited", told.polled().count(), POLL_WAYS),
        (HopKind::Close, "closes_observed", told.closed().count(), CLOSE_WAYS),
    ] {
        let hop = hops.iter().find(|hop| hop.hop == kind).unwrap();
        assert_eq!((hop.unaccounted, hop.in_flight.count), (0, 0), "{hop:?}");
        assert_eq!(hop.received.count, told.sum(received), "{kind:?}");
        assert_eq!(hop.delivered.count, told.sum(ways[0].0), "{kind:?}");
        assert_eq!(hop.delivered.count, records as u64, "{kind:?}");
        for (way, reason) in ways {
            if let Some(reason) = *reason {
                assert_eq!(hop.dropped_for(reason).count, told.sum(way), "{kind:?} {way}");
            }
        }
    }
}

fn everything_on(netns: &Netns) -> Options {
    Options {
        keyframe_every: NonZeroU32::new(5),
        sample: NonZeroU32::new(2).unwrap(),
        listen_every: NonZeroU32::new(3).unwrap(),
        // The kernel decides about the port, and the collector about the rest.
        filter: Some(Filter::parse("sport != :1 and not bytes_received = 7").unwrap()),
        ..options(Duration::from_millis(20), Scope::Named(vec![netns.name.clone()]))
    }
}

#[test]
fn every_socket_and_every_close_is_counted_once_through_a_storm() {
    if !need_root_netns() {
        return;
    }
    let (home, netns) = (Netns::new(), Netns::new());
    let mut idle = Crowd::new(&netns, Ends::Mapped, 300);
    for (client, _) in &mut idle.pairs[..30] {
        client.write_all(b"a week.").unwrap();
    }
    let mut options = everything_on(&netns);
    // So small that the storm overruns it.
    options.event_buffer_bytes = 64 << 10;
    let watch = Watch::start(&home, options);
    let is_over = AtomicBool::new(false);
    let (readings, connections) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut readings = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                for hop in watch.hops() {
                    assert_eq!(hop.unaccounted, 0, "{hop:?}");
                }
                readings += 1;
            }
            readings
        });
        let connections = storm(&netns, 3, |connections| {
            let enough = || watch.polls() >= 25 && connections.load(Ordering::Relaxed) >= 3_000;
            let came = within(Duration::from_secs(60), enough) || reader.is_finished();
            is_over.store(true, Ordering::Relaxed);
            assert!(came);
            connections.load(Ordering::Relaxed)
        });
        (reader.join().unwrap(), connections)
    });
    drop(idle);
    watch.next_poll();
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    // Most of the storm is aborted, and its events lack the bytes.
    let closes = ["closes_emitted", "closes_undecided", "closes_sampled"];
    for way in POLL_WAYS[..4].iter().map(|(way, _)| *way).chain(closes) {
        assert!(told.sum(way) > 0, "{way}");
    }
    let observed = told.sum("closes_observed");
    say(&format!(
        "{readings} readings of the ledger over {} polls and {connections} connections; {observed} closes, {} lost",
        told.totals.len(),
        told.sum("closes_dropped_event_buffer"),
    ));
}

#[test]
fn closes_after_the_last_poll_are_told_and_in_the_totals() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let crowd = Crowd::new(&netns, Ends::V4, 50);
    let watch = Watch::start(&netns, options(crate::support::RARELY, Scope::Own));
    watch.wait_polls(1);
    drop(crowd);
    // The kernel reports a close a moment later (a work queue: net/core/sock_diag.c, sock_diag_broadcast_destroy). The listener's
    // counts too.
    let came = || watch.hops()[1].received.count >= 101;
    assert!(within(Duration::from_secs(10), came));
    let (told, hops) = watch.stop();
    assert_eq!(told.closed().count(), 100);
    assert_eq!(told.totals.len(), 2);
    assert_eq!((told.totals[1]["sockets_visited"], told.totals[1]["namespaces_visited"]), (0, 0));
    assert_eq!(told.totals[1]["closes_emitted"], 100);
    check_all(&told, &hops);
}
