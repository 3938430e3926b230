//! Files of captured netlink messages: what `ss -D FILE` writes, pcap and pcapng of a netlink monitor (`LINKTYPE_NETLINK`,
//! <https://www.tcpdump.org/linktypes/LINKTYPE_NETLINK.html>). [`read`] tells them apart by content.
//!
//! The containers may have either byte order. The messages in them are taken to have this host's: a file does not say theirs.

mod pcap;
mod pcapng;
mod write;

pub use write::{Format, Writer};

use crate::DecodeError;
use crate::bytes::{at, count, header};
use crate::inet_diag::request::{SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use crate::netlink::{HEADER_BYTES, Message, Messages, NLMSG_DONE, NLMSG_ERROR};

/// `LINKTYPE_NETLINK`.
const LINKTYPE_NETLINK: u16 = 253;
/// Bytes in front of the first message of a packet.
const COOKED_BYTES: usize = 16;
/// `ARPHRD_NETLINK`.
const ARPHRD_NETLINK: u16 = 824;
/// `NETLINK_SOCK_DIAG`, also known as `NETLINK_INET_DIAG`.
const NETLINK_SOCK_DIAG: u16 = 4;

/// One message of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// The message: an answer, but also a request, an error or the end of a dump; see
    /// [`is_socket`](crate::inet_diag::is_socket).
    pub message: Message<'a>,
    /// When it was captured, in nanoseconds since 1970; `None` in files of `ss`, which have no times.
    pub time_unix_ns: Option<u64>,
}

/// One packet of a container, from the link layer's header on.
struct Packet<'a> {
    link_type: u16,
    time_unix_ns: Option<u64>,
    bytes: &'a [u8],
}

/// Opens a capture that lies in memory as a whole.
///
/// # Errors
/// [`DecodeError::UnknownFormat`], [`DecodeError::WrongLinkType`], or [`DecodeError::Truncated`] for a file that ends inside
/// its header.
pub fn read(file: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let magic: &[u8; 4] = file.first_chunk().ok_or(DecodeError::UnknownFormat)?;
    let (packets, messages) = if let Some(kind) = pcap::kind(*magic) {
        (Packets::Pcap(pcap::Packets::new(file, kind)?), Messages::new(&[]))
    } else if pcapng::is_magic(*magic) {
        (Packets::PcapNg(pcapng::Packets::new(file)), Messages::new(&[]))
    } else if starts_like_a_dump(file) {
        (Packets::None, Messages::new(file))
    } else {
        return Err(DecodeError::UnknownFormat);
    };
    Ok(Reader { packets, messages, time_unix_ns: None, skipped_packets: 0 })
}

/// Whether the first bytes are the header of a message that a dump of sockets consists of.
fn starts_like_a_dump(file: &[u8]) -> bool {
    let Some(head) = file.first_chunk::<HEADER_BYTES>() else { return false };
    let length = u32::from_ne_bytes(at::<0, 4, HEADER_BYTES>(head));
    let kind = u16::from_ne_bytes(at::<4, 2, HEADER_BYTES>(head));
    length >= count(HEADER_BYTES)
        && matches!(kind, SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK | NLMSG_DONE | NLMSG_ERROR)
}

/// The messages of a capture, in the file's order. A packet whose messages are broken, for instance because it was captured
/// only in part, gives one error, and the next packet goes on; a broken container gives one error and ends.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    packets: Packets<'a>,
    messages: Messages<'a>,
    time_unix_ns: Option<u64>,
    skipped_packets: u64,
}

#[derive(Clone, Debug)]
enum Packets<'a> {
    None,
    Pcap(pcap::Packets<'a>),
    PcapNg(pcapng::Packets<'a>),
}

impl Reader<'_> {
    /// Packets so far that were of another netlink protocol or of another link type.
    #[must_use]
    pub const fn skipped_packets(&self) -> u64 {
        self.skipped_packets
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Captured<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let time_unix_ns = self.time_unix_ns;
            if let Some(message) = self.messages.next() {
                return Some(message.map(|message| Captured { message, time_unix_ns }));
            }
            let packet = match &mut self.packets {
                Packets::None => return None,
                Packets::Pcap(packets) => packets.next()?,
                Packets::PcapNg(packets) => packets.next()?,
            };
            match packet.and_then(|packet| Ok((packet.time_unix_ns, payload(&packet)?))) {
                Ok((time_unix_ns, Some(payload))) => {
                    self.time_unix_ns = time_unix_ns;
                    self.messages = Messages::new(payload);
                }
                Ok((_, None)) => self.skipped_packets += 1,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The messages in a packet of the socket diagnosis; `None` for any other packet.
fn payload<'a>(packet: &Packet<'a>) -> Result<Option<&'a [u8]>, DecodeError> {
    if packet.link_type != LINKTYPE_NETLINK {
        return Ok(None);
    }
    let head: &[u8; COOKED_BYTES] = header(packet.bytes)?;
    let protocol = u16::from_be_bytes(at::<14, 2, COOKED_BYTES>(head));
    Ok(packet.bytes.get(COOKED_BYTES..).filter(|_| protocol == NETLINK_SOCK_DIAG))
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
}

/// The first `length` bytes, or [`DecodeError::BadLength`].
fn take(bytes: &[u8], length: u32) -> Result<&[u8], DecodeError> {
    usize::try_from(length)
        .ok()
        .and_then(|len| bytes.get(..len))
        .ok_or(DecodeError::BadLength { length, have: count(bytes.len()) })
}
