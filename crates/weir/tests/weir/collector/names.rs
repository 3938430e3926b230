//! A sink whose name has no address at first.

use super::{Connection, assert_law, wait_for_polls, write};
use crate::support::{WEIR, Weir, hop};
use ledger::{HopKind, Reason};
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use testkit::{DEADLINE, TempDir, need_root_netns};

#[test]
fn a_sink_begins_when_its_name_has_an_address() {
    if !need_root_netns() {
        return;
    }
    let (dir, connection) = (TempDir::new(), Connection::new());
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(DEADLINE)).unwrap();
    let port = receiver.local_addr().unwrap().port();
    fs::write(dir.file("hosts"), "").unwrap();
    let sink = format!("name = \"later\"\nto = \"udp://later.test:{port}\"");
    let keys = format!("namespaces = \"own\"\nfilter = \"dport = :{}\"", connection.port);
    let config = write(&dir, &keys, &[&sink]);
    // A process whose /etc/hosts is that file.
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$0\" /etc/hosts; exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, &dir.text("hosts"), WEIR, "run", "-c"]);
    let weir = Weir::start({
        command.arg(&config);
        command
    });
    wait_for_polls(&weir, 2);
    fs::write(dir.file("hosts"), "127.0.0.1 later.test\n").unwrap();
    let mut buffer = vec![0; 65_536];
    let len = receiver.recv(&mut buffer).expect("a datagram arrives");
    assert!(record::decode_datagram(&buffer[..len]).is_ok());
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_law(&ended, &["later"]);
    let later = hop(&ended.ledger, HopKind::Sink, "later");
    assert!(later.dropped_for(Reason::TargetUnresolved).count >= 2 && later.delivered.count > 0);
    assert!(ended.said.contains("sink later: sending to 127.0.0.1:"), "{}", ended.said);
}
