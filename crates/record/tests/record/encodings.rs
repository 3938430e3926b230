//! What each encoding looks like, to the byte.

use record::*;

const TAGS: Tags<'_> = Tags::new(&[("region", "eu"), ("\"", "\\\n")]);

fn record() -> SocketRecord<'static> {
    SocketRecord {
        record_kind: Some(RecordKind::CLOSE),
        time_unix_ns: Some(1),
        family: Some(AddressFamily::INET),
        src_address: Some([10, 0, 0, 1].into()),
        state: Some(SocketState(99)),
        v6_only: Some(false),
        rtt_us: Some(0),
        min_rtt_us: Some(u32::MAX),
        max_pacing_rate_bytes_per_sec: Some(u64::MAX),
        bytes_acked: Some(u64::MAX),
        congestion_algorithm: Some(""),
        process_name: Some("a,\"b\"\t\u{1b}[0m\u{1}\n"),
        tcp_info_tail: Some(&[0, 0xff, 0x22]),
        tags: Some(TAGS),
        ..SocketRecord::default()
    }
}

fn check(encoding: Encoding, fields: &str, records: &[SocketRecord<'_>], expected: &str) {
    let fields = fields.parse().unwrap();
    let mut encoder = Encoder::new(encoding, &fields);
    let mut out = b"before".to_vec();
    encoder.begin(&mut out);
    records.iter().for_each(|record| encoder.encode(record, &mut out));
    encoder.end(&mut out);
    let text = out.strip_prefix(b"before").unwrap();
    assert_eq!(
        text.escape_ascii().to_string(),
        expected.as_bytes().escape_ascii().to_string(),
        "{encoding}"
    );
}

#[test]
fn json_lines() {
    let expected = r#"{"record_kind":"close","time_unix_ns":1,"tags":{"region":"eu","\"":"\\\n"},"family":"inet","src_address":"10.0.0.1","state":99,"v6_only":false,"rtt_us":0,"bytes_acked":18446744073709551615,"congestion_algorithm":"","process_name":"a,\"b\"\t\u001b[0m\u0001\n","tcp_info_tail":"AP8i"}"#;
    check(Encoding::Jsonl, "all", &[record()], &format!("{expected}\n"));
    check(Encoding::Jsonl, "all", &[SocketRecord::default()], "{}\n");
    check(Encoding::Jsonl, "-all", &[record()], "{}\n");
    check(Encoding::Jsonl, "rtt_us,state", &[record()], "{\"state\":99,\"rtt_us\":0}\n");
}

#[test]
fn a_json_array() {
    let record = record();
    check(Encoding::Json, "rtt_us", &[], "[]\n");
    check(Encoding::Json, "rtt_us", &[record], "[\n{\"rtt_us\":0}\n]\n");
    check(Encoding::Json, "rtt_us", &[record, record], "[\n{\"rtt_us\":0},\n{\"rtt_us\":0}\n]\n");
}

#[test]
fn protobuf_json() {
    let expected = r#"{"recordKind":"close","timeUnixNs":"1","tags":{"region":"eu","\"":"\\\n"},"family":"inet","srcAddress":"AAAAAAAAAAAAAP//CgAAAQ==","state":99,"v6Only":false,"rttUs":0,"bytesAcked":"18446744073709551615","congestionAlgorithm":"","processName":"a,\"b\"\t\u001b[0m\u0001\n","tcpInfoTail":"AP8i"}"#;
    check(Encoding::Protojson, "all", &[record()], &format!("{expected}\n"));
}

#[test]
fn protobuf_text() {
    let expected = r#"record { record_kind: close time_unix_ns: 1 tags { key: "region" value: "eu" } tags { key: "\"" value: "\\\n" } family: inet src_address: "\000\000\000\000\000\000\000\000\000\000\377\377\n\000\000\001" state: 99 v6_only: false rtt_us: 0 bytes_acked: 18446744073709551615 congestion_algorithm: "" process_name: "a,\"b\"\t\033[0m\001\n" tcp_info_tail: "\000\377\"" }"#;
    check(Encoding::Prototext, "all", &[record()], &format!("{expected}\n"));
    check(Encoding::Prototext, "-all", &[record()], "record { }\n");
}

#[test]
fn comma_separated_values() {
    let fields =
        "tags,src_address,state,v6_only,rtt_us,congestion_algorithm,process_name,tcp_info_tail";
    let names =
        "tags,src_address,state,v6_only,rtt_us,congestion_algorithm,process_name,tcp_info_tail\n";
    let row = "\"{\"\"region\"\":\"\"eu\"\",\"\"\\\"\"\"\":\"\"\\\\\\n\"\"}\",10.0.0.1,99,false,0,\"\",\"a,\"\"b\"\"\t\u{1b}[0m\u{1}\n\",AP8i\n";
    check(
        Encoding::Csv,
        fields,
        &[record(), SocketRecord::default()],
        &format!("{names}{row},,,,,,,\n"),
    );
}

#[test]
fn tab_separated_values() {
    let fields = "tags,rtt_us,congestion_algorithm,process_name";
    let names = "tags\trtt_us\tcongestion_algorithm\tprocess_name\n";
    let row =
        "{\"region\":\"eu\",\"\\\\\"\":\"\\\\\\\\\\\\n\"}\t0\t\ta,\"b\"\\t\u{1b}[0m\u{1}\\n\n";
    check(
        Encoding::Tsv,
        fields,
        &[record(), SocketRecord::default()],
        &format!("{names}{row}\t\t\t\n"),
    );
}

#[test]
fn columns_come_in_the_order_that_was_asked_for() {
    let order = FieldSet::in_order("process_name,state,tags,rtt_us,cookie".split(',')).unwrap();
    for (encoding, expected) in [
        (
            Encoding::Csv,
            "process_name,state,tags,rtt_us,cookie\n\"a,\"\"b\"\"\t\u{1b}[0m\u{1}\n\",99,\"{\"\"region\"\":\"\"eu\"\",\"\"\\\"\"\"\":\"\"\\\\\\n\"\"}\",0,\n",
        ),
        (
            Encoding::Tsv,
            "process_name\tstate\ttags\trtt_us\tcookie\na,\"b\"\\t\u{1b}[0m\u{1}\\n\t99\t{\"region\":\"eu\",\"\\\\\"\":\"\\\\\\\\\\\\n\"}\t0\t\n",
        ),
    ] {
        let mut encoder = Encoder::in_order(encoding, &order);
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.encode(&record(), &mut out);
        assert_eq!(str::from_utf8(&out).unwrap(), expected, "{encoding}");
    }
    let mut json = Vec::new();
    Encoder::in_order(Encoding::Jsonl, &order[3..4]).encode(&record(), &mut json);
    assert_eq!(json, b"{\"rtt_us\":0}\n");
}

#[test]
fn one_peer_has_one_text_whatever_socket_has_it() {
    let record = SocketRecord {
        src_address: Some("::ffff:192.0.2.1".parse().unwrap()),
        dst_address: Some("::1".parse().unwrap()),
        ..SocketRecord::default()
    };
    let fields = "src_address,dst_address";
    let row = "{\"src_address\":\"192.0.2.1\",\"dst_address\":\"::1\"}\n";
    check(Encoding::Jsonl, fields, &[record], row);
    check(Encoding::Csv, fields, &[record], "src_address,dst_address\n192.0.2.1,::1\n");
    check(Encoding::Tsv, fields, &[record], "src_address\tdst_address\n192.0.2.1\t::1\n");
    let mut packed = Vec::new();
    Encoder::new(Encoding::MessagePack, &"src_address".parse().unwrap())
        .encode(&record, &mut packed);
    assert_eq!(packed, b"\xde\0\x01\xabsrc_address\xd9\x09192.0.2.1");
}

#[test]
fn a_number_that_stands_for_nothing_is_in_no_encoding() {
    let with_none = SocketRecord::FIELDS.iter().filter(|field| field.none.is_some());
    let names: Vec<&str> = with_none.map(|field| field.name).collect();
    assert_eq!(names.len(), 6, "{names:?}");
    let none = SocketRecord {
        min_rtt_us: Some(u32::MAX),
        snd_ssthresh_segments: Some(0x7fff_ffff),
        pacing_rate_bytes_per_sec: Some(u64::MAX),
        max_pacing_rate_bytes_per_sec: Some(u64::MAX),
        vegas_rtt_us: Some(0x7fff_ffff),
        vegas_min_rtt_us: Some(0x7fff_ffff),
        ..SocketRecord::default()
    };
    for &encoding in Encoding::ALL {
        let of = |record| {
            let mut out = Vec::new();
            Encoder::new(encoding, &FieldSet::ALL).encode(record, &mut out);
            out
        };
        assert_eq!(of(&none), of(&SocketRecord::default()), "{encoding}");
    }
    // min_rtt_us as an older Weir wrote it, and one less.
    assert_eq!(decode_protobuf(b"\x70\xff\xff\xff\xff\x0f"), Ok(SocketRecord::default()));
    assert_eq!(
        decode_protobuf(b"\x70\xfe\xff\xff\xff\x0f").unwrap().min_rtt_us,
        Some(u32::MAX - 1)
    );
}

#[test]
fn message_pack() {
    let fields = "src_address,v6_only,rtt_us,tcp_info_tail".parse().unwrap();
    let mut out = Vec::new();
    Encoder::new(Encoding::MessagePack, &fields).encode(&record(), &mut out);
    // map 16 of 4; text of 11: text 8 of 8; text of 7: false; text of 6: 0; text of 13: bin 8 of 3.
    assert_eq!(out, b"\xde\0\x04\xabsrc_address\xd9\x0810.0.0.1\xa7v6_only\xc2\xa6rtt_us\0\xadtcp_info_tail\xc4\x03\0\xff\x22");
}

#[test]
fn totals_are_a_record_of_their_own_except_in_tables() {
    let totals = PollTotals { poll: Some(7), sockets_visited: Some(300), ..PollTotals::default() };
    let of = |encoding| {
        let mut out = Vec::new();
        Encoder::new(encoding, &"rtt_us".parse().unwrap()).totals(&totals, &mut out);
        out.escape_ascii().to_string()
    };
    assert_eq!(
        of(Encoding::Jsonl),
        r#"{\"record_kind\":\"totals\",\"totals\":{\"poll\":7,\"sockets_visited\":300}}\n"#
    );
    assert_eq!(
        of(Encoding::Prototext),
        r"record { record_kind: totals totals { poll: 7 sockets_visited: 300 } }\n"
    );
    assert_eq!(of(Encoding::Protobuf), r"\x0b\x08\x03\x82\x19\x06\x10\x07\xf0\x01\xac\x02");
    for encoding in Encoding::ALL {
        assert_eq!(of(*encoding).is_empty(), !encoding.has_totals(), "{encoding}");
    }
    // As a separate kind of row.
    let row = |encoding| {
        let mut out = Vec::new();
        Encoder::new(encoding, &FieldSet::ALL).totals_row(&totals, &mut out);
        out.escape_ascii().to_string()
    };
    assert_eq!(row(Encoding::Jsonl), r#"{\"poll\":7,\"sockets_visited\":300}\n"#);
    assert_eq!(row(Encoding::Protobuf), r"\x06\x10\x07\xf0\x01\xac\x02");
    assert_eq!(row(Encoding::MessagePack), r"\xde\x00\x02\xa4poll\x07\xafsockets_visited\xcd\x01,");
}

#[test]
fn names_are_read_as_they_are_written() {
    for encoding in Encoding::ALL {
        assert_eq!(encoding.to_string().parse(), Ok(*encoding));
    }
    let unknown = "yaml".parse::<Encoding>().unwrap_err().to_string();
    for encoding in Encoding::ALL {
        assert!(unknown.contains(encoding.name()), "{unknown}");
    }
}

#[test]
fn words_and_their_values_name_each_other() {
    for words in WORD_TABLES {
        for (value, word) in words.entries {
            assert_eq!(words.word(*value), Some(*word));
        }
        assert_eq!((words.entries[0].0, words.word(255)), (0, None), "{}", words.name);
    }
    assert_eq!(SocketState::from_word("listen"), Some(SocketState::LISTEN));
    assert_eq!(CloseReason::PEER_RESET.word(), Some("peer_reset"));
}

/// Encoders append to a vector with room, and allocate nothing: the vector is not moved, and its capacity stays.
#[test]
fn a_vector_with_room_is_not_moved() {
    for encoding in Encoding::ALL {
        let mut encoder = Encoder::new(*encoding, &FieldSet::ALL);
        let mut out = Vec::with_capacity(1 << 16);
        let (place, room) = (out.as_ptr(), out.capacity());
        for _ in 0..10 {
            encoder.encode(&record(), &mut out);
        }
        assert_eq!((out.as_ptr(), out.capacity()), (place, room), "{encoding}");
    }
}
