//! pcapng (draft-ietf-opsawg-pcapng): blocks of type, length, body and length again.

use super::{LINKTYPE_NETLINK, Order, Packet, take};
use crate::DecodeError;
use crate::bytes::{at, behind, count, header};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Type and length in front, length again at the end.
const FRAME_BYTES: u32 = 12;
/// `if_tsresol` and `if_tsoffset`.
const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;

pub(super) fn is_magic(magic: [u8; 4]) -> bool {
    u32::from_be_bytes(magic) == SECTION
}

/// The packets of a file. Ends after the first error.
#[derive(Clone, Debug)]
pub(super) struct Packets<'a> {
    rest: &'a [u8],
    order: Order,
    /// Of the current section. One takes 20 bytes of the file or more, which bounds them.
    interfaces: Vec<Interface>,
    /// A link type of the file, as long as no interface is netlink's.
    foreign: Option<u16>,
    seen_netlink: bool,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    units_per_second: u64,
    offset_seconds: i64,
}

struct Block<'a> {
    kind: u32,
    body: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Packets<'a> {
    pub(super) const fn new(file: &'a [u8]) -> Self {
        Self {
            rest: file,
            order: Order::Little,
            interfaces: Vec::new(),
            foreign: None,
            seen_netlink: false,
        }
    }

    /// Reads one block: `None` for one that holds no packet.
    fn step(&mut self) -> Result<Option<Packet<'a>>, DecodeError> {
        let block = self.block()?;
        self.rest = block.rest;
        match block.kind {
            SECTION => {
                self.interfaces.clear();
                Ok(None)
            }
            INTERFACE => {
                let interface = Interface::decode(block.body, self.order)?;
                if interface.link_type == LINKTYPE_NETLINK {
                    self.seen_netlink = true;
                } else {
                    self.foreign = Some(interface.link_type);
                }
                self.interfaces.push(interface);
                Ok(None)
            }
            ENHANCED_PACKET => self.enhanced(block.body).map(Some),
            SIMPLE_PACKET => self.simple(block.body).map(Some),
            _ => Ok(None),
        }
    }

    fn block(&mut self) -> Result<Block<'a>, DecodeError> {
        let head: &[u8; 12] = header(self.rest)?;
        // The type of a section reads the same in both orders; its body starts with the magic that tells the order.
        if u32::from_be_bytes(at::<0, 4, 12>(head)) == SECTION {
            self.order = match at::<8, 4, 12>(head) {
                [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
                [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
                _ => return Err(DecodeError::BadBlock(SECTION)),
            };
        }
        let kind = self.order.u32(at::<0, 4, 12>(head));
        let length = self.order.u32(at::<4, 4, 12>(head));
        let bytes = take(self.rest, length)?;
        if length < FRAME_BYTES || !length.is_multiple_of(4) {
            return Err(DecodeError::BadLength { length, have: count(self.rest.len()) });
        }
        let body = bytes.get(8..bytes.len() - 4).unwrap_or_default();
        let again = bytes.last_chunk().map(|bytes| self.order.u32(*bytes));
        if again != Some(length) {
            return Err(DecodeError::BadBlock(kind));
        }
        Ok(Block { kind, body, rest: self.rest.get(bytes.len()..).unwrap_or_default() })
    }

    fn enhanced(&self, body: &'a [u8]) -> Result<Packet<'a>, DecodeError> {
        let head: &[u8; 20] = header(body)?;
        let [id, high, low, captured] = [
            at::<0, 4, 20>(head),
            at::<4, 4, 20>(head),
            at::<8, 4, 20>(head),
            at::<12, 4, 20>(head),
        ]
        .map(|bytes| self.order.u32(bytes));
        let interface = usize::try_from(id).ok().and_then(|id| self.interfaces.get(id));
        let interface = interface.ok_or(DecodeError::BadBlock(ENHANCED_PACKET))?;
        Ok(Packet {
            link_type: interface.link_type,
            time_unix_ns: interface.time_unix_ns(u64::from(high) << 32 | u64::from(low)),
            bytes: take(body.get(20..).unwrap_or_default(), captured)?,
        })
    }

    /// A packet of the first interface, without a time. Its captured length is what the block has room for, less padding.
    fn simple(&self, body: &'a [u8]) -> Result<Packet<'a>, DecodeError> {
        let head: &[u8; 4] = header(body)?;
        let interface = self.interfaces.first().ok_or(DecodeError::BadBlock(SIMPLE_PACKET))?;
        let bytes = body.get(4..).unwrap_or_default();
        let captured = self.order.u32(*head).min(count(bytes.len()));
        Ok(Packet {
            link_type: interface.link_type,
            time_unix_ns: None,
            bytes: take(bytes, captured)?,
        })
    }
}

impl Interface {
    fn decode(body: &[u8], order: Order) -> Result<Self, DecodeError> {
        let head: &[u8; 8] = header(body)?;
        let mut interface = Self {
            link_type: order.u16(at::<0, 2, 8>(head)),
            units_per_second: 1_000_000,
            offset_seconds: 0,
        };
        let mut options = body.get(8..).unwrap_or_default();
        while !options.is_empty() {
            let head: &[u8; 4] = header(options)?;
            let code = order.u16(at::<0, 2, 4>(head));
            let length = order.u16(at::<2, 2, 4>(head));
            let value = take(options.get(4..).unwrap_or_default(), length.into())?;
            match (code, value) {
                (0, _) => break,
                (OPTION_RESOLUTION, [resolution]) => {
                    interface.units_per_second = units(*resolution);
                }
                (OPTION_OFFSET, value) => {
                    if let Ok(bytes) = <[u8; 8]>::try_from(value) {
                        interface.offset_seconds = match order {
                            Order::Little => i64::from_le_bytes(bytes),
                            Order::Big => i64::from_be_bytes(bytes),
                        };
                    }
                }
                _ => {}
            }
            options = behind(options, 4 + value.len());
        }
        Ok(interface)
    }

    /// `None` for a time outside what 64 bits of nanoseconds hold.
    fn time_unix_ns(&self, units: u64) -> Option<u64> {
        let ns = i128::from(units) * 1_000_000_000 / i128::from(self.units_per_second);
        u64::try_from(ns + i128::from(self.offset_seconds) * 1_000_000_000).ok()
    }
}

/// Units per second of an `if_tsresol`: a power of 10, or with the highest bit a power of 2. What does not fit 64 bits reads
/// as the finest that does.
fn units(resolution: u8) -> u64 {
    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
    base.saturating_pow(u32::from(resolution & 0x7f))
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            match self.step() {
                Ok(None) => {}
                Ok(Some(packet)) => return Some(Ok(packet)),
                Err(error) => {
                    self.rest = &[];
                    self.foreign = None;
                    return Some(Err(error));
                }
            }
        }
        // A file without any netlink is told once, at its end.
        let foreign = self.foreign.take().filter(|_| !self.seen_netlink)?;
        Some(Err(DecodeError::WrongLinkType(foreign.into())))
    }
}
