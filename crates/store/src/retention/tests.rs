use super::*;
use crate::writer::{Options, Writer};
use record::{ChunkBuilder, CloseReason, DatagramRecord, RecordKind, SocketRecord};
use sys::clock::Now;
use testkit::TempDir;

/// 2026-11-25 17:00:00 UTC.
const START_NS: i64 = 1_795_626_000_000_000_000;

/// Ten minutes with many closes, and a row of the ledger for each minute.
fn fill(folder: &Path) -> Connection {
    let mut writer = Writer::open(options(folder)).unwrap();
    for minute in 0..10 {
        let mut builder = ChunkBuilder::new(1, [0; 16]);
        for close in 0..1_000 {
            builder.record(&SocketRecord {
                record_kind: Some(RecordKind::CLOSE),
                time_unix_ns: Some((START_NS + minute * MINUTE_NS + close) as u64),
                cookie: Some(close as u64),
                close_reason: Some(CloseReason::TIMED_OUT),
                ..SocketRecord::default()
            });
        }
        let chunk = builder.cut(None).unwrap();
        let rows = chunk.rows().map(|row| (row.kind, row.bytes));
        writer.insert(rows, at(minute)).unwrap();
    }
    drop(writer);

    let connection = schema::open_writer(folder).unwrap();
    for minute in 0..10 {
        let insert = "INSERT INTO ledger VALUES (?1, 'target', 'in', 'out', 'received', '', 1, 1)";
        connection.execute(insert, [START_NS + minute * MINUTE_NS]).unwrap();
    }
    connection
}

/// A minute after the start, on both clocks.
fn at(minute: i64) -> Now {
    let unix_ns = (START_NS + minute * MINUTE_NS) as u64;
    Now { monotonic_ns: unix_ns, realtime_ns: unix_ns }
}

/// Limits ten minutes after the start.
fn bounds(oldest_unix_ns: Option<i64>) -> Bounds {
    Bounds { now_unix_ns: START_NS + 10 * MINUTE_NS, oldest_unix_ns, bytes_max: None }
}

const TABLES: [&str; 3] = ["closes", "sockets_minute", "ledger"];

