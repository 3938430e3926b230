//! `weir gen` and `weir verify` as processes, against each other.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use testkit::{receive, receiver};

/// A verifier that has bound its sockets.
struct Verifier {
    process: Child,
    addresses: Vec<String>,
}

impl Verifier {
    fn start(args: &[&str]) -> Verifier {
        let listeners = args.iter().filter(|arg| **arg == "--listen").count();
        let mut process = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["verify", "--progress", "off"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let addresses = lines
            .take(listeners)
            .map(|line| {
                let line = line.unwrap();
                let rest = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}"));
                rest.split(',').next().unwrap().to_owned()
            })
            .collect();
        Verifier { process, addresses }
    }

    fn finish(mut self) -> (i32, String) {
        let mut text = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        (self.process.wait().unwrap().code().unwrap(), text)
    }
}

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().unwrap()
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

#[test]
fn a_run_is_accounted_for() {
    let verifier = Verifier::start(&[
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "[::1]:0",
        "--until-done",
        "--deadline",
        "60s",
        "--json",
    ]);
    let to = &verifier.addresses;
    let sent = weir(&[
        "gen",
        "--to",
        &to[0],
        "--to",
        &to[1],
        "--rate",
        "20k",
        "--count",
        "10k",
        "--size",
        "64:1,200:2,1400:1",
        "--json",
    ]);
    assert_eq!(sent.status.code(), Some(0));
    let sent = json(&sent.stdout);
    let (code, text) = verifier.finish();
    assert_eq!(code, 0, "{text}");
    let got = json(text.as_bytes());
    assert_eq!(sent["sent_datagrams"], 10_000);
    assert_eq!(got["total"]["received"], sent["sent_datagrams"]);
    assert_eq!(got["total"]["bytes"], sent["sent_bytes"]);
    assert_eq!(got["total"]["heartbeats"], sent["heartbeats"]);
    assert_eq!(got["listeners"][0]["runs"][0]["run"], sent["run"]);
    assert_eq!((&got["missing"], &got["clean"]), (&Value::from(0), &Value::from(true)));
}

