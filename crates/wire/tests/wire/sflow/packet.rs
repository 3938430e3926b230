//! Sampled headers, byte by byte.

use std::net::IpAddr;

use wire::sflow::flow::SampledHeader;
use wire::sflow::{Fragment, Icmp, Ip, Mac, MacPair, Packet, Ports, Tunnel, Vlan};

const ETHERNET: u32 = 1;
const IPV4: u32 = 11;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An Ethernet header with this type.
fn ethernet(ethertype: u16) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    bytes.extend(ethertype.to_be_bytes());
    bytes
}

/// An IPv4 header of 10.0.0.1 to 10.0.0.2 without options.
fn v4(protocol: u8, total: u16) -> Vec<u8> {
    let [high, low] = total.to_be_bytes();
    vec![
        0x45, 0xb9, high, low, // DSCP 46, ECN 1
        0, 7, 0, 0, // identification, no part
        64, protocol, 0, 0, // time to live
        10, 0, 0, 1, 10, 0, 0, 2,
    ]
}

/// An IPv6 header of 2001:db8::1 to 2001:db8::2.
fn v6(next: u8, payload: u16) -> Vec<u8> {
    let mut bytes = vec![0x6b, 0x9a, 0xbc, 0xde]; // traffic class 0xb9, label 0xabcde
    bytes.extend(payload.to_be_bytes());
    bytes.extend([next, 64]);
    for last in [1, 2] {
        bytes.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    bytes
}

/// TCP from 40000 to 443, SYN and ACK.
fn tcp() -> Vec<u8> {
    let mut bytes = vec![0x9c, 0x40, 0x01, 0xbb];
    bytes.extend([0; 8]);
    bytes.extend([0x50, 0x12, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// UDP from 40000.
fn udp(dst: u16) -> Vec<u8> {
    let mut bytes = vec![0x9c, 0x40];
    bytes.extend(dst.to_be_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn frame(parts: &[&[u8]]) -> Packet {
    Packet::parse(ETHERNET, &parts.concat())
}

/// The IP header in a frame with these parts after the ethertype.
fn ip_of(ethertype: u16, parts: &[&[u8]]) -> Ip {
    frame(&[&ethernet(ethertype), &parts.concat()]).ip.unwrap()
}

#[test]
fn tcp_over_ipv4() {
    let packet = frame(&[&ethernet(0x0800), &v4(6, 1500), &tcp()]);
    let macs = MacPair { src: Mac([2, 0, 0, 0, 0, 1]), dst: Mac([2, 0, 0, 0, 0, 2]) };
    assert_eq!((packet.macs, packet.ethertype, packet.link_bytes), (Some(macs), Some(0x0800), 14));
    let found = packet.ip.unwrap();
    assert_eq!((found.src, found.dst), (ip("10.0.0.1"), ip("10.0.0.2")));
    assert_eq!((found.protocol, found.ttl, found.length_bytes), (6, 64, 1500));
    assert_eq!((found.dscp(), found.ecn()), (46, 1));
    assert_eq!(found.ports, Some(Ports { src: 40_000, dst: 443 }));
    assert_eq!((found.tcp_flags, found.icmp, found.fragment), (Some(0x12), None, None));
    assert_eq!((packet.tunnel, packet.inner), (None, None));
}

#[test]
fn udp_over_ipv6() {
    let found = ip_of(0x86dd, &[&v6(17, 100), &udp(53)]);
    assert_eq!((found.src, found.dst), (ip("2001:db8::1"), ip("2001:db8::2")));
    assert_eq!((found.protocol, found.ttl, found.length_bytes), (17, 64, 140));
    assert_eq!((found.dscp(), found.ecn(), found.flow_label), (46, 1, 0xabcde));
    assert_eq!(found.ports, Some(Ports { src: 40_000, dst: 53 }));
}

#[test]
fn icmp_has_type_and_code() {
    assert_eq!(ip_of(0x0800, &[&v4(1, 84), &[3, 4]]).icmp, Some(Icmp { kind: 3, code: 4 }));
    assert_eq!(ip_of(0x86dd, &[&v6(58, 44), &[2, 0]]).icmp, Some(Icmp { kind: 2, code: 0 }));
}

#[test]
fn options_of_ipv4_are_skipped() {
    let mut header = v4(17, 100);
    header[0] = 0x46;
    assert_eq!(ip_of(0x0800, &[&header, &[1; 4], &udp(53)]).ports.unwrap().dst, 53);
    header[0] = 0x44;
    assert_eq!(frame(&[&ethernet(0x0800), &header]).ip, None);
}

#[test]
fn tags_and_labels() {
    let tagged =
        frame(&[&ethernet(0x88a8), &[0, 100, 0x81, 0, 0xa0, 200, 8, 0], &v4(17, 100), &udp(53)]);
    let (outer, inner) = (tagged.vlan.unwrap(), tagged.inner_vlan.unwrap());
    assert_eq!(outer, Vlan { tpid: 0x88a8, tci: 100 });
    assert_eq!((inner.id(), inner.priority(), inner.tpid), (200, 5, 0x8100));
    assert_eq!((tagged.ethertype, tagged.link_bytes), (Some(0x0800), 22));
    assert!(tagged.ip.is_some());

    // Labels 16 and 17; the second is the last.
    let labels = [0, 1, 0, 64, 0, 1, 0x11, 64];
    for inside in [[&v4(17, 100)[..], &udp(53)].concat(), [&v6(17, 100)[..], &udp(53)].concat()] {
        let labelled = frame(&[&ethernet(0x8847), &labels, &inside]);
        assert!(labelled.mpls.labels().eq([16, 17]));
        assert_eq!((labelled.mpls.count(), labelled.link_bytes), (2, 22));
        assert_eq!(labelled.ip.unwrap().ports.unwrap().dst, 53);
    }
    let deep = frame(&[&ethernet(0x8847), &[0, 1, 0, 64].repeat(6), &[0, 1, 1, 64], &v4(17, 100)]);
    assert_eq!((deep.mpls.count(), deep.mpls.labels().count()), (7, 4));
    assert!(deep.ip.is_some());
}

#[test]
fn other_ways_to_carry_ip() {
    let inside = [&v4(17, 100)[..], &udp(53)].concat();
    let check = |protocol, head: &[u8], link_bytes| {
        let packet = Packet::parse(protocol, &[head, &inside].concat());
        assert_eq!(packet.ip.and_then(|ip| ip.ports).map(|ports| ports.dst), Some(53), "{head:x?}");
        assert_eq!(packet.link_bytes, link_bytes);
    };
    check(IPV4, &[], 0);
    check(7, &[0, 0x21], 2);
    check(14, &[0xff, 3, 0, 0x21], 4);
    check(14, &[0x0f, 0, 8, 0], 4);
    // The same number in one byte.
    check(7, &[0x21], 1);
    check(1, &[&ethernet(0x8864)[..], &[0x11, 0, 0, 1, 0, 101, 0x21]].concat(), 21);
    check(13, &[0, 1, 1, 64], 4);
    // IEEE 802.3 with SNAP, and PPPoE.
    check(1, &[&ethernet(108)[..], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat(), 22);
    check(1, &[&ethernet(0x8864)[..], &[0x11, 0, 0, 1, 0, 102, 0, 0x21]].concat(), 22);
    let v6 = Packet::parse(12, &[&v6(17, 100)[..], &udp(53)].concat());
    assert_eq!(v6.ip.unwrap().ports.unwrap().dst, 53);
    for protocol in [0, 2, 15, 99, u32::MAX] {
        assert_eq!(Packet::parse(protocol, &inside), Packet::default());
    }
}

#[test]
fn what_is_not_ip_is_left() {
    let arp = frame(&[&ethernet(0x0806), &[0; 28]]);
    assert_eq!((arp.ethertype, arp.ip), (Some(0x0806), None));
    // Neither has a version or type that IP could have.
    assert_eq!(frame(&[&ethernet(0x0800), &[0x55; 40]]).ip, None);
}

#[test]
fn parts_of_packets() {
    let part = |word: u16| {
        let mut header = v4(17, 100);
        header[6..8].copy_from_slice(&word.to_be_bytes());
        ip_of(0x0800, &[&header, &udp(53)])
    };
    let first = part(0x2000);
    assert_eq!(first.fragment, Some(Fragment { id: 7, offset_bytes: 0, has_more: true }));
    assert!(first.ports.is_some() && !first.is_later_fragment());
    let last = part(185);
    assert_eq!(last.fragment, Some(Fragment { id: 7, offset_bytes: 1480, has_more: false }));
    assert!(last.ports.is_none() && last.is_later_fragment());
    // "Do not fragment" does not make a fragment.
    assert_eq!(part(0x4000).fragment, None);

    let v6_part = |word: [u8; 2]| {
        ip_of(0x86dd, &[&v6(44, 100), &[17, 0, word[0], word[1], 0, 0, 0, 9], &udp(53)])
    };
    let first = v6_part([0, 1]);
    assert_eq!(first.fragment, Some(Fragment { id: 9, offset_bytes: 0, has_more: true }));
    assert!(first.ports.is_some());
    let last = v6_part([0x05, 0xc8]);
    assert_eq!(last.fragment, Some(Fragment { id: 9, offset_bytes: 1480, has_more: false }));
    assert_eq!((last.ports, last.protocol), (None, 17));
}

#[test]
fn extension_headers_of_ipv6_are_skipped() {
    let hop_by_hop = [43, 0, 0, 0, 0, 0, 0, 0];
    let routing = [51, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let authentication = [60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let options = [17, 0, 0, 0, 0, 0, 0, 0];
    let parts: [&[u8]; 6] =
        [&v6(0, 100), &hop_by_hop, &routing, &authentication, &options, &udp(53)];
    let found = ip_of(0x86dd, &parts);
    assert_eq!((found.protocol, found.ports.unwrap().dst), (17, 53));
    // Cut inside a header: the protocol is the number of the truncated one.
    let found = ip_of(0x86dd, &[&v6(0, 100), &hop_by_hop, &routing[..9]]);
    assert_eq!((found.protocol, found.ports), (43, None));
}

#[test]
fn authentication_headers_are_skipped_behind_ipv4_too() {
    const AUTHENTICATED: u8 = 51;
    // Four words more than two: twelve bytes of its own and twelve of proof.
    let authentication = |next: u8| [&[next, 4, 0, 0][..], &[0xaa; 20]].concat();
    let found = ip_of(0x0800, &[&v4(AUTHENTICATED, 100), &authentication(17), &udp(53)]);
    assert_eq!((found.protocol, found.ports.unwrap().dst), (17, 53));
    let twice = [&v4(51, 124)[..], &authentication(51), &authentication(6), &tcp()].concat();
    let found = ip_of(0x0800, &[&twice]);
    assert_eq!((found.protocol, found.ports.unwrap().dst, found.tcp_flags), (6, 443, Some(0x12)));
    // In tunnel mode it carries a packet.
    let tunnel = [&ethernet(0x0800)[..], &v4(AUTHENTICATED, 124), &authentication(4)].concat();
    check_inner(frame(&[&tunnel, &inside()]), Tunnel::Ip);

    // Cut inside it, and in a later fragment, which begins with anything.
    let found = ip_of(0x0800, &[&v4(AUTHENTICATED, 100), &authentication(17)[..23]]);
    assert_eq!((found.protocol, found.ports), (AUTHENTICATED, None));
    let mut later = v4(AUTHENTICATED, 100);
    later[6..8].copy_from_slice(&185u16.to_be_bytes());
    let found = ip_of(0x0800, &[&later, &authentication(17), &udp(53)]);
    assert_eq!((found.protocol, found.ports), (AUTHENTICATED, None));
    // Hop by hop, a number that IPv4 does not have.
    assert_eq!(ip_of(0x0800, &[&v4(0, 100), &[17, 0, 0, 0, 0, 0, 0, 0], &udp(53)]).protocol, 0);
}

/// The contents of a tunnel: TCP over IPv4.
fn inside() -> Vec<u8> {
    [&v4(6, 60)[..], &tcp()].concat()
}

fn check_inner(packet: Packet, tunnel: Tunnel) {
    assert_eq!(packet.tunnel, Some(tunnel));
    let inner = packet.inner.unwrap();
    assert_eq!((inner.protocol, inner.length_bytes), (6, 60));
    assert_eq!((inner.ports, inner.tcp_flags), (Some(Ports { src: 40_000, dst: 443 }), Some(0x12)));
    assert_eq!(packet.further_tunnels, 0);
}

#[test]
fn ip_in_ip() {
    check_inner(frame(&[&ethernet(0x0800), &v4(4, 100), &inside()]), Tunnel::Ip);
    check_inner(frame(&[&ethernet(0x86dd), &v6(4, 100), &inside()]), Tunnel::Ip);
    let six_in_four = frame(&[&ethernet(0x0800), &v4(41, 200), &v6(17, 100), &udp(53)]);
    assert_eq!(six_in_four.inner.unwrap().src, ip("2001:db8::1"));
}

#[test]
fn gre_with_and_without_its_fields() {
    let none = Tunnel::Gre { key: None, vni: None };
    let keyed = Tunnel::Gre { key: Some(0x0102_0304), vni: None };
    let nvgre = Tunnel::Gre { key: Some(0x0102_0304), vni: Some(0x01_0203) };
    let gre = |head: &[u8], inside: &[u8]| frame(&[&ethernet(0x0800), &v4(47, 200), head, inside]);
    let with_ethernet = [&ethernet(0x0800)[..], &inside()].concat();
    check_inner(gre(&[0, 0, 8, 0], &inside()), none);
    check_inner(gre(&[0x20, 0, 8, 0, 1, 2, 3, 4], &inside()), keyed);
    // Checksum, key, sequence number.
    check_inner(gre(&[0xb0, 0, 8, 0, 9, 9, 9, 9, 1, 2, 3, 4, 8, 8, 8, 8], &inside()), keyed);
    check_inner(gre(&[0x20, 0, 0x65, 0x58, 1, 2, 3, 4], &with_ethernet), nvgre);
    // PPTP's version 1.
    assert_eq!(gre(&[0x20, 1, 0x88, 0x0b, 1, 2, 3, 4], &inside()).tunnel, None);
}

#[test]
fn vxlan_and_geneve() {
    let inner_frame = [&ethernet(0x8100)[..], &[0, 5, 8, 0], &inside()].concat();
    let vxlan = |port, flags| {
        frame(&[
            &ethernet(0x0800),
            &v4(17, 200),
            &udp(port),
            &[flags, 0, 0, 0, 1, 2, 3, 0],
            &inner_frame,
        ])
    };
    for port in [4789, 8472] {
        let packet = vxlan(port, 8);
        check_inner(packet, Tunnel::Vxlan { vni: 0x01_0203 });
        assert_eq!(packet.tunnel.unwrap().vni(), Some(0x01_0203));
        assert_eq!(packet.tunnel_vlan.unwrap().id(), 5);
        assert_eq!(packet.tunnel_macs.unwrap().src, Mac([2, 0, 0, 0, 0, 1]));
        assert_eq!(packet.ip.unwrap().ports.unwrap().dst, port);
    }
    assert_eq!((vxlan(4789, 0).tunnel, vxlan(53, 8).tunnel), (None, None));

    // One option of four bytes.
    let geneve = |options: u8, inner: [u8; 2], inside: &[u8]| {
        let head = [options, 0, inner[0], inner[1], 1, 2, 3, 0];
        frame(&[
            &ethernet(0x86dd),
            &v6(17, 200),
            &udp(6081),
            &head,
            &[9; 4][..options as usize * 4],
            inside,
        ])
    };
    check_inner(geneve(1, [0x65, 0x58], &inner_frame), Tunnel::Geneve { vni: 0x01_0203 });
    check_inner(geneve(0, [8, 0], &inside()), Tunnel::Geneve { vni: 0x01_0203 });
}

#[test]
fn tunnels_in_tunnels_are_counted() {
    let mut header = ethernet(0x0800);
    for _ in 0..4 {
        header.extend(v4(4, 200));
    }
    header.extend(inside());
    let packet = Packet::parse(ETHERNET, &header);
    assert_eq!(packet.inner.unwrap().protocol, 4);
    assert_eq!(packet.further_tunnels, 3);
}

/// Each truncation shows what is left and never more than the whole has.
#[test]
fn cut_headers_show_what_is_there() {
    let vxlan = [8, 0, 0, 0, 1, 2, 3, 0];
    let whole =
        [&ethernet(0x0800)[..], &v4(17, 200), &udp(4789), &vxlan, &ethernet(0x0800), &inside()]
            .concat();
    let full = Packet::parse(ETHERNET, &whole);
    for len in 0..whole.len() {
        let packet = Packet::parse(ETHERNET, &whole[..len]);
        assert_eq!(packet.macs.is_some(), len >= 12, "{len}");
        assert_eq!(packet.ethertype.is_some(), len >= 14, "{len}");
        assert_eq!(packet.ip.is_some(), len >= 34, "{len}");
        assert_eq!(packet.ip.is_some_and(|ip| ip.ports.is_some()), len >= 38, "{len}");
        assert_eq!(packet.tunnel.is_some(), len >= 50, "{len}");
        assert_eq!(packet.tunnel_macs.is_some(), len >= 62, "{len}");
        assert_eq!(packet.inner.is_some(), len >= 84, "{len}");
        let inner = packet.inner.unwrap_or(full.inner.unwrap());
        assert_eq!(inner.src, full.inner.unwrap().src);
    }
}

#[test]
fn length_at_layer_three() {
    let check = |header: &[u8], frame_length_bytes, stripped_bytes, wanted| {
        let sampled = SampledHeader { protocol: 1, frame_length_bytes, stripped_bytes, header };
        assert_eq!(sampled.l3_bytes(&sampled.packet()), wanted);
    };
    let with_ip = [&ethernet(0x0800)[..], &v4(17, 1400), &udp(53)].concat();
    check(&with_ip, 1418, 4, 1400);
    // Even if the rest does not match it.
    check(&with_ip, 9000, 0, 1400);
    let by_card = [&ethernet(0x0800)[..], &v4(17, 0), &udp(53)].concat();
    check(&by_card, 1418, 4, 1400);
    let arp = [&ethernet(0x0806)[..], &[0; 28]].concat();
    check(&arp, 64, 4, 46);
    check(&arp, 68, 8, 46);
    // Everything beyond the sampled bytes is reported as stripped.
    check(&arp, 1042, 1000, 1024);
    check(&arp, 0, 0, 0);
    check(&[], 100, u32::MAX, 0);
}
