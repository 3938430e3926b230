//! Records in datagrams: whatever is lost on the way, the datagrams that arrive can be read, and missing records can
//! be counted.

use crate::support::{any_message, any_record, mutate, mutations, realistic, realistic_totals};
use record::*;
use testkit::Random;

const MAX_BYTES: usize = 1472;

#[test]
fn every_record_arrives_once_and_in_order() {
    let mut random = Random(1);
    let mut packer = DatagramPacker::new(7, MAX_BYTES, &FieldSet::ALL);
    let (mut sent, mut received, mut sequence) = (Vec::new(), 0, 0);
    let mut take = |datagram: Datagram<'_>, sent: &[SocketRecord<'_>]| {
        assert!(datagram.bytes.len() <= MAX_BYTES, "{}", datagram.bytes.len());
        let view = decode_datagram(datagram.bytes).unwrap();
        assert_eq!((view.stream_id, view.sequence, view.poll), (7, sequence, 4_711));
        assert_eq!((view.first_record, view.record_count), (received, datagram.records));
        for record in view.records() {
            assert_eq!(record, Ok(sent[received as usize]));
            received += 1;
        }
        sequence += 1;
        view.totals.map(|totals| totals.records_sent)
    };
    for poll in 1..=20_u64 {
        for _ in 0..poll {
            let record = realistic(&mut random);
            sent.push(record);
            if let Some(datagram) = packer.push(&record).unwrap() {
                assert_eq!(take(datagram, &sent), None);
            }
        }
        let end = packer.totals(&realistic_totals());
        if let Some(before) = end.before {
            assert_eq!(take(before, &sent), None);
        }
        assert_eq!(take(end.last, &sent), Some(Some(sent.len() as u64)));
        assert_eq!(packer.flush(), None);
        assert_eq!(packer.records(), sent.len() as u64);
    }
    assert_eq!(received, 210);
}

#[test]
fn totals_say_where_in_the_stream_they_are() {
    let mut packer = DatagramPacker::new(u64::MAX, MAX_BYTES, &FieldSet::ALL);
    let record = SocketRecord { rtt_us: Some(1), ..SocketRecord::default() };
    assert_eq!(packer.push(&record), Ok(None));
    assert_eq!(packer.flush().unwrap().records, 1);
    assert_eq!(packer.push(&record), Ok(None));
    let last = packer.totals(&realistic_totals()).last;
    let totals = decode_datagram(last.bytes).unwrap().totals.unwrap();
    let expected = PollTotals {
        stream_id: Some(u64::MAX),
        records_sent: Some(2),
        datagrams_sent: Some(1),
        records_too_big: Some(0),
        ..realistic_totals()
    };
    assert_eq!((last.records, totals), (1, expected));
}

#[test]
fn a_record_larger_than_a_datagram_is_refused_and_told_of() {
    let mut packer = DatagramPacker::new(1, 0, &FieldSet::ALL);
    let tail = [0xaa; DATAGRAM_MIN_BYTES];
    let with =
        |len: usize| SocketRecord { tcp_info_tail: Some(&tail[..len]), ..SocketRecord::default() };
    let fits = (0..DATAGRAM_MIN_BYTES).rev().find(|len| packer.push(&with(*len)).is_ok()).unwrap();
    assert!(fits > DATAGRAM_MIN_BYTES - 50, "{fits}");
    assert_eq!(packer.flush().unwrap().bytes.len(), DATAGRAM_MIN_BYTES);
    assert_eq!(packer.too_big(), (DATAGRAM_MIN_BYTES - 1 - fits) as u64);
    let last = packer.totals(&PollTotals::default()).last;
    let totals = decode_datagram(last.bytes).unwrap().totals.unwrap();
    assert_eq!((totals.records_sent, totals.records_too_big), (Some(1), Some(packer.too_big())));
}

