//! The keys that distinguish flows.

use crate::field::{Facts, Field, Kind, Value};
use crate::lookup::{Groups, Network, masked};
use crate::places::Country;
use std::fmt;
use std::net::IpAddr;

/// One part of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A field as it is.
    Field(Field),
    /// The network of an address, with these prefix lengths for IPv4 and IPv6.
    Prefix(Field, u8, u8),
    /// The group of an address.
    Group(Field),
    /// The number of the autonomous system that originates an address, from a file.
    Asn(Field),
    /// The country of an address, from a file.
    Country(Field),
}

/// Makes a part for a field.
type Function = fn(Field) -> Part;

/// Why a string is not a part of a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartError {
    /// No field has this word.
    #[error("there is no field \"{word}\"{}", field_hint(*nearest))]
    Unknown {
        /// The word as written.
        word: String,
        /// The most similar word.
        nearest: Option<&'static str>,
    },
    /// Only addresses have networks and groups.
    #[error(
        "\"{word}\" is not an address, so it has no networks, groups, systems or countries. Fix: use src or dst, or remove what follows"
    )]
    NoAddress {
        /// The field's word.
        word: &'static str,
    },
    /// A prefix length is not a number, or is too large.
    #[error(
        "\"{text}\": the number of bits is wrong. Fix: write 0 to 32 for IPv4, and after another slash 0 to 128 for IPv6, as in src/24/48"
    )]
    Bits {
        /// The text as written.
        text: String,
    },
}

fn field_hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(word) => format!(". Fix: did you mean \"{word}\"?"),
        None => ". Fix: use one that `weir flows --fields` lists".to_owned(),
    }
}

impl Part {
    /// The parts written as `word(field)`.
    pub(crate) const FUNCTIONS: [(&str, Function); 3] =
        [("group", Part::Group), ("asn", Part::Asn), ("country", Part::Country)];

    /// Parses `src`, `src/24`, `src/24/48`, `group(src)`, `asn(src)` or `country(src)`.
    pub fn parse(text: &str) -> Result<Part, PartError> {
        let text = text.trim();
        for (word, part) in Part::FUNCTIONS {
            let inside = text.strip_prefix(word).and_then(|rest| rest.strip_prefix('('));
            if let Some(inside) = inside.and_then(|rest| rest.strip_suffix(')')) {
                return Ok(part(address(inside)?));
            }
        }
        let Some((word, bits)) = text.split_once('/') else { return Ok(Part::Field(field(text)?)) };

        let wrong = || PartError::Bits { text: text.into() };
        let (v4, v6) = bits.split_once('/').map_or((bits, None), |(v4, v6)| (v4, Some(v6)));
        let bits = |text: &str, most| text.trim().parse().ok().filter(|bits| *bits <= most);
        let v4 = bits(v4, 32).ok_or_else(wrong)?;
        // The default for IPv6: the usual size of a site for a /24 (RFC 6177), and the whole address for a host.
        let usual = if v4 == 32 { 128 } else { 48 };
        let v6 = v6.map_or(Some(usual), |v6| bits(v6, 128)).ok_or_else(wrong)?;
        Ok(Part::Prefix(address(word)?, v4, v6))
    }

    /// Its value in a sample.
    pub fn value(self, facts: &impl Facts, groups: &Groups) -> Value {
        match self {
            Part::Field(field) => facts.value(field),
            Part::Prefix(field, v4, v6) => match facts.value(field) {
                Value::Address(address @ IpAddr::V4(_)) => Value::Address(masked(address, v4)),
                Value::Address(address) => Value::Address(masked(address, v6)),
                _ => Value::Absent,
            },
            Part::Group(field) => match facts.value(field) {
                Value::Address(address) => Value::number(groups.group_of(address)),
                _ => Value::Absent,
            },
            Part::Asn(field) => match facts.value(field) {
                Value::Address(address) => Value::number(groups.asn_of(address)),
                _ => Value::Absent,
            },
            Part::Country(field) => match facts.value(field) {
                Value::Address(address) => {
                    Value::number(groups.country_of(address).map(Country::number))
                }
                _ => Value::Absent,
            },
        }
    }

    /// Whether a sample has a value of this part for which this holds.
    pub(crate) fn any(
        self,
        facts: &impl Facts,
        groups: &Groups,
        holds: impl Fn(Value) -> bool,
    ) -> bool {
        match self {
            Part::Field(field) => facts.any(field, holds),
            part => holds(part.value(facts, groups)),
        }
    }

    /// The part as it is written.
    pub fn word(self) -> String {
        match self {
            Part::Field(field) => field.word().into(),
            Part::Prefix(field, v4, v6) => format!("{}/{v4}/{v6}", field.word()),
            Part::Group(field) => format!("group({})", field.word()),
            Part::Asn(field) => format!("asn({})", field.word()),
            Part::Country(field) => format!("country({})", field.word()),
        }
    }

