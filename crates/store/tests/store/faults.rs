//! Full disks.

use crate::support::{insert_poll, number, options, record};
use record::RowKind;
use store::{Options, Writer};
use testkit::{SmallDisk, TempDir, skip};

#[test]
fn a_full_disk_refuses_a_batch_whole_and_the_store_goes_on_when_there_is_space() {
    let Some(disk) = SmallDisk::mount("6m") else {
        skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
        return;
    };
    let folder = disk.path().join("store");
    let mut writer = Writer::open(options(&folder)).unwrap();

    let mut stored = 0;
    let refused = loop {
        let chunk = crate::support::chunk(
            &(0..500).map(|connection| record(stored, connection)).collect::<Vec<_>>(),
        );
        let rows: Vec<(RowKind, &[u8])> = chunk.rows().map(|row| (row.kind, row.bytes)).collect();
        match writer.insert(rows.into_iter()) {
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
    let mut writer = Writer::open(options(&folder)).unwrap();
    insert_poll(&mut writer, stored, 500);
    writer.seal_all().unwrap();
    assert_eq!(number(&folder, "SELECT count(*) FROM sockets"), rows + 500);
}

#[test]
fn the_size_limit_is_kept_and_the_oldest_goes_first() {
    let dir = TempDir::new();
    let keep_bytes = Some(4 << 20);
    let mut writer = Writer::open(Options { keep_bytes, ..options(dir.path()) }).unwrap();
    for poll in 0..60 {
        insert_poll(&mut writer, poll, 2_000);
        if poll % 5 == 4 {
            writer.seal_all().unwrap();
        }
    }
    let now = crate::support::START_NS + 60 * crate::support::SECOND_NS;
    testkit::wait_for("the store to fit", || {
        writer.step(now).unwrap();
        (writer.figures().bytes <= 4 << 20).then_some(())
    });
    let newest = "SELECT max(poll) FROM sockets";
    if number(dir.path(), "SELECT count(*) FROM sockets") > 0 {
        assert_eq!(number(dir.path(), newest), 59);
    }
}
