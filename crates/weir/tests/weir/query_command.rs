//! A daemon with a store, and `weir query` and `/query` on what it kept.

use crate::support::{WEIR, Weir};
use ledger::HopKind;
use record::{ChunkBuilder, SocketRecord};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;
use testkit::{TempDir, get, try_get, wait_for};

/// A configuration with a store that seals at once.
fn config(dir: &TempDir) -> PathBuf {
    let path = dir.file("weir.toml");
    let text = format!(
        "[daemon]\ndrain_grace = \"5s\"\n[sockets]\ninterval = \"100ms\"\nnamespaces = \"own\"\n\
         [[sink]]\nfrom = [\"sockets\"]\nname = \"history\"\nto = \"store:{}\"\nbatch_age = \"50ms\"\nseal_after = \"1s\"\n",
        dir.text("history")
    );
    fs::write(&path, text).unwrap();
    path
}

fn query(dir: &TempDir, args: &[&str]) -> Output {
    Command::new(WEIR).arg("query").args(args).current_dir(dir.path()).output().unwrap()
}

/// The rows of an answer as JSON.
fn rows(dir: &TempDir, args: &[&str]) -> Vec<Value> {
    let output = query(dir, &[args, &["--format", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    answer["rows"].as_array().unwrap().clone()
}

fn number(dir: &TempDir, sql: &str) -> u64 {
    match &rows(dir, &[sql])[0][0] {
        Value::Number(number) => number.as_u64().unwrap(),
        other => other.as_str().unwrap().parse().unwrap(),
    }
}

/// Whether there is a history yet, and a file in it.
fn has_sealed(dir: &TempDir) -> Option<()> {
    let files = fs::read_dir(dir.file("history/raw")).ok()?;
    files
        .flatten()
        .any(|file| file.file_name().to_string_lossy().ends_with(".parquet"))
        .then_some(())
}

#[test]
fn a_daemon_keeps_its_history_and_the_ledger_agrees_with_it() {
    let dir = TempDir::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let weir = Weir::run(&config(&dir));
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    wait_for("a segment to be sealed", || has_sealed(&dir));
    drop((near, listener.accept().unwrap()));
    let closes =
        format!("SELECT count(*) FROM closes WHERE src_port = {port} OR dst_port = {port}");
    wait_for("the connection's ends", || (number(&dir, &closes) == 2).then_some(()));

    // Over HTTP, while the daemon writes.
    let list: Value = serde_json::from_str(&get(weir.admin, "/query", "*/*")).unwrap();
    for named in list["queries"].as_array().unwrap() {
        let name = named["name"].as_str().unwrap();
        let page = format!("/query/{name}?since=1h&limit=5&cookie=1");
        if name == "events" {
            // Like payloads, they are for those who are known.
            let refused = try_get(weir.admin, &page, "*/*").unwrap_err();
            assert!(refused.contains("403 Forbidden"), "{refused}");
            continue;
        }
        let answer: Value = serde_json::from_str(&get(weir.admin, &page, "*/*")).unwrap();
        let rows = answer["rows"].as_array().unwrap();
        assert_eq!(answer["row_count"], rows.len(), "{name}");
        let columns = answer["columns"].as_array().unwrap().len();
        assert!(rows.iter().all(|row| row.as_array().unwrap().len() == columns), "{name}");
    }
    let own = get(weir.admin, "/query?sql=select+count(*)+as+n+from+sockets", "*/*");
    let own: Value = serde_json::from_str(&own).unwrap();
    assert_eq!(own["columns"][0]["name"], "n");
    let refused = try_get(weir.admin, "/query?sql=delete+from+closes", "*/*").unwrap_err();
    assert!(refused.contains("400 Bad Request"), "{refused}");
    let unknown = try_get(weir.admin, "/query/nothing", "*/*").unwrap_err();
    assert!(unknown.contains("404 Not Found"), "{unknown}");

    let ended = weir.stop();
    assert_eq!(ended.code, Some(0));
    let sink = ended.ledger.hop(HopKind::Sink, "sockets", Some("history")).unwrap();
    assert_eq!((sink.received, sink.unaccounted), (sink.delivered, 0), "{sink:?}");
    let stored = "SELECT (SELECT count(*) FROM sockets) + (SELECT count(*) FROM polls)";
    assert_eq!(number(&dir, stored), sink.delivered.count);
    let sums = "SELECT sum(records) FROM sockets_minute WHERE dimension = 'all'";
    let not_listening = "SELECT count(*) FROM sockets WHERE state IS NOT 'listen'";
    assert_eq!(number(&dir, sums), number(&dir, not_listening));
}

/// A store with one socket of another network namespace, as `namespaces = "all"` leaves it.
fn leave_a_foreign_row(dir: &TempDir) {
    let mut writer = store::Writer::open(store::Options {
        folder: dir.file("history"),
        keep_age: None,
        keep_bytes: None,
        segment_age: Duration::from_secs(3_600),
        keys_max: 10,
    })
    .unwrap();
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    builder.record(&SocketRecord {
        time_unix_ns: Some(sys::clock::realtime_ns()),
        cookie: Some(1),
        netns_inode: Some(1),
        ..SocketRecord::default()
    });
    let chunk = builder.cut(None).unwrap();
    let rows = chunk.rows().map(|row| (row.kind, row.bytes));
    writer.insert(rows, sys::clock::Now::read()).unwrap();
}

#[test]
fn stored_sockets_of_other_namespaces_stay_for_known_users_when_only_own_ones_are_collected() {
    let dir = TempDir::new();
    leave_a_foreign_row(&dir);
    let path = config(&dir);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}[admin]\nsocket = \"{}\"\n", dir.text("admin.sock"))).unwrap();
    let weir = Weir::run(&path);

    let of_sockets = "/query?sql=select+count(*)+as+n+from+sockets";
    for page in ["/query/connection?cookie=1", of_sockets] {
        let refused = try_get(weir.admin, page, "*/*").unwrap_err();
        assert!(refused.contains("403 Forbidden"), "{refused}");
    }
    get(weir.admin, "/query/losses", "*/*");

    let mut known = UnixStream::connect(dir.file("admin.sock")).unwrap();
    let request =
        format!("GET {of_sockets} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    known.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    known.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    weir.stop();
}

#[test]
fn a_store_is_found_by_a_path_from_where_the_daemon_was_started() {
    let dir = TempDir::new();
    let text = fs::read_to_string(config(&dir)).unwrap();
    fs::write(dir.file("weir.toml"), text.replace(&dir.text("history"), "history")).unwrap();
    let mut command = Command::new(WEIR);
    command.args(["run", "-c", "weir.toml"]).current_dir(dir.path());
    let weir = Weir::start(command);
    wait_for("the store", || dir.file("history/history.sqlite").exists().then_some(()));
    wait_for("an answer", || try_get(weir.admin, "/query/losses", "*/*").ok());
}

#[test]
fn without_a_store_there_is_a_sentence_that_says_what_to_do() {
    let dir = TempDir::new();
    let output = query(&dir, &["losses"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(66), "{said}");
    assert!(said.contains("Fix: name one with --store"), "{said}");

    fs::write(dir.file("weir.toml"), "[sockets]\n[[sink]]\nfrom = [\"sockets\"]\nto = \"null:\"\n")
        .unwrap();
    let output = query(&dir, &["losses"]);
    assert_eq!(output.status.code(), Some(78));
    let weir = Weir::run(&dir.file("weir.toml"));
    let refused = try_get(weir.admin, "/query", "*/*").unwrap_err();
    assert!(refused.contains("404 Not Found"), "{refused}");
    weir.stop();
}

#[test]
fn a_wrong_name_is_told_the_nearest_and_the_list_needs_no_store() {
    let dir = TempDir::new();
    let said = |args: &[&str]| String::from_utf8(query(&dir, args).stderr).unwrap();
    assert!(said(&["worst-pers"]).contains("did you mean worst-peers?"));
    assert!(said(&["losses", "--since", "yesterday"]).contains("is not a moment"));
    assert!(said(&["connection"]).contains("add --cookie"));
    let list = String::from_utf8(query(&dir, &[]).stdout).unwrap();
    assert!(list.contains("rtt-heat") && list.contains("--cookie"), "{list}");
    let schema = String::from_utf8(query(&dir, &["--schema"]).stdout).unwrap();
    assert!(schema.contains("rtt_us (µs): Smoothed round-trip time"), "{schema}");
}
