//! What stands in front of IP in the field, and frames within frames: as devices send them, and at random.

use std::net::IpAddr;

use testkit::Random;
use wire::sflow::{Packet, Tunnel};

use super::layers;
use crate::mutations::mutate;

const SRC: [u8; 4] = [198, 51, 100, 1];
const DST: [u8; 4] = [203, 0, 113, 9];

/// An Ethernet header with this destination and type.
fn ethernet_to(dst: [u8; 6], ethertype: u16) -> Vec<u8> {
    [&dst[..], &[2, 0, 0, 0, 0, 2], &ethertype.to_be_bytes()].concat()
}

fn ethernet(ethertype: u16) -> Vec<u8> {
    ethernet_to([2, 0, 0, 0, 0, 1], ethertype)
}

/// An IPv4 header of `SRC` to `DST` without a checksum, and the ports behind it.
fn v4(protocol: u8, dst_port: u16) -> Vec<u8> {
    let head = [0x45, 0, 3, 0xe8, 0, 0, 0, 0, 64, protocol, 0, 0];
    let [high, low] = dst_port.to_be_bytes();
    [&head[..], &SRC, &DST, &[0x13, 0x88, high, low, 0, 0, 0, 0]].concat()
}

fn v6(next: u8) -> Vec<u8> {
    let address = |last| [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let head = [0x60, 0, 0, 0, 3, 0xc0, next, 64];
    [&head[..], &address(1), &address(2), &[0x13, 0x88, 0, 53, 0, 0, 0, 0]].concat()
}

fn read(parts: &[&[u8]]) -> Packet {
    let header = parts.concat();
    let packet = Packet::parse(1, &header);
    layers::check(1, &header, &packet);
    packet
}

fn pair(ip: Option<wire::sflow::Ip>) -> Option<(IpAddr, IpAddr)> {
    ip.map(|ip| (ip.src, ip.dst))
}

fn both() -> Option<(IpAddr, IpAddr)> {
    Some((SRC.into(), DST.into()))
}

#[test]
fn what_devices_put_in_front_of_ip_is_skipped() {
    let (v4, v6) = (v4(17, 53), v6(17));
    for (ethertype, shim) in [
        (0x9300, &[0, 101][..]),
        (0x8926, &[0, 0, 0, 0x14]),
        // The pointer bit is set: the tag begins like IPv6.
        (0x8926, &[0x60, 0, 0, 0x14]),
        (0x893f, &[0x40, 0, 0, 1, 0, 0]),
        (0x8909, &[1, 1, 0, 1, 0, 42]),
        (0x88e7, &[0x60, 0, 0x12, 0x34, 2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4]),
    ] {
        let of = |inside: &[&[u8]]| read(&[&ethernet(ethertype), shim, &inside.concat()]);
        assert_eq!(pair(of(&[&[8, 0], &v4]).ip), both(), "{ethertype:x}");
        assert_eq!(of(&[&[0x86, 0xdd], &v6]).ip.unwrap().ports.unwrap().dst, 53);
        let tagged = of(&[&[0x81, 0, 0, 0x65, 8, 0], &v4]);
        assert_eq!(pair(tagged.ip), both());
        let vlans = [tagged.vlan, tagged.inner_vlan].into_iter().flatten();
        assert!(vlans.map(|tag| tag.id()).any(|id| id == 101));
        // Another shim behind it.
        assert_eq!(pair(of(&[&[0x89, 0x26, 0, 0, 0, 1, 8, 0], &v4]).ip), both());
        // What is not IP is not.
        let other = of(&[&[0x88, 0xe5], &v4]);
        assert_eq!((other.ip, other.ethertype), (None, Some(0x88e5)));
    }
    let backbone = [0x60, 0, 0x12, 0x34, 2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4, 8, 0];
    let packet = read(&[&ethernet(0x88e7), &backbone, &v4]);
    assert_eq!((packet.service, packet.tunnel_macs.unwrap().src.0[5]), (Some(0x1234), 4));
}

#[test]
fn frames_that_are_not_ip_have_no_addresses() {
    for ethertype in
        [0x8902, 0x88e5, 0x88cc, 0x8809, 0x88f7, 0x0806, 0x8906, 0x22f0, 0x8863, 0xffff]
    {
        for inside in [v4(17, 53), v6(17), vec![0x4c; 60], vec![0x60; 60]] {
            let packet = read(&[&ethernet(ethertype), &inside]);
            assert_eq!((packet.ip, packet.inner), (None, None), "{ethertype:x}");
            assert_eq!(packet.ethertype, Some(ethertype));
        }
    }
    // A type that the packet contradicts.
    assert_eq!(read(&[&ethernet(0x0800), &v6(17)]).ip, None);
    assert_eq!(read(&[&ethernet(0x86dd), &v4(17, 53)]).ip, None);
    // Neither does a tunnel have them.
    for ethertype in [0x8902u16, 0x88e5] {
        let gre = [&[0, 0][..], &ethertype.to_be_bytes()].concat();
        let mut outer = v4(47, 0);
        outer.truncate(20);
        let packet = read(&[&ethernet(0x0800), &outer, &gre, &v4(17, 53)]);
        assert_eq!((pair(packet.ip), packet.inner), (both(), None));
    }
}

#[test]
fn an_ip_packet_that_is_called_ethernet_is_not_read() {
    let mut with_checksum = v4(17, 53);
    let sum: u32 =
        with_checksum[..20].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    with_checksum[10..12].copy_from_slice(&sum.to_be_bytes());
    for inside in [with_checksum, v6(17)] {
        assert_eq!(read(&[&inside]), Packet { is_other_link: true, ..Packet::default() });
    }
}

#[test]
fn pseudowires_with_and_without_a_control_word() {
    let label = [0, 1, 1, 64];
    // Addresses that begin like IPv4, IPv6, a control word, and an associated channel.
    for first in [0x4c, 0x45, 0x60, 0x64, 0x68, 0x6c, 0x00, 0x02, 0x10, 0xa8] {
        for (inside, ethertype) in [(v4(17, 53), 0x0800), (v6(17), 0x86dd)] {
            let frame = [&ethernet_to([first, 0, 0, 0, 0, 1], ethertype)[..], &inside].concat();
            for word in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 9]] {
                let packet = read(&[&ethernet(0x8847), &label, word, &frame]);
                assert_eq!(packet.ip, None, "{first:x} {word:?}");
                assert_eq!(packet.tunnel, Some(Tunnel::Pseudowire), "{first:x} {word:?}");
                assert_eq!(packet.inner.unwrap().ports.unwrap().dst, 53);
                assert_eq!(packet.tunnel_macs.unwrap().dst.0[0], first);
            }
        }
        // Whatever is in it, no address is invented.
        let cfm = [&ethernet_to([first, 0, 0, 0, 0, 1], 0x8902)[..], &[0x60; 60]].concat();
        let packet = read(&[&ethernet(0x8847), &label, &cfm]);
        assert_eq!((packet.ip, packet.inner), (None, None), "{first:x}");
    }
    let plain = read(&[&ethernet(0x8847), &label, &v4(17, 53)]);
    assert_eq!((pair(plain.ip), plain.tunnel), (both(), None));
    assert!(read(&[&ethernet(0x8847), &label, &v6(17)]).ip.is_some());
}

