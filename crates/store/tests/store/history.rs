//! What is inserted can be read back: raw rows, sums, closes, the ledger.

use crate::support::{
    SECOND_NS, START_NS, ask, at, chunk, close, insert, insert_poll, number, open, options, record,
};
use ledger::{Amount, HopBuilder, HopKind, Reason, Snapshot};
use record::{ChunkBuilder, DatagramRecord, RowKind, SocketRecord};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use store::{Error, NAMED, Named, Options, Parameters, Reader, Value, Writer};
use testkit::TempDir;

const ALL: &str = "SELECT * FROM sockets ORDER BY time_unix_ns, cookie";

#[test]
fn raw_rows_are_the_same_before_and_after_they_are_sealed() {
    let dir = TempDir::new();
    let mut writer = Writer::open(options(dir.path())).unwrap();
    for poll in 0..20 {
        insert_poll(&mut writer, poll, 500);
    }
    let hot = ask(dir.path(), ALL);
    assert_eq!(hot.rows.len(), 10_000);

    writer.seal_all().unwrap();
    let files = fs::read_dir(dir.file("raw")).unwrap().count();
    assert_eq!(files, 1);
    let sealed = ask(dir.path(), ALL);
    assert_eq!(sealed.rows, hot.rows);

    insert_poll(&mut writer, 20, 500);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets"), 10_500);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets WHERE cookie = 1003"), 21);
    let since = START_NS + 19 * SECOND_NS;
    let statement = format!("SELECT count(*) FROM sockets WHERE time_unix_ns >= {since}");
    assert_eq!(number(dir.path(), &statement), 1_000);
}

#[test]
fn a_row_is_read_as_it_was_written() {
    let dir = TempDir::new();
    let mut writer = Writer::open(options(dir.path())).unwrap();
    insert(&mut writer, &[close(5, 3)]);
    let statement = "SELECT record_kind, cookie, dst_address, close_reason, rtt_us, min_rtt_us, ts(time_unix_ns) FROM sockets";
    let expected = [
        Value::Text("close".into()),
        Value::Integer(1_003),
        Value::Text("192.0.3.9".into()),
        Value::Text("timed_out".into()),
        Value::Integer(266),
        Value::Null,
        Value::Text("2026-11-25 17:00:05.000".into()),
    ];
    for seal in [false, true] {
        if seal {
            writer.seal_all().unwrap();
        }
        assert_eq!(ask(dir.path(), statement).rows, [expected.to_vec()]);
    }
    assert_eq!(
        number(dir.path(), "SELECT count(*) FROM closes WHERE close_reason = 'timed_out'"),
        1
    );
}

#[test]
fn sums_of_minutes_and_hours_are_those_of_the_rows() {
    let dir = TempDir::new();
    let mut writer = Writer::open(options(dir.path())).unwrap();
    for poll in 0..90 {
        insert_poll(&mut writer, poll, 40);
    }
    insert(&mut writer, &[close(89, 3)]);

    for table in ["sockets_minute", "sockets_hour"] {
        for dimension in ["all", "unit", "peer", "service", "path"] {
            let sum = |column: &str| {
                let statement =
                    format!("SELECT sum({column}) FROM {table} WHERE dimension = '{dimension}'");
                number(dir.path(), &statement)
            };
            assert_eq!(sum("records"), 3_601);
            assert_eq!(
                sum("bytes_sent"),
                number(dir.path(), "SELECT sum(bytes_sent_delta) FROM sockets")
            );
            assert_eq!(sum("sketch_count(rtt)"), 3_601);
            assert_eq!(sum("zero_windows"), 90);
            assert_eq!((sum("closes"), sum("aborts")), (1, 1));
        }
    }
    let statement = "SELECT unit, sum(records) FROM sockets_minute WHERE dimension = 'unit' GROUP BY unit ORDER BY unit";
    let units = ask(dir.path(), statement).rows;
    assert_eq!(units[0], [Value::Text("cron.service".into()), Value::Integer(13 * 90)]);
    assert_eq!(
        number(dir.path(), "SELECT count(*) FROM sockets_minute WHERE dimension = 'all'"),
        2
    );
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets_hour WHERE dimension = 'all'"), 1);
}

