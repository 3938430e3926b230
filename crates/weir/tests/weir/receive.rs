//! Listeners that receive datagrams together: the daemon, with the privilege, with a helper, and with neither.

use crate::namespace_helper::Helper;
use crate::nobody::Nobody;
use crate::support::{Ended, Namespace, Weir};
use ledger::{Accounting, HopKind, Snapshot};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use sys::send::{Message, send_messages};
use testkit::{need_root, need_root_netns};

/// Messages of a flood, each of which has so many datagrams of so many bytes.
const MESSAGES: u64 = 5_000;
const SEGMENTS: u64 = 32;
const SEGMENT_BYTES: u16 = 200;
const DATAGRAMS: u64 = MESSAGES * SEGMENTS;

/// A buffer that a flood overruns.
const BUFFER: &str = "receive_buffer=256KiB";

/// Sends more than anybody reads.
fn flood(sender: &UdpSocket) {
    let bytes = vec![7; usize::from(SEGMENT_BYTES) * SEGMENTS as usize];
    for _ in 0..MESSAGES {
        let message = [Message::run(&bytes, SEGMENT_BYTES)];
        assert_eq!(send_messages(sender.as_fd(), &message), Ok(1));
    }
}

fn flood_here(addr: SocketAddr) {
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(addr).unwrap();
    flood(&sender);
}

fn wait_for_all(weir: &Weir, datagrams: u64) {
    let received = |ledger: &Snapshot| ledger.received_at(HopKind::Socket).count;
    let ledger = weir.wait_for(|ledger| received(ledger) >= datagrams);
    assert_eq!(received(&ledger), datagrams);
}

/// Everything that was sent is in the ledger, and some of it was lost.
fn check_exact(ended: &Ended, datagrams: u64) {
    let socket = ended.hop(HopKind::Socket, None);
    assert_eq!((socket.received.count, socket.accounting), (datagrams, Accounting::Exact));
    assert!(socket.delivered.count < datagrams, "no flood: {}", ended.said);
}

#[test]
fn a_flood_over_a_wire_is_counted_to_the_datagram() {
    if !need_root_netns() {
        return;
    }
    let (here, far) = (Namespace::new(), Namespace::new());
    here.connect(&far);
    let listen = format!("10.99.0.1:0?name=in&receive=gro&{BUFFER}&sockets=2");
    let weir = Weir::relay_at(here.place(), &["--listen", &listen, "--to", "null:"]);

    let sender = far.inside(|| UdpSocket::bind("10.99.0.2:0").unwrap());
    sender.connect(weir.address()).unwrap();
    flood(&sender);
    // Single ones between them, of which the kernel makes no aggregate.
    for _ in 0..1_000 {
        sender.send(b"single").unwrap();
    }
    wait_for_all(&weir, DATAGRAMS + 1_000);
    flood(&sender);
    wait_for_all(&weir, 2 * DATAGRAMS + 1_000);
    let ended = weir.stop();
    check_exact(&ended, 2 * DATAGRAMS + 1_000);
    // Neither fewer figures nor single datagrams: it would have said so.
    for part in ["only a lower bound is counted", "received alone"] {
        assert!(!ended.said.contains(part), "{}", ended.said);
    }
}

#[test]
fn a_reload_leaves_the_socket_as_it_is_and_says_so() {
    if !need_root("counting datagrams in the kernel (CAP_BPF)") {
        return;
    }
    let folder = testkit::TempDir::new();
    let path = folder.file("weir.toml");
    let write = |more: &str| {
        let text = format!(
            "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\nreceive_buffer = \"256KiB\"\n{more}[[listener.target]]\nto = \"null:\"\n"
        );
        std::fs::write(&path, text).unwrap();
    };

    write("receive = \"auto\"\n");
    let weir = Weir::run(&path);
    flood_here(weir.address());
    wait_for_all(&weir, DATAGRAMS);
    write("receive = \"single\"\nring_size = \"16MiB\"\n");
    weir.process.signal("HUP");
    weir.wait_for_line("receive takes effect at the next start");
    weir.wait_for_line("reloaded: ");
    flood_here(weir.address());
    wait_for_all(&weir, 2 * DATAGRAMS);
    let ended = weir.stop();
    assert!(ended.ledger.losses().iter().all(|loss| loss.hop.accounting == Accounting::Exact));
}

#[test]
fn without_the_privilege_it_says_what_is_not_known_and_what_helps() {
    let Some(nobody) = Nobody::new() else { return };
    let start = |mode: &str| {
        let mut command = nobody.here();
        let listen = format!("127.0.0.1:0?name=in&receive={mode}&{BUFFER}");
        command.args(["relay", "--progress", "off", "--listen", &listen, "--to", "null:"]);
        Weir::start(command)
    };

    let weir = start("gro");
    flood_here(weir.address());
    let ended = weir.stop();
    let socket = ended.hop(HopKind::Socket, None);
    assert_eq!(socket.accounting, Accounting::AtLeast, "{}", ended.said);
    assert!(socket.received.count < DATAGRAMS, "{}", ended.said);
    for part in [
        "listener in: ",
        "only a lower bound is counted",
        "CAP_BPF",
        "Fix: setcap cap_bpf=+ep /",
        "(at least)",
    ] {
        assert!(ended.said.contains(part), "{part}: {}", ended.said);
    }

    let weir = start("auto");
    flood_here(weir.address());
    wait_for_all(&weir, DATAGRAMS);
    let ended = weir.stop();
    check_exact(&ended, DATAGRAMS);
    assert!(ended.said.contains("each datagram is received alone"), "{}", ended.said);
}

#[test]
fn with_a_helper_nobody_counts_to_the_datagram() {
    let Some(nobody) = Nobody::new() else { return };
    let helper = Helper::start(&nobody.dir);
    let path = nobody.work().join("weir.toml");
    let text = format!(
        "[daemon]\nhelper = \"{}\"\n[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\nreceive = \"gro\"\nreceive_buffer = \"256KiB\"\nsockets = 3\n\
         [[listener.target]]\nto = \"null:\"\n",
        helper.path.display()
    );
    std::fs::write(&path, text).unwrap();
    let mut command = nobody.here();
    command.args(["run", "-c"]).arg(&path);
    let weir = Weir::start(command);
    flood_here(weir.address());
    wait_for_all(&weir, DATAGRAMS);
    // What it was given is its own.
    helper.stop();
    flood_here(weir.address());
    wait_for_all(&weir, 2 * DATAGRAMS);
    check_exact(&weir.stop(), 2 * DATAGRAMS);
}
