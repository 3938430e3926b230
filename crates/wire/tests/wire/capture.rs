//! Files of captured messages: every format, every truncation, and that other programs can read what is written.
use std::process::Command;

use crate::support::files::{NOOP, Order, all, block, cooked, enhanced, interface, pcap, section};
use crate::support::{BOTH, BOTH_TEXT, SS, sockets};
use wire::DecodeError::{BadBlock, BadLength, Truncated, UnknownFormat, WrongLinkType};
use wire::capture::{Format, Writer, read};
use wire::inet_diag::is_socket;
use wire::netlink::{Message, NLMSG_DONE};

#[test]
fn pcap_of_both_orders_and_both_units() {
    let packet = cooked(4, &[NOOP, NOOP].concat());
    for order in [Order::Little, Order::Big] {
        for (magic, unit_ns) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            let file =
                pcap(order, magic, 253, &[(1_700_000_000, 999_999, &packet), (1, 2, &packet)]);
            let (messages, errors) = all(&file);
            assert_eq!((messages.len(), errors.len()), (4, 0));
            assert_eq!(
                messages[1].time_unix_ns,
                Some(1_700_000_000_000_000_000 + 999_999 * unit_ns)
            );
            assert_eq!(messages[2].time_unix_ns, Some(1_000_000_000 + 2 * unit_ns));
            assert_eq!(messages[3].message, Message::first(&NOOP).unwrap());
        }
    }
}

#[test]
fn packets_of_other_protocols_are_skipped_and_counted() {
    let (route, diag) = (cooked(0, &NOOP), cooked(4, &NOOP));
    let file = pcap(Order::Big, 0xa1b2_c3d4, 253, &[(0, 0, &route), (0, 0, &diag), (0, 0, &route)]);
    let mut reader = read(&file).unwrap();
    assert_eq!((reader.by_ref().count(), reader.skipped_packets()), (1, 2));
}

#[test]
fn other_link_types_are_named() {
    let refused = read(&pcap(Order::Little, 0xa1b2_c3d4, 1, &[])).map(|_| ()).unwrap_err();
    assert_eq!(refused, WrongLinkType(1));
    // The upper bits of the link type describe a frame check sequence.
    assert!(read(&pcap(Order::Little, 0xa1b2_c3d4, 253 | 0xf400_0000, &[])).is_ok());
}

fn pcapng(order: Order) -> Vec<u8> {
    let packet = cooked(4, &NOOP);
    let nanoseconds =
        [&order.u16(9)[..], &order.u16(1), &[9, 0, 0, 0], &order.u16(0), &order.u16(0)].concat();
    let simple = [&order.u32(packet.len() as u32)[..], &packet].concat();
    [
        section(order),
        interface(order, 253, &[]),
        interface(order, 253, &nanoseconds),
        interface(order, 1, &[]),
        enhanced(order, 0, 5_000_001, &packet),
        block(order, 5, &[0; 12]),
        enhanced(order, 1, 1 << 33, &packet),
        enhanced(order, 2, 0, b"ethernet"),
        block(order, 3, &simple),
    ]
    .concat()
}

#[test]
fn pcapng_of_both_orders_even_in_one_file() {
    let file = [pcapng(Order::Little), pcapng(Order::Big)].concat();
    let mut reader = read(&file).unwrap();
    let times: Vec<_> = reader.by_ref().map(|captured| captured.unwrap().time_unix_ns).collect();
    let once = [Some(5_000_001_000), Some(1 << 33), None];
    assert_eq!(times, [once, once].concat());
    assert_eq!(reader.skipped_packets(), 2);
}

#[test]
fn times_of_every_resolution() {
    let order = Order::Little;
    for (resolution, offset, units, expected) in [
        (0, 0, 7, Some(7_000_000_000)),
        (3, 1, 7, Some(1_007_000_000)),
        (12, 0, 7_999, Some(7)),
        (0x81, 0, 3, Some(1_500_000_000)),
        (0x80 | 30, -1, 1 << 31, Some(1_000_000_000)),
        (0x7f, 0, u64::MAX, Some(1_000_000_000)),
        (0xff, 0, u64::MAX, Some(1_000_000_000)),
        (0, 0, u64::MAX, None),
        (9, -2, 1, None),
    ] {
        let options = [&order.u16(9)[..], &order.u16(1), &[resolution, 0, 0, 0]].concat();
        let options =
            [&options[..], &order.u16(14), &order.u16(8), &i64::to_le_bytes(offset)].concat();
        let packet = enhanced(order, 0, units, &cooked(4, &NOOP));
        let file = [section(order), interface(order, 253, &options), packet].concat();
        assert_eq!(all(&file).0[0].time_unix_ns, expected, "{resolution} {units}");
    }
}