fn number(connection: &Connection, select: &str) -> i64 {
    connection.query_row(select, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_full_table_does_not_cost_the_others_their_past() {
    let dir = TempDir::new();
    let mut connection = fill(dir.path());
    let middle = START_NS + 5 * MINUTE_NS;
    while oldest(&connection).unwrap().unwrap() < middle {
        let cutoff = oldest(&connection).unwrap().unwrap() + WINDOW_NS;
        let newer =
            |table: &str| format!("SELECT count(*) FROM {table} WHERE time_unix_ns >= {cutoff}");
        let before = TABLES.map(|table| number(&connection, &newer(table)));

        // The tables are to have no space at all.
        let deleted = prune_once(&mut connection, bounds(None), Some(0)).unwrap();
        let places = tables::NAMES.len() + 2 * rollup::dimensions().count() + 1;
        assert!((1..=places * ROWS_MAX as usize).contains(&deleted), "{deleted} at once");
        assert_eq!(TABLES.map(|table| number(&connection, &newer(table))), before);
    }

    for table in TABLES {
        let first = number(&connection, &format!("SELECT min(time_unix_ns) FROM {table}"));
        assert!((middle..=middle + WINDOW_NS).contains(&first), "{table}: {}", first - START_NS);
    }
}

#[test]
fn what_is_too_old_goes_from_all_tables_at_one_moment() {
    let dir = TempDir::new();
    let mut connection = fill(dir.path());
    let cutoff = START_NS + 5 * MINUTE_NS;
    while prune_once(&mut connection, bounds(Some(cutoff)), None).unwrap() > 0 {}
    for table in TABLES {
        let first = number(&connection, &format!("SELECT min(time_unix_ns) FROM {table}"));
        // Sums and the ledger stay for a span longer than rows.
        let oldest = if table == "closes" { cutoff } else { cutoff - MINUTE_NS };
        assert_eq!(first, oldest, "{table}");
    }
}

/// Times that other hosts may say: of 1970, about right, and of the year 2200.
fn said(count: i64) -> u64 {
    [1, (START_NS + count) as u64, 7_258_118_400_000_000_000][count as usize % 3]
}

/// A datagram of each kind for each of ten minutes, numbered by the minute in which it arrived.
fn fill_datagrams(folder: &Path) -> Connection {
    let mut writer = Writer::open(options(folder)).unwrap();
    for minute in 0..10 {
        let mut builder = ChunkBuilder::new(1, [0; 16]);
        for count in 0..300 {
            let row = DatagramRecord {
                time_unix_ns: Some(said(count)),
                sequence: Some(minute as u64),
                ..DatagramRecord::new()
            };
            builder.datagram(&row, 1, at(minute).realtime_ns);
        }
        let chunk = builder.cut(None).unwrap();
        writer.insert(chunk.rows().map(|row| (row.kind, row.bytes)), at(minute)).unwrap();
    }
    drop(writer);
    schema::open_writer(folder).unwrap()
}

#[test]
fn what_another_host_says_about_time_neither_ages_a_row_nor_keeps_it() {
    let dir = TempDir::new();
    let mut connection = fill_datagrams(dir.path());
    let cutoff = START_NS + 5 * MINUTE_NS;
    while prune_once(&mut connection, bounds(Some(cutoff)), None).unwrap() > 0 {}
    assert_eq!(number(&connection, "SELECT min(sequence) FROM datagrams"), 5);
    assert_eq!(number(&connection, "SELECT count(*) FROM datagrams"), 5 * 300);
}

#[test]
fn rows_of_the_future_do_not_crowd_out_those_that_arrived_later() {
    let dir = TempDir::new();
    let mut connection = fill_datagrams(dir.path());
    for rest in (0..6).rev() {
        let count = "SELECT count(*) FROM datagrams";
        while number(&connection, count) > rest * 300 {
            assert!(prune_once(&mut connection, bounds(None), Some(0)).unwrap() > 0);
        }
    }
    // No space at all, and the last to go are the last that arrived.
    let dir = TempDir::new();
    let mut connection = fill_datagrams(dir.path());
    while number(&connection, "SELECT min(sequence) FROM datagrams") < 6 {
        let before = number(&connection, "SELECT count(*) FROM datagrams WHERE sequence >= 8");
        assert_eq!(before, 600);
        assert!(prune_once(&mut connection, bounds(None), Some(0)).unwrap() > 0);
    }
}

/// A clock that somebody sets to another time and back.
#[test]
fn a_clock_that_is_set_ages_nothing() {
    let hours = |count: i64| count * HOUR_NS;
    for (begin, step) in [(START_NS, hours(3)), (START_NS, -hours(3)), (0, START_NS)] {
        let dir = TempDir::new();
        let keep_age = Some(Duration::from_secs(3_600));
        let mut writer = Writer::open(Options { keep_age, ..options(dir.path()) }).unwrap();
        let now = |minute: i64, shift: i64| Now {
            monotonic_ns: (minute * MINUTE_NS) as u64,
            realtime_ns: (begin + shift + minute * MINUTE_NS) as u64,
        };
        insert_datagram(&mut writer, now(0, 0));
        insert_datagram(&mut writer, now(50, step));
        let count = |writer: &mut Writer, now| {
            writer.step_at_once(now).unwrap();
            number(
                &schema::open_beside_writer(dir.path()).unwrap(),
                "SELECT count(*) FROM datagrams",
            )
        };
        assert_eq!(count(&mut writer, now(59, step)), 2, "{begin} {step}: early");
        assert_eq!(count(&mut writer, now(62, step)), 1, "{begin} {step}: late");
        assert_eq!(count(&mut writer, now(109, step)), 1, "{begin} {step}: early");
        assert_eq!(count(&mut writer, now(112, step)), 0, "{begin} {step}: late");
    }
}

/// A store whose writer ends while the clock is wrong, and what is kept when it is right again.
#[test]
fn a_clock_that_was_wrong_for_a_while_ages_nothing() {
    let dir = TempDir::new();
    let open = || {
        Writer::open(Options { keep_age: Some(Duration::from_secs(3_600)), ..options(dir.path()) })
            .unwrap()
    };
    let now = |unix_ns: i64| Now { monotonic_ns: 0, realtime_ns: unix_ns as u64 };
    let minutes = |count: i64| START_NS + count * MINUTE_NS;
    for time in [minutes(0), 7 * MINUTE_NS, minutes(4), minutes(1_000_000), minutes(8)] {
        insert_datagram(&mut open(), now(time));
    }
    let count = |time| {
        open().step_at_once(now(time)).unwrap();
        number(&schema::open_writer(dir.path()).unwrap(), "SELECT count(*) FROM datagrams")
    };
    // While it is wrong, and right.
    assert_eq!([count(9 * MINUTE_NS), count(minutes(9)), count(minutes(59))], [5; 3]);
    // The second arrived after the first, and the fourth before the fifth.
    assert_eq!([count(minutes(62)), count(minutes(66)), count(minutes(70))], [3, 2, 0]);
}

#[test]
fn a_store_of_an_earlier_version_has_the_ages_that_its_rows_say() {
    let dir = TempDir::new();
    drop(fill(dir.path()));
    let connection = schema::open_writer(dir.path()).unwrap();
    connection.execute_batch("DROP TABLE arrivals").unwrap();
    drop(connection);
    let mut writer = Writer::open(options(dir.path())).unwrap();
    let connection = &mut schema::open_beside_writer(dir.path()).unwrap();
    let cutoff = START_NS + 5 * MINUTE_NS;
    while prune_once(connection, bounds(Some(cutoff)), None).unwrap() > 0 {}
    let first = number(connection, "SELECT min(time_unix_ns) FROM closes");
    assert!((cutoff - MINUTE_NS..=cutoff).contains(&first), "{}", first - START_NS);
    insert_datagram(&mut writer, at(11));
}

fn insert_datagram(writer: &mut Writer, now: Now) {
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    builder.datagram(&DatagramRecord { time_unix_ns: Some(5), ..DatagramRecord::new() }, 1, 5);
    let chunk = builder.cut(None).unwrap();
    writer.insert(chunk.rows().map(|row| (row.kind, row.bytes)), now).unwrap();
}

fn options(folder: &Path) -> Options {
    Options {
        folder: folder.to_owned(),
        keep_age: None,
        keep_bytes: None,
        segment_age: Duration::from_secs(3_600),
        keys_max: 10,
    }
}
