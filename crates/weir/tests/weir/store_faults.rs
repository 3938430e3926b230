//! A daemon whose store has a disk that fails: what is lost has a reason, nobody else loses anything, the store goes on by itself,
//! and at the end it has the rows that the ledger says.

use super::datagram_sinks::write;
use crate::support::{Weir, hop};
use ledger::{HopKind, HopSnapshot, Snapshot};
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use store::{Limits, Reader, Value};
use testkit::{SmallDisk, TempDir, free_port, run, say, skip, wait_for};

/// Datagrams that are sent before the ledger is asked again.
const ROUND: u64 = 200;

/// A store on a small disk, and a file on another; each datagram goes to both.
struct Faulty {
    dir: TempDir,
    disk: SmallDisk,
    listen: String,
}

impl Faulty {
    fn new() -> Option<Faulty> {
        let Some(disk) = SmallDisk::mount("48m") else {
            skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
            return None;
        };
        let (dir, listen) = (TempDir::new(), format!("127.0.0.1:{}", free_port()));
        let sinks = [
            format!(
                "name = \"history\"\nfrom = [\"in\"]\nto = \"store:{}\"\nbatch_age = \"50ms\"\nqueue_size = \"256KiB\"\nretry_max = \"500ms\"",
                disk.path().join("store").display()
            ),
            format!(
                "name = \"other\"\nfrom = [\"in\"]\nbody = \"payload\"\nto = \"file:{}\"",
                dir.text("other")
            ),
        ];
        write(&dir, &[("in", &listen)], &sinks);
        Some(Faulty { dir, disk, listen })
    }

    fn remount(&self, options: &str) {
        run(Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(self.disk.path()));
    }

    fn folder(&self) -> std::path::PathBuf {
        self.disk.path().join("store")
    }
}

/// Numbers as datagrams, no faster than the relay takes them.
struct Load<'w> {
    weir: &'w Weir,
    socket: UdpSocket,
    to: String,
    sent: u64,
}

impl Load<'_> {
    fn send_until(&mut self, what: &str, is_wanted: impl Fn(&HopSnapshot) -> bool) -> HopSnapshot {
        let ledger = || ledger::waterfall(&self.weir.ledger()).to_string();
        let (socket, to, sent) = (&self.socket, &self.to, &mut self.sent);
        wait_for(
            || format!("{what}: {}", ledger()),
            || {
                for _ in 0..ROUND {
                    // A length that fills the disk and the queue before the deadline.
                    socket.send_to(format!("{sent:0500}").as_bytes(), to).unwrap();
                    *sent += 1;
                }
                self.weir.wait_for_rest_but_sinks(*sent);
                Some(history(&self.weir.ledger())).filter(&is_wanted)
            },
        )
    }
}

fn history(ledger: &Snapshot) -> HopSnapshot {
    hop(ledger, HopKind::Sink, "history").clone()
}

fn says(hop: &HopSnapshot, words: &str) -> bool {
    hop.trouble.as_ref().is_some_and(|trouble| trouble.what.contains(words))
}

fn number(folder: &Path, statement: &str) -> u64 {
    let limits = Limits { time: testkit::DEADLINE, ..Limits::default() };
    match Reader::open(folder).unwrap().ask(statement, limits).unwrap().rows[0][0] {
        Value::Integer(number) => number as u64,
        ref other => panic!("{other:?}"),
    }
}

/// Ends the daemon at rest, and compares its ledger with what is stored and with what the other sink has.
fn check(faulty: &Faulty, weir: Weir, sent: u64) {
    weir.wait_for(|ledger| ledger.hops.iter().all(|hop| hop.in_flight.is_zero()));
    let ended = weir.stop();
    assert_eq!((ended.code, ended.ledger.violations), (Some(0), 0), "{}", ended.said);
    let sink = history(&ended.ledger);
    assert!(sink.dropped_total().count > 0, "{}", ended.said);
    assert_eq!(sink.received.count, sink.delivered.count + sink.dropped_total().count);

    let stored = number(&faulty.folder(), "SELECT count(*) FROM datagrams");
    let different = number(&faulty.folder(), "SELECT count(DISTINCT payload) FROM datagrams");
    assert_eq!((stored, different), (sink.delivered.count, sink.delivered.count), "{}", ended.said);

    let other = hop(&ended.ledger, HopKind::Sink, "other");
    let received = ended.ledger.received_at(HopKind::Receive).count;
    assert_eq!((other.received.count, other.delivered.count), (received, received));
    let lines = fs::read_to_string(faulty.dir.file("other")).unwrap().lines().count() as u64;
    assert_eq!(lines, received);
    let dropped: Vec<_> =
        sink.dropped.iter().map(|one| (one.reason.label(), one.amount.count)).collect();
    say(&format!("{sent} sent, {received} received, {stored} stored, dropped {dropped:?}"));
}

#[test]
fn a_store_on_a_full_disk_loses_by_reason_and_goes_on_when_there_is_space() {
    let Some(faulty) = Faulty::new() else { return };
    let weir = Weir::run(&faulty.dir.file("weir.toml"));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut load = Load { weir: &weir, socket, to: faulty.listen.clone(), sent: 0 };
    load.send_until("rows", |hop| hop.delivered.count > ROUND);

    let ballast = faulty.disk.path().join("ballast");
    assert!(fs::write(&ballast, vec![0; 64 << 20]).is_err(), "48 MiB take 64");
    load.send_until("rows without room", |hop| hop.trouble.is_some() && !hop.dropped.is_empty());
    let full = history(&weir.ledger());
    assert!(says(&full, "full"), "{:?}", full.trouble);
    fs::remove_file(ballast).unwrap();
    let before = full.delivered.count;
    load.send_until("rows again", |hop| {
        hop.delivered.count > before + ROUND && hop.trouble.is_none()
    });
    let sent = load.sent;
    check(&faulty, weir, sent);
}

#[test]
fn a_store_on_a_read_only_disk_begins_when_it_can_be_written() {
    let Some(faulty) = Faulty::new() else { return };
    faulty.remount("ro");
    let weir = Weir::run(&faulty.dir.file("weir.toml"));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut load = Load { weir: &weir, socket, to: faulty.listen.clone(), sent: 0 };
    let read_only = load
        .send_until("rows without a store", |hop| hop.trouble.is_some() && !hop.dropped.is_empty());
    assert!(says(&read_only, "Read-only file system"), "{:?}", read_only.trouble);
    assert_eq!(read_only.delivered.count, 0);

    faulty.remount("rw");
    load.send_until("rows", |hop| hop.delivered.count > ROUND && hop.trouble.is_none());
    let sent = load.sent;
    check(&faulty, weir, sent);
}
