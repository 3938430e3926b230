//! Made-up statements, most of them nonsense: whatever one says, it is answered, refused or stopped, and nothing is written.

use super::{files, store};
use std::path::Path;
use std::time::Duration;
use store::{Error, Limits, Value};
use testkit::{Random, TempDir, say};

/// Number of generated statements; by hand, a million.
fn statements() -> u64 {
    std::env::var("WEIR_TEST_STATEMENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000)
}

/// Words of generated statements: those that read, those that write, and those in between.
const WORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "sockets",
    "closes",
    "ledger",
    "segments",
    "hot_2",
    "sqlite_schema",
    "*",
    ",",
    "(",
    ")",
    "=",
    "<",
    ">=",
    "cookie",
    "time_unix_ns",
    "rtt",
    "1",
    "-1",
    "9223372036854775807",
    "1e300",
    "''",
    "x'00'",
    "NULL",
    "count(*)",
    "ORDER BY",
    "GROUP BY",
    "LIMIT",
    "UNION ALL",
    "WITH RECURSIVE n(x) AS",
    "JOIN",
    "ON",
    "sketch_merge(rtt)",
    "sketch_quantile(",
    "zeroblob(",
    "randomblob(",
    "printf('%9999999d', 1)",
    "replace(",
    "quantile(",
    "ts(",
    "INSERT INTO",
    "VALUES",
    "UPDATE",
    "SET",
    "DELETE FROM",
    "DROP TABLE",
    "CREATE TABLE",
    "CREATE TRIGGER",
    "ATTACH",
    "'evil.sqlite'",
    "AS",
    "VACUUM INTO",
    "PRAGMA",
    "journal_mode",
    "writable_schema",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    ";",
    "--",
    "/*",
    "\"",
    "[",
    "{",
    "EXPLAIN",
    "sockets_minute",
    "NOT",
    "IN",
    "EXISTS",
];

/// What a statement that makes sense selects, from where, and what follows.
const SELECTED: &[&str] = &[
    "*",
    "count(*)",
    "cookie",
    "max(rtt_us)",
    "DISTINCT state",
    "time_unix_ns, rtt_us",
    "quantile(rtt_us, 0.9)",
    "ts(time_unix_ns)",
    "sum(cookie) OVER (ORDER BY time_unix_ns)",
    "string_agg(cookie, ',')",
    "zeroblob(1000000)",
    "randomblob(200000)",
    "printf('%9999999d', 1)",
    "replace(hex(zeroblob(9000)), '00', 'abcdefgh')",
    "(SELECT count(*) FROM closes)",
    "readfile('/etc/passwd')",
    "load_extension('x')",
];
const SOURCES: &[&str] = &[
    "sockets",
    "closes",
    "sockets_minute",
    "ledger",
    "segments",
    "hot_2",
    "sqlite_schema",
    "pragma_table_info('closes')",
    "(VALUES (1), (2))",
    "secret",
    "other.secret",
];
const ENDINGS: &[&str] = &[
    "",
    "WHERE cookie = 1003",
    "WHERE time_unix_ns > 0 AND cookie IN (SELECT cookie FROM closes)",
    "WHERE rtt_us LIKE '%1%'",
    "GROUP BY 1",
    "ORDER BY 1 DESC",
    "LIMIT 3 OFFSET 2",
    "UNION ALL SELECT 1",
    "; DROP TABLE closes",
];
/// What only the time limit ends.
const ENDLESS: &[&str] = &[
    "SELECT count(*) FROM sockets a, sockets b, sockets c, sockets d",
    "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT quantile(x, 0.5) FROM n",
    "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(hex(zeroblob(100000))) FROM n",
];

fn statement(random: &mut Random, words: &[&str]) -> String {
    let mut one_of = |all: &[&'static str]| all[random.index(all.len())];
    let (selected, source, ending) = (one_of(SELECTED), one_of(SOURCES), one_of(ENDINGS));
    let endless = one_of(ENDLESS);
    match random.below(2_000) {
        0 => endless.to_owned(),
        1..600 => format!("SELECT {selected} FROM {source} {ending}"),
        kind => {
            let count = 1 + random.index(12);
            let chosen: Vec<&str> = (0..count).map(|_| words[random.index(words.len())]).collect();
            // Most begin like a query, so that many get past the parser.
            let begin = if kind < 900 { "" } else { "SELECT " };
            format!("{begin}{}", chosen.join(" "))
        }
    }
}

#[test]
fn made_up_statements_change_nothing_and_end() {
    let dir = TempDir::new();
    let reader = store(&dir);
    let before = files(dir.path());
    let limits = Limits { time: Duration::from_millis(300), rows_max: 100, ..Limits::default() };
    let outside = TempDir::new();
    let bait = bait(&outside);
    let words: Vec<&str> = WORDS.iter().copied().chain([bait.as_str(), "secret"]).collect();

    let (mut random, mut answered, mut timeouts, mut longest_ns) = (Random(16), 0, 0, 0);
    for _ in 0..statements() {
        let statement = statement(&mut random, &words);
        let began_ns = sys::clock::thread_cpu_ns();
        let answer = reader.ask(&statement, limits);
        longest_ns = longest_ns.max(sys::clock::thread_cpu_ns() - began_ns);
        match answer {
            Ok(answer) => {
                answered += 1;
                assert!(!answer.rows.iter().flatten().any(is_of_bait), "{statement}");
            }
            Err(Error::Timeout { .. }) => timeouts += 1,
            Err(Error::Refused(_) | Error::Statement(_)) => {}
            Err(error) => panic!("{statement}: {error}"),
        }
    }
    assert!(answered > 0);
    // Time that the processor gave to others does not count.
    let longest = Duration::from_nanos(longest_ns);
    assert!(longest <= limits.time * 6 / 5, "{longest:?} for a limit of {:?}", limits.time);
    assert_eq!(files(dir.path()), before);
    assert_eq!(files(outside.path()).keys().collect::<Vec<_>>(), ["other.sqlite"]);
    assert!(!Path::new("evil.sqlite").exists());
    say(&format!(
        "{} statements: {answered} answered, {timeouts} stopped, the longest after {longest:?} of CPU",
        statements()
    ));
}

const SECRET: &str = "outside of the store";

/// A database next to the store; its path as a word of SQL.
fn bait(outside: &TempDir) -> String {
    let other = outside.text("other.sqlite");
    let connection = rusqlite::Connection::open(&other).unwrap();
    let table = format!("CREATE TABLE secret (x); INSERT INTO secret VALUES ('{SECRET}')");
    connection.execute_batch(&table).unwrap();
    format!("'{other}'")
}

fn is_of_bait(value: &Value) -> bool {
    matches!(value, Value::Text(text) if text == SECRET)
}
