//! Files of captured netlink messages: the output of `ss -D FILE`, and pcap and pcapng files of a netlink monitor
//! (`LINKTYPE_NETLINK`, <https://www.tcpdump.org/linktypes/LINKTYPE_NETLINK.html>) or of any set of interfaces that includes one.
//! [`read`] recognizes the format by content.
//!
//! The containers may have either byte order. The messages in them are assumed to have this host's, because a file does not
//! record theirs.

mod pcap;
mod pcapng;
mod protocol;
mod replies;
mod udp;
mod write;

pub use protocol::Protocol;
pub use replies::{Asked, Failure, Meaning, Replies};
pub use udp::{Datagram, Datagrams, datagrams};
pub use write::{Format, Writer};

use crate::DecodeError;
use crate::bytes::{at, count, header};
use crate::inet_diag::request::{SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use crate::netlink::{HEADER_BYTES, Message, Messages, NLMSG_DONE, NLMSG_ERROR};

/// `LINKTYPE_NETLINK`.
const LINKTYPE_NETLINK: u16 = 253;
/// `LINKTYPE_LINUX_SLL` and `LINKTYPE_LINUX_SLL2`: any interface; the device type tells whether a packet is netlink.
const LINKTYPE_LINUX_SLL: u16 = 113;
const LINKTYPE_LINUX_SLL2: u16 = 276;
/// Bytes before the first message of a packet, and the same for `LINKTYPE_LINUX_SLL2`.
const COOKED_BYTES: usize = 16;
const COOKED2_BYTES: usize = 20;
/// `ARPHRD_NETLINK`.
const ARPHRD_NETLINK: u16 = 824;
/// `NETLINK_SOCK_DIAG`, also known as `NETLINK_INET_DIAG`.
const NETLINK_SOCK_DIAG: u16 = 4;
/// `MAX_LINKS`: numbers of netlink protocols are below this.
const NETLINK_PROTOCOLS: u16 = 32;

/// Magic bytes of formats that are not supported, so that the error can say what to do.
const OTHER_FORMATS: &[(&[u8], &str)] = &[
    (&[0x34, 0xcd, 0xb2, 0xa1], MODIFIED_PCAP),
    (&[0xa1, 0xb2, 0xcd, 0x34], MODIFIED_PCAP),
    (&[0x1f, 0x8b], "it is compressed by gzip: unpack it first"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "it is compressed by zstd: unpack it first"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "it is compressed by xz: unpack it first"),
    (b"BZh", "it is compressed by bzip2: unpack it first"),
];
const MODIFIED_PCAP: &str = "it is a modified pcap (magic a1b2cd34, by Alexey Kuznetsov's patches): `tcpdump -r FILE -w NEW` \
                             makes a plain one of it";

/// One message of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// The message: a reply, or a request, an error or the end of a dump; see [`Replies`].
    pub message: Message<'a>,
    /// When it was captured, in nanoseconds since 1970; `None` in files of `ss`, which have no times.
    pub time_unix_ns: Option<u64>,
}

/// One packet of a container, starting at the link layer's header.
struct Packet<'a> {
    link_type: u16,
    time_unix_ns: Option<u64>,
    bytes: &'a [u8],
    missing: Option<Missing>,
}

/// Selects the wanted link types.
type LinkTypes = fn(u16) -> bool;

/// Why some bytes of a packet are missing.
#[derive(Clone, Copy)]
enum Missing {
    /// The capturing program only kept the first bytes.
    Snapped(DecodeError),
    /// The file ends inside it.
    Cut(DecodeError),
}

/// Opens a capture that is entirely in memory.
///
/// # Errors
/// [`DecodeError::UnknownFormat`], [`DecodeError::OtherFormat`], [`DecodeError::WrongLinkType`], or
/// [`DecodeError::Truncated`] for a file that ends inside its header.
pub fn read(file: &[u8]) -> Result<Reader<'_>, DecodeError> {
    if let Some((_, which)) = OTHER_FORMATS.iter().find(|(magic, _)| file.starts_with(magic)) {
        return Err(DecodeError::OtherFormat(which));
    }

    let magic: &[u8; 4] = file.first_chunk().ok_or(DecodeError::UnknownFormat)?;
    let (packets, messages) = if let Some(kind) = pcap::kind(*magic) {
        (Packets::Pcap(pcap::Packets::new(file, kind, may_be_netlink)?), Messages::new(&[]))
    } else if pcapng::is_magic(*magic) {
        (Packets::PcapNg(pcapng::Packets::new(file, may_be_netlink)), Messages::new(&[]))
    } else if starts_like_a_dump(file) {
        (Packets::None, Messages::new(file))
    } else if starts_like_a_dump(&swapped(file)) {
        return Err(DecodeError::OtherFormat(
            "it is a dump of `ss -D` by a host of the other byte order, whose messages are not read here",
        ));
    } else {
        return Err(DecodeError::UnknownFormat);
    };

    Ok(Reader {
        packets,
        messages,
        missing: None,
        time_unix_ns: None,
        skipped_packets: 0,
        foreign: None,
        seen_netlink: false,
        is_cut: false,
    })
}

