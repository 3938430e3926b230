//! OpenTelemetry logs.

use super::server::{Fake, OK, answer};
use super::{sent, sink, to};
use crate::rows::{any_message, any_record, realistic, realistic_datagram, realistic_totals};
use crate::support::Source;
use ledger::{Event, RejectClass};
use record::{
    DatagramRecord, Encoder, Encoding, FieldSet, Frame, SocketRecord, decode_datagram_record,
};
use sink::{Compression, HttpOptions};
use std::fs;
use std::process::Command;
use testkit::{Random, TempDir, find_tool, need_python_module, root, run, wait_for};

/// The package published by OpenTelemetry finds each field of each row where the specification puts it.
#[test]
fn its_own_package_reads_every_field() {
    if !need_python_module("opentelemetry.proto") {
        return;
    }
    let mut random = Random(17);
    let messages: Vec<Vec<u8>> =
        (0..2_000).map(|_| any_message(&mut random, SocketRecord::FIELDS)).collect();
    let mut records: Vec<SocketRecord<'_>> =
        messages.iter().map(|message| any_record(message)).collect();
    records.extend((0..500).map(|_| realistic(&mut random)));
    let messages: Vec<Vec<u8>> =
        (0..1_000).map(|_| any_message(&mut random, DatagramRecord::FIELDS)).collect();
    let read = |message| decode_datagram_record(message).unwrap();
    let mut datagrams: Vec<DatagramRecord<'_>> =
        messages.iter().map(|message| read(message)).collect();
    datagrams.extend((0..200).map(|_| realistic_datagram(&mut random)));

    let fake = Fake::start(&[OK]);
    let options = HttpOptions { compression: Compression::Gzip, ..to(&fake) };
    let mut source = Source::to_one(sink(sink::otlp(options, FieldSet::ALL), 300));
    records.iter().for_each(|record| source.writer.record(record));
    source.writer.end_of_poll(&realistic_totals());
    for datagram in &datagrams {
        wait_for("room", || source.writer.try_datagram(datagram, 1, 0).ok());
    }
    wait_for("room", || source.writer.try_flush().ok());
    wait_for("everything to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!(hop.delivered.count as usize, records.len() + 1 + datagrams.len(), "{hop:?}");

    let folder = TempDir::new();
    for (number, request) in fake.requests().into_iter().enumerate() {
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(request.header("content-encoding"), Some("gzip"));
        fs::write(folder.file(&format!("{number}.body")), request.body).unwrap();
    }
    write_lines(&folder, &records, &datagrams);
    let script = root().join("crates/sink/tests/otlp.py");
    let python = find_tool("weir-python").unwrap();
    run(Command::new(python).arg(script).arg(folder.path()));
}

/// The same rows as JSON lines.
fn write_lines(folder: &TempDir, records: &[SocketRecord<'_>], datagrams: &[DatagramRecord<'_>]) {
    let mut encoder = Encoder::new(Encoding::Jsonl, &FieldSet::ALL).framed(Frame::OneKind);
    let mut lines = [Vec::new(), Vec::new(), Vec::new()];
    records.iter().for_each(|record| encoder.encode(record, &mut lines[0]));
    encoder.totals_row(&realistic_totals(), &mut lines[1]);
    datagrams.iter().for_each(|datagram| encoder.datagram(datagram, &mut lines[2]));
    for (name, lines) in ["records", "totals", "datagrams"].iter().zip(lines) {
        fs::write(folder.file(&format!("{name}.jsonl")), lines).unwrap();
    }
}

/// The rows that a server refuses are counted; it reports how many.
#[test]
fn logs_that_are_refused_in_part_are_counted() {
    let refusal = answer("200 OK", "", "\n\u{6}\u{8}\u{7}\u{12}\u{2}no");
    let fake = Fake::start(&[&refusal]);
    let hop = sent(sink(sink::otlp(to(&fake), FieldSet::ALL), 100), 100);
    assert_eq!((hop.delivered.count, hop.rejected_with(RejectClass::Invalid).count), (93, 7));
    let request = fake.requests().pop().unwrap();
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));

    // More than were sent: 127 of 100.
    let fake = Fake::start(&[&answer("200 OK", "", "\n\u{2}\u{8}\u{7f}")]);
    let hop = sent(sink(sink::otlp(to(&fake), FieldSet::ALL), 100), 100);
    assert_eq!((hop.delivered.count, hop.rejected_with(RejectClass::Invalid).count), (0, 100));
}

/// The body of an error does not count as a success answer.
#[test]
fn logs_that_were_answered_with_an_error_are_sent_again() {
    let fake = Fake::start(&[&answer("503 Service Unavailable", "", ""), OK]);
    let hop = sent(sink(sink::otlp(to(&fake), FieldSet::ALL), 100), 100);
    assert_eq!((hop.delivered.count, hop.event(Event::Retries)), (100, 1), "{hop:?}");
    assert_eq!(hop.event(Event::PossibleDuplicates), 100, "{hop:?}");
    let [first, second] = &fake.requests()[..] else { panic!("two requests") };
    assert_eq!(first.body, second.body);
}
