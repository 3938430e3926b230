//! Independent implementations read what the encoders write: Python's `protobuf` with the committed schema, `msgpack`,
//! `json`, `csv` and `jsonschema`. Our decoder reads what Python's `protobuf` writes.

use crate::flows::{OTHERS, ROWS, canonical};
use crate::support::{
    any_message, any_record, edges, realistic, realistic_datagram, realistic_totals,
};
use record::*;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::{Random, find_tool, need_python_module};

#[test]
fn others_read_what_we_write_and_we_read_what_they_write() {
    let modules = ["google.protobuf", "grpc_tools", "msgpack", "jsonschema"];
    if !modules.iter().all(|module| need_python_module(module)) {
        return;
    }
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("independent-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut random = Random(9);
    let mut messages: Vec<Vec<u8>> =
        (0..300).map(|_| any_message(&mut random, SocketRecord::FIELDS)).collect();
    messages.extend(SocketRecord::FIELDS.iter().flat_map(edges));
    // Without any field, a table line would look empty to a reader of JSON lines, too.
    messages.retain(|message| !message.is_empty());
    // A record that claims another kind is read as that kind.
    messages.retain(|message| !OTHERS.contains(&any_record(message).record_kind));
    let mut records: Vec<SocketRecord<'_>> =
        messages.iter().map(|message| any_record(message)).collect();
    records.extend((0..50).map(|_| realistic(&mut random)));
    for &encoding in Encoding::ALL {
        fs::write(folder.join(format!("records.{encoding}")), encode(encoding, &records)).unwrap();
    }
    fs::write(folder.join("records.datagrams"), pack(&records)).unwrap();
    write_received(&folder, &mut random);
    write_flows(&folder, &mut random);
    let root = testkit::root();
    let script = root.join("crates/record/tests/independent.py");
    let mut python = Command::new(find_tool("weir-python").unwrap());
    let status = python.arg(script).arg(&folder).arg(&root).status().unwrap();
    assert!(status.success(), "the files are in {}", folder.display());
    read_again(&fs::read(folder.join("again.pb")).unwrap(), &records);
    fs::remove_dir_all(&folder).unwrap();
}

/// Writes the rows made from sFlow, in every encoding.
fn write_flows(folder: &Path, random: &mut Random) {
    for kind in ROWS {
        let mut messages: Vec<Vec<u8>> =
            (0..300).map(|_| any_message(random, kind.fields())).collect();
        messages.extend(kind.fields().iter().flat_map(edges));
        messages.iter_mut().for_each(|message| *message = canonical(kind, message));
        messages.retain(|message| !message.is_empty());
        for &encoding in Encoding::ALL {
            let mut encoder = Encoder::of(kind, encoding);
            let mut out = Vec::new();
            encoder.begin(&mut out);
            for message in &messages {
                assert_eq!(encoder.row(kind, message, &mut out), Ok(Written::Yes));
            }
            encoder.end(&mut out);
            fs::write(folder.join(format!("{}.{encoding}", kind.table())), out).unwrap();
        }
    }
}

/// Writes received datagrams, in every encoding.
fn write_received(folder: &Path, random: &mut Random) {
    let mut messages: Vec<Vec<u8>> =
        (0..300).map(|_| any_message(random, DatagramRecord::FIELDS)).collect();
    messages.extend(DatagramRecord::FIELDS.iter().flat_map(edges));
    messages.retain(|message| !message.is_empty());
    let read = |message| decode_datagram_record(message).unwrap();
    let mut datagrams: Vec<DatagramRecord<'_>> =
        messages.iter().map(|message| read(message)).collect();
    datagrams.extend((0..50).map(|_| realistic_datagram(random)));

    for &encoding in Encoding::ALL {
        let mut encoder = Encoder::of_datagrams(encoding);
        let mut out = Vec::new();
        encoder.begin(&mut out);
        datagrams.iter().for_each(|datagram| encoder.datagram(datagram, &mut out));
        encoder.end(&mut out);
        fs::write(folder.join(format!("received.{encoding}")), out).unwrap();
    }
}

fn encode(encoding: Encoding, records: &[SocketRecord<'_>]) -> Vec<u8> {
    let mut encoder = Encoder::new(encoding, &FieldSet::ALL);
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for record in records {
        encoder.encode(record, &mut out);
    }
    encoder.totals(&realistic_totals(), &mut out);
    encoder.end(&mut out);
    out
}

fn pack(records: &[SocketRecord<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |datagram: Datagram<'_>| {
        out.extend_from_slice(&(datagram.bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(datagram.bytes);
    };
    let mut packer = DatagramPacker::new(0xffff_ffff_0000_0001, 1_472, &FieldSet::ALL);
    for record in records {
        if let Ok(Some(datagram)) = packer.push(record) {
            put(datagram);
        }
    }
    let end = packer.totals(&realistic_totals());
    end.before.into_iter().chain([end.last]).for_each(put);
    out
}

/// Python writes fields in the order of their numbers, and map entries in any order.
fn read_again(bytes: &[u8], records: &[SocketRecord<'_>]) {
    fn sorted(record: &SocketRecord<'_>) -> Vec<(String, String)> {
        let mut tags: Vec<_> = record
            .tags
            .iter()
            .flat_map(Tags::iter)
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .collect();
        tags.sort();
        tags
    }
    let mut wanted = records.iter();
    let mut totals = 0;
    for message in Delimited::new(bytes) {
        match decode_record(message.unwrap()).unwrap() {
            Record::Socket(found) => {
                let wanted = wanted.next().unwrap();
                assert_eq!(
                    SocketRecord { tags: None, ..found },
                    SocketRecord { tags: None, ..*wanted }
                );
                assert_eq!(sorted(&found), sorted(wanted));
            }
            Record::Datagram(_) | Record::Flow(_) | Record::Counters(_) | Record::FlowTotals(_) => {
                unreachable!("they are in a file of their own")
            }
            Record::Totals(found) => {
                totals += 1;
                assert_eq!(
                    PollTotals { tags: None, ..found },
                    PollTotals { tags: None, ..realistic_totals() }
                );
            }
        }
    }
    assert_eq!((wanted.next(), totals), (None, 1));
}
