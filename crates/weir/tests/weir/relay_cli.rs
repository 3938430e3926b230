//! `weir relay` as its users meet it: what it forwards, what it says, and how it exits.

use crate::support::{WEIR, Weir, hop};
use ledger::{HopKind, Reason};
use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use testkit::{TempDir, free_port, receive, receiver, sender, signal};

/// Runs `weir` to its end, which must be an error; returns the exit code and what it said.
fn fails(args: &[&str]) -> (i32, String) {
    let output = Command::new(WEIR).args(args).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn check_failure(args: &[&str], code: i32, parts: &[&str]) {
    let (got, said) = fails(args);
    assert_eq!(got, code, "{args:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{args:?}: no {part:?} in {said}");
    }
}

#[test]
fn every_target_gets_every_datagram_and_the_last_ledger_says_so() {
    let (one, one_addr) = receiver();
    let (two, two_addr) = receiver();
    let folder = TempDir::new();
    let file = format!("file:{}", folder.text("new/copy.log"));
    let weir = Weir::relay(&[
        "--listen",
        "127.0.0.1:0",
        "--to",
        &one_addr,
        "--to",
        &two_addr,
        "--to",
        &file,
        "--to",
        "null:",
        "--fail-on-loss",
    ]);
    let sender = sender(weir.address());
    for n in 0..100 {
        sender.send(format!("line {n}").as_bytes()).unwrap();
    }
    for n in 0..100 {
        assert_eq!(receive(&one), format!("line {n}").into_bytes());
        assert_eq!(receive(&two), format!("line {n}").into_bytes());
    }
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.ledger.received_at(HopKind::Egress).count, 400);
    assert!(ended.said.contains("nothing lost\n"), "{}", ended.said);
    let written = std::fs::read_to_string(folder.file("new/copy.log")).unwrap();
    assert_eq!(written.lines().count(), 100);
}

#[test]
fn the_banner_is_short_and_tells_the_buffer_that_was_granted() {
    let weir = Weir::relay(&[
        "--listen",
        "127.0.0.1:0",
        "--to",
        "null:",
        "--receive-buffer",
        "1GiB",
        "--ring-size",
        "1MiB",
        "--schedule",
        "threaded",
    ]);
    let said = weir.stop().said;
    let banner: Vec<_> = said.lines().take_while(|line| !line.contains("INFO")).collect();
    assert!(banner.len() <= 8, "{said}");
    assert!(
        banner[1].contains("room for") && banner[1].contains("datagrams of 200 bytes"),
        "{said}"
    );
    assert!(said.contains("schedule threaded; rings of 1 MiB"), "{said}");
    if !banner[1].contains("receive buffer 1 GiB") {
        assert!(said.contains("Fix: sysctl -w net.core.rmem_max=536870912"), "{said}");
    }
}

#[test]
fn loss_fails_only_when_asked_to() {
    let nobody = format!("127.0.0.1:{}?name=nobody", free_port());
    for (flags, code) in [(&[][..], 0), (&["--fail-on-loss"][..], 1)] {
        let args = [&["--listen", "127.0.0.1:0", "--to", &nobody], flags].concat();
        let weir = Weir::relay(&args);
        let sender = sender(weir.address());
        for _ in 0..50 {
            sender.send(b"into nothing").unwrap();
        }
        weir.wait_for_rest(50);
        let ended = weir.stop();
        assert_eq!(ended.code, Some(code), "{}", ended.said);
        let refused: u64 = [HopKind::Target, HopKind::Egress]
            .iter()
            .map(|kind| hop(&ended.ledger, *kind, "nobody").dropped_for(Reason::Refused).count)
            .sum();
        assert_eq!(refused, 50, "{}", ended.said);
        assert!(ended.said.contains("nobody listens at the target"), "{}", ended.said);
    }
}

#[test]
fn options_ride_behind_a_question_mark() {
    let (socket, addr) = receiver();
    let to = format!("udp://{addr}?name=some&sample=4294967295&only_sources=10.0.0.0/8");
    let weir = Weir::relay(&["--listen", "127.0.0.1:0?name=in", "--to", &to]);
    sender(weir.address()).send(b"filtered").unwrap();
    weir.wait_for_rest(1);
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "some");
    assert_eq!(target.dropped_for(Reason::Filtered).count, 1, "{}", ended.said);
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 10]).is_err());
}

#[test]
fn mistakes_on_the_command_line_are_named_all_at_once() {
    check_failure(&["relay"], 64, &["--listen", "--to"]);
    check_failure(
        &["relay", "--listen", "127.0.0.1:99999", "--to", "nothing", "--to", "h:1?rate=5"],
        64,
        &[
            "99999",
            "it has no port. Fix: write for example nothing:514",
            "did you mean rate_limit?",
        ],
    );
    check_failure(
        &["relay", "--listen", ":5514", "--to", "null:", "--drain-grace", "5"],
        64,
        &["it has no unit"],
    );
}

