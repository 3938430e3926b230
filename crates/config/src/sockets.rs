//! `[sockets]`: the socket collector.

mod filter;

use crate::address::socket_path;
use crate::document::{Table, Value};
use crate::errors::nearest;
use crate::form::{
    Bool, Choice, Form, List, Slot, Span, Text, pairs, path, show_list, size, text, whole,
};
use crate::host::{Finding, Severity};
use crate::keys::{Key, Section, keys};
use crate::reader::{Reader, Report, single};
use crate::sink::SinkConfig;
use ::sockets::Undecided;
use ::sockets::filter::Filter;
use ::sockets::helper::EVENT_BUFFER_BYTES_MAX;
use record::FieldSet;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;
use text::units::{display_duration, display_size};
use wire::inet_diag::{State, States};

/// The collector's name in the ledger, in the place of a listener's name.
pub const COLLECTOR_NAME: &str = "sockets";

pub(crate) const SECTION: Section = Section {
    path: "sockets",
    header: "[sockets]",
    tables: &[SocketsConfig::TABLE],
    subsections: &[OLD_SINK],
};

/// Recognized only to report it: sinks are sections of their own, [`crate::sink::SECTION`].
const OLD_SINK: &str = "sink";

const POLLS: crate::form::Whole<NonZeroU32> = whole(1, 100_000);

