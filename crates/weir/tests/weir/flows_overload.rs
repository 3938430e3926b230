//! `weir flows` when more arrives than it can take: what was sent is what it read and what the kernel dropped, to the datagram.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

fn number(text: &str, behind: &str) -> u64 {
    let word = text.split_once(behind).map_or("0", |(_, rest)| rest.trim_start());
    let digits: String =
        word.chars().take_while(|one| one.is_ascii_digit() || *one == ',').collect();
    digits.replace(',', "").parse().unwrap()
}

#[test]
fn what_was_sent_was_read_or_dropped_at_the_socket() {
    testkit::alone();
    // Fewer datagrams fit in than come at once.
    let mut flows = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["flows", "--listen", "127.0.0.1:0", "--receive-buffer", "64KiB", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(flows.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line.split_once("udp://").unwrap().1.split(',').next().unwrap();

    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["gen", "sflow", "--to", address, "--rate", "0", "--agents", "50", "--flows", "20"])
        .args(["--duration", "1s"])
        .output()
        .unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    let sent = number(&report, "sent ");
    assert!(output.status.success() && !report.contains("refused"), "{report}");

    testkit::signal(&flows, "TERM");
    let (mut figures, mut account) = (String::new(), String::new());
    flows.stdout.take().unwrap().read_to_string(&mut figures).unwrap();
    errors.read_to_string(&mut account).unwrap();
    assert!(flows.wait().unwrap().success());
    let last: Value = serde_json::from_str(figures.lines().last().unwrap()).unwrap();
    let count = |name: &str| last["datagrams"][name].as_u64().unwrap();

    println!("sent {sent}, {}", last["datagrams"]);
    let (read, dropped) = (count("read"), count("dropped_by_kernel"));
    assert!(read > 0 && dropped > sent / 100, "{dropped} of {sent} dropped");
    assert_eq!(read + dropped, sent);
    assert_eq!((count("received"), count("duplicate"), count("malformed")), (read, 0, 0));
    assert_eq!(
        (number(&account, "weir flows: "), number(&account, "the kernel dropped")),
        (read, dropped)
    );
    // Each agent's numbers know of the same loss, but for what was lost before its first that arrived and behind its last.
    let agents = last["agents"].as_array().unwrap();
    let lost: u64 = agents.iter().map(|agent| agent["lost"].as_u64().unwrap()).sum();
    assert!(lost <= dropped, "{lost} of {dropped}");
    assert_eq!(last["samples"]["flow"], 5 * read);
}
