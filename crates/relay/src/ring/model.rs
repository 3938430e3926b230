//! Tests the ring under loom: every interleaving of one writer and its readers on the smallest ring that can wrap.
//!
//! loom tracks each descriptor's cell: a read that could race with a write of the same slot fails the model. Payload bytes follow
//! the same claims and are checked by value.

use super::*;
use ledger::{Counters, Reason, Tally};
use loom::thread;

/// Takes everything that is there, once. Returns the number of datagrams seen and given up.
fn take(reader: &mut Reader) -> u64 {
    let counters = Counters::default();
    let Some(claim) = reader.claim(&counters) else { return 0 };
    let mut last = None;
    for index in 0..claim.len() {
        let (descriptor, bytes) = claim.get(index);
        assert_eq!(bytes, [descriptor.times.arrived_ns as u8; 2], "payload of its descriptor");
        assert!(last < Some(descriptor.times.arrived_ns), "order");
        last = Some(descriptor.times.arrived_ns);
    }
    let len = claim.len();
    claim.commit(len);
    len as u64 + counters.dropped(Reason::QueueFull).count
}

fn write(writer: &mut Writer, count: u64) -> u64 {
    let mut appended = 0;
    let begin = writer.appended().count;
    for number in begin..begin + count {
        let bytes = [number as u8; 2];
        // As the intake does.
        writer.rewind_if_empty(bytes.len());
        if !writer.has_room_without_loss(bytes.len()) {
            writer.publish();
        }
        appended += u64::from(writer.append(Source::NONE, times(number), &bytes).is_ok());
        writer.publish();
    }
    appended
}

#[test]
fn loom_one_reader_is_lapped_or_guards_and_nothing_is_unaccounted() {
    loom::model(|| {
        let mut writer = ring_with_slots(4, 2).unwrap();
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
        let mut writer = ring_with_slots(4, 2).unwrap();
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
        let mut writer = ring_with_slots(4, 2).unwrap();
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
        let mut writer = ring_with_slots(64, 8).unwrap();
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

#[test]
fn loom_a_datagram_written_in_place_is_whole_and_rewinding_disturbs_nobody() {
    loom::model(|| {
        let mut writer = ring_with_slots(8, 4).unwrap();
        let lost = std::sync::Arc::<Tally>::default();
        let mut reader = writer.reader(lost.clone());
        let thread = thread::spawn(move || {
            let seen = take(&mut reader) + take(&mut reader);
            (reader, seen)
        });
        let mut appended = 0;
        for number in 0..3_u64 {
            writer.rewind_if_empty(2);
            if let Some(room) = writer.room(1, 2) {
                room.fill(number as u8);
                writer.append_in_place(Source::NONE, times(number), 0, 2);
                appended += 1;
            }
            writer.publish();
        }
        let (mut reader, mut seen) = thread.join().unwrap();
        while !reader.is_empty() {
            seen += take(&mut reader);
        }
        assert_eq!((seen, lost.load().count), (appended, 0));
    });
}

#[test]
fn loom_an_account_that_is_given_is_whole() {
    loom::model(|| {
        let mut writer = ring_with_slots(4, 2).unwrap();
        let lost = std::sync::Arc::<Tally>::default();
        let mut reader = writer.reader(lost.clone());
        let own = lost.clone();
        let thread = thread::spawn(move || {
            let seen = take(&mut reader);
            if let Some((cursor, lost)) = reader.account(|| own.load().count) {
                assert_eq!(cursor, seen + lost);
            }
        });
        write(&mut writer, 4);
        thread.join().unwrap();
    });
}
