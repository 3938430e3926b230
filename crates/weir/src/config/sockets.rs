//! The socket collector and its sinks, as configured.

use super::SinkAddress;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Words for states and groups of states; at least one.
    pub states: Vec<String>,
    /// In the language of `weir sockets`.
    pub filter: Option<String>,
    pub closes: bool,
    pub skip_unchanged: bool,
    /// In polls.
    pub keyframe_every: NonZeroU32,
    /// One connection in so many.
    pub sample: NonZeroU32,
    /// In polls.
    pub listen_every: NonZeroU32,
    /// Groups and fields; empty: all.
    pub fields: Vec<String>,
    pub table_entries_max: usize,
    /// Receive buffer to ask for, in bytes of the kernel's accounting.
    pub event_buffer_bytes: usize,
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
    pub format: Format,
    /// Groups and fields; empty: those of the collector.
    pub fields: Vec<String>,
    pub queue_bytes: usize,
    /// `None`: size does not matter. Files only.
    pub rotate_bytes: Option<u64>,
    /// `None`: age does not matter. Files only.
    pub rotate_interval: Option<Duration>,
    /// Rotated files to keep. Files only.
    pub rotate_keep: u32,
    /// `None`: what the path takes. UDP only.
    pub datagram_bytes: Option<usize>,
}

impl SinkConfig {
    /// Whether it sets files aside.
    pub fn rotates(&self) -> bool {
        self.rotate_bytes.is_some() || self.rotate_interval.is_some()
    }
}

/// How a sink writes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Jsonl,
    Protobuf,
    Prototext,
    Protojson,
    MessagePack,
    Csv,
    Tsv,
}

impl Format {
    /// In the order of the words.
    pub(super) const ALL: [Format; 7] = [
        Format::Jsonl,
        Format::Protobuf,
        Format::Prototext,
        Format::Protojson,
        Format::MessagePack,
        Format::Csv,
        Format::Tsv,
    ];
    pub(super) const WORDS: [&str; 7] =
        ["jsonl", "protobuf", "prototext", "protojson", "msgpack", "csv", "tsv"];

    /// What a file's extension says; JSON lines where it says nothing.
    pub(super) fn of(to: &SinkAddress) -> Format {
        let SinkAddress::File(path) = to else { return Format::Jsonl };
        match path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
            "pb" | "protobuf" => Format::Protobuf,
            "txtpb" | "textproto" | "prototext" => Format::Prototext,
            "protojson" => Format::Protojson,
            "msgpack" => Format::MessagePack,
            "csv" => Format::Csv,
            "tsv" => Format::Tsv,
            _ => Format::Jsonl,
        }
    }
}
