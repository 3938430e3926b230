//! The wire format of packets: the header, and the sealed part behind it. All numbers are little-endian.
//!
//! | bytes | header |
//! |---|---|
//! | 0 | version (upper 4 bits) and [`Kind`] |
//! | 1 | epoch of the key |
//! | 2, 3 | 0 |
//! | 4 to 7 | session, as numbered by the end that receives the packet |
//! | 8 to 15 | packet number, never reused with the same key |
//!
//! The header is sent in the clear and is authenticated. The rest is sealed and ends with a 16-byte tag. docs/hop-wire.md
//! describes every byte and has an example.

use thiserror::Error;

/// Length of the header, in bytes.
pub const HEADER_BYTES: usize = 16;

/// Length of the tag at the end, in bytes.
pub const TAG_BYTES: usize = 16;

/// Maximum length of the sealed fields before a datagram's payload, in bytes.
pub const DATA_HEAD_BYTES_MAX: usize = 8 + 8 + 4 + 18;

/// Maximum length of a bitmap, in bytes: 2,048 packets.
pub const BITMAP_BYTES_MAX: usize = 256;

/// Minimum length of a packet that asks for an answer, in bytes: as long as a short report, because an end never sends back more
/// bytes than it received.
pub const PACKET_BYTES_MIN: usize = 100;

/// Length of a cookie, in bytes.
pub const COOKIE_BYTES: usize = 32;

/// Length of a report without its bitmap, in bytes.
const REPORT_BYTES: usize = 52;

/// Protocol version.
const VERSION: u8 = 1;

/// Type of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// First message of a handshake.
    Hello,
    /// Answer to a hello.
    Welcome,
    /// A datagram, or a part of one.
    Data,
    /// What the receiver has got so far.
    Report,
    /// The sender's floor, when no datagram is there to carry it.
    Floor,
    /// Answer to a hello under load: the sender must repeat the hello with this cookie.
    Cookie,
    /// A hello that returns a cookie.
    HelloWithCookie,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Hello,
        Kind::Welcome,
        Kind::Data,
        Kind::Report,
        Kind::Floor,
        Kind::Cookie,
        Kind::HelloWithCookie,
    ];
}

/// Why a packet cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Malformed {
    #[error("it is too short")]
    TooShort,
    #[error("its version is not known")]
    Version,
    #[error("its kind is not known")]
    Kind,
    #[error("it contradicts itself")]
    Contradiction,
}

/// The first 16 bytes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub kind: Kind,
    /// Which of the session's keys sealed the packet.
    pub epoch: u8,
    /// The receiver's number for the session.
    pub session: u32,
    /// The packet's number within the session and direction.
    pub number: u64,
}

impl Header {
    /// Encodes the header as it appears on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[1] = self.epoch;
        bytes[4..8].copy_from_slice(&self.session.to_le_bytes());
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Decodes the header of a packet.
    ///
    /// # Errors
    /// The packet is too short, has another version, or has an unknown kind.
    pub fn decode(packet: &[u8]) -> Result<Header, Malformed> {
        let bytes = packet.first_chunk::<HEADER_BYTES>().ok_or(Malformed::TooShort)?;
        if bytes[0] >> 4 != VERSION {
            return Err(Malformed::Version);
        }
        let kind = Kind::ALL.get(usize::from(bytes[0] & 0xf)).ok_or(Malformed::Kind)?;
        let mut rest = Take(&bytes[4..]);
        Ok(Header { kind: *kind, epoch: bytes[1], session: rest.u32()?, number: rest.u64()? })
    }
}

/// Which part of a datagram a packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Only,
    First,
    Middle,
    Last,
}

impl Part {
    const ALL: [Part; 4] = [Part::Only, Part::First, Part::Middle, Part::Last];

    /// Whether a datagram begins with this part.
    pub fn begins(self) -> bool {
        matches!(self, Part::Only | Part::First)
    }

    /// Whether a datagram ends with this part.
    pub fn ends(self) -> bool {
        matches!(self, Part::Only | Part::Last)
    }
}

