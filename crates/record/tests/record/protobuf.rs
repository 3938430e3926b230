//! Encoding to protobuf and decoding gives the same record, and no input makes the decoder panic.

use crate::flows::OTHERS;
use crate::support::{any_message, any_record, mutate, mutations, realistic};
use record::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testkit::Random;

fn encode(record: &SocketRecord<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(Encoding::Protobuf, &FieldSet::ALL).encode(record, &mut out);
    let message = Delimited::new(&out).next().unwrap().unwrap().to_vec();
    assert!(out.ends_with(&message) && Delimited::new(&out).count() == 1);
    message
}

fn encode_totals(totals: &PollTotals<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(Encoding::Protobuf, &FieldSet::ALL).totals(totals, &mut out);
    Delimited::new(&out).next().unwrap().unwrap().to_vec()
}

#[test]
fn a_record_survives_the_way_there_and_back() {
    let mut random = Random(1);
    for turn in 0..20_000 {
        let message = any_message(&mut random, SocketRecord::FIELDS);
        let record = any_record(&message);
        assert_eq!(decode_protobuf(&encode(&record)), Ok(record), "record {turn}");
        if !OTHERS.contains(&record.record_kind) {
            assert_eq!(decode_record(&encode(&record)), Ok(Record::Socket(record)));
        }
    }
    assert_eq!(encode(&SocketRecord::default()), b"");
}

#[test]
fn every_field_alone_survives_at_its_edges() {
    for field in SocketRecord::FIELDS {
        for value in crate::support::edges(field) {
            let record = decode_protobuf(&value).unwrap();
            if is_none(field, &value) {
                // Decoded as "no value".
                assert_eq!(record, SocketRecord::default(), "{}", field.name);
                continue;
            }
            assert_ne!(record, SocketRecord::default(), "{} {value:?}", field.name);
            assert_eq!(encode(&record), value, "{}", field.name);
        }
    }
}

/// Whether a message of this field alone has the number for "no value".
fn is_none(field: &Field, message: &[u8]) -> bool {
    field.none.is_some_and(|none| message == crate::support::number(field, none))
}

#[test]
fn totals_survive_the_way_there_and_back() {
    let mut random = Random(2);
    for _ in 0..5_000 {
        let message = any_message(&mut random, PollTotals::FIELDS);
        let totals = decode_totals(&message).unwrap();
        assert_eq!(decode_record(&encode_totals(&totals)), Ok(Record::Totals(totals)));
    }
}

#[test]
fn the_family_tells_which_addresses_are_ipv4() {
    let v4 = IpAddr::from([192, 0, 2, 1]);
    let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
    let with = |family, address| SocketRecord {
        family,
        src_address: Some(address),
        dst_address: Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        ..SocketRecord::default()
    };
    let back = |record| decode_protobuf(&encode(&record)).unwrap().src_address;
    assert_eq!(back(with(Some(AddressFamily::INET), v4)), Some(v4));
    assert_eq!(back(with(Some(AddressFamily::INET6), mapped)), Some(mapped));
    assert_eq!(back(with(None, v4)), Some(mapped));
}

#[test]
fn only_chosen_fields_are_written() {
    let mut random = Random(3);
    let record = realistic(&mut random);
    let fields: FieldSet = "endpoints,rtt_us,host".parse().unwrap();
    let mut out = Vec::new();
    Encoder::new(Encoding::Protobuf, &fields).encode(&record, &mut out);
    let expected = SocketRecord {
        family: record.family,
        src_address: record.src_address,
        src_port: record.src_port,
        dst_address: record.dst_address,
        dst_port: record.dst_port,
        interface_index: record.interface_index,
        role: record.role,
        rtt_us: record.rtt_us,
        host: record.host,
        ..SocketRecord::default()
    };
    assert_eq!(decode_protobuf(Delimited::new(&out).next().unwrap().unwrap()), Ok(expected));
}

#[test]
fn unknown_fields_are_skipped() {
    // Number 1000 as varint, fixed64, bytes and fixed32, then rtt_us = 7.
    let message = b"\xc0\x3e\xff\x01\xc1\x3e12345678\xc2\x3e\x03abc\xc5\x3e1234\x50\x07";
    let expected = SocketRecord { rtt_us: Some(7), ..SocketRecord::default() };
    assert_eq!(decode_protobuf(message), Ok(expected));
}

#[test]
fn what_contradicts_the_schema_is_an_error() {
    let check = |bytes: &[u8], error| assert_eq!(decode_protobuf(bytes), Err(error), "{bytes:?}");
    check(b"\x50", DecodeError::Truncated); // rtt_us, without a value
    check(b"\x50\x80", DecodeError::Truncated); // its value unfinished
    check(b"\x50\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", DecodeError::Varint); // bit 64
    check(b"\x50\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", DecodeError::Varint); // 11 bytes
    check(b"\x50\x80\x80\x80\x80\x10", DecodeError::OutOfRange { number: 10 }); // 2^32
    check(b"\x48\x80\x02", DecodeError::OutOfRange { number: 9 }); // state 256
    check(b"\x52\x01a", DecodeError::WrongType { number: 10 }); // rtt_us as bytes
    check(b"\x10\x01", DecodeError::WrongType { number: 2 }); // time_unix_ns as varint
    check(b"\x2a\x041234", DecodeError::AddressLength { number: 5 }); // 4 bytes of address
    check(b"\x92\x01\x01\xff", DecodeError::NotUtf8 { number: 18 }); // host
    check(b"\xa2\x01\x03\x0a\x01\xff", DecodeError::NotUtf8 { number: 20 }); // a tag's name
    check(b"\xa2\x01\x02\x0a\x05", DecodeError::Truncated); // a tag's name, cut
    check(b"\x00\x00", DecodeError::Key); // number 0
    check(b"\x53", DecodeError::Key); // a group
    check(b"\x92\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", DecodeError::Truncated); // longer than all
}

#[test]
fn every_truncation_is_decoded_or_refused() {
    let mut random = Random(4);
    let message = encode(&realistic(&mut random));
    let mut refused = 0;
    for len in 0..message.len() {
        refused += usize::from(decode_protobuf(&message[..len]).is_err());
    }
    assert!(refused > message.len() / 2, "{refused} of {}", message.len());
    let totals = encode_totals(&crate::support::realistic_totals());
    for len in 0..totals.len() {
        let _ = decode_record(&totals[..len]);
    }
}

/// `WEIR_MUTATIONS` sets how many.
#[test]
fn changed_bytes_never_panic_and_what_decodes_is_stable() {
    let mut random = Random(5);
    let (mut message, mut decoded) = (Vec::new(), 0);
    for turn in 0..mutations() {
        if turn % 50 == 0 {
            message = any_message(&mut random, SocketRecord::FIELDS);
        }
        let mut changed = message.clone();
        mutate(&mut changed, &mut random);
        if let Ok(record) = decode_protobuf(&changed) {
            assert_eq!(decode_protobuf(&encode(&record)), Ok(record));
            decoded += 1;
        }
        let _ = (decode_record(&changed), decode_totals(&changed));
    }
    assert!(decoded > mutations() / 10, "{decoded}");
}

#[test]
fn tags_apart_from_each_other_are_one_map() {
    // {"a": "b"}, rtt_us = 7, {"c": ""}, the second without its value field.
    let message = b"\xa2\x01\x06\x0a\x01a\x12\x01b\x50\x07\xa2\x01\x03\x0a\x01c";
    let record = decode_protobuf(message).unwrap();
    assert_eq!(record.rtt_us, Some(7));
    assert_eq!(record.tags, Some(Tags::new(&[("a", "b"), ("c", "")])));
}
