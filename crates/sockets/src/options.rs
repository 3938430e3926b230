//! Options of the collector.

use crate::access::Scope;
use crate::filter::{Filter, Needs};
use crate::served::Served;
use record::{Field, FieldSet, SocketRecord};
use std::num::NonZeroU32;
use std::time::Duration;
use wire::inet_diag::{Extensions, States};

/// The default fields of records, as names for [`FieldSet::from_names`]: all but the few that the kernel looks up for every
/// socket and hardly anybody reads. Those would cost it 8 % of a walk.
pub const DEFAULT_FIELDS: [&str; 6] = [
    "all",
    "-type_of_service",
    "-traffic_class",
    "-class_id",
    // The algorithm's own state, not its name.
    "-congestion",
    "congestion_algorithm",
];

/// Options of the collector. The caller has checked the ranges.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the collector in the ledger.
    pub name: String,
    /// Time from the start of one poll to the start of the next.
    pub interval: Duration,
    /// Each poll starts later by a random part of this, so that the hosts of a fleet do not poll at once.
    pub jitter: Duration,
    /// Which namespaces to collect.
    pub scope: Scope,
    /// Which states to collect, unless the filter names its own.
    pub states: States,
    /// Which of those sockets to collect. `None` for all.
    pub filter: Option<Filter>,
    /// Listening sockets are requested in every `listen_every`th poll, and in keyframes: they change rarely.
    pub listen_every: NonZeroU32,
    /// Unchanged sockets are recorded only in every `keyframe_every`th poll, a keyframe. `None` records all sockets in every
    /// poll.
    pub keyframe_every: Option<NonZeroU32>,
    /// Collects one in `sample` sockets, chosen by the hash of the cookie: a connection is in all polls or in none.
    pub sample: NonZeroU32,
    /// Whether closing records are made.
    pub closes: Closes,
    /// What to do with a close that the filter cannot decide.
    pub closes_undecided: Undecided,
    /// Size of the receive buffer for close events, in bytes of the kernel's accounting.
    pub event_buffer_bytes: usize,
    /// Maximum number of namespaces collected at a time, including the own one. Further ones are left out.
    pub namespaces_max: usize,
    /// Maximum number of sockets remembered between polls.
    pub table_entries_max: usize,
    /// Whether each poll finds the processes that hold the sockets, by scanning all descriptors of all processes.
    pub processes: bool,
    /// The addresses at which this process itself serves: their connections count as filtered.
    pub served: Served,
    /// Fields that any sink uses. The kernel is not asked for the others.
    pub fields: FieldSet,
}

impl Options {
    /// The attributes that are needed: each costs the kernel time.
    pub(crate) fn extensions(&self) -> Extensions {
        let needs = self.filter.as_ref().map_or(Needs::NONE, Filter::needs);
        let mut wanted = Extensions::NONE;
        let mut want = |is_wanted: bool, extension| {
            if is_wanted {
                wanted = wanted.with(extension);
            }
        };

        // The last poll's counters stand in for those that an abort clears.
        want(self.closes == Closes::On || needs.contains(Needs::TCP_INFO), Extensions::INFO);
        want(needs.contains(Needs::CONGESTION), Extensions::CONGESTION);
        want(needs.contains(Needs::MEMORY), Extensions::MEMORY);
        let type_of_service = Extensions::TYPE_OF_SERVICE.with(Extensions::TRAFFIC_CLASS);
        want(needs.contains(Needs::TYPE_OF_SERVICE), type_of_service);

        for field in self.fields.fields() {
            if let Some(extension) = extension_of(field) {
                want(true, extension);
            }
        }

        wanted
    }

    /// The fields that no record has, because they are in attributes that are not requested.
    ///
    /// A sink that does not write absent fields may treat these as written, because writing all fields is faster than writing
    /// most.
    #[must_use]
    pub fn absent_fields(&self) -> FieldSet {
        let asked = self.extensions().bits();
        let is_absent = |field: &&Field| {
            extension_of(field).is_some_and(|extension| extension.bits() & asked == 0)
        };
        let absent = SocketRecord::FIELDS.iter().filter(is_absent);
        absent
            .filter_map(|field| FieldSet::named(field.name).ok())
            .fold(FieldSet::NONE, |all, one| all.with(&one))
    }
}

