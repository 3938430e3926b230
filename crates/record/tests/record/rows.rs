//! Rows of every kind, as values and as messages.

use crate::flows::{ROWS, any_row};
use crate::support::{
    any_message, mutate, mutations, realistic, realistic_datagram, realistic_totals,
};
use record::*;
use testkit::Random;
use wire::syslog::{Arrival, parse};

fn datagram() -> DatagramRecord<'static> {
    let payload = b"<34>Oct 11 22:14:15 host su[9]: caf\xe9";
    let mut datagram = DatagramRecord {
        time_unix_ns: Some(1_795_348_800_000_000_000),
        listener: Some("syslog"),
        source_address: Some([192, 0, 2, 1].into()),
        source_port: Some(514),
        payload: Some(payload),
        ..DatagramRecord::new()
    };
    let arrival = Arrival::utc(1_795_348_800_000_000_000);
    datagram.fill_syslog(&parse(payload, arrival));
    datagram
}

fn written(encoding: Encoding, datagrams: &[DatagramRecord<'_>]) -> String {
    let (mut encoder, mut out) = (Encoder::of_datagrams(encoding), Vec::new());
    encoder.begin(&mut out);
    datagrams.iter().for_each(|datagram| encoder.datagram(datagram, &mut out));
    encoder.end(&mut out);
    out.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

#[test]
fn a_datagram_is_text_where_it_can_be() {
    let text = DatagramRecord {
        listener: Some("raw"),
        payload: Some(b"a,\tb"),
        ..DatagramRecord::default()
    };
    assert_eq!(written(Encoding::Jsonl, &[text]), r#"{"listener":"raw","payload":"a,\\tb"}\n"#);
    assert_eq!(
        written(Encoding::Jsonl, &[datagram()]),
        r#"{"record_kind":"datagram","time_unix_ns":1795348800000000000,"schema_version":1,"listener":"syslog","source_address":"192.0.2.1","source_port":514,"payload_base64":"PDM0Pk9jdCAxMSAyMjoxNDoxNSBob3N0IHN1WzldOiBjYWbp","syslog_format":"rfc3164","facility":"auth","severity":"crit","syslog_time_unix_ns":1791756855000000000,"hostname":"host","app_name":"su","proc_id":"9","message_base64":"Y2Fm6Q=="}\n"#
    );
    assert_eq!(
        written(Encoding::Protojson, &[text]),
        r#"{"listener":"raw","payload":"YSwJYg=="}\n"#
    );
    assert_eq!(
        written(Encoding::Prototext, &[text]),
        r#"datagram { listener: "raw" payload: "a,\\tb" }\n"#
    );
    assert_eq!(
        written(Encoding::MessagePack, &[text]),
        r"\xde\x00\x02\xa8listener\xa3raw\xa7payload\xa4a,\tb"
    );
    assert_eq!(
        written(Encoding::Csv, &[text, datagram()]),
        "record_kind,time_unix_ns,sequence,host,tags,run_id,host_id,schema_version,listener,source_address,source_port,\
         payload,payload_base64,payload_truncated_bytes,syslog_format,facility,severity,syslog_time_unix_ns,hostname,\
         app_name,proc_id,msg_id,structured_data,structured_data_base64,message,message_base64,syslog_fault\\n\
         ,,,,,,,,raw,,,\"a,\\tb\",,,,,,,,,,,,,,,\\n\
         datagram,1795348800000000000,,,,,,1,syslog,192.0.2.1,514,\
         ,PDM0Pk9jdCAxMSAyMjoxNDoxNSBob3N0IHN1WzldOiBjYWbp,,rfc3164,auth,crit,1791756855000000000,host,su,9,,,,,Y2Fm6Q==,\\n"
    );
    assert_eq!(
        written(Encoding::Json, &[text]),
        r#"[\n{"listener":"raw","payload":"a,\\tb"}\n]\n"#
    );
}

#[test]
fn a_datagram_survives_the_way_there_and_back() {
    let mut random = Random(3);
    for _ in 0..20_000 {
        let message = any_message(&mut random, DatagramRecord::FIELDS);
        let datagram = decode_datagram_record(&message).unwrap();
        let mut out = Vec::new();
        let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL).framed(Frame::Alone);
        encoder.datagram(&datagram, &mut out);
        assert_eq!(decode_datagram_record(&out), Ok(datagram));
        if datagram.record_kind == Some(RecordKind::DATAGRAM) {
            assert_eq!(decode_record(&out), Ok(Record::Datagram(datagram)));
        }
    }
    assert_eq!(datagram().syslog_format, Some(SyslogFormat::RFC3164));
    let mut raw = datagram();
    let arrival = Arrival::utc(0);
    raw.fill_syslog(&parse(b"a.b.c:1|c", arrival));
    let said = (raw.syslog_format, raw.facility, raw.hostname, raw.message);
    assert_eq!(said, (Some(SyslogFormat::UNPARSED), None, None, None));
}

/// A row of each kind as its message, in canonical form.
fn messages(random: &mut Random) -> Vec<(RowKind, Vec<u8>)> {
    let write = |put: &dyn Fn(&mut Encoder, &mut Vec<u8>)| {
        let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL).framed(Frame::Alone);
        let mut out = Vec::new();
        put(&mut encoder, &mut out);
        out
    };
    let (record, datagram) = (realistic(random), realistic_datagram(random));
    let mut messages = vec![
        (RowKind::Record, write(&|encoder, out| encoder.encode(&record, out))),
        (RowKind::Totals, write(&|encoder, out| encoder.totals(&realistic_totals(), out))),
        (RowKind::Datagram, write(&|encoder, out| encoder.datagram(&datagram, out))),
    ];
    messages.extend(ROWS.map(|kind| (kind, any_row(kind, random))));
    messages
}

/// Encoders with different fields, kinds and frames.
fn encoders(encoding: Encoding) -> Vec<Encoder> {
    let some = "identity,rtt_us,process_name".parse().unwrap();
    let mut encoders = Vec::new();
    for frame in [Frame::Mixed, Frame::OneKind, Frame::Alone] {
        encoders.push(Encoder::new(encoding, &FieldSet::ALL).framed(frame));
        encoders.push(Encoder::new(encoding, &some).framed(frame));
        encoders.push(Encoder::of_datagrams(encoding).framed(frame));
        encoders.extend(ROWS.map(|kind| Encoder::of(kind, encoding).framed(frame)));
    }
    encoders
}

#[test]
fn a_message_is_written_as_the_value_it_holds() {
    let mut random = Random(4);
    let messages = messages(&mut random);
    for &encoding in Encoding::ALL {
        for (turn, encoder) in encoders(encoding).iter_mut().enumerate() {
            for (kind, message) in &messages {
                let (mut by_message, mut by_value) = (Vec::new(), Vec::new());
                encoder.begin(&mut Vec::new());
                let written = encoder.row(*kind, message, &mut by_message).unwrap();
                encoder.begin(&mut Vec::new());
                match kind {
                    RowKind::Record => {
                        encoder.encode(&decode_protobuf(message).unwrap(), &mut by_value);
                    }
                    RowKind::Totals => {
                        encoder.totals(&decode_totals(message).unwrap(), &mut by_value);
                    }
                    RowKind::Datagram => {
                        encoder.datagram(&decode_datagram_record(message).unwrap(), &mut by_value);
                    }
                    RowKind::Flow => {
                        encoder.flow(&decode_flow_record(message).unwrap(), &mut by_value);
                    }
                    RowKind::Counters => {
                        encoder.counters(&decode_counter_record(message).unwrap(), &mut by_value);
                    }
                    RowKind::FlowTotals => {
                        encoder.flow_totals(&decode_flow_totals(message).unwrap(), &mut by_value);
                    }
                }
                assert_eq!(by_message, by_value, "{encoding} {turn} {kind:?}");
                assert_eq!(written == Written::NoForm, by_value.is_empty(), "{encoding} {turn}");
                assert_eq!(written == Written::Yes, encoder.has_form(*kind));
            }
        }
    }
}

#[test]
fn whatever_a_message_holds_it_is_written_as_its_value_or_refused() {
    let mut random = Random(6);
    let mut refused = 0;
    let encodings = [Encoding::Jsonl, Encoding::Csv, Encoding::MessagePack, Encoding::Prototext];
    for turn in 0..mutations() {
        let kinds = [RowKind::Record, RowKind::Datagram, RowKind::Flow, RowKind::Counters];
        let kind = kinds[random.index(kinds.len())];
        let mut message = any_message(&mut random, kind.fields());
        if turn % 2 == 0 {
            mutate(&mut message, &mut random);
        }

        let encoding = encodings[random.index(encodings.len())];
        let (mut by_message, mut by_value) = (Vec::new(), Vec::new());
        let mut encoder = Encoder::of(kind, encoding);
        let written = encoder.row(kind, &message, &mut by_message);
        let held = match kind {
            RowKind::Datagram => decode_datagram_record(&message)
                .map(|datagram| encoder.datagram(&datagram, &mut by_value)),
            RowKind::Flow => {
                decode_flow_record(&message).map(|flow| encoder.flow(&flow, &mut by_value))
            }
            RowKind::Counters => decode_counter_record(&message)
                .map(|counters| encoder.counters(&counters, &mut by_value)),
            _ => decode_protobuf(&message).map(|record| encoder.encode(&record, &mut by_value)),
        };
        refused += u64::from(held.is_err());
        assert_eq!(written, held.map(|()| Written::Yes), "{message:02x?}");
        assert_eq!(by_message, by_value, "{encoding} {message:02x?}");
    }
    assert!(refused > mutations() / 10, "{refused}");
}

#[test]
fn a_row_alone_has_nothing_around_it() {
    let mut random = Random(5);
    for (kind, message) in messages(&mut random) {
        let of = |encoding, frame| {
            let mut out = Vec::new();
            let mut encoder = Encoder::new(encoding, &FieldSet::ALL).framed(frame);
            encoder.row(kind, &message, &mut out).unwrap();
            out
        };
        assert_eq!(of(Encoding::Protobuf, Frame::Alone), message);
        let delimited = of(Encoding::Protobuf, Frame::OneKind);
        let one: Vec<_> = Delimited::new(&delimited).collect();
        assert_eq!(one, [Ok(message.as_slice())]);
        for encoding in [Encoding::Jsonl, Encoding::Protojson] {
            let alone = of(encoding, Frame::Alone);
            assert_eq!(of(encoding, Frame::OneKind), [&alone[..], b"\n"].concat());
            assert!(alone.starts_with(b"{") && alone.ends_with(b"}"));
        }
        assert_eq!(of(Encoding::Json, Frame::Alone), of(Encoding::Jsonl, Frame::Alone));
    }
    // Among other rows, totals are inside a record.
    let (kind, message) = &messages(&mut random)[1];
    let mut out = Vec::new();
    Encoder::new(Encoding::Protobuf, &FieldSet::ALL).row(*kind, message, &mut out).unwrap();
    let record = Delimited::new(&out).next().unwrap().unwrap();
    assert!(
        matches!(decode_record(record), Ok(Record::Totals(totals)) if totals == realistic_totals())
    );
}

#[test]
fn a_message_that_is_none_is_refused_and_nothing_is_written() {
    let mut out = Vec::new();
    let mut jsonl = Encoder::new(Encoding::Jsonl, &FieldSet::ALL);
    for kind in RowKind::ALL {
        assert_eq!(jsonl.row(kind, b"\x50", &mut out), Err(DecodeError::Truncated));
        let mut block = Native::new(kind, &FieldSet::ALL);
        assert_eq!(block.push(b"\x50"), Err(DecodeError::Truncated));
        assert_eq!(block.bytes(), 0);
    }
    assert!(out.is_empty());
}

fn message(write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) -> Vec<u8> {
    let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL).framed(Frame::Alone);
    let mut out = Vec::new();
    write(&mut encoder, &mut out);
    out
}