/// Rows of 90 minutes, whose round-trip times lie between 8 µs and 8 s, as many in each octave.
fn spread_round_trips(writer: &mut Writer) {
    let mut seed = 1_u64;
    let mut draw = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (8.0 * ((seed >> 32) as f64 / f64::from(u32::MAX) * 20.0).exp2()) as u32
    };
    for minute in 0..90 {
        let records: Vec<_> = (0..300)
            .map(|connection| {
                let rtt_us = Some(draw());
                SocketRecord { rtt_us, ..record(minute * 60, connection) }
            })
            .collect();
        assert!(insert(writer, &records).unreadable.is_empty());
    }
}

#[test]
fn every_quantile_of_every_key_is_within_a_sixteenth_of_that_of_its_rows() {
    let dir = TempDir::new();
    let mut writer = Writer::open(options(dir.path())).unwrap();
    spread_round_trips(&mut writer);

    let mut of_unit: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for row in ask(dir.path(), "SELECT systemd_unit, rtt_us FROM sockets").rows {
        let [Value::Text(unit), Value::Integer(rtt_us)] = row.as_slice() else { panic!("{row:?}") };
        of_unit.entry(unit.clone()).or_default().push(*rtt_us);
    }
    of_unit.values_mut().for_each(|all| all.sort_unstable());
    assert_eq!(of_unit.values().map(Vec::len).collect::<Vec<_>>(), [9_000; 3]);

    for table in ["sockets_minute", "sockets_hour"] {
        for percent in [50, 75, 90, 95, 99] {
            let told = ask(
                dir.path(),
                &format!(
                    "SELECT unit, sketch_quantile(sketch_merge(rtt), {percent} / 100.0)
                     FROM {table} WHERE dimension = 'unit' GROUP BY unit ORDER BY unit"
                ),
            );
            assert_eq!(told.rows.len(), of_unit.len());
            for (row, (unit, all)) in told.rows.iter().zip(&of_unit) {
                let [Value::Text(key), Value::Real(told)] = row.as_slice() else {
                    panic!("{row:?}")
                };
                let exact = all[all.len() * percent / 100 - 1] as f64;
                assert_eq!(key, unit);
                assert!(
                    (told - exact).abs() <= exact / 16.0,
                    "{table}, {unit}, {percent} %: {told}, exact {exact}"
                );
            }
        }
    }
}

#[test]
fn keys_that_find_no_room_are_added_up_as_other() {
    let dir = TempDir::new();
    let mut writer = Writer::open(Options { keys_max: 2, ..options(dir.path()) }).unwrap();
    for poll in 0..3 {
        insert_poll(&mut writer, poll, 50);
    }
    let peers = "SELECT count(*) FROM sockets_minute WHERE dimension = 'peer'";
    assert_eq!(number(dir.path(), peers), 3);
    let records = "SELECT sum(records) FROM sockets_minute WHERE dimension = 'peer'";
    assert_eq!(number(dir.path(), records), 150);
    let other =
        "SELECT sum(records) FROM sockets_minute WHERE dimension = 'peer' AND peer = 'other'";
    assert_eq!(number(dir.path(), other), 90);
}

#[test]
fn a_row_that_cannot_be_read_is_named_and_the_others_are_there() {
    let dir = TempDir::new();
    let mut writer = Writer::open(options(dir.path())).unwrap();
    let chunk = chunk(&[record(0, 0), record(0, 1)]);
    let mut rows: Vec<(RowKind, &[u8])> = chunk.rows().map(|row| (row.kind, row.bytes)).collect();
    rows.insert(1, (RowKind::Record, &[0xff, 0xff, 0xff]));
    let inserted = writer.insert(rows.into_iter(), at(START_NS)).unwrap();
    assert_eq!(inserted.unreadable, [1]);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets"), 2);
}