/// The client that sent a datagram to the first Weir.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// Not known.
    Unknown,
    /// Has no address, like the sender of a unix datagram.
    Nobody,
    V4([u8; 4], u16),
    V6([u8; 16], u16),
}

impl Sender {
    fn code(self) -> u8 {
        match self {
            Sender::Unknown => 0,
            Sender::Nobody => 1,
            Sender::V4(..) => 2,
            Sender::V6(..) => 3,
        }
    }
}

/// Properties of a datagram as a whole. Sent with the first part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// When the first Weir received it, in nanoseconds since 1970.
    pub received_unix_ns: u64,
    pub sender: Sender,
    /// Length of all parts together, in bytes, at most 65,535.
    pub bytes: u16,
}

/// The fields before a datagram's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataHead {
    /// Low 32 bits of the sequence number.
    pub sequence_low: u32,
    /// Distance of the sequence number above the floor; 2^24 - 1 means that or more.
    pub beyond_floor: u32,
    pub part: Part,
    /// Whether the receiver should report at once.
    pub asks: bool,
    /// Whether an earlier life of the receiver may already have this datagram.
    pub may_be_second: bool,
    /// Present with the first part of a datagram.
    pub origin: Option<Origin>,
}

/// Largest value of [`DataHead::beyond_floor`]. It says nothing about the floor.
pub const BEYOND_FLOOR_MAX: u32 = (1 << 24) - 1;

impl DataHead {
    /// Appends the wire bytes. [`origin`](Self::origin) must be present if and only if the part begins a datagram.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sequence_low.to_le_bytes());
        out.extend_from_slice(&self.beyond_floor.min(BEYOND_FLOOR_MAX).to_le_bytes()[..3]);
        let sender = self.origin.map_or(0, |origin| origin.sender.code());
        let flags = self.part as u8
            | u8::from(self.asks) << 2
            | u8::from(self.may_be_second) << 3
            | sender << 4;
        out.push(flags);

        let Some(origin) = self.origin else { return };
        out.extend_from_slice(&origin.received_unix_ns.to_le_bytes());
        out.extend_from_slice(&origin.bytes.to_le_bytes());
        let (address, port): (&[u8], u16) = match &origin.sender {
            Sender::Unknown | Sender::Nobody => return,
            Sender::V4(address, port) => (address, *port),
            Sender::V6(address, port) => (address, *port),
        };
        out.extend_from_slice(address);
        out.extend_from_slice(&port.to_le_bytes());
    }

    /// Decodes the fields before a datagram's payload, and returns them with the payload, without the padding of a short packet.
    ///
    /// # Errors
    /// The packet is too short.
    pub fn decode(sealed: &[u8]) -> Result<(DataHead, &[u8]), Malformed> {
        let mut rest = Take(sealed);
        let sequence_low = rest.u32()?;
        let word = rest.u32()?;
        let (beyond_floor, flags) = (word & BEYOND_FLOOR_MAX, (word >> 24) as u8);
        let part = Part::ALL[usize::from(flags & 3)];

        let origin = match part.begins() {
            false => None,
            true => {
                let (received_unix_ns, bytes) = (rest.u64()?, rest.u16()?);
                let sender = match flags >> 4 & 3 {
                    0 => Sender::Unknown,
                    1 => Sender::Nobody,
                    2 => Sender::V4(rest.array()?, rest.u16()?),
                    _ => Sender::V6(rest.array()?, rest.u16()?),
                };
                Some(Origin { received_unix_ns, sender, bytes })
            }
        };
        let bytes = match (part, origin) {
            (Part::Only, Some(origin)) => rest.0.get(..origin.bytes.into()),
            _ => Some(rest.0),
        };
        let bytes = bytes.ok_or(Malformed::Contradiction)?;

        let (asks, may_be_second) = (flags & 4 != 0, flags & 8 != 0);
        let head = DataHead { sequence_low, beyond_floor, part, asks, may_be_second, origin };
        Ok((head, bytes))
    }
}

