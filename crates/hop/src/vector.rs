//! The packets in docs/hop-wire.md, and a second decoder, in Python, that knows only what the document says.

use crate::handshake::{Hello, Initiator, respond};
use crate::key::Key;
use crate::packet::{
    DataHead, Floor, Header, Kind, Origin, PACKET_BYTES_MIN, Part, Report, Sender,
};
use crate::packet::{HEADER_BYTES, TAG_BYTES};
use crate::seal::Sealer;
use std::process::Command;
use testkit::{generated_part, root};

const DOCUMENT: &str = "docs/hop-wire.md";
const MARKS: [&str; 2] = ["<!-- vector -->\n", "<!-- end of the vector -->"];
const SECRET: [u8; 32] = *b"of this there is nothing secret.";
const KEY: [u8; 32] = *b"and this everybody knows as well";
const COOKIE: [u8; 32] = *b"a hash of address and time.     ";
const SESSION: u32 = 0x0012_3405;

/// The packets, and what a decoder must say about each.
fn packets() -> (Vec<Vec<u8>>, Vec<String>) {
    let mut sealer = Sealer::new(SECRET);
    let (mut packets, mut said) = (Vec::new(), Vec::new());
    let mut add = |(kind, number): (Kind, u64), inside: &[u8], bytes_min: usize, text: String| {
        if kind == Kind::Floor {
            sealer.rekey(number);
        }
        let epoch = sealer.epoch(number);
        let header = Header { kind, epoch, session: SESSION, number };
        let mut packet = header.encode().to_vec();
        packet.extend_from_slice(inside);
        packet.resize(packet.len().max(bytes_min.saturating_sub(TAG_BYTES)), 0);
        sealer.seal(&mut packet, 0, number);
        assert_eq!(packet.len(), (HEADER_BYTES + inside.len() + TAG_BYTES).max(bytes_min));
        packets.push(packet);
        said.push(format!("epoch {epoch} session {SESSION} number {number}: {text}"));
    };

    let data = |part, sender, bytes| {
        let origin = Some(Origin { received_unix_ns: 1_700_000_000_123_456_789, sender, bytes });
        let origin = origin.filter(|_| part == Part::Only || part == Part::First);
        DataHead {
            sequence_low: 0xffff_fffe,
            beyond_floor: 70_000,
            part,
            asks: part == Part::Only,
            may_be_second: part == Part::Last,
            origin,
        }
    };
    let sealed = |head: &DataHead, bytes: &[u8]| {
        let mut inside = Vec::new();
        head.encode(&mut inside);
        inside.extend_from_slice(bytes);
        inside
    };

    let v4 = Sender::V4([192, 0, 2, 7], 5_514);
    let inside = sealed(&data(Part::Only, v4, 5), b"hello");
    let text = "data 4294967294 beyond 70000 part 0 asks 1 second 0 received 1700000000123456789 bytes 5 from c00002078a15 says hello";
    add((Kind::Data, 0), &inside, PACKET_BYTES_MIN, text.to_owned());

    let v6 = Sender::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 8_125);
    let inside = sealed(&data(Part::First, v6, 2_000), b"the first part");
    let text = "data 4294967294 beyond 70000 part 1 asks 0 second 0 received 1700000000123456789 bytes 2000 from \
                20010db8000000000000000000000001bd1f says the first part";
    add((Kind::Data, 1), &inside, 0, text.to_owned());

    let inside = sealed(&data(Part::Last, Sender::Unknown, 0), b"the last part");
    let text = "data 4294967294 beyond 70000 part 3 asks 0 second 1 says the last part";
    add((Kind::Data, 1 << 40), &inside, 0, text.to_owned());

    let report = Report {
        largest: 1_000_000_000_123,
        delay_us: 250,
        interval_us: 2_500,
        floor: 90_000_000_000,
        accepted: 89_999_999_990,
        accepted_bytes: 9_000_000_000_000,
        packets: 999_999_999_999,
        window: 65_536,
        bitmap: &[0b1000_0101, 0, 1],
    };
    let mut inside = Vec::new();
    report.encode(&mut inside);
    let text = "report 1000000000123 250 2500 90000000000 89999999990 9000000000000 999999999999 65536 has 1000000000122 1000000000120 \
                1000000000115 1000000000106";
    add((Kind::Report, 7), &inside, 0, text.to_owned());

    let mut inside = Vec::new();
    Floor { floor: 90_000_000_007 }.encode(&mut inside);
    add((Kind::Floor, (1 << 40) + 1), &inside, PACKET_BYTES_MIN, "floor 90000000007".to_owned());
    (packets, said)
}

/// The first packets of a session, and what a decoder must say about each.
fn firsts() -> (Vec<Vec<u8>>, Vec<String>) {
    let key = Key::new("a", KEY);
    let hello = |unix_ns| Hello {
        run: *b"a random number.",
        unix_ns,
        session: SESSION,
        floor: 90_000_000_007,
        host: "web-1".to_owned(),
        listener: "syslog".to_owned(),
    };
    let text = |unix_ns, cookie: &str| {
        let (run, id) = (hexadecimal(b"a random number."), key.id.0);
        format!(
            "hello key {id} cookie {cookie} run {run} time {unix_ns} session {SESSION} floor 90000000007 host web-1 listener syslog"
        )
    };

    let (mut first, mut asked, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let now_ns = 1_700_000_000_123_456_789;
    Initiator::begin_always_the_same(&key, &hello(now_ns), None, &mut first).unwrap();
    respond(&key, &first).unwrap().1.ask_for_cookie(&key, COOKIE, &mut asked);
    let hello = hello(now_ns + 1);
    Initiator::begin_always_the_same(&key, &hello, Some(&COOKIE), &mut again).unwrap();
    assert_eq!(respond(&key, &again).unwrap().0, hello);

    let cookie = hexadecimal(&COOKIE);
    let said = vec![
        text(now_ns, "-"),
        format!("cookie {cookie} session {SESSION}"),
        text(now_ns + 1, &cookie),
    ];
    (vec![first, asked, again], said)
}

fn hexadecimal(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

#[test]
fn generated_packets_are_in_the_document_and_a_second_reader_reads_them() {
    let (packets, mut said) = packets();
    let mut text = format!("```text\nsecret {}\n", hexadecimal(&SECRET));
    for (packet, said) in packets.iter().zip(&said) {
        text.push_str(&format!("\npacket {}\n{said}\n", hexadecimal(packet)));
    }
    text.push_str(&format!("\nkey {}\n", hexadecimal(&KEY)));
    let (packets, said_first) = firsts();
    for (packet, said) in packets.iter().zip(&said_first) {
        text.push_str(&format!("\nfirst {}\n{said}\n", hexadecimal(packet)));
    }
    said.extend(said_first);
    generated_part(DOCUMENT, MARKS, &(text + "```\n"));

    let mut python = Command::new("python3");
    python.arg(root().join("crates/hop/src/vector.py")).arg(root().join(DOCUMENT));
    let output = match python.output() {
        Ok(output) => output,
        Err(error) => {
            testkit::skip(&format!("python3: {error}"), &["REQUIRE_ALL"]);
            return;
        }
    };
    let read = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{read}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(read.lines().collect::<Vec<_>>(), said);
}