keys! {
    /// The socket collector.
    pub struct SocketsConfig in "sockets" {
        /// Time from the start of one poll to the start of the next. A poll that takes longer is followed by
        /// the next at once; one that has taken ten times as long ends, and the next begins with the
        /// namespaces that it did not come to.
        interval => interval: Duration =
            Span(Duration::from_millis(100), Duration::from_secs(3_600)), default(Duration::from_secs(10));
        /// Each poll begins up to this much later, by chance, so that a fleet does not poll in step. At most
        /// `interval`.
        jitter => jitter: Duration = Span(Duration::ZERO, Duration::from_secs(3_600)), derived(
            "a tenth of `interval`, at most `1s`",
            (interval / 10).min(Duration::from_secs(1))
        );
        /// Network namespaces to collect from: this process's, all that can be found, or those of the list
        /// (as `ip netns` names them). Others than the own need `CAP_SYS_ADMIN`; without it the daemon says
        /// so once and collects what it can. A namespace that is not there yet is taken up when it appears.
        namespaces => namespaces: Namespaces = NamespacesForm, default(Namespaces::All);
        /// Network namespaces that are collected at a time. Anybody may make namespaces, each costs a poll up to
        /// 0.3 ms, and with 1,000 of them each close event costs the kernel some 30 µs more. Those that come
        /// later are left out, counted, and the daemon says so once.
        namespaces_max => namespaces_max: usize = whole(1, 65_536), default(4_096);
        /// States of the sockets that are polled: `established`, `time-wait` and so on, `listening`, or
        /// `connected`, `synchronized`, `bucket`, `big`, `all`. Connections that were in none of them have no
        /// closing record.
        states => states: Vec<String> =
            List { of: "words for states and groups of states, as `weir sockets` has them", parse: state },
            default(vec!["connected".to_owned()]);
        /// Sockets that records are made of; the others are counted as filtered. What the kernel can decide
        /// never leaves it. A connection that a poll let through has its closing record, one that polls
        /// rejected has none; see `closes_undecided` for those that no poll saw.
        filter => filter: Option<String> = FILTER, unset("every socket");
        /// Whether the kernel's close events are heard, for one closing record of each connection, those that
        /// no poll saw included. Those of other namespaces need `CAP_NET_BROADCAST`, and `CAP_NET_ADMIN`
        /// where a namespace has no id yet.
        closes => closes: bool = Bool, default(true);
        /// What becomes of the close of a connection that no poll saw, where its close event does not say what
        /// `filter` asks for: owner, cgroup, mark, congestion control and age never, peer and counters not
        /// after an abort. `drop`: no record, and counted as undecided; `keep`: a record.
        closes_undecided => closes_undecided: Undecided =
            Choice(&[("drop", Undecided::Drop), ("keep", Undecided::Keep)]), default(Undecided::Drop);
        /// Whether a socket about which nothing but the time has changed since its last record is left out,
        /// and counted as unchanged.
        skip_unchanged => skip_unchanged: bool = Bool, default(true);
        /// One poll in N has unchanged sockets too, so that a reader who begins late sees every socket.
        keyframe_every => keyframe_every: NonZeroU32 = POLLS, default(polls(30));
        /// One connection in N, chosen by a hash of its cookie: with all its records, closing record
        /// included. The others are counted as sampled.
        sample => sample: NonZeroU32 = whole(1, 1_000_000), default(NonZeroU32::MIN);
        /// One poll in N asks for listening sockets too, if `states` has them: they change rarely, and
        /// the kernel reads a table of their own for them.
        listen_every => listen_every: NonZeroU32 = POLLS, default(polls(6));
        /// What records have, by groups (`tcp_info`, `endpoints` …) or single fields (`rtt_us`), as
        /// [records.md](records.md) lists them; `["all"]` is every field, `-raw` takes a group away. Not set: all but
        /// `type_of_service`, `traffic_class`, `class_id` and what congestion controls say of themselves (`vegas_*`,
        /// `dctcp_*`, `bbr_*`), which are rarely read and cost the kernel time for every socket. A sink may have less;
        /// what no sink has is not asked of the kernel.
        fields => fields: Vec<String> = FIELDS, empty("all but a few");
        /// Connections that are remembered between polls, for unchanged sockets and closing records. Beyond
        /// it those whose sockets are gone make room, and else new ones are not remembered: they are counted,
        /// and the daemon says once which value is needed.
        table_entries_max => table_entries_max: usize = whole(1_024, 4 << 20), default(131_072);
        /// Receive buffer for close events to ask the kernel for. A burst of closes that overruns it is
        /// counted as `event_buffer`. Without `CAP_NET_ADMIN` the kernel grants at most twice
        /// `net.core.rmem_max`, and a helper at most `64MiB`.
        event_buffer => event_buffer_bytes: usize = size(64 << 10, 1 << 30), default(8 << 20);
        /// Whether records name a process that holds the socket (`process_id`, `process_name`); those of closes the one
        /// that the last poll found. Each poll then looks at every descriptor of every process; those of other users need
        /// `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH`.
        processes => processes: bool = Bool, default(false);
        /// Whether connections to this daemon's own admin addresses are collected, shown and kept too. Otherwise they are counted
        /// as filtered: while somebody watches, they would be most of what a quiet host has.
        admin_connections => admin_connections: bool = Bool, default(false);
        /// Name of this host on every record. In a container the kernel's is the container's.
        host => host: Option<String> = text("1 to 253 characters", host_name), unset("the kernel's host name");
        /// What tells this host from all others, whatever its name, on every record. The machine id itself never
        /// leaves the host.
        host_id => host_id: Option<String> =
            text("1 to 64 letters, digits, `_`, `-`, `.` and `/`", host_id),
            unset("a hash of `/etc/machine-id`, if there is one");
        /// Names and values that stand in every record: `tags = { site = "fra1" }`. At most 16, names of
        /// up to 64 letters, digits, `_`, `-`, `.` and `/`, values of up to 256 characters.
        tags => tags: BTreeMap<String, String> = pairs(tag), empty("none");
        /// The privileged helper (`weir namespace-helper`) that opens sockets in namespaces and hands them over, so that
        /// this process needs no capability.
        helper => helper: Option<PathBuf> = path("path of the helper's socket", socket_path),
            unset("this process does it itself");
    }
}

/// A number of polls that is not 0.
const fn polls(count: u32) -> NonZeroU32 {
    match NonZeroU32::new(count) {
        Some(count) => count,
        None => NonZeroU32::MIN,
    }
}

/// Network namespaces to collect from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// The one of this process.
    Own,
    /// All that can be found.
    All,
    /// Those with these names; at least one.
    Named(Vec<String>),
}

struct NamespacesForm;

impl Form for NamespacesForm {
    type Value = Namespaces;

    fn describe(&self) -> String {
        "`own`, `all`, or list of names of namespaces".to_owned()
    }

    fn read(&self, slot: &Slot<'_>) -> Option<Namespaces> {
        if !matches!(slot.value, Value::List(_)) {
            return slot.parse(|text| match text {
                "own" => Ok(Namespaces::Own),
                "all" => Ok(Namespaces::All),
                _ => Err("it is neither own nor all. Fix: write names of namespaces as a list, such as [\"blue\"]"),
            });
        }
        if slot.reader.is_empty_list(slot.key) {
            slot.error("the list is empty. Fix: write \"own\", \"all\", or a name");
        }
        slot.list(namespace).map(Namespaces::Named)
    }

