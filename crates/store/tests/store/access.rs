//! Who may read what.

use crate::support::{START_NS, insert, insert_poll, open, options, record};
use record::{ChunkBuilder, DatagramRecord, SocketRecord};
use std::collections::BTreeSet;
use std::path::Path;
use store::{
    Audience, Clearance, Error, Limits, NAMED, Parameters, Reader, TABLES, Writer, audience,
};
use testkit::TempDir;

const PAYLOAD: &str = "secret of the site";

const CLEARANCES: [Clearance; 3] = [Clearance::Everything, Clearance::Sums, Clearance::Public];

/// A store with something in it: own sockets, a sealed segment and a hot one, and a datagram.
fn fill(folder: &Path) -> Writer {
    let mut writer = open(&options(folder)).unwrap();
    insert_poll(&mut writer, 0, 3);
    writer.seal_all().unwrap();
    insert_poll(&mut writer, 1, 3);
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    let datagram = DatagramRecord {
        time_unix_ns: Some(START_NS),
        payload: Some(PAYLOAD.as_bytes()),
        ..DatagramRecord::default()
    };
    builder.datagram(&datagram, 0, 1);
    let chunk = builder.cut(None).unwrap();
    writer.insert(chunk.rows().map(|row| (row.kind, row.bytes)), sys::clock::Now::read()).unwrap();
    writer
}

/// Adds the record of a socket in another network namespace.
fn add_foreign_row(writer: &mut Writer) {
    insert(writer, &[SocketRecord { netns_inode: Some(1), ..record(2, 1) }]);
}

fn ask(folder: &Path, clearance: Clearance, statement: &str) -> Result<usize, Error> {
    let reader = Reader::open(folder).unwrap();
    reader.ask_with(clearance, statement, Limits::default()).map(|answer| answer.rows.len())
}

/// Whether it may be read, by the table in docs/store.md.
fn may_read(audience: Audience, clearance: Clearance, has_foreign_rows: bool) -> bool {
    match audience {
        Audience::Anyone => true,
        Audience::OwnSockets => !has_foreign_rows || clearance != Clearance::Public,
        Audience::Known => clearance == Clearance::Everything,
    }
}

/// Every table that a statement can name: those that the database has, the virtual one, and SQLite's own that it lists.
fn tables(folder: &Path) -> BTreeSet<String> {
    let reader = Reader::open(folder).unwrap();
    let listed = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')";
    let answer = reader.ask(listed, Limits::default()).unwrap();
    let names = answer.rows.into_iter().map(|row| match &row[0] {
        store::Value::Text(name) => name.clone(),
        other => panic!("{other:?}"),
    });
    names.chain(["sockets".to_owned(), "sqlite_schema".to_owned()]).collect()
}

#[test]
fn each_table_has_an_answer_and_each_asker_gets_it() {
    let dir = TempDir::new();
    let mut writer = fill(dir.path());
    for has_foreign_rows in [false, true] {
        if has_foreign_rows {
            add_foreign_row(&mut writer);
        }
        for table in tables(dir.path()) {
            let has_answer = TABLES.iter().any(|(name, _)| *name == table);
            assert!(has_answer || table.starts_with("hot_"), "who may read {table}?");
            for clearance in CLEARANCES {
                let may = may_read(audience(&table), clearance, has_foreign_rows);
                for statement in [
                    format!("SELECT * FROM {table}"),
                    format!("SELECT count(*) FROM {table}"),
                    format!("SELECT 1 WHERE EXISTS (SELECT 1 FROM main.{table})"),
                    format!("WITH a AS (SELECT * FROM {table}) SELECT count(*) FROM a"),
                ] {
                    let asked = ask(dir.path(), clearance, &statement);
                    match asked {
                        Ok(_) => assert!(may, "{clearance:?} {has_foreign_rows} {statement}"),
                        Err(Error::NotForAnyone(whose)) => {
                            assert!(!may, "{clearance:?} {has_foreign_rows} {statement}");
                            assert_eq!(whose, audience(&table), "{statement}");
                        }
                        Err(error) => panic!("{statement}: {error}"),
                    }
                }
            }
        }
    }
    assert_eq!(audience("a_table_of_a_newer_version"), Audience::Known);
}

#[test]
fn each_question_has_an_answer_for_anyone_and_those_about_single_sockets_are_refused() {
    let dir = TempDir::new();
    let mut writer = fill(dir.path());
    add_foreign_row(&mut writer);
    let parameters = Parameters {
        since_unix_ns: 0,
        until_unix_ns: u64::MAX >> 1,
        limit: 10,
        cookie: Some(1),
        namespace: None,
    };
    for named in NAMED {
        let is_refused = [
            "worst-peers",
            "worst-services",
            "worst-units",
            "worst-retransmits",
            "connection",
            "recent-closes",
            "closes-by-process",
            "events",
        ]
        .contains(&named.name);
        let statement = named.statement(&parameters).unwrap();
        let asked = ask(dir.path(), named.clearance(), &statement);
        assert_eq!(matches!(asked, Err(Error::NotForAnyone(_))), is_refused, "{}", named.name);
        assert!(asked.is_ok() || is_refused, "{}: {asked:?}", named.name);
        ask(dir.path(), Clearance::Everything, &statement).unwrap();
    }
}

