//! Rows read value by value equal the complete record.

use crate::support::{any_message, edges, mutate, mutations};
use record::{Cell, CellReader, Encoder, Encoding, FieldSet, Kind, SocketRecord, decode_protobuf};
use testkit::Random;

/// The columns of a message that hold numbers; `None` if the message is refused.
fn numbers(reader: &CellReader, message: &[u8]) -> Option<Vec<(usize, u64)>> {
    let mut numbers: Vec<(usize, u64)> = Vec::new();
    let read = reader.read(message, |column, cell| {
        if let Cell::Number(number) = cell {
            numbers.retain(|(other, _)| *other != column);
            numbers.push((column, number));
        }
    });
    numbers.sort_unstable();
    read.ok().map(|()| numbers)
}

#[test]
fn a_message_is_refused_exactly_where_the_decoder_refuses_it() {
    let fields: Vec<_> = SocketRecord::FIELDS.iter().collect();
    let (reader, mut random) = (CellReader::new(&fields), Random(23));
    let mut refused = 0;
    for _ in 0..mutations() {
        let mut message = any_message(&mut random, SocketRecord::FIELDS);
        mutate(&mut message, &mut random);
        let read = numbers(&reader, &message).is_some();
        assert_eq!(read, decode_protobuf(&message).is_ok(), "{message:02x?}");
        refused += u64::from(!read);
    }
    assert!(refused > mutations() / 10, "{refused}");
}

#[test]
fn numbers_are_those_of_the_record() {
    let fields: Vec<_> = SocketRecord::FIELDS.iter().collect();
    let reader = CellReader::new(&fields);
    for message in SocketRecord::FIELDS.iter().flat_map(edges) {
        let record = decode_protobuf(&message).unwrap();
        let mut line = Vec::new();
        Encoder::new(Encoding::Jsonl, &FieldSet::ALL).encode(&record, &mut line);
        let line = String::from_utf8(line).unwrap();

        let found = numbers(&reader, &message).unwrap();
        for (column, number) in &found {
            let (Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 | Kind::Fixed64) =
                fields[*column].kind
            else {
                continue;
            };
            assert_eq!(line, format!("{{\"{}\":{number}}}\n", fields[*column].name));
        }
        // Neither of them has a number for "no value".
        assert!(line != "{}\n" || found.is_empty(), "{found:?}");
    }
}
