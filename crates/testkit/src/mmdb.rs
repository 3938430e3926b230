//! A small file in MaxMind's format, for tests that look up addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A file in MaxMind's format (MaxMind DB file format specification, version 2.0): for each network, the fields of its map by
/// name. A field with a slash in its name is in a nested map.
pub fn mmdb(kind: &str, networks: &[(&str, &[(&str, Field)])]) -> Vec<u8> {
    let mut tree = Tree::default();
    let mut data = Vec::new();
    for (network, fields) in networks {
        tree.insert(network, data.len() as u32);
        map(&mut data, fields);
    }

    let nodes = tree.nodes.len() as u32;
    let mut file = Vec::new();
    for record in tree.nodes.iter().flatten() {
        let number = match *record {
            Record::Nothing => nodes,
            Record::Node(at) => at,
            Record::Data(at) => nodes + 16 + at,
        };
        file.extend(&number.to_be_bytes()[1..]);
    }
    file.extend([0; 16]);
    file.extend(data);
    file.extend(b"\xab\xcd\xefMaxMind.com");
    file.extend(metadata(kind, nodes));
    file
}

/// The value of a field in a map.
#[derive(Clone, Copy, Debug)]
pub enum Field {
    /// A text.
    Text(&'static str),
    /// A 32-bit number.
    Number(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Record {
    #[default]
    Nothing,
    Node(u32),
    Data(u32),
}

/// A tree over the bits of IPv6 addresses; IPv4 is below `::/96`.
struct Tree {
    nodes: Vec<[Record; 2]>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { nodes: vec![[Record::Nothing; 2]] }
    }
}

impl Tree {
    fn insert(&mut self, network: &str, data: u32) {
        let (address, len) = network.split_once('/').expect("a network");
        let len: u32 = len.parse().expect("a number of bits");
        let (bits, len) = match address.parse().expect("an address") {
            IpAddr::V4(ip) => (u128::from(ip.to_bits()), 96 + len),
            IpAddr::V6(ip) => (ip.to_bits(), len),
        };

        let mut node = 0;
        for depth in 0..len {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == len {
                self.nodes[node][side] = Record::Data(data);
                return;
            }
            node = match self.nodes[node][side] {
                Record::Node(at) => at as usize,
                Record::Nothing | Record::Data(_) => {
                    let next = self.nodes.len();
                    self.nodes.push([Record::Nothing; 2]);
                    self.nodes[node][side] = Record::Node(next as u32);
                    next
                }
            };
        }
    }
}

fn map(out: &mut Vec<u8>, fields: &[(&str, Field)]) {
    let mut inside: BTreeMap<&str, Vec<(&str, Field)>> = BTreeMap::new();
    let (nested, flat): (Vec<_>, Vec<_>) =
        fields.iter().copied().partition(|(name, _)| name.contains('/'));
    for (name, field) in nested {
        let (outer, inner) = name.split_once('/').expect("it has one");
        inside.entry(outer).or_default().push((inner, field));
    }
    out.push(7 << 5 | (flat.len() + inside.len()) as u8);
    for (name, field) in flat {
        text(out, name);
        match field {
            Field::Text(value) => text(out, value),
            Field::Number(value) => number(out, 6, value),
        }
    }
    for (name, fields) in inside {
        text(out, name);
        map(out, &fields);
    }
}

/// Writes text of at most 28 bytes.
fn text(out: &mut Vec<u8>, text: &str) {
    assert!(text.len() < 29, "{text}");
    out.push(2 << 5 | text.len() as u8);
    out.extend(text.as_bytes());
}

/// Writes a number. `kind`: 5 for 16 bits, 6 for 32.
fn number(out: &mut Vec<u8>, kind: u8, number: u32) {
    let bytes = number.to_be_bytes();
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(4);
    out.push(kind << 5 | (4 - first) as u8);
    out.extend(&bytes[first..]);
}

fn metadata(kind: &str, nodes: u32) -> Vec<u8> {
    let mut out = vec![7 << 5 | 9];
    let numbers = [
        ("node_count", 6, nodes),
        ("record_size", 5, 24),
        ("ip_version", 5, 6),
        ("binary_format_major_version", 5, 2),
        ("binary_format_minor_version", 5, 0),
    ];
    for (name, kind, value) in numbers {
        text(&mut out, name);
        number(&mut out, kind, value);
    }
    text(&mut out, "database_type");
    text(&mut out, kind);
    // Types above 7 have an extra byte: an empty array of languages, and a 64-bit number.
    text(&mut out, "languages");
    out.extend([0, 4]);
    text(&mut out, "build_epoch");
    out.extend([4, 2, 0x65, 0x53, 0xf1, 0x00]);
    text(&mut out, "description");
    map(&mut out, &[("en", Field::Text("of a test"))]);
    out
}