/// Whether the file starts with the header of a message found in dumps of sockets.
fn starts_like_a_dump(file: &[u8]) -> bool {
    let Some(head) = file.first_chunk::<HEADER_BYTES>() else { return false };
    let length = u32::from_ne_bytes(at::<0, 4, HEADER_BYTES>(head));
    let kind = u16::from_ne_bytes(at::<4, 2, HEADER_BYTES>(head));
    length >= count(HEADER_BYTES)
        && matches!(kind, SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK | NLMSG_DONE | NLMSG_ERROR)
}

/// The first header in the opposite byte order.
fn swapped(file: &[u8]) -> Vec<u8> {
    let mut head = file.get(..HEADER_BYTES).unwrap_or_default().to_vec();
    // Length and type, the only fields that `starts_like_a_dump` reads.
    for field in [0..4, 4..6] {
        if let Some(bytes) = head.get_mut(field) {
            bytes.reverse();
        }
    }
    head
}

/// The messages of a capture, in file order. A packet whose messages are broken, or which was only captured in part, gives its
/// complete messages and one error, and reading continues with the next packet; a broken container gives one error and ends.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    packets: Packets<'a>,
    messages: Messages<'a>,
    /// The error to return after the messages of this packet.
    missing: Option<DecodeError>,
    time_unix_ns: Option<u64>,
    skipped_packets: u64,
    /// The link type of packets that are not netlink, until a netlink packet is seen.
    foreign: Option<u16>,
    seen_netlink: bool,
    is_cut: bool,
}

#[derive(Clone, Debug)]
enum Packets<'a> {
    None,
    Pcap(pcap::Packets<'a>),
    PcapNg(pcapng::Packets<'a>),
}

impl<'a> Reader<'a> {
    /// Packets so far of another netlink protocol, link type or device.
    #[must_use]
    pub const fn skipped_packets(&self) -> u64 {
        self.skipped_packets
    }

    /// Packets so far that were lost before they reached the file. Only pcapng can record this; 0 for the other formats.
    #[must_use]
    pub fn dropped_packets(&self) -> u64 {
        match &self.packets {
            Packets::PcapNg(packets) => packets.dropped_packets(),
            Packets::None | Packets::Pcap(_) => 0,
        }
    }

    /// The recognized format: a dump of `ss -D`, a pcap or a pcapng.
    #[must_use]
    pub const fn form(&self) -> &'static str {
        match &self.packets {
            Packets::None => "a dump of `ss -D`",
            Packets::Pcap(packets) if packets.is_foreign() => {
                "a pcap by a host of the other byte order, whose messages are not read here"
            }
            Packets::Pcap(_) => "a pcap",
            Packets::PcapNg(_) => "a pcapng",
        }
    }

    /// Whether the file ended inside a packet or message, as far as it was read, or a length there leads beyond its end: what
    /// would have followed is unknown.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Matches the replies in this file with its requests.
    #[must_use]
    pub const fn replies(&self) -> Replies {
        // `ss -D` writes messages without packets around them, and refuses to write any but TCP's.
        Replies::new(match self.packets {
            Packets::None => Some(Protocol::Tcp),
            Packets::Pcap(_) | Packets::PcapNg(_) => None,
        })
    }

    /// Starts reading the messages in a packet.
    fn open(&mut self, packet: &Packet<'a>) -> Result<(), DecodeError> {
        self.is_cut |= matches!(packet.missing, Some(Missing::Cut(_)));
        let content = content(packet)?;

        match content {
            // For any other link type, the container has already reported it.
            Content::Foreign if may_be_netlink(packet.link_type) => {
                self.foreign = Some(packet.link_type);
            }
            Content::Foreign => {}
            Content::OtherNetlink | Content::Messages(_) => self.seen_netlink = true,
        }

        let payload = match content {
            Content::Messages(payload) => Some(payload),
            Content::OtherNetlink | Content::Foreign => None,
        };

        self.time_unix_ns = packet.time_unix_ns;
        self.messages = Messages::new(payload.unwrap_or_default());
        self.skipped_packets += u64::from(payload.is_none());

        self.missing = match packet.missing {
            // A packet that is skipped may be short.
            Some(Missing::Snapped(_)) if payload.is_none() => None,
            Some(Missing::Snapped(error) | Missing::Cut(error)) => Some(error),
            None => None,
        };

        Ok(())
    }

    /// The error for a capture of interfaces without any netlink packet, reported once at its end.
    fn end(&mut self) -> Option<DecodeError> {
        let link_type = self.foreign.take().filter(|_| !self.seen_netlink)?;
        Some(DecodeError::WrongLinkType(link_type.into()))
    }

    /// Notes whether this error is the end of a file without packets.
    const fn note_end(&mut self, error: &DecodeError) {
        if matches!(self.packets, Packets::None) && is_end(error) {
            self.is_cut = true;
        }
    }
}

