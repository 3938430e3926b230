//! Targets that say in each datagram who sent it, listeners that believe it, and other people's code that judges both.

use crate::preserve_source::Rig;
use crate::support::{Weir, hop};
use ledger::{Event, HopKind, Reason};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use testkit::{DEADLINE, find_tool, need_python_module};

fn receiver() -> UdpSocket {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(DEADLINE)).unwrap();
    receiver
}

fn sender(weir: &Weir) -> UdpSocket {
    let ip = if weir.address().is_ipv4() { "127.0.0.1" } else { "::1" };
    let sender = UdpSocket::bind((ip, 0)).unwrap();
    sender.connect(weir.address()).unwrap();
    sender
}

fn saying(header: &str, to: SocketAddr) -> String {
    format!("{to}?name=said&header={header}")
}

fn take(receiver: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65_535];
    let (len, from) = receiver.recv_from(&mut buffer).unwrap();
    buffer.truncate(len);
    (buffer, from)
}

fn python(script: &str, argument: &str) -> String {
    let mut python = Command::new(find_tool("weir-python").unwrap());
    let output = python.args(["-c", script, argument]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[track_caller]
fn check_header_is_read_by_others(listen: &str) {
    if !need_python_module("proxyprotocol") {
        return;
    }
    let receiver = receiver();
    let target = saying("proxy-v2", receiver.local_addr().unwrap());
    let weir = Weir::relay(&["--listen", listen, "--to", &target]);
    let sender = sender(&weir);
    sender.send(b"text").unwrap();

    let hex: String = take(&receiver).0.iter().map(|byte| format!("{byte:02x}")).collect();
    let (from, to) = (sender.local_addr().unwrap(), weir.address());
    let wanted = format!("SOCK_DGRAM {} {} {} {} text", from.ip(), from.port(), to.ip(), to.port());
    assert_eq!(python(include_str!("said_source/read.py"), &hex), wanted);
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "said");
    // The ledger counts what was received: the header is not a part of it.
    assert_eq!((target.delivered.count, target.delivered.bytes), (1, 4));
    assert_eq!(target.event(Event::WithoutSource), 0);
}

#[test]
fn a_proxy_header_is_read_by_others_over_ipv4() {
    check_header_is_read_by_others("127.0.0.1:0?name=in");
}

#[test]
fn a_proxy_header_is_read_by_others_over_ipv6() {
    check_header_is_read_by_others("[::1]:0?name=in");
}

#[test]
fn a_header_that_others_write_is_taken_off() {
    if !need_python_module("proxyprotocol") {
        return;
    }
    let receiver = receiver();
    let weir = Weir::relay(&[
        "--listen",
        "127.0.0.1:0?name=in&trust_header_from=127.0.0.0/8&allow_sources=10.1.2.3",
        "--to",
        &saying("syslog-origin", receiver.local_addr().unwrap()),
    ]);
    let hex = python(include_str!("said_source/write.py"), "");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let header: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    assert!(header.len() > 28, "with an extension");

    sender(&weir).send(&[&header[..], b"<13>1 - host app - - - text"].concat()).unwrap();
    let message = take(&receiver).0;
    assert_eq!(message, b"<13>1 - host app - - [origin ip=\"10.1.2.3\"] text");
    assert_eq!(weir.stop().code, Some(0));
}

#[test]
fn a_header_is_believed_from_those_who_are_trusted_alone() {
    let receiver = receiver();
    let target = format!("{}?name=plain", receiver.local_addr().unwrap());
    let listen = "127.0.0.1:0?name=in&trust_header_from=127.0.0.9";
    let weir = Weir::relay(&["--listen", listen, "--to", &target]);
    let trusted = UdpSocket::bind("127.0.0.9:0").unwrap();
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

    // From others every byte passes.
    let as_others = [&local[..], b"not taken off"].concat();
    sender(&weir).send(&as_others).unwrap();
    assert_eq!(take(&receiver).0, as_others);

    // Without a whole header it is dropped; an empty datagram behind one is an empty datagram.
    for bad in [&b""[..], b"no header", &local[..15], b"PROXY UDP4 1.2.3.4"] {
        trusted.send_to(bad, weir.address()).unwrap();
    }
    for good in [&b"text"[..], b"", &[7; 9_000], &[7; 60_000]] {
        trusted.send_to(&[local, good].concat(), weir.address()).unwrap();
        assert_eq!(take(&receiver).0, good);
    }

    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let receive = hop(&ended.ledger, HopKind::Receive, "");
    assert_eq!(receive.dropped_for(Reason::BadHeader).count, 4);
    let plain = hop(&ended.ledger, HopKind::Target, "plain");
    let bytes = (as_others.len() + 4 + 9_000 + 60_000) as u64;
    assert_eq!((plain.delivered.count, plain.delivered.bytes), (5, bytes));
}

#[test]
fn what_a_header_makes_too_long_is_counted() {
    let receiver = receiver();
    let target = saying("proxy-v2", receiver.local_addr().unwrap());
    let weir = Weir::relay(&["--listen", "127.0.0.1:0?name=in", "--to", &target]);
    let sender = sender(&weir);
    // With 28 bytes of header 65,507 is the largest.
    for len in [65_479, 65_480, 65_507, 10] {
        sender.send(&vec![7; len]).unwrap();
    }
    assert_eq!(take(&receiver).0.len(), 65_507);
    assert_eq!(take(&receiver).0.len(), 38);
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "said");
    assert_eq!((target.delivered.count, target.dropped_for(Reason::TooBig).count), (2, 2));
}

