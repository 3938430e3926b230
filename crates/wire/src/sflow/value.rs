//! The types of fields.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::counter::Lane;
use super::list::{Adapters, AsPath, List};

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An address of an agent or of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Address {
    /// The agent does not know it.
    #[default]
    Unknown,
    /// IPv4.
    V4(Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr),
}

impl Address {
    /// The address; `None` if the agent does not know it.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Unknown => None,
            Self::V4(address) => Some(IpAddr::V4(address)),
            Self::V6(address) => Some(IpAddr::V6(address)),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6(address),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::V4(address) => address.fmt(f),
            Self::V6(address) => address.fmt(f),
        }
    }
}

/// A monotonic count that wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter32(pub u32);

impl Counter32 {
    /// The value with which an agent says that it does not have the counter.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// The count; `None` if the agent does not have it.
    #[must_use]
    pub const fn known(self) -> Option<u32> {
        if self.0 == Self::UNKNOWN.0 { None } else { Some(self.0) }
    }
}

/// A monotonic count that wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter64(pub u64);

impl Counter64 {
    /// The value with which an agent says that it does not have the counter.
    pub const UNKNOWN: Self = Self(u64::MAX);

    /// The count; `None` if the agent does not have it.
    #[must_use]
    pub const fn known(self) -> Option<u64> {
        if self.0 == Self::UNKNOWN.0 { None } else { Some(self.0) }
    }
}

/// Text as sent by an agent: any bytes. Empty if unknown.
///
/// `Display` gives one line without control characters: invalid UTF-8 becomes `U+FFFD`, and a control character its
/// escape, so that an agent cannot control a terminal or log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text<'a>(pub &'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for char in chunk.valid().chars() {
                if is_steering(char) {
                    write!(f, "{}", char.escape_unicode())?;
                } else {
                    fmt::Write::write_char(f, char)?;
                }
            }
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

/// Control characters, line and paragraph separators, and characters that change the text direction.
fn is_steering(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// The value of one field, for callers that treat all fields alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number, a code, or a momentary amount; 0 if unknown.
    U32(u32),
    /// As [`U32`](Self::U32).
    U64(u64),
    /// A signed number; for a percentage, -1 if unknown.
    I32(i32),
    /// A number; negative if unknown.
    F32(f32),
    /// A count since the agent began.
    Counter32(Counter32),
    /// A count since the agent began.
    Counter64(Counter64),
    /// An Ethernet address.
    Mac(Mac),
    /// An IP address, or none.
    Address(Address),
    /// 16 bytes that identify a host.
    Uuid([u8; 16]),
    /// Text.
    Text(Text<'a>),
    /// Uninterpreted bytes, such as a sampled header.
    Bytes(&'a [u8]),
    /// Numbers, for example VLAN tags.
    Numbers(List<'a, u32>),
    /// Signed numbers.
    Signed(List<'a, i32>),
    /// The AS path of a route.
    AsPath(AsPath<'a>),
    /// The lanes of an optical module.
    Lanes(List<'a, Lane>),
    /// Interfaces of a host.
    Adapters(Adapters<'a>),
    /// A field missing from the agent's edition of the structure.
    Absent,
}

macro_rules! values {
    ($($variant:ident $type:ty;)*) => {$(
        impl From<$type> for Value<'_> {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

values! {
    U32 u32;
    U64 u64;
    I32 i32;
    F32 f32;
    Counter32 Counter32;
    Counter64 Counter64;
    Address Ipv4Addr;
    Address Ipv6Addr;
}

impl From<Ipv4Addr> for Address {
    fn from(address: Ipv4Addr) -> Self {
        Self::V4(address)
    }
}

impl From<Ipv6Addr> for Address {
    fn from(address: Ipv6Addr) -> Self {
        Self::V6(address)
    }
}
