//! The numbers of a socket that a filter can compare: every field of `tcp_info`, and those of the reply around it.

use super::quantity::Quantity;
use wire::inet_diag::tcp_info::{self, Unit};

/// A number of a socket, with its word in the filter language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    word: &'static str,
    source: Source,
    quantity: Quantity,
}

/// Where a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    TcpInfo(&'static tcp_info::Field),
    ReceiveQueue,
    SendQueue,
    Uid,
    Inode,
    Cookie,
    Drops,
    Age,
    Pid,
    /// Only for a listener: connections waiting to be accepted.
    Waiting,
    /// Only for a listener: how many may wait.
    Backlog,
    /// Since data was last sent or received.
    Idle,
    /// Bytes sent; on kernels that do not count those, bytes acknowledged.
    Sent,
    Memory(MemoryField),
    Dscp,
}

/// One of the socket's memory figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryField {
    Receive,
    ReceiveLimit,
    Send,
    SendLimit,
}

/// Words for numbers outside `tcp_info`. The first one for each is printed.
const OWN: &[(&str, Source, Quantity)] = &[
    ("rqueue", Source::ReceiveQueue, Quantity::Bytes),
    ("recvq", Source::ReceiveQueue, Quantity::Bytes),
    ("recv_q", Source::ReceiveQueue, Quantity::Bytes),
    ("receive_queue", Source::ReceiveQueue, Quantity::Bytes),
    ("wqueue", Source::SendQueue, Quantity::Bytes),
    ("sendq", Source::SendQueue, Quantity::Bytes),
    ("send_q", Source::SendQueue, Quantity::Bytes),
    ("send_queue", Source::SendQueue, Quantity::Bytes),
    ("uid", Source::Uid, Quantity::User),
    ("user", Source::Uid, Quantity::User),
    ("inode", Source::Inode, Quantity::Count),
    ("ino", Source::Inode, Quantity::Count),
    ("cookie", Source::Cookie, Quantity::Count),
    ("sk", Source::Cookie, Quantity::Count),
    ("drops", Source::Drops, Quantity::Count),
    ("age", Source::Age, Quantity::Duration),
    ("seen", Source::Age, Quantity::Duration),
    ("pid", Source::Pid, Quantity::Count),
    ("waiting", Source::Waiting, Quantity::Count),
    ("backlog", Source::Backlog, Quantity::Count),
    ("idle", Source::Idle, Quantity::Duration),
    ("sent", Source::Sent, Quantity::Bytes),
    ("rmem", Source::Memory(MemoryField::Receive), Quantity::Bytes),
    ("rcvbuf", Source::Memory(MemoryField::ReceiveLimit), Quantity::Bytes),
    ("wmem", Source::Memory(MemoryField::Send), Quantity::Bytes),
    ("sndbuf", Source::Memory(MemoryField::SendLimit), Quantity::Bytes),
    ("dscp", Source::Dscp, Quantity::Dscp),
];

/// Shorter words, those that `ss -i` prints, and column names. `retrans` is the column's total, not the kernel's field of that
/// name.
const ALIASES: &[(&str, &str)] = &[
    ("cwnd", "snd_cwnd_segments"),
    ("ssthresh", "snd_ssthresh_segments"),
    ("mss", "snd_mss_bytes"),
    ("rcvmss", "rcv_mss_bytes"),
    ("minrtt", "min_rtt_us"),
    ("retrans", "total_retrans_segments"),
    ("retrans_now", "retrans_segments"),
    ("pacing", "pacing_rate_bytes_per_sec"),
    ("received", "bytes_received"),
    ("rate", "delivery_rate_bytes_per_sec"),
    ("busy", "busy_time_us"),
    ("lastsnd", "last_data_sent_ms"),
    ("lastrcv", "last_data_recv_ms"),
    ("lastack", "last_ack_recv_ms"),
    ("app_limited", "delivery_rate_app_limited"),
];

/// Endings of field names that give the unit.
const UNIT_ENDINGS: &[&str] = &["_bytes_per_sec", "_bytes", "_segments", "_us", "_ms"];

impl Field {
    /// The field for a word: the kernel's name without `tcpi_`, with or without its unit, or a shorter one.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Field> {
        let own = OWN.iter().find(|(name, ..)| *name == word);
        if let Some(&(_, source, quantity)) = own {
            let word = OWN.iter().find(|entry| entry.1 == source)?.0;
            return Some(Field { word, source, quantity });
        }

        let name = ALIASES.iter().find(|(alias, _)| *alias == word).map_or(word, |(_, name)| name);
        let fields = tcp_info::FIELDS;
        let found = fields.iter().find(|field| field.name == name);
        found
            .or_else(|| fields.iter().find(|field| short(field.name) == name))
            .map(Field::of_tcp_info)
    }

    fn of_tcp_info(field: &'static tcp_info::Field) -> Field {
        let first = tcp_info::FIELDS.iter().find(|other| short(other.name) == short(field.name));
        let alias = |(alias, _): &&(&str, &str)| *alias == short(field.name);
        let word = match ALIASES.iter().find(alias) {
            // The short word is taken by another field.
            Some((_, name)) if *name != field.name => alias_of(field.name),
            // When fields differ only in their unit, the first one has the short word.
            _ if first == Some(field) => short(field.name),
            _ => field.name,
        };
        Field { word, source: Source::TcpInfo(field), quantity: quantity_of(field.unit) }
    }

    /// The word printed for the field.
    #[must_use]
    pub const fn word(self) -> &'static str {
        self.word
    }

    pub(super) const fn source(self) -> Source {
        self.source
    }

    pub(super) const fn quantity(self) -> Quantity {
        self.quantity
    }
}

/// All words for numbers; every field appears at least once.
pub fn words() -> impl Iterator<Item = &'static str> {
    let own = OWN.iter().map(|(word, ..)| *word);
    let aliases = ALIASES.iter().map(|(alias, _)| *alias);
    // The language has a separate word for the state.
    let fields = tcp_info::FIELDS.iter().filter(|field| field.name != "state");
    own.chain(aliases).chain(fields.map(|field| Field::of_tcp_info(field).word))
}

/// The shorter word of a field.
fn alias_of(name: &'static str) -> &'static str {
    ALIASES.iter().find(|(_, of)| *of == name).map_or(name, |(alias, _)| alias)
}

fn short(name: &'static str) -> &'static str {
    UNIT_ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

fn quantity_of(unit: Unit) -> Quantity {
    match unit {
        Unit::None | Unit::Segments => Quantity::Count,
        Unit::Microseconds | Unit::Milliseconds => Quantity::Duration,
        Unit::Bytes => Quantity::Bytes,
        Unit::BytesPerSecond => Quantity::Rate,
    }
}
