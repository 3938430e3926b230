//! `--read` says what it read: of which protocol, how much of it, and what is missing.

use super::rig::{output, records, said, sockets};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use testkit::TempDir;
use wire::inet_diag::{
    Family, SocketId, SocketMessage, State, TcpInfo, encode, request::Extensions, request::Kind,
    request::Request,
};
use wire::netlink::{MessageWriter, NLM_F_MULTI};

/// Requests and answers of every protocol, by a real kernel.
fn every_protocol() -> PathBuf {
    testkit::root().join("crates/wire/testdata/protocols-6.18.pcap")
}

/// A port, so that messages belong together.
const PORT: u32 = 77;

fn from(port: u32, mut message: Vec<u8>) -> Vec<u8> {
    message[12..16].copy_from_slice(&port.to_ne_bytes());
    message
}

/// A socket in a dump with this sequence number, local port and state; with `tcp_info` only TCP can have said it.
fn row(sequence: u32, port: u16, state: u8, info: &[u8]) -> Vec<u8> {
    let address = |port| format!("192.0.2.1:{port}").parse().unwrap();
    let id = SocketId { cookie: port.into(), ..SocketId::between(address(port), address(9)) };
    let mut socket = SocketMessage::new(Family::Inet, State::from_number(state), id);
    // With a file that holds it, its owner 0 is root and not nobody.
    socket.inode = 5;
    socket.tcp_info = (!info.is_empty()).then(|| TcpInfo::decode(info).unwrap());
    let mut bytes = Vec::new();
    encode(&socket, 20, NLM_F_MULTI, sequence, &mut bytes);
    from(PORT, bytes)
}

const INFO: &[u8] = &[1; 232];

fn request(sequence: u32, protocol: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let kind = Kind::Family(Family::Inet);
    let extensions = Extensions::INFO;
    Request { kind, protocol, extensions, ..Request::dump(sequence) }.encode(&mut bytes);
    bytes
}

fn end(sequence: u32, status: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    MessageWriter::begin(&mut bytes, 3, NLM_F_MULTI, sequence)
        .bytes(&status.to_ne_bytes())
        .finish();
    from(PORT, bytes)
}

/// `NLMSG_ERROR`: the code and the request.
fn refusal(sequence: u32, code: i32, request: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    MessageWriter::begin(&mut bytes, 2, 0, sequence)
        .bytes(&code.to_ne_bytes())
        .bytes(request)
        .finish();
    from(PORT, bytes)
}

/// A pcap of netlink, a packet for each item.
fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 253]);
    for packet in packets {
        let length = packet.len() as u32 + 16;
        file.extend(words(&[1_700_000_000, 0, length, length]));
        file.extend([0, 4, 3, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
        file.extend(packet);
    }
    file
}

/// Reads bytes as a file, as records.
fn read(bytes: &[u8], filter: &str) -> Output {
    let folder = TempDir::new();
    fs::write(folder.file("capture"), bytes).unwrap();
    output(sockets(&["--read", &folder.text("capture"), "--format", "jsonl", filter]))
}

/// The local ports that are shown of a file, and what is said, with the code.
#[track_caller]
fn check(bytes: &[u8], ports: &[u64], code: i32, says: &[&str]) -> String {
    let output = read(bytes, "");
    let shown: Vec<u64> = String::from_utf8(output.stdout.clone())
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["src_port"].as_u64().unwrap())
        .collect();
    let said = said(&output);
    assert_eq!((output.status.code(), &shown[..]), (Some(code), ports), "{said}");
    for text in says {
        assert!(said.contains(text), "no {text:?} in: {said}");
    }
    said
}

#[test]
fn a_capture_of_every_protocol_shows_tcp_and_counts_the_rest() {
    let read =
        output(sockets(&["--read", every_protocol().to_str().unwrap(), "--format", "jsonl"]));
    let (text, said) = (String::from_utf8(read.stdout.clone()).unwrap(), said(&read));
    assert_eq!((read.status.code(), text.lines().count()), (Some(0), 12), "{said}");
    // Only TCP says it.
    assert!(text.lines().all(|line| line.contains("\"tcp_info_len_bytes\":280")), "{text}");
    for line in [
        "22 sockets of other protocols left out (UDP 4, MPTCP 6, unix 2, netlink 9, packet 1)",
        "2 dumps of SCTP sockets failed: the kernel cannot list them (ENOENT)",
        "1 dump of vsock sockets failed",
    ] {
        assert!(said.contains(line), "no {line:?} in: {said}");
    }
    assert!(!said.contains("decoded") && !said.contains("missing"), "{said}");
}

