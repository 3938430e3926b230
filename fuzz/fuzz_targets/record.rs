//! Decoding any bytes must not panic. A record that decodes is written in every encoding: as protobuf it decodes to the
//! same, alone and in a datagram; as lines it is one line, whatever its texts hold.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::{
    DATAGRAM_MIN_BYTES, DatagramPacker, DatagramRecord, Delimited, Encoder, Encoding, FieldSet,
    Frame, Native, PollTotals, Record, RecordKind, RowKind, SocketRecord, decode_counter_record,
    decode_datagram, decode_datagram_record, decode_flow_record, decode_flow_totals,
    decode_protobuf, decode_record, decode_totals,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = decode_protobuf(bytes) {
        written_again(&record);
        in_a_datagram(&record);
        as_lines(&record);
    }
    if let Ok(totals) = decode_totals(bytes) {
        totals_written_again(&totals);
    }
    if let Ok(datagram) = decode_datagram_record(bytes) {
        datagram_written_again(&datagram);
    }
    if let Ok(flow) = decode_flow_record(bytes) {
        let write = |encoder: &mut Encoder, out: &mut Vec<u8>| encoder.flow(&flow, out);
        row_written_again(RowKind::Flow, write, |message| {
            assert_eq!(decode_flow_record(message), Ok(flow));
        });
    }
    if let Ok(counters) = decode_counter_record(bytes) {
        let write = |encoder: &mut Encoder, out: &mut Vec<u8>| encoder.counters(&counters, out);
        row_written_again(RowKind::Counters, write, |message| {
            assert_eq!(decode_counter_record(message), Ok(counters));
        });
    }
    if let Ok(totals) = decode_flow_totals(bytes) {
        let write = |encoder: &mut Encoder, out: &mut Vec<u8>| encoder.flow_totals(&totals, out);
        row_written_again(RowKind::FlowTotals, write, |message| {
            assert_eq!(decode_flow_totals(message), Ok(totals));
        });
    }
    if let Ok(datagram) = decode_datagram(bytes) {
        assert_eq!(datagram.records().count() as u64, datagram.record_count);
    }
    assert!(
        Delimited::new(bytes).all(|message| message.map_or(true, |part| part.len() < bytes.len()))
    );
    // The same bytes as names of fields.
    let _ = str::from_utf8(bytes).map(|names| names.parse::<FieldSet>());
});

fn encode(encoding: Encoding, record: &SocketRecord<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(encoding, &FieldSet::ALL).encode(record, &mut out);
    out
}

fn written_again(record: &SocketRecord<'_>) {
    let out = encode(Encoding::Protobuf, record);
    let message = Delimited::new(&out).next().expect("one message").expect("whole");
    assert_eq!(decode_protobuf(message), Ok(*record));
    if !has_a_message_of_its_own(record.record_kind) {
        assert_eq!(decode_record(message), Ok(Record::Socket(*record)));
    }
}

fn totals_written_again(totals: &PollTotals<'_>) {
    let mut out = Vec::new();
    Encoder::new(Encoding::Protobuf, &FieldSet::ALL).totals(totals, &mut out);
    let message = Delimited::new(&out).next().expect("one message").expect("whole");
    assert_eq!(decode_record(message), Ok(Record::Totals(*totals)));
}

/// Whether rows of this kind are another message than a socket's.
fn has_a_message_of_its_own(kind: Option<RecordKind>) -> bool {
    let kinds =
        [RecordKind::DATAGRAM, RecordKind::FLOW, RecordKind::COUNTERS, RecordKind::FLOW_TOTALS];
    kind.is_some_and(|kind| kinds.contains(&kind))
}

fn datagram_written_again(datagram: &DatagramRecord<'_>) {
    let write = |encoder: &mut Encoder, out: &mut Vec<u8>| encoder.datagram(datagram, out);
    row_written_again(RowKind::Datagram, write, |message| {
        assert_eq!(decode_datagram_record(message), Ok(*datagram));
    });
}

/// The row as protobuf is the same again, a column's block takes it, and as a line it is one line.
fn row_written_again(
    kind: RowKind,
    write: impl Fn(&mut Encoder, &mut Vec<u8>),
    is_the_same: impl Fn(&[u8]),
) {
    let mut message = Vec::new();
    let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL).framed(Frame::Alone);
    write(&mut encoder, &mut message);
    is_the_same(&message);
    let mut block = Native::new(kind, &FieldSet::ALL);
    assert_eq!(block.push(&message), Ok(()));
    assert!(!block.finish().is_empty());

    for encoding in [Encoding::Jsonl, Encoding::Tsv] {
        let mut line = Vec::new();
        write(&mut Encoder::of(kind, encoding), &mut line);
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), line.len().checked_sub(1));
    }
}

fn in_a_datagram(record: &SocketRecord<'_>) {
    let mut packer = DatagramPacker::new(1, 0, &FieldSet::ALL);
    let packed = packer.push(record).is_ok();
    assert_eq!((packer.records(), packer.too_big()), (u64::from(packed), u64::from(!packed)));
    let end = packer.totals(&PollTotals::default());
    for datagram in end.before.iter().chain([&end.last]) {
        assert!(datagram.bytes.len() <= DATAGRAM_MIN_BYTES);
        let view = decode_datagram(datagram.bytes).expect("it is ours");
        assert!(view.records().all(|read| read == Ok(*record)));
    }
}

fn as_lines(record: &SocketRecord<'_>) {
    for encoding in [Encoding::Jsonl, Encoding::Protojson, Encoding::Prototext, Encoding::Tsv] {
        let out = encode(encoding, record);
        let line = out.strip_suffix(b"\n").expect("a line");
        let is_plain = |byte: &u8| *byte >= 0x20 || encoding == Encoding::Tsv && *byte != b'\n';
        assert!(line.iter().all(is_plain), "{encoding}: {:?}", String::from_utf8_lossy(line));
    }
    for encoding in [Encoding::Csv, Encoding::MessagePack] {
        assert!(!encode(encoding, record).is_empty());
    }
}