#[test]
fn frames_and_packets_in_packets() {
    let frame = [&ethernet(0x8100)[..], &[0, 5, 8, 0], &v4(6, 443)].concat();
    let packet = v4(6, 443);
    let udp = |port, head: &[u8], inside: &[u8]| [&v4(17, port)[..], head, inside].concat();
    let ip = |protocol, inside: &[&[u8]]| [&v4(protocol, 0)[..20], &inside.concat()].concat();
    let erspan_2 = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 5, 0x48, 0x2a, 0, 0, 0, 3];
    let erspan_3 = |more: u8| {
        [
            &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 5, 0x48, 0x2a, 0, 0, 0, 0, 0, 0, 0, more][..],
            &[0; 8][..usize::from(more) * 8],
        ]
        .concat()
    };
    let mirror = Tunnel::Mirror { session: Some(42) };
    let gtp = Tunnel::Gtp { teid: 7 };
    for (inside, tunnel) in [
        (ip(47, &[&erspan_2, &frame]), mirror),
        (ip(47, &[&[0, 0, 0x88, 0xbe], &frame]), Tunnel::Mirror { session: None }),
        (ip(47, &[&erspan_3(0), &frame]), mirror),
        (ip(47, &[&erspan_3(1), &frame]), mirror),
        (ip(97, &[&[0x30, 0], &frame]), Tunnel::Ethernet),
        (ip(137, &[&[0, 1, 1, 64], &packet]), Tunnel::Mpls),
        (ip(4, &[&packet]), Tunnel::Ip),
        (udp(6635, &[0, 1, 1, 64], &packet), Tunnel::Mpls),
        (udp(2152, &[0x30, 255, 0, 0, 0, 0, 0, 7], &packet), gtp),
        (udp(2152, &[0x32, 255, 0, 0, 0, 0, 0, 7, 0, 1, 0, 0x85], &packet), gtp),
        (udp(2152, &[0x34, 255, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0x85, 1, 0, 9, 0], &packet), gtp),
        (udp(4790, &[0x0c, 0, 0, 1, 0, 0, 9, 0], &packet), Tunnel::Vxlan { vni: 9 }),
        (udp(4790, &[0x0c, 0, 0, 3, 0, 0, 9, 0], &frame), Tunnel::Vxlan { vni: 9 }),
        (udp(4789, &[8, 0, 0, 0, 0, 0, 9, 0], &frame), Tunnel::Vxlan { vni: 9 }),
    ] {
        let packet = read(&[&ethernet(0x0800), &inside]);
        assert_eq!((packet.tunnel, pair(packet.ip)), (Some(tunnel), both()), "{inside:x?}");
        assert_eq!(
            packet.inner.and_then(|ip| ip.ports).map(|ports| ports.dst),
            Some(443),
            "{tunnel:?}"
        );
    }
    let in_v6 = [&v6(143)[..40], &frame].concat();
    assert_eq!(read(&[&ethernet(0x86dd), &in_v6]).tunnel, Some(Tunnel::Ethernet));
    // What only looks like it is not read.
    for inside in [
        udp(2152, &[0x30, 1, 0, 0, 0, 0, 0, 7], &packet),
        udp(2152, &[0x50, 255, 0, 0, 0, 0, 0, 7], &packet),
        udp(2152, &[0x34, 255, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0x85, 0, 0, 0, 0], &packet),
        udp(2152, &[0x30, 255, 0, 0, 0, 0, 0, 7], &frame),
        ip(47, &[&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x20, 5, 0, 1, 0, 0, 0, 3], &frame]),
    ] {
        assert_eq!(read(&[&ethernet(0x0800), &inside]).inner, None, "{inside:x?}");
    }
}