/// A column as in a block, after its name and type.
fn column(name: &str, kind: &str, values: &[&[u8]]) -> Vec<u8> {
    let texts = [name, kind].map(|text| [&[text.len() as u8], text.as_bytes()].concat());
    [texts.concat(), values.concat()].concat()
}

/// What a store makes of blocks is tested in `clickhouse.rs`.
#[test]
fn a_block_has_the_columns_of_its_values_with_their_gaps() {
    let full = DatagramRecord {
        record_kind: Some(RecordKind(200)),
        sequence: Some(u64::MAX),
        tags: Some(Tags::new(&[("a", "b"), ("c", "")])),
        source_address: Some([192, 0, 2, 1].into()),
        source_port: Some(514),
        message: Some(b"m"),
        ..DatagramRecord::default()
    };
    let mut block = Native::new(RowKind::Datagram, &FieldSet::ALL);
    let empty = message(|encoder, out| encoder.datagram(&DatagramRecord::default(), out));
    let full = message(|encoder, out| encoder.datagram(&full, out));
    for row in [&empty, &full, &empty] {
        block.push(row).unwrap();
        // A refused row leaves nothing behind, even though it has values before its error.
        let broken = [full.as_slice(), b"\x50"].concat();
        assert_eq!(block.push(&broken), Err(DecodeError::Truncated));
    }

    let max = u64::MAX.to_le_bytes();
    let two = 2_u64.to_le_bytes();
    let address = b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01";
    let expected = [
        b"\x06\x03".to_vec(),
        column("record_kind", "UInt8", &[b"\0\xc8\0"]),
        column("sequence", "Nullable(UInt64)", &[b"\x01\0\x01", &[0; 8], &max, &[0; 8]]),
        column("tags", "Map(String, String)", &[&[0; 8], &two, &two, b"\x01a\x01c", b"\x01b\0"]),
        column("source_address", "IPv6", &[&[0; 16], address, &[0; 16]]),
        column("source_port", "Nullable(UInt16)", &[b"\x01\0\x01", b"\0\0\x02\x02\0\0"]),
        column("message", "Nullable(String)", &[b"\x01\0\x01", b"\0\x01m\0"]),
    ];
    assert_eq!(block.finish(), expected.concat());

    // The next block has nothing from this one, and always at least one column: otherwise its rows
    // would be lost.
    block.push(&empty).unwrap();
    let first = column("record_kind", "UInt8", &[b"\0"]);
    assert_eq!(block.finish(), [b"\x01\x01".to_vec(), first].concat());
}