#[test]
fn a_port_in_use_is_named_with_the_command_that_finds_its_owner() {
    let owner = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = owner.local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    check_failure(
        &["relay", "--listen", &listen, "--to", "null:"],
        69,
        &[&format!("cannot listen on udp://{listen}"), &format!("ss -ulpn 'sport = :{port}'")],
    );
    let admin = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let owner = TcpListener::bind(admin).unwrap();
    check_failure(
        &["relay", "--listen", "127.0.0.1:0", "--to", "null:", "--admin", &admin.to_string()],
        69,
        &[&format!("cannot serve HTTP on {admin}"), "ss -tlpn"],
    );
    drop(owner);
}

#[test]
fn an_address_of_another_host_cannot_be_listened_on() {
    check_failure(
        &["relay", "--listen", "192.0.2.1:5514", "--to", "null:"],
        69,
        &["192.0.2.1:5514", "no interface of this host has the address"],
    );
    check_failure(
        &["relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9?source_address=192.0.2.1"],
        69,
        &["192.0.2.1 is not an address of this host"],
    );
}

#[test]
fn a_target_that_is_one_of_our_listeners_is_refused() {
    let port = free_port();
    let (listen, to) = (format!("127.0.0.1:{port}"), format!("localhost:{port}"));
    check_failure(&["relay", "--listen", &listen, "--to", &listen], 64, &["come back for ever"]);
    check_failure(&["relay", "--listen", &listen, "--to", &to], 64, &["come back for ever"]);
    // A wildcard listener hears every address of this host.
    let (listen, to) = (format!("0.0.0.0:{port}"), format!("127.1.2.3:{port}"));
    check_failure(&["relay", "--listen", &listen, "--to", &to], 64, &["come back for ever"]);
}

#[test]
fn a_name_that_does_not_resolve_is_no_reason_not_to_start() {
    let (socket, addr) = receiver();
    let weir = Weir::relay(&[
        "--listen",
        "127.0.0.1:0",
        "--to",
        "no-such-host.invalid:514?name=lost",
        "--to",
        &addr,
    ]);
    sender(weir.address()).send(b"for the other one").unwrap();
    assert_eq!(receive(&socket), b"for the other one");
    weir.wait_for_rest(1);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let lost = hop(&ended.ledger, HopKind::Target, "lost");
    assert_eq!(lost.dropped_for(Reason::TargetUnresolved).count, 1, "{}", ended.said);
}

#[test]
fn a_hang_up_stops_a_relay_without_a_file() {
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", "null:"]);
    signal(weir.process(), "HUP");
    assert_eq!(weir.wait_to_end().code, Some(0));
}

#[test]
fn a_unix_listener_removes_its_socket_file() {
    let folder = TempDir::new();
    let listen = format!("unix:{}", folder.text("in.sock"));
    let (socket, addr) = receiver();
    let weir = Weir::relay(&["--listen", &listen, "--to", &addr]);
    let sender = std::os::unix::net::UnixDatagram::unbound().unwrap();
    sender.send_to(b"over unix", folder.file("in.sock")).unwrap();
    assert_eq!(receive(&socket), b"over unix");
    assert_eq!(weir.stop().code, Some(0));
    assert!(!folder.file("in.sock").exists());
}

#[test]
fn the_exit_code_stands_when_nobody_reads_the_last_ledger() {
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &dead, "--fail-on-loss"]);
    let sender = sender(weir.address());
    sender.send(b"to nobody").unwrap();
    weir.wait_for_rest(1);
    assert_eq!(weir.stop_unread(), Some(1));
}

#[test]
fn listeners_and_targets_stand_in_the_order_of_the_command_line() {
    let listeners = ["--listen", "127.0.0.1:0?name=z-in", "--listen", "127.0.0.1:0?name=in-a"];
    let targets = ["--to", "null:?name=new", "--to", "null:?name=archive", "--to", "null:?name=b"];
    let weir = Weir::relay(&[listeners.as_slice(), &targets].concat());
    let wanted = ["z-in new", "z-in archive", "z-in b", "in-a new", "in-a archive", "in-a b"];
    let targets = |ledger: &ledger::Snapshot| {
        let hops = ledger.hops.iter().filter(|hop| hop.hop == ledger::HopKind::Target);
        let names = hops.map(|hop| format!("{} {}", hop.origin, hop.target.as_deref().unwrap()));
        names.collect::<Vec<_>>()
    };
    assert_eq!(targets(&weir.ledger()), wanted);
    assert_eq!(targets(&weir.stop().ledger), wanted);
}
