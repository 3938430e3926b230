//! PROXY protocol headers, written by hand from section 2.2, and messages that get their sender's address.

use std::net::{IpAddr, SocketAddr};
use testkit::Random;
use wire::proxy::{HEADER_BYTES_MAX, Header, read, write};
use wire::syslog::{ORIGIN_BYTES_MAX, write_origin};

const V4: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x12\x00\x0c\x0a\x01\x02\x03\x0a\x00\x00\x01\x9c\x40\x02\x02";

fn with(from: usize, bytes: &[u8]) -> Vec<u8> {
    let mut header = V4.to_vec();
    header[from..from + bytes.len()].copy_from_slice(bytes);
    header
}

#[track_caller]
fn check(datagram: &[u8], sender: Option<&str>, header_bytes: usize) {
    let sender = sender.map(|sender| sender.parse().unwrap());
    assert_eq!(read(datagram), Some(Header { sender, header_bytes }));
}

#[test]
fn headers_are_read() {
    check(&[V4, b"text"].concat(), Some("10.1.2.3:40000"), 28);
    // Streams and unspecified transports are accepted too: the address counts.
    check(&with(13, b"\x11"), Some("10.1.2.3:40000"), 28);
    check(&with(13, b"\x10"), Some("10.1.2.3:40000"), 28);
    // An extension: type 4 (no operation), 1 byte.
    check(&[&with(15, b"\x10")[..], b"\x04\x00\x01.text"].concat(), Some("10.1.2.3:40000"), 32);
    // The proxy speaks for itself, or cannot name the sender.
    check(&with(12, b"\x20"), None, 28);
    check(&with(13, b"\x00"), None, 28);
    check(b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00", None, 16);
    check(&[&with(13, b"\x32\x00\xd8")[..16], &[7; 216]].concat(), None, 232);
}

#[test]
fn what_is_no_header_is_not_guessed_at() {
    for cut in 0..V4.len() {
        assert_eq!(read(&V4[..cut]), None, "{cut} bytes");
    }
    let wrong: [(usize, &[u8]); 8] = [
        (0, b"\n"),
        (11, b"\r"),
        (12, b"\x11"), // version 1
        (12, b"\x22"), // no command
        (13, b"\x42"), // no family
        (13, b"\x13"), // no transport
        (15, b"\x0b"), // a byte too short for its family
        (15, b"\x0d"), // longer than the datagram
    ];
    for (from, bytes) in wrong {
        assert_eq!(read(&with(from, bytes)), None, "{from}: {bytes:?}");
    }
    assert_eq!(read(b"PROXY TCP4 10.1.2.3 10.0.0.1 40000 514\r\n"), None);
}

#[test]
fn what_is_written_is_what_is_read() {
    let mut room = [0; HEADER_BYTES_MAX];
    let len = write("10.1.2.3:40000".parse().ok(), "10.0.0.1:514".parse().unwrap(), &mut room);
    assert_eq!(&room[..len], V4);

    for sender in [None, Some("10.1.2.3:1"), Some("[2001:db8::7]:65535")] {
        let sender: Option<SocketAddr> = sender.map(|sender| sender.parse().unwrap());
        for destination in ["0.0.0.0:514", "[::1]:6343"] {
            let header_bytes = write(sender, destination.parse().unwrap(), &mut room);
            assert_eq!(read(&room[..header_bytes]), Some(Header { sender, header_bytes }));
        }
    }
}

#[test]
fn no_bytes_panic() {
    let mut random = Random(13);
    let mut room = [0; ORIGIN_BYTES_MAX];
    let messages: [&[u8]; 3] =
        [V4, b"<13>1 - h a p m [origin ip=\"::\"][x y=\"z\"] t", b"<13>Oct 11 22:14:15 host su: t"];
    for turn in 0..100_000 {
        let mut bytes = messages[turn % 3].to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        read(&bytes);
        if let Some(place) = write_origin(&bytes, IpAddr::from([10, 1, 2, 3]), &mut room) {
            assert!(place.at + place.replaced_bytes <= bytes.len());
        }
    }
}

/// The message with its sender's address, or `None` if there is no place for it.
fn with_origin(message: &str, sender: &str) -> Option<String> {
    let mut room = [0; ORIGIN_BYTES_MAX];
    let place = write_origin(message.as_bytes(), sender.parse().unwrap(), &mut room)?;
    let text = str::from_utf8(&room[..place.text_bytes]).unwrap();
    let (before, rest) = message.split_at(place.at);
    Some([before, text, &rest[place.replaced_bytes..]].concat())
}

#[track_caller]
fn check_origin(message: &str, wanted: &str) {
    let with = with_origin(message, "10.1.2.3").unwrap();
    assert_eq!(with, wanted);
    if message.starts_with("<34>1") {
        assert_eq!(with_origin(&with, "10.1.2.3").unwrap(), with, "twice");
    }
}

#[test]
fn rfc5424_gets_the_parameter_of_section_7_2() {
    const HEADER: &str = "<34>1 2003-10-11T22:14:15.003Z host su - ID47";
    for (data, wanted) in [
        ("- text", "[origin ip=\"10.1.2.3\"] text"),
        ("-", "[origin ip=\"10.1.2.3\"]"),
        ("[a b=\"]\"] text", "[origin ip=\"10.1.2.3\"][a b=\"]\"] text"),
        (
            "[a b=\"c\"][origin software=\"x\"] t",
            "[a b=\"c\"][origin ip=\"10.1.2.3\" software=\"x\"] t",
        ),
        ("[origin] t", "[origin ip=\"10.1.2.3\"] t"),
        ("[origin software=\"x\" ip=\"10.9.9.9\"] t", "[origin software=\"x\" ip=\"10.9.9.9\"] t"),
        ("[originX ip=\"1\"] t", "[origin ip=\"10.1.2.3\"][originX ip=\"1\"] t"),
    ] {
        check_origin(&format!("{HEADER} {data}"), &format!("{HEADER} {wanted}"));
    }
    let longest = with_origin(&format!("{HEADER} -"), "2001:db8:1111:2222:3333:4444:5555:6666");
    assert!(longest.unwrap().ends_with("[origin ip=\"2001:db8:1111:2222:3333:4444:5555:6666\"]"));
}

#[test]
fn rfc3164_gets_it_as_its_host() {
    check_origin("<34>Oct 11 22:14:15 mymachine su: text", "<34>Oct 11 22:14:15 10.1.2.3 su: text");
    check_origin("<34>Oct 11 22:14:15 su[7]: text", "<34>Oct 11 22:14:15 10.1.2.3 su[7]: text");
    let iso = "<34>2026-10-11T22:14:15+00:00";
    check_origin(&format!("{iso} host su: t"), &format!("{iso} 10.1.2.3 su: t"));
}

#[test]
fn what_has_no_place_stays() {
    for message in [
        "",
        "text",
        "<34>text",
        "Oct 11 22:14:15 host su: no priority",
        "<189>45: Oct 11 22:14:15: %SYS-5-CONFIG_I: text",
        "<34>Oct 11 22:14:15",
        "<34>1 2003-10-11T22:14:15.003Z host su - ID47 [cut",
    ] {
        assert_eq!(with_origin(message, "10.1.2.3"), None, "{message}");
    }
}
