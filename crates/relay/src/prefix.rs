use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use sys::Source;

/// A block of addresses: `10.0.0.0/8`, `2001:db8::/32`, or a single address.
///
/// IPv4 blocks match IPv4-mapped IPv6 addresses too: they are the same hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    network: u128,
    mask: u128,
}

impl Prefix {
    /// Whether a datagram's source is in the block. A source without an address is in none.
    pub fn contains(&self, source: &Source) -> bool {
        source.ip_bytes().is_some_and(|ip| u128::from_be_bytes(*ip) & self.mask == self.network)
    }

    /// How many of an address's 128 bits count. An IPv4 block has 96 more than it is written with.
    pub fn length_bits(&self) -> u32 {
        self.mask.count_ones()
    }

    fn last(&self) -> u128 {
        self.network | !self.mask
    }
}

/// A set of prefixes, searched by bisection: a thousand of them cost a datagram about as much as ten.
#[derive(Debug)]
pub(crate) struct PrefixSet {
    /// First and last addresses, in order. No two ranges overlap.
    ranges: Box<[(u128, u128)]>,
}

impl PrefixSet {
    pub(crate) fn new(prefixes: &[Prefix]) -> PrefixSet {
        let mut ranges: Vec<_> =
            prefixes.iter().map(|prefix| (prefix.network, prefix.last())).collect();
        ranges.sort_unstable();
        // When two prefixes overlap, one contains the other and sorts first or equal.
        ranges.dedup_by(|next, kept| {
            let is_inside = next.0 <= kept.1;
            kept.1 = if is_inside { kept.1.max(next.1) } else { kept.1 };
            is_inside
        });
        PrefixSet { ranges: ranges.into() }
    }

    /// Whether the set was built from no prefixes.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether one of the prefixes contains the source. A source without an address is in none.
    pub(crate) fn contains(&self, source: &Source) -> bool {
        let Some(ip) = source.ip_bytes() else { return false };
        let ip = u128::from_be_bytes(*ip);
        let above = self.ranges.partition_point(|range| range.0 <= ip);
        above.checked_sub(1).is_some_and(|at| ip <= self.ranges[at].1)
    }
}

/// Why a string is not a prefix.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    #[error(
        "\"{0}\" is not an IP address or prefix. Fix: write for example 10.0.0.0/8 or 2001:db8::/32"
    )]
    Address(String),
    #[error("the prefix length of \"{0}\" is too long. Fix: write a number from 0 to {1}")]
    Length(String, u8),
    #[error("\"{0}\" has bits set behind its prefix. Fix: did you mean {1}?")]
    HostBits(String, Prefix),
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let (addr, bits) = match text.split_once('/') {
            Some((addr, bits)) => (addr, Some(bits)),
            None => (text, None),
        };

        let ip: IpAddr = addr.parse().map_err(|_| PrefixError::Address(text.to_owned()))?;
        let (mapped, bits_max) = match ip {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 32),
            IpAddr::V6(v6) => (v6, 128),
        };

        let bits = match bits {
            None => bits_max,
            Some(bits) => match bits.parse::<u8>() {
                Ok(bits) if bits <= bits_max => bits,
                _ => return Err(PrefixError::Length(text.to_owned(), bits_max)),
            },
        };

        // A shift by all 128 bits (`::/0`) has no result: the mask is 0 then.
        let mask = u128::MAX.checked_shl(u32::from(bits_max - bits)).unwrap_or(0);
        let prefix = Prefix { network: u128::from(mapped) & mask, mask };
        if u128::from(mapped) != prefix.network {
            return Err(PrefixError::HostBits(text.to_owned(), prefix));
        }

        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addr = Ipv6Addr::from(self.network);
        let bits = self.mask.count_ones();
        match addr.to_ipv4_mapped() {
            Some(v4) if bits >= 96 => write!(f, "{v4}/{}", bits - 96),
            _ => write!(f, "{addr}/{bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prefix: &str, addr: &str, expected: bool) {
        let source = Source::from(std::net::SocketAddr::new(addr.parse().unwrap(), 1));
        let prefix: Prefix = prefix.parse().unwrap();
        assert_eq!(prefix.contains(&source), expected, "{prefix} {addr}");
    }

    #[test]
    fn v4_inside_and_outside() {
        check("10.0.0.0/8", "10.255.0.1", true);
        check("10.0.0.0/8", "11.0.0.0", false);
        check("10.0.0.0/8", "::ffff:10.1.2.3", true);
        check("192.0.2.7", "192.0.2.7", true);
        check("192.0.2.7", "192.0.2.8", false);
        check("0.0.0.0/0", "203.0.113.9", true);
        check("0.0.0.0/0", "2001:db8::1", false);
    }

    #[test]
    fn v6_inside_and_outside() {
        check("2001:db8::/32", "2001:db8:ffff::1", true);
        check("2001:db8::/32", "2001:db9::1", false);
        check("::/0", "10.0.0.1", true);
    }

    #[test]
    fn a_source_without_an_address_lies_in_no_block() {
        assert!(!"::/0".parse::<Prefix>().unwrap().contains(&Source::NONE));
    }

    /// splitmix64 (Steele, Lea, Flood 2014).
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A prefix close to others: few bits differ, so prefixes contain each other, touch and repeat.
    fn random_prefix(state: &mut u64) -> Prefix {
        let bits = random(state) % 129;
        let mask = u128::MAX.checked_shl(128 - bits as u32).unwrap_or(0);
        let word = |n: u64| n & n.rotate_left(17) & 0x0101_0000_0000_0103;
        let network = u128::from(word(random(state))) << 64 | u128::from(word(random(state)));
        let mapped = if random(state).is_multiple_of(3) { 0xffff_u128 << 32 } else { 0 };
        Prefix { network: (network | mapped) & mask, mask }
    }

    #[test]
    fn a_set_says_what_its_prefixes_say() {
        let mut state = 7;
        let source =
            |ip: u128| Source::from(std::net::SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), 1));
        let mut answers = [0; 2];
        for _ in 0..400 {
            let count = random(&mut state) % 24;
            let prefixes: Vec<_> = (0..count).map(|_| random_prefix(&mut state)).collect();
            let set = PrefixSet::new(&prefixes);
            assert_eq!(set.is_empty(), prefixes.is_empty());
            assert!(set.ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{set:?}");
            // At and next to every edge, and anywhere.
            let edges = prefixes.iter().flat_map(|prefix| [prefix.network, prefix.last()]);
            let edges = edges.flat_map(|ip| [ip.wrapping_sub(1), ip, ip.wrapping_add(1)]);
            let anywhere = [(); 20].map(|()| random_prefix(&mut state).network);
            for ip in edges.chain(anywhere).chain([0, u128::MAX]) {
                let expected = prefixes.iter().any(|prefix| prefix.contains(&source(ip)));
                assert_eq!(set.contains(&source(ip)), expected, "{ip:#x} in {prefixes:?}");
                answers[usize::from(expected)] += 1;
            }
            assert!(!set.contains(&Source::NONE));
        }
        assert!(answers.iter().all(|&count| count > 1_000), "{answers:?}");
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!("x".parse::<Prefix>(), Err(PrefixError::Address("x".into())));
        assert_eq!(
            "10.0.0.0/33".parse::<Prefix>(),
            Err(PrefixError::Length("10.0.0.0/33".into(), 32))
        );
        let error = "10.1.0.0/8".parse::<Prefix>().unwrap_err().to_string();
        assert!(error.ends_with("did you mean 10.0.0.0/8?"), "{error}");
    }
}
