use super::*;
use record::{DatagramPacker, FieldSet};
use std::collections::BTreeSet;

/// Datagrams of one stream with the records 0, 1, 2, …; every `per_poll` records a poll ends.
fn stream(stream_id: u64, polls: u64, per_poll: u64) -> Vec<Vec<u8>> {
    let mut packer = DatagramPacker::new(stream_id, 1_200, &FieldSet::ALL);
    let mut datagrams = Vec::new();
    for poll in 1..=polls {
        for number in 0..per_poll {
            let host = "h".repeat((number % 40) as usize);
            let record = SocketRecord {
                sequence: Some((poll - 1) * per_poll + number),
                poll: Some(poll),
                host: Some(&host),
                ..SocketRecord::default()
            };
            if let Some(full) = packer.push(&record).unwrap() {
                datagrams.push(full.bytes.to_vec());
            }
        }
        let totals = PollTotals { poll: Some(poll), ..PollTotals::default() };
        let end = packer.totals(&totals);
        datagrams.extend(end.before.map(|before| before.bytes.to_vec()));
        datagrams.push(end.last.bytes.to_vec());
    }
    datagrams
}

fn source(port: u16) -> Source {
    SocketAddr::from(([127, 0, 0, 1], port)).into()
}

fn has_totals(datagram: &[u8]) -> bool {
    decode_datagram(datagram).unwrap().totals.is_some()
}

/// Processes datagrams and returns the records passed on, and the report at each totals.
fn take(table: &mut Table, datagrams: &[Vec<u8>]) -> (Vec<u64>, Vec<StreamReport>) {
    let (mut records, mut reports) = (Vec::new(), Vec::new());
    for datagram in datagrams {
        table.take(source(1), datagram, &mut |received: Received<'_>| match received {
            Received::Record(record) => records.push(record.sequence.unwrap()),
            Received::Totals(report, _) => reports.push(*report),
        });
    }
    (records, reports)
}

#[test]
fn nothing_is_missing_when_everything_arrives() {
    let (records, reports) = take(&mut Table::new(10), &stream(1, 5, 100));
    assert_eq!(records, (0..500).collect::<Vec<_>>());
    let missing: Vec<_> = reports.iter().map(StreamReport::records_missing).collect();
    assert_eq!(missing, [0; 5]);
    assert_eq!((reports[4].records_sent, reports[4].records_before_first), (500, 0));
    assert_eq!((reports[4].datagrams_missing(), reports[4].totals_received), (0, 5));
}

#[test]
fn one_totals_is_enough_to_know_what_is_missing_of_all_polls() {
    let mut datagrams = stream(1, 20, 100);
    let last = datagrams.pop().unwrap();
    // All other totals are lost, with the records in their datagrams, and so is the whole first poll.
    datagrams.retain(|datagram| {
        let view = decode_datagram(datagram).unwrap();
        view.totals.is_none() && view.poll > 1
    });
    datagrams.push(last);
    let (records, reports) = take(&mut Table::new(10), &datagrams);
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].records_missing(), 2_000 - records.len() as u64);
    assert_eq!(reports[0].records_before_first, 100);
}

#[test]
fn missing_is_exact_at_each_totals_whatever_is_lost_doubled_or_reordered() {
    let mut random = 7_u64;
    let mut chance = |one_in: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33).is_multiple_of(one_in)
    };
    for _ in 0..50 {
        let mut arriving: Vec<Vec<u8>> = Vec::new();
        for datagram in stream(1, 10, 150) {
            if chance(5) {
                continue;
            }
            arriving.push(datagram.clone());
            let at = arriving.len() - 1;
            if chance(7) && at > 0 {
                arriving.swap(at, at - 1);
            }
            if chance(6) {
                arriving.push(datagram);
            }
        }
        let mut table = Table::new(10);
        let mut received = BTreeSet::new();
        for datagram in &arriving {
            let (records, reports) = take(&mut table, std::slice::from_ref(datagram));
            for record in records {
                assert!(received.insert(record), "record {record} came twice");
            }
            for report in reports {
                let sent = decode_datagram(datagram).unwrap().totals.unwrap().records_sent.unwrap();
                let arrived = received.iter().filter(|&&record| record < report.records_sent);
                assert_eq!(report.records_missing(), report.records_sent - arrived.count() as u64);
                assert!(report.records_sent >= sent);
            }
        }
    }
}

