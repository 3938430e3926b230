//! A fleet's history in a real ClickHouse: each named question has the answer that this machine's store gives about the same rows.

mod board;
mod rows;
mod view;

use crate::support::WEIR;
use rows::{END_NS, HOST, LONG_SINCE_NS, OTHER_HOST, START_NS};
use serde_json::Value;
use sink::{
    BatchLimits, ClickHouseOptions, Compression, DeliveryOptions, Duplicates, Fanout, Insertion,
    Login, MissingTables, QueueOptions, Sink, SinkOptions, TlsOptions,
};
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{NAMED, Options, Writer};
use testkit::servers::{Server, unique};
use testkit::{TempDir, free_port};

/// A store and a database with the same rows of one host. The database also has those of another.
struct Scene {
    dir: TempDir,
    server: SocketAddr,
    database: String,
}

impl Scene {
    fn fill(rows: u64) -> Option<Scene> {
        let server = Server::ClickHouse.shared()?;
        let scene = Scene { dir: TempDir::new(), server, database: unique("fleet") };
        let mut store = Writer::open(Options {
            folder: scene.dir.file("history"),
            keep_age: None,
            keep_bytes: None,
            segment_age: Duration::from_secs(3_600),
            keys_max: 1_000,
        })
        .unwrap();
        let sink = Sink::open(sink(server, &scene.database, PREFIX)).unwrap();
        let fanout = Fanout::default();
        fanout.attach(&sink);

        for chunk in rows::chunks(HOST, rows) {
            let rows = chunk.rows().map(|row| (row.kind, row.bytes));
            let unreadable = store.insert(rows, sys::clock::Now::read());
            assert!(unreadable.unwrap().unreadable.is_empty());
            fanout.hand_over(&Arc::new(chunk));
        }
        for chunk in rows::chunks(OTHER_HOST, 1_000) {
            fanout.hand_over(&Arc::new(chunk));
        }
        store.seal_all().unwrap();
        let left = sink.wait(Instant::now() + Duration::from_secs(300));
        assert!(left.is_zero(), "{left:?}");
        Some(scene)
    }

    fn at(&self) -> String {
        format!("clickhouse://{}/{}?table_prefix={PREFIX}", self.server, self.database)
    }

    /// What the store, or the fleet, answers to these arguments.
    fn ask(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(WEIR);
        command.arg("query").args(args).args(["--format", "json"]);
        command.current_dir(self.dir.path()).output().unwrap()
    }

    fn ask_store(&self, args: &[&str]) -> Value {
        self.ask(&[args, &["--store", "history"]].concat())
    }

    fn ask_fleet(&self, args: &[&str]) -> Value {
        self.ask(&[args, &["--at", &self.at(), "--timeout", "60s"]].concat())
    }

    /// Exit code and message of a question that is refused.
    fn refused(&self, args: &[&str]) -> (i32, String) {
        let patience = if args.contains(&"--timeout") { &[][..] } else { &["--timeout", "60s"] };
        let output = self.run(&[args, patience].concat());
        assert!(output.stdout.is_empty(), "{args:?}");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

/// Of the names of tables, so that no test finds what it did not ask for.
const PREFIX: &str = "net_";

/// What fills a database.
fn sink(server: SocketAddr, database: &str, table_prefix: &str) -> SinkOptions {
    let to = ClickHouseOptions {
        url: format!("http://{}", server),
        database: database.to_owned(),
        table_prefix: table_prefix.to_owned(),
        login: Login::default(),
        tls: TlsOptions::default(),
        request_timeout: Duration::from_secs(60),
        compression: Compression::Zstd,
        fields: record::FieldSet::ALL,
        missing_tables: MissingTables::Created,
        duplicates: Duplicates::Removed,
        insertion: Insertion::AtOnce,
    };
    SinkOptions {
        name: "fleet".into(),
        origin: "sockets".into(),
        queue: QueueOptions { bytes_max: 1 << 30, ..QueueOptions::default() },
        batch: BatchLimits { rows: 50_000, bytes: 32 << 20, age: Duration::from_millis(200) },
        delivery: DeliveryOptions { in_flight_max: 2, ..DeliveryOptions::default() },
        spool: None,
        connector: sink::clickhouse(to),
    }
}

/// The names and units of an answer's columns, and its rows; without the host, which a store does not have.
fn without_host(answer: &Value) -> (Vec<Value>, Vec<Vec<Value>>) {
    let mut columns = answer["columns"].as_array().unwrap().clone();
    let has_host = columns[0]["name"] == "host";
    let skip = usize::from(has_host);
    let rows = answer["rows"].as_array().unwrap().iter();
    let rows: Vec<Vec<Value>> = rows.map(|row| row.as_array().unwrap()[skip..].to_vec()).collect();
    columns.drain(..skip);
    (columns, rows)
}

/// Whether two cells have the same value. Quotients are calculated in another order.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) if left.is_f64() || right.is_f64() => {
            let (left, right) = (left.as_f64().unwrap(), right.as_f64().unwrap());
            (left - right).abs() <= left.abs() * 1e-12
        }
        (left, right) => left == right,
    }
}

