//! pcap (draft-ietf-opsawg-pcap): a header of 24 bytes, then packets preceded by 16 bytes each.

use super::{LinkTypes, Missing, Order, Packet, snapped, take};
use crate::DecodeError;
use crate::bytes::{at, header};

const FILE_HEADER_BYTES: usize = 24;
const PACKET_HEADER_BYTES: usize = 16;

/// The meaning of the first four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    order: Order,
    /// Nanoseconds per unit of the fractional part of a time.
    unit_ns: u64,
}

pub(super) const fn kind(magic: [u8; 4]) -> Option<Kind> {
    let (order, unit_ns) = match magic {
        [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, 1000),
        [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, 1000),
        [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, 1),
        [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, 1),
        _ => return None,
    };
    Some(Kind { order, unit_ns })
}

/// The packets of a file. The end of the file may truncate the last one. Ends after the first
/// error.
#[derive(Clone, Debug)]
pub(super) struct Packets<'a> {
    kind: Kind,
    link_type: u16,
    rest: &'a [u8],
}

impl<'a> Packets<'a> {
    pub(super) fn new(file: &'a [u8], kind: Kind, wanted: LinkTypes) -> Result<Self, DecodeError> {
        let head: &[u8; FILE_HEADER_BYTES] = header(file)?;
        // The upper bits describe a frame check sequence.
        let link_type = kind.order.u32(at::<20, 4, FILE_HEADER_BYTES>(head)) & 0xffff;
        let link_type = u16::try_from(link_type)
            .ok()
            .filter(|link_type| wanted(*link_type))
            .ok_or(DecodeError::WrongLinkType(link_type))?;
        Ok(Self { kind, link_type, rest: file.get(FILE_HEADER_BYTES..).unwrap_or_default() })
    }

    /// Whether a host of the opposite byte order wrote it.
    pub(super) const fn is_foreign(&self) -> bool {
        !self.kind.order.is_own()
    }

    fn first(&self) -> Result<(Packet<'a>, &'a [u8]), DecodeError> {
        let order = self.kind.order;
        let head: &[u8; PACKET_HEADER_BYTES] = header(self.rest)?;

        let seconds = order.u32(at::<0, 4, PACKET_HEADER_BYTES>(head));
        let fraction = order.u32(at::<4, 4, PACKET_HEADER_BYTES>(head));
        let captured = order.u32(at::<8, 4, PACKET_HEADER_BYTES>(head));
        let behind = self.rest.get(PACKET_HEADER_BYTES..).unwrap_or_default();
        let original = order.u32(at::<12, 4, PACKET_HEADER_BYTES>(head));

        let (bytes, missing) = match take(behind, captured) {
            Ok(bytes) => (bytes, snapped(bytes, original)),
            Err(error) => (behind, Some(Missing::Cut(error))),
        };

        // At most 2^32 times 10^9, and 2^32 times 1000: no overflow.
        let time = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.kind.unit_ns;
        let packet = Packet { link_type: self.link_type, time_unix_ns: Some(time), bytes, missing };
        Ok((packet, behind.get(bytes.len()..).unwrap_or_default()))
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let first = self.first();
        self.rest = first.as_ref().map_or(&[], |(_, rest)| *rest);
        Some(first.map(|(packet, _)| packet))
    }
}
