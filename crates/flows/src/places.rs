//! Locates addresses: the autonomous system that originates them and the country, from files in MaxMind's format.

use maxminddb::{PathElement, Reader};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "it is not an MMDB file: {0}. Fix: use one in MaxMind's format, such as GeoLite2-Country.mmdb"
)]
pub struct PlacesError(String);

/// Files, in order of precedence.
#[derive(Clone, Default)]
pub(crate) struct Places(Vec<Arc<Reader<Vec<u8>>>>);

/// A two-letter country code of ISO 3166-1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Country(u16);

impl Country {
    /// Parses two letters, in either case.
    pub(crate) fn parse(text: &str) -> Option<Country> {
        let [first, second] = text.as_bytes() else { return None };
        let is_code = first.is_ascii_alphabetic() && second.is_ascii_alphabetic();
        let bytes = [first.to_ascii_uppercase(), second.to_ascii_uppercase()];
        is_code.then_some(Country(u16::from_be_bytes(bytes)))
    }

    pub(crate) fn number(self) -> u64 {
        self.0.into()
    }

    /// The country with this [`number`](Self::number).
    pub(crate) fn of(number: u64) -> Option<Country> {
        let bytes = u16::try_from(number).ok()?.to_be_bytes();
        Country::parse(std::str::from_utf8(&bytes).ok()?)
    }
}

impl fmt::Display for Country {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.0.to_be_bytes();
        write!(out, "{}{}", char::from(first), char::from(second))
    }
}

/// The fields in which files have the number of an autonomous system, by who named them.
const MAXMIND: &str = "autonomous_system_number";
const IPINFO: &str = "asn";

