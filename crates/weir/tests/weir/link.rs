//! From one Weir to another by a repaired link: the commands, the keys, the daemon.

use crate::support::{Generator, Place, Verifier, Weir, generate, hop};
use ledger::{Event, HopKind};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::TempDir;
use text::grouped;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A new key in a file.
pub(crate) fn key(folder: &TempDir, name: &str) -> PathBuf {
    let output = Command::new(WEIR).args(["hop", "key", name]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let path = folder.file(&format!("{name}.key"));
    fs::write(&path, &output.stdout).unwrap();
    path
}

/// A Weir that takes what has one of these keys.
fn far(keys: &Path, to: &str) -> Weir {
    let listen = format!("weir://127.0.0.1:0?name=in&keys={}", keys.display());
    Weir::relay(&["--listen", &listen, "--to", to])
}

fn near(key: &Path, far: &Weir) -> Weir {
    let address = far.listen().trim_start_matches("weir://");
    let to = format!("weir://{address}?name=far&bandwidth=1Gbit/s&key={}", key.display());
    Weir::tee(&Place::Here, &[to], &[])
}

/// The ledgers of both.
fn through(near: &Weir, far: &Weir) -> String {
    let url = |weir: &Weir| format!("http://{}", weir.admin);
    let mut weir = Command::new(WEIR);
    weir.args(["ledger", "--fail-on-loss", "--admin", &url(near), "--through", &url(far)]);
    let output = weir.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn what_one_weir_sends_another_has_to_the_datagram() {
    let folder = TempDir::new();
    let verifier =
        Verifier::start(&Place::Here, &["127.0.0.1:0"], &["--until-done", "--deadline", "60s"]);
    let key = key(&folder, "web-1");
    let far = far(&key, &verifier.listens[0]);
    let near = near(&key, &far);

    let load = ["--rate", "5000", "--count", "20000"];
    let generator = Generator::start(&Place::Here, near.listen(), &load);
    // Under load, too, what the ends say of different moments fits together.
    assert!(through(&near, &far).contains("both ends say the same"));
    let sent = generator.finish();
    let near_ledger = near.wait_for(|ledger| {
        let target = hop(ledger, HopKind::Target, "far");
        target.received.count == sent.all() && target.in_flight.is_zero()
    });
    let target = hop(&near_ledger, HopKind::Target, "far");
    assert_eq!(target.delivered.count, sent.all(), "{target:#?}");
    assert_eq!(target.events[&Event::Sessions], 1);
    far.wait_for_rest(sent.all());
    let text = through(&near, &far);
    let count = grouped(sent.all());
    assert!(
        text.contains(&format!("{count} accepted there\n  both ends say the same\n")),
        "{text}"
    );
    assert!(text.contains("lost on the whole way: nothing"), "{text}");
    // What the kernel dropped on the way was sent again and came later: order is the one thing not promised.
    let (_, report) = verifier.finish();
    let listener = &report["listeners"][0];
    assert_eq!(listener["counts"]["received"], sent.datagrams, "{listener:#}");
    for fault in ["duplicate", "corrupt", "truncated", "foreign"] {
        assert_eq!(listener["counts"][fault], 0, "{fault}: {listener:#}");
    }

    let page = near.page("/metrics", "text/plain");
    assert!(
        page.contains("weir_relay_target_link_round_trip_seconds{origin=\"in\",target=\"far\"}")
    );
    let (near, far) = (near.stop(), far.stop());
    assert_eq!((near.code, far.code), (Some(0), Some(0)), "{} {}", near.said, far.said);
}

#[test]
fn who_has_not_the_key_is_not_heard() {
    let folder = TempDir::new();
    let far = far(&key(&folder, "right"), "null:");
    let near = near(&key(&folder, "wrong"), &far);
    generate(&["--to", near.listen(), "--rate", "1000", "--count", "100"]);
    let ledger = far.wait_for(|ledger| {
        hop(ledger, HopKind::Receive, "").events.contains_key(&Event::StrangePackets)
    });
    let receive = hop(&ledger, HopKind::Receive, "");
    assert!(receive.received.is_zero() && !receive.events.contains_key(&Event::Sessions));
    far.stop();
    near.stop();
}

#[test]
fn what_is_wrong_with_a_key_is_said_before_anything_starts() {
    let folder = TempDir::new();
    let (right, other) = (key(&folder, "a"), key(&folder, "b"));
    let both = folder.file("both.key");
    fs::write(&both, [fs::read(&right).unwrap(), fs::read(&other).unwrap()].concat()).unwrap();
    let broken = folder.file("broken.key");
    fs::write(&broken, "a AAAA\n").unwrap();

    let check = |to: String, code: i32, wanted: &str| {
        let args = ["relay", "--listen", "127.0.0.1:0", "--to", &to];
        let output = Command::new(WEIR).args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{to}: {said}");
        assert!(said.contains(wanted), "{to}: {said}");
        let secret = fs::read_to_string(&right).unwrap();
        assert!(!said.contains(secret.split_whitespace().nth(1).unwrap()));
    };
    let at = |path: &Path| format!("weir://127.0.0.1:9?key={}", path.display());
    check("weir://127.0.0.1:9".to_owned(), 64, "weir hop key NAME");
    check(at(&folder.file("none.key")), 78, "weir hop key NAME");
    check(at(&broken), 78, "32 bytes in base64");
    check(at(&both), 78, "a sender has one");
}
