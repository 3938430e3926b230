//! The sections of the socket collector.

use super::super::section::{Report, Section, tables};
use super::super::sockets::{FORMATS, Namespaces, SinkConfig, SocketsConfig, format_of};
use super::super::{SinkAddress, document::Table, errors::nearest, filter, keys, rules};
use super::{as_usize, name, name_of, non_zero, single};
use record::FieldSet;
use sockets::Undecided;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;
use wire::inet_diag::{State, States};

/// A collector and where in the document its sinks stand.
pub(in super::super) struct PlacedSockets {
    pub(in super::super) sink_places: Vec<String>,
    pub(in super::super) config: SocketsConfig,
}

/// `None` without the section, and when it has a mistake, which is reported.
pub(super) fn sockets(report: &Report, document: &Table) -> Option<PlacedSockets> {
    let table = single(report, document, "sockets", &keys::SOCKETS)?;
    let section = Section::open(report, table, &keys::SOCKETS, "sockets".to_owned(), &["sink"]);
    let headers = tables(report, table, "sink", "sockets.sink", "[[sockets.sink]]");
    if table.get("sink").is_none() {
        let message = "there is no sink; add [[sockets.sink]] with to = \"file:sockets.jsonl\"";
        report.error(table.line, "sockets.sink", message);
    }
    let places = (0..headers.len()).map(|at| format!("sockets.sink[{at}]"));
    let sinks = headers.into_iter().zip(places);
    let (sink_places, sinks) = sinks
        .filter_map(|(table, place)| Some((place.clone(), sink(report, table, place)?)))
        .unzip();
    let config = SocketsConfig { sinks, ..collector(&section)? };
    rules::collector(&section, &config);
    Some(PlacedSockets { sink_places, config })
}

/// The section without its sinks.
fn collector(section: &Section<'_>) -> Option<SocketsConfig> {
    let interval = section.duration("interval");
    let jitter = section.duration("jitter");
    let namespaces = namespaces(section);
    let namespaces_max = section.integer("namespaces_max");
    let states = section.list("states", state);
    if section.is_empty("states") {
        section.error(
            "states",
            "it names no state; write states = [\"connected\"], or remove the key",
        );
    }
    let filter = filter(section);
    let closes = section.bool("closes");
    let closes_undecided = section.choice("closes_undecided", &[Undecided::Drop, Undecided::Keep]);
    let skip_unchanged = section.bool("skip_unchanged");
    let polls = |name| section.integer(name).and_then(non_zero);
    let (keyframe_every, listen_every) = (polls("keyframe_every"), polls("listen_every"));
    let sample = polls("sample");
    let fields = fields(section);
    let table_entries_max = section.integer("table_entries_max");
    let event_buffer = section.size("event_buffer");
    let processes = section.bool("processes");
    let host = section.text("host", host_name);
    let host_id = section.text("host_id", host_id);
    let tags = section.tags("tags", tag);
    if tags.len() > TAGS_MAX {
        section.error("tags", format!("there are {}, and {TAGS_MAX} is the most", tags.len()));
    }
    let helper = section.text("helper", socket_path);
    let interval = interval?;
    Some(SocketsConfig {
        interval,
        jitter: jitter.unwrap_or_else(|| (interval / 10).min(Duration::from_secs(1))),
        namespaces,
        namespaces_max: as_usize(namespaces_max),
        states,
        filter,
        closes: closes.unwrap_or_default(),
        closes_undecided: closes_undecided.unwrap_or_default(),
        skip_unchanged: skip_unchanged.unwrap_or_default(),
        keyframe_every: keyframe_every.unwrap_or(NonZeroU32::MIN),
        sample: sample.unwrap_or(NonZeroU32::MIN),
        listen_every: listen_every.unwrap_or(NonZeroU32::MIN),
        fields,
        table_entries_max: as_usize(table_entries_max),
        event_buffer_bytes: as_usize(event_buffer),
        processes: processes.unwrap_or_default(),
        host,
        host_id,
        tags,
        helper,
        sinks: Vec::new(),
    })
}

fn sink(report: &Report, table: &Table, place: String) -> Option<SinkConfig> {
    let section = Section::open(report, table, &keys::SINK, place, &[]);
    let to: Option<SinkAddress> = section.text("to", str::parse);
    let name = section.text("name", name);
    let format = section.choice("format", &FORMATS);
    let fields = fields(&section);
    let queue = section.size("queue_size");
    let rotate_bytes = section.size("rotate_size");
    let rotate_interval = section.duration("rotate_interval");
    let rotate_keep = section.integer("rotate_keep").and_then(|keep| u32::try_from(keep).ok());
    let to = to?;
    let sink = SinkConfig {
        name: name.unwrap_or_else(|| name_of(&to)),
        format: format.unwrap_or_else(|| format_of(&to)),
        to,
        fields,
        queue_bytes: as_usize(queue),
        rotate_bytes,
        rotate_interval,
        rotate_keep: rotate_keep.unwrap_or_default(),
    };
    rules::sink(&section, &sink);
    Some(sink)
}

