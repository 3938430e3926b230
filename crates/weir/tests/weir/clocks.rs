//! Weirs whose wall clocks are wrong, or are set while they run. The monotonic clock is the real one.

use crate::link::key;
use crate::support::{Generator, Place, Verifier, Weir, hop};
use ledger::{HopKind, Reason};
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::{TempDir, find_tool, need_tool};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// `weir relay` with a wall clock that is off by what a file says.
fn relay(clock: &Path, args: &[&str]) -> Weir {
    let mut command = Command::new(find_tool("weir-clock").unwrap());
    command.env("FAKETIME_TIMESTAMP_FILE", clock).env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command.args([WEIR, "relay", "--progress", "off"]).args(args);
    Weir::start(command)
}

/// A clock that is off by so many hours.
fn clock(folder: &TempDir, name: &str, hours: i32) -> std::path::PathBuf {
    let path = folder.file(name);
    set(&path, hours);
    path
}

/// Sets a clock, for whoever reads it at any moment.
fn set(clock: &Path, hours: i32) {
    let beside = clock.with_extension("new");
    fs::write(&beside, format!("{hours:+}h\n")).unwrap();
    fs::rename(&beside, clock).unwrap();
}

fn link(to: &str, key: &Path, deadline: &str) -> String {
    let address = to.trim_start_matches("weir://");
    format!("weir://{address}?name=far&bandwidth=1Gbit/s&deadline={deadline}&key={}", key.display())
}

#[test]
fn a_chain_of_three_with_clocks_an_hour_apart_delivers_all() {
    if !need_tool("weir-clock") {
        return;
    }
    let folder = TempDir::new();
    let key = key(&folder, "web-1");
    let verifier =
        Verifier::start(&Place::Here, &["127.0.0.1:0"], &["--until-done", "--deadline", "60s"]);
    let listen = format!("weir://127.0.0.1:0?name=in&keys={}", key.display());
    let third =
        relay(&clock(&folder, "third", 1), &["--listen", &listen, "--to", &verifier.listens[0]]);
    let second = relay(
        &clock(&folder, "second", 0),
        &["--listen", &listen, "--to", &link(third.listen(), &key, "20s")],
    );
    let first = relay(
        &clock(&folder, "first", -1),
        &["--listen", "127.0.0.1:0?name=in", "--to", &link(second.listen(), &key, "20s")],
    );

    let load = ["--rate", "2000", "--count", "4000"];
    let sent = Generator::start(&Place::Here, first.listen(), &load).finish();
    for weir in [&first, &second] {
        let ledger = weir.wait_for(|ledger| {
            let target = hop(ledger, HopKind::Target, "far");
            target.received.count == sent.all() && target.in_flight.is_zero()
        });
        let target = hop(&ledger, HopKind::Target, "far");
        assert_eq!(target.delivered.count, sent.all(), "{target:#?}");
    }
    let (_, report) = verifier.finish();
    assert_eq!(report["listeners"][0]["counts"]["received"], sent.datagrams, "{report:#}");
    let codes = [first, second, third].map(|weir| weir.stop().code);
    assert_eq!(codes, [Some(0); 3]);
}

/// Fills a ring for a Weir that does not answer yet, sets the clock, and lets it answer.
fn check_step(hours: i32) {
    let folder = TempDir::new();
    let key = key(&folder, "web-1");
    let verifier =
        Verifier::start(&Place::Here, &["127.0.0.1:0"], &["--until-done", "--deadline", "60s"]);
    let listen = format!("weir://127.0.0.1:0?name=in&keys={}", key.display());
    let far = Weir::relay(&["--listen", &listen, "--to", &verifier.listens[0]]);
    let address = far.listen().to_owned();
    far.stop();

    let clock = clock(&folder, "near", 0);
    let to = link(&address, &key, "50s");
    let near = relay(&clock, &["--listen", "127.0.0.1:0?name=in", "--to", &to]);
    let load = ["--rate", "5000", "--count", "2000"];
    let sent = Generator::start(&Place::Here, near.listen(), &load).finish();
    near.wait_for(|ledger| hop(ledger, HopKind::Target, "far").in_flight.count == sent.all());
    set(&clock, hours);

    let listen = format!("{address}?name=in&keys={}", key.display());
    let far = Weir::relay(&["--listen", &listen, "--to", &verifier.listens[0]]);
    let ledger = near.wait_for(|ledger| hop(ledger, HopKind::Target, "far").in_flight.is_zero());
    let target = hop(&ledger, HopKind::Target, "far");
    assert_eq!(target.delivered.count, sent.all(), "{hours}: {target:#?}");
    let (_, report) = verifier.finish();
    assert_eq!(report["listeners"][0]["counts"]["received"], sent.datagrams, "{report:#}");
    near.stop();
    far.stop();
}

#[test]
fn a_clock_that_is_set_forward_with_a_full_ring_loses_nothing() {
    if need_tool("weir-clock") {
        check_step(1);
    }
}

#[test]
fn a_clock_that_is_set_back_with_a_full_ring_loses_nothing_and_keeps_nothing_longer() {
    if !need_tool("weir-clock") {
        return;
    }
    check_step(-1);

    let folder = TempDir::new();
    let (key, clock) = (key(&folder, "web-1"), clock(&folder, "near", 0));
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = link(&nobody.local_addr().unwrap().to_string(), &key, "2s");
    let near = relay(&clock, &["--listen", "127.0.0.1:0?name=in", "--to", &to]);
    let load = ["--rate", "5000", "--count", "1000"];
    let sent = Generator::start(&Place::Here, near.listen(), &load).finish();
    set(&clock, -1);
    near.wait_for(|ledger| {
        hop(ledger, HopKind::Target, "far").dropped_for(Reason::Expired).count == sent.all()
    });
    near.stop();
}
