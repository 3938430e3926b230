//! What the collector sees without privilege, and with the helper that has it.

use super::{Connection, assert_law, listen_in, wait_for_polls, wait_for_record, write};
use crate::nobody::NOBODY;
use crate::support::{WEIR, Weir};
use sockets::helper::{Allowed, serve};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::thread;
use sys::pass::Listener;
use sys::poll::EventFd;
use testkit::{Netns, Peer, TempDir, find_tool, need_root, need_root_netns, need_tool, run};

/// The daemon as a user without any capability, with a folder `work` of its own.
fn as_nobody(dir: &TempDir, config: &Path) -> Weir {
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Not by this process: another test's child would hold the copy open for writing, and it could not be run.
    run(Command::new("cp").arg(WEIR).arg(dir.file("weir")));
    fs::create_dir(dir.file("work")).unwrap();
    chown(dir.file("work"), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = Command::new(find_tool("setpriv").unwrap());
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--"]);
    command.arg(dir.file("weir")).current_dir(dir.file("work")).env_clear();
    command.args(["run", "-c"]).arg(config);
    Weir::start(command)
}

fn can_become_nobody() -> bool {
    need_root_netns() && need_root("becoming another user") && need_tool("setpriv")
}

#[test]
fn nobody_collects_the_own_namespace_and_is_told_what_is_missing() {
    if !can_become_nobody() {
        return;
    }
    let (dir, netns, connection) = (TempDir::new(), Netns::new(), Connection::new());
    let mut inside = listen_in(&netns);
    let weir = as_nobody(&dir, &write(&dir, "", &["name = \"disk\"\nto = \"file:out.jsonl\""]));
    wait_for_record(&dir.file("work/out.jsonl"), "a connection of the own namespace", |record| {
        record["dst_port"] == connection.port
    });
    wait_for_polls(&weir, 3);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    for capability in ["CAP_SYS_ADMIN", "CAP_NET_BROADCAST"] {
        assert_eq!(ended.said.matches(capability).count(), 1, "told once: {}", ended.said);
    }
    assert_law(&ended, &["disk"]);
    inside.terminate();
}

#[test]
fn nobody_collects_every_namespace_through_the_helper() {
    if !can_become_nobody() {
        return;
    }
    let (dir, netns) = (TempDir::new(), Netns::new());
    let mut inside = listen_in(&netns);
    let listener = Listener::bind(&dir.file("helper.sock")).unwrap();
    fs::set_permissions(dir.file("helper.sock"), fs::Permissions::from_mode(0o666)).unwrap();
    // It serves until the process ends.
    thread::spawn(move || {
        let never = EventFd::new().unwrap();
        serve(&listener, &Allowed { uids: vec![NOBODY] }, never.as_fd(), |_| {})
    });
    let keys = format!(
        "states = [\"listening\"]\nlisten_every = 1\nhelper = \"{}\"",
        dir.text("helper.sock")
    );
    let weir = as_nobody(&dir, &write(&dir, &keys, &["name = \"disk\"\nto = \"file:out.jsonl\""]));
    let record = wait_for_record(&dir.file("work/out.jsonl"), "the listener inside", |record| {
        record["netns_name"] == netns.name.as_str() && record["src_port"] == 9_464
    });
    assert_eq!(record["state"], "listen", "{record}");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(!ended.said.contains("CAP_SYS_ADMIN"), "{}", ended.said);
    assert_law(&ended, &["disk"]);
    inside.terminate();
}

#[test]
fn a_helper_that_is_not_there_is_told_once_and_found_when_it_comes() {
    if !can_become_nobody() {
        return;
    }
    let (dir, netns, connection) = (TempDir::new(), Netns::new(), Connection::new());
    let mut inside = listen_in(&netns);
    let path = dir.text("helper.sock");
    let keys = format!("states = [\"all\"]\nlisten_every = 1\nhelper = \"{path}\"");
    let weir = as_nobody(&dir, &write(&dir, &keys, &["name = \"disk\"\nto = \"file:out.jsonl\""]));
    let out = dir.file("work/out.jsonl");
    wait_for_record(&out, "a connection of the own namespace", |record| {
        record["dst_port"] == connection.port
    });
    wait_for_polls(&weir, 3);
    let args = ["namespace-helper", "--listen", &path, "--allow-user", "65534", "--mode", "666"];
    let mut helper = Peer::start(Command::new(WEIR).args(args));
    wait_for_record(&out, "the listener inside", |record| {
        record["netns_name"] == netns.name.as_str() && record["src_port"] == 9_464
    });
    let url = "http://127.0.0.1:9464";
    run(netns.command(WEIR).args(["ledger", "--admin", url]));
    wait_for_record(&out, "a close inside", |record| {
        record["netns_name"] == netns.name.as_str() && record["record_kind"] == "close"
    });
    assert!(helper.terminate().success());
    wait_for_polls(&weir, 6);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.said.matches("is not there").count(), 1, "told once: {}", ended.said);
    assert_law(&ended, &["disk"]);
    inside.terminate();
}
