//! What commands print for people, as text in the repository for terminals of three widths: `make generated` writes it again.

use ledger::{
    Accounting, Amount, Gauge, HopBuilder, HopKind, Reason, SinkCounters, Snapshot, Trouble,
};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use testkit::{TempDir, root};

/// Columns of the terminals.
const WIDTHS: [u16; 3] = [80, 120, 200];

/// Runs `weir ARGS` for each width and compares what it prints; what it says on standard error stands below.
fn check(name: &str, args: &[&str]) {
    for width in WIDTHS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(args).current_dir(root()).env("COLUMNS", width.to_string());
        let output = command.env_remove("WEIR_CONFIG").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        testkit::generated(
            &format!("crates/weir/tests/weir/screens/{name}-{width}.txt"),
            &format!("{text}{said}"),
        );
        for line in text.lines().chain(said.lines()) {
            // A word that is longer than a line stays whole.
            let is_one_word = line.split_whitespace().nth(1).is_none();
            let fits = line.chars().count() <= usize::from(width);
            assert!(fits || is_one_word, "{name} at {width}: {line}");
        }
    }
}

fn amount(count: u64) -> Amount {
    Amount { count, bytes: count * 200 }
}

/// A daemon with a bit of everything.
fn snapshot() -> Snapshot {
    let many = 123_456_789_012;
    let hop = |kind, target| HopBuilder::new(kind, "syslog", target, amount(0));
    let counters = SinkCounters::default();
    counters.acknowledge(amount(many));
    counters.uncertain(amount(45));
    let trouble = Trouble {
        what: "kafka://broker-1.eu-west.example.com:9092: the broker did not answer within 30 s"
            .into(),
        fix: "see that the broker is up and that its advertised listeners can be reached from here"
            .into(),
    };
    let hops = vec![
        hop(HopKind::Socket, None)
            .delivered(amount(many))
            .dropped(Reason::SocketBuffer, amount(567))
            .finish(amount(many + 567)),
        hop(HopKind::Receive, None).delivered(amount(many)).finish(amount(many)),
        hop(
            HopKind::Target,
            Some("udp://collector-17.eu-west.a-rather-long-domain.example.com:5514"),
        )
        .delivered(amount(many - 9_000_000))
        .dropped(Reason::QueueFull, amount(9_000_000))
        .finish(amount(many)),
        hop(
            HopKind::Egress,
            Some("udp://collector-17.eu-west.a-rather-long-domain.example.com:5514"),
        )
        .delivered(amount(many - 9_000_100))
        .dropped(Reason::HostUnreachable, amount(100))
        .accounting(Accounting::AtLeast)
        .finish(amount(many - 9_000_000)),
        hop(HopKind::Sink, Some("kafka"))
            .left_sink(&counters)
            .gauge(Gauge::OldestAgeMs, 3_200)
            .trouble(Some(trouble))
            .capacity(1_000)
            .finish(amount(many + 100)),
    ];
    Snapshot { run_id: "5eed".into(), uptime_ms: 61_000, hops, ..Snapshot::default() }
}

/// Answers with this ledger as often as there are widths.
fn serve(snapshot: &Snapshot) -> String {
    let body = serde_json::to_string(snapshot).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for _ in WIDTHS {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut head, mut piece) = (Vec::new(), [0; 1024]);
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(count @ 1..) => head.extend_from_slice(&piece[..count]),
                    _ => break,
                }
            }
            let length = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    address.to_string()
}

#[test]
fn generated_ledger() {
    check("ledger", &["ledger", "--admin", &serve(&snapshot())]);
}

#[test]
fn generated_sockets() {
    let capture = "crates/wire/testdata/ss-6.18.bin";
    check("sockets", &["sockets", "--read", capture]);
    check("sockets-listening", &["sockets", "--read", capture, "--listening"]);
}

#[test]
fn generated_mistakes_of_a_configuration() {
    let folder = TempDir::new();
    let file = folder.text("weir.toml");
    let text = "[[listener]]\nlisten = \"127.0.0.1:5514\"\nrecieve_buffer = \"16K\"\n\n[[listener.target]]\nname = \"old\"\nto = \"udp://collector.example.com\"\n";
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["config", "check", "-"]).env("COLUMNS", "80");
    command.stdin(std::fs::File::open(&file).unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    testkit::generated("crates/weir/tests/weir/screens/config-check-80.txt", &said);
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
}
