//! `--receive`: records come out as they were, and what is missing is stated exactly.

use super::rig::sockets;
use record::{
    AddressFamily, DatagramPacker, FieldSet, PollTotals, RecordKind, SocketRecord, SocketState,
};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{ChildStderr, Stdio};
use testkit::{Peer, signal};

/// A running receiver.
struct Receiver {
    peer: Peer,
    said: BufReader<ChildStderr>,
    at: SocketAddr,
}

impl Receiver {
    fn start(args: &[&str]) -> Receiver {
        let mut command = sockets(&["--receive", "127.0.0.1:0"]);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut peer = Peer::start(&mut command);
        let mut said = BufReader::new(peer.0.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let at = line.trim().strip_prefix("weir: listening on udp://").unwrap().parse().unwrap();
        Receiver { peer, said, at }
    }

    /// Waits for the line about the totals of a poll.
    fn poll_line(&mut self) -> String {
        let mut line = String::new();
        while !line.starts_with("weir: poll ") {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it has ended");
        }
        line
    }

    /// Ends it, and returns its code, its output and what else it said.
    fn interrupt(mut self) -> (Option<i32>, String, String) {
        signal(&self.peer.0, "INT");
        let (mut text, mut said) = (String::new(), String::new());
        self.peer.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.said.read_to_string(&mut said).unwrap();
        (self.peer.0.wait().unwrap().code(), text, said)
    }
}

/// The datagrams of one poll with so many records.
fn poll(records: u64) -> Vec<Vec<u8>> {
    let mut packer = DatagramPacker::new(7, 1_200, &FieldSet::ALL);
    let mut datagrams = Vec::new();
    for cookie in 1..=records {
        let record = SocketRecord {
            record_kind: Some(RecordKind::POLL),
            cookie: Some(cookie),
            host: Some("web-1"),
            family: Some(AddressFamily::INET),
            state: Some(SocketState::ESTABLISHED),
            src_address: Some("192.0.2.1".parse().unwrap()),
            src_port: Some(443),
            rtt_us: Some(1_500),
            ..SocketRecord::default()
        };
        datagrams.extend(packer.push(&record).unwrap().map(|full| full.bytes.to_vec()));
    }
    let totals = PollTotals { poll: Some(1), host: Some("web-1"), ..PollTotals::default() };
    let end = packer.totals(&totals);
    datagrams.extend(end.before.map(|before| before.bytes.to_vec()));
    datagrams.push(end.last.bytes.to_vec());
    datagrams
}

fn send(datagrams: &[Vec<u8>], to: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in datagrams {
        assert_eq!(socket.send_to(datagram, to).unwrap(), datagram.len());
    }
}

#[test]
fn everything_arrives_in_any_format() {
    let datagrams = poll(100);
    assert!(datagrams.len() > 3);
    let mut receiver = Receiver::start(&["--fail-on-loss", "--format", "jsonl"]);
    send(&datagrams, receiver.at);
    let line = receiver.poll_line();
    assert!(
        line.contains("poll 1 of web-1") && line.contains("100 of 100 records so far, 0 missing"),
        "{line}"
    );
    let (code, text, said) = receiver.interrupt();
    assert_eq!(code, Some(0), "{said}");
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cookies: Vec<_> = records.iter().filter_map(|record| record["cookie"].as_u64()).collect();
    assert!(cookies.iter().copied().eq(1..=100), "{cookies:?}");
    assert_eq!(records.iter().filter(|record| record["record_kind"] == "totals").count(), 1);
    assert!(said.contains("1 stream, 0 records missing"), "{said}");
    let mut receiver = Receiver::start(&["--columns", "host,local,rtt", "--count", "1"]);
    send(&poll(3), receiver.at);
    receiver.poll_line();
    let (_, table, _) = receiver.interrupt_or_end();
    let rows: Vec<_> = table.lines().collect();
    assert!(rows.len() == 4 && rows[0].starts_with("HOST"), "{table}");
    assert!(
        rows[3].contains("web-1")
            && rows[3].contains("192.0.2.1:443")
            && rows[3].contains("1.5 ms"),
        "{table}"
    );
}

impl Receiver {
    /// With `--count` it ends by itself.
    fn interrupt_or_end(mut self) -> (Option<i32>, String, String) {
        let (mut text, mut said) = (String::new(), String::new());
        self.peer.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.said.read_to_string(&mut said).unwrap();
        (self.peer.0.wait().unwrap().code(), text, said)
    }
}

#[test]
fn what_is_missing_is_stated_exactly() {
    let mut datagrams = poll(100);
    let lost = datagrams.remove(1);
    let lost = record::decode_datagram(&lost).unwrap().record_count;
    assert!(lost > 0);
    let mut receiver =
        Receiver::start(&["--fail-on-loss", "--format", "csv", "--columns", "cookie"]);
    send(&datagrams, receiver.at);
    let line = receiver.poll_line();
    assert!(
        line.contains(&format!("{} of 100 records so far, {lost} missing", 100 - lost)),
        "{line}"
    );
    let (code, text, said) = receiver.interrupt();
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(text.lines().count() as u64, 1 + 100 - lost);
    assert!(said.contains(&format!("1 stream, {lost} records missing")), "{said}");
}
