//! Stores that another version of Weir wrote.

use crate::support::{START_NS, ask, at, chunk, close, insert, number, open, options, record};
use columns::{Table, TableWriter};
use record::{Chunk, FieldSet};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use store::{Reader, SCHEMA_VERSION, Value};
use testkit::TempDir;

/// The contents of every file of a store, except the index of its log.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for below in [folder.to_owned(), folder.join("raw")] {
        for entry in fs::read_dir(below).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_file() && !name.ends_with("-shm") {
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

/// Writes to a store as another program would that ends without emptying the log.
fn write_to_log(folder: &Path, statement: &str) {
    let connection = Connection::open(folder.join("history.sqlite")).unwrap();
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    connection.execute_batch(statement).unwrap();
}

/// A store with a sealed segment, a hot one, and a file that no segment names.
fn store(folder: &Path) -> Chunk {
    let sealed = chunk(&[record(0, 1), close(0, 2)]);
    let mut writer = open(&options(folder)).unwrap();
    writer.insert(sealed.rows().map(|row| (row.kind, row.bytes)), at(START_NS)).unwrap();
    writer.seal_all().unwrap();
    insert(&mut writer, &[record(1, 1)]);
    drop(writer);
    fs::write(folder.join("raw/1-00000099.parquet"), "of a sealing that was killed").unwrap();
    sealed
}

#[track_caller]
fn refused_untouched(folder: &Path, sentence: &str) {
    let before = contents(folder);
    assert!(before.contains_key("history.sqlite-wal") && before.contains_key("1-00000099.parquet"));
    for error in [open(&options(folder)).err(), Reader::open(folder).err()] {
        let text = error.unwrap().to_string();
        assert!(text.contains(sentence), "{text}");
    }
    assert!(contents(folder) == before, "it was changed");
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_not_touched() {
    let dir = TempDir::new();
    store(dir.path());
    let newer = SCHEMA_VERSION + 1;
    write_to_log(
        dir.path(),
        &format!("PRAGMA user_version = {newer}; CREATE TABLE of_tomorrow (x)"),
    );
    refused_untouched(
        dir.path(),
        &format!("has version {newer} of the store, and this Weir knows"),
    );
}

#[test]
fn a_database_of_another_program_is_refused_and_not_touched() {
    let dir = TempDir::new();
    store(dir.path());
    write_to_log(dir.path(), "PRAGMA application_id = 7");
    refused_untouched(dir.path(), "is a database, and not a store");
}

/// As version 0 might have been: no rows of flows, closes without their last columns, and files without a field.
#[test]
fn a_store_of_an_older_version_is_read_and_continued() {
    let dir = TempDir::new();
    let sealed = store(dir.path());
    let older = format!(
        "BEGIN; DROP TABLE flows; DROP TABLE flow_totals; DROP INDEX closes_time;
         ALTER TABLE closes DROP COLUMN sndbuf_limited_us; ALTER TABLE closes DROP COLUMN process_name;
         PRAGMA user_version = {}; COMMIT",
        SCHEMA_VERSION - 1
    );
    Connection::open(dir.file("history.sqlite")).unwrap().execute_batch(&older).unwrap();
    let name = "SELECT file FROM segments WHERE file IS NOT NULL";
    let Value::Text(name) = &ask(dir.path(), name).rows[0][0] else { panic!("not a name") };
    fs::write(dir.file("raw").join(name), without_rtt(&sealed)).unwrap();

    // Reading needs no upgrade, and makes none.
    let polls = "SELECT count(*) FROM sockets";
    assert_eq!(number(dir.path(), polls), 3);
    assert_eq!(number(dir.path(), "SELECT count(rtt_us) FROM sockets"), 1);
    assert_eq!(version(dir.path()), SCHEMA_VERSION - 1);

    let mut writer = open(&options(dir.path())).unwrap();
    assert_eq!(version(dir.path()), SCHEMA_VERSION);
    insert(&mut writer, &[close(2, 1)]);
    writer.seal_all().unwrap();
    assert_eq!(number(dir.path(), polls), 4);
    assert_eq!(number(dir.path(), "SELECT count(rtt_us) FROM sockets"), 2);
    let closes = "SELECT cookie, close_reason, rtt_us, process_name, sndbuf_limited_us FROM closes ORDER BY cookie DESC";
    let closed = |cookie, rtt_us| {
        [
            Value::Integer(cookie),
            Value::Text("timed_out".into()),
            Value::Integer(rtt_us),
            Value::Null,
            Value::Null,
        ]
    };
    assert_eq!(ask(dir.path(), closes).rows, [closed(1_002, 174), closed(1_001, 159)]);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM flows, flow_totals"), 0);
}

/// These rows as a file of a version that did not have a field yet.
fn without_rtt(rows: &Chunk) -> Vec<u8> {
    let fields = FieldSet::ALL.without(&FieldSet::from_names(["rtt_us"]).unwrap());
    let mut writer = TableWriter::new(Table::sockets(&fields)).unwrap();
    rows.rows().for_each(|row| writer.push(row.bytes).unwrap());
    writer.finish().unwrap()
}

fn version(folder: &Path) -> i64 {
    let connection = Connection::open(folder.join("history.sqlite")).unwrap();
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}
