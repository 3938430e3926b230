use super::*;
use crate::writer::{Options, Writer};
use record::{ChunkBuilder, CloseReason, RecordKind, SocketRecord};
use testkit::TempDir;

/// 2026-11-25 17:00:00 UTC.
const START_NS: i64 = 1_795_626_000_000_000_000;

/// Ten minutes with many closes, and a row of the ledger for each minute.
fn fill(folder: &Path) -> Connection {
    let options = Options {
        folder: folder.to_owned(),
        keep_age: None,
        keep_bytes: None,
        segment_age: Duration::from_secs(3_600),
        keys_max: 10,
    };
    let mut writer = Writer::open(options).unwrap();
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
        writer.insert(chunk.rows().map(|row| (row.kind, row.bytes))).unwrap();
    }
    drop(writer);

    let connection = schema::open_writer(folder).unwrap();
    for minute in 0..10 {
        let insert = "INSERT INTO ledger VALUES (?1, 'target', 'in', 'out', 'received', '', 1, 1)";
        connection.execute(insert, [START_NS + minute * MINUTE_NS]).unwrap();
    }
    connection
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
        let deleted = prune_once(&mut connection, None, Some(0)).unwrap();
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
    while prune_once(&mut connection, Some(cutoff), None).unwrap() > 0 {}
    for table in TABLES {
        let first = number(&connection, &format!("SELECT min(time_unix_ns) FROM {table}"));
        assert_eq!(first, cutoff, "{table}");
    }
}