/// The attribute that contains a field. `None` for fields in every reply.
fn extension_of(field: &Field) -> Option<Extensions> {
    Some(match (field.group, field.name) {
        ("tcp_info" | "raw" | "delta", _) | (_, "role") => Extensions::INFO,
        ("memory", _) => Extensions::MEMORY,
        ("congestion", "congestion_algorithm") => Extensions::CONGESTION,
        ("congestion", _) => Extensions::CONGESTION_STATE,
        (_, "type_of_service") => Extensions::TYPE_OF_SERVICE,
        (_, "traffic_class" | "class_id") => Extensions::TRAFFIC_CLASS,
        (_, name) if name == "has_md5" || name.starts_with("ulp") || name.starts_with("tls_") => {
            Extensions::INFO
        }
        (_, name) if name.contains("mptcp") => Extensions::INFO,
        _ => return None,
    })
}

/// Whether closing records are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closes {
    /// For every connection whose close the kernel reports.
    On,
    /// Never.
    Off,
}

/// What to do with a close that the filter cannot decide, because no poll has seen the connection and the event lacks what the
/// filter needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Undecided {
    /// Make no record, and count it: nothing leaks that the filter should leave out.
    #[default]
    Drop,
    /// Make a record: nothing is missing that the filter should let through.
    Keep,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn wanting(fields: &[&str]) -> Options {
        let fields = FieldSet::from_names(fields.iter().copied()).expect("known names");
        Options {
            name: String::new(),
            interval: Duration::from_secs(10),
            jitter: Duration::ZERO,
            scope: Scope::Own,
            states: States::CONNECTED,
            filter: None,
            listen_every: NonZeroU32::MIN,
            keyframe_every: None,
            sample: NonZeroU32::MIN,
            closes: Closes::Off,
            closes_undecided: Undecided::Drop,
            namespaces_max: 1,
            processes: false,
            event_buffer_bytes: 0,
            table_entries_max: 1,
            served: Served::default(),
            fields,
        }
    }

    fn asks_for(fields: &[&str]) -> u8 {
        wanting(fields).extensions().bits()
    }

    #[test]
    fn what_is_not_asked_for_is_absent() {
        assert_eq!(wanting(&["all"]).absent_fields(), FieldSet::NONE);
        let options = wanting(&DEFAULT_FIELDS);
        let absent = options.absent_fields();
        assert!(absent.has("class_id") && absent.has("bbr_tail") && !absent.has("rtt_us"));
        assert!(options.fields.with(&absent).is_all());
        let mut names = DEFAULT_FIELDS.to_vec();
        names.push("class_id");
        let absent = wanting(&names).absent_fields();
        assert!(!absent.has("traffic_class"), "it comes with the class");
    }

    #[test]
    fn an_attribute_is_asked_for_when_a_field_of_it_is_wanted() {
        assert_eq!(asks_for(&DEFAULT_FIELDS), 0x4a, "tcp_info, the algorithm's name, memory");
        assert_eq!(asks_for(&["all"]), 0x7e);
        assert_eq!(asks_for(&["endpoints", "-role"]), 0);
        assert_eq!(asks_for(&["endpoints"]), 0x02, "who opened it is told by counters");
        for (field, bits) in [
            ("vegas_rtt_us", 0x04),
            ("bbr_tail", 0x04),
            ("congestion_algorithm", 0x08),
            ("type_of_service", 0x10),
            ("traffic_class", 0x20),
            ("class_id", 0x20),
            ("drops", 0x40),
            ("ulp", 0x02),
            ("mptcp_flags", 0x02),
            ("has_md5", 0x02),
            ("tcp_info_tail", 0x02),
        ] {
            assert_eq!(asks_for(&[field]), bits, "{field}");
            let mut names = DEFAULT_FIELDS.to_vec();
            names.push(field);
            assert_eq!(asks_for(&names), 0x4a | bits, "{field}");
        }
    }
}
