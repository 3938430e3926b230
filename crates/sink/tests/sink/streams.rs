//! Destinations that are streams, over TCP, TLS and unix sockets, to an independent receiver.

use crate::outage::{Outage, beside};
use crate::support::{
    Source, check_law, hop, line_of, number_and_filling, numbered, numbers_of, options,
};
use ledger::Event;
use record::{Encoding, SocketRecord, decode_protobuf};
use sink::{Connector, Content, DeliveryOptions, SinkOptions, StreamFraming, TcpOptions};
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::proxy::{Fault, Proxy};
use testkit::{DEADLINE, Process, TempDir, find_tool, free_port, need_tool, root, wait_for};

/// A receiver that can be ended and restarted.
pub(crate) struct Receiver {
    dir: TempDir,
    address: String,
    certificate: Option<String>,
    process: Option<Process>,
}

impl Receiver {
    pub(crate) fn tcp(certificate: Option<String>) -> (Receiver, u16) {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let dir = TempDir::new();
        let mut this = Receiver { dir, address, certificate, process: None };
        this.start();
        (this, port)
    }

    fn unix() -> (Receiver, PathBuf) {
        let dir = TempDir::new();
        let path = dir.file("socket");
        let address = path.to_str().unwrap().to_owned();
        let mut this = Receiver { dir, address, certificate: None, process: None };
        this.start();
        (this, path)
    }

    fn start(&mut self) {
        let mut command = Command::new(find_tool("weir-python").unwrap());
        command.arg(root().join("crates/testkit/readers/stream_receiver.py"));
        fs::create_dir_all(self.dir.file("received")).unwrap();
        command.arg(self.dir.file("received")).arg(&self.address).args(&self.certificate);
        let mut process = Process::start(command);
        process.hear("ready");
        self.process = Some(process);
    }

    /// Makes it end its connections after reading what was in flight.
    pub(crate) fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        process.signal("TERM");
        process.finish();
    }

    /// Kills it.
    fn kill(&mut self) {
        self.process = None;
    }

    /// The bytes received over each connection.
    pub(crate) fn received(&self) -> Vec<Vec<u8>> {
        let files = fs::read_dir(self.dir.file("received")).unwrap();
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }

    pub(crate) fn lines(&self) -> Vec<u64> {
        let whole = |text: Vec<u8>| {
            let mut text = String::from_utf8(text).unwrap();
            // A connection may end in the middle of a line.
            text.truncate(text.rfind('\n').map_or(0, |at| at + 1));
            numbers_of(&text)
        };
        self.received().into_iter().flat_map(whole).collect()
    }
}

fn lines() -> Content {
    Content::Records(Encoding::Jsonl, number_and_filling())
}

fn to_port(port: u16, framing: StreamFraming) -> TcpOptions {
    TcpOptions { host: "127.0.0.1".into(), port, framing }
}

fn tcp(port: u16) -> Connector {
    sink::tcp(to_port(port, StreamFraming::Newline), lines())
}

pub(crate) fn options_of(connector: Connector) -> SinkOptions {
    let delivery = DeliveryOptions {
        in_flight_max: 16,
        retry_max: Duration::from_millis(500),
        ..DeliveryOptions::default()
    };
    SinkOptions { delivery, ..options("stream", connector) }
}

/// Sends all rows, and returns what arrived over the one connection.
pub(crate) fn carried(connector: Connector, mut receiver: Receiver) -> Vec<u8> {
    let mut source = Source::to_one(options_of(connector));
    let meter = source.meters().remove(0);
    source.send_all((0..testkit::rows()).map(numbered));
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
    let hop = hop(&meter);
    check_law(&hop);
    assert_eq!(hop.delivered.count, testkit::rows(), "{hop:?}");
    assert_eq!(hop.event(Event::Retries), 0, "{hop:?}");

    receiver.stop();
    let mut received = receiver.received();
    assert_eq!(received.len(), 1);
    received.remove(0)
}

fn over_tcp(framing: StreamFraming, content: Content) -> Vec<u8> {
    let (receiver, port) = Receiver::tcp(None);
    carried(sink::tcp(to_port(port, framing), content), receiver)
}

/// Splits a stream into rows, given a function that reads the length in front of each.
fn frames(mut bytes: &[u8], head: impl Fn(&[u8]) -> (usize, usize)) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (start, len) = head(bytes);
        frames.push(&bytes[start..start + len]);
        bytes = &bytes[start + len..];
    }
    frames
}

fn octets(bytes: &[u8]) -> (usize, usize) {
    let space = bytes.iter().position(|byte| *byte == b' ').unwrap();
    (space + 1, std::str::from_utf8(&bytes[..space]).unwrap().parse().unwrap())
}

fn varint(bytes: &[u8]) -> (usize, usize) {
    match bytes {
        [low, ..] if *low < 0x80 => (1, usize::from(*low)),
        [low, high, ..] if *high < 0x80 => (2, usize::from(low & 0x7f) | usize::from(*high) << 7),
        _ => panic!("longer than any row here"),
    }
}

