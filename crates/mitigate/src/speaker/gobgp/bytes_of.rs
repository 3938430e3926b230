//! Routes in BGP's own encoding.

use crate::{Actions, Community, Flow, Nlri, Prefix};
use std::net::IpAddr;

/// Flags of an attribute that every speaker must know, and of one that is optional and transitive (RFC 4271 section 4.3).
const WELL_KNOWN: u8 = 0x40;
const OPTIONAL: u8 = 0x80;
const OPTIONAL_TRANSITIVE: u8 = 0xc0;
const UNICAST: u8 = 1;
const FLOWSPEC: u8 = 133;

/// The `Family` message of GoBGP's interface: AFI and SAFI.
pub(super) fn family(nlri: &Nlri) -> Vec<u8> {
    let mut out = vec![0x08, afi(nlri.destination()), 0x10];
    match nlri {
        Nlri::Unicast(_) => out.push(UNICAST),
        // A two-byte varint.
        Nlri::Flowspec(_) => out.extend([FLOWSPEC & 0x7f | 0x80, FLOWSPEC >> 7]),
    }
    out
}

fn afi(prefix: Prefix) -> u8 {
    if prefix.addr().is_ipv4() { 1 } else { 2 }
}

pub(super) fn nlri_bytes(nlri: &Nlri) -> Vec<u8> {
    match nlri {
        Nlri::Unicast(prefix) => {
            let mut out = vec![prefix.length_bits()];
            out.extend(significant(prefix));
            out
        }
        Nlri::Flowspec(flow) => {
            let components = components(flow);
            // At most 75 bytes with all components: up to 239, the length takes one byte (RFC 8955 section 4.1).
            let mut out = vec![components.len() as u8];
            out.extend(components);
            out
        }
    }
}

/// The components in the order of their types, as required by RFC 8955 section 4.2.
fn components(flow: &Flow) -> Vec<u8> {
    /// Operator bits: the end of a list, a two-byte value, and how to compare.
    const END: u8 = 0x80;
    const TWO_BYTES: u8 = 0x10;
    const EQUAL: u8 = 0x01;
    const GREATER: u8 = 0x02;
    /// For bit masks: all bits of the value must be set.
    const MATCH: u8 = 0x01;
    const IS_FRAGMENT: u8 = 0x02;

    let mut out = Vec::new();
    let mut prefix = |kind: u8, prefix: &Prefix| {
        out.extend([kind, prefix.length_bits()]);
        // IPv6 prefixes include the offset of the bits to compare (RFC 8956 section 3.1).
        out.extend(prefix.addr().is_ipv6().then_some(0));
        out.extend(significant(prefix));
    };
    prefix(1, &flow.destination);
    if let Some(source) = &flow.source {
        prefix(2, source);
    }

    let short = |kind: u8, op: u8, value: u8| [kind, END | op, value];
    let long = |kind: u8, op: u8, value: u16| {
        let [high, low] = value.to_be_bytes();
        [kind, END | TWO_BYTES | op, high, low]
    };
    out.extend(flow.protocol.iter().flat_map(|number| short(3, EQUAL, *number)));
    out.extend(flow.destination_port.iter().flat_map(|port| long(5, EQUAL, *port)));
    out.extend(flow.source_port.iter().flat_map(|port| long(6, EQUAL, *port)));
    out.extend(flow.tcp_flags.iter().flat_map(|flags| short(9, MATCH, *flags)));
    out.extend(flow.length_min_bytes.iter().flat_map(|bytes| long(10, GREATER | EQUAL, *bytes)));
    if flow.is_fragment {
        out.extend(short(12, MATCH, IS_FRAGMENT));
    }
    out
}

/// The bytes of an address that its length covers.
fn significant(prefix: &Prefix) -> Vec<u8> {
    let mut bytes = octets(prefix.addr());
    bytes.truncate(usize::from(prefix.length_bits()).div_ceil(8));
    bytes
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

/// The path attributes, each with its header.
pub(super) fn attributes(nlri: &Nlri, actions: &Actions) -> Vec<Vec<u8>> {
    let origin_igp = attribute(WELL_KNOWN, 1, &[0]);
    match actions {
        Actions::Blackhole { next_hop, communities } => {
            let mut all = vec![origin_igp, reach(nlri, *next_hop)];
            let communities: Vec<_> = communities.iter().flat_map(community).collect();
            if !communities.is_empty() {
                all.push(attribute(OPTIONAL_TRANSITIVE, 8, &communities));
            }
            all
        }
        Actions::RateLimit { bytes_per_sec } => {
            // RFC 8955 section 7.1: traffic-rate-bytes, without an AS.
            let mut rate = vec![0x80, 0x06, 0, 0];
            rate.extend(bytes_per_sec.to_be_bytes());
            // Flowspec has no next hop, but GoBGP refuses a path without one: the unspecified address, as its own client
            // sends.
            let next_hop = attribute(WELL_KNOWN, 3, &[0; 4]);
            vec![origin_igp, next_hop, attribute(OPTIONAL_TRANSITIVE, 16, &rate)]
        }
    }
}

/// The next hop: a separate attribute in IPv4, part of MP_REACH_NLRI in IPv6 (RFC 4760).
fn reach(nlri: &Nlri, next_hop: IpAddr) -> Vec<u8> {
    let octets = octets(next_hop);
    match next_hop {
        IpAddr::V4(_) => attribute(WELL_KNOWN, 3, &octets),
        IpAddr::V6(_) => {
            // AFI, SAFI, the next hop with its length, a reserved byte, and the NLRI.
            let value = [&[0, 2, UNICAST, 16][..], &octets, &[0], &nlri_bytes(nlri)].concat();
            attribute(OPTIONAL, 14, &value)
        }
    }
}

fn community(Community(high, low): &Community) -> [u8; 4] {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    [a, b, c, d]
}

/// An attribute with a two-byte length (flag 0x10), which is always large enough.
fn attribute(flags: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    let length = (value.len() as u16).to_be_bytes();
    [&[flags | 0x10, kind][..], &length, value].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flowspec_is_written_as_the_rfc_has_it() {
        let flow = Flow {
            protocol: Some(17),
            source_port: Some(53),
            is_fragment: true,
            ..Flow::to("192.0.2.0/24".parse().unwrap())
        };
        let bytes = nlri_bytes(&Nlri::Flowspec(flow));
        let expected = [
            15, // all that follows
            1, 24, 192, 0, 2, // destination
            3, 0x81, 17, // protocol
            6, 0x91, 0, 53, // source port
            12, 0x81, 2, // fragment
        ];
        assert_eq!(bytes, expected);
    }
}
