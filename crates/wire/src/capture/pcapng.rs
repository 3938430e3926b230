//! pcapng (draft-ietf-opsawg-pcapng): blocks of type, length, body and length again.

use super::{LinkTypes, Missing, Order, Packet, snapped, take};
use crate::DecodeError;
use crate::bytes::{at, behind, count, header};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
/// The packet format before `ENHANCED_PACKET`.
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
/// Type and length at the beginning, length again at the end.
const FRAME_BYTES: u32 = 12;
/// `if_tsresol` and `if_tsoffset`.
const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;
/// `epb_dropcount`: packets lost since the previous packet.
const OPTION_DROPPED_BEFORE: u16 = 4;
/// `isb_ifdrop` and `isb_osdrop`: packets lost so far by the interface and by the system.
const OPTION_DROPPED_BY_INTERFACE: u16 = 5;
const OPTION_DROPPED_BY_SYSTEM: u16 = 7;

pub(super) fn is_magic(magic: [u8; 4]) -> bool {
    u32::from_be_bytes(magic) == SECTION
}

/// The packets of a file. The end of the file may truncate the last one. Ends after the first error.
#[derive(Clone, Debug)]
pub(super) struct Packets<'a> {
    wanted: LinkTypes,
    rest: &'a [u8],
    order: Order,
    /// The interfaces of the current section. Each takes at least 20 bytes of the file, which limits their number.
    interfaces: Vec<Interface>,
    /// A link type in the file, as long as no interface has a wanted one.
    foreign: Option<u16>,
    seen_wanted: bool,
    /// Wanted packets lost in earlier sections.
    dropped: u64,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    units_per_second: u64,
    offset_seconds: i64,
    /// Two counts of the same lost packets: from the interface's statistics, and from its packets.
    dropped: u64,
    dropped_between: u64,
}

struct Block<'a> {
    kind: u32,
    body: &'a [u8],
    rest: &'a [u8],
    /// The file ends inside it.
    cut: Option<DecodeError>,
}

impl<'a> Packets<'a> {
    pub(super) const fn new(file: &'a [u8], wanted: LinkTypes) -> Self {
        Self {
            wanted,
            rest: file,
            order: Order::Little,
            interfaces: Vec::new(),
            foreign: None,
            seen_wanted: false,
            dropped: 0,
        }
    }

    /// Wanted packets that the capturing program or its system lost, as far as the file records it.
    pub(super) fn dropped_packets(&self) -> u64 {
        let counts = |interface: &&Interface| (self.wanted)(interface.link_type);
        let here = self.interfaces.iter().filter(counts);
        let here = here.map(|interface| interface.dropped.max(interface.dropped_between));
        here.fold(self.dropped, u64::saturating_add)
    }

    /// Whether there are interfaces, and none of them is netlink.
    const fn is_foreign(&self) -> bool {
        self.foreign.is_some() && !self.seen_wanted
    }

    /// Reads one block; `None` if it holds no packet.
    fn step(&mut self) -> Result<Option<Packet<'a>>, DecodeError> {
        let block = self.block()?;
        self.rest = block.rest;

