//! Random queries on `sockets` have the same answers as on a plain table with the same rows, and as `DuckDB` gives them on the
//! files.

use crate::support::{SECOND_NS, START_NS, ask, close, insert, insert_poll, options};
use record::{Field, Kind};
use rusqlite::Connection;
use std::fs;
use store::{Value, Writer, socket_columns};
use testkit::readback::DuckDb;
use testkit::{Random, TempDir, need_python_module};

const POLLS: u64 = 30;
const CONNECTIONS: u64 = 300;

/// A plain table with the rows of the virtual one.
fn plain(rows: &[Vec<Value>]) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    let column = |field: &&'static Field| match field.kind {
        Kind::Text | Kind::Address | Kind::Word(_) | Kind::Tags => format!("{} TEXT", field.name),
        _ => format!("{} INTEGER", field.name),
    };
    let names: Vec<String> = socket_columns().iter().map(column).collect();
    connection.execute_batch(&format!("CREATE TABLE sockets ({})", names.join(", "))).unwrap();
    let places = vec!["?"; names.len()].join(", ");
    let mut insert = connection.prepare(&format!("INSERT INTO sockets VALUES ({places})")).unwrap();
    for row in rows {
        insert.execute(rusqlite::params_from_iter(row)).unwrap();
    }
    drop(insert);
    connection
}

fn statement(random: &mut Random) -> String {
    let time = START_NS + random.below(POLLS + 2) * SECOND_NS + random.below(CONNECTIONS);
    let cookie = 1_000 + random.below(CONNECTIONS + 5);
    let conditions = [
        format!("time_unix_ns >= {time}"),
        format!("time_unix_ns > {time}"),
        format!("time_unix_ns < {time}"),
        format!("time_unix_ns <= {time}"),
        format!("time_unix_ns = {time}"),
        format!("cookie = {cookie}"),
        format!("cookie IN ({cookie}, 1007)"),
        format!("cookie > {cookie}"),
        format!("cookie = '{cookie}'"),
        format!("cookie = {cookie}.5"),
        "cookie IS NULL".to_owned(),
        "min_rtt_us IS NULL".to_owned(),
        "rtt_us > 3000".to_owned(),
        "record_kind = 'close'".to_owned(),
        "systemd_unit LIKE 'w%'".to_owned(),
    ];
    let chosen: Vec<&str> =
        (0..random.below(4)).map(|_| conditions[random.index(conditions.len())].as_str()).collect();
    let joined = if random.below(4) == 0 { " OR " } else { " AND " };
    let condition = if chosen.is_empty() { "1".to_owned() } else { chosen.join(joined) };
    match random.below(4) {
        0 => format!("SELECT * FROM sockets WHERE {condition} ORDER BY time_unix_ns, cookie, record_kind"),
        1 => format!("SELECT count(*), sum(rtt_us), min(dst_address) FROM sockets WHERE {condition}"),
        2 => format!("SELECT systemd_unit, count(*), max(bytes_sent) FROM sockets WHERE {condition} GROUP BY systemd_unit ORDER BY 1"),
        _ => format!("SELECT count(*), count(b.rtt_us) FROM (SELECT * FROM sockets WHERE {condition} ORDER BY time_unix_ns, cookie, record_kind LIMIT 50) a
             LEFT JOIN sockets b ON b.cookie = a.cookie AND b.time_unix_ns = a.time_unix_ns AND b.record_kind = a.record_kind"),
    }
}

#[test]
fn the_virtual_table_answers_as_a_plain_one() {
    let dir = TempDir::new();
    let mut writer = Writer::open(options(dir.path())).unwrap();
    for poll in 0..POLLS {
        insert_poll(&mut writer, poll, CONNECTIONS);
        insert(&mut writer, &[close(poll, poll)]);
        // Several files, and a segment that is not sealed.
        if poll % 10 == 9 && poll < 25 {
            writer.seal_all().unwrap();
        }
    }
    let all = ask(dir.path(), "SELECT * FROM sockets ORDER BY time_unix_ns, cookie");
    assert_eq!(all.rows.len() as u64, POLLS * (CONNECTIONS + 1));
    let plain = plain(&all.rows);

    let mut random = Random(11);
    for _ in 0..150 {
        let statement = statement(&mut random);
        let rows = ask(dir.path(), &statement).rows;
        assert!(rows == answer_of(&plain, &statement), "{statement}");
    }

    // Files alone, as others read them.
    writer.seal_all().unwrap();
    if !need_python_module("duckdb") {
        return;
    }
    let files = fs::read_dir(dir.file("raw")).unwrap().map(|file| file.unwrap().path());
    let columns: Vec<&str> = socket_columns().iter().map(|field| field.name).collect();
    let mut duckdb = DuckDb::start(&columns, &files.collect::<Vec<_>>());
    for _ in 0..150 {
        let statement = statement(&mut random);
        let rows = ask(dir.path(), &statement).rows;
        assert!(rows == answer_of(&plain, &statement), "{statement}");
        let by_duckdb = duckdb.ask(&statement);
        let by_store: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(json).collect()).collect();
        assert!(by_store == by_duckdb, "{statement}: {by_store:?}, and by DuckDB {by_duckdb:?}");
    }
}

fn answer_of(plain: &Connection, statement: &str) -> Vec<Vec<Value>> {
    let mut prepared = plain.prepare(statement).unwrap();
    let columns = prepared.column_count();
    let row = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
    prepared.query_map([], row).unwrap().map(Result::unwrap).collect()
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Integer(number) => (*number).into(),
        Value::Text(text) => text.as_str().into(),
        other => panic!("{other:?} is not in these rows"),
    }
}