#[test]
fn each_named_question_has_the_same_answer_here_and_there() {
    let Some(scene) = Scene::fill(testkit::history_rows()) else { return };
    let (start, end, cookie) = (START_NS.to_string(), END_NS.to_string(), rows::COOKIE.to_string());
    let long = LONG_SINCE_NS.to_string();

    for named in NAMED.iter().filter(|named| !named.is_of_one_machine()) {
        // By minute, and by hour.
        for since in [&start, &long] {
            let args = [named.name, "--since", since, "--until", &end, "--cookie", &cookie];
            let args = [&args[..], &["--limit", "1000"]].concat();
            let here = scene.ask_store(&[&args[..], &["--timeout", "60s"]].concat());
            let there = scene.ask_fleet(&[&args[..], &["--host", HOST]].concat());
            println!(
                "{}: {} ms here, {} ms there",
                named.name, here["elapsed_ms"], there["elapsed_ms"]
            );
            let ((columns, here), (columns_there, there)) =
                (without_host(&here), without_host(&there));

            assert_eq!(columns, columns_there, "{}", named.name);
            assert!(!here.is_empty(), "{}", named.name);
            assert_eq!(here.len(), there.len(), "{}", named.name);
            for (here, there) in here.iter().zip(&there) {
                let is_same = here.iter().zip(there).all(|(here, there)| is_same(here, there));
                assert!(is_same, "{}:\n{here:?}\n{there:?}", named.name);
            }
        }
    }
}

