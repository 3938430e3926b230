//! What commands print for people, as text in the repository for terminals of three widths: `make generated` writes it again.

use crate::flows_command::capture;
use crate::support::Weir;
use ledger::{
    Accounting, Amount, Gauge, HopBuilder, HopKind, Reason, SinkCounters, Snapshot, Trouble,
};
use load::sflow::{Agent, AgentOptions, TrueFlow};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::thread;
use testkit::{TERMINALS, TempDir, root};

/// Runs `weir ARGS` for each width and compares what it prints; what it says on standard error stands below.
fn check(name: &str, args: &[&str]) {
    check_in(&root(), name, args);
}

/// The same in this folder.
fn check_in(folder: &Path, name: &str, args: &[&str]) {
    testkit::screens("crates/weir/tests/weir/screens", name, |columns| {
        shown(folder, args, columns)
    });
}

fn shown(folder: &Path, args: &[&str], columns: u16) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).current_dir(folder).env("COLUMNS", columns.to_string());
    for name in ["WEIR_CONFIG", "WEIR_ADMIN"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text + &String::from_utf8(output.stderr).unwrap()
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
        for _ in TERMINALS {
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

/// The ledger of a daemon that hands on to the one of [`snapshot`].
fn sender() -> Snapshot {
    let many = 123_456_789_579;
    let hop = |kind, target| HopBuilder::new(kind, "edge", target, amount(0));
    let hops = vec![
        hop(HopKind::Socket, None).delivered(amount(many)).finish(amount(many)),
        hop(HopKind::Egress, Some("udp://192.0.2.7:514"))
            .delivered(amount(many))
            .finish(amount(many)),
    ];
    Snapshot { run_id: "ed6e".into(), uptime_ms: 61_000, hops, ..Snapshot::default() }
}

#[test]
fn generated_path() {
    let path = "crates/weir/tests/weir/screens";
    testkit::screens(path, "ledger-through", |columns| {
        let (sender, receiver) = (serve(&sender()), serve(&snapshot()));
        let text = shown(&root(), &["ledger", "--admin", &sender, "--through", &receiver], columns);
        text.replace(&sender, "10.0.0.1:9464").replace(&receiver, "10.0.0.2:9464")
    });
}

/// A daemon whose only target is never there.
const NOBODY: &str = "[admin]\nlisten = '127.0.0.1:0'\n[daemon]\ndrain_grace = '50ms'\n\
                      [[listener]]\nname = 'syslog'\nlisten = '127.0.0.1:0'\n\
                      [[listener.target]]\nname = 'old'\nto = 'unix:/run/a-service-that-nobody-has-installed-on-this-machine.sock'\n";

#[test]
fn generated_answers_of_a_daemon() {
    let folder = TempDir::new();
    // Of the same length at every run, since it decides where lines are folded.
    let room = 40_usize.saturating_sub(folder.path().display().to_string().len());
    let path = folder.file(&format!("{}.toml", "w".repeat(room)));
    let weir = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Weir::run(&path)
    };
    let screens = |name, of: &dyn Fn(u16) -> String| {
        testkit::screens("crates/weir/tests/weir/screens", name, of);
    };
    let file = path.display().to_string();

    let asked = |weir: &Weir, command: &str, columns| {
        let text = shown(&root(), &[command, "--admin", &weir.url()], columns);
        text.replace(&file, "/etc/weir/weir.toml")
    };
    screens("reload", &|columns| {
        let weir = weir(NOBODY);
        std::fs::write(&path, format!("{NOBODY}rate_limit = 1000\n[[listener]]\nname = 'statsd'\nlisten = '127.0.0.1:0'\n[[listener.target]]\nname = 'new'\nto = 'null:'\n")).unwrap();
        let text = asked(&weir, "reload", columns);
        weir.stop();
        text
    });
    screens("reload-refused", &|columns| {
        let weir = weir(NOBODY);
        std::fs::write(&path, format!("{NOBODY}rate_limitt = 1000\n")).unwrap();
        let text = asked(&weir, "reload", columns);
        weir.stop();
        text
    });
    screens("stop", &|columns| {
        let weir = weir(NOBODY);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"hello", weir.address()).unwrap();
        weir.wait_for(|ledger| ledger.received_at(HopKind::Receive).count == 1);
        let text = asked(&weir, "stop", columns);
        weir.wait_to_end();
        text
    });
}

