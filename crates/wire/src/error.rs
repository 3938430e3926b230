use std::error::Error;
use std::fmt;

/// Why bytes were refused. Each error has exactly one [`class`](Self::class).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeError {
    /// The bytes end inside a header that must be whole.
    Truncated {
        /// Bytes needed for the header.
        need: u32,
        /// Bytes left.
        have: u32,
    },
    /// A length field is shorter than its own header, or longer than the bytes that are there.
    BadLength {
        /// The field's value, in bytes.
        length: u32,
        /// The bytes that it may cover.
        have: u32,
    },
    /// An attribute is shorter than the structure for its type.
    ShortAttribute {
        /// Attribute type, flags masked.
        kind: u16,
        /// Length of the shortest form sent by any kernel.
        need: u32,
        /// Its length.
        have: u32,
    },
    /// An attribute with a name is not UTF-8.
    BadText {
        /// Attribute type, flags masked.
        kind: u16,
    },
    /// An address family that is neither `AF_INET` nor `AF_INET6`.
    UnknownFamily(u8),
    /// The file is in none of the known capture formats.
    UnknownFormat,
    /// The file is in a known but unsupported format; the value names it, and how to convert it.
    OtherFormat(&'static str),
    /// A block of a pcapng file contradicts itself or earlier blocks; the value is its type.
    BadBlock(u32),
    /// The capture has a link type other than `LINKTYPE_NETLINK` (253); the value is the file's.
    WrongLinkType(u32),
    /// A packet's number is not that of a netlink protocol: 32 or more (`MAX_LINKS`).
    BadPacket(u16),
    /// A netlink message has a type unknown to the socket diagnosis; the value is the type.
    UnknownKind(u16),
}

impl DecodeError {
    /// Every class, in no particular order.
    pub const CLASSES: &[&str] = &[
        "truncated",
        "bad_length",
        "short_attribute",
        "bad_text",
        "unknown_family",
        "unknown_format",
        "other_format",
        "bad_block",
        "wrong_link_type",
        "bad_packet",
        "unknown_kind",
    ];

    /// One stable word per kind of error, for the label of a counter.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::BadLength { .. } => "bad_length",
            Self::ShortAttribute { .. } => "short_attribute",
            Self::BadText { .. } => "bad_text",
            Self::UnknownFamily(_) => "unknown_family",
            Self::UnknownFormat => "unknown_format",
            Self::OtherFormat(_) => "other_format",
            Self::BadBlock(_) => "bad_block",
            Self::WrongLinkType(_) => "wrong_link_type",
            Self::BadPacket(_) => "bad_packet",
            Self::UnknownKind(_) => "unknown_kind",
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { need, have } => {
                write!(f, "truncated: a header takes {need} bytes, {have} are left")
            }
            Self::BadLength { length, have } => {
                write!(f, "bad length: a length field says {length} bytes, {have} are left")
            }
            Self::ShortAttribute { kind, need, have } => {
                write!(f, "short attribute: type {kind} takes {need} bytes, it has {have}")
            }
            Self::BadText { kind } => write!(f, "bad text: attribute type {kind} is not UTF-8"),
            Self::UnknownFamily(family) => {
                write!(f, "unknown address family {family}, neither IPv4 (2) nor IPv6 (10)")
            }
            Self::UnknownFormat => {
                f.write_str("unknown format: neither a dump of `ss -D`, nor pcap, nor pcapng")
            }
            Self::OtherFormat(which) => write!(f, "other format: {which}"),
            Self::BadBlock(kind) => {
                write!(f, "bad block: a pcapng block of type {kind:#x} contradicts itself")
            }
            Self::WrongLinkType(link) => {
                let name = link_name(*link);
                write!(f, "wrong link type: the capture has {link}{name}, not netlink (253)")
            }
            Self::BadPacket(protocol) => {
                write!(f, "bad packet: it says netlink protocol {protocol}, and there are 32")
            }
            Self::UnknownKind(kind) => {
                write!(
                    f,
                    "unknown kind of message: type {kind} does not belong to the socket diagnosis"
                )
            }
        }
    }
}

impl Error for DecodeError {}

/// Names of the usual link types of network captures (<https://www.tcpdump.org/linktypes.html>), in parentheses.
const fn link_name(link: u32) -> &'static str {
    match link {
        1 => " (Ethernet)",
        101 | 228 | 229 => " (IP)",
        105 | 127 => " (Wi-Fi)",
        113 | 276 => " (any interface of Linux)",
        _ => "",
    }
}
