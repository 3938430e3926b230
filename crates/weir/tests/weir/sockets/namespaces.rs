//! Other network namespaces, and what remains without privilege.

use super::rig::{connect, output, records, said, sockets, text};
use crate::nobody::Nobody;
use ::sockets::helper::{Allowed, serve};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;
use sys::pass::Listener;
use sys::poll::EventFd;
use testkit::{Netns, Peer, need_root_netns, need_tool};

/// A listener in a namespace, for as long as it is held; returns its port.
fn listen_in(netns: &Netns) -> (Peer, u16) {
    const SCRIPT: &str = "import socket,sys; l=socket.create_server(('127.0.0.1',0)); print(l.getsockname()[1],flush=True); sys.stdin.read()";
    let mut command = netns.command("python3");
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut peer = Peer::start(&mut command);
    let mut line = String::new();
    BufReader::new(peer.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (peer, line.trim().parse().unwrap())
}

#[test]
fn three_namespaces_and_the_own_one() {
    if !need_root_netns() || !need_tool("python3") {
        return;
    }
    let namespaces: Vec<Netns> = (0..3).map(|_| Netns::new()).collect();
    let listeners: Vec<(Peer, u16)> = namespaces.iter().map(listen_in).collect();
    let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own_port = own.local_addr().unwrap().port();
    let found = records(sockets(&["--all-namespaces", "--listening", "--format", "jsonl"]));
    let port_in = |name: Option<&str>, port: u16| {
        let is_it = |record: &&serde_json::Value| {
            record["netns_name"].as_str() == name && record["src_port"] == port
        };
        found.iter().filter(is_it).count()
    };
    for (netns, (_, port)) in namespaces.iter().zip(&listeners) {
        assert_eq!(port_in(Some(&netns.name), *port), 1, "{}", netns.name);
    }
    let inode = fs::read_link("/proc/self/ns/net").unwrap();
    let is_own = |record: &&serde_json::Value| {
        record["src_port"] == own_port
            && inode.to_str() == Some(&format!("net:[{}]", record["netns_inode"]))
    };
    assert_eq!(found.iter().filter(is_own).count(), 1);
    // By name only those, and the table says which is which.
    let (one, other) = (&namespaces[0].name, &namespaces[2].name);
    let table = text(sockets(&["-l", "--namespace", one, "--namespace", other]));
    assert!(table.starts_with("NAMESPACE"), "{table}");
    assert_eq!(table.lines().count(), 3, "{table}");
    for (name, port) in [(one, listeners[0].1), (other, listeners[2].1)] {
        let line = table.lines().find(|line| line.starts_with(name.as_str())).unwrap();
        assert!(line.contains(&format!("127.0.0.1:{port} ")), "{table}");
    }
    // The filter knows namespaces too.
    let filtered = records(sockets(&["-A", "-l", "--format", "jsonl", &format!("netns = {one}")]));
    assert_eq!(filtered.len(), 1, "{filtered:?}");
}

#[test]
fn a_namespace_that_is_not_there_is_told() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let output = output(sockets(&["-l", "-N", &netns.name, "-N", "weir-no-such"]));
    assert_eq!(output.status.code(), Some(69), "{}", said(&output));
    assert_eq!(
        said(&output).matches("no network namespace weir-no-such").count(),
        1,
        "{}",
        said(&output)
    );
}

fn sockets_of(nobody: &Nobody, args: &[&str]) -> Command {
    let mut command = nobody.here();
    command.arg("sockets").args(args);
    command
}

#[test]
fn nobody_sees_the_own_namespace() {
    let Some(nobody) = Nobody::new() else { return };
    let connection = connect("127.0.0.1:0");
    let output = output(sockets_of(&nobody, &[&connection.filter(), "--format", "jsonl"]));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 2);
    assert_eq!(said(&output), "", "there is nothing to say");
    assert!(
        text(sockets_of(&nobody, &[&connection.filter()]))
            .contains(&connection.near_address().to_string())
    );
}

#[test]
fn nobody_is_told_once_which_capability_shows_more() {
    let Some(nobody) = Nobody::new() else { return };
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let connection = connect("127.0.0.1:0");
    let output = output(sockets_of(
        &nobody,
        &["-A", &connection.filter(), "--watch", "20ms", "--count", "3"],
    ));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(table.matches(&format!("{} ", connection.near_address())).count(), 6, "{table}");
    for text in ["this takes CAP_SYS_ADMIN", "without CAP_SYS_PTRACE"] {
        assert_eq!(said(&output).matches(text).count(), 1, "{text}: {}", said(&output));
    }
    // Asked for by name it is the answer that is missing.
    let named = self::output(sockets_of(&nobody, &["-N", &netns.name]));
    assert_eq!(named.status.code(), Some(77), "{}", said(&named));
}

#[test]
fn nobody_sees_every_namespace_through_the_helper() {
    let Some(nobody) = Nobody::new() else { return };
    if !need_root_netns() || !need_tool("python3") {
        return;
    }
    let netns = Netns::new();
    let (_peer, port) = listen_in(&netns);
    let path = nobody.dir.text("helper.sock");
    let listener = Listener::bind(&nobody.dir.file("helper.sock")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    // It serves until the process ends.
    let never = EventFd::new().unwrap();
    thread::spawn(move || serve(&listener, &Allowed { uids: vec![65_534] }, never.as_fd(), |_| {}));
    let args = ["-l", "-A", "--helper", &path, "--format", "jsonl"];
    let shown = output(sockets_of(&nobody, &args));
    assert!(
        !said(&shown).contains("CAP_SYS_PTRACE"),
        "the helper looks, and has it: {}",
        said(&shown)
    );
    let found = records(sockets_of(&nobody, &args));
    let is_it = |record: &&serde_json::Value| {
        record["netns_name"] == netns.name.as_str() && record["src_port"] == port
    };
    assert_eq!(found.iter().filter(is_it).count(), 1, "{found:?}");
}

#[test]
fn nobody_sees_who_holds_its_own_sockets_only() {
    let Some(nobody) = Nobody::new() else { return };
    let connection = connect("127.0.0.1:0");
    let output = output(sockets_of(&nobody, &[&connection.filter(), "--processes"]));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("without CAP_SYS_PTRACE"), "{}", said(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.lines().skip(1).all(|line| line.ends_with('-')), "{table}");
}

#[test]
fn nobody_follows_closes_of_the_own_namespace() {
    let Some(nobody) = Nobody::new() else { return };
    let mut command = sockets_of(&nobody, &["--closed", "--count", "1", "--format", "jsonl"]);
    let mut child = Peer::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    testkit::wait_for(
        || "no close was told of".to_owned(),
        || {
            drop(connect("127.0.0.1:0"));
            child.0.try_wait().unwrap()
        },
    );
    let output = String::from_utf8(
        std::io::read_to_string(child.0.stdout.take().unwrap()).unwrap().into_bytes(),
    );
    assert_eq!(output.unwrap().lines().count(), 1);
}
