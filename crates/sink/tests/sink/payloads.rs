//! Payloads that a sender chose to break the stream that others' payloads share.

use crate::streams::{Receiver, options_of};
use crate::support::{Source, check_law, file_options, hop};
use ledger::Reason;
use record::DatagramRecord;
use sink::{Content, SinkOptions, StreamFraming, TcpOptions};
use std::time::Instant;
use testkit::{DEADLINE, TempDir, need_tool};

/// An honest payload before and behind each of those that are not.
const HONEST: &[u8] = b"<13>honest";
const HOSTILE: [&[u8]; 6] =
    [b"", b"\n", b"<13>a\n<0>forged", b"<13>b\n", b"\n\n7 <0>fake", b"10 <13>x\r\n\0\n"];

/// Sends the payloads to a sink; how many were skipped.
fn send(options: SinkOptions) -> u64 {
    let mut source = Source::to_one(options);
    let meter = source.meters().remove(0);
    let payloads = HOSTILE.iter().flat_map(|hostile| [HONEST, hostile, HONEST]);
    for (number, payload) in (0..).zip(payloads) {
        let record = DatagramRecord { payload: Some(payload), ..DatagramRecord::new() };
        source.writer.try_datagram(&record, number, 0).unwrap();
    }
    source.writer.try_flush().unwrap();
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);

    let hop = hop(&meter);
    check_law(&hop);
    let skipped = hop.dropped_for(Reason::NotInFormat).count;
    assert_eq!(hop.delivered.count + skipped, 3 * HOSTILE.len() as u64, "{hop:?}");
    skipped
}

/// The bytes that a receiver gets, and how many payloads were skipped.
fn over_tcp(framing: StreamFraming) -> (Vec<u8>, u64) {
    let (mut receiver, port) = Receiver::tcp(None);
    let options = TcpOptions { host: "127.0.0.1".into(), port, framing };
    let skipped = send(options_of(sink::tcp(options, Content::Payloads)));
    receiver.stop();
    (receiver.received().remove(0), skipped)
}

/// What the receiver of a stream of frames reads, given a function that splits one off.
fn check_frames(bytes: &[u8], skips_empty: bool, split: impl Fn(&[u8]) -> (&[u8], &[u8])) {
    let sent = HOSTILE.iter().flat_map(|hostile| [HONEST, hostile, HONEST]);
    let mut rest = bytes;
    for payload in sent.filter(|payload| !(skips_empty && payload.is_empty())) {
        let (frame, behind) = split(rest);
        assert_eq!(frame, payload);
        rest = behind;
    }
    assert_eq!(rest, b"");
}

#[test]
fn counted_frames_hold_every_byte_and_no_frame_is_empty() {
    if !need_tool("weir-python") {
        return;
    }
    // RFC 6587, section 3.4.1: MSG-LEN = NONZERO-DIGIT *DIGIT.
    let (bytes, skipped) = over_tcp(StreamFraming::OctetCounted);
    assert_eq!(skipped, 1);
    check_frames(&bytes, true, |rest| {
        let space = rest.iter().position(|byte| *byte == b' ').unwrap();
        let (digits, rest) = rest.split_at(space);
        assert!(matches!(digits, [b'1'..=b'9', ..]));
        let len: usize = str::from_utf8(digits).unwrap().parse().unwrap();
        rest[1..].split_at(len)
    });

    let (bytes, skipped) = over_tcp(StreamFraming::LengthPrefixed);
    assert_eq!(skipped, 0);
    check_frames(&bytes, false, |rest| {
        let (len, rest) = rest.split_first_chunk::<4>().unwrap();
        rest.split_at(u32::from_be_bytes(*len) as usize)
    });
}

/// The lines that stand for the payloads.
fn check_lines(text: &[u8], skipped: u64) {
    assert_eq!(skipped, 2);
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let written: [&[u8]; 4] =
        [b"<13>a#012<0>forged", b"<13>b", b"#012#0127 <0>fake", b"10 <13>x\r#012\0"];
    let mut expected = vec![HONEST; 4];
    expected.extend(written.iter().flat_map(|line| [HONEST, line, HONEST]));
    // Behind the last line feed there is nothing.
    expected.push(b"");
    assert_eq!(lines, expected);
}

#[test]
fn a_payload_is_one_line_of_a_stream() {
    if need_tool("weir-python") {
        let (bytes, skipped) = over_tcp(StreamFraming::Newline);
        check_lines(&bytes, skipped);
    }
}

#[test]
fn a_payload_is_one_line_of_a_file() {
    let dir = TempDir::new();
    let options = file_options(&dir.file("lines"));
    let skipped = send(options_of(sink::file(options, Content::Payloads)));
    check_lines(&std::fs::read(dir.file("lines")).unwrap(), skipped);
}