#[test]
fn a_uuid_is_two_halves_and_what_is_none_is_null() {
    let column_of = |boot_id| {
        let totals = PollTotals { boot_id: Some(boot_id), ..PollTotals::default() };
        let mut block = Native::new(RowKind::Totals, &FieldSet::ALL);
        block.push(&message(|encoder, out| encoder.totals_row(&totals, out))).unwrap();
        block.finish()
    };
    let ends = |boot_id, null: &[u8], value: &[u8]| {
        let (block, column) =
            (column_of(boot_id), column("boot_id", "Nullable(UUID)", &[null, value]));
        assert!(block.ends_with(&column), "{boot_id}: {block:02x?}");
    };
    let uuid = b"\x27\x4d\x7a\x2d\xe0\xf1\xb1\xc5\x11\x5a\x3c\x6f\x6d\x0f\x1b\x9c";
    ends("c5b1f1e0-2d7a-4d27-9c1b-0f6d6f3c5a11", b"\0", uuid);
    for none in [
        "",
        "c5b1f1e0-2d7a-4d27-9c1b-0f6d6f3c5a1",
        "c5b1f1e0+2d7a-4d27-9c1b-0f6d6f3c5a11",
        "c5b1f1e0-2d7a-4d27-9c1b-0f6d6f3c5a1g",
    ] {
        ends(none, b"\x01", &[0; 16]);
    }
}