/// Layers at random on top of each other, cut and changed: what is read stands where the layers say.
#[test]
fn every_address_stands_where_the_layers_say() {
    let mut random = Random(28);
    let (mut outer, mut inner) = (0, 0);
    for _ in 0..40_000 {
        let mut header = stack(&mut random);
        if random.index(2) == 0 {
            let other = stack(&mut random);
            mutate(&mut header, &other, &mut random);
        }
        header.truncate(random.index(300));
        let protocol = [1, 1, 1, 7, 11, 12, 13, 14][random.index(8)];
        let packet = Packet::parse(protocol, &header);
        layers::check(protocol, &header, &packet);
        outer += u32::from(packet.ip.is_some());
        inner += u32::from(packet.inner.is_some());
    }
    assert!(outer > 4_000 && inner > 400, "{outer} {inner}");
}

/// Nesting costs no more than the bytes.
#[test]
fn deep_nesting_ends() {
    for layer in [
        &[0, 1, 1, 64][..],
        &[0, 1, 1, 64, 0, 0, 0, 0],
        &[&[0, 1, 1, 64][..], &ethernet(0x8847)].concat(),
        &[&[0, 1, 1, 64, 0, 0, 0, 0][..], &ethernet(0x8847)].concat(),
        &[&v4(4, 0)[..20], &[]].concat(),
        &[0x81, 0, 0, 1],
        &[0; 60],
    ] {
        for protocol in [1, 13, 11] {
            let header = layer.repeat(60_000 / layer.len());
            layers::check(protocol, &header, &Packet::parse(protocol, &header));
        }
    }
}