#[test]
fn generated_sockets() {
    let capture = "crates/wire/testdata/ss-6.18.bin";
    check("sockets", &["sockets", "--read", capture]);
    check("sockets-listening", &["sockets", "--read", capture, "--listening"]);
}

/// A file that is right, and has a bit of everything.
const CONFIGURATION: &str = r#"
[[listener]]
name = "syslog"
listen = "udp://0.0.0.0:514"
receive_buffer = "16MiB"

[[listener.target]]
name = "old"
to = "udp://collector-17.eu-west.a-rather-long-domain.example.com:5514"
rate_limit = 1000

[[listener.target]]
name = "copy"
to = "file:/var/log/weir/a-rather-long-folder-of-copies/copy.log"

[sockets]
interval = "10s"

[[sink]]
name = "archive"
from = ["sockets", "syslog"]
to = "file:/var/lib/weir/records"
"#;

#[test]
fn generated_configurations() {
    let folder = TempDir::new();
    std::fs::write(folder.file("weir.toml"), CONFIGURATION).unwrap();
    check_in(folder.path(), "config-show", &["config", "show"]);

    let mistakes = "[[listener]]\nlisten = \"127.0.0.1:5514\"\nrecieve_buffer = \"16K\"\n\n[[listener.target]]\nname = \"old\"\nto = \"udp://collector.example.com\"\n";
    std::fs::write(folder.file("mistakes.toml"), mistakes).unwrap();
    check_in(folder.path(), "config-check", &["config", "check", "mistakes.toml"]);
}

#[test]
fn generated_flows() {
    let folder = TempDir::new();
    let flow = |last, frames_per_s| TrueFlow {
        src: [10, 0, 0, last].into(),
        dst: [198, 51, 100, 1].into(),
        protocol: 17,
        src_port: 53,
        dst_port: 40_000,
        frame_bytes: 1_000,
        frames_per_s,
    };
    let flows = vec![flow(1, 400_000.0), flow(2, 200_000.0), flow(3, 20_000.0)];
    let mut agent = Agent::new(AgentOptions::default(), flows, 1);
    let datagrams: Vec<Vec<u8>> = (0..500)
        .map(|_| {
            let mut bytes = Vec::new();
            agent.next_datagram(&mut bytes);
            bytes
        })
        .collect();
    // One in five is lost.
    let kept: Vec<_> = datagrams.into_iter().enumerate().filter(|(at, _)| at % 5 != 3).collect();
    let kept: Vec<_> = kept.into_iter().map(|(_, bytes)| bytes).collect();
    std::fs::write(folder.file("sflow.pcap"), capture(&kept)).unwrap();

    let shown = |name: &str, more: &[&str]| {
        let args = [&["flows", "--pcap", "sflow.pcap"], more].concat();
        check_in(folder.path(), name, &args);
    };
    shown("flows", &[]);
    shown(
        "flows-keys",
        &[
            "--keys",
            "group(src),src,dst,src_port,dst_port,protocol",
            "--group",
            "a-rather-long-name-of-a-network-of-ours=10.0.0.0/8",
        ],
    );
    shown("flows-none", &["--filter", "protocol = tcp"]);
    shown("flows-agents", &["--agents"]);
    shown("flows-counters", &["--counters"]);
    check("flows-fields", &["flows", "--fields"]);
}

#[test]
fn generated_lists() {
    check("help", &["help"]);
    check("help-ledger", &["help", "ledger"]);
    check("help-flows-short", &["flows", "-h"]);
    check("exit-codes", &["help", "exit-codes"]);
    check("sockets-columns", &["sockets", "--columns", "help"]);
}