#[test]
fn a_fleet_is_asked_as_a_whole_and_can_only_be_read() {
    let Some(scene) = Scene::fill(2_000) else { return };
    let (start, end) = (START_NS.to_string(), END_NS.to_string());
    let range = ["--since", &start, "--until", &end];
    let units = scene.ask_fleet(&[&["worst-units"], &range[..]].concat());
    assert_eq!(units["columns"][0]["name"], "host");
    let has = |host: &str| units["rows"].as_array().unwrap().iter().any(|row| row[0] == host);
    assert!(has(HOST) && has(OTHER_HOST), "{units}");

    let complete = scene.ask_fleet(&[&["completeness", "--host", HOST], &range[..]].concat());
    assert_eq!(complete["columns"][5]["name"], "missing");
    assert_eq!(
        (&complete["row_count"], &complete["rows"][0][5]),
        (&1.into(), &1.into()),
        "{complete}"
    );

    // In ClickHouse's own dialect, with the macros of the files.
    let own =
        "SELECT host, uniqExact(cookie) AS connections FROM {sockets} GROUP BY host ORDER BY host";
    let own = scene.ask_fleet(&[&[own], &range[..]].concat());
    assert_eq!(own["rows"][0][0], HOST);
    let one = scene.ask_fleet(&["SELECT number FROM numbers(10)", "--max-rows", "3"]);
    assert_eq!((one["row_count"].as_u64(), &one["truncated"]), (Some(3), &true.into()));

    let at = scene.at();
    for statement in [
        "DROP TABLE net_sockets",
        "INSERT INTO net_sockets (cookie) SELECT 1",
        "CREATE TABLE t (a Int8) ENGINE = Memory",
    ] {
        let (code, said) = scene.refused(&[statement, "--at", &at]);
        assert_eq!(code, 77, "{said}");
        assert!(said.contains("readonly mode") && said.contains("Fix: ask with SELECT"), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
    let count = scene.ask_fleet(&["SELECT count() FROM net_sockets"]);
    assert!(count["rows"][0][0].as_u64() > Some(2_000), "{count}");
    let file = scene.refused(&["SELECT * FROM file('/etc/passwd', 'LineAsString')", "--at", &at]);
    assert_eq!(file.0, 77, "{}", file.1);
}

#[test]
fn what_keeps_a_fleet_from_answering_is_named_with_what_fixes_it() {
    let Some(scene) = Scene::fill(100) else { return };
    let check = |args: &[&str], at: &str, expected: i32, words: &[&str]| {
        let (code, said) = scene.refused(&[args, &["--at", at]].concat());
        assert_eq!(code, expected, "{said}");
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    };
    let at = scene.at();
    check(&["SELECT x FROM nowhere"], &at, 64, &["UNKNOWN_TABLE", "Fix: name the database"]);
    check(&["SELECT 1 +"], &at, 64, &["Fix: write it in ClickHouse's dialect"]);
    check(&["SELECT 1 FORMAT TSV"], &at, 64, &["Fix: write the statement without FORMAT"]);
    check(&["losses"], &at, 64, &["each machine keeps for itself", "without --at"]);
    check(
        &["SELECT sum(cityHash64(number)) FROM numbers(1000000000000)", "--timeout", "500ms"],
        &at,
        69,
        &["raise --timeout"],
    );
    let nobody = format!("{at}&user=nobody");
    check(&["recent-closes"], &nobody, 77, &["Authentication failed", "password_file=PATH"]);
    let away = format!("clickhouse://127.0.0.1:{}/weir", free_port());
    check(&["recent-closes"], &away, 69, &["no connection to", "Fix: "]);
    check(&["recent-closes"], "kafka://127.0.0.1:1/x", 64, &["Fix: write --at clickhouse://"]);
    check(&["recent-closes"], "clickhouse://x/y?usr=a", 64, &["did you mean user?"]);
    check(&["recent-closes"], "clickhouse://weir:secret@x/y", 64, &["--at: sink.to: "]);
    let (_, said) = scene.refused(&["losses", "--at", "clickhouse://weir:secret@x/y"]);
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn a_sink_of_the_configuration_says_where_the_fleet_is() {
    let Some(scene) = Scene::fill(100) else { return };
    let text = format!(
        "[sockets]\n[[sink]]\nname = \"fleet\"\nfrom = [\"sockets\"]\nto = \"clickhouse://{}/{}\"\ntable_prefix = \"net_\"\n",
        scene.server, scene.database
    );
    std::fs::write(scene.dir.file("weir.toml"), text).unwrap();
    let answer =
        scene.ask(&["SELECT count() FROM {sockets}", "--at", "fleet", "--since", "2026-11-25"]);
    assert!(answer["rows"][0][0].as_u64() > Some(0), "{answer}");
    let (code, said) = scene.refused(&["recent-closes", "--at", "flet"]);
    assert_eq!(code, 64, "{said}");
    assert!(said.contains("has no sink called flet"), "{said}");

    let listed = Command::new(WEIR).args(["query", "--at", "fleet"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("worst-units") && !listed.contains("losses"), "{listed}");
    let schema = scene.ask(&["--schema", "--at", "fleet"]);
    let has = |column: &str| schema["rows"].as_array().unwrap().iter().any(|row| row[1] == column);
    assert!(has("rtt_us") && has("definition") && has("next_sequence"), "{schema}");
}
