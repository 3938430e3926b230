//! What a closing record says about a connection, and what it leaves out because it is not known.

use super::law::check_all;
use super::people::{self, Crowd};
use super::scene::{self, Ends, SUBJECTS, Subject};
use super::watch::{Seen, Told, Watch};
use crate::support::{RARELY, options};
use ledger::{Event, Gauge, HopSnapshot};
use record::{FieldSet, SocketRecord};
use serde_json::Value;
use sockets::filter::Filter;
use sockets::{Options, Scope};
use std::time::Duration;
use testkit::{Netns, need_root_netns, within};

/// Fields of `tcp_info` for which a poll's counters stand in after an abort.
const OF_LAST_POLL: [&str; 12] = [
    "bytes_sent",
    "bytes_acked",
    "bytes_received",
    "bytes_retrans",
    "segs_out",
    "segs_in",
    "data_segs_out",
    "data_segs_in",
    "total_retrans_segments",
    "rtt_us",
    "min_rtt_us",
    "unacked_segments",
];

/// The `tcp_info` fields present in a record.
fn counters(record: &Value) -> Vec<&'static str> {
    let set = FieldSet::named("tcp_info").unwrap();
    let raw = FieldSet::named("raw").unwrap();
    let fields = SocketRecord::FIELDS.iter().filter(|field| set.with(&raw).has(field.name));
    fields.map(|field| field.name).filter(|name| !record[*name].is_null()).collect()
}

fn client(told: &Told, subject: Subject) -> Value {
    let of: Vec<_> = told
        .closed()
        .map(Seen::fields)
        .filter(|fields| fields["src_port"] == subject.port())
        .collect();
    assert_eq!(of.len(), 1, "{subject:?}: {of:?}");
    of[0].clone()
}

#[test]
fn a_closing_record_states_nothing_that_neither_the_event_nor_a_poll_knows() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let listener = netns.inside(scene::listen);
    let open = |subject| netns.inside(|| Ends::open(subject, &listener));
    let polled = [Subject::PolledClose, Subject::PolledAbort].map(open);
    let watch = Watch::start(&netns, options(RARELY, Scope::Own));
    watch.wait_polls(1);
    polled.into_iter().for_each(Ends::close);
    [Subject::Close, Subject::Abort].map(open).into_iter().for_each(Ends::close);
    watch.wait("closes", |told| told.closed().count() == 2 * SUBJECTS.len());
    let (told, hops) = watch.stop();
    check_all(&told, &hops);

    for subject in SUBJECTS {
        let record = client(&told, subject);
        for field in ["inode", "timer", "timer_expires_ms", "timer_retransmits", "mark", "has_md5"]
        {
            assert!(record[field].is_null(), "{subject:?} {field}: {record}");
        }
        let is_polled = matches!(subject, Subject::PolledClose | Subject::PolledAbort);
        for field in ["uid", "seen_ns", "first_seen_unix_ns", "last_state", "congestion_algorithm"]
        {
            assert_eq!(!record[field].is_null(), is_polled, "{subject:?} {field}: {record}");
        }
    }

    for subject in [Subject::PolledClose, Subject::Close] {
        let record = client(&told, subject);
        assert_eq!(record["counters_from"], "event", "{record}");
        assert_eq!((&record["bytes_sent"], &record["dst_port"]), (&10.into(), &443.into()));
        // One more for the peer's FIN.
        assert!(record["bytes_received"].as_u64() >= Some(5), "{record}");
        for field in ["unacked_segments", "backoff"] {
            assert!(record[field].is_null(), "emptied before the event: {field}: {record}");
        }
    }

    let record = client(&told, Subject::PolledAbort);
    assert_eq!(record["counters_from"], "last_poll", "{record}");
    assert_eq!((&record["bytes_sent"], &record["bytes_received"]), (&10.into(), &5.into()));
    assert_eq!((&record["dst_port"], &record["dst_address"]), (&443.into(), &"127.0.0.1".into()));
    assert_eq!(record["uid"], 1_000, "{record}");
    let mut known = counters(&record);
    known.sort_unstable();
    let mut expected = OF_LAST_POLL.to_vec();
    expected.sort_unstable();
    assert_eq!(known, expected, "{record}");

    let record = client(&told, Subject::Abort);
    assert_eq!(record["counters_from"], "unknown", "{record}");
    assert_eq!(counters(&record), [] as [&str; 0], "{record}");
    for field in ["dst_port", "src_address", "receive_queue", "send_queue"] {
        assert!(record[field].is_null(), "cleared before the event: {field}: {record}");
    }
}

#[test]
fn a_close_names_the_process_of_the_last_poll_that_found_one() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let listener = netns.inside(scene::listen);
    let open = |subject| netns.inside(|| Ends::open(subject, &listener));
    let polled = [Subject::PolledClose, Subject::PolledAbort].map(open);
    let watch = Watch::start(&netns, Options { processes: true, ..options(RARELY, Scope::Own) });
    watch.wait_polls(1);
    polled.into_iter().for_each(Ends::close);
    Ends::close(open(Subject::Close));
    watch.wait("closes", |told| told.closed().count() == 2 * 3);
    let (told, hops) = watch.stop();
    check_all(&told, &hops);

    for subject in [Subject::PolledClose, Subject::PolledAbort] {
        let record = client(&told, subject);
        assert_eq!(record["process_id"], std::process::id(), "{subject:?}: {record}");
        assert!(record["process_name"].as_str().is_some_and(|name| !name.is_empty()), "{record}");
    }
    // No poll met it, and its event has no inode.
    assert!(client(&told, Subject::Close)["process_id"].is_null());
}

#[test]
fn of_more_rejected_connections_than_there_is_room_for_the_close_events_decide() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let crowd = Crowd::new(&netns, people::Ends::V4, 20);
    let filter = Some(Filter::parse("state established and uid = 12345").unwrap());
    let options = Options { filter, table_entries_max: 10, ..options(RARELY, Scope::Own) };
    let watch = Watch::start(&netns, options);
    watch.wait_polls(1);
    let overflow = |hop: &HopSnapshot| hop.events.get(&Event::RejectedOverflow).copied();
    let hop = watch.hops().remove(1);
    assert_eq!((hop.gauges[&Gauge::RejectedEntries], overflow(&hop)), (10, Some(30)));
    drop(crowd);
    let came = || watch.hops()[1].received.count >= 41;
    assert!(within(Duration::from_secs(20), came));
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    // The events do not name the owners.
    assert_eq!((told.sum("closes_filtered"), told.sum("closes_undecided")), (10, 30));
    assert_eq!(told.closed().count(), 0);
}