#[test]
fn udp_is_not_shown_as_tcp() {
    let files = [request(5, 17), row(5, 1, 1, &[]), row(5, 2, 7, &[]), end(5, 0)];
    check(&pcap(&files), &[], 0, &["2 sockets of other protocols left out (UDP 2)"]);
    // The same answers to a request for TCP are TCP's, and its own sockets behind them too.
    let files = [request(5, 6), row(5, 1, 1, &[]), row(5, 2, 7, &[]), end(5, 0)];
    check(&pcap(&files), &[1, 2], 0, &[]);
    // Without a request nobody knows, but for those that only TCP can be.
    let rows =
        [row(5, 1, 1, &[]), row(6, 2, 1, INFO), row(7, 3, 6, &[]), end(5, 0), end(6, 0), end(7, 0)];
    check(&pcap(&rows), &[2, 3], 65, &["1 socket left out that may be of TCP or not"]);
    // `ss -D` writes nothing else than TCP.
    check(&rows.concat(), &[1, 2, 3], 0, &[]);
}

#[test]
fn what_the_kernel_refused_or_did_not_end_is_said() {
    let (tcp, udp) = (request(5, 6), request(6, 17));
    let one = row(5, 1, 1, INFO);
    let failed = "1 dump of TCP sockets failed: ";
    check(&[one.clone(), end(5, -105)].concat(), &[1], 65, &[failed, "No buffer space"]);
    check(&pcap(&[tcp.clone(), one.clone(), end(5, -12)]), &[1], 65, &[failed, "allocate memory"]);
    check(&pcap(&[tcp.clone(), refusal(5, -22, &tcp)]), &[], 65, &[failed, "Invalid argument"]);
    check(&refusal(5, -2, &tcp), &[], 65, &[failed, "the kernel cannot list them (ENOENT)"]);
    // A file may end before the dump does, before any answer, or within several.
    let missing = "for TCP sockets without an end in the file: sockets are missing";
    check(&one, &[1], 65, &["1 request ", missing]);
    check(&pcap(std::slice::from_ref(&tcp)), &[], 65, &["1 request ", missing]);
    let files = [tcp.clone(), one.clone(), request(8, 6), row(8, 2, 1, INFO)];
    check(&pcap(&files), &[1, 2], 65, &["2 requests ", missing]);
    // Other protocols are not shown, so that nothing is missing; it is said all the same.
    let whole = [tcp.clone(), one.clone(), end(5, 0)];
    let files = [&whole[..], &[udp.clone(), refusal(6, -2, &udp), udp]].concat();
    check(
        &pcap(&files),
        &[1],
        0,
        &["1 dump of UDP sockets failed", "1 request for UDP sockets without"],
    );
    // An acknowledgement is no failure, and a socket that is not there is an answer.
    let mut look_up = tcp;
    look_up[6..8].copy_from_slice(&1_u16.to_ne_bytes());
    let files =
        [&whole[..], &[look_up.clone(), refusal(5, -2, &look_up), refusal(5, 0, &[])]].concat();
    check(&pcap(&files), &[1], 0, &["1 look-up of a socket that the kernel did not have"]);
}

#[test]
fn a_disturbed_dump_is_said() {
    let mut rows = [row(5, 1, 1, INFO), row(5, 2, 1, INFO), end(5, 0)];
    for row in &mut rows {
        let flags = u16::from_ne_bytes(row[6..8].try_into().unwrap()) | 0x10;
        row[6..8].copy_from_slice(&flags.to_ne_bytes());
    }
    check(&rows.concat(), &[1, 2], 0, &["1 dump disturbed by a change (NLM_F_DUMP_INTR)"]);
}

#[test]
fn a_dump_that_began_before_the_file_is_said() {
    let files = [row(4, 1, 1, INFO), end(4, 0), request(5, 6), row(5, 2, 1, INFO), end(5, 0)];
    check(&pcap(&files), &[1, 2], 65, &["1 dump began before the file does"]);
}

