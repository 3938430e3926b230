//! Who holds a place on the server, and whose place another client gets when all are taken.
//!
//! A place is taken from the client that holds most, so that one client, however often it asks, keeps nobody else out.

use std::net::IpAddr;

/// Who holds a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Holder {
    /// Not known: a server that a test runs by itself.
    #[default]
    Unknown,
    /// Clients at this address. All users of this machine share a loopback address.
    Address(IpAddr),
    /// A user of this machine, by the kernel's word.
    User(u32),
}

impl Holder {
    /// The client at an address. Of IPv6, the network of 64 bits: a host may use all its addresses.
    pub(crate) fn at(address: IpAddr) -> Holder {
        Holder::Address(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes()),
        })
    }
}

/// Index of the first place of the client that has most; of the first place of all if all have as many.
pub(crate) fn first_of_most(holders: &[Holder]) -> Option<usize> {
    let places = |holder| holders.iter().filter(|other| **other == holder).count();
    // The last of equals is returned, so from the end.
    (0..holders.len()).rev().max_by_key(|at| places(holders[*at]))
}

/// Index of the place that a new client gets although all are taken: the first of the client that has most, if that one still
/// has as many as the new one afterwards.
pub fn place_to_give(holders: &[Holder], new: Holder) -> Option<usize> {
    let places = |holder| holders.iter().filter(|other| **other == holder).count();
    first_of_most(holders).filter(|at| places(holders[*at]) >= places(new) + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder::User(1);
    const B: Holder = Holder::User(2);
    const C: Holder = Holder::User(3);

    #[test]
    fn a_place_is_taken_from_the_client_that_has_most() {
        let check = |holders: &[Holder], new, expected| {
            assert_eq!(place_to_give(holders, new), expected, "{holders:?} {new:?}");
        };
        check(&[A, A, A, A], B, Some(0));
        check(&[B, A, A, A], B, Some(1));
        check(&[B, A, B, A], C, Some(0));
        check(&[C, A, B, A], Holder::Unknown, Some(1));
        // Nobody gets a share at the cost of one that has no more than itself.
        check(&[A, A, A, A], A, None);
        check(&[A, A, B, B], B, None);
        check(&[A, B, C, Holder::Unknown], Holder::User(4), None);
        check(&[], A, None);
    }

    #[test]
    fn the_oldest_of_equals_is_first() {
        assert_eq!(first_of_most(&[A, B, C]), Some(0));
        assert_eq!(first_of_most(&[A, B, C, B]), Some(1));
        assert_eq!(first_of_most(&[]), None);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let at = |text: &str| Holder::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:0:0:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
    }
}
