//! Disks that are full or fail, and clocks that jump.

use crate::support::{SECOND_NS, START_NS, at, insert, insert_poll, number, open, options, record};
use record::{RowKind, SocketRecord};
use std::time::Duration;
use store::{Commits, Options};
use testkit::{FailingDisk, PowerDisk, SmallDisk, TempDir, skip};

#[test]
fn a_full_disk_refuses_a_batch_whole_and_the_store_goes_on_when_there_is_space() {
    let Some(disk) = SmallDisk::mount("6m") else {
        skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
        return;
    };
    let folder = disk.path().join("store");
    let mut writer = open(&options(&folder)).unwrap();

    let mut stored = 0;
    let refused = loop {
        let chunk = crate::support::chunk(
            &(0..500).map(|connection| record(stored, connection)).collect::<Vec<_>>(),
        );
        let rows: Vec<(RowKind, &[u8])> = chunk.rows().map(|row| (row.kind, row.bytes)).collect();
        match writer.insert(rows.into_iter(), at(START_NS)) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1_000, "the disk never fills");
    };
    assert!(refused.is_full(), "{refused:?}");
    assert!(stored > 0);

    // Deleting a ballast file makes room.
    drop(writer);
    let rows = number(&folder, "SELECT count(*) FROM sockets");
    assert_eq!(rows, stored as i64 * 500);
    assert_eq!(
        number(&folder, "SELECT sum(records) FROM sockets_minute WHERE dimension = 'all'"),
        rows
    );
    testkit::run(
        std::process::Command::new("mount").args(["-o", "remount,size=64m"]).arg(disk.path()),
    );
    let mut writer = open(&options(&folder)).unwrap();
    insert_poll(&mut writer, stored, 500);
    writer.seal_all().unwrap();
    assert_eq!(number(&folder, "SELECT count(*) FROM sockets"), rows + 500);
}

#[test]
fn the_size_limit_is_kept_and_the_oldest_goes_first() {
    let dir = TempDir::new();
    let keep_bytes = Some(4 << 20);
    let mut writer = open(&Options { keep_bytes, ..options(dir.path()) }).unwrap();
    for poll in 0..60 {
        insert_poll(&mut writer, poll, 2_000);
        if poll % 5 == 4 {
            writer.seal_all().unwrap();
        }
    }
    let now = START_NS + 60 * SECOND_NS;
    testkit::wait_for("the store to fit", || {
        writer.step(at(now)).unwrap();
        (writer.figures().bytes <= 4 << 20).then_some(())
    });
    let newest = "SELECT max(poll) FROM sockets";
    if number(dir.path(), "SELECT count(*) FROM sockets") > 0 {
        assert_eq!(number(dir.path(), newest), 59);
    }
}

/// The log of the database stays in the system's memory, and a sealing, which syncs, fails.
#[test]
fn a_disk_that_fails_costs_no_row_and_is_used_again_when_it_works() {
    let Some(disk) = FailingDisk::mount() else {
        skip("a disk that fails needs root, a loop device and chattr +i", &[]);
        return;
    };
    let folder = disk.path().join("store");
    let mut writer = open(&options(&folder)).unwrap();
    insert_poll(&mut writer, 0, 500);
    writer.seal_all().unwrap();
    insert_poll(&mut writer, 1, 500);

    disk.fail();
    let error = writer.seal_all().unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        source.contains("os error 5") || source.contains("disk I/O error"),
        "{error}: {source}"
    );
    insert_poll(&mut writer, 2, 500);
    assert_eq!(number(&folder, "SELECT count(*) FROM sockets"), 1_500);

    disk.heal();
    writer.seal_all().unwrap();
    insert_poll(&mut writer, 3, 500);
    drop(writer);
    let mut writer = open(&options(&folder)).unwrap();
    writer.seal_all().unwrap();
    drop(writer);
    for statement in
        ["SELECT count(*) FROM sockets", "SELECT count(DISTINCT sequence) FROM sockets"]
    {
        assert_eq!(number(&folder, statement), 2_000);
    }
    assert_eq!(number(&folder, "SELECT count(*) FROM segments WHERE file IS NOT NULL"), 4);
}

/// Records carry the time of the clock, which somebody sets an hour forward, then two back, then right.
#[test]
fn a_clock_that_jumps_an_hour_costs_no_row() {
    const HOUR_NS: i64 = 3_600 * SECOND_NS as i64;
    let dir = TempDir::new();
    let keep_age = Some(Duration::from_secs(2 * 3_600));
    let options = Options { keep_age, ..options(dir.path()) };
    let clock = |poll: u64| {
        let shift = [0, HOUR_NS, -HOUR_NS, 0][poll as usize / 10];
        (START_NS + poll * SECOND_NS).strict_add_signed(shift)
    };
    let mut times = Vec::new();
    for poll in 0..40 {
        // Opened anew, so that each has its step of removing what is old, at the clock's time.
        let mut writer = open(&options).unwrap();
        let records: Vec<_> = (0..20)
            .map(|connection| SocketRecord {
                time_unix_ns: Some(clock(poll)),
                ..record(poll, connection)
            })
            .collect();
        insert(&mut writer, &records);
        times.push(clock(poll));
        writer.step(at(clock(poll))).unwrap();
        if poll % 4 == 3 {
            writer.seal_all().unwrap();
        }
    }

    assert_eq!(number(dir.path(), "SELECT count(*) FROM sockets"), 800);
    assert_eq!(number(dir.path(), "SELECT count(DISTINCT sequence) FROM sockets"), 800);
    for table in ["sockets_minute", "sockets_hour"] {
        let sums = format!("SELECT sum(records) FROM {table} WHERE dimension = 'all'");
        assert_eq!(number(dir.path(), &sums), 800, "{table}");
    }
    for bound in times.iter().step_by(3) {
        let statement = format!("SELECT count(*) FROM sockets WHERE time_unix_ns >= {bound}");
        let expected = times.iter().filter(|time| *time >= bound).count() as i64 * 20;
        assert_eq!(number(dir.path(), &statement), expected);
        let minute = bound / (60 * SECOND_NS) * 60 * SECOND_NS;
        let sum = format!(
            "SELECT records FROM sockets_minute WHERE dimension = 'all' AND time_unix_ns = {minute}"
        );
        let of_minute = |time: &&u64| **time / (60 * SECOND_NS) == bound / (60 * SECOND_NS);
        assert_eq!(number(dir.path(), &sum), times.iter().filter(of_minute).count() as i64 * 20);
    }
}

#[test]
fn a_batch_that_is_synced_survives_a_power_cut() {
    let Some(disk) = PowerDisk::mount() else {
        skip("a disk whose power is cut needs root and a loop device", &["REQUIRE_ALL"]);
        return;
    };
    let mut writer = open(&options(&disk.path().join("store"))).unwrap();
    writer.set_commits(Commits::Synced);
    for poll in 0..5 {
        insert_poll(&mut writer, poll, 500);
        let after = disk.cut();
        // Opened as by the next daemon, which reads the log.
        let folder = after.path().join("store");
        drop(open(&options(&folder)).unwrap());
        assert_eq!(number(&folder, "SELECT count(*) FROM sockets"), 500 * (poll as i64 + 1));
    }
}
