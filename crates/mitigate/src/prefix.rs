//! A block of addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A block of addresses of one family. The bits after its length are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    addr: IpAddr,
    length_bits: u8,
}

/// Why a text is not a prefix.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    #[error(
        "\"{0}\" is not an IP address or prefix. Fix: write for example 192.0.2.0/24 or 2001:db8::/32"
    )]
    Address(String),
    #[error("the prefix length of \"{0}\" is too long. Fix: write a number from 0 to {1}")]
    Length(String, u8),
    #[error("\"{0}\" has bits set behind its prefix. Fix: did you mean {1}?")]
    HostBits(String, Prefix),
}

impl Prefix {
    /// The block of `length_bits` that contains `addr`. A length beyond the address's counts as the full
    /// length.
    pub fn containing(addr: IpAddr, length_bits: u8) -> Prefix {
        let length_bits = length_bits.min(width_bits(addr));
        let addr = match addr {
            IpAddr::V4(addr) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length_bits)).unwrap_or(0);
                IpAddr::V4((addr.to_bits() & mask).into())
            }
            IpAddr::V6(addr) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length_bits)).unwrap_or(0);
                IpAddr::V6((addr.to_bits() & mask).into())
            }
        };
        Prefix { addr, length_bits }
    }

    /// Its first address.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// Its length in bits: at most 32, or 128 for IPv6.
    pub fn length_bits(&self) -> u8 {
        self.length_bits
    }

    /// Whether every address of `other` is in this one.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.addr.is_ipv4() == other.addr.is_ipv4()
            && self.length_bits <= other.length_bits
            && Prefix::containing(other.addr, self.length_bits) == *self
    }

    /// Whether the two have an address in common. Of two overlapping blocks, one covers the other.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.covers(other) || other.covers(self)
    }
}

impl From<IpAddr> for Prefix {
    fn from(addr: IpAddr) -> Prefix {
        Prefix::containing(addr, width_bits(addr))
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let (addr, length) = match text.split_once('/') {
            Some((addr, length)) => (addr, Some(length)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| PrefixError::Address(text.to_owned()))?;
        let Some(length) = length else { return Ok(addr.into()) };

        let length = length.parse().ok().filter(|length| *length <= width_bits(addr));
        let length =
            length.ok_or_else(|| PrefixError::Length(text.to_owned(), width_bits(addr)))?;
        let prefix = Prefix::containing(addr, length);
        if prefix.addr == addr {
            Ok(prefix)
        } else {
            Err(PrefixError::HostBits(text.to_owned(), prefix))
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.length_bits)
    }
}

fn width_bits(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(a: &str, b: &str, covers: bool, overlaps: bool) {
        let (a, b): (Prefix, Prefix) = (a.parse().unwrap(), b.parse().unwrap());
        assert_eq!((a.covers(&b), a.overlaps(&b)), (covers, overlaps), "{a} and {b}");
    }

    #[test]
    fn blocks_cover_and_overlap() {
        check("192.0.2.0/24", "192.0.2.7", true, true);
        check("192.0.2.7", "192.0.2.0/24", false, true);
        check("192.0.2.7", "192.0.2.7/32", true, true);
        check("0.0.0.0/0", "192.0.2.7", true, true);
        check("0.0.0.0/0", "2001:db8::1", false, false);
        check("::/0", "2001:db8::/32", true, true);
        check("2001:db8::/33", "2001:db8:8000::/33", false, false);
    }

    #[test]
    fn wrong_texts_are_refused() {
        let wrong = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        assert!(wrong("192.0.2.1/24").contains("did you mean 192.0.2.0/24"));
        assert!(wrong("192.0.2.0/33").contains("0 to 32"));
        assert!(wrong("here").contains("is not an IP address"));
    }
}
