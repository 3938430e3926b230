//! Bytes of every structure, generated from the types in the tables.

use testkit::Random;
use wire::sflow::{CounterRecord, FlowRecord, Kind};

use super::bytes::{datagram, tlv, words};

/// Random XDR bytes for a field of this type.
fn field(kind: &str, random: &mut Random) -> Vec<u8> {
    let mut word = || (random.next() as u32).to_be_bytes();
    let mut some = |count: usize| (0..count).flat_map(|_| word()).collect::<Vec<u8>>();
    match kind {
        "u32" | "i32" | "counter32" | "IPv4" | "4 bytes" => some(1),
        // A NaN would not equal itself.
        "f32" => 1.5_f32.to_be_bytes().to_vec(),
        "u64" | "counter64" => some(2),
        "IPv6" | "16 bytes" => some(4),
        "MAC" => [&some(2)[..6], &[0, 0]].concat(),
        "address" => match random.below(3) {
            0 => words(&[0]),
            1 => words(&[1, 0x0102_0304]),
            _ => words(&[2, 1, 2, 3, 4]),
        },
        "text" | "bytes" => {
            let len = random.index(9);
            let mut bytes = words(&[len as u32]);
            bytes.extend((0..len).map(|_| random.next() as u8));
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        }
        "list of u32" | "list of i32" => list(random, 1),
        "list of lanes" => list(random, 10),
        "AS path" => words(&[2, 2, 2, 65_001, 65_002, 1, 3, 7, 8, 9]),
        "list of adapters" => words(&[2, 1, 1, 0x0a0b_0c0d, 0x0e0f_0000, 2, 0]),
        other => panic!("no bytes for {other}"),
    }
}

fn list(random: &mut Random, words_each: usize) -> Vec<u8> {
    let items = random.index(4);
    let mut list = vec![items as u32];
    list.extend((0..items * words_each).map(|_| random.next() as u32));
    words(&list)
}

/// Bytes of a structure, including every field added by later editions.
pub(super) fn body(kind: &Kind, random: &mut Random) -> Vec<u8> {
    kind.fields.iter().flat_map(|(_, kind)| field(kind, random)).collect()
}

/// Records of all structures in a table.
pub(super) fn records(kinds: &[Kind], random: &mut Random) -> Vec<Vec<u8>> {
    kinds.iter().map(|kind| tlv(kind.format.0, &body(kind, random))).collect()
}

/// A datagram with every form of sample and every structure.
pub(crate) fn everything(seed: u64) -> Vec<u8> {
    let random = &mut Random(seed);
    let flows = records(FlowRecord::KINDS, random);
    let counters = records(CounterRecord::KINDS, random);
    let with = |head: &[u32], records: &[Vec<u8>]| {
        let mut body = words(head);
        body.extend(words(&[records.len() as u32]));
        body.extend(records.concat());
        body
    };
    let (left, right) = flows.split_at(flows.len() / 2);
    datagram(&[
        &tlv(1, &with(&[9, 3, 1000, 9000, 2, 3, 0x8000_0004], left)),
        &tlv(3, &with(&[9, 0, 1 << 25, 1000, 9000, 2, 0, 1 << 25, 1, 258], right)),
        &tlv(2, &with(&[9, 3], &counters)),
        &tlv(4, &with(&[9, 2, 3], &counters[..3])),
        &tlv(5, &with(&[9, 0, 3, 2, 3, 4, 303], &flows[..4])),
        &tlv(4300 << 12 | 1002, &metrics()),
        &tlv(4300 << 12 | 1003, &rt_flow()),
        &tlv(77 << 12 | 7, &words(&[1, 2, 3])),
    ])
}

/// A metric of each type.
pub(super) fn metrics() -> Vec<u8> {
    let mut bytes = words(&[3]);
    bytes.extend(b"net\0");
    bytes.extend(words(&[7]));
    for (kind, value) in
        [&[3, 0x6162_6300][..], &[7], &[0, 8], &[9], &[0, 10], &[0x3fc0_0000], &[0x3ff8_0000, 0]]
            .into_iter()
            .enumerate()
    {
        bytes.extend(words(&[1, 0x6100_0000 + ((kind as u32) << 24), kind as u32]));
        bytes.extend(words(value));
    }
    bytes
}

/// A key or value of each type.
pub(super) fn rt_flow() -> Vec<u8> {
    let mut bytes = words(&[0, 100, 5000, 8]);
    let values: [&[u32]; 8] = [
        &[2, 0x6162_0000],
        &[0x0102_0304, 0x0506_0000],
        &[0x7f00_0001],
        &[0, 0, 0, 1],
        &[7],
        &[0, 8],
        &[0x3fc0_0000],
        &[0x3ff8_0000, 0],
    ];
    for (kind, value) in values.into_iter().enumerate() {
        bytes.extend(words(&[1, 0x6100_0000, kind as u32]));
        bytes.extend(words(value));
    }
    bytes
}
