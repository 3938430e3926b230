use super::*;
use crate::access::Clearance;
use crate::query::{Limits, Reader};
use record::{ChunkBuilder, SocketRecord};
use rusqlite::hooks::Action;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::{Random, TempDir, wait_for};

/// 2026-11-25 17:00:00 UTC.
const START_NS: u64 = 1_795_626_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const LIMIT_BYTES: u64 = 4 << 20;
const SEGMENT_BYTES: u64 = LIMIT_BYTES / 8;

fn open(folder: &Path) -> Writer {
    let options = Options {
        folder: folder.to_owned(),
        keep_age: None,
        keep_bytes: Some(LIMIT_BYTES),
        segment_age: Duration::from_secs(3_600),
        keys_max: 10,
    };
    Writer::open(options).unwrap()
}

/// Inserts a poll of 1,000 connections whose counters do not compress.
fn insert_poll(writer: &mut Writer, poll: u64, random: &mut Random) -> Result<Inserted, Error> {
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    for connection in 0..1_000 {
        builder.record(&SocketRecord {
            record_kind: Some(RecordKind::POLL),
            time_unix_ns: Some(START_NS + poll * SECOND_NS),
            cookie: Some(connection),
            poll: Some(poll),
            bytes_sent: Some(random.next() >> 1),
            bytes_acked: Some(random.next() >> 1),
            bytes_received: Some(random.next() >> 1),
            bytes_retrans: Some(random.next() >> 1),
            busy_time_us: Some(random.next() >> 1),
            ..SocketRecord::default()
        });
    }
    let chunk = builder.cut(None).unwrap();
    writer.insert(chunk.rows().map(|row| (row.kind, row.bytes)), at(poll))
}

fn at(seconds: u64) -> Now {
    let unix_ns = START_NS + seconds * SECOND_NS;
    Now { monotonic_ns: unix_ns, realtime_ns: unix_ns }
}

/// Does the background work that is due, without the time between two steps.
fn step(writer: &mut Writer) -> Result<Stepped, Error> {
    let now = Instant::now();
    (writer.step_due, writer.seal_due) = (now, now);
    writer.step(at(0))
}

fn number(folder: &Path, statement: &str) -> i64 {
    let answer = Reader::open(folder).unwrap().ask(statement, crate::Limits::default()).unwrap();
    match answer.rows[0][0] {
        crate::Value::Integer(number) => number,
        ref other => panic!("{statement}: {other:?}"),
    }
}

#[test]
fn the_size_limit_is_kept_at_every_moment_and_the_oldest_rows_go_first() {
    let dir = TempDir::new();
    let mut writer = open(dir.path());
    let mut random = Random(1);
    for poll in 0..150 {
        insert_poll(&mut writer, poll, &mut random).unwrap();
        // Sealing may lag on a busy machine, which is not what is tested here.
        wait_for("the full segments to be sealed", || {
            step(&mut writer).unwrap();
            (writer.full.is_empty() && writer.sealing.is_none()).then_some(())
        });
        let bytes = writer.figures().bytes;
        assert!(bytes <= LIMIT_BYTES / 100 * 105 + SEGMENT_BYTES, "{bytes} after poll {poll}");
    }

    assert!(writer.figures().files_removed > 0);
    let first = number(dir.path(), "SELECT min(poll) FROM sockets");
    assert!(first > 0);
    let rows = number(dir.path(), "SELECT count(*) FROM sockets");
    assert_eq!(rows, (150 - first) * 1_000, "no poll after the oldest is missing");
}

