//! The ring under loom: every interleaving of one writer and its readers on the smallest ring that can wrap.
//!
//! loom tracks each descriptor's cell: a read that could meet a write of the same slot fails the model, wherever it is.
//! Payload bytes follow the same claims and are checked by value.

use super::*;
use ledger::{Counters, Reason, Tally};
use loom::thread;

/// Takes everything that is there, once; returns the number of datagrams seen and given up.
fn take(reader: &mut Reader) -> u64 {
    let Some(claim) = reader.claim() else { return 0 };
    let mut last = None;
    for index in 0..claim.len() {
        let (descriptor, bytes) = claim.get(index);
        assert_eq!(bytes, [descriptor.received_ns as u8; 2], "payload of its descriptor");
        assert!(last < Some(descriptor.received_ns), "order");
        last = Some(descriptor.received_ns);
    }
    let (len, gave_up) = (claim.len(), claim.gave_up().count);
    claim.commit(len);
    len as u64 + gave_up
}

fn write(writer: &mut Writer, count: u64) -> u64 {
    let mut appended = 0;
    let begin = writer.appended().count;
    for number in begin..begin + count {
        let bytes = [number as u8; 2];
        appended += u64::from(writer.append(Source::NONE, number, &bytes).is_ok());
        writer.publish();
    }
    appended
}

#[test]
fn loom_one_reader_is_lapped_or_guards_and_nothing_is_unaccounted() {
    loom::model(|| {
        let mut writer = ring_with_slots(4, 2);
        let lost = std::sync::Arc::<Tally>::default();
        let mut reader = writer.reader(lost.clone());
        let thread = thread::spawn(move || {
            let seen = take(&mut reader) + take(&mut reader);
            (reader, seen)
        });
        let appended = write(&mut writer, 4);
        let (mut reader, mut seen) = thread.join().unwrap();
        while !reader.is_empty() {
            seen += take(&mut reader);
        }
        assert_eq!(seen + lost.load().count, appended);
    });
}

#[test]
fn loom_two_readers_do_not_disturb_each_other() {
    loom::model(|| {
        let mut writer = ring_with_slots(4, 2);
        let readers = [(); 2].map(|()| {
            let lost = std::sync::Arc::<Tally>::default();
            (writer.reader(lost.clone()), lost)
        });
        let threads = readers.map(|(mut reader, lost)| {
            thread::spawn(move || {
                let seen = take(&mut reader);
                (reader, seen, lost)
            })
        });
        let appended = write(&mut writer, 3);
        for thread in threads {
            let (mut reader, mut seen, lost) = thread.join().unwrap();
            while !reader.is_empty() {
                seen += take(&mut reader);
            }
            assert_eq!(seen + lost.load().count, appended);
        }
    });
}

#[test]
fn loom_a_reader_leaves_while_the_writer_laps_it() {
    loom::model(|| {
        let mut writer = ring_with_slots(4, 2);
        let lost = std::sync::Arc::<Tally>::default();
        let mut reader = writer.reader(lost.clone());
        let thread = thread::spawn(move || {
            let counters = Counters::default();
            let seen = take(&mut reader);
            let left = reader.leave(&counters);
            (left.count, seen + counters.dropped(Reason::QueueFull).count)
        });
        write(&mut writer, 4);
        let (left, seen) = thread.join().unwrap();
        assert_eq!(seen + lost.load().count, left);
    });
}

#[test]
fn loom_what_a_reader_gives_up_is_the_writers_at_once() {
    loom::model(|| {
        let mut writer = ring_with_slots(64, 8);
        let lost = std::sync::Arc::<Tally>::default();
        let mut reader = writer.reader(lost.clone());
        let before = write(&mut writer, 8);
        let thread = thread::spawn(move || {
            let seen = take(&mut reader);
            (reader, seen)
        });
        let appended = before + write(&mut writer, 3);
        let (mut reader, mut seen) = thread.join().unwrap();
        while !reader.is_empty() {
            seen += take(&mut reader);
        }
        assert_eq!(seen + lost.load().count, appended);
    });
}