fn snapshot(run_id: &str, seconds: u64, received: u64, lost: u64) -> Snapshot {
    let hop = HopBuilder::new(
        HopKind::Target,
        "in",
        Some("out"),
        Amount { count: received - lost, bytes: (received - lost) * 100 },
    )
    .dropped(Reason::QueueFull, Amount { count: lost, bytes: lost * 100 })
    .finish(Amount { count: received, bytes: received * 100 });
    Snapshot {
        run_id: run_id.to_owned(),
        taken_at_unix_ms: START_NS / 1_000_000 + seconds * 1_000,
        hops: vec![hop],
        ..Snapshot::default()
    }
}

#[test]
fn the_ledger_is_kept_as_differences_that_add_up_also_after_a_restart_of_the_store() {
    let dir = TempDir::new();
    let lost =
        "SELECT ifnull(sum(count), 0) FROM ledger WHERE way = 'dropped' AND reason = 'queue_full'";
    let mut writer = Writer::open(options(dir.path())).unwrap();
    writer.record_ledger(&snapshot("a", 10, 100, 5)).unwrap();
    writer.record_ledger(&snapshot("a", 20, 150, 5)).unwrap();
    assert_eq!(number(dir.path(), lost), 5);
    drop(writer);

    // The same daemon goes on, and its counts continue.
    let mut writer = open(&options(dir.path())).unwrap();
    writer.record_ledger(&snapshot("a", 30, 200, 8)).unwrap();
    assert_eq!(number(dir.path(), lost), 8);
    // Another daemon counts from 0, at a time that already has rows.
    writer.record_ledger(&snapshot("b", 30, 40, 2)).unwrap();
    assert_eq!(number(dir.path(), lost), 10);
    let received = "SELECT sum(count) FROM ledger WHERE way = 'received'";
    assert_eq!(number(dir.path(), received), 240);
}

#[test]
fn every_named_question_is_answered() {
    let dir = TempDir::new();
    let mut writer = open(&options(dir.path())).unwrap();
    for poll in 0..100 {
        insert_poll(&mut writer, poll, 50);
    }
    insert(&mut writer, &[close(99, 3)]);
    writer.record_ledger(&snapshot("a", 10, 100, 5)).unwrap();
    writer.seal_all().unwrap();

    for hours in [1, 24] {
        let parameters = Parameters {
            since_unix_ns: START_NS,
            until_unix_ns: START_NS + hours * 3_600 * SECOND_NS,
            limit: 100,
            cookie: Some(1_003),
            namespace: None,
        };
        for named in NAMED {
            let answer = ask(dir.path(), &named.statement(&parameters).unwrap());
            let names: Vec<_> = answer.columns.iter().map(|column| column.name.clone()).collect();
            for column in named.columns() {
                assert!(names.contains(&column.name), "{}: {}", named.name, column.name);
            }
            // The store has no flows, no events, no poll's totals, and nothing was sent again.
            const NONE: [&str; 4] = ["completeness", "poll-rates", "worst-retransmits", "events"];
            let has_none = named.name.contains("flow") || NONE.contains(&named.name);
            assert_eq!(answer.rows.is_empty(), has_none, "{}", named.name);
        }
        let heat = Named::find("rtt-heat").unwrap().statement(&parameters).unwrap();
        assert_eq!(number(dir.path(), &format!("SELECT sum(samples) FROM ({heat})")), 5_001);
    }
}

#[test]
fn what_is_too_old_goes_and_files_with_it() {
    let dir = TempDir::new();
    let keep_age = Some(Duration::from_secs(3_600));
    let mut writer = Writer::open(Options { keep_age, ..options(dir.path()) }).unwrap();
    insert_poll(&mut writer, 0, 100);
    insert(&mut writer, &[close(0, 1)]);
    writer.record_ledger(&snapshot("a", 0, 100, 5)).unwrap();
    writer.seal_all().unwrap();
    insert_poll(&mut writer, 4_000, 100);

    let now = START_NS + 4_000 * SECOND_NS;
    testkit::wait_for("what is old to go", || {
        writer.step(at(now)).unwrap();
        (number(dir.path(), "SELECT count(*) FROM sockets_minute WHERE dimension = 'all'") == 1)
            .then_some(())
    });
    assert_eq!(writer.figures().files_removed, 1);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets"), 100);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM closes"), 0);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM ledger"), 0);
    assert_eq!(fs::read_dir(dir.file("raw")).unwrap().count(), 0);
}