#[test]
fn the_report_is_readable() {
    let verifier =
        Verifier::start(&["--listen", "127.0.0.1:0", "--until-done", "--deadline", "60s"]);
    let sent = weir(&["gen", "--to", &verifier.addresses[0], "--rate", "2k", "--duration", "1s"]);
    let sent = String::from_utf8(sent.stdout).unwrap();
    assert!(sent.contains("sent 2,000 datagrams, 400,000 bytes"), "{sent}");
    let (code, text) = verifier.finish();
    assert_eq!(code, 0, "{text}");
    for part in ["received 2,000 of 2,000", "latency p50", "rate    ▕", "clean: 0 lost of 2,000"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn nothing_received_is_not_clean() {
    let verifier = Verifier::start(&["--listen", "127.0.0.1:0", "--duration", "10ms"]);
    let (code, text) = verifier.finish();
    assert_eq!(code, 1);
    assert!(text.contains("not clean: nothing arrived on udp://127.0.0.1:"), "{text}");
}

/// A relay from `listener`'s one listener to `to`, with a socket buffer so small that a flood overflows it.
struct Relay {
    process: Child,
    listener: String,
    admin: String,
}

impl Relay {
    fn start(to: &str) -> Relay {
        let name = format!("weir-gen-verify-{}.toml", std::process::id());
        let file = std::env::temp_dir().join(name);
        let config = format!(
            r#"
            [admin]
            listen = "127.0.0.1:0"
            [[listener]]
            name = "in"
            listen = "udp://127.0.0.1:0"
            receive_buffer = "16KiB"
            [[listener.target]]
            name = "out"
            to = "{to}"
            "#
        );
        std::fs::write(&file, config).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["run", "-c", file.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut listener, mut admin) = (String::new(), String::new());
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        while admin.is_empty() {
            let line = lines.next().expect("the relay says where it is").unwrap();
            let word = |start: &str| {
                let at = line.find(start)? + start.len();
                line[at..].split_whitespace().next().map(str::to_owned)
            };
            listener = word("listening on ").unwrap_or(listener);
            admin = word("ledger and metrics on ").unwrap_or(admin);
        }
        std::fs::remove_file(file).unwrap();
        Relay { process, listener, admin }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn losses_in_a_relay_are_found_in_its_ledger() {
    // The relay must know the target's port before the verifier can ask for the ledger.
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let out = format!("127.0.0.1:{port}");
    let relay = Relay::start(&out);
    let verifier = Verifier::start(&[
        "--listen",
        &out,
        "--until-done",
        "--deadline",
        "60s",
        "--json",
        "--admin",
        &relay.admin,
    ]);
    let sent = json(
        &weir(&["gen", "--to", &relay.listener, "--rate", "max", "--count", "50k", "--json"])
            .stdout,
    );
    let (_, text) = verifier.finish();
    let got = json(text.as_bytes());
    let join = &got["ledger"][0];
    let number = |value: &Value| value.as_u64().unwrap();
    assert_eq!(
        number(&join["sent"]),
        number(&sent["sent_datagrams"]) + number(&sent["heartbeats"])
    );
    let losses = join["losses"].as_array().unwrap();
    let lost: u64 = losses.iter().map(|loss| number(&loss["datagrams"])).sum();
    assert_eq!(number(&join["sent"]), number(&join["arrived"]) + lost, "{join:#}");
    assert_eq!((&join["unexplained"], &join["surplus"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(got["clean"], Value::from(got["missing"] == 0));
}

fn refused(args: &[&str], code: i32, message: &str) {
    let output = weir(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(text.contains(message), "{args:?}: {text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn mistakes_are_named() {
    let to = ["gen", "--to", "127.0.0.1:9"];
    let with = |more: &[&'static str]| [&to[..], more].concat();
    refused(&with(&["--size", "0"]), 64, "write --size 48 or more");
    refused(&with(&["--payload", "statsd", "--size", "64"]), 64, "write --size 116 or more");
    refused(&with(&["--size", "65508"]), 64, "write --size 65507 or less");
    refused(&with(&["--rate", "fast"]), 64, "write for example 100k");
    refused(&with(&["--source-port", "9000", "--flows", "2"]), 64, "is for one flow");
    refused(&with(&["--burst", "0"]), 64, "at least one datagram");
    refused(&["gen"], 64, "--to");
    refused(&["gen", "--to", "null:"], 64, "cannot send to null:");
    refused(&["gen", "--to", "unix:/nowhere/at/all"], 69, "start the receiver first");
    refused(
        &["gen", "--to", "no-such-host.invalid:1"],
        69,
        "cannot resolve no-such-host.invalid:1",
    );
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["verify", "--listen", &address], 69, "another program holds the port");
    // Before anything is waited for: without --duration it would go on for ever.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ledger = ["verify", "--listen", "127.0.0.1:0", "--admin", &format!("http://{free}")];
    refused(&ledger, 69, "no daemon answers");
}

#[test]
fn lines_of_standard_input_go_to_every_target_as_they_are() {
    let receivers = [receiver(), receiver()];
    let to = receivers.iter().flat_map(|(_, address)| ["--to", address]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["gen", "--from", "stdin:", "--rate", "max", "--json"]).args(to);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    // A line that comes in two pieces, an empty one, and one without a line feed.
    let mut input = process.stdin.take().unwrap();
    for piece in ["<13>fir", "st\n\nsecond\n", "last"] {
        input.write_all(piece.as_bytes()).unwrap();
    }
    drop(input);
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output.stdout);
    assert_eq!((&report["sent_datagrams"], &report["sent_bytes"]), (&8.into(), &38.into()));
    assert_eq!((&report["heartbeats"], &report["failed_datagrams"]), (&0.into(), &0.into()));
    for (socket, _) in &receivers {
        let got: Vec<_> = (0..4).map(|_| receive(socket)).collect();
        assert_eq!(got, [&b"<13>first"[..], b"", b"second", b"last"]);
    }
}

#[test]
fn a_line_that_no_datagram_holds_is_counted_and_those_after_it_are_sent() {
    let (socket, address) = receiver();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["gen", "--from", "stdin:", "--rate", "max", "--json", "--to", &address]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    for len in [65_508, 65_507, 3 << 20] {
        input.write_all(&vec![b'x'; len]).unwrap();
        input.write_all(b"\n").unwrap();
    }
    input.write_all(b"after\n").unwrap();
    drop(input);
    let output = process.wait_with_output().unwrap();
    // As for any other datagram that is not sent.
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output.stdout);
    assert_eq!((&report["sent_datagrams"], &report["failed_datagrams"]), (&2.into(), &2.into()));
    assert_eq!(report["targets"][0]["failed"]["EMSGSIZE"], 2, "{report}");
    assert_eq!((receive(&socket).len(), receive(&socket)), (65_507, b"after".to_vec()));
}

#[test]
fn lines_have_a_count_and_a_rate_of_their_own_kind() {
    let (socket, address) = receiver();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["gen", "--to", &address, "--from"]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        // It may have ended: what it does not read is not its business.
        let _ = process.stdin.take().unwrap().write_all(b"a\nb\nc\n");
        let output = process.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(run(&["-", "--count", "2", "--quiet"]), (Some(0), String::new()));
    assert_eq!([receive(&socket), receive(&socket)], [b"a", b"b"]);
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 8]).is_err(), "a third line was sent");

    let refused = |args: &[&str], part: &str| {
        let (code, said) = run(args);
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains(part), "{said}");
    };
    refused(&["stdin:", "--rate", "1Mbit"], "a number of them per second");
    refused(&["file:/x"], "write stdin: or -");
    refused(&["stdin:", "--size", "64"], "cannot be used with");
}