/// Whether the error means that more bytes were needed than exist.
const fn is_end(error: &DecodeError) -> bool {
    match error {
        DecodeError::Truncated { .. } => true,
        DecodeError::BadLength { length, have } => *length > *have,
        _ => false,
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Captured<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let time_unix_ns = self.time_unix_ns;
            // First the rest of the current packet, then its error, then the next packet.
            if let Some(message) = self.messages.next() {
                if let Err(error) = &message {
                    self.note_end(error);
                    // The incomplete message has already reported it.
                    self.missing = None;
                }
                return Some(message.map(|message| Captured { message, time_unix_ns }));
            }

            if let Some(error) = self.missing.take() {
                return Some(Err(error));
            }

            let packet = match &mut self.packets {
                Packets::None => None,
                Packets::Pcap(packets) => packets.next(),
                Packets::PcapNg(packets) => packets.next(),
            };
            let Some(packet) = packet else { return self.end().map(Err) };

            let opened = match packet {
                Ok(packet) => self.open(&packet),
                Err(error) => {
                    self.is_cut |= is_end(&error);
                    Err(error)
                }
            };

            if let Err(error) = opened {
                return Some(Err(error));
            }
        }
    }
}

/// The contents of a packet.
#[derive(Clone, Copy)]
enum Content<'a> {
    /// Messages of the socket diagnosis.
    Messages(&'a [u8]),
    OtherNetlink,
    /// Not netlink.
    Foreign,
}

const fn may_be_netlink(link_type: u16) -> bool {
    matches!(link_type, LINKTYPE_NETLINK | LINKTYPE_LINUX_SLL | LINKTYPE_LINUX_SLL2)
}

fn content<'a>(packet: &Packet<'a>) -> Result<Content<'a>, DecodeError> {
    // Both numbers are in network byte order, whatever the container's order.
    let (device, protocol, len) = match packet.link_type {
        LINKTYPE_NETLINK => {
            let head: &[u8; COOKED_BYTES] = header(packet.bytes)?;
            (ARPHRD_NETLINK, at::<14, 2, COOKED_BYTES>(head), COOKED_BYTES)
        }
        LINKTYPE_LINUX_SLL => {
            let head: &[u8; COOKED_BYTES] = header(packet.bytes)?;
            let device = u16::from_be_bytes(at::<2, 2, COOKED_BYTES>(head));
            (device, at::<14, 2, COOKED_BYTES>(head), COOKED_BYTES)
        }
        LINKTYPE_LINUX_SLL2 => {
            let head: &[u8; COOKED2_BYTES] = header(packet.bytes)?;
            let device = u16::from_be_bytes(at::<8, 2, COOKED2_BYTES>(head));
            (device, at::<0, 2, COOKED2_BYTES>(head), COOKED2_BYTES)
        }
        _ => return Ok(Content::Foreign),
    };

    match u16::from_be_bytes(protocol) {
        _ if device != ARPHRD_NETLINK => Ok(Content::Foreign),
        NETLINK_SOCK_DIAG => Ok(Content::Messages(packet.bytes.get(len..).unwrap_or_default())),
        0..NETLINK_PROTOCOLS => Ok(Content::OtherNetlink),
        protocol => Err(DecodeError::BadPacket(protocol)),
    }
}

/// Byte order of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// `None` unless there are exactly 8 bytes.
    fn u64(self, bytes: &[u8]) -> Option<u64> {
        let bytes = bytes.try_into().ok()?;
        Some(match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        })
    }

    const fn is_own(self) -> bool {
        matches!(self, Self::Little) == cfg!(target_endian = "little")
    }
}

/// What is missing from a packet that was longer on the wire than what was kept. Netlink pads its messages to a multiple of 4,
/// and missing padding does not count.
fn snapped(bytes: &[u8], original: u32) -> Option<Missing> {
    let have = count(bytes.len());
    (original > have.next_multiple_of(4))
        .then_some(Missing::Snapped(DecodeError::BadLength { length: original, have }))
}

/// The first `length` bytes, or [`DecodeError::BadLength`].
fn take(bytes: &[u8], length: u32) -> Result<&[u8], DecodeError> {
    usize::try_from(length)
        .ok()
        .and_then(|len| bytes.get(..len))
        .ok_or(DecodeError::BadLength { length, have: count(bytes.len()) })
}
