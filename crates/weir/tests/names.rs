//! Targets by host name: the address changes, goes away and comes back while datagrams flow.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic as the test does")]

mod support;

use ledger::{HopKind, Reason};
use std::net::UdpSocket;
use std::process::Command;
use support::need_root_netns;
use support::process::{TempDir, WEIR, Weir, free_port, hop, receive, sender, wait_for};

/// A process whose /etc/hosts is this file.
fn with_hosts(hosts: &str, args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$0\" /etc/hosts; exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, hosts, WEIR]).args(args);
    command
}

fn receiver_at(host: &str, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((host, port)).unwrap();
    socket.set_read_timeout(Some(support::process::DEADLINE)).unwrap();
    socket
}

#[test]
fn a_target_follows_its_name() {
    if !need_root_netns() {
        return;
    }
    let folder = TempDir::new();
    let port = free_port();
    let (first, second) = (receiver_at("127.0.0.1", port), receiver_at("127.0.0.2", port));
    let hosts = |text: &str| std::fs::write(folder.file("hosts"), text).unwrap();
    hosts("127.0.0.1 collector.test\n");
    let to = format!("collector.test:{port}?name=out&resolve_interval=1s");
    let later = format!("later.test:{port}?name=later&resolve_interval=1s");
    let args =
        ["relay", "--progress", "off", "--listen", "127.0.0.1:0", "--to", &to, "--to", &later];
    let weir = Weir::start(with_hosts(&folder.text("hosts"), &args));
    let sender = sender(weir.address());
    // The first datagram already: the start has waited for the name.
    sender.send(b"1").unwrap();
    assert_eq!(receive(&first), b"1");
    let is_dropped = |count: u64| {
        weir.wait_for(|ledger| {
            let later = hop(ledger, HopKind::Target, "later");
            later.dropped_for(Reason::TargetUnresolved).count == count
        })
    };
    is_dropped(1);
    // The name is gone, and with it no datagram: the last good address stays.
    hosts("");
    sender.send(b"2").unwrap();
    assert_eq!(receive(&first), b"2");
    hosts("127.0.0.2 collector.test later.test\n");
    second.set_nonblocking(true).unwrap();
    let moved = wait_for(
        || "the target has not moved".to_owned(),
        || {
            sender.send(b"3").unwrap();
            let mut buffer = [0; 8];
            second.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())
        },
    );
    assert_eq!(moved, b"3");
    weir.wait_for(|ledger| {
        sender.send(b"4").unwrap();
        !hop(ledger, HopKind::Egress, "later").delivered.is_zero()
    });
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(hop(&ended.ledger, HopKind::Target, "out").dropped.is_empty(), "{}", ended.said);
    let said = format!("target out: sending to 127.0.0.2:{port}, before 127.0.0.1:{port}");
    assert!(ended.said.contains(&said), "{}", ended.said);
    let failures = ended.said.matches("cannot resolve later.test").count();
    assert_eq!(failures, 1, "at most once a minute: {}", ended.said);
}