        match block.kind {
            SECTION => {
                // Interfaces belong to their section; their lost packets stay counted.
                self.dropped = self.dropped_packets();
                self.interfaces.clear();
                Ok(None)
            }
            INTERFACE_STATISTICS => {
                self.statistics(block.body);
                Ok(None)
            }
            INTERFACE => {
                let interface = Interface::decode(block.body, self.order)?;
                if (self.wanted)(interface.link_type) {
                    self.seen_wanted = true;
                } else {
                    self.foreign = Some(interface.link_type);
                }
                self.interfaces.push(interface);
                Ok(None)
            }
            ENHANCED_PACKET | OLD_PACKET => self.enhanced(&block).map(Some),
            SIMPLE_PACKET => self.simple(&block).map(Some),
            _ => Ok(None),
        }
    }

    fn block(&mut self) -> Result<Block<'a>, DecodeError> {
        let head: &[u8; 12] = header(self.rest)?;
        // The type of a section block reads the same in both byte orders; its body starts with the magic that reveals the order.
        if u32::from_be_bytes(at::<0, 4, 12>(head)) == SECTION {
            self.order = match at::<8, 4, 12>(head) {
                [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
                [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
                _ => return Err(DecodeError::BadBlock(SECTION)),
            };
        }

        let kind = self.order.u32(at::<0, 4, 12>(head));
        let length = self.order.u32(at::<4, 4, 12>(head));

        let is_packet = matches!(kind, ENHANCED_PACKET | OLD_PACKET | SIMPLE_PACKET);
        let bytes = match take(self.rest, length) {
            Ok(bytes) => bytes,
            // A packet truncated by the end of the file still gives its complete messages.
            Err(error) if is_packet && length.is_multiple_of(4) => {
                let body = self.rest.get(8..).unwrap_or_default();
                return Ok(Block { kind, body, rest: &[], cut: Some(error) });
            }
            Err(error) => return Err(error),
        };

        if length < FRAME_BYTES || !length.is_multiple_of(4) {
            return Err(DecodeError::BadLength { length, have: count(self.rest.len()) });
        }

        let body = bytes.get(8..bytes.len() - 4).unwrap_or_default();
        // The length is at both ends, so that a file can be read backwards too.
        let again = bytes.last_chunk().map(|bytes| self.order.u32(*bytes));
        if again != Some(length) {
            return Err(DecodeError::BadBlock(kind));
        }

        let rest = self.rest.get(bytes.len()..).unwrap_or_default();
        Ok(Block { kind, body, rest, cut: None })
    }

    /// Reads the lost packets from an interface's statistics. They are cumulative, so the last ones count; unreadable ones are
    /// ignored.
    fn statistics(&mut self, body: &[u8]) {
        let order = self.order;
        let Some(id) = body.first_chunk().map(|id| order.u32(*id)) else { return };
        let interface = usize::try_from(id).ok().and_then(|id| self.interfaces.get_mut(id));
        let Some(interface) = interface else { return };

        let options = Options::new(body.get(12..).unwrap_or_default(), order).flatten();
        let lost = options.filter_map(|(code, value)| match code {
            OPTION_DROPPED_BY_INTERFACE | OPTION_DROPPED_BY_SYSTEM => order.u64(value),
            _ => None,
        });

        interface.dropped = lost.fold(0, u64::saturating_add);
    }

    /// A packet with its interface and time. The old format has a smaller interface number, followed by the number of packets
    /// lost before it.
    fn enhanced(&mut self, block: &Block<'a>) -> Result<Packet<'a>, DecodeError> {
        /// The old format's value for "unknown".
        const UNKNOWN: u16 = 0xffff;

        let order = self.order;
        let head: &[u8; 20] = header(block.body)?;
        let [high, low, captured, original] = [
            at::<4, 4, 20>(head),
            at::<8, 4, 20>(head),
            at::<12, 4, 20>(head),
            at::<16, 4, 20>(head),
        ]
        .map(|bytes| order.u32(bytes));

        let (id, lost_before) = match block.kind {
            OLD_PACKET => {
                let lost = order.u16(at::<2, 2, 20>(head));
                (order.u16(at::<0, 2, 20>(head)).into(), if lost == UNKNOWN { 0 } else { lost })
            }
            _ => (order.u32(at::<0, 4, 20>(head)), 0),
        };

        let interface = usize::try_from(id).ok().and_then(|id| self.interfaces.get_mut(id));
        let interface = interface.ok_or(DecodeError::BadBlock(block.kind))?;
        let rest = block.body.get(20..).unwrap_or_default();

        let bytes = match (take(rest, captured), block.cut) {
            (Ok(bytes), _) => bytes,
            (Err(_), Some(_)) => rest,
            (Err(error), None) => return Err(error),
        };

        let options = Options::new(behind(rest, bytes.len()), order);
        let lost = options.flatten().find(|(code, _)| *code == OPTION_DROPPED_BEFORE);
        let lost = lost.and_then(|(_, value)| order.u64(value)).unwrap_or(lost_before.into());
        interface.dropped_between = interface.dropped_between.saturating_add(lost);

        Ok(Packet {
            link_type: interface.link_type,
            time_unix_ns: interface.time_unix_ns(u64::from(high) << 32 | u64::from(low)),
            bytes,
            missing: block.cut.map(Missing::Cut).or_else(|| snapped(bytes, original)),
        })
    }

    /// A packet of the first interface, without a time. Its captured length is the room in the block, less padding.
    fn simple(&self, block: &Block<'a>) -> Result<Packet<'a>, DecodeError> {
        let head: &[u8; 4] = header(block.body)?;
        let interface = self.interfaces.first().ok_or(DecodeError::BadBlock(SIMPLE_PACKET))?;
        let bytes = block.body.get(4..).unwrap_or_default();
        let original = self.order.u32(*head);
        let bytes = take(bytes, original.min(count(bytes.len())))?;
        Ok(Packet {
            link_type: interface.link_type,
            time_unix_ns: None,
            bytes,
            missing: block.cut.map(Missing::Cut).or_else(|| snapped(bytes, original)),
        })
    }
}

impl Interface {
    fn decode(body: &[u8], order: Order) -> Result<Self, DecodeError> {
        let head: &[u8; 8] = header(body)?;
        let mut interface = Self {
            link_type: order.u16(at::<0, 2, 8>(head)),
            // Microseconds, unless `if_tsresol` specifies another unit.
            units_per_second: 1_000_000,
            offset_seconds: 0,
            dropped: 0,
            dropped_between: 0,
        };

        for option in Options::new(body.get(8..).unwrap_or_default(), order) {
            match option? {
                (OPTION_RESOLUTION, [resolution]) => {
                    interface.units_per_second = units(*resolution);
                }
                (OPTION_OFFSET, value) => {
                    if let Some(seconds) = order.u64(value) {
                        interface.offset_seconds = seconds.cast_signed();
                    }
                }
                _ => {}
            }
        }

        Ok(interface)
    }

    /// `None` for a time that does not fit in 64 bits of nanoseconds.
    fn time_unix_ns(&self, units: u64) -> Option<u64> {
        let ns = i128::from(units) * 1_000_000_000 / i128::from(self.units_per_second);
        u64::try_from(ns + i128::from(self.offset_seconds) * 1_000_000_000).ok()
    }
}

/// The options at the end of a block: code and value. Ends after the first error.
struct Options<'a> {
    rest: &'a [u8],
    order: Order,
}

impl<'a> Options<'a> {
    const fn new(rest: &'a [u8], order: Order) -> Self {
        Self { rest, order }
    }

    fn first(&self) -> Result<(u16, &'a [u8]), DecodeError> {
        let head: &[u8; 4] = header(self.rest)?;
        let length = self.order.u16(at::<2, 2, 4>(head));
        let value = take(self.rest.get(4..).unwrap_or_default(), length.into())?;
        Ok((self.order.u16(at::<0, 2, 4>(head)), value))
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u16, &'a [u8]), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let first = self.first();
        self.rest = match &first {
            // Code 0 ends the options (`opt_endofopt`).
            Ok((0, _)) | Err(_) => &[],
            Ok((_, value)) => behind(self.rest, 4 + value.len()),
        };
        first.map_or_else(|error| Some(Err(error)), |option| (option.0 != 0).then_some(Ok(option)))
    }
}

/// Units per second of an `if_tsresol`: a power of 10, or with the highest bit set, of 2. Saturates at 64 bits.
fn units(resolution: u8) -> u64 {
    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
    base.saturating_pow(u32::from(resolution & 0x7f))
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let step = self.step();
            // A broken block ends the file, because the beginning of the next one is unknown.
            let is_cut = |packet: &Packet<'_>| matches!(packet.missing, Some(Missing::Cut(_)));
            if step.as_ref().map_or(true, |packet| packet.as_ref().is_some_and(is_cut)) {
                self.rest = &[];
                // That the file captures something else is more helpful than where it breaks off.
                if self.is_foreign() {
                    break;
                }
            }

            if let Some(packet) = step.transpose() {
                return Some(packet);
            }
        }

        // A file without any netlink is reported once, at its end.
        let foreign = self.foreign.take().filter(|_| !self.seen_wanted)?;
        Some(Err(DecodeError::WrongLinkType(foreign.into())))
    }
}
