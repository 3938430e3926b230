//! When more sFlow arrives than can be taken, by `weir flows` and by the daemon: what was sent is what was read and what was dropped by name, to the
//! datagram.

use crate::support::{Weir, hop};
use ledger::{HopKind, HopSnapshot, Reason};
use load::sflow::Flood;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use testkit::{TempDir, get};

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

/// More than the daemon's analysis can take, through a ring that holds a moment of it: what it did not get is named, to the datagram, and stands beside
/// its account as well.
#[test]
fn what_the_daemons_analysis_could_not_take_is_in_the_ledger() {
    testkit::alone();
    let dir = TempDir::new();
    let text = "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\nring_size = \"256KiB\"\n[flows]\nfrom = [\"in\"]\n";
    fs::write(dir.file("weir.toml"), text).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));

    let mut flood = Flood::new(50, 20);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(weir.address()).unwrap();
    let mut sent = 0;
    // As fast as they can be sent, until there was enough of it that the ring was full.
    while sent < 200_000 {
        for datagram in flood.bytes().chunks(flood.datagram_bytes()) {
            socket.send(datagram).unwrap();
            sent += 1;
        }
        flood.go_on();
    }

    let dropped = |hop: &HopSnapshot| hop.dropped.iter().map(|one| one.amount.count).sum::<u64>();
    let ledger = weir.wait_for(|ledger| {
        hop(ledger, HopKind::Socket, "").received.count == sent
            && ledger.hops.iter().all(|hop| hop.in_flight.is_zero())
    });
    assert!(ledger.is_balanced(), "{ledger:?}");
    let tap = hop(&ledger, HopKind::Target, "flows");
    let late = tap.dropped_for(Reason::QueueFull).count;
    let before: u64 = [HopKind::Socket, HopKind::Receive]
        .map(|kind| dropped(hop(&ledger, kind, "")))
        .iter()
        .sum();
    println!("{sent} sent, {before} dropped at the socket and by the receiver, {late} in the ring");
    assert!(late > 0, "the analysis took everything");
    assert_eq!(dropped(tap), late);
    assert_eq!(before + late + tap.delivered.count, sent);

    // What was lost before the analysis is noted a moment later.
    let lost = before + late;
    let line = format!("weir_flows_collector_dropped_datagrams_total {lost}");
    testkit::wait_for(
        || format!("{line} in {}", get(weir.admin, "/metrics", "*/*")),
        || get(weir.admin, "/metrics", "*/*").lines().any(|one| one == line).then_some(()),
    );
    assert_eq!(weir.stop().code, Some(0));
}