/// What has arrived, by packet number, and what became of it, by sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report<'a> {
    /// Highest packet number that has arrived.
    pub largest: u64,
    /// How long ago that packet arrived, in microseconds.
    pub delay_us: u32,
    /// Longest time between a packet and the report on it, in microseconds.
    pub interval_us: u32,
    /// The floor that the receiver has adopted.
    pub floor: u64,
    /// Datagrams below the floor that were accepted.
    pub accepted: u64,
    /// Bytes of those datagrams.
    pub accepted_bytes: u64,
    /// Packets that have arrived.
    pub packets: u64,
    /// Number of sequence numbers, counted from the floor, that the receiver can hold.
    pub window: u32,
    /// Bit `i`, counted from the lowest bit of the first byte: whether packet `largest - 1 - i` has arrived.
    pub bitmap: &'a [u8],
}

impl<'a> Report<'a> {
    /// Appends the wire bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.largest.to_le_bytes());
        out.extend_from_slice(&self.delay_us.to_le_bytes());
        out.extend_from_slice(&self.interval_us.to_le_bytes());
        for number in [self.floor, self.accepted, self.accepted_bytes, self.packets] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.window.to_le_bytes());
        out.extend_from_slice(&self.bitmap[..self.bitmap.len().min(BITMAP_BYTES_MAX)]);
    }

    /// Decodes a report.
    ///
    /// # Errors
    /// The report is too short, its bitmap is too long, or it accepts more datagrams than there are below the floor.
    pub fn decode(sealed: &'a [u8]) -> Result<Report<'a>, Malformed> {
        let mut rest = Take(sealed);
        let report = Report {
            largest: rest.u64()?,
            delay_us: rest.u32()?,
            interval_us: rest.u32()?,
            floor: rest.u64()?,
            accepted: rest.u64()?,
            accepted_bytes: rest.u64()?,
            packets: rest.u64()?,
            window: rest.u32()?,
            bitmap: rest.0,
        };
        match report.bitmap.len() <= BITMAP_BYTES_MAX && report.accepted <= report.floor {
            true => Ok(report),
            false => Err(Malformed::Contradiction),
        }
    }

    /// Length of the packet on the wire, header and tag included, whose report has a bitmap of `bitmap_bytes`.
    pub fn packet_bytes(bitmap_bytes: usize) -> usize {
        HEADER_BYTES + REPORT_BYTES + bitmap_bytes + TAG_BYTES
    }

    /// Whether the report says that packet `number` has arrived. `None` when the report does not cover that packet.
    pub fn has(&self, number: u64) -> Option<bool> {
        if number >= self.largest {
            return (number == self.largest).then_some(true);
        }
        let back = self.largest - 1 - number;
        let byte = self.bitmap.get(usize::try_from(back / 8).ok()?)?;
        Some(byte >> (back % 8) & 1 == 1)
    }
}

/// The sender's floor: below it, nothing is repaired any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Floor {
    /// Everything below this sequence number is settled for the sender.
    pub floor: u64,
}

impl Floor {
    /// Appends the wire bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.floor.to_le_bytes());
    }

    /// Decodes a floor.
    ///
    /// # Errors
    /// The packet is too short.
    pub fn decode(sealed: &[u8]) -> Result<Floor, Malformed> {
        Ok(Floor { floor: Take(sealed).u64()? })
    }
}

/// A token that the sender must return with its next hello. It is not sealed; a proof follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie {
    pub cookie: [u8; COOKIE_BYTES],
    /// Proves that the cookie was made with the key, for this hello.
    pub proof: [u8; 32],
}

impl Cookie {
    /// Appends the wire bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.cookie);
        out.extend_from_slice(&self.proof);
    }

    /// Decodes the bytes behind the header.
    ///
    /// # Errors
    /// The length is not that of a cookie.
    pub fn decode(bytes: &[u8]) -> Result<Cookie, Malformed> {
        let mut rest = Take(bytes);
        let cookie = Cookie { cookie: rest.array()?, proof: rest.array()? };
        if rest.0.is_empty() { Ok(cookie) } else { Err(Malformed::Contradiction) }
    }
}

