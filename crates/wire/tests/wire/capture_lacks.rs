//! Captures that lack something: truncated, partial, with lost packets, of other devices, or not captures at all.
use crate::support::SS;
use crate::support::files::{
    NOOP, Order, all, block, cooked, enhanced, interface, netlink_header, pcap, section,
};
use wire::DecodeError::{self, BadLength, Truncated, WrongLinkType};
use wire::capture::read;
use wire::netlink::Message;

/// `tcpdump -i any` mixes a monitor's packets with those of all interfaces.
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
            // Without any netlink packet it is a capture of something else, unless it has no packets at all.
            assert_eq!(all(&form(&[ip, ip])).1, [WrongLinkType(link_type.into())]);
            assert_eq!((all(&form(&[ip, route])).1, all(&form(&[])).1), (vec![], vec![]));
        }
    };
    check(113, &sll);
    check(276, &sll2);
}

/// A packet captured in part gives one error; reading continues after it.
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

/// dumpcap records what it lost: after each packet that follows a gap, in the statistics at the end, or in both.
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
            // Two sections have lost the sum of both.
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
        // Of another interface, of no interface, and with an invalid length.
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

/// A truncated packet gives its complete messages and one error; so does a packet captured only in part.
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
    // All messages are there, but not the end of the block around them.
    let mut reader = read(&of_pcapng[..of_pcapng.len() - 4]).unwrap();
    assert_eq!(reader.by_ref().partition::<Vec<_>, _>(Result::is_ok).0.len(), 3);
    assert!(reader.is_cut());
    // A packet of another protocol is skipped, but the file still counts as truncated.
    let file = pcap(order, 0xa1b2_c3d4, 253, &[(0, 0, &cooked(0, &NOOP))]);
    let mut reader = read(&file[..file.len() - 1]).unwrap();
    assert_eq!((reader.by_ref().count(), reader.skipped_packets(), reader.is_cut()), (1, 1, true));
}

/// If a capture keeps only the first bytes of packets, the missing part may begin where a message ends.
#[test]
fn a_packet_snapped_between_two_messages_is_not_whole() {
    let mut file = pcap(Order::Little, 0xa1b2_c3d4, 253, &[(0, 0, &cooked(4, &NOOP))]);
    let original = |bytes: u32, file: &mut Vec<u8>| {
        file[24 + 12..24 + 16].copy_from_slice(&bytes.to_le_bytes());
    };
    original(48, &mut file);
    let (messages, errors) = all(&file);
    assert_eq!((messages.len(), errors), (1, vec![BadLength { length: 48, have: 32 }]));
    // A partial packet gives no error by itself, and the file does not count as truncated either.
    let mut reader = read(&file).unwrap();
    assert!(reader.by_ref().count() == 2 && !reader.is_cut());
    original(32, &mut file);
    assert_eq!(all(&file).1, []);
    // Nothing is missing from a packet that is skipped.
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
    // A truncated capture of something else is still reported as something else.
    let order = Order::Little;
    let file = [section(order), interface(order, 1, &[]), enhanced(order, 0, 0, b"x")].concat();
    assert_eq!(all(&file[..file.len() - 6]).1, [WrongLinkType(1)]);
}