#[test]
fn blocks_that_contradict_themselves() {
    let order = Order::Big;
    let check = |blocks: &[&[u8]], expected| {
        let file = [&section(order)[..], &interface(order, 253, &[]), &blocks.concat()].concat();
        assert_eq!(all(&file).1, [expected]);
    };
    check(&[&enhanced(order, 1, 0, &[])], BadBlock(6));
    let mut unequal = block(order, 5, &[0; 4]);
    *unequal.last_mut().unwrap() = 20;
    check(&[&unequal], BadBlock(5));
    check(&[&order.words(&[5, 8, 8])], BadLength { length: 8, have: 12 });
    check(&[&order.words(&[5, 13, 0, 13])], BadLength { length: 13, have: 16 });
    check(&[&order.words(&[5, u32::MAX, 0])], BadLength { length: u32::MAX, have: 12 });
    check(&[&block(order, 6, &order.words(&[0, 0, 0, 9, 9]))], BadLength { length: 9, have: 0 });
    check(&[&order.words(&[0x0a0d_0d0a, 28, 0, 0, 0, 0, 28])], BadBlock(0x0a0d_0d0a));
    check(&[&interface(order, 253, &[0, 9, 0, 200])], BadLength { length: 200, have: 0 });
    // Only Ethernet: reported once, at the end.
    let file = [section(order), interface(order, 1, &[]), enhanced(order, 0, 0, b"x")].concat();
    assert_eq!(all(&file).1, [WrongLinkType(1)]);
}

#[test]
fn what_is_no_capture_is_refused() {
    for file in [&b""[..], b"abc", b"State Recv-Q Send-Q", &[0; 64], &[0xff; 64], &SS[..15]] {
        assert_eq!(read(file).map(|_| ()), Err(UnknownFormat), "{file:?}");
    }
    assert_eq!(
        read(&[0xa1, 0xb2, 0xc3, 0xd4, 0]).map(|_| ()),
        Err(Truncated { need: 24, have: 5 })
    );
}

#[test]
fn what_ss_wrote() {
    let (messages, errors) = all(SS);
    assert_eq!((messages.len(), errors.len()), (23, 0));
    let families: Vec<u8> =
        messages.iter().filter(|m| is_socket(&m.message)).map(|m| m.message.body[0]).collect();
    assert_eq!(families.iter().filter(|family| **family == 10).count(), 7);
    assert_eq!(messages.iter().filter(|m| m.message.kind == NLMSG_DONE).count(), 2);
    assert!(messages.iter().all(|m| m.time_unix_ns.is_none()));
}

/// Truncated anywhere, a file gives its complete messages and at most one error: none at the end of a message, packet or
/// block.
#[test]
fn every_truncation_of_every_form() {
    let forms = [
        (BOTH.to_vec(), 16),
        (written(Format::Ss), 16),
        (written(Format::Pcap), 24),
        (pcapng(Order::Little), 4),
        (pcapng(Order::Big), 4),
    ];
    for (file, least) in forms {
        let (whole, _) = all(&file);
        let mut clean = 0;
        for end in least..file.len() {
            let (messages, errors) = all(&file[..end]);
            assert_eq!(messages[..], whole[..messages.len()]);
            assert!(errors.len() <= 1, "{errors:?} at {end}");
            clean += usize::from(errors.is_empty());
        }
        assert!(clean < whole.len() + 8, "{clean} of {} cuts gave no error", file.len());
    }
}

fn written(format: Format) -> Vec<u8> {
    let mut file = Vec::new();
    let writer = Writer::begin(format, &mut file);
    for (index, message) in sockets(BOTH).enumerate() {
        writer.message(1_700_000_000_123_456_789 + index as u64, message.raw, &mut file);
    }
    writer.end(1_700_000_001_000_000_000, &mut file);
    file
}

#[test]
fn what_is_written_is_read() {
    for format in [Format::Ss, Format::Pcap] {
        let file = written(format);
        let (messages, errors) = all(&file);
        assert_eq!((messages.len(), errors.len()), (23, 0));
        let mut expected: Vec<Vec<u8>> =
            sockets(BOTH).map(|message| message.raw.to_vec()).collect();
        expected.iter_mut().for_each(|message| wire::inet_diag::redact(message));
        for (index, (captured, expected)) in messages.iter().zip(&expected).enumerate() {
            assert_eq!(captured.message.raw, expected);
            let time = (format == Format::Pcap).then_some(1_700_000_000_123_456_789 + index as u64);
            assert_eq!(captured.time_unix_ns, time);
        }
        assert_eq!(messages[22].message.kind, NLMSG_DONE);
        assert!(!file.windows(8).any(|window| window == b"SECRETK!"));
    }
}

/// Writes a file for another program, and returns its path.
fn on_disk(name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn ss_reads_what_is_written() {
    let path = on_disk("ss", &written(Format::Ss));
    let ran = Command::new("ss").args(["-tanHO"]).env("TCPDIAG_FILE", &path).output();
    std::fs::remove_file(&path).unwrap();
    let Ok(ran) = ran else { return println!("skipped: ss is not installed") };
    let columns = |text: &str| {
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| line.split_ascii_whitespace().take(5).collect::<Vec<_>>().join(" "))
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "");
    assert_eq!(columns(&String::from_utf8_lossy(&ran.stdout)), columns(BOTH_TEXT));
}

#[test]
fn tcpdump_reads_what_is_written() {
    let path = on_disk("pcap", &written(Format::Pcap));
    let ran = Command::new("tcpdump").args(["-n", "-tt", "--nano", "-r"]).arg(&path).output();
    std::fs::remove_file(&path).unwrap();
    let Ok(ran) = ran else { return println!("skipped: tcpdump is not installed") };
    let (text, talk) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && talk.contains("link-type NETLINK"), "{talk}");
    assert_eq!(text.lines().filter(|line| line.starts_with("17000000")).count(), 23, "{text}");
    assert!(text.starts_with("1700000000.123456789"), "{text}");
}