/// Splits the bytes behind a hello's header into the cookie, if this kind carries one, and the Noise message.
///
/// # Errors
/// The hello is too short.
pub fn decode_hello(
    kind: Kind,
    bytes: &[u8],
) -> Result<(Option<&[u8; COOKIE_BYTES]>, &[u8]), Malformed> {
    if kind != Kind::HelloWithCookie {
        return Ok((None, bytes));
    }
    let (cookie, noise) = bytes.split_first_chunk().ok_or(Malformed::TooShort)?;
    Ok((Some(cookie), noise))
}

/// The bytes not decoded yet.
struct Take<'a>(&'a [u8]);

impl Take<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed::TooShort)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let header = Header { kind: Kind::Report, epoch: 7, session: 0xdead_beef, number: 1 << 60 };
        assert_eq!(Header::decode(&header.encode()), Ok(header));

        let senders =
            [Sender::Unknown, Sender::Nobody, Sender::V4([1, 2, 3, 4], 5), Sender::V6([9; 16], 6)];
        for (part, sender) in Part::ALL.into_iter().flat_map(|part| senders.map(|s| (part, s))) {
            let origin = Origin { received_unix_ns: 1 << 60, sender, bytes: 3 };
            let head = DataHead {
                sequence_low: 0x1234_5678,
                beyond_floor: 0x00ab_cdef,
                part,
                asks: part == Part::Last,
                may_be_second: part == Part::First,
                origin: part.begins().then_some(origin),
            };
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            assert!(bytes.len() <= DATA_HEAD_BYTES_MAX);
            bytes.extend(b"abc");
            assert_eq!(DataHead::decode(&bytes), Ok((head, &b"abc"[..])));
        }
    }

    #[test]
    fn a_report_speaks_of_what_its_bitmap_covers() {
        let report = Report {
            largest: 100,
            delay_us: 1,
            interval_us: 2,
            floor: 3,
            accepted: 2,
            accepted_bytes: 9,
            packets: 40,
            window: 128,
            bitmap: &[0b0000_0101, 0b1000_0000],
        };
        let mut bytes = Vec::new();
        report.encode(&mut bytes);
        assert_eq!(bytes.len(), Report::packet_bytes(2) - HEADER_BYTES - TAG_BYTES);
        assert_eq!(Report::decode(&bytes), Ok(report));
        assert_eq!((report.has(101), report.has(100)), (None, Some(true)));
        assert_eq!(
            [99, 98, 97, 84, 83].map(|n| report.has(n)),
            [Some(true), Some(false), Some(true), Some(true), None]
        );
    }

    #[test]
    fn what_is_short_or_strange_is_refused() {
        assert_eq!(Header::decode(&[0x10; 15]), Err(Malformed::TooShort));
        assert_eq!(Header::decode(&[0x20; 16]), Err(Malformed::Version));
        assert_eq!(Header::decode(&[0x1f; 16]), Err(Malformed::Kind));
        assert_eq!(Report::decode(&[0; 51]), Err(Malformed::TooShort));
        assert_eq!(Report::decode(&[0; 52 + 257]), Err(Malformed::Contradiction));
        assert_eq!(DataHead::decode(&[0; 7]), Err(Malformed::TooShort));
        // Its length field exceeds the payload.
        let mut one = [0; 19];
        one[16] = 2;
        assert_eq!(DataHead::decode(&one), Err(Malformed::Contradiction));
        one[16] = 0;
        assert_eq!(DataHead::decode(&one).unwrap().1, b"");
        assert_eq!(Cookie::decode(&[0; 63]), Err(Malformed::TooShort));
        assert_eq!(Cookie::decode(&[0; 65]), Err(Malformed::Contradiction));
        assert_eq!(decode_hello(Kind::HelloWithCookie, &[0; 31]), Err(Malformed::TooShort));
    }
}