#[test]
fn a_state_of_a_newer_kernel_is_a_number() {
    let rows = [row(5, 1, 14, INFO), row(5, 2, 200, INFO), row(5, 3, 1, INFO), end(5, 0)].concat();
    let said = check(&rows, &[1, 2, 3], 0, &[]);
    assert!(!said.contains("decoded") && !said.contains("left out"), "{said}");
    let states = |filter: &str| -> Vec<Value> {
        let output = read(&rows, filter);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].take())
            .collect()
    };
    assert_eq!(states(""), [14.into(), 200.into(), Value::from("established")]);
    // It has no name, so that it goes with what names leave over.
    assert_eq!(states("state established"), ["established"]);
    assert_eq!(states("exclude established"), [14, 200]);
    assert_eq!(states("not state established"), [14, 200]);
    let folder = TempDir::new();
    fs::write(folder.file("capture"), &rows).unwrap();
    let table =
        super::rig::text(sockets(&["--read", &folder.text("capture"), "--columns", "state,local"]));
    assert!(table.contains("UNKNOWN 14   192.0.2.1:1\n"), "{table}");
}

#[test]
fn what_is_no_capture_says_what_it_is() {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let ethernet = [
        words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0x0000_0001, u32::MAX, u32::MAX, 28]),
        words(&[1, 20, 1, 262_144, 20]),
        words(&[6, 36, 0, 0, 0, 4, 4, 0xdead_beef, 36]),
    ]
    .concat();
    let garbage: Vec<u8> =
        (0..400_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (bytes, says) in [
        (ethernet.clone(), "the capture has 1 (Ethernet), not netlink (253)"),
        (ethernet[..ethernet.len() - 6].to_vec(), "(Ethernet)"),
        ([&[0x34, 0xcd, 0xb2, 0xa1], &garbage[..]].concat(), "modified pcap (magic a1b2cd34"),
        (
            [&pcap(&[])[..], &garbage].concat(),
            "begins like a pcap, and nothing in it can be decoded",
        ),
        ([&[0x1f, 0x8b, 8, 0], &garbage[..]].concat(), "compressed by gzip"),
        (row(5, 1, 1, INFO)[..100].to_vec(), "begins like a dump of `ss -D`"),
        (garbage, "unknown format"),
        (Vec::new(), "unknown format"),
    ] {
        let output = read(&bytes, "");
        let said = said(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(66), 0), "{said}");
        assert!(said.contains("is not a capture of sockets") && said.contains(says), "{said}");
    }
    // Nothing in it is nothing wrong with it.
    check(&pcap(&[]), &[], 0, &[]);
}

/// What was lost before it came into the file is missing in it; only pcapng can say so.
#[test]
fn what_the_capture_lost_is_said() {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let file = [
        words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0x0000_0001, u32::MAX, u32::MAX, 28]),
        words(&[1, 20, 253, 262_144, 20]),
        // isb_ifdrop: 3.
        words(&[5, 40, 0, 0, 0, u32::from_ne_bytes([5, 0, 8, 0]), 3, 0, 0, 40]),
    ];
    if cfg!(target_endian = "little") {
        check(&file.concat(), &[], 65, &["3 packets were lost by the capture"]);
    }
    check(&file[..2].concat(), &[], 0, &[]);
}