/// It remains one stream: a receiver needs no second one to know that nothing is missing.
#[test]
fn a_limit_that_changes_holds_from_the_next_datagram_on() {
    let tail = [0xaa; 300];
    let record = SocketRecord { tcp_info_tail: Some(&tail), ..SocketRecord::default() };
    let mut packer = DatagramPacker::new(7, 1_300, &FieldSet::ALL);
    let (mut lengths, mut received) = (Vec::new(), 0);
    for turn in 0..40 {
        match turn {
            10 => packer.set_max_bytes(8_000),
            38 => packer.set_max_bytes(0),
            _ => {}
        }
        if let Some(full) = packer.push(&record).unwrap() {
            let view = decode_datagram(full.bytes).unwrap();
            assert_eq!((view.stream_id, view.sequence), (7, lengths.len() as u64));
            assert_eq!((view.first_record, view.record_count), (received, full.records));
            received += full.records;
            lengths.push(full.bytes.len());
        }
    }
    let end = packer.totals(&PollTotals::default());
    received += end.before.map_or(0, |before| before.records) + end.last.records;
    assert!(end.last.bytes.len() <= DATAGRAM_MIN_BYTES);
    assert_eq!((received, packer.records(), packer.too_big()), (40, 40, 0));
    // Two with 4 records each; the third then grows to 26, and the fourth goes out unchanged when the limit is
    // lowered.
    assert!(lengths[..2].iter().all(|&len| len <= 1_300), "{lengths:?}");
    assert!(lengths[2] > 7_600 && lengths[2] <= 8_000, "{lengths:?}");
    assert_eq!(lengths.len(), 4, "{lengths:?}");
}

#[test]
fn totals_whose_texts_have_no_room_lose_their_texts_only() {
    let name = "n".repeat(DATAGRAM_MIN_BYTES);
    let pairs = [("tag", name.as_str())];
    let mut packer = DatagramPacker::new(1, DATAGRAM_MIN_BYTES, &FieldSet::ALL);
    let mut totals_of = |totals: PollTotals<'_>| {
        let last = packer.totals(&totals).last;
        assert!(last.bytes.len() <= DATAGRAM_MIN_BYTES);
        let read = decode_datagram(last.bytes).unwrap().totals.unwrap();
        assert_eq!(read.host.is_some(), read.weir_version.is_some());
        (read.tags.is_some(), read.host.is_some(), read.sockets_visited)
    };
    let totals =
        PollTotals { host: Some("h"), tags: Some(Tags::new(&pairs)), ..realistic_totals() };
    assert_eq!(totals_of(totals), (false, true, Some(10_000)));
    assert_eq!(totals_of(PollTotals { host: Some(&name), ..totals }), (false, false, Some(10_000)));
}

#[test]
fn random_records_fill_datagrams_to_the_last_byte_at_most() {
    let mut random = Random(2);
    let mut packer = DatagramPacker::new(3, 1_200, &FieldSet::ALL);
    let (mut sent, mut refused, mut received) = (0, 0, 0);
    for _ in 0..20_000 {
        let message = any_message(&mut random, SocketRecord::FIELDS);
        sent += 1;
        match packer.push(&any_record(&message)) {
            Ok(None) => {}
            Ok(Some(datagram)) => {
                assert!(datagram.bytes.len() <= 1_200);
                received +=
                    decode_datagram(datagram.bytes).unwrap().records().map(Result::unwrap).count();
            }
            Err(too_big) => {
                assert!(too_big.bytes > 1_200);
                refused += 1;
            }
        }
    }
    received += packer.flush().map_or(0, |datagram| datagram.records as usize);
    assert_eq!(received + refused, sent);
    assert!(refused > 0 && received > sent / 2, "{received} {refused}");
}

#[test]
fn what_is_no_datagram_of_ours_is_refused() {
    assert_eq!(decode_datagram(b"").unwrap_err(), DecodeError::NoStream);
    assert_eq!(decode_datagram(b"\x10\x01").unwrap_err(), DecodeError::NoStream);
    assert_eq!(decode_datagram(b"<34>syslog").unwrap_err(), DecodeError::Key);
    assert_eq!(decode_datagram(b"\x08\x01").unwrap_err(), DecodeError::WrongType { number: 1 });
}

/// `WEIR_MUTATIONS` sets how many.
#[test]
fn changed_datagrams_never_panic_and_say_how_many_records_they_hold() {
    let mut random = Random(6);
    // Room for three records next to the totals.
    let mut packer = DatagramPacker::new(9, 2 * MAX_BYTES, &FieldSet::ALL);
    let (mut whole, mut decoded, mut records) = (Vec::new(), 0, 0);
    for turn in 0..mutations() {
        if turn % 50 == 0 {
            for _ in 0..random.below(4) {
                let _ = packer.push(&realistic(&mut random)).unwrap();
            }
            whole = packer.totals(&realistic_totals()).last.bytes.to_vec();
        }
        let mut changed = whole.clone();
        mutate(&mut changed, &mut random);
        let Ok(view) = decode_datagram(&changed) else { continue };
        assert_eq!(view.records().count() as u64, view.record_count);
        decoded += 1;
        records += view.records().filter(Result::is_ok).count() as u64;
    }
    assert!(decoded > mutations() / 10 && records > decoded / 2, "{decoded} {records}");
}