/// SQLite asks nobody about the columns that a join compares by name, so that a guess at them would be answered.
#[test]
fn no_spelling_of_a_statement_reads_what_it_may_not() {
    let dir = TempDir::new();
    let mut writer = fill(dir.path());
    add_foreign_row(&mut writer);
    let guess = format!("(SELECT CAST('{PAYLOAD}' AS BLOB) AS payload)");
    let statements = [
        format!("SELECT 1 FROM {guess} JOIN datagrams USING (payload)"),
        format!("SELECT 1 FROM {guess} NATURAL JOIN datagrams"),
        format!("SELECT 1 FROM {guess} LEFT JOIN main.datagrams USING (payload)"),
        format!("SELECT 1 FROM {guess} RIGHT JOIN datagrams USING (payload)"),
        "SELECT 1 FROM polls NATURAL JOIN datagrams".to_owned(),
        "SELECT 1 FROM (SELECT 1001 AS cookie) JOIN sockets USING (cookie)".to_owned(),
        "SELECT 1 FROM (SELECT 1001 AS cookie) JOIN closes USING (cookie)".to_owned(),
        "SELECT 1 FROM (SELECT 'all' AS dimension) JOIN sockets_minute USING (dimension)"
            .to_owned(),
        "SELECT rowid FROM datagrams".to_owned(),
        "SELECT max(time_unix_ns) FROM datagrams".to_owned(),
        "SELECT (SELECT payload FROM datagrams LIMIT 1)".to_owned(),
        "SELECT x.payload FROM main.\"DataGrams\" AS x".to_owned(),
        "WITH ledger AS (SELECT payload FROM datagrams) SELECT count(*) FROM ledger".to_owned(),
        "WITH polls AS (SELECT * FROM datagrams) SELECT * FROM polls".to_owned(),
        "SELECT 1 FROM polls WHERE time_unix_ns IN (SELECT time_unix_ns FROM datagrams)".to_owned(),
        "SELECT count(*) OVER () FROM datagrams".to_owned(),
        "SELECT hop FROM ledger UNION SELECT payload FROM datagrams".to_owned(),
        "SELECT * FROM ledger CROSS JOIN datagrams".to_owned(),
        "VALUES ((SELECT count(*) FROM datagrams))".to_owned(),
        "SELECT 1 ORDER BY (SELECT payload FROM datagrams)".to_owned(),
        "SELECT 1 LIMIT (SELECT count(*) FROM datagrams)".to_owned(),
        "SELECT name, pgsize FROM dbstat".to_owned(),
    ];
    for statement in &statements {
        ask(dir.path(), Clearance::Everything, statement).unwrap();
        let asked = ask(dir.path(), Clearance::Public, statement);
        assert!(matches!(asked, Err(Error::NotForAnyone(_))), "{statement}: {asked:?}");
    }
    // What has nothing to do with them is answered.
    for statement in [
        "WITH a AS (SELECT 1) SELECT count(*) FROM a",
        "SELECT value FROM json_each('[1, 2]')",
        "SELECT count(*) FROM ledger JOIN polls USING (time_unix_ns)",
        "SELECT count(*) FROM flows NATURAL JOIN counters",
        "SELECT name FROM sqlite_schema ORDER BY name DESC",
        "EXPLAIN SELECT 1",
        "-- a comment\nSELECT 1;",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 9) SELECT x FROM n",
    ] {
        ask(dir.path(), Clearance::Public, statement).unwrap_or_else(|error| {
            panic!("{statement}: {error}");
        });
    }
}

#[test]
fn what_was_refused_once_does_not_stay_refused() {
    let dir = TempDir::new();
    let _writer = fill(dir.path());
    let reader = Reader::open(dir.path()).unwrap();
    let ask = |clearance, statement| reader.ask_with(clearance, statement, Limits::default());
    ask(Clearance::Public, "SELECT * FROM datagrams").unwrap_err();
    assert!(matches!(ask(Clearance::Public, "SELECT nothing"), Err(Error::Statement(_))));
    assert_eq!(ask(Clearance::Everything, "SELECT * FROM datagrams").unwrap().rows.len(), 1);
    assert_eq!(ask(Clearance::Public, "SELECT * FROM sockets").unwrap().rows.len(), 6);
    assert!(matches!(ask(Clearance::Public, "DELETE FROM polls"), Err(Error::Refused(_))));
}
