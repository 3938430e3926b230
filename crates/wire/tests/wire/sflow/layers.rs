//! Where the layers of a sampled header say that IP headers are: every place that any reading of the standards allows. Slow, plain
//! and written apart from the reader, which has to stay within these places.

use std::collections::BTreeSet;
use std::net::IpAddr;
use wire::sflow::{Ip, Packet};

/// What is at a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Layer {
    Ethernet,
    Type(u16),
    Ppp,
    Labels,
    /// IP of either version: nothing says which.
    Bare,
    Ip(u8),
}

/// Asserts that each address that was read stands where the layers say.
pub(crate) fn check(protocol: u32, header: &[u8], packet: &Packet) {
    if packet.ip.is_none() && packet.inner.is_none() {
        return;
    }
    let places = places(protocol, header);
    if let Some(ip) = &packet.ip {
        check_one(ip, usize::from(packet.link_bytes), header, &places);
    }
    if let Some(ip) = &packet.inner {
        assert!(packet.tunnel.is_some(), "{packet:?}");
        check_one(ip, usize::from(packet.inner_bytes), header, &places);
    }
}

fn check_one(ip: &Ip, at: usize, header: &[u8], places: &BTreeSet<(usize, Layer)>) {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (src, dst) = (octets(ip.src), octets(ip.dst));
    let (version, begin) = if src.len() == 4 { (4, at + 12) } else { (6, at + 8) };
    let there = header.get(begin..begin + src.len() + dst.len());
    assert_eq!(there, Some(&[src, dst].concat()[..]), "{ip:?} is not at {at} of {header:02x?}");
    assert!(
        places.contains(&(at, Layer::Ip(version))),
        "no layer says that there is {ip:?} at {at} of {header:02x?}"
    );
}

fn places(protocol: u32, header: &[u8]) -> BTreeSet<(usize, Layer)> {
    let first = match protocol {
        1 => Layer::Ethernet,
        7 | 14 => Layer::Ppp,
        11 => Layer::Type(0x0800),
        12 => Layer::Type(0x86dd),
        13 => Layer::Labels,
        _ => return BTreeSet::new(),
    };
    let (mut known, mut left) = (BTreeSet::new(), vec![(0, first)]);
    while let Some((at, layer)) = left.pop() {
        if at <= header.len() && known.insert((at, layer)) {
            follow(header, at, layer, &mut left);
        }
    }
    known
}

fn byte(header: &[u8], at: usize) -> usize {
    header.get(at).copied().map_or(0, usize::from)
}

fn word(header: &[u8], at: usize) -> u16 {
    (byte(header, at) << 8 | byte(header, at + 1)) as u16
}

