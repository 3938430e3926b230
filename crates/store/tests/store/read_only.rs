//! Statements can only read, and only this store.

mod made_up;

use crate::support::{insert_poll, options};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};
use store::{Error, Limits, Reader, Writer};
use testkit::TempDir;

fn store(dir: &TempDir) -> Reader {
    let mut writer = Writer::open(options(dir.path())).unwrap();
    insert_poll(&mut writer, 0, 100);
    writer.seal_all().unwrap();
    insert_poll(&mut writer, 1, 100);
    drop(writer);
    Reader::open(dir.path()).unwrap()
}

/// Every file below a folder with its size and time of last change, except the index that readers of a log share.
fn files(folder: &Path) -> BTreeMap<String, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let about = entry.metadata().unwrap();
        if about.is_dir() {
            let below = files(&entry.path()).into_iter();
            found.extend(below.map(|(below, about)| (format!("{name}/{below}"), about)));
        } else if !name.ends_with("-shm") && !name.ends_with("-wal") {
            found.insert(name, (about.len(), about.modified().unwrap()));
        }
    }
    found
}

#[test]
fn what_is_not_reading_is_refused() {
    let (dir, outside) = (TempDir::new(), TempDir::new());
    let reader = store(&dir);
    let other = outside.text("other.sqlite");
    let connection = rusqlite::Connection::open(&other).unwrap();
    connection.execute_batch("CREATE TABLE secret (x); INSERT INTO secret VALUES (1)").unwrap();
    drop(connection);

    let before = files(dir.path());
    let new = outside.text("new.sqlite");
    for statement in [
        "INSERT INTO closes (cookie) VALUES (1)".to_owned(),
        "UPDATE closes SET cookie = 1".to_owned(),
        "DELETE FROM closes".to_owned(),
        "DROP TABLE closes".to_owned(),
        "CREATE TABLE x (y)".to_owned(),
        "CREATE TEMP TABLE x (y)".to_owned(),
        "CREATE TEMP VIEW x AS SELECT 1".to_owned(),
        "ALTER TABLE closes ADD COLUMN x".to_owned(),
        format!("ATTACH '{new}' AS new"),
        format!("ATTACH '{other}' AS other"),
        format!("VACUUM INTO '{new}'"),
        "VACUUM".to_owned(),
        "REINDEX".to_owned(),
        "ANALYZE".to_owned(),
        "PRAGMA user_version".to_owned(),
        "PRAGMA query_only = 0".to_owned(),
        "PRAGMA writable_schema = 1".to_owned(),
        "BEGIN".to_owned(),
        "SAVEPOINT x".to_owned(),
        "SELECT load_extension('x.so')".to_owned(),
        "SELECT writefile('x', 'y')".to_owned(),
        "SELECT readfile('/etc/passwd')".to_owned(),
        "SELECT 1; DELETE FROM closes".to_owned(),
        "INSERT INTO sockets (cookie) VALUES (1)".to_owned(),
        "SELECT * FROM pragma_database_list".to_owned(),
    ] {
        let refused = reader.ask(&statement, Limits::default());
        let is_refused = matches!(refused, Err(Error::Refused(_) | Error::Statement(_)));
        assert!(is_refused, "{statement}: {refused:?}");
    }
    assert_eq!(files(dir.path()), before);
    assert_eq!(files(outside.path()).keys().collect::<Vec<_>>(), ["other.sqlite"]);
}

#[test]
fn a_statement_that_loops_for_too_long_is_ended() {
    let dir = TempDir::new();
    let reader = store(&dir);
    let limits = Limits { time: Duration::from_millis(100), rows_max: 10, ..Limits::default() };
    for statement in [
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n",
        "SELECT count(*) FROM sockets a, sockets b, sockets c, sockets d, sockets e",
    ] {
        let ended = reader.ask(statement, limits);
        assert!(matches!(ended, Err(Error::Timeout { .. })), "{ended:?}");
    }
    // A statement without a loop is not looked at in between: the daemon ends the process that runs it (`query_helper` in the tests of
    // `weir`). The next statement has a time limit of its own.
    reader.ask("SELECT count(*) FROM sockets", Limits::default()).unwrap();
}

#[test]
fn an_answer_has_no_more_rows_than_it_may() {
    let dir = TempDir::new();
    let reader = store(&dir);
    let ask = |rows_max| {
        let limits = Limits { rows_max, ..Limits::default() };
        let answer = reader.ask("SELECT cookie FROM sockets", limits).unwrap();
        (answer.rows.len(), answer.is_truncated)
    };
    assert_eq!(ask(7), (7, true));
    assert_eq!(ask(200), (200, false));
}
