//! ClickHouse's engine creates the tables in `deploy/clickhouse`, and every record that goes in comes out equal, whichever way it
//! went. A query proves that a run is complete, and finds a row that was removed.

use crate::flows::{ROWS, numbered};
use crate::support::{any_message, any_record, realistic, realistic_datagram, realistic_totals};
use record::*;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::{Random, find_tool, need_python_module};

const BOOT_ID: &str = "c5b1f1e0-2d7a-4d27-9c1b-0f6d6f3c5a11";
const RUNS: [u64; 2] = [7, (1 << 63) - 1];

#[test]
fn clickhouse_keeps_every_record_and_finds_the_one_that_is_missing() {
    if !need_python_module("chdb") {
        return;
    }
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clickhouse-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut random = Random(13);
    let messages: Vec<Vec<u8>> =
        (0..200).map(|_| any_message(&mut random, SocketRecord::FIELDS)).collect();
    let mut records: Vec<SocketRecord<'_>> =
        messages.iter().map(|message| any_record(message)).collect();
    records.extend((0..300).map(|_| realistic(&mut random)));
    records.push(of_a_newer_kernel());
    let runs = RUNS.map(|run_id| run(&records, run_id));
    let messages: Vec<Vec<u8>> =
        (0..300).map(|_| any_message(&mut random, DatagramRecord::FIELDS)).collect();
    let datagrams = received(&messages, &mut random);
    for encoding in [Encoding::Protobuf, Encoding::Jsonl] {
        let mut encoder = Encoder::new(encoding, &FieldSet::ALL);
        let (mut mixed, mut sockets, mut polls) = (Vec::new(), Vec::new(), Vec::new());
        for (records, totals) in &runs {
            for record in records {
                encoder.encode(record, &mut mixed);
                encoder.encode(record, &mut sockets);
            }
            encoder.totals(totals, &mut mixed);
            encoder.totals_row(totals, &mut polls);
        }
        let mut received = Vec::new();
        datagrams.iter().for_each(|datagram| encoder.datagram(datagram, &mut received));
        let files =
            [("mixed", mixed), ("sockets", sockets), ("polls", polls), ("datagrams", received)];
        for (name, bytes) in files {
            fs::write(folder.join(format!("{name}.{encoding}")), bytes).unwrap();
        }
    }
    write_blocks(&folder, &runs, &datagrams);
    write_flows(&folder, &mut random);
    let root = testkit::root();
    let script = root.join("crates/record/tests/clickhouse.py");
    let mut python = Command::new(find_tool("weir-clickhouse").unwrap());
    let status = python.arg(script).arg(&folder).arg(root.canonicalize().unwrap()).status();
    assert!(status.unwrap().success(), "the files are in {}", folder.display());
    fs::remove_dir_all(&folder).unwrap();
}

/// As sinks send them: protobuf messages, converted to one block of each kind.
fn write_blocks(
    folder: &Path,
    runs: &[(Vec<SocketRecord<'_>>, PollTotals<'_>)],
    datagrams: &[DatagramRecord<'_>],
) {
    let mut blocks = RowKind::ALL.map(|kind| Native::new(kind, &FieldSet::ALL));
    let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL).framed(Frame::Alone);
    let mut add = |at: usize, write: &dyn Fn(&mut Encoder, &mut Vec<u8>)| {
        let mut message = Vec::new();
        write(&mut encoder, &mut message);
        blocks[at].push(&message).unwrap();
    };
    for (records, totals) in runs {
        records.iter().for_each(|record| add(0, &|to, out| to.encode(record, out)));
        add(1, &|to, out| to.totals_row(totals, out));
    }
    datagrams.iter().for_each(|datagram| add(2, &|to, out| to.datagram(datagram, out)));

    // The other kinds are written separately.
    for (kind, mut block) in RowKind::ALL.into_iter().zip(blocks).take(3) {
        let table = Native::table(kind);
        fs::write(folder.join(format!("{table}.native")), block.finish()).unwrap();
        fs::write(folder.join(format!("{table}.columns")), Native::columns(kind)).unwrap();
    }
}

/// Writes the rows made from sFlow, each kind separately in three forms.
fn write_flows(folder: &Path, random: &mut Random) {
    for kind in ROWS {
        let any = |number| numbered(kind, &any_message(random, kind.fields()), RUNS[0], number);
        let messages: Vec<Vec<u8>> = (0..300).map(any).collect();
        let table = kind.table();
        for encoding in [Encoding::Protobuf, Encoding::Jsonl] {
            let (mut encoder, mut out) = (Encoder::new(encoding, &FieldSet::ALL), Vec::new());
            for message in &messages {
                encoder.row(kind, message, &mut out).unwrap();
            }
            fs::write(folder.join(format!("{table}.{encoding}")), out).unwrap();
        }

        let mut block = Native::new(kind, &FieldSet::ALL);
        messages.iter().for_each(|message| block.push(message).unwrap());
        fs::write(folder.join(format!("{table}.native")), block.finish()).unwrap();
        fs::write(folder.join(format!("{table}.columns")), Native::columns(kind)).unwrap();
    }
}

/// Datagrams of one run, numbered.
fn received<'a>(messages: &'a [Vec<u8>], random: &mut Random) -> Vec<DatagramRecord<'a>> {
    let mut datagrams: Vec<DatagramRecord<'a>> =
        messages.iter().map(|message| decode_datagram_record(message).unwrap()).collect();
    datagrams.push(DatagramRecord { payload: Some(b"\0\xff"), ..DatagramRecord::new() });
    datagrams.extend((0..50).map(|_| realistic_datagram(random)));

    for (datagram, sequence) in datagrams.iter_mut().zip(0..) {
        datagram.run_id = Some(RUNS[0]);
        datagram.sequence = Some(sequence);
        // Without its kind, it could not be recognized among other rows.
        datagram.record_kind = Some(RecordKind::DATAGRAM);
    }
    datagrams
}

/// The records of a run, numbered, and its totals.
fn run<'a>(
    records: &[SocketRecord<'a>],
    run_id: u64,
) -> (Vec<SocketRecord<'a>>, PollTotals<'static>) {
    let numbered = records.iter().zip(0..).map(|(record, sequence)| SocketRecord {
        run_id: Some(run_id),
        sequence: Some(sequence),
        // No collector writes another kind of row, or a boot id that is not a UUID.
        record_kind: record
            .record_kind
            .filter(|kind| [RecordKind::POLL, RecordKind::CLOSE, RecordKind(77)].contains(kind)),
        boot_id: record.boot_id.map(|_| BOOT_ID),
        ..*record
    });
    let totals = PollTotals {
        run_id: Some(run_id),
        next_sequence: Some(records.len() as u64),
        ..realistic_totals()
    };
    (numbered.collect(), totals)
}

/// Words, numbers and bytes beyond any of today.
fn of_a_newer_kernel() -> SocketRecord<'static> {
    SocketRecord {
        record_kind: Some(RecordKind(77)),
        time_unix_ns: Some(1_795_190_400_000_000_000),
        family: Some(AddressFamily::INET6),
        src_address: Some("::ffff:192.0.2.1".parse().unwrap()),
        dst_address: Some("2001:db8::1".parse().unwrap()),
        state: Some(SocketState(99)),
        timer: Some(SocketTimer(255)),
        close_reason: Some(CloseReason(200)),
        bytes_acked: Some(u64::MAX),
        segs_in: Some(u32::MAX),
        tcp_info_tail: Some(b"\0\xff\" '\\\n,\t\x80"),
        unknown_attributes: Some(b""),
        ..SocketRecord::default()
    }
}