/// What may follow a layer.
fn follow(header: &[u8], at: usize, layer: Layer, left: &mut Vec<(usize, Layer)>) {
    match layer {
        Layer::Ethernet => left.push((at + 14, Layer::Type(word(header, at + 12)))),
        Layer::Type(0x0800) => left.push((at, Layer::Ip(4))),
        Layer::Type(0x86dd) => left.push((at, Layer::Ip(6))),
        Layer::Type(0x8847 | 0x8848) => left.push((at, Layer::Labels)),
        Layer::Type(0x8864) => left.push((at + 6, Layer::Ppp)),
        Layer::Type(0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300) => {
            left.push((at + 4, Layer::Type(word(header, at + 2))));
        }
        Layer::Type(0x8926) => left.push((at + 6, Layer::Type(word(header, at + 4)))),
        Layer::Type(0x893f | 0x8909) => left.push((at + 8, Layer::Type(word(header, at + 6)))),
        Layer::Type(0x88e7) => left.push((at + 4, Layer::Ethernet)),
        Layer::Type(0..0x600) => left.push((at + 8, Layer::Type(word(header, at + 6)))),
        Layer::Type(_) => {}
        Layer::Ppp => {
            let at = if word(header, at) == 0xff03 { at + 2 } else { at };
            match word(header, at) {
                0x0021 => left.push((at + 2, Layer::Ip(4))),
                0x0057 => left.push((at + 2, Layer::Ip(6))),
                0x0281 => left.push((at + 2, Layer::Labels)),
                0x0f00 => left.push((at + 4, Layer::Type(word(header, at + 2)))),
                short if short >> 8 == 0x21 => left.push((at + 1, Layer::Ip(4))),
                short if short >> 8 == 0x57 => left.push((at + 1, Layer::Ip(6))),
                _ => {}
            }
        }
        Layer::Labels if byte(header, at + 2) & 1 == 0 => left.push((at + 4, Layer::Labels)),
        Layer::Labels => {
            let pseudowire = [(at + 4, Layer::Ethernet), (at + 8, Layer::Ethernet)];
            left.extend(pseudowire);
            left.push((at + 4, Layer::Bare));
        }
        Layer::Bare => left.extend([(at, Layer::Ip(4)), (at, Layer::Ip(6))]),
        Layer::Ip(4) => {
            let (mut next, mut at) = (byte(header, at + 9), at + byte(header, at) % 16 * 4);
            while next == 51 && at < header.len() {
                (next, at) = (byte(header, at), at + 8 + byte(header, at + 1) * 4);
            }
            of_ip(header, next, at, left);
        }
        Layer::Ip(_) => {
            let (mut next, mut at) = (byte(header, at + 6), at + 40);
            while matches!(next, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) && at < header.len() {
                let words = byte(header, at + 1);
                let len = match next {
                    44 => 8,
                    51 => 8 + words * 4,
                    _ => 8 + words * 8,
                };
                (next, at) = (byte(header, at), at + len);
            }
            of_ip(header, next, at, left);
        }
    }
}

fn of_ip(header: &[u8], protocol: usize, at: usize, left: &mut Vec<(usize, Layer)>) {
    match protocol {
        4 => left.push((at, Layer::Ip(4))),
        41 => left.push((at, Layer::Ip(6))),
        97 => left.push((at + 2, Layer::Ethernet)),
        137 => left.push((at, Layer::Labels)),
        143 => left.push((at, Layer::Ethernet)),
        47 => {
            let flags = byte(header, at);
            let fields = [0x80, 0x20, 0x10].iter().filter(|bit| flags & **bit != 0).count();
            let behind = at + 4 + fields * 4;
            match word(header, at + 2) {
                0x6558 => left.push((behind, Layer::Ethernet)),
                0x88be if flags & 0x10 == 0 => left.push((behind, Layer::Ethernet)),
                0x88be => left.push((behind + 8, Layer::Ethernet)),
                0x22eb => {
                    left.extend([(behind + 12, Layer::Ethernet), (behind + 20, Layer::Ethernet)]);
                }
                ethertype => left.push((behind, Layer::Type(ethertype))),
            }
        }
        17 => of_udp(header, word(header, at + 2), at + 8, left),
        _ => {}
    }
}

fn of_udp(header: &[u8], port: u16, at: usize, left: &mut Vec<(usize, Layer)>) {
    match port {
        4789 | 8472 => left.push((at + 8, Layer::Ethernet)),
        4790 => {
            left.extend([Layer::Ethernet, Layer::Ip(4), Layer::Ip(6)].map(|layer| (at + 8, layer)));
        }
        6081 => {
            let behind = at + 8 + byte(header, at) % 64 * 4;
            match word(header, at + 2) {
                0x6558 => left.push((behind, Layer::Ethernet)),
                ethertype => left.push((behind, Layer::Type(ethertype))),
            }
        }
        6635 => left.push((at, Layer::Labels)),
        2152 => {
            let mut behind = at + if byte(header, at) & 7 == 0 { 8 } else { 12 };
            if byte(header, at) & 4 != 0 {
                let mut next = byte(header, behind - 1);
                while next != 0 && byte(header, behind) != 0 {
                    behind += byte(header, behind) * 4;
                    next = byte(header, behind - 1);
                }
            }
            left.push((behind, Layer::Bare));
        }
        _ => {}
    }
}
