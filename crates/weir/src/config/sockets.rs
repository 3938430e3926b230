//! The socket collector and its sinks, as configured.

use super::SinkAddress;
use record::{Encoding, FieldSet};
use sockets::Undecided;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;
use wire::inet_diag::States;

/// The name that the collector has in the ledger, where listeners have theirs.
pub const COLLECTOR_NAME: &str = "sockets";

/// The socket collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketsConfig {
    /// From the start of one poll to the start of the next.
    pub interval: Duration,
    /// Each poll begins up to so much later. At most `interval`.
    pub jitter: Duration,
    pub namespaces: Namespaces,
    /// At a time.
    pub namespaces_max: usize,
    /// Words for states and groups of states; at least one.
    pub states: Vec<String>,
    /// In the language of `weir sockets`.
    pub filter: Option<String>,
    pub closes: bool,
    pub closes_undecided: Undecided,
    pub skip_unchanged: bool,
    /// In polls.
    pub keyframe_every: NonZeroU32,
    /// One connection in so many.
    pub sample: NonZeroU32,
    /// In polls.
    pub listen_every: NonZeroU32,
    /// Groups and fields; empty: the default ([`sockets::DEFAULT_FIELDS`]).
    pub fields: Vec<String>,
    pub table_entries_max: usize,
    /// Receive buffer to ask for, in bytes of the kernel's accounting.
    pub event_buffer_bytes: usize,
    /// Whether each poll looks which processes hold the sockets.
    pub processes: bool,
    /// `None`: the kernel's name.
    pub host: Option<String>,
    /// `None`: a hash of the machine id.
    pub host_id: Option<String>,
    pub tags: BTreeMap<String, String>,
    /// Path of the helper's socket. `None`: this process opens what it needs.
    pub helper: Option<PathBuf>,
    /// At least one, names differ.
    pub sinks: Vec<SinkConfig>,
}

/// Network namespaces to collect from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// The one of this process.
    Own,
    /// All that can be found.
    All,
    /// Those of these names; at least one.
    Named(Vec<String>),
}

/// Where records leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkConfig {
    pub name: String,
    pub to: SinkAddress,
    /// Not for UDP.
    pub format: Encoding,
    /// Groups and fields; empty: those of the collector.
    pub fields: Vec<String>,
    pub queue_bytes: usize,
    /// `None`: size does not matter. Files only.
    pub rotate_bytes: Option<u64>,
    /// `None`: age does not matter. Files only.
    pub rotate_interval: Option<Duration>,
    /// Rotated files to keep. Files only.
    pub rotate_keep: u32,
}

impl SocketsConfig {
    /// The fields that records have.
    pub fn field_set(&self) -> FieldSet {
        set_or_default(&self.fields)
    }

    /// The states that are polled.
    pub fn state_set(&self) -> States {
        let sets = self.states.iter().filter_map(|word| States::from_word(word));
        sets.fold(States::NONE, |all, states| all | states)
    }

    /// The fields that a sink's records have: its own of those of the collector. Where the collector names none, a sink may name any.
    pub fn fields_of(&self, sink: &SinkConfig) -> FieldSet {
        if self.fields.is_empty() {
            return set_or_default(&sink.fields);
        }
        let (all, own) = (self.field_set(), set_of(&sink.fields));
        all.without(&all.without(&own))
    }
}

/// What is named; what is only taken away is taken away from the default.
fn set_or_default(names: &[String]) -> FieldSet {
    let is_choice = names.first().is_some_and(|name| !name.starts_with('-'));
    let default = if is_choice { &[][..] } else { &sockets::DEFAULT_FIELDS };
    let names = default.iter().copied().chain(names.iter().map(String::as_str));
    FieldSet::from_names(names).unwrap_or(FieldSet::ALL)
}

/// Names were checked when they were read.
fn set_of(names: &[String]) -> FieldSet {
    FieldSet::from_names(names.iter().map(String::as_str)).unwrap_or(FieldSet::ALL)
}

impl SinkConfig {
    /// Whether it sets files aside.
    pub fn rotates(&self) -> bool {
        self.rotate_bytes.is_some() || self.rotate_interval.is_some()
    }
}

/// How sinks write records, in the order of the words in the table of keys. An array of JSON needs an end, and what a daemon
/// writes has none.
pub(super) const FORMATS: [Encoding; 7] = [
    Encoding::Jsonl,
    Encoding::Protobuf,
    Encoding::Prototext,
    Encoding::Protojson,
    Encoding::MessagePack,
    Encoding::Csv,
    Encoding::Tsv,
];

/// What a file's extension says; JSON lines where it says nothing.
pub(super) fn format_of(to: &SinkAddress) -> Encoding {
    let SinkAddress::File(path) = to else { return Encoding::Jsonl };
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is_it = |format: &&Encoding| format.extension() == extension || format.name() == extension;
    FORMATS.iter().find(is_it).copied().unwrap_or(Encoding::Jsonl)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::{Kind, SINK};

    #[test]
    fn every_word_of_the_table_is_the_name_of_its_format() {
        let Some(Kind::Choice(words)) = SINK.key("format").map(|key| key.kind) else {
            panic!("format is a choice")
        };
        assert_eq!(words, FORMATS.map(Encoding::name));
        assert_eq!(words.len() + 1, Encoding::ALL.len(), "all but the array");
    }
}