#[test]
fn no_transaction_deletes_more_than_some_thousand_rows() {
    let dir = TempDir::new();
    let mut writer = open(dir.path());
    let mut random = Random(1);
    (0..12).for_each(|poll| drop(insert_poll(&mut writer, poll, &mut random).unwrap()));

    let (deleted, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counter = Arc::clone(&deleted);
    let count = move |action, _: &str, _: &str, _| {
        if action == Action::SQLITE_DELETE {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    };
    writer.connection.update_hook(Some(count)).unwrap();
    let (counter, largest) = (Arc::clone(&deleted), Arc::clone(&most));
    let committed = move || {
        largest.fetch_max(counter.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        false
    };
    writer.connection.commit_hook(Some(committed)).unwrap();

    writer.seal_all().unwrap();
    let most = most.load(Ordering::Relaxed);
    assert!((1..=catalog::EMPTIED_ROWS as u64).contains(&most), "{most} rows at once");
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets"), 12_000);
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'hot_*'";
    assert_eq!(number(dir.path(), tables), 0);
}

#[test]
fn rows_that_cannot_be_sealed_do_not_push_out_those_that_are() {
    let dir = TempDir::new();
    let mut writer = open(dir.path());
    let mut random = Random(1);
    for poll in 0..10 {
        insert_poll(&mut writer, poll, &mut random).unwrap();
    }
    writer.seal_all().unwrap();
    let sealed = "SELECT count(*) FROM segments WHERE file IS NOT NULL";
    let files = number(dir.path(), sealed);

    fs::rename(dir.file("raw"), dir.file("away")).unwrap();
    let mut poll = 10;
    let refused = wait_for("a batch to be refused", || {
        // The sealing fails, and the step reports it.
        let _ = step(&mut writer);
        // Until it has failed, it may only be late, and what it does not keep up with does push out.
        wait_for("the sealing to end", || {
            writer.sealing.as_ref().is_none_or(Sealing::has_ended).then_some(())
        });
        match insert_poll(&mut writer, poll, &mut random) {
            Ok(_) => poll += 1,
            Err(error) => return Some(error),
        }
        None
    });
    assert!(matches!(refused, Error::Waiting { .. }), "{refused}");
    assert!(!refused.is_full());
    let _ = step(&mut writer);
    assert_eq!(number(dir.path(), sealed), files, "nothing was pushed out");
    fs::rename(dir.file("away"), dir.file("raw")).unwrap();

    wait_for("the store to go on", || {
        let _ = step(&mut writer);
        insert_poll(&mut writer, poll, &mut random).ok()
    });
    writer.seal_all().unwrap();
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets"), (poll as i64 + 1) * 1_000);
}

#[test]
fn a_segment_does_not_take_over_the_rows_of_one_that_had_its_id() {
    let dir = TempDir::new();
    let mut writer = open(dir.path());
    let mut random = Random(1);
    insert_poll(&mut writer, 0, &mut random).unwrap();
    writer.full.extend(writer.open.take().map(|(segment, _)| segment));
    writer.start_sealing().unwrap();
    let sealing = writer.sealing.take().unwrap();
    writer.take_sealed(sealing).unwrap();
    // As retention does, before the table is emptied.
    writer.connection.execute("DELETE FROM segments", []).unwrap();

    insert_poll(&mut writer, 1, &mut random).unwrap();
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets"), 1_000);
    assert_eq!(number(dir.path(), "SELECT min(poll) FROM sockets"), 1);
}

fn insert_one(writer: &mut Writer, seconds: u64, netns_inode: Option<u64>) {
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    let time_unix_ns = Some(START_NS + seconds * SECOND_NS);
    let cookie = Some(seconds);
    builder.record(&SocketRecord { time_unix_ns, cookie, netns_inode, ..SocketRecord::default() });
    let chunk = builder.cut(None).unwrap();
    writer.insert(chunk.rows().map(|row| (row.kind, row.bytes)), at(seconds)).unwrap();
}

#[test]
fn the_store_knows_of_rows_of_other_namespaces_for_as_long_as_it_has_them() {
    let dir = TempDir::new();
    let is_foreign = || {
        let reader = Reader::open(dir.path()).unwrap();
        let asked = reader.ask_with(Clearance::Public, "SELECT 1 FROM closes", Limits::default());
        matches!(asked, Err(Error::NotForAnyone(_)))
    };
    let own = sys::namespace::own().unwrap().inode;
    let mut writer = open(dir.path());
    writer.options.keep_age = Some(Duration::from_secs(3_600));
    insert_one(&mut writer, 0, Some(own));
    insert_one(&mut writer, 1, None);
    assert!(!is_foreign());
    insert_one(&mut writer, 2, Some(own + 1));
    insert_one(&mut writer, 3, Some(own));
    assert!(is_foreign());
    drop(writer);

    let mut writer = open(dir.path());
    writer.options.keep_age = Some(Duration::from_secs(3_600));
    writer.seal_all().unwrap();
    step(&mut writer).unwrap();
    assert!(is_foreign(), "a restart changes nothing");

    // Two hours later, which is when the sums of the hour are old too.
    insert_one(&mut writer, 3 * 3_600, Some(own));
    wait_for("what is old to go", || {
        writer.step_due = Instant::now();
        writer.step(at(3 * 3_600)).unwrap();
        (!is_foreign()).then_some(())
    });
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets"), 1);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets_hour WHERE dimension = 'all'"), 1);
}
