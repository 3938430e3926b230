//! The process that is killed. It goes through one phase again and again, and says when it is in it and what is stored.

#![expect(clippy::print_stdout, reason = "the test that kills it reads what it says")]

use crate::support::{SECOND_NS, START_NS, at, insert_poll, options};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{Options, Writer};

pub(super) const FOLDER: &str = "WEIR_STORE_CRASH_FOLDER";
pub(super) const FIRST: &str = "WEIR_STORE_CRASH_FIRST";
pub(super) const PHASE: &str = "WEIR_STORE_CRASH_PHASE";
pub(super) const CONNECTIONS: u64 = 200;

/// What is older goes, in the phase that removes.
const KEEP_SECONDS: u64 = 5;

/// Free pages at which the store gives some back.
const FREE_PAGES: i64 = 2_000;

/// Does nothing without a folder.
#[test]
fn works_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let next = std::env::var(FIRST).unwrap().parse().unwrap();
    let phase = std::env::var(PHASE).unwrap();
    let mut work = Work { folder: folder.into(), next };
    match phase.as_str() {
        "insert" => work.insert(),
        "seal" | "drop" => work.seal(),
        "remove" => work.remove(),
        "shrink" => work.shrink(),
        "upgrade" => work.upgrade(),
        other => panic!("{other}"),
    }
}

struct Work {
    folder: PathBuf,
    next: u64,
}

impl Work {
    fn open(&self) -> Writer {
        Writer::open(options(&self.folder)).unwrap()
    }

    fn poll(&mut self, writer: &mut Writer) {
        insert_poll(writer, self.next, CONNECTIONS);
        self.next += 1;
        println!("@stored {}", self.next);
    }

    fn insert(&mut self) {
        let mut writer = self.open();
        loop {
            println!("@begin");
            self.poll(&mut writer);
            println!("@end");
        }
    }

    fn seal(&mut self) {
        let mut writer = self.open();
        // Segments that an earlier process left.
        writer.seal_all().unwrap();
        loop {
            (0..3).for_each(|_| self.poll(&mut writer));
            println!("@begin");
            writer.seal_all().unwrap();
            println!("@end");
        }
    }

    /// Segments and rows beyond their age. A writer does one step when it is opened, and then one a second.
    fn remove(&mut self) {
        loop {
            let mut writer = self.open();
            writer.seal_all().unwrap();
            for _ in 0..3 {
                (0..3).for_each(|_| self.poll(&mut writer));
                writer.seal_all().unwrap();
            }
            drop(writer);

            let age = Some(Duration::from_secs(KEEP_SECONDS));
            let options = Options { keep_age: age, ..options(&self.folder) };
            let mut writer = Writer::open(options).unwrap();
            println!("@needed {}", self.next.saturating_sub(KEEP_SECONDS));
            println!("@begin");
            writer.step(at(START_NS + self.next * SECOND_NS)).unwrap();
            println!("@end");
        }
    }

    /// Free pages go back to the file system.
    fn shrink(&mut self) {
        loop {
            let mut writer = self.open();
            self.poll(&mut writer);
            drop(writer);
            let database = database(&self.folder);
            if free_pages(&database) < FREE_PAGES {
                let ballast = "CREATE TABLE ballast (bytes); INSERT INTO ballast VALUES (zeroblob(32 << 20)); DROP TABLE ballast";
                database.execute_batch(ballast).unwrap();
            }

            let mut writer = self.open();
            let before = free_pages(&database);
            assert!(before >= FREE_PAGES);
            println!("@begin");
            writer.step(at(START_NS)).unwrap();
            println!("@end");
            assert!(free_pages(&database) < before, "it gave nothing back");
        }
    }

    /// The store is made an older one: a table and a column less.
    fn upgrade(&mut self) {
        loop {
            let mut writer = self.open();
            self.poll(&mut writer);
            drop(writer);
            let older =
                "BEGIN; DROP TABLE flow_totals; ALTER TABLE closes DROP COLUMN sndbuf_limited_us;
                PRAGMA user_version = 0; COMMIT";
            database(&self.folder).execute_batch(older).unwrap();

            println!("@begin");
            let writer = self.open();
            println!("@end");
            drop(writer);
            let columns = "SELECT sndbuf_limited_us FROM closes UNION ALL SELECT time_unix_ns FROM flow_totals";
            database(&self.folder).prepare(columns).unwrap();
        }
    }
}

fn database(folder: &Path) -> Connection {
    Connection::open(folder.join("history.sqlite")).unwrap()
}

fn free_pages(database: &Connection) -> i64 {
    database.pragma_query_value(None, "freelist_count", |row| row.get(0)).unwrap()
}