#[test]
fn messages_without_a_place_for_their_sender_leave_as_they_are_and_are_counted() {
    let receiver = receiver();
    let target = saying("syslog-origin", receiver.local_addr().unwrap());
    let weir = Weir::relay(&["--listen", "127.0.0.1:0?name=in", "--to", &target]);
    let sender = sender(&weir);
    for (sent, wanted) in [
        ("<13>1 - h a - - - t", "<13>1 - h a - - [origin ip=\"127.0.0.1\"] t"),
        ("<13>Oct 11 22:14:15 h a: t", "<13>Oct 11 22:14:15 127.0.0.1 a: t"),
        ("no syslog", "no syslog"),
    ] {
        sender.send(sent.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(take(&receiver).0).unwrap(), wanted);
    }
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "said");
    assert_eq!((target.delivered.count, target.event(Event::WithoutSource)), (3, 1));
}

/// Sender, a relay that says who sent it, a relay that believes it and sends from there, collector.
#[track_caller]
fn check_two_relays(senders: [IpAddr; 2], listen: &str, between: &str, collector: &str) {
    let Some(rig) = Rig::new() else { return };
    let receiver = rig.receiver(collector);
    let last = rig.relay(
        &format!("{between}:0?name=in&trust_header_from={}", between.trim_matches(['[', ']'])),
        &[format!("{}?name=kept&preserve_source=address+port", receiver.local_addr().unwrap())],
    );
    let first = rig.relay(listen, &[saying("proxy-v2", last.address())]);

    let sockets = senders.map(|ip| rig.sender(ip, &first));
    for bytes in [0, 1, 200, 1_472, 9_000, 60_000] {
        for socket in &sockets {
            socket.send(&vec![7; bytes]).unwrap();
            let (got, from) = take(&receiver);
            assert_eq!((got.len(), from), (bytes, socket.local_addr().unwrap()));
        }
    }
    for (weir, name) in [(first, "said"), (last, "kept")] {
        let ended = weir.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        let target = hop(&ended.ledger, HopKind::Target, name);
        assert_eq!((target.delivered.count, target.event(Event::WithoutSource)), (12, 0));
    }
}

#[test]
fn two_relays_in_a_row_keep_an_ipv4_sender() {
    let senders = [[10, 1, 0, 1], [10, 1, 0, 2]].map(IpAddr::from);
    check_two_relays(senders, "10.77.0.1:0?name=in", "127.0.0.1", "10.78.0.2");
}

#[test]
fn two_relays_in_a_row_keep_an_ipv6_sender() {
    let senders = ["fd01::1", "fd01::2"].map(|ip| ip.parse().unwrap());
    // Between the two it is IPv4: the header says the family of the sender.
    check_two_relays(senders, "[fd77::1]:0?name=in", "127.0.0.1", "fd78::2");
}
