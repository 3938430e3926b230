//! Truncations, wrong lengths, and changed bytes: nothing panics, and each broken part is one fault of one
//! class.

use std::collections::BTreeMap;

use testkit::Random;
use wire::sflow::{DataFormat, Datagram, Fault, Malformed, Place};

use super::bytes::{datagram, flow, tlv, words};
use super::made::everything;
use super::{Survey, survey};
use crate::mutations::{mutate, mutations};

#[test]
fn every_cut_is_one_fault() {
    let whole = everything(1);
    assert_eq!(survey(&whole).malformed, []);
    for len in 0..whole.len() {
        let found = survey(&whole[..len]);
        let [malformed] = found.malformed[..] else {
            panic!("cut at {len}: {:?}", found.malformed)
        };
        match malformed.fault {
            Fault::Truncated { need, have } => assert!(have < need),
            Fault::Length { length, have } => assert!(have < length),
            other => panic!("cut at {len}: {other}"),
        }
        let is_in_header = len < 28;
        assert_eq!(malformed.place == Place::Datagram, is_in_header, "cut at {len}");
    }
}

/// The end offset of each sample of a datagram.
fn ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = vec![28];
    while let Some(head) = bytes.get(ends[ends.len() - 1]..).and_then(|rest| rest.first_chunk()) {
        let [_, _, _, _, length @ ..]: &[u8; 8] = head;
        ends.push(ends[ends.len() - 1] + 8 + u32::from_be_bytes(*length) as usize);
    }
    ends.split_off(1)
}

/// Replaces every word of a datagram with wrong lengths, counts and types: the samples before it are
/// unaffected.
#[test]
fn every_word_may_lie() {
    let whole = everything(2);
    let ends = ends(&whole);
    assert_eq!((ends.len(), *ends.last().unwrap()), (8, whole.len()));
    for at in (28..whole.len()).step_by(4) {
        for lie in [0, 1, 3, 0x7fff_ffff, 0x8000_0000, u32::MAX - 3, u32::MAX] {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&u32::to_be_bytes(lie));
            let found = survey(&bytes);
            let before = ends.iter().filter(|end| **end <= at).count();
            assert!(found.samples >= before, "{lie:#x} at {at}");
            let most = bytes.len() / 8 + 2;
            assert!(found.samples + found.records + found.malformed.len() <= most);
        }
    }
}

#[test]
fn a_header_is_refused_for_one_reason() {
    let check = |bytes: &[u8], fault| {
        let place = Place::Datagram;
        assert_eq!(Datagram::parse(bytes), Err(Malformed { fault, place }));
    };
    check(&[], Fault::Truncated { need: 4, have: 0 });
    check(&words(&[4]), Fault::Version(4));
    check(&words(&[5, 3]), Fault::AddressType(3));
    check(&words(&[5, 2, 1, 2, 3]), Fault::Truncated { need: 16, have: 12 });
    check(&words(&[5, 1, 1, 2, 3]), Fault::Truncated { need: 4, have: 0 });
    assert_eq!(survey(&words(&[5, 0, 7, 1, 1, 0])), Survey::default());
}

#[test]
fn counts_of_samples_and_records_may_lie() {
    // More than there are.
    let mut bytes = datagram(&[&flow(&[])]);
    bytes[24..28].copy_from_slice(&u32::to_be_bytes(u32::MAX));
    let found = survey(&bytes);
    let place = Place::Sample { index: 1, format: None };
    assert_eq!(found.malformed, [Fault::Truncated { need: 8, have: 0 }.at(place)]);
    assert_eq!(found.samples, 1);

    let body = words(&[9, 3, 1000, 9000, 2, 3, 4, u32::MAX]);
    let found = survey(&datagram(&[&tlv(1, &body), &flow(&[])]));
    let place = Place::Record { sample: 0, index: 0, format: None };
    assert_eq!(found.malformed, [Fault::Truncated { need: 8, have: 0 }.at(place)]);
    assert_eq!(found.samples, 2);

    // Counts of items that are not there.
    let found = survey(&datagram(&[&flow(&[
        &tlv(1012, &words(&[u32::MAX, 1])),
        &tlv(1036, &words(&[1])),
    ])]));
    let place = Place::Record { sample: 0, index: 0, format: Some(DataFormat::new(0, 1012)) };
    assert_eq!(found.malformed, [Fault::Count { count: u32::MAX, have: 4 }.at(place)]);
    assert_eq!(found.records, 1);
}

#[test]
fn a_sample_without_its_fields_leaves_those_beside_it() {
    for format in 1..=5 {
        for len in 0..3 {
            let short = tlv(format, &words(&[1; 3])[..len * 4]);
            let found = survey(&datagram(&[&flow(&[]), &short, &flow(&[])]));
            let [malformed] = found.malformed[..] else { panic!("{:?}", found.malformed) };
            let format = Some(DataFormat::new(0, format));
            assert_eq!(malformed.place, Place::Sample { index: 1, format });
            assert_eq!((malformed.class(), found.samples), ("short", 2));
        }
    }
}

#[test]
fn faults_print_what_and_where() {
    let check = |fault: Fault, place, text: &str| assert_eq!(fault.at(place).to_string(), text);
    check(Fault::Version(4), Place::Datagram, "datagram: version 4 instead of 5");
    check(
        Fault::Length { length: 99, have: 8 },
        Place::Record { sample: 2, index: 1, format: Some(DataFormat::new(0, 1)) },
        "sample 2, record 1 (0:1): length of 99 bytes, 8 are left",
    );
}

#[test]
fn every_mutated_datagram_has_outcomes_by_class() {
    let seeds: Vec<_> = (0..8).map(everything).collect();
    let mut random = Random(0x5f10);
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    for _ in 0..mutations() / 20 {
        let mut bytes = seeds[random.index(seeds.len())].clone();
        mutate(&mut bytes, &seeds[random.index(seeds.len())], &mut random);
        let found = survey(&bytes);
        if found.malformed.is_empty() {
            *outcomes.entry("whole").or_default() += 1;
        }
        for malformed in found.malformed {
            assert!(Fault::CLASSES.contains(&malformed.class()));
            *outcomes.entry(malformed.class()).or_default() += 1;
        }
    }
    println!("{outcomes:?}");
    for class in ["whole", "truncated", "version", "address_type", "length", "short", "count"] {
        assert!(outcomes.contains_key(class), "no mutation was {class}");
    }
}
