//! Messages of a kernel with bytes changed, removed, duplicated and joined: each has exactly one outcome, and what decodes
//! agrees with the bytes. `WEIR_MUTATIONS` sets how many.
use std::collections::BTreeMap;

use crate::support::files::{self, Order};
use crate::support::{BOTH, DESTROY, PROTOCOLS, SS, body, sockets};
use testkit::Random;
use wire::capture::Meaning;
use wire::inet_diag::{Family, SOCKET_HEADER_BYTES, decode, encode, encode_header, redact};
use wire::netlink::Messages;
use wire::{DecodeError, capture};

pub(crate) fn mutations() -> u64 {
    match std::env::var("WEIR_MUTATIONS") {
        Ok(count) => count.parse().unwrap(),
        Err(_) => 200_000,
    }
}

/// Real messages, and one with every attribute that the capturing machine did not send.
fn seeds() -> Vec<Vec<u8>> {
    let words = [1; 52];
    let mut seeds: Vec<Vec<u8>> = [BOTH, SS, DESTROY]
        .into_iter()
        .flat_map(sockets)
        .map(|message| message.body.to_vec())
        .collect();
    let tls =
        [&[7, 0, 1, 0, b't', b'l', b's', 0][..], &[12, 0, 2, 0, 6, 0, 1, 0, 4, 3, 0, 0]].concat();
    seeds.push(body(&[(3, &words[..16]), (1, &words[..16]), (13, &words), (20, b"bpf")]));
    seeds.push(body(&[(9, &words[..16]), (19, &tls), (10, &[6]), (23, b"new")]));
    seeds.push(body(&[(16, &words), (14, &[]), (18, &words), (2, &[9; 300])]));
    seeds
}

/// Makes one to four changes: a bit, a byte, a length field, a cut, a duplicated piece, or the tail of another message.
pub(crate) fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.index(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.index(bytes.len());
        match random.index(7) {
            0 => bytes[at] ^= 1 << random.index(8),
            1 => bytes[at] = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff][random.index(7)],
            2 => bytes[at] = random.next() as u8,
            3 => bytes.truncate(at),
            4 => {
                let end = (at + 1 + random.index(64)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                let at = at & !3;
                let length = (random.next() as u16) >> random.index(16);
                let end = (at + 2).min(bytes.len());
                bytes[at..end].copy_from_slice(&length.to_ne_bytes()[..end - at]);
            }
            _ => {
                bytes.truncate(at & !3);
                bytes.extend_from_slice(&other[random.index(other.len()) & !3..]);
            }
        }
    }
}

/// The fixed part, without the words that IPv4 does not use.
fn used(bytes: &[u8]) -> [u8; SOCKET_HEADER_BYTES] {
    let mut head = *bytes.first_chunk::<SOCKET_HEADER_BYTES>().unwrap();
    if head[0] == Family::Inet.number() {
        head[12..24].fill(0);
        head[28..40].fill(0);
    }
    head
}

/// Decodes, and returns the name of the outcome.
fn outcome(bytes: &[u8], written: &mut Vec<u8>) -> &'static str {
    let message = match decode(bytes) {
        Ok(message) => message,
        Err(error) => {
            assert!(DecodeError::CLASSES.contains(&error.class()));
            return error.class();
        }
    };
    assert_eq!(encode_header(&message), used(bytes));
    written.clear();
    encode(&message, 20, 2, 9, written);
    let whole = Messages::new(written).next().unwrap().unwrap();
    assert_eq!(decode(whole.body), Ok(message));
    assert!(message.unknown_attributes().all(|(kind, _)| kind != 18));
    "decoded"
}

#[test]
fn every_mutated_message_has_one_outcome() {
    let seeds = seeds();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut bytes, mut written) = (Vec::new(), Vec::new());
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    for _ in 0..mutations() {
        bytes.clone_from(&seeds[random.index(seeds.len())]);
        let other = &seeds[random.index(seeds.len())];
        mutate(&mut bytes, other, &mut random);
        *outcomes.entry(outcome(&bytes, &mut written)).or_default() += 1;
    }
    println!("{outcomes:?}");
    assert_eq!(outcomes.values().sum::<u64>(), mutations());
    for class in
        ["decoded", "truncated", "bad_length", "short_attribute", "bad_text", "unknown_family"]
    {
        assert!(outcomes.contains_key(class), "no mutation was {class}");
    }
}

fn class_of(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Tcp | Meaning::Close => "tcp",
        Meaning::Other(_) => "other",
        Meaning::Untold => "untold",
        Meaning::Failed(_) => "failed",
        _ => "else",
    }
}

/// Complete files, through the readers of all formats and through redaction.
#[test]
fn every_mutated_capture_ends() {
    let mut pcap = Vec::new();
    let writer = capture::Writer::begin(capture::Format::Pcap, &mut pcap);
    for message in sockets(BOTH) {
        writer.message(1, message.raw, &mut pcap);
    }
    let cooked = files::cooked(4, BOTH);
    let [section, interface, packet] = [
        files::section(Order::Little),
        files::interface(Order::Little, 253, &[9, 0, 1, 0, 9, 0, 0, 0]),
        files::enhanced(Order::Little, 0, 1, &cooked),
    ];
    let pcapng = [section, interface, packet.clone(), packet].concat();
    let seeds = [BOTH.to_vec(), SS.to_vec(), DESTROY.to_vec(), pcap, PROTOCOLS.to_vec(), pcapng];
    let mut random = Random(7);
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    for _ in 0..mutations() / 100 {
        let mut file = seeds[random.index(seeds.len())].clone();
        mutate(&mut file, &seeds[random.index(seeds.len())], &mut random);
        redact(&mut file);
        let Ok(reader) = capture::read(&file) else { continue };
        let most = file.len() / 16 + 1;
        let mut replies = reader.replies();
        for (index, captured) in reader.enumerate() {
            assert!(index < most, "more messages than bytes for them");
            let meaning = captured.and_then(|captured| replies.judge(&captured.message));
            let class = meaning.map_or_else(|error| error.class(), class_of);
            *outcomes.entry(class).or_default() += 1;
        }
        assert!(replies.unanswered().count() <= most);
    }
    println!("{outcomes:?}");
    for class in ["bad_length", "truncated", "unknown_kind", "tcp", "other", "untold", "failed"] {
        assert!(outcomes.contains_key(class), "no mutation was {class}");
    }
}