    fn show(&self, value: &Namespaces) -> Json {
        match value {
            Namespaces::Own => "own".into(),
            Namespaces::All => "all".into(),
            Namespaces::Named(names) => show_list(names),
        }
    }
}

/// Longest name of a namespace, in bytes: a file name (NAME_MAX).
const NAMESPACE_NAME_BYTES_MAX: usize = 255;

fn namespace(text: &str) -> Result<String, String> {
    let is_name = (1..=NAMESPACE_NAME_BYTES_MAX).contains(&text.len())
        && !text.contains('/')
        && !text.chars().any(char::is_control);
    let wrong = || {
        format!(
            "\"{}\" is not the name of a namespace. Fix: write one that `ip netns` lists",
            text.escape_debug()
        )
    };
    is_name.then(|| text.to_owned()).ok_or_else(wrong)
}

fn state(word: &str) -> Result<String, String> {
    if States::from_word(word).is_some() {
        return Ok(word.to_owned());
    }

    let shown = word.escape_debug();
    let words = || {
        let groups = States::GROUPS.iter().map(|(name, _)| *name);
        let states = State::KNOWN.iter().map(|state| state.word());
        states.chain(groups).filter(|word| States::from_word(word).is_some())
    };

    Err(match nearest(word, words()) {
        Some(near) => format!("\"{shown}\" is not a state. Fix: did you mean {near}?"),
        None => {
            let words: Vec<_> = words().collect();
            format!("\"{shown}\" is not a state. Fix: write one of {}", words.join(", "))
        }
    })
}

/// Whether the filter parses is reported elsewhere, without the quoted text, because that message includes the position.
const FILTER: Text<String> =
    text("filter of `weir sockets`, such as `dport = :443 or src 10.0.0.0/8`", |text| {
        Ok(text.to_owned())
    });

/// Groups and fields of records; a leading `-` removes them.
pub(crate) const FIELDS: List<String> = List { of: "groups and fields", parse: field };

fn field(text: &str) -> Result<String, String> {
    let known = FieldSet::named(text.strip_prefix('-').unwrap_or(text));
    known.map(|_| text.to_owned()).map_err(|error| {
        let shown = text.escape_debug();
        format!("\"{shown}\" is neither a group nor a field. Fix: did you mean {}?", error.nearest)
    })
}

/// Reports a list of names that leaves no field.
pub(crate) fn refuse_no_field(reader: &Reader<'_>, key: &Key, names: &[String]) {
    let is_nothing = FieldSet::from_names(names.iter().map(String::as_str)) == Ok(FieldSet::NONE);
    if reader.is_empty_list(key) || reader.has(key) && is_nothing {
        reader.error(key, "no field is left. Fix: name a group or field, or remove the key");
    }
}

/// Longest name of a host, in bytes (RFC 1035 section 3.1, as text).
const HOST_NAME_BYTES_MAX: usize = 253;
const HOST_ID_CHARS_MAX: usize = 64;

fn host_name(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("a host's name is not empty. Fix: remove the key for the kernel's".to_owned()),
        _ if text.chars().any(char::is_control) => {
            Err("it has control characters. Fix: write the name without them".to_owned())
        }
        1..=HOST_NAME_BYTES_MAX => Ok(text.to_owned()),
        len => Err(format!("it has {len} bytes. Fix: write at most {HOST_NAME_BYTES_MAX}")),
    }
}

fn host_id(text: &str) -> Result<String, String> {
    let is_id = (1..=HOST_ID_CHARS_MAX).contains(&text.len()) && text.chars().all(is_id_char);
    let wrong =
        || format!("a host's id is 1 to {HOST_ID_CHARS_MAX} letters, digits, _, -, . and /");
    is_id.then(|| text.to_owned()).ok_or_else(wrong)
}

fn is_id_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./".contains(c)
}

const TAGS_MAX: usize = 16;
const TAG_NAME_CHARS_MAX: usize = 64;
const TAG_VALUE_CHARS_MAX: usize = 256;

