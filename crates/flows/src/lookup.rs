//! What addresses belong to: groups of networks from the configuration, and autonomous systems and countries from external files.

use crate::places::{Country, Places, PlacesError};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// An IP network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Prefix length: the leading bits that all its addresses share.
    pub len: u8,
}

impl Network {
    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    pub fn parse(text: &str) -> Option<Network> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len =
            len.map_or(Some(most), |len| len.trim().parse().ok().filter(|len| *len <= most))?;
        Some(Network::of(address, len))
    }

    /// The network with this prefix length that contains an address.
    pub fn of(address: IpAddr, len: u8) -> Network {
        Network { address: masked(address, len), len }
    }

    /// Whether the network contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && masked(address, self.len) == self.address
    }
}

/// Displays the network as it is written.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// The first address of the network with this prefix length.
pub(crate) fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// Named groups of networks. The longest prefix that contains an address decides.
#[derive(Clone, Default, Debug)]
pub struct Groups {
    names: Vec<String>,
    /// Networks, each with its group.
    networks: BTreeMap<Network, u32>,
    /// Prefix lengths that occur, longest first.
    v4_lens: Vec<u8>,
    v6_lens: Vec<u8>,
    places: Places,
    expects_places: bool,
}

impl Groups {
    /// Adds a network to a group.
    pub fn add(&mut self, group: &str, network: Network) {
        let at = self.names.iter().position(|name| name == group).unwrap_or_else(|| {
            self.names.push(group.into());
            self.names.len() - 1
        });
        self.networks.insert(network, at as u32);
        let lens = if network.address.is_ipv4() { &mut self.v4_lens } else { &mut self.v6_lens };
        if let Err(place) = lens.binary_search_by(|len| network.len.cmp(len)) {
            lens.insert(place, network.len);
        }
    }

    /// Whether exactly this network is in a group.
    pub fn has(&self, network: Network) -> bool {
        self.networks.contains_key(&network)
    }

    /// Whether every group of `others` has the same number here.
    pub fn continues(&self, others: &Groups) -> bool {
        self.names.starts_with(&others.names)
    }

    /// The number of the group that contains an address.
    pub fn group_of(&self, address: IpAddr) -> Option<u32> {
        let lens = if address.is_ipv4() { &self.v4_lens } else { &self.v6_lens };
        lens.iter().find_map(|len| self.networks.get(&Network::of(address, *len)).copied())
    }

    /// Adds a file in MaxMind's format, for autonomous systems and countries. Files added earlier take precedence.
    ///
    /// # Errors
    /// The bytes are not such a file, or are broken.
    pub fn add_places(&mut self, mmdb: Vec<u8>) -> Result<(), PlacesError> {
        self.places.add(mmdb)
    }

    /// Declares that files that locate addresses will be added, so that parsing with these groups accepts parts that need them.
    pub fn expect_places(&mut self) {
        self.expects_places = true;
    }

    /// Takes over the files of other groups.
    pub fn share_places(&mut self, of: &Groups) {
        self.places = of.places.clone();
    }

    /// Whether there is, or will be, a file that locates addresses.
    pub fn has_places(&self) -> bool {
        self.expects_places || !self.places.is_empty()
    }

    /// The number of the autonomous system that originates an address.
    pub fn asn_of(&self, address: IpAddr) -> Option<u32> {
        self.places.asn_of(address)
    }

    /// The country of an address.
    pub(crate) fn country_of(&self, address: IpAddr) -> Option<Country> {
        self.places.country_of(address)
    }

    /// The name of a group.
    pub fn name(&self, group: u32) -> Option<&str> {
        self.names.get(group as usize).map(String::as_str)
    }

    /// The number of a group.
    pub fn named(&self, name: &str) -> Option<u32> {
        self.names.iter().position(|one| one == name).map(|at| at as u32)
    }
}

/// Who made a definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Author {
    /// Whoever configured the analysis.
    #[default]
    File,
    /// A client, while it runs.
    Script,
}

/// The groups that definitions name, by who made them: what one author adds changes nothing that another one counts.
#[derive(Clone, Default, Debug)]
pub(crate) struct GroupSets {
    /// Readers keep references to them.
    file: Arc<Groups>,
    scripts: Arc<Groups>,
}

impl GroupSets {
    pub(crate) fn new(groups: Groups) -> GroupSets {
        let groups = Arc::new(groups);
        GroupSets { file: Arc::clone(&groups), scripts: groups }
    }

    pub(crate) fn of(&self, author: Author) -> &Arc<Groups> {
        match author {
            Author::File => &self.file,
            Author::Script => &self.scripts,
        }
    }

    /// Replaces the groups of one author. The files that locate addresses stay.
    pub(crate) fn set(&mut self, author: Author, mut groups: Groups) {
        groups.share_places(self.of(author));
        let groups = Arc::new(groups);
        match author {
            Author::File => self.file = groups,
            Author::Script => self.scripts = groups,
        }
    }

    /// Replaces the files that locate addresses.
    pub(crate) fn set_places(&mut self, of: &Groups) {
        Arc::make_mut(&mut self.file).share_places(of);
        Arc::make_mut(&mut self.scripts).share_places(of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_hold_their_addresses() {
        let network = Network::parse("10.1.2.3/8").unwrap();
        assert_eq!(network.address, "10.0.0.0".parse::<IpAddr>().unwrap());
        assert!(network.contains("10.255.0.1".parse().unwrap()));
        assert!(!network.contains("11.0.0.1".parse().unwrap()));
        assert!(!network.contains("::a00:1".parse().unwrap()));
        assert!(Network::parse("0.0.0.0/0").unwrap().contains("1.2.3.4".parse().unwrap()));
        assert!(Network::parse("::/0").unwrap().contains("::1".parse().unwrap()));
        for wrong in ["10.0.0.0/33", "::/129", "10.0.0/8", "x", "", "1.2.3.4/", "1.2.3.4/-1"] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_longest_network_decides() {
        let mut groups = Groups::default();
        for (group, network) in [
            ("private", "10.0.0.0/8"),
            ("lab", "10.1.0.0/16"),
            ("host", "10.1.1.1"),
            ("v6", "::/0"),
        ] {
            groups.add(group, Network::parse(network).unwrap());
        }
        let name = |address: &str| {
            groups.group_of(address.parse().unwrap()).and_then(|group| groups.name(group))
        };
        assert_eq!(name("10.2.0.1"), Some("private"));
        assert_eq!(name("10.1.0.1"), Some("lab"));
        assert_eq!(name("10.1.1.1"), Some("host"));
        assert_eq!(name("2001:db8::1"), Some("v6"));
        assert_eq!(name("192.0.2.1"), None);
        assert_eq!(groups.named("lab"), Some(1));
    }

    #[test]
    fn numbers_of_groups_are_the_same_if_others_only_follow() {
        let of = |names: &[&str]| {
            let mut groups = Groups::default();
            for (at, name) in names.iter().enumerate() {
                groups.add(name, Network::parse(&format!("10.{at}.0.0/16")).unwrap());
            }
            groups
        };
        let before = of(&["a", "b"]);
        assert!(of(&["a", "b", "c"]).continues(&before) && before.continues(&before));
        assert!(!of(&["a"]).continues(&before) && !of(&["b", "a"]).continues(&before));
        assert!(before.has(Network::parse("10.1.0.0/16").unwrap()));
        assert!(!before.has(Network::parse("10.1.0.0/17").unwrap()));
    }
}