#[test]
fn one_process_writes_and_the_other_is_told() {
    let dir = TempDir::new();
    let first = Writer::open(options(dir.path())).unwrap();
    let refused = Writer::open(options(dir.path())).err().unwrap();
    assert!(matches!(refused, Error::Locked(_)), "{refused}");
    drop(first);
    open(&options(dir.path())).unwrap();
}

#[test]
fn a_folder_without_a_store_is_not_made_one_by_a_reader() {
    let dir = TempDir::new();
    assert!(matches!(Reader::open(dir.path()).err(), Some(Error::NoStore(_))));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    fs::write(dir.file("history.sqlite"), b"SQLite format 3 it is not").unwrap();
    assert!(Reader::open(dir.path()).is_err());
}

#[test]
fn questions_name_the_process_that_sent_again_and_whose_connections_were_reset() {
    let dir = TempDir::new();
    let mut writer = Writer::open(options(dir.path())).unwrap();
    let sent = |poll, connection, process, again| SocketRecord {
        process_name: Some(process),
        process_id: Some(77),
        bytes_sent_delta: Some(1_000),
        bytes_retrans_delta: Some(again),
        total_retrans_segments_delta: Some((again / 100) as u32),
        ..record(poll, connection)
    };
    insert(
        &mut writer,
        &[sent(0, 1, "curl", 0), sent(1, 2, "rsync", 200), sent(2, 2, "rsync", 300)],
    );
    let closed = SocketRecord {
        process_name: Some("rsync"),
        bytes_retrans_delta: None,
        total_retrans_segments_delta: None,
        ..close(3, 2)
    };
    insert(&mut writer, &[closed]);

    let parameters = Parameters {
        since_unix_ns: START_NS,
        until_unix_ns: START_NS + 60 * SECOND_NS,
        limit: 10,
        cookie: None,
        namespace: None,
    };
    let answer = |name: &str| {
        let statement = Named::find(name).unwrap().statement(&parameters).unwrap();
        ask(dir.path(), &statement)
    };
    let again = answer("worst-retransmits");
    assert_eq!(again.rows.len(), 1, "{:?}", again.rows);
    assert_eq!(again.rows[0][0], Value::Text("rsync".into()));
    let at = |name: &str| again.columns.iter().position(|column| column.name == name).unwrap();
    assert_eq!(again.rows[0][at("retransmitted_bytes")], Value::Integer(500));
    assert_eq!(again.rows[0][at("retransmitted_segments")], Value::Integer(5));
    let closes = answer("closes-by-process");
    assert_eq!(closes.rows[0][0], Value::Text("rsync".into()));
    assert_eq!(closes.rows[0][2], Value::Text("timed_out".into()));
}

#[test]
fn events_are_rows_with_words_and_a_payload_that_is_none_is_left_out() {
    let dir = TempDir::new();
    let mut writer = Writer::open(options(dir.path())).unwrap();
    let event = r##"{"id":2,"raised_id":1,"change":"cleared","threshold":"flood","of":{"flow":"all"},"limit":5.0,"figure":{"value":1.5},"peak":9.0,"text":"#1 cleared flood"}"##;
    let mut builder = ChunkBuilder::new(3, [0; 16]);
    for (listener, payload) in [("events", event), ("events", "{"), ("syslog", event)] {
        let datagram = DatagramRecord {
            time_unix_ns: Some(START_NS),
            listener: Some(listener),
            payload: Some(payload.as_bytes()),
            ..DatagramRecord::default()
        };
        builder.datagram(&datagram, 0, 1);
    }
    let rows = builder.cut(None).unwrap();
    writer.insert(rows.rows().map(|row| (row.kind, row.bytes)), at(START_NS)).unwrap();

    let text = |text: &str| Value::Text(text.into());
    let statement = "SELECT raised_id, change, threshold, subject, \"text\" FROM events";
    assert_eq!(
        ask(dir.path(), statement).rows,
        [[
            Value::Integer(1),
            text("cleared"),
            text("flood"),
            text(r#"{"flow":"all"}"#),
            text("#1 cleared flood")
        ]]
    );
}