    /// Whether it needs a file that locates addresses ([`Groups::add_places`]).
    pub fn needs_places(self) -> bool {
        matches!(self, Part::Asn(_) | Part::Country(_))
    }

    /// A value of this part for people.
    pub fn shown(self, value: Value, groups: &Groups) -> String {
        match (self, value) {
            (Part::Prefix(_, v4, v6), Value::Address(address)) => {
                let bits = if address.is_ipv4() { v4 } else { v6 };
                let network = Network::of(address, bits);
                format!("{}/{}", network.address, network.len)
            }
            (Part::Group(_), Value::Number(group)) => {
                groups.name(group as u32).map_or_else(|| group.to_string(), str::to_owned)
            }
            (Part::Asn(_), Value::Number(number)) => format!("AS{number}"),
            (Part::Country(_), Value::Number(number)) => {
                Country::of(number).map_or_else(|| number.to_string(), |one| one.to_string())
            }
            (Part::Field(Field::Ethertype), Value::Number(number)) => format!("{number:#06x}"),
            (Part::Field(Field::Community), Value::Number(number)) => {
                format!("{}:{}", number >> 16, number & 0xffff)
            }
            (_, value) => value.to_string(),
        }
    }
}

/// Displays the part as it is written.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word())
    }
}

fn field(word: &str) -> Result<Field, PartError> {
    let word = word.trim();
    Field::named(word)
        .ok_or_else(|| PartError::Unknown { word: word.into(), nearest: nearest(word) })
}

fn address(word: &str) -> Result<Field, PartError> {
    let field = field(word)?;
    match field.kind() {
        Kind::Address => Ok(field),
        Kind::Number | Kind::Mac | Kind::Community => {
            Err(PartError::NoAddress { word: field.word() })
        }
    }
}

/// The word that shares the most letters at both ends, if those are most of its letters.
pub(crate) fn nearest(word: &str) -> Option<&'static str> {
    let shared = |other: &&str| {
        let front = word.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        let back = word.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
        front + back
    };
    let best = Field::ALL.iter().map(|field| field.word()).max_by_key(shared)?;
    (shared(&best) * 2 > best.len()).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sample(&'static str);

    impl Facts for Sample {
        fn value(&self, field: Field) -> Value {
            match field {
                Field::Src => Value::address(self.0.parse().ok()),
                Field::Protocol => Value::Number(17),
                _ => Value::Absent,
            }
        }
    }

    #[test]
    fn parts_are_read_and_valued() {
        let mut groups = Groups::default();
        groups.add("lab", Network::parse("192.0.2.0/24").unwrap());
        let check = |text: &str, source, shown: &str| {
            let part = Part::parse(text).unwrap();
            let value = part.value(&Sample(source), &groups);
            assert_eq!(part.shown(value, &groups), shown, "{text}");
            let mut key = [0xff; Value::KEY_LEN];
            value.write(&mut key);
            assert_eq!(Value::read(&key), value, "{text}");
        };
        check("src", "192.0.2.77", "192.0.2.77");
        check(" src/24 ", "192.0.2.77", "192.0.2.0/24");
        check("src/24", "2001:db8:1:2::3", "2001:db8:1::/48");
        check("src/24/64", "2001:db8:1:2::3", "2001:db8:1:2::/64");
        check("src/0/0", "2001:db8:1:2::3", "::/0");
        check("group(src)", "192.0.2.77", "lab");
        check("group(src)", "198.51.100.1", "-");
        check("protocol", "", "17");
        check("src", "", "-");
        check("src_mac", "", "-");
    }

    #[test]
    fn what_is_no_part_is_told_with_the_nearest_word() {
        let told = |text| Part::parse(text).unwrap_err().to_string();
        assert_eq!(
            told("src_prt"),
            "there is no field \"src_prt\". Fix: did you mean \"src_port\"?"
        );
        assert_eq!(
            told("zz"),
            "there is no field \"zz\". Fix: use one that `weir flows --fields` lists"
        );
        assert_eq!(
            told("vlan/24"),
            "\"vlan\" is not an address, so it has no networks, groups, systems or countries. Fix: use src or dst, or remove what follows"
        );
        assert!(told("src/33").starts_with("\"src/33\": the number of bits"));
        assert!(told("src/24/129").contains("0 to 128"));
        assert!(told("group(vlan)").contains("not an address"));
    }

    #[test]
    fn every_field_is_found_by_its_word() {
        for field in Field::ALL {
            assert_eq!(Field::named(field.word()), Some(*field));
            assert!(field.meaning().ends_with('.'));
        }
    }
}
