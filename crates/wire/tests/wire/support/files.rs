//! Hand-written capture files.

use wire::DecodeError;
use wire::capture::{Captured, read};

/// The messages of a file, each with its time, and the errors.
pub(crate) fn all(file: &[u8]) -> (Vec<Captured<'_>>, Vec<DecodeError>) {
    let (messages, errors): (Vec<_>, Vec<_>) = read(file).unwrap().partition(Result::is_ok);
    (
        messages.into_iter().map(Result::unwrap).collect(),
        errors.into_iter().map(Result::unwrap_err).collect(),
    )
}

pub(crate) const NOOP: [u8; 16] = netlink_header(16);

pub(crate) const fn netlink_header(length: u8) -> [u8; 16] {
    let mut header = [0; 16];
    header[if cfg!(target_endian = "little") { 0 } else { 3 }] = length;
    header[if cfg!(target_endian = "little") { 4 } else { 5 }] = 20;
    header
}

/// LINKTYPE_NETLINK's header: ARPHRD_NETLINK at 2, the protocol at 14, both in network byte order.
pub(crate) fn cooked(protocol: u8, messages: &[u8]) -> Vec<u8> {
    [&[0, 0, 3, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, protocol], messages].concat()
}

#[derive(Clone, Copy)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    pub(crate) fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    pub(crate) fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }
}

pub(crate) fn pcap(
    order: Order,
    magic: u32,
    link_type: u32,
    packets: &[(u32, u32, &[u8])],
) -> Vec<u8> {
    let mut file = order.words(&[magic, 0, 0, 0, 65_535, link_type]);
    for (seconds, fraction, packet) in packets {
        let length = packet.len() as u32;
        file.extend(order.words(&[*seconds, *fraction, length, length]));
        file.extend_from_slice(packet);
    }
    file
}

pub(crate) fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = order.u32(body.len() as u32 + 12);
    [&order.u32(kind)[..], &length, &body, &length].concat()
}

pub(crate) fn section(order: Order) -> Vec<u8> {
    let version = [order.u16(1), order.u16(0)].concat();
    block(order, 0x0a0d_0d0a, &[&order.u32(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat())
}

pub(crate) fn interface(order: Order, link_type: u16, options: &[u8]) -> Vec<u8> {
    let head = [order.u16(link_type), order.u16(0)].concat();
    block(order, 1, &[&head[..], &[0; 4], options].concat())
}

pub(crate) fn enhanced(order: Order, interface: u32, time: u64, packet: &[u8]) -> Vec<u8> {
    let length = packet.len() as u32;
    let head = order.words(&[interface, (time >> 32) as u32, time as u32, length, length]);
    block(order, 6, &[&head[..], packet].concat())
}
