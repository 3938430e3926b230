//! `--log-format`: what programs read on standard error.

use crate::support::WEIR;
use serde_json::Value;
use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use testkit::{Process, TempDir, wait_for};

/// `EX_TEMPFAIL`, where something is left behind.
const LEFT_BEHIND: i32 = 75;

/// A relay that warns as soon as it runs: nobody is at its target.
fn relay(format: &[&str]) -> Process {
    let mut command = Command::new(WEIR);
    let nobody = "unix:/nonexistent/weir-log-format.sock";
    command.args(["relay", "--listen", "127.0.0.1:0", "--to", nobody, "--progress", "lines"]);
    command.args(["--drain-grace", "100ms"]);
    command.args(format);
    Process::start(command)
}

/// Standard error of a relay from its banner to its last ledger.
fn said(format: &[&str]) -> String {
    let mut process = relay(format);
    wait_for("the warning", || process.said().contains("nobody listens at").then_some(()));
    // Progress is a line where something has happened.
    let said = process.said();
    let (_, port) = said.split_once("listening on udp://127.0.0.1:").unwrap();
    let port: u16 = port.split(' ').next().unwrap().parse().unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(b"<13>a", ("127.0.0.1", port)).unwrap();
    wait_for("a line of progress", || process.said().contains("0 delivered").then_some(()));
    process.signal("TERM");
    let (status, _) = process.finish();
    let said = process.said();
    // The datagram that nobody took is left behind.
    assert_eq!(status.code(), Some(LEFT_BEHIND), "{said}");
    said
}

#[test]
fn json_makes_an_object_of_every_line() {
    let said = said(&["--log-format", "json"]);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        let time = line["time"].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
        assert!(line["message"].is_string(), "{line}");
    }

    let level = |part: &str| {
        let is_it = |line: &&Value| line["message"].as_str().unwrap().contains(part);
        lines.iter().find(is_it).unwrap_or_else(|| panic!("no {part:?}: {said}"))["level"].clone()
    };
    assert_eq!(level("listening on"), "info");
    assert_eq!(level("nobody listens at"), "warn");
    assert_eq!(level("0 delivered"), "info");
    assert_eq!(level("stopping: "), "info");
    assert_eq!(level("unaccounted: 0"), "info");
}

#[test]
fn journald_puts_its_priority_before_every_line() {
    let said = said(&["--log-format", "journald"]);
    assert!(said.lines().all(|line| line.starts_with("<4>") || line.starts_with("<6>")), "{said}");
    assert!(said.lines().any(|line| line.starts_with("<4>target ")), "{said}");
    assert!(said.contains("<6>unaccounted: 0\n"), "{said}");
}

#[test]
fn the_journal_is_known_by_its_stream_and_an_error_has_its_priority() {
    let folder = TempDir::new();
    let check = |stream: &dyn Fn(&File) -> String, format: &[&str], begins: &str| {
        let path = folder.file("stderr");
        let file = File::create(&path).unwrap();
        let mut command = Command::new(WEIR);
        command.args(["run", "-c", "/nonexistent/weir.toml"]).args(format);
        command.env("JOURNAL_STREAM", stream(&file)).stderr(file);
        assert_eq!(command.status().unwrap().code(), Some(66));
        let said = std::fs::read_to_string(&path).unwrap();
        assert!(said.starts_with(begins), "{said}");
    };
    let own = |file: &File| {
        let file = file.metadata().unwrap();
        format!("{}:{}", file.dev(), file.ino())
    };
    check(&own, &[], "<3>weir: cannot read");
    check(&own, &["--log-format", "text"], "weir: cannot read");
    check(&own, &["--log-format", "json"], "{\"time\":\"");
    check(&|_| "8:1".to_owned(), &[], "weir: cannot read");
}
