//! Files of captured messages: every form, every truncation, and that other programs read what is written.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::process::Command;

use support::{BOTH, BOTH_TEXT, SS, sockets};
use wire::DecodeError::{self, BadBlock, BadLength, Truncated, UnknownFormat, WrongLinkType};
use wire::capture::{Captured, Format, Writer, read};
use wire::inet_diag::is_socket;
use wire::netlink::{Message, NLMSG_DONE};

/// The messages of a file, each with its time, and the error that ended it.
fn all(file: &[u8]) -> (Vec<Captured<'_>>, Vec<DecodeError>) {
    let (messages, errors): (Vec<_>, Vec<_>) = read(file).unwrap().partition(Result::is_ok);
    (
        messages.into_iter().map(Result::unwrap).collect(),
        errors.into_iter().map(Result::unwrap_err).collect(),
    )
}

const NOOP: [u8; 16] = netlink_header(16);

const fn netlink_header(length: u8) -> [u8; 16] {
    let mut header = [0; 16];
    header[if cfg!(target_endian = "little") { 0 } else { 3 }] = length;
    header[if cfg!(target_endian = "little") { 4 } else { 5 }] = 20;
    header
}

/// LINKTYPE_NETLINK's header: ARPHRD_NETLINK at 2, the protocol at 14, both in network byte order.
fn cooked(protocol: u8, messages: &[u8]) -> Vec<u8> {
    [&[0, 0, 3, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, protocol], messages].concat()
}

#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }
}

fn pcap(order: Order, magic: u32, link_type: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = order.words(&[magic, 0, 0, 0, 65_535, link_type]);
    for (seconds, fraction, packet) in packets {
        let length = packet.len() as u32;
        file.extend(order.words(&[*seconds, *fraction, length, length]));
        file.extend_from_slice(packet);
    }
    file
}

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

/// `tcpdump -i any` puts a monitor's packets among those of all interfaces.
#[test]
fn captures_of_any_interface_have_netlink_among_others() {
    let (ethernet, netlink) = ([0, 1], [3, 0x38]);
    let sll = |device: [u8; 2], protocol: u8| {
        [&[0, 4][..], &device, &[0; 10], &[0, protocol], &NOOP].concat()
    };
    let sll2 = |device: [u8; 2], protocol: u8| {
        [&[0, protocol, 0, 0, 0, 0, 0, 7][..], &device, &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0], &NOOP]
            .concat()
    };
    let check = |link_type: u16, packet: &dyn Fn([u8; 2], u8) -> Vec<u8>| {
        let order = Order::Little;
        let packets = [packet(ethernet, 4), packet(netlink, 4), packet(netlink, 0)];
        let [ip, diag, route] = &packets;
        let ng = |packets: &[&Vec<u8>]| {
            let packets = packets.iter().map(|packet| enhanced(order, 0, 0, packet));
            let head = [section(order), interface(order, link_type, &[])].concat();
            [head, packets.collect::<Vec<_>>().concat()].concat()
        };
        let pcap = |packets: &[&Vec<u8>]| {
            let packets: Vec<_> = packets.iter().map(|packet| (0, 0, &packet[..])).collect();
            pcap(order, 0xa1b2_c3d4, link_type.into(), &packets)
        };
        for form in [&ng as &dyn Fn(&[&Vec<u8>]) -> Vec<u8>, &pcap] {
            let file = form(&[ip, diag, route]);
            let mut reader = read(&file).unwrap();
            let messages: Vec<_> =
                reader.by_ref().map(|captured| captured.unwrap().message).collect();
            assert_eq!(messages, [Message::first(&NOOP).unwrap()]);
            assert_eq!(reader.skipped_packets(), 2);
            // Without any packet of netlink it is a capture of something else, unless it has no packet at all.
            assert_eq!(all(&form(&[ip, ip])).1, [WrongLinkType(link_type.into())]);
            assert_eq!((all(&form(&[ip, route])).1, all(&form(&[])).1), (vec![], vec![]));
        }
    };
    check(113, &sll);
    check(276, &sll2);
}

#[test]
fn other_link_types_are_named() {
    let refused = read(&pcap(Order::Little, 0xa1b2_c3d4, 1, &[])).map(|_| ()).unwrap_err();
    assert_eq!(refused, WrongLinkType(1));
    // The upper bits of the link type tell of a frame check sequence.
    assert!(read(&pcap(Order::Little, 0xa1b2_c3d4, 253 | 0xf400_0000, &[])).is_ok());
}

/// A packet captured in part gives one error; those behind it go on.
#[test]
fn a_snapped_packet_does_not_end_the_file() {
    let (whole, snapped) = (cooked(4, &NOOP), cooked(4, &netlink_header(200)));
    let short = &whole[..7];
    let file =
        pcap(Order::Little, 0xa1b2_c3d4, 253, &[(0, 0, &snapped), (0, 0, short), (0, 0, &whole)]);
    let (messages, errors) = all(&file);
    assert_eq!(messages.len(), 1);
    assert_eq!(errors, [BadLength { length: 200, have: 16 }, Truncated { need: 16, have: 7 }]);
}

fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = order.u32(body.len() as u32 + 12);
    [&order.u32(kind)[..], &length, &body, &length].concat()
}

fn section(order: Order) -> Vec<u8> {
    let version = [order.u16(1), order.u16(0)].concat();
    block(order, 0x0a0d_0d0a, &[&order.u32(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat())
}

fn interface(order: Order, link_type: u16, options: &[u8]) -> Vec<u8> {
    let head = [order.u16(link_type), order.u16(0)].concat();
    block(order, 1, &[&head[..], &[0; 4], options].concat())
}

fn enhanced(order: Order, interface: u32, time: u64, packet: &[u8]) -> Vec<u8> {
    let length = packet.len() as u32;
    let head = order.words(&[interface, (time >> 32) as u32, time as u32, length, length]);
    block(order, 6, &[&head[..], packet].concat())
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

/// dumpcap writes what it lost: after each packet that is behind a gap, in the statistics at the end, or in both.
#[test]
fn packets_that_the_capture_lost_are_counted_once() {
    for order in [Order::Little, Order::Big] {
        let option = |code: u16, count: u64| {
            let count = match order {
                Order::Little => count.to_le_bytes(),
                Order::Big => count.to_be_bytes(),
            };
            [&order.u16(code)[..], &order.u16(8), &count].concat()
        };
        let packet = |lost: u64| {
            let packet = cooked(4, &NOOP);
            let length = packet.len() as u32;
            let head = order.words(&[0, 0, 0, length, length]);
            block(order, 6, &[&head[..], &packet, &option(4, lost), &[0; 4]].concat())
        };
        let old_packet = |lost: u16| {
            let packet = cooked(4, &NOOP);
            let length = packet.len() as u32;
            let head = [&order.u16(0)[..], &order.u16(lost), &order.words(&[0, 0, length, length])];
            block(order, 2, &[&head.concat()[..], &packet].concat())
        };
        let statistics = |interface: u32, options: &[Vec<u8>]| {
            let head = order.words(&[interface, 0, 0]);
            block(order, 5, &[&head[..], &options.concat(), &[0; 4]].concat())
        };
        let head = [section(order), interface(order, 253, &[]), interface(order, 1, &[])].concat();
        let check = |blocks: &[Vec<u8>], expected: u64| {
            let file = [&head[..], &blocks.concat()].concat();
            let mut reader = read(&file).unwrap();
            let messages = reader.by_ref().filter(Result::is_ok).count();
            let packets = blocks.iter().filter(|block| block[0].max(block[3]) != 5).count();
            assert_eq!((messages, reader.dropped_packets()), (packets, expected));
            // Two sections have lost what both have.
            let file = [&file[..], &file].concat();
            let mut reader = read(&file).unwrap();
            reader.by_ref().for_each(drop);
            assert_eq!(reader.dropped_packets(), expected.saturating_mul(2));
        };
        check(&[packet(0), statistics(0, &[option(4, 9), option(5, 0)])], 0);
        check(&[packet(2), packet(1)], 3);
        check(&[old_packet(2), old_packet(0xffff), packet(1)], 3);
        check(&[statistics(0, &[option(5, 2)]), statistics(0, &[option(5, 3), option(7, 4)])], 7);
        check(&[packet(2), statistics(0, &[option(5, 2)])], 2);
        // Of another interface, of none, and of a length that is none.
        check(&[statistics(1, &[option(5, 2)]), statistics(7, &[option(5, 2)])], 0);
        check(&[statistics(0, &[option(5, 2)[..8].to_vec()]), block(order, 5, &[0; 3])], 0);
        check(&[packet(u64::MAX), packet(1)], u64::MAX);
    }
}

#[test]
fn a_host_of_the_other_byte_order_is_named() {
    let mut other = SS.to_vec();
    other[..4].reverse();
    other[4..6].reverse();
    let error = read(&other).map(|_| ()).unwrap_err();
    let says = "the other byte order";
    assert!(matches!(error, DecodeError::OtherFormat(text) if text.contains(says)), "{error}");
    let orders = [Order::Little, Order::Big];
    let forms = orders.map(|order| read(&pcap(order, 0xa1b2_c3d4, 253, &[])).unwrap().form());
    assert_eq!(forms.iter().filter(|form| form.contains(says)).count(), 1, "{forms:?}");
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
    // Only ethernet: told once, at the end.
    let file = [section(order), interface(order, 1, &[]), enhanced(order, 0, 0, b"x")].concat();
    assert_eq!(all(&file).1, [WrongLinkType(1)]);
}

/// A cut packet gives the messages that are whole in it, and one error; a whole one that the capture kept only in part too.
#[test]
fn a_packet_cut_by_the_end_of_the_file_gives_its_whole_messages() {
    let packet = cooked(4, &[NOOP, NOOP, NOOP].concat());
    let of_pcap = pcap(Order::Little, 0xa1b2_c3d4, 253, &[(0, 0, &packet)]);
    let order = Order::Big;
    let head = [section(order), interface(order, 253, &[])].concat();
    let of_pcapng = [&head[..], &enhanced(order, 0, 0, &packet)].concat();
    let simple = [&order.u32(packet.len() as u32)[..], &packet].concat();
    let of_simple = [&head[..], &block(order, 3, &simple)].concat();
    for (file, begins) in
        [(&of_pcap, 24 + 16), (&of_pcapng, head.len() + 8 + 20), (&of_simple, head.len() + 8 + 4)]
    {
        for length in 16..packet.len() {
            let mut reader = read(&file[..begins + length]).unwrap();
            let (messages, errors): (Vec<_>, Vec<_>) = reader.by_ref().partition(Result::is_ok);
            assert_eq!((messages.len(), errors.len()), ((length - 16) / 16, 1), "{length}");
            assert!(reader.is_cut());
        }
        let mut reader = read(file).unwrap();
        assert_eq!((reader.by_ref().filter(Result::is_ok).count(), reader.is_cut()), (3, false));
    }
    // All messages are there, and the end of the block around them is not.
    let mut reader = read(&of_pcapng[..of_pcapng.len() - 4]).unwrap();
    assert_eq!(reader.by_ref().partition::<Vec<_>, _>(Result::is_ok).0.len(), 3);
    assert!(reader.is_cut());
    // Of another protocol it is skipped, and cut all the same.
    let file = pcap(order, 0xa1b2_c3d4, 253, &[(0, 0, &cooked(0, &NOOP))]);
    let mut reader = read(&file[..file.len() - 1]).unwrap();
    assert_eq!((reader.by_ref().count(), reader.skipped_packets(), reader.is_cut()), (1, 1, true));
}

/// Where a capture keeps only the first bytes of packets, what it lacks may begin where a message ends.
#[test]
fn a_packet_snapped_between_two_messages_is_not_whole() {
    let mut file = pcap(Order::Little, 0xa1b2_c3d4, 253, &[(0, 0, &cooked(4, &NOOP))]);
    let original = |bytes: u32, file: &mut Vec<u8>| {
        file[24 + 12..24 + 16].copy_from_slice(&bytes.to_le_bytes());
    };
    original(48, &mut file);
    let (messages, errors) = all(&file);
    assert_eq!((messages.len(), errors), (1, vec![BadLength { length: 48, have: 32 }]));
    // A capture says nothing of its own, and is not cut either.
    let mut reader = read(&file).unwrap();
    assert!(reader.by_ref().count() == 2 && !reader.is_cut());
    original(32, &mut file);
    assert_eq!(all(&file).1, []);
    // Of a packet that is not looked at nothing is missed.
    let mut file = pcap(Order::Little, 0xa1b2_c3d4, 253, &[(0, 0, &cooked(0, &NOOP))]);
    original(48, &mut file);
    assert_eq!(all(&file).1, []);
}

#[test]
fn packets_that_are_none_of_netlink_are_broken() {
    let packet = [&[0, 0, 3, 0x38], &[0; 10][..], &[0xab, 0xcd], &NOOP].concat();
    let file = pcap(Order::Little, 0xa1b2_c3d4, 253, &[(0, 0, &packet), (0, 0, &cooked(4, &NOOP))]);
    let mut reader = read(&file).unwrap();
    let first = reader.next().unwrap();
    assert_eq!(first, Err(DecodeError::BadPacket(0xabcd)));
    assert_eq!((reader.by_ref().count(), reader.skipped_packets()), (1, 0));
}

#[test]
fn formats_that_are_known_and_not_read_are_named() {
    for (begins, says) in [
        (&[0x34, 0xcd, 0xb2, 0xa1][..], "modified pcap"),
        (&[0xa1, 0xb2, 0xcd, 0x34], "modified pcap"),
        (&[0x1f, 0x8b, 8, 0], "gzip"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    ] {
        let error = read(&[begins, &[0; 64]].concat()).map(|_| ()).unwrap_err();
        assert!(matches!(error, DecodeError::OtherFormat(text) if text.contains(says)), "{error}");
    }
    let error = WrongLinkType(1).to_string();
    assert!(error.contains("1 (Ethernet)"), "{error}");
    // A capture of something else that breaks off is one of something else all the same.
    let order = Order::Little;
    let file = [section(order), interface(order, 1, &[]), enhanced(order, 0, 0, b"x")].concat();
    assert_eq!(all(&file[..file.len() - 6]).1, [WrongLinkType(1)]);
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

/// Cut anywhere, a file gives the messages that are whole and at most one error: none where a message, packet or block ends.
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

/// Writes a file for another program, and gives its path.
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