/// Longest name of a namespace, in bytes: a file name (NAME_MAX).
const NAMESPACE_NAME_BYTES_MAX: usize = 255;

fn namespaces(section: &Section<'_>) -> Namespaces {
    if !section.is_list("namespaces") {
        let word = section.text("namespaces", |text| match text {
            "own" => Ok(Namespaces::Own),
            "all" => Ok(Namespaces::All),
            _ => Err("it is neither own nor all; names of namespaces are a list: [\"blue\"]"),
        });
        return word.unwrap_or(Namespaces::All);
    }
    let names = section.list("namespaces", |text| {
        let is_name = (1..=NAMESPACE_NAME_BYTES_MAX).contains(&text.len())
            && !text.contains('/')
            && !text.chars().any(char::is_control);
        if is_name {
            Ok(text.to_owned())
        } else {
            Err(format!("\"{}\" is not the name of a namespace", text.escape_debug()))
        }
    });
    if section.is_empty("namespaces") {
        section.error("namespaces", "the list is empty; write \"own\", \"all\", or a name");
    }
    Namespaces::Named(names)
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
        Some(near) => format!("\"{shown}\" is not a state; did you mean {near}?"),
        None => {
            let words: Vec<_> = words().collect();
            format!("\"{shown}\" is not a state; the words are {}", words.join(", "))
        }
    })
}

fn filter(section: &Section<'_>) -> Option<String> {
    let text = section.text("filter", |text| Ok::<_, String>(text.to_owned()))?;
    if let Err(error) = filter::check(&text) {
        section.error("filter", error.to_string());
    }
    Some(text)
}

/// Groups and fields; with `-` in front what is taken away.
fn fields(section: &Section<'_>) -> Vec<String> {
    let fields = section.list("fields", |text| {
        let known = FieldSet::named(text.strip_prefix('-').unwrap_or(text));
        known.map(|_| text.to_owned()).map_err(|error| {
            let shown = text.escape_debug();
            format!("\"{shown}\" is neither a group nor a field; did you mean {}?", error.nearest)
        })
    });
    let is_nothing = FieldSet::from_names(fields.iter().map(String::as_str)) == Ok(FieldSet::NONE);
    if section.is_empty("fields") || is_nothing {
        section.error("fields", "no field is left; name a group or field, or remove the key");
    }
    fields
}

/// Longest path of a unix socket in bytes (unix(7): `sun_path` with its end).
const UNIX_PATH_BYTES_MAX: usize = 107;

/// The path of a unix socket.
pub(super) fn socket_path(text: &str) -> Result<PathBuf, String> {
    match text.len() {
        0 => Err("it has no path; write for example /run/weir/helper.sock".to_owned()),
        _ if text.chars().any(char::is_control) => {
            Err("a path has no control characters here".to_owned())
        }
        1..=UNIX_PATH_BYTES_MAX => Ok(PathBuf::from(text)),
        len => Err(format!(
            "the path of a unix socket has at most {UNIX_PATH_BYTES_MAX} bytes and this one has {len}"
        )),
    }
}

/// Longest name of a host, in bytes (RFC 1035 section 3.1, as text).
const HOST_NAME_BYTES_MAX: usize = 253;
const HOST_ID_CHARS_MAX: usize = 64;

fn host_name(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("a host's name is not empty; remove the key for the kernel's".to_owned()),
        _ if text.chars().any(char::is_control) => {
            Err("a host's name has no control characters".to_owned())
        }
        1..=HOST_NAME_BYTES_MAX => Ok(text.to_owned()),
        len => Err(format!(
            "a host's name has at most {HOST_NAME_BYTES_MAX} bytes and this one has {len}"
        )),
    }
}

fn host_id(text: &str) -> Result<String, String> {
    let is_id = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if (1..=HOST_ID_CHARS_MAX).contains(&text.len()) && text.chars().all(is_id) {
        return Ok(text.to_owned());
    }
    Err(format!("a host's id is 1 to {HOST_ID_CHARS_MAX} letters, digits, _, -, . and /"))
}

const TAGS_MAX: usize = 16;
const TAG_NAME_CHARS_MAX: usize = 64;
const TAG_VALUE_CHARS_MAX: usize = 256;

fn tag(name: &str, value: &str) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let shown = name.escape_debug();
    if name.is_empty() || name.len() > TAG_NAME_CHARS_MAX || !name.chars().all(is_name) {
        return Err(format!(
            "\"{shown}\" is not a tag's name; it is 1 to {TAG_NAME_CHARS_MAX} letters, digits, _, -, . and /"
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("{shown}: a tag's value has no control characters"));
    }
    match value.chars().count() {
        0..=TAG_VALUE_CHARS_MAX => Ok(()),
        count => Err(format!(
            "{shown}: a tag's value has at most {TAG_VALUE_CHARS_MAX} characters and this one has {count}"
        )),
    }
}