/// An event of a close has neither owner nor timer, and of an aborted connection no counters: zeros are not facts.
#[test]
fn closes_in_a_capture_claim_nothing() {
    let events = testkit::root().join("crates/wire/testdata/destroy-6.18.bin");
    let events = fs::read(events).unwrap();
    let read = |bytes: &[u8]| -> Vec<Value> {
        let output = read(bytes, "");
        assert!(output.status.success(), "{}", said(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let records = read(&events);
    assert_eq!(records.len(), 4);
    for record in &records {
        assert_eq!((&record["record_kind"], &record["state"]), (&"close".into(), &"close".into()));
        assert!(record.get("bytes_received").is_some(), "{record}");
        for field in ["uid", "inode", "timer", "timer_expires_ms", "host"] {
            assert!(record.get(field).is_none(), "{field}: {record}");
        }
    }
    // Heard by two programs, each is one close still.
    assert_eq!(read(&[&events[..], &events].concat()).len(), 4);
    // An abort clears the peer's address and port.
    let length = u32::from_ne_bytes(events[..4].try_into().unwrap()) as usize;
    let mut aborted = events[..length].to_vec();
    aborted[16 + 6..16 + 8].fill(0);
    aborted[16 + 24..16 + 40].fill(0);
    let record = &read(&aborted)[0];
    for field in ["bytes_received", "segs_out", "rto_us", "dst_port", "dst_address"] {
        assert!(record.get(field).is_none(), "{field}: {record}");
    }
    assert!(record["src_port"].as_u64().is_some_and(|port| port > 0), "{record}");
}

#[test]
fn a_file_has_neither_names_nor_a_kernel_of_this_host() {
    let folder = TempDir::new();
    let path = folder.text("capture");
    fs::write(&path, [row(5, 1, 1, INFO), end(5, 0)].concat()).unwrap();
    // The owner is 0, and who that is only its host knows.
    let table = super::rig::text(sockets(&["--read", &path, "--columns", "user"]));
    assert_eq!(table, "USER\n0\n");
    let explained = super::rig::text(sockets(&["--read", &path, "--explain", "sport = :1"]));
    assert!(explained.starts_with("weir") && explained.contains("sport = :1"), "{explained}");
    assert!(
        explained.contains("no kernel to ask") && explained.lines().count() == 1,
        "{explained}"
    );
}

#[test]
fn the_last_packet_gives_its_whole_messages() {
    let rows = [row(5, 1, 1, INFO), row(5, 2, 1, INFO), end(5, 0)];
    let cut = "it ends inside a packet or message";
    let file = pcap(&[request(5, 6), rows.concat()]);
    check(&file, &[1, 2], 0, &[]);
    let end = "1 request for TCP sockets without an end";
    check(&file[..file.len() - 1], &[1, 2], 65, &[cut, end, "1 part could not be decoded"]);
    check(&file[..file.len() - 21], &[1], 65, &[cut, end, "1 part could not be decoded"]);
    let file = rows.concat();
    check(&file[..file.len() - 1], &[1, 2], 65, &[cut, end]);
    // Between two messages nothing is cut, but the end is missing.
    let said = check(&file[..file.len() - 20], &[1, 2], 65, &[end]);
    assert!(!said.contains(cut), "{said}");
}

#[test]
fn a_capture_that_is_not_whole_is_not_written_as_a_whole_one() {
    let folder = TempDir::new();
    let (from, to, again) = (folder.text("from"), folder.text("to"), folder.text("again"));
    fs::write(&from, [row(5, 1, 1, &[]), row(5, 2, 1, &[])].concat()).unwrap();
    for format in ["ss", "pcap"] {
        let written = output(sockets(&["--read", &from, "--write", &to, "--write-format", format]));
        assert_eq!(written.status.code(), Some(65), "{}", said(&written));
        // The protocol is known from the form of the first file, and stays known.
        check(&fs::read(&to).unwrap(), &[1, 2], 65, &["without an end in the file"]);
        let written = output(sockets(&["--read", &to, "--write", &again]));
        assert!(written.status.code() == Some(65), "{}", said(&written));
        check(&fs::read(&again).unwrap(), &[1, 2], 65, &[]);
    }
}

#[test]
fn a_file_may_be_written_where_it_was_read() {
    let folder = TempDir::new();
    let path = folder.text("capture");
    fs::write(&path, [row(5, 1, 1, INFO), row(5, 2, 1, INFO), end(5, 0)].concat()).unwrap();
    let written = output(sockets(&["--read", &path, "--write", &path, "sport = :2"]));
    assert!(written.status.success(), "{}", said(&written));
    let read = records(sockets(&["--read", &path, "--format", "jsonl"]));
    assert_eq!(read.iter().map(|record| record["src_port"].clone()).collect::<Vec<_>>(), [2]);
    // What is no capture leaves the other file alone.
    let other = folder.text("other");
    fs::write(&other, "nothing").unwrap();
    let refused = output(sockets(&["--read", &other, "--write", &path]));
    assert_eq!(refused.status.code(), Some(66), "{}", said(&refused));
    assert_eq!(records(sockets(&["--read", &path, "--format", "jsonl"])).len(), 1);
}