fn tag(name: &str, value: &str) -> Result<String, String> {
    let shown = name.escape_debug();
    if name.is_empty() || name.len() > TAG_NAME_CHARS_MAX || !name.chars().all(is_id_char) {
        return Err(format!(
            "\"{shown}\" is not a tag's name. Fix: write 1 to {TAG_NAME_CHARS_MAX} letters, digits, _, -, . and /"
        ));
    }

    if value.chars().any(char::is_control) {
        return Err(format!(
            "{shown}: its value has control characters. Fix: write it without them"
        ));
    }

    match value.chars().count() {
        0..=TAG_VALUE_CHARS_MAX => Ok(value.to_owned()),
        count => Err(format!(
            "{shown}: its value has {count} characters. Fix: write at most {TAG_VALUE_CHARS_MAX}"
        )),
    }
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

    /// Checks that the names in its filter are known on this host.
    pub(crate) fn examine(&self) -> Option<Finding> {
        let error = Filter::parse(self.filter.as_deref()?).err()?;
        let finding =
            Finding::new(Severity::Error, "sockets", format!("filter: {}", error.message));
        let why = "the collector looks the names of its filter up when it starts";
        Some(finding.because(why).fixed_by("correct filter in [sockets]"))
    }

    /// Checks the keys against each other.
    fn check(&self, reader: &Reader<'_>) {
        if self.jitter > self.interval {
            let (jitter, interval) =
                (display_duration(self.jitter), display_duration(self.interval));
            let message = format!(
                "{jitter} is longer than the interval of {interval}, so that polls would overtake each other. Fix: write \
                 {interval} at most"
            );
            reader.error(&Self::jitter, message);
        }

        if self.states.is_empty() && reader.is_empty_list(&Self::states) {
            let message =
                "it names no state. Fix: write states = [\"connected\"], or remove the key";
            reader.error(&Self::states, message);
        }

        if let Some(filter) = &self.filter
            && let Err(error) = filter::check(filter)
        {
            reader.error(&Self::filter, error.to_string());
        }
        refuse_no_field(reader, &Self::fields, &self.fields);

        if self.tags.len() > TAGS_MAX {
            let message = format!("there are {}. Fix: keep {TAGS_MAX} at most", self.tags.len());
            reader.error(&Self::tags, message);
        }

        if self.helper.is_some() && self.event_buffer_bytes > EVENT_BUFFER_BYTES_MAX as usize {
            let most = display_size(EVENT_BUFFER_BYTES_MAX.into());
            let message = format!(
                "a helper grants {most} at most. Fix: write \"{most}\", or leave helper out"
            );
            reader.error(&Self::event_buffer, message);
        }
    }
}

/// The named fields. If the first name removes one, the list starts from the default.
fn set_or_default(names: &[String]) -> FieldSet {
    let is_choice = names.first().is_some_and(|name| !name.starts_with('-'));
    let default = if is_choice { &[][..] } else { &::sockets::DEFAULT_FIELDS };
    let names = default.iter().copied().chain(names.iter().map(String::as_str));
    FieldSet::from_names(names).unwrap_or(FieldSet::ALL)
}

/// The names were checked when they were read.
fn set_of(names: &[String]) -> FieldSet {
    FieldSet::from_names(names.iter().map(String::as_str)).unwrap_or(FieldSet::ALL)
}

/// Reads the section. `None` if it is missing, or wrong, which is reported.
pub(crate) fn read(report: &Report, document: &Table) -> Option<SocketsConfig> {
    let table = single(report, document, SECTION.path, (SECTION.path, SECTION.header))?;
    let reader = Reader::open(report, table, &SECTION, SECTION.path);
    let config = SocketsConfig::read(&reader)?;
    config.check(&reader);

    if let Some(entry) = table.get(OLD_SINK) {
        let message =
            "a sink has a section of its own. Fix: write [[sink]] with from = [\"sockets\"]";
        let items = match &entry.item.value {
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(&entry.item),
        };
        for item in items {
            report.error(item.line, "sockets.sink", message);
            if let Value::Table(table) = &item.value {
                crate::sink::check_old(report, table);
            }
        }
    } else if !document.has_section(crate::sink::SECTION.path) {
        let message = "there is no sink. Fix: add [[sink]] with from = [\"sockets\"] and to = \"file:sockets.jsonl\"";
        report.error(table.line, crate::sink::SECTION.path, message);
    }
    Some(config)
}
