//! `weir ledger` against a server that answers what a daemon would.

use ledger::{Amount, HopBuilder, HopKind, Reason, RejectClass, SinkCounters, Snapshot};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::thread;

fn snapshot(received: u64, drops: &[(Reason, u64)]) -> Snapshot {
    let amount = |count| Amount { count, bytes: count * 200 };
    let mut hop = HopBuilder::new(HopKind::Target, "syslog", Some("old"), amount(0));
    for &(reason, count) in drops {
        hop = hop.dropped(reason, amount(count));
    }
    let dropped: u64 = drops.iter().map(|(_, count)| count).sum();
    let hop = hop.delivered(amount(received - dropped)).finish(amount(received));
    Snapshot { run_id: "5eed".into(), uptime_ms: received, hops: vec![hop], ..Snapshot::default() }
}

fn json(snapshot: &Snapshot) -> String {
    serde_json::to_string(snapshot).unwrap()
}

/// Answers each connection with the next of `answers` (status and body), then refuses. Returns the address.
fn serve(answers: Vec<(&'static str, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (status, body) in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            reader.get_mut().write_all((head + &body).as_bytes()).unwrap();
        }
    });
    format!("http://{address}")
}

fn weir(args: &[&str], url: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    // A proxy in the environment must not be asked.
    let command = command.arg("ledger").args(args).args(["--admin", url]);
    command.env("http_proxy", "http://127.0.0.1:9").output().unwrap()
}

fn check(args: &[&str], body: String, code: i32, shows: &str) {
    let output = weir(args, &serve(vec![("200 OK", body)]));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains(shows), "{text}");
}

#[test]
fn nothing_lost() {
    check(&[], json(&snapshot(1_000, &[])), 0, "nothing lost");
    check(&["--fail-on-loss"], json(&snapshot(1_000, &[])), 0, "unaccounted: 0");
}

#[test]
fn loss_is_named_and_fails_only_on_request() {
    let lossy = || json(&snapshot(1_000, &[(Reason::QueueFull, 5)]));
    check(&[], lossy(), 0, "largest loss: 5 at target of syslog -> old");
    check(&["--fail-on-loss"], lossy(), 1, "queue_full");
}

#[test]
fn what_was_asked_for_is_no_loss() {
    check(&["--fail-on-loss"], json(&snapshot(1_000, &[(Reason::Sampled, 900)])), 0, "sampled");
}

#[test]
fn what_a_store_refused_or_never_answered_is_loss() {
    let one = Amount { count: 1, bytes: 200 };
    let body = |count: &dyn Fn(&SinkCounters)| {
        let counters = SinkCounters::default();
        count(&counters);
        let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("store"), one);
        let hops = vec![hop.left_sink(&counters).finish(one)];
        json(&Snapshot { hops, ..Snapshot::default() })
    };
    let rejected = body(&|counters| counters.reject(RejectClass::TooLarge, one));
    check(&["--fail-on-loss"], rejected, 1, "rejected           1  too_large");
    let uncertain = body(&|counters| counters.uncertain(one));
    check(&["--fail-on-loss"], uncertain, 1, "largest loss: 1 at sink of sockets -> store");
    let skipped = body(&|counters| counters.drop(Reason::NotInFormat, one));
    check(&["--fail-on-loss"], skipped, 0, "skip               1  not_in_format");
}

#[test]
fn a_ledger_that_does_not_balance_is_2() {
    let mut broken = snapshot(1_000, &[]);
    broken.hops[0].unaccounted = -1;
    check(&[], json(&broken), 2, "UNACCOUNTED");
    let violated = Snapshot { violations: 1, ..snapshot(1_000, &[(Reason::QueueFull, 5)]) };
    check(&["--fail-on-loss"], json(&violated), 2, "the ledger did not balance 1 time,");
}

#[test]
fn json_is_printed_as_received() {
    let body = json(&snapshot(1_000, &[(Reason::QueueFull, 5)]));
    let output = weir(&["--json"], &serve(vec![("200 OK", body.clone())]));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), body + "\n");
}

#[test]
fn the_verdict_stands_when_nobody_reads_it() {
    let closed = |program: &mut Command| {
        let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        output.status.code()
    };
    let url = |reason| serve(vec![("200 OK", json(&snapshot(1_000, &[(reason, 5)])))]);
    let program = || Command::new(env!("CARGO_BIN_EXE_weir"));
    for args in [&["--fail-on-loss"][..], &["--fail-on-loss", "--json"]] {
        let lossy =
            closed(program().arg("ledger").args(args).args(["--admin", &url(Reason::TooBig)]));
        assert_eq!(lossy, Some(1), "{args:?}");
        let fine =
            closed(program().arg("ledger").args(args).args(["--admin", &url(Reason::Sampled)]));
        assert_eq!(fine, Some(0), "{args:?}");
    }
    let generate = ["gen", "--to", "127.0.0.1:9", "--count", "0", "--json", "--progress", "off"];
    assert_eq!(closed(program().args(generate)), Some(0));
    assert_eq!(closed(program().args(["config", "example"])), Some(0));
}

#[test]
fn nobody_there() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = weir(&[], &format!("http://{free}"));
    assert_eq!(output.status.code(), Some(69));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("weir run -c"), "{said}");
    assert!(said.contains(&free.to_string()), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn somebody_else_there() {
    let output = weir(&[], &serve(vec![("200 OK", "<html>".into())]));
    assert_eq!(output.status.code(), Some(69));
    let refusal = "the ledger is only shown on a loopback address";
    let output = weir(&[], &serve(vec![("403 Forbidden", refusal.into())]));
    assert_eq!(output.status.code(), Some(77));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(refusal), "{said}");
}

#[test]
fn addresses_that_are_none() {
    for url in ["ftp://127.0.0.1:9464", "http://", "http://a b"] {
        assert_eq!(weir(&[], url).status.code(), Some(64), "{url}");
    }
}

#[test]
fn watch_shows_rates_and_outlives_the_daemon() {
    let answers = [100, 1_100].map(|received| ("200 OK", json(&snapshot(received, &[]))));
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["ledger", "--watch", "20ms", "--admin", &serve(answers.to_vec())])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.starts_with("per second")).expect("rates at the second snapshot");
    let rate = lines.next().unwrap();
    assert!(rate.starts_with("syslog -> old") && rate.contains("1,000"), "{rate}");
    let mut complaint = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut complaint).unwrap();
    assert!(complaint.contains("trying again"), "{complaint}");
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn watch_ends_at_the_first_loss_if_asked() {
    let lossy = snapshot(1_100, &[(Reason::TooBig, 1)]);
    let answers = [snapshot(100, &[]), lossy].map(|snapshot| ("200 OK", json(&snapshot)));
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["ledger", "--watch=20ms", "--fail-on-loss", "--json", "--admin"])
        .arg(serve(answers.to_vec()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(text.lines().count(), 2, "one snapshot on each line");
}