fn check_objects(frames: &[&[u8]]) {
    assert_eq!(frames.len() as u64, testkit::rows());
    for (number, frame) in (0..).zip(frames) {
        assert_eq!(*frame, line_of(number).trim_end().as_bytes());
    }
}

#[test]
fn every_row_arrives_in_every_framing() {
    if !need_tool("weir-python") {
        return;
    }
    for framing in [StreamFraming::Newline, StreamFraming::None] {
        let text = String::from_utf8(over_tcp(framing, lines())).unwrap();
        assert!(numbers_of(&text).into_iter().eq(0..testkit::rows()));
    }
    check_objects(&frames(&over_tcp(StreamFraming::OctetCounted, lines()), octets));

    let bytes = over_tcp(StreamFraming::LengthPrefixed, lines());
    let fixed = |bytes: &[u8]| (4, u32::from_be_bytes(*bytes.first_chunk().unwrap()) as usize);
    check_objects(&frames(&bytes, fixed));

    let content = Content::Records(Encoding::Protobuf, number_and_filling());
    let bytes = over_tcp(StreamFraming::None, content);
    let rows = frames(&bytes, varint);
    assert_eq!(rows.len() as u64, testkit::rows());
    for (number, row) in (0..).zip(rows) {
        let expected = numbered(number);
        let expected = SocketRecord { cookie: None, ..expected };
        assert_eq!(decode_protobuf(row).unwrap(), expected);
    }

    let content = Content::Records(Encoding::Csv, number_and_filling());
    let text = String::from_utf8(over_tcp(StreamFraming::Newline, content)).unwrap();
    assert_eq!(text.lines().next(), Some("sequence,host"));
    assert_eq!(text.lines().count() as u64, testkit::rows() + 1);
}

#[test]
fn every_row_arrives_over_a_unix_socket() {
    if !need_tool("weir-python") {
        return;
    }
    let (receiver, path) = Receiver::unix();
    let bytes = carried(sink::unix(path, StreamFraming::Newline, lines()), receiver);
    assert!(numbers_of(&String::from_utf8(bytes).unwrap()).into_iter().eq(0..testkit::rows()));
}

impl Outage for Receiver {
    fn stop(&mut self) {
        Receiver::stop(self);
    }

    fn start(&mut self) {
        Receiver::start(self);
    }

    fn numbers(&mut self) -> Vec<u64> {
        Receiver::stop(self);
        self.lines()
    }
}

#[test]
fn an_outage_without_a_spool_loses_what_it_says() {
    if !need_tool("weir-python") {
        return;
    }
    let (receiver, port) = Receiver::tcp(None);
    crate::outage::without_spool(receiver, || options_of(tcp(port)));
}

#[test]
fn an_outage_with_a_spool_loses_nothing() {
    if !need_tool("weir-python") {
        return;
    }
    let (receiver, port) = Receiver::tcp(None);
    crate::outage::with_spool(receiver, || options_of(tcp(port)));
}

/// A killed process loses what its kernel held for it: no more than that is missing.
#[test]
fn a_receiver_that_is_killed_loses_what_it_had_not_read_and_no_more() {
    if !need_tool("weir-python") {
        return;
    }
    let (mut receiver, port) = Receiver::tcp(None);
    let mut source = Source::to_one(options_of(tcp(port)));
    let meter = source.meters().remove(0);
    let mut next = 0;
    for _ in 0..5 {
        for _ in 0..20 {
            source.send(next..next + 500);
            next += 500;
        }
        receiver.kill();
        source.send(next..next + 500);
        next += 500;
        receiver.start();
        wait_for("everything to leave", || source.is_empty());
    }
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
    receiver.stop();

    let hop = hop(&meter);
    check_law(&hop);
    assert_eq!(hop.delivered.count, next, "{hop:?}");
    let lines = receiver.lines();
    let distinct: BTreeSet<_> = lines.iter().copied().collect();
    let repeated = (lines.len() - distinct.len()) as u64;
    assert!(repeated <= hop.event(Event::PossibleDuplicates), "{repeated} {hop:?}");
    // The default maximum of a receive buffer, 6 MiB (tcp(7), tcp_rmem), exceeds what is sent between two kills.
    assert!(next - distinct.len() as u64 <= 5 * 20 * 500, "{}", distinct.len());
}

#[test]
fn a_slow_hanging_or_resetting_receiver_holds_no_other_sink() {
    if !need_tool("weir-python") {
        return;
    }
    let (mut receiver, port) = Receiver::tcp(None);
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let options = options_of(tcp(proxy.addr().port()));
    let hop = beside(
        options,
        &proxy,
        &[
            Fault::Slow { bytes_per_sec: 200_000 },
            Fault::Hang,
            Fault::ResetAfter { sent_bytes: 30_000 },
            Fault::Refuse,
        ],
    );

    receiver.stop();
    let lines = receiver.lines();
    let distinct: BTreeSet<_> = lines.iter().copied().collect();
    let repeated = (lines.len() - distinct.len()) as u64;
    assert!(repeated <= hop.event(Event::PossibleDuplicates), "{repeated} {hop:?}");
}
