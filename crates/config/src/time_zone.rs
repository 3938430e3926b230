//! Time zones of messages: as written in the configuration, and which one a datagram has.

use crate::form::{Pairs, Text, parsed, text};
use crate::listener::{Listen, ListenerConfig};
use crate::sink::SinkConfig;
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone as Rules;
use relay::Prefix;
use std::fmt;
use std::str::FromStr;
use sys::Source;
use wire::syslog::{Arrival, Zone, ZoneChange};

pub(crate) const TIME_ZONE: Text<TimeZone> =
    text("`Europe/Vienna`, `+02:00` or `local`", parsed::<TimeZone>);

/// Networks with their zones.
pub(crate) const NETWORKS: Pairs<NetworkZone> = Pairs {
    of: "addresses and prefixes with their zones in braces",
    example: "\"10.1.0.0/16\" = \"Europe/Vienna\"",
    parse: |network, zone| {
        let network = parsed::<Prefix>(network)?;
        Ok(NetworkZone { network, zone: zone.parse()? })
    },
};

/// Words for zones with what they mean.
pub(crate) const ABBREVIATIONS: Pairs<TimeZone> = Pairs {
    of: "words with their zones in braces",
    example: "CEST = \"+02:00\"",
    parse: |word, zone| {
        // Only what a message may have behind its time can ever be found there.
        let is_word = (1..=40).contains(&word.len())
            && word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
        match is_word {
            true => zone.parse(),
            false => Err(format!(
                "\"{}\" is not a word of at most 40 ASCII characters without blanks and colons. Fix: write for example CEST",
                word.escape_debug()
            )),
        }
    },
};

/// The last moment whose offset is looked up; the one that is in force then remains. In seconds since 1970: 1 January 2100.
const CHANGES_UNTIL_UNIX_SECONDS: i64 = 4_102_444_800;

/// A time zone: a name of the IANA database, an offset from UTC, or `local`, the zone of this host.
///
/// Its offsets are those of the host's database (or, without one, of the database that the program has) at the time when the
/// configuration is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeZone {
    written: String,
    zone: Zone,
}

impl TimeZone {
    /// UTC.
    pub fn utc() -> TimeZone {
        TimeZone { written: "UTC".to_owned(), zone: Zone::fixed(0) }
    }

    /// Its offsets.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

const NO_ZONE: &str = "it is not a zone of the IANA database. Fix: write a name such as Europe/Vienna, an offset such as +02:00, or local";

impl FromStr for TimeZone {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeZone, String> {
        let rules = match text {
            "local" => Rules::try_system().map_err(|error| {
                format!("the zone of this host is not known: {error}. Fix: write its name, such as Europe/Vienna")
            })?,
            // POSIX's `UTC+2` is two hours behind UTC, which nobody means who writes it. So only a sign begins an offset.
            _ if text.starts_with(['+', '-']) => {
                DateTimeParser::new().parse_time_zone(text).map_err(|_| NO_ZONE.to_owned())?
            }
            _ => Rules::get(text).map_err(|_| NO_ZONE.to_owned())?,
        };
        Ok(TimeZone { written: text.to_owned(), zone: offsets(&rules) })
    }
}

/// The offsets of a zone from 1970 on.
fn offsets(rules: &Rules) -> Zone {
    let mut current = rules.to_offset(Timestamp::UNIX_EPOCH).seconds();
    let first = current;
    let mut changes = Vec::new();
    for transition in rules.following(Timestamp::UNIX_EPOCH) {
        let unix_seconds = transition.timestamp().as_second();
        if unix_seconds >= CHANGES_UNTIL_UNIX_SECONDS {
            break;
        }
        // Some changes are of the name alone.
        let offset_seconds = transition.offset().seconds();
        if offset_seconds != current {
            changes.push(ZoneChange { unix_seconds, offset_seconds });
            current = offset_seconds;
        }
    }
    Zone::changing(first, changes)
}

/// The zone of the senders in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkZone {
    network: Prefix,
    zone: TimeZone,
}

impl fmt::Display for NetworkZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.zone.fmt(f)
    }
}

