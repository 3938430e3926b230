//! A fleet's page, `weir view`: in a real Chromium against a real ClickHouse, and what it refuses.

use super::{PREFIX, rows, sink};
use crate::support::WEIR;
use crate::view::{answer, browser, drive, pictures};
use serde_json::{Map, Value, json};
use sink::{Fanout, Sink};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use store::NAMED;
use testkit::servers::{Server, unique};
use testkit::{Process, TempDir, free_port};

/// A name that a stranger chose: markup, and a mark that turns the direction of what follows.
pub(super) const HOSTILE: &str = "<img src=x onerror=\"globalThis.broken = true\">\u{202e}'\\";

/// `weir view`, and where it serves.
struct View {
    process: Process,
    addr: SocketAddr,
    _dir: TempDir,
}

impl View {
    fn start(at: &str) -> View {
        let dir = TempDir::new();
        let mut command = Command::new(WEIR);
        command.args(["view", "--at", at, "--listen", "127.0.0.1:0"]).current_dir(dir.path());
        let mut process = Process::start(command);
        let said = process.hear("the fleet's page is at http://").swap_remove(0);
        let addr = said.trim_end_matches('/').parse().unwrap();
        View { process, addr, _dir: dir }
    }

    /// The whole answer to a request with these header lines.
    fn asked(&self, request: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(testkit::DEADLINE)).unwrap();
        write!(stream, "{request} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

/// Three hosts, whose rows end a quarter of an hour ago: what is asked about the last six hours stays the same.
pub(super) fn fill(server: SocketAddr, database: &str, table_prefix: &str) {
    let sink = Sink::open(sink(server, database, table_prefix)).unwrap();
    let fanout = Fanout::default();
    fanout.attach(&sink);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let start = now - Duration::from_secs(4_000);
    for (host, count) in [(rows::HOST, 5_000), (rows::OTHER_HOST, 1_000), (HOSTILE, 2_500)] {
        for chunk in rows::chunks_from(start.as_nanos() as u64, host, count) {
            fanout.hand_over(&Arc::new(chunk));
        }
    }
    let left = sink.wait(Instant::now() + Duration::from_secs(300));
    assert!(left.is_zero(), "{left:?}");
}

/// What `weir query --at` answers about the last six hours.
pub(super) fn query(at: &str, args: &[&str]) -> Value {
    let mut command = Command::new(WEIR);
    command.args(["query", "--at", at, "--since", "6h", "--timeout", "60s", "--format", "json"]);
    serde_json::from_str(&testkit::run(command.args(args))).unwrap()
}

#[test]
fn the_page_of_a_fleet_shows_what_clickhouse_answers_digit_by_digit() {
    let Some(mut server) = Server::ClickHouse.start() else { return };
    let Some(_browser) = browser() else { return };
    let database = unique("fleet_view");
    fill(server.addr(), &database, PREFIX);
    let at = format!("clickhouse://{}/{database}?table_prefix={PREFIX}", server.addr());
    let view = View::start(&at);

    // A connection is asked about by its number.
    let named =
        NAMED.iter().filter(|named| !named.is_of_one_machine() && named.name != "connection");
    let named: Map<String, Value> =
        named.map(|named| (named.name.to_owned(), query(&at, &[named.name]))).collect();
    let runs = ["completeness", "--until", "1m", "--limit", "200"];
    let worst = ["worst-peers", "worst-services", "worst-units"];
    let worst = worst.map(|name| query(&at, &[name, "--limit", "20"]));
    let past = ["poll-rates", "rtt-heat", "closes-by-end"];
    let past_of_one: Map<String, Value> = past
        .map(|name| (name.to_owned(), query(&at, &[name, "--host", HOSTILE])))
        .into_iter()
        .collect();
    let question = json!({
        "url": format!("http://{}", view.addr),
        "pictures": pictures(),
        "hostile": HOSTILE,
        "named": named,
        "runs": query(&at, &runs),
        "runs_of_one": query(&at, &[&runs[..], &["--host", HOSTILE]].concat()),
        "worst": worst,
        "recent": query(&at, &["recent-closes", "--limit", "50"]),
        "past_of_one": past_of_one,
    });
    let mut script = drive("fleet.cjs", &question);
    script.hear("kill it");
    server.kill();
    script.hear("start it");
    server.restart();
    let seen = answer(script);
    assert_eq!(seen["named"].as_u64(), Some(named.len() as u64), "{seen}");
}

#[test]
fn a_fleets_page_is_for_this_machine_and_has_nothing_of_a_daemon() {
    let view = View::start(&format!("clickhouse://127.0.0.1:{}/weir", free_port()));
    let check = |request: &str, headers: &str, status: &str, words: &str| {
        let text = view.asked(request, headers);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{request} {headers}: {text}");
        assert!(text.contains(words), "{request} {headers}: {text}");
        text
    };
    const LOCAL: &str = "Host: localhost\r\n";
    for path in ["/", "/ui/fleet.js", "/query", "/query/completeness", "/healthz"] {
        let request = format!("GET {path}");
        check(&request, "Host: evil.example\r\n", "403", "the Host header names another machine");
        let origin = format!("{LOCAL}Origin: http://evil.example\r\n");
        check(&request, &origin, "403", "the Origin header names another server");
        check(&request, "", "400", "Host");
        check(&format!("POST {path}"), LOCAL, "405", "nothing can be changed here");
    }
    check("GET /healthz", LOCAL, "200", "ok");
    let page =
        check("GET /", "Host: localhost\r\nAccept: text/html\r\n", "200", "data-view=\"fleet\"");
    assert!(page.contains("require-trusted-types-for 'script'"), "{page}");
    for path in
        ["/ledger", "/sockets", "/flows", "/metrics", "/daemon", "/records?follow", "/readyz"]
    {
        check(&format!("GET {path}"), LOCAL, "404", "no such page");
    }
    check("GET /ui/index.html", LOCAL, "404", "no such part of the page");
    let shell = check("GET /ui/fleet.html", LOCAL, "200", "data-view=\"fleet\"");
    assert!(shell.contains("/query/completeness") && !shell.contains("/ledger"), "{shell}");

    let list = check("GET /query", LOCAL, "200", "worst-units");
    assert!(!list.contains("ledger-rates"), "{list}");
    check("GET /query/losses", LOCAL, "404", "no question to a fleet has this name");
    check("GET /query/worst-units?since=1h&hst=a", LOCAL, "400", "of a fleet, host");
    check("GET /query/worst-units?since=1h&host=a", LOCAL, "503", "no connection to");

    view.process.signal("TERM");
    let mut process = view.process;
    let (status, _) = process.finish();
    assert!(status.success(), "{}", process.said());
}

#[test]
fn a_fleets_page_is_not_served_to_other_machines() {
    let refused = |listen: &str| {
        let mut command = Command::new(WEIR);
        let output =
            command.args(["view", "--at", "clickhouse://127.0.0.1/weir", "--listen", listen]);
        let output = output.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for listen in ["0.0.0.0:9465", "[::]:9465", "192.0.2.1:9465"] {
        let (code, said) = refused(listen);
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains("this machine alone. Fix: write --listen 127.0.0.1:9465"), "{said}");
    }
}