impl Places {
    /// Adds a file.
    pub(crate) fn add(&mut self, bytes: Vec<u8>) -> Result<(), PlacesError> {
        let broken = |error: maxminddb::MaxMindDbError| PlacesError(error.to_string());
        let reader = Reader::from_source(bytes).map_err(broken)?;
        // After this, no lookup meets anything broken.
        reader.verify().map_err(broken)?;
        self.0.push(Arc::new(reader));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of the autonomous system that originates an address.
    pub(crate) fn asn_of(&self, address: IpAddr) -> Option<u32> {
        self.0.iter().find_map(|reader| {
            let found = reader.lookup(address).ok()?;
            // Makers of these files choose the type: MaxMind's is 32 bits without a sign, others have 16, 64 or 128. Only this one is
            // read from all of them.
            let number = |key| {
                let number: Option<i128> = found.decode_path(&[PathElement::Key(key)]).ok()?;
                u32::try_from(number?).ok()
            };
            // IPinfo writes it as "AS64496".
            let text = |key| {
                let text: Option<&str> = found.decode_path(&[PathElement::Key(key)]).ok()?;
                asn(text?)
            };
            number(MAXMIND)
                .or_else(|| text(IPINFO))
                .or_else(|| text(MAXMIND))
                .or_else(|| number(IPINFO))
        })
    }

    /// The country of an address.
    pub(crate) fn country_of(&self, address: IpAddr) -> Option<Country> {
        const FLAT: &[PathElement<'_>] = &[PathElement::Key("country_code")];
        const NESTED: &[PathElement<'_>] =
            &[PathElement::Key("country"), PathElement::Key("iso_code")];
        self.0.iter().find_map(|reader| {
            let found = reader.lookup(address).ok()?;
            let code = |path| found.decode_path::<&str>(path).ok().flatten();
            Country::parse(code(FLAT).or_else(|| code(NESTED))?)
        })
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self.0.iter().map(|reader| &reader.metadata().database_type);
        out.debug_list().entries(types).finish()
    }
}

/// Parses `64496` or `AS64496`.
pub(crate) fn asn(text: &str) -> Option<u32> {
    let prefix = text.get(..2).filter(|prefix| prefix.eq_ignore_ascii_case("as"));
    text[prefix.map_or(0, str::len)..].parse().ok()
}

#[cfg(test)]
mod tests {
    use crate::field::{Facts, Field, Value};
    use crate::filter::Filter;
    use crate::key::Part;
    use crate::lookup::Groups;
    use testkit::MmdbField::{Number, Text};
    use testkit::mmdb;

    struct From(&'static str);

    impl Facts for From {
        fn value(&self, field: Field) -> Value {
            match field {
                Field::Src => Value::address(self.0.parse().ok()),
                _ => Value::Absent,
            }
        }
    }

    fn groups() -> Groups {
        let mut groups = Groups::default();
        let asn = mmdb(
            "GeoLite2-ASN",
            &[
                ("192.0.2.0/24", &[("autonomous_system_number", Number(64_496))]),
                ("2001:db8::/32", &[("autonomous_system_number", Number(4_200_000_000))]),
            ],
        );
        let country =
            mmdb("GeoLite2-Country", &[("192.0.2.0/25", &[("country/iso_code", Text("DE"))])]);
        // As other makers write them: a text, a number in the other field, and one of 16 bits.
        let mut other = mmdb(
            "other",
            &[
                ("203.0.113.64/26", &[("autonomous_system_number", Text("64497"))]),
                ("203.0.113.128/26", &[("asn", Number(64_498))]),
                ("203.0.113.192/26", &[("autonomous_system_number", Number(0xABCD))]),
            ],
        );
        let wide = other.windows(3).position(|bytes| bytes == [6 << 5 | 2, 0xAB, 0xCD]);
        other[wide.unwrap()] = 5 << 5 | 2;
        let lite = mmdb(
            "ipinfo lite",
            &[(
                "198.51.100.0/24",
                &[
                    ("asn", Text("AS64511")),
                    ("country_code", Text("AT")),
                    ("country", Text("Austria")),
                ],
            )],
        );
        for file in [asn, country, other, lite] {
            groups.add_places(file).unwrap();
        }
        groups
    }

    #[test]
    fn addresses_have_systems_and_countries_of_the_first_file_that_knows() {
        let groups = groups();
        let check = |source, asn: &str, country: &str| {
            let shown = |text| {
                let part = Part::parse(text).unwrap();
                part.shown(part.value(&From(source), &groups), &groups)
            };
            assert_eq!((shown("asn(src)"), shown("country(src)")), (asn.into(), country.into()));
        };
        check("192.0.2.1", "AS64496", "DE");
        check("192.0.2.200", "AS64496", "-");
        check("2001:db8::1", "AS4200000000", "-");
        check("198.51.100.7", "AS64511", "AT");
        check("203.0.113.1", "-", "-");
        check("203.0.113.65", "AS64497", "-");
        check("203.0.113.129", "AS64498", "-");
        check("203.0.113.193", "AS43981", "-");
        check("::1", "-", "-");
    }

    #[test]
    fn filters_ask_for_them_and_say_what_they_want() {
        let groups = groups();
        let check = |filter, expected| {
            let filter = Filter::parse(filter, &groups).unwrap();
            assert_eq!(filter.passes(&From("192.0.2.1"), &groups), expected);
        };
        check("asn(src) = 64496", true);
        check("asn(src) = 1,as64496", true);
        check("asn(src) != 64496", false);
        check("country(src) in at,de", true);
        check("country(src) = US", false);
        let told = |filter, groups: &Groups| Filter::parse(filter, groups).unwrap_err().to_string();
        assert!(told("country(src) = Germany", &groups).contains("expected two letters"));
        assert!(told("asn(src) = x", &groups).contains("write for example AS64496"));
        assert!(told("asn(src) = 1", &Groups::default()).contains("no MMDB file"));
        assert!(told("asn(vlan) = 1", &groups).contains("not an address"));
    }

    #[test]
    fn a_lookup_allocates_nothing() {
        let groups = groups();
        for address in ["192.0.2.1", "198.51.100.1", "2001:db8::1", "203.0.113.1"] {
            let address = address.parse().unwrap();
            let info = allocation_counter::measure(|| {
                _ = (groups.asn_of(address), groups.country_of(address));
            });
            assert_eq!(info.count_total, 0, "{address}");
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let whole = mmdb("x", &[("192.0.2.0/24", &[("asn", Text("AS1"))])]);
        assert!(Groups::default().add_places(whole.clone()).is_ok());
        for len in (0..whole.len()).step_by(7) {
            assert!(Groups::default().add_places(whole[..len].to_vec()).is_err(), "{len}");
        }
    }
}