/// The zones in which the messages of a listener are read for a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeZones {
    usual: Zone,
    /// The longest prefix first.
    networks: Vec<(Prefix, Zone)>,
    abbreviations: Vec<(String, Zone)>,
}

impl TimeZones {
    /// The zones of a listener, for a sink that may have its own: that of the sender's network, else the sink's, else the listener's.
    pub fn of(listener: &ListenerConfig, sink: &SinkConfig) -> TimeZones {
        let usual = sink.time_zone.as_ref().unwrap_or(&listener.time_zone);
        let network = |one: &NetworkZone| (one.network, one.zone.zone.clone());
        let mut networks: Vec<_> = listener.time_zones.values().map(network).collect();
        networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.length_bits()));
        let word = |(word, zone): (&String, &TimeZone)| (word.clone(), zone.zone.clone());
        TimeZones {
            usual: usual.zone.clone(),
            networks,
            abbreviations: listener.time_zone_abbreviations.iter().map(word).collect(),
        }
    }

    /// What completes the times of a datagram that was received from `source`.
    pub fn arrival(&self, unix_ns: u64, source: &Source) -> Arrival<'_> {
        let network = self.networks.iter().find(|(network, _)| network.contains(source));
        let zone = network.map_or(&self.usual, |(_, zone)| zone);
        Arrival { unix_ns, zone, zone_words: &self.abbreviations }
    }
}

impl ListenerConfig {
    /// Whether its datagrams have source addresses.
    pub(crate) fn has_source_addresses(&self) -> bool {
        matches!(self.listen, Listen::Udp(_) | Listen::Weir(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::syslog::parse;

    /// Seconds since 1970 of a time in a zone, received in November 2026.
    fn seconds(zone: &str, time: &str) -> u64 {
        let zone: TimeZone = zone.parse().unwrap();
        let arrival = Arrival { zone: zone.zone(), ..Arrival::utc(1_795_348_800_000_000_000) };
        let line = format!("<13>{time} h a: x");
        parse(line.as_bytes(), arrival).time_unix_ns.unwrap() / 1_000_000_000
    }

    #[test]
    fn zones_have_the_offsets_of_the_iana_database() {
        // 11 October 2026, 22:14:15 UTC.
        let utc = 1_791_756_855;
        let check = |zone, offset_seconds: i64| {
            let read = seconds(zone, "2026-10-11 22:14:15") as i64;
            assert_eq!(utc - read, offset_seconds, "{zone}");
        };
        check("UTC", 0);
        check("Europe/Vienna", 7_200);
        check("America/New_York", -14_400);
        check("Asia/Kolkata", 19_800);
        check("Australia/Lord_Howe", 39_600);
        check("+02:00", 7_200);
        check("-09:30", -34_200);
        // In winter, before the first change of the list, and in years without a table.
        assert_eq!(seconds("Europe/Vienna", "2026-12-11 23:14:15"), 1_791_756_855 + 61 * 86_400);
        assert_eq!(seconds("Europe/Vienna", "1970-01-01 01:00:00"), 0);
        assert_eq!(seconds("Europe/Vienna", "2090-07-01 02:00:00"), 3_802_550_400);
        // The hour that the clocks leave out, and the one that they show twice, nearer to the arrival.
        assert_eq!(seconds("America/New_York", "2026-03-08 02:30:00"), 1_772_955_000);
        assert_eq!(seconds("America/New_York", "2026-11-01 01:30:00"), 1_793_514_600);
    }

    #[test]
    fn what_is_no_zone_is_refused_and_what_is_one_is_shown_as_written() {
        for text in [
            "",
            "CEST",
            "Europe/Wien",
            "2",
            "+26:00",
            "utc+1",
            "UTC+2",
            "EST5EDT,M3.2.0,M11.1.0",
            "Local",
        ] {
            assert!(text.parse::<TimeZone>().is_err(), "{text}");
        }
        for text in ["UTC", "Europe/Vienna", "+02:00"] {
            assert_eq!(text.parse::<TimeZone>().unwrap().to_string(), text);
        }
        assert_eq!(TimeZone::utc(), "UTC".parse().unwrap());
        assert!("local".parse::<TimeZone>().is_ok());
    }
}