/// A header of up to eight layers that fit each other more often than not.
fn stack(random: &mut Random) -> Vec<u8> {
    let mut header = ethernet_to(std::array::from_fn(|_| random.index(256) as u8), 0);
    for _ in 0..=random.index(7) {
        let (ethertype, layer, is_last) = layer(random);
        // The type of a layer is in the last bytes of the one before.
        let type_at = header.len() - 2;
        header[type_at..].copy_from_slice(&ethertype.to_be_bytes());
        header.extend(layer);
        if is_last {
            break;
        }
    }
    header
}

/// A layer with its type, and whether it is the last. Others end with room for the next one's type.
fn layer(random: &mut Random) -> (u16, Vec<u8>, bool) {
    let packet = |random: &mut Random| if random.index(2) == 0 { v4(17, 53) } else { v6(17) };
    match random.index(12) {
        0 => (0x8100, vec![0, 7, 0, 0], false),
        1 => (0x8926, vec![0x45, 0, 0, 7, 0, 0], false),
        2 => (0x88e7, [&[0x60, 0, 0, 7][..], &ethernet(0)].concat(), false),
        3 => {
            let label = [0, 1, random.index(2) as u8, 64];
            let word = &[0; 4][..random.index(2) * 4];
            let frame = ethernet_to([[0x45, 0x60, 0, 2][random.index(4)]; 6], 0);
            (0x8847, [&label, word, &frame].concat(), false)
        }
        4 => (0x8847, [&[0, 1, 1, 64][..], &packet(random)].concat(), true),
        5 => {
            let udp = v4(17, [4789, 4790, 6081, 2152, 6635][random.index(5)]);
            let head = [[8, 0, 0x30][random.index(3)], 255, 0x65, 0x58, 0, 0, 7, 0];
            (0x0800, [&udp[..], &head, &ethernet(0)].concat(), false)
        }
        6 => {
            let protocol = [0x6558u16, 0x88be, 0x22eb, 0x0800][random.index(4)].to_be_bytes();
            let flags = [0x10 * random.index(2) as u8, 0];
            let fields = &[0x10; 20][..random.index(6) * 4];
            let parts = [&v4(47, 0)[..20], &flags, &protocol, fields, &ethernet(0)];
            (0x0800, parts.concat(), false)
        }
        7 => (0x0800, [&v4(4, 0)[..20], &v4(6, 443)].concat(), true),
        8 => {
            let head = &v6([4, 41, 143, 137][random.index(4)])[..40];
            (0x86dd, [head, &ethernet(0)].concat(), false)
        }
        9 => {
            let head = [0x11, 0, 0, 7, 0, 9, 0, [0x21, 0x57][random.index(2)]];
            (0x8864, [&head[..], &packet(random)].concat(), true)
        }
        10 => (0x0800, v4(17, 53), true),
        _ => (0x86dd, v6(17), true),
    }
}
