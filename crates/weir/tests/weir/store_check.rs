//! `weir sink check` for a store: it does what the daemon would, and leaves nothing in the history.

use crate::nobody::Nobody;
use crate::support::{WEIR, Weir};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use store::{Limits, Reader};
use testkit::{TempDir, wait_for};

/// A configuration with a store, in the folder `history` of this one.
fn config(dir: &Path) -> PathBuf {
    let path = dir.join("weir.toml");
    let text = format!(
        "[sockets]\ninterval = \"100ms\"\nnamespaces = \"own\"\n[[sink]]\nfrom = [\"sockets\"]\nname = \"history\"\nto = \"store:{}\"\nbatch_age = \"50ms\"\n",
        dir.join("history").display()
    );
    fs::write(&path, text).unwrap();
    path
}

fn check(mut command: Command, config: &Path) -> (Option<i32>, String) {
    command.args(["sink", "check", "--json", "-c"]).arg(config);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
    (status.code(), text)
}

/// It fails with this code, says what is wrong, and what fixes it.
#[track_caller]
fn fails(command: Command, config: &Path, code: i32, wrong: &str, fix: &str) {
    let (found, text) = check(command, config);
    assert_eq!(found, Some(code), "{text}");
    let result: Value = serde_json::from_str(&text).unwrap();
    let steps = result["steps"].as_array().unwrap();
    let failed = steps.iter().find(|step| step["ok"] == false).unwrap();
    let says = failed["says"].as_str().unwrap();
    assert!(says.contains(wrong) && !says.contains("Fix:"), "{text}");
    assert!(failed["fix"].as_str().unwrap().contains(fix), "{text}");
}

/// How many rows and segments there are.
fn rows(folder: &Path) -> String {
    let counts = "SELECT (SELECT count(*) FROM sockets), (SELECT count(*) FROM segments),
        (SELECT count(*) FROM sockets_minute), (SELECT count(*) FROM closes), (SELECT count(*) FROM ledger)";
    format!("{:?}", Reader::open(folder).unwrap().ask(counts, Limits::default()).unwrap().rows)
}

#[test]
fn a_test_record_is_taken_back() {
    let dir = TempDir::new();
    let (config, folder) = (config(dir.path()), dir.file("history"));
    let (code, text) = check(Command::new(WEIR), &config);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("taken back"), "{text}");
    assert_eq!(rows(&folder), format!("{:?}", [vec![store::Value::Integer(0); 5]]));

    // Nor is what a daemon has kept changed; while it runs, the store is its own.
    let weir = Weir::run(&config);
    wait_for("a row", || {
        Reader::open(&folder).ok().filter(|_| rows(&folder).contains("Integer(1)"))
    });
    fails(Command::new(WEIR), &config, 69, "is written by another process", "ask it: weir ledger");
    weir.stop();
    let before = rows(&folder);
    let (code, text) = check(Command::new(WEIR), &config);
    assert_eq!((code, rows(&folder)), (Some(0), before), "{text}");
}

#[test]
fn a_store_of_a_newer_version_and_a_database_of_another_program_are_named() {
    let dir = TempDir::new();
    let (config, path) = (config(dir.path()), dir.file("history/history.sqlite"));
    assert_eq!(check(Command::new(WEIR), &config).0, Some(0));
    let store = fs::read(&path).unwrap();

    // Where SQLite keeps user_version and application_id: https://www.sqlite.org/fileformat.html, section 1.3.
    let changed = |at: usize, wrong: &str, fix: &str| {
        let mut bytes = store.clone();
        bytes[at + 3] = 99;
        fs::write(&path, &bytes).unwrap();
        fails(Command::new(WEIR), &config, 69, wrong, fix);
        assert!(fs::read(&path).unwrap() == bytes, "it was changed");
    };
    changed(60, "has version 99 of the store", "use the Weir that wrote it");
    changed(68, "is a database, and not a store", "another folder");
}

#[test]
fn a_folder_that_this_user_may_not_write_to_is_named() {
    let Some(nobody) = Nobody::new() else { return };
    let config = config(nobody.dir.path());
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    fails(nobody.here(), &config, 77, "Permission denied", "can be written: ls -ld");
}
