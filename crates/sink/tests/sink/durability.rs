//! Files behind a spool: what is acknowledged is on the disk, on disks that fail and machines that stop.

use crate::support::{
    Source, check_law, fields, file_options, hop, number_and_filling, numbers_of, options,
};
use ledger::{Event, Reason};
use record::{Chunk, Encoding, decode_protobuf};
use sink::spool::{self, Folder, Read, Spool};
use sink::{
    BatchLimits, Connector, Content, DeliveryOptions, Durability, FileOptions, SinkOptions,
    SpoolOptions, SpoolSync,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::{DEADLINE, FailingDisk, PowerDisk, TempDir, skip, wait_for};

const IN_FLIGHT: usize = 128;

fn file(path: &Path, durability: Durability) -> Connector {
    let options = FileOptions { durability, ..file_options(path) };
    sink::file(options, Content::Records(Encoding::Jsonl, number_and_filling()))
}

/// A sink into a file behind a spool, as the configuration makes it.
fn behind_a_spool(folder: &Path, spool: &Path) -> SinkOptions {
    let durability = Durability::Synced { batches_max: IN_FLIGHT };
    let to = file(&folder.join("rows.jsonl"), durability);
    SinkOptions {
        batch: BatchLimits { age: Duration::from_millis(10), ..BatchLimits::default() },
        delivery: DeliveryOptions { in_flight_max: IN_FLIGHT, ..DeliveryOptions::default() },
        spool: Some(SpoolOptions {
            folder: spool.to_owned(),
            bytes_max: 8 << 20,
            sync: SpoolSync::Always,
        }),
        ..options("file", to)
    }
}

/// The numbers of the rows that wait in a spool.
fn spooled(path: &Path) -> BTreeSet<u64> {
    let options = spool::Options { bytes_max: 8 << 20, ..spool::Options::default() };
    let (mut spool, _) = Spool::open(Folder::open(path).unwrap(), options).unwrap();
    let mut numbers = BTreeSet::new();
    while let Some(read) = spool.read().unwrap() {
        let Read::Entry(entry) = read else { panic!("a gap: {read:?}") };
        let chunk = Chunk::decode(entry.bytes).unwrap();
        let number = |message: &[u8]| decode_protobuf(message).unwrap().sequence.unwrap();
        numbers.extend(chunk.rows().map(|row| number(row.bytes)));
    }
    numbers
}

/// The numbers of the whole rows of a file. A row that the crash has cut is not one.
fn written(path: &Path) -> BTreeSet<u64> {
    let text = fs::read(path).unwrap_or_default();
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    numbers_of(std::str::from_utf8(&text[..end]).unwrap()).into_iter().collect()
}

#[test]
fn what_is_acknowledged_survives_a_power_cut_in_the_file_or_in_the_spool() {
    let Some(disk) = PowerDisk::mount() else {
        skip("a disk whose power is cut needs root and a loop device", &["REQUIRE_ALL"]);
        return;
    };
    let spool = disk.path().join("spool");
    let mut source = Source::to_one(behind_a_spool(disk.path(), &spool));
    let mut sent = 0;
    for _ in 0..5 {
        source.send(sent..sent + 1_000);
        sent += 1_000;
        wait_for("the acknowledgments", || source.is_empty());
        let hop = source.hop();
        assert_eq!(hop.delivered.count, sent, "{hop:?}");

        let after = disk.cut();
        let mut there = written(&after.path().join("rows.jsonl"));
        there.extend(spooled(&after.path().join("spool")));
        let missing: Vec<u64> = (0..sent).filter(|number| !there.contains(number)).collect();
        assert!(missing.is_empty(), "{} of {sent} rows are nowhere: {missing:?}", missing.len());
    }
    assert_eq!(source.stop(Instant::now() + DEADLINE), []);
}

#[test]
fn a_sync_that_fails_is_no_acknowledgment_and_the_rows_are_written_again() {
    let Some(disk) = FailingDisk::mount() else {
        skip("a disk that fails needs root, a loop device and chattr +i", &[]);
        return;
    };
    let elsewhere = TempDir::new();
    let mut source = Source::to_one(behind_a_spool(disk.path(), &elsewhere.file("spool")));
    source.send(0..500);
    wait_for("the first rows", || source.is_empty());

    disk.fail();
    source.send(500..1_000);
    let trouble = wait_for("the trouble", || source.hop().trouble);
    assert!(trouble.what.contains("rows.jsonl"), "{trouble:?}");
    let while_it_fails = source.hop();
    assert_eq!(while_it_fails.delivered.count, 500, "{while_it_fails:?}");
    check_law(&while_it_fails);

    disk.heal();
    source.send(1_000..1_500);
    wait_for("all rows", || source.is_empty());
    let hop = source.hop();
    assert_eq!(hop.delivered.count, 1_500, "{hop:?}");
    let path = disk.path().join("rows.jsonl");
    let there: BTreeSet<u64> =
        numbers_of(&crate::support::rotated(&path).concat()).into_iter().collect();
    assert_eq!(there, (0..1_500).collect());
    source.stop(Instant::now() + DEADLINE);
}

#[test]
fn a_slow_stream_of_rows_costs_one_sync_a_second() {
    let dir = TempDir::new();
    let durability = Durability::Synced { batches_max: IN_FLIGHT };
    let mut connector = file(&dir.file("rows"), durability);
    let mut destination = (connector.destination)().unwrap();
    let mut form = (connector.form)();
    let sink::Form::Mixed(encoder) = &mut form else { panic!() };

    // An acknowledgment comes after a sync, so bursts of them are syncs.
    let (begun, mut bursts, mut done) = (Instant::now(), 0, Vec::new());
    let mut id = 0;
    while begun.elapsed() < Duration::from_millis(2_500) {
        let batch = crate::support::batch_of(encoder.as_mut(), id);
        id += 1;
        destination.submit(batch).unwrap();
        destination.poll(Duration::from_millis(25), &mut done);
        bursts += u32::from(!done.is_empty());
        done.clear();
    }
    assert!((2..=3).contains(&bursts), "{bursts} syncs for {id} batches");
    destination.close(Duration::ZERO, &mut done);
    assert!(!done.is_empty());
}

#[test]
fn without_a_spool_what_is_written_is_acknowledged_at_once() {
    let dir = TempDir::new();
    let mut connector = file(&dir.file("rows"), Durability::Written);
    let mut destination = (connector.destination)().unwrap();
    let sink::Form::Mixed(mut encoder) = (connector.form)() else { panic!() };
    let mut done = Vec::new();
    for id in 0..10 {
        destination.submit(crate::support::batch_of(encoder.as_mut(), id)).unwrap();
        destination.poll(Duration::ZERO, &mut done);
        assert_eq!(done.len() as u64, id + 1);
    }
}

/// A spool whose disk fails at the end: its rows have a name, and it is not `kept`.
#[test]
fn rows_that_the_last_sync_did_not_make_durable_are_not_kept() {
    let Some(disk) = FailingDisk::mount() else {
        skip("a disk that fails needs root, a loop device and chattr +i", &[]);
        return;
    };
    let nobody = testkit::free_port();
    let to = sink::tcp(
        sink::TcpOptions {
            host: "127.0.0.1".into(),
            port: nobody,
            framing: sink::StreamFraming::Newline,
        },
        Content::Records(Encoding::Jsonl, fields(&["sequence"])),
    );
    let spool = SpoolOptions {
        folder: disk.path().join("spool"),
        bytes_max: 8 << 20,
        sync: SpoolSync::Every(Duration::from_millis(50)),
    };
    let mut source = Source::to_one(SinkOptions { spool: Some(spool), ..options("s", to) });
    let meter = source.meters().remove(0);
    source.send(0..300);
    wait_for("a sync", || source.sinks[0].spool_found());
    wait_for("the spool", || {
        (hop(&meter).gauges.get(&ledger::Gauge::SpoolRows) == Some(&300)).then_some(())
    });
    let end = source.sinks[0].end();
    // Their sync is over once another second has passed without one.
    wait_for("the circuit", || (hop(&meter).event(Event::Errors) >= 3).then_some(()));

    disk.fail();
    source.send(300..500);
    wait_for("the trouble", || {
        hop(&meter).trouble.filter(|trouble| trouble.what.contains("spool"))
    });
    source.stop(Instant::now() + Duration::from_millis(500));
    let hop = hop(&meter);
    check_law(&hop);
    assert_eq!(
        (hop.kept.count, hop.dropped_for(Reason::SpoolUnsynced).count),
        (300, 200),
        "{hop:?}"
    );
    assert!(end.spool_trouble().is_some_and(|trouble| trouble.what.contains("the spool")));
    disk.heal();
}