#[test]
fn a_stream_that_is_joined_late_says_what_came_before() {
    let datagrams = stream(1, 10, 100);
    let half = datagrams.len() / 2;
    let (records, reports) = take(&mut Table::new(10), &datagrams[half..]);
    let last = reports.last().unwrap();
    assert_eq!(last.records_before_first, records[0]);
    assert_eq!(last.records_missing(), last.records_before_first);
}

#[test]
fn streams_are_told_apart_and_the_one_silent_for_longest_makes_room() {
    let mut table = Table::new(3);
    let streams: Vec<_> = (1..=4).map(|id| stream(id, 1, 100)).collect();
    let first_of = |table: &mut Table, at: usize| {
        take(table, &streams[at][..1]);
    };
    [0, 1, 2, 0].iter().for_each(|&at| first_of(&mut table, at));
    // The same id from another address is another stream.
    table.take(source(2), &streams[0][1], &mut |_| {});
    assert_eq!(table.streams.len(), 3);
    assert_eq!(table.counts.evicted_streams, 1);
    let mut followed: Vec<_> =
        table.streams.values().map(|s| (s.report().source.port(), s.report().stream_id)).collect();
    followed.sort_unstable();
    assert_eq!(followed, [(1, 1), (1, 3), (2, 1)]);
    let missing = table.streams[&(source(2), 1)].report().records_missing();
    assert!(missing > 0);
    // 3 goes, then (1, 1), then the missing count of (2, 1) is added to the sum.
    take(&mut table, &streams[3][..1]);
    first_of(&mut table, 1);
    first_of(&mut table, 2);
    assert_eq!(table.counts.evicted_streams, 4);
    assert_eq!(table.counts.evicted_records_missing, missing);
    assert_eq!(table.streams[&(source(1), 1 + 1)].report().duplicate_datagrams, 0);
}

/// `stream_id` and `first_record` of [`DatagramView`](record::DatagramView), as protobuf: 2^64 - 1 records before this one.
fn forged(stream_id: u8) -> Vec<u8> {
    let id = [stream_id; 8];
    let first_record = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    [&[0x09][..], &id, &[0x18], &first_record].concat()
}

#[test]
fn forged_numbers_do_not_overflow_what_is_summed_up() {
    let mut table = Table::new(1);
    for stream_id in 1..=9 {
        table.take(source(1), &forged(stream_id), &mut |_| {});
    }
    let report = table.streams.values().next().unwrap().report();
    assert_eq!(report.records_missing(), u64::MAX);
    assert_eq!(table.counts.malformed_datagrams, 0);
    assert_eq!((table.counts.evicted_streams, table.counts.evicted_records_missing), (8, u64::MAX));
}

#[test]
fn what_is_no_datagram_of_ours_is_counted() {
    let mut table = Table::new(10);
    let whole = stream(1, 1, 3).remove(0);
    let mut on = |_: Received<'_>| {};
    for len in 0..whole.len() {
        table.take(source(1), &whole[..len], &mut on);
    }
    let counts = table.counts;
    assert_eq!(counts.datagrams, whole.len() as u64);
    assert!(counts.malformed_datagrams > 0, "{counts:?}");
    let mut random = 1_u64;
    for _ in 0..100_000 {
        let mut mutated = whole.clone();
        for _ in 0..3 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) as usize % mutated.len();
            mutated[at] = (random >> 50) as u8;
        }
        table.take(source(1), &mutated, &mut on);
    }
    assert!(table.streams.len() <= 10);
    assert!(has_totals(&whole));
}
