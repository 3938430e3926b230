//! Rows of flows, counters and their totals: how each encoding writes them, and what a reader of a mixed stream sees.

use crate::support::any_message;
use record::*;
use testkit::Random;

/// The kinds of rows made from sFlow.
pub(crate) const ROWS: [RowKind; 3] = [RowKind::Flow, RowKind::Counters, RowKind::FlowTotals];

/// Kinds that mark a message as not being a socket record.
pub(crate) const OTHERS: [Option<RecordKind>; 4] = [
    Some(RecordKind::DATAGRAM),
    Some(RecordKind::FLOW),
    Some(RecordKind::COUNTERS),
    Some(RecordKind::FLOW_TOTALS),
];

/// A row of this kind with random fields, as a message.
pub(crate) fn any_row(kind: RowKind, random: &mut Random) -> Vec<u8> {
    let message = any_message(random, kind.fields());
    numbered(kind, &message, 7, random.below(1 << 40))
}

/// The same row with its kind, run and number, in canonical form.
pub(crate) fn numbered(kind: RowKind, message: &[u8], run: u64, number: u64) -> Vec<u8> {
    let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL).framed(Frame::Alone);
    let (mut out, run_id) = (Vec::new(), Some(run));
    match kind {
        RowKind::Flow => {
            let row = decode_flow_record(message).unwrap();
            let (record_kind, sequence) = (Some(RecordKind::FLOW), Some(number));
            encoder.flow(&FlowRecord { record_kind, run_id, sequence, ..row }, &mut out);
        }
        RowKind::Counters => {
            let row = decode_counter_record(message).unwrap();
            let (record_kind, sequence) = (Some(RecordKind::COUNTERS), Some(number));
            encoder.counters(&CounterRecord { record_kind, run_id, sequence, ..row }, &mut out);
        }
        RowKind::FlowTotals => {
            let row = decode_flow_totals(message).unwrap();
            let (record_kind, next_sequence) = (Some(RecordKind::FLOW_TOTALS), Some(number));
            encoder
                .flow_totals(&FlowTotals { record_kind, run_id, next_sequence, ..row }, &mut out);
        }
        _ => unreachable!("sFlow makes no such rows"),
    }
    out
}

/// The same row in canonical form: without numbers that stand for "no value".
pub(crate) fn canonical(kind: RowKind, message: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL).framed(Frame::Alone);
    let mut out = Vec::new();
    match kind {
        RowKind::Flow => encoder.flow(&decode_flow_record(message).unwrap(), &mut out),
        RowKind::Counters => encoder.counters(&decode_counter_record(message).unwrap(), &mut out),
        _ => out.extend_from_slice(message),
    }
    out
}

fn flow() -> FlowRecord<'static> {
    FlowRecord {
        time_unix_ns: Some(1_795_348_800_000_000_000),
        definition: Some("pairs"),
        cause: Some(FlowCause::EVICTED),
        key: Some(Tags::new(&[("src/24", "192.0.2.0/24"), ("group(dst)", "lab, \"x\"")])),
        samples: Some(3),
        bytes: Some(4_500),
        src_address: Some([192, 0, 2, 0].into()),
        src_prefix_bits: Some(24),
        dst_group: Some("lab, \"x\""),
        ..FlowRecord::new()
    }
}

fn written(encoding: Encoding) -> String {
    let (mut encoder, mut out) = (Encoder::of(RowKind::Flow, encoding), Vec::new());
    encoder.begin(&mut out);
    encoder.flow(&flow(), &mut out);
    encoder.end(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_flow_is_its_key_twice_and_its_figures() {
    assert_eq!(
        written(Encoding::Jsonl),
        r#"{"record_kind":"flow","time_unix_ns":1795348800000000000,"schema_version":1,"definition":"pairs","cause":"evicted","key":{"src/24":"192.0.2.0/24","group(dst)":"lab, \"x\""},"samples":3,"bytes":4500,"src_address":"192.0.2.0","src_prefix_bits":24,"dst_group":"lab, \"x\""}"#
            .to_owned()
            + "\n"
    );
    assert_eq!(
        written(Encoding::Prototext),
        r#"flow { record_kind: flow time_unix_ns: 1795348800000000000 schema_version: 1 definition: "pairs" cause: evicted key { key: "src/24" value: "192.0.2.0/24" } key { key: "group(dst)" value: "lab, \"x\"" } samples: 3 bytes: 4500 src_address: "\000\000\000\000\000\000\000\000\000\000\377\377\300\000\002\000" src_prefix_bits: 24 dst_group: "lab, \"x\"" }"#
            .to_owned()
            + "\n"
    );
    let csv = written(Encoding::Csv);
    assert!(csv.starts_with("record_kind,time_unix_ns,sequence,host,tags,"), "{csv}");
    assert!(csv.ends_with(",\"lab, \"\"x\"\"\",,,,,,,,,,,,,,,,,,,,,\n"), "{csv}");
}

#[test]
fn a_reader_of_a_mixed_stream_sees_what_each_row_is() {
    let mut random = Random(31);
    for kind in ROWS {
        for _ in 0..5_000 {
            let message = any_row(kind, &mut random);
            let again = match decode_record(&message).unwrap() {
                Record::Flow(_) => RowKind::Flow,
                Record::Counters(_) => RowKind::Counters,
                Record::FlowTotals(_) => RowKind::FlowTotals,
                other => panic!("{other:?}"),
            };
            assert_eq!(again, kind);
            // There and back.
            let number = match decode_record(&message).unwrap() {
                Record::Flow(row) => row.sequence,
                Record::Counters(row) => row.sequence,
                Record::FlowTotals(row) => row.next_sequence,
                _ => None,
            };
            assert_eq!(numbered(kind, &message, 7, number.unwrap()), message);
        }
    }
}

#[test]
fn a_counter_that_an_agent_does_not_have_is_absent() {
    let counters = CounterRecord {
        in_octets: Some(u64::MAX),
        in_errors: Some(u32::MAX),
        out_octets: Some(u64::MAX - 1),
        ..CounterRecord::default()
    };
    let mut out = Vec::new();
    Encoder::new(Encoding::Jsonl, &FieldSet::ALL).counters(&counters, &mut out);
    assert_eq!(out, b"{\"out_octets\":18446744073709551614}\n");
}

#[test]
fn a_chunk_keeps_every_kind() {
    let mut builder = ChunkBuilder::new(7, [3; 16]);
    builder.flow(&flow(), 11);
    builder.counters(&CounterRecord::new(CounterSubject::AGENT), 12);
    builder.flow_totals(&FlowTotals::new());
    let chunk = builder.cut(None).unwrap();
    let mut kept = Vec::new();
    chunk.encode(&mut kept);
    let chunk = Chunk::decode(&kept).unwrap();
    let rows: Vec<_> = chunk.rows().map(|row| (row.kind, row.key)).collect();
    assert_eq!(rows, [(RowKind::Flow, 11), (RowKind::Counters, 12), (RowKind::FlowTotals, 0)]);
    let first = chunk.rows().next().unwrap();
    assert_eq!(decode_flow_record(first.bytes), Ok(flow()));
}
