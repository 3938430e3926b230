//! `[[sink]]`: where records leave.

mod file;
mod udp;

pub use file::FileSink;
pub use udp::UdpSink;

use crate::address::{AddressError, HostPort, NAME, name_of, path, receiver, split_scheme};
use crate::document::{Entry, Table};
use crate::form::{Choice, Kind, List, OrOff, Span, size, whole};
use crate::host::{self, Finding};
use crate::keys::{Key, Section, Values, keys};
use crate::reader::{Placed, Reader, Report, repeated};
use crate::sockets::{COLLECTOR_NAME, FIELDS, refuse_no_field};
use ::sink::{BatchLimits, Connector, DeliveryOptions, QueueOptions, WhenFull};
use record::{Encoding, FieldSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const SECTION: Section = Section {
    path: "sink",
    header: "[[sink]]",
    tables: &[SinkConfig::TABLE, Written::TABLE, FileSink::TABLE],
    subsections: &[],
};

keys! {
    /// Where records leave.
    pub struct SinkConfig in "sink" {
        /// Name in the ledger and in metrics. No two sinks share one.
        name => name: String = NAME, derived("the text of `to`", name_of(&to));
        /// Whose records it takes: `sockets`, those of the socket collector.
        from => from: Vec<Source> = List { of: "sources of records", parse: source },
            required("write from = [\"sockets\"]");
        /// Where the records go. `udp:` packs them into datagrams no larger than the path takes without fragments,
        /// numbered, so that `weir sockets --receive` can say what is missing. `null:` counts and forgets.
        to => to: Sink = TO, chosen();
        /// What this sink's records have, of what `[sockets]` has; where that names none, of all fields.
        fields => fields: Vec<String> = FIELDS, empty("those of `[sockets]`");
        /// Memory for records that the destination has still to take, used when needed: a poll of 100,000 sockets
        /// comes faster than a disk takes it. Beyond it the oldest are dropped, and counted as `queue_full`.
        queue_size => queue_bytes: usize = size(256 << 10, 64 << 30), default(32 << 20);
        /// What a full queue drops: what waits longest, or what comes.
        when_full => when_full: WhenFull = WHEN_FULL, default(WhenFull::DropOldest);
        /// A batch is complete with so many rows.
        batch_rows => batch_rows: Option<usize> = whole(1, 10_000_000), unset("what the kind of sink has");
        /// A batch is complete with so many bytes.
        batch_size => batch_bytes: Option<usize> = size(1 << 10, 1 << 30), unset("what the kind of sink has");
        /// A batch is complete when its first row has waited so long.
        batch_age => batch_age: Option<Duration> =
            Span(Duration::ZERO, Duration::from_secs(86_400)), unset("what the kind of sink has");
        /// Batches that are sent and not answered yet, at most.
        in_flight => in_flight: Option<usize> = whole(1, 1_000), unset("what the kind of sink has");
        /// The longest pause before a batch is tried again. Each pause is random, up to a bound that doubles from 100 ms to this.
        retry_max => retry_max: Duration =
            Span(Duration::from_millis(100), Duration::from_secs(3_600)), default(Duration::from_secs(10));
        /// A destination that answers nothing for so long is given up and connected anew; what it had is tried again.
        answer_max => answer_max: Duration =
            Span(Duration::from_secs(1), Duration::from_secs(3_600)), default(Duration::from_secs(60));
        /// Rows that are older than this are dropped, and counted as `expired`, instead of tried again.
        expire_after => expire_after: Option<Duration> =
            OrOff(Span(Duration::from_secs(1), Duration::from_secs(366 * 86_400))), default(None);
    }
}

const WHEN_FULL: Choice<WhenFull> =
    Choice(&[("drop_oldest", WhenFull::DropOldest), ("drop_newest", WhenFull::DropNewest)]);

keys! {
    /// How records are written one after another.
    pub struct Written in "sink" of "sinks other than UDP" with (usual: Encoding) {
        /// How records are written. Not for UDP, whose datagrams have a form of their own.
        format => format: Encoding = FORMATS,
            derived("what the file's extension says, else `jsonl`", usual);
    }
}

/// What makes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The socket collector.
    Sockets,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Sockets => f.write_str(COLLECTOR_NAME),
        }
    }
}

fn source(text: &str) -> Result<Source, String> {
    if text == COLLECTOR_NAME {
        return Ok(Source::Sockets);
    }
    let shown = text.escape_debug();
    Err(format!(
        "\"{shown}\" makes no records; write from = [\"{COLLECTOR_NAME}\"], the only source there is"
    ))
}

/// Where a sink's records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    File(FileSink),
    /// Datagrams to a UDP address.
    Udp(UdpSink),
    /// Standard output.
    Stdout(Written),
    /// Nowhere.
    Null(Written),
}

const TO: Kind<Sink> = Kind {
    form: "`file:/path`, `udp://HOST:PORT`, `HOST:PORT`, `stdout:` or `null:`",
    read: |slot| slot.parse(|text| read_to(text, slot.reader))?,
};

/// Plain `HOST:PORT` is UDP.
fn read_to(text: &str, reader: &Reader<'_>) -> Result<Option<Sink>, AddressError> {
    let written = || Written::read(reader, Encoding::Jsonl);
    Ok(match split_scheme(text) {
        Some(("file", rest)) => {
            FileSink::at(path(rest, "file:/var/log/sockets.jsonl")?, reader).map(Sink::File)
        }
        Some(("udp", rest)) => Some(Sink::Udp(UdpSink { addr: receiver(rest)? })),
        Some(("stdout", "" | "//")) => written().map(Sink::Stdout),
        Some(("null", "" | "//")) => written().map(Sink::Null),
        Some((kind, _)) => {
            let kinds = "file:/path, udp://HOST:PORT, stdout: or null:";
            return Err(AddressError::SinkKind { kind: kind.to_owned(), kinds });
        }
        None => Some(Sink::Udp(UdpSink { addr: receiver(text)? })),
    })
}

impl Sink {
    fn values(&self) -> Values {
        match self {
            Sink::File(file) => file.written.values().into_iter().chain(file.values()).collect(),
            Sink::Stdout(written) | Sink::Null(written) => written.values(),
            Sink::Udp(_) => Vec::new(),
        }
    }

    /// Where it sends datagrams to, if it does.
    pub fn receiver(&self) -> Option<&HostPort> {
        match self {
            Sink::Udp(udp) => Some(&udp.addr),
            _ => None,
        }
    }

    /// Opens it. `remote` is the address of its [`receiver`](Self::receiver), if one is known; `None`: one is needed.
    ///
    /// # Errors
    /// There is no standard output.
    pub fn open(
        &self,
        remote: Option<SocketAddr>,
        fields: FieldSet,
    ) -> io::Result<Option<Connector>> {
        Ok(match self {
            Sink::File(file) => Some(file.open(fields)),
            Sink::Udp(_) => remote.map(|remote| UdpSink::open(remote, fields)),
            Sink::Stdout(written) => Some(::sink::stdout(written.format, fields)?),
            Sink::Null(written) => Some(::sink::null(written.format, fields)),
        })
    }

    /// When a batch is complete, and how many are in flight, where the file does not say.
    fn usual(&self) -> (BatchLimits, usize) {
        match self {
            Sink::File(_) | Sink::Udp(_) | Sink::Stdout(_) | Sink::Null(_) => {
                (BatchLimits::default(), 1)
            }
        }
    }

    /// How its records are written.
    pub fn encoding(&self) -> Encoding {
        match self {
            Sink::File(FileSink { written, .. }) | Sink::Stdout(written) | Sink::Null(written) => {
                written.format
            }
            Sink::Udp(_) => Encoding::Protobuf,
        }
    }
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sink::File(file) => write!(f, "file:{}", file.path.display()),
            Sink::Udp(udp) => write!(f, "udp://{}", udp.addr),
            Sink::Stdout(_) => f.write_str("stdout:"),
            Sink::Null(_) => f.write_str("null:"),
        }
    }
}

impl SinkConfig {
    /// What waits in memory.
    pub fn queue(&self) -> QueueOptions {
        QueueOptions { bytes_max: self.queue_bytes, when_full: self.when_full }
    }

    /// When a batch is complete.
    pub fn batch(&self) -> BatchLimits {
        let (usual, _) = self.to.usual();
        BatchLimits {
            rows: self.batch_rows.unwrap_or(usual.rows),
            bytes: self.batch_bytes.unwrap_or(usual.bytes),
            age: self.batch_age.unwrap_or(usual.age),
        }
    }

    /// How batches are delivered.
    pub fn delivery(&self) -> DeliveryOptions {
        let (_, in_flight) = self.to.usual();
        DeliveryOptions {
            in_flight_max: self.in_flight.unwrap_or(in_flight),
            retry_max: self.retry_max,
            answer_max: self.answer_max,
            expire_after: self.expire_after,
        }
    }

    /// Looks at what it needs of this host.
    pub(crate) fn examine(&self, findings: &mut Vec<Finding>) {
        let what = format!("sink {}", self.name);
        match &self.to {
            Sink::Udp(udp) => findings.push(host::udp_receiver(&what, &udp.addr, &[])),
            Sink::File(file) => findings.push(host::file(&what, &file.path)),
            Sink::Stdout(_) | Sink::Null(_) => {}
        }
    }
}

/// How sinks write records. An array of JSON needs an end, and what a daemon writes has none.
pub(crate) const FORMATS: Choice<Encoding> = Choice(&[
    ("jsonl", Encoding::Jsonl),
    ("protobuf", Encoding::Protobuf),
    ("prototext", Encoding::Prototext),
    ("protojson", Encoding::Protojson),
    ("msgpack", Encoding::MessagePack),
    ("csv", Encoding::Csv),
    ("tsv", Encoding::Tsv),
]);

/// Reads all sinks.
pub(crate) fn read_all(report: &Report, document: &Table) -> Vec<Placed<SinkConfig>> {
    let tables = repeated(report, document, "sink", &SECTION).into_iter().enumerate();
    tables.filter_map(|(at, table)| read(report, table, format!("sink[{at}]"))).collect()
}

fn read(report: &Report, table: &Table, place: String) -> Option<Placed<SinkConfig>> {
    let reader = Reader::open(report, table, &SECTION, &place);
    let sink = SinkConfig::read(&reader)?;

    reader.refuse_others(&sink.to, |key| {
        (key == Written::format.name).then_some("datagrams have a form of their own")
    });
    if reader.is_empty_list(&SinkConfig::from) {
        reader.error(&SinkConfig::from, "it names no source; write from = [\"sockets\"]");
    }
    refuse_no_field(&reader, &SinkConfig::fields, &sink.fields);
    Some(Placed { place, thing: sink })
}

/// Rules between sinks and what they take records from.
/// `sockets` is the section of the collector, right or wrong.
pub(crate) fn check(report: &Report, sinks: &[Placed<SinkConfig>], sockets: Option<&Entry>) {
    const NAMES: (&Key, &Key) = (&SinkConfig::name, &SinkConfig::to);

    for (at, sink) in sinks.iter().enumerate() {
        let SinkConfig { name, from, to, .. } = &sink.thing;
        let earlier = || sinks[..at].iter().map(|earlier| &earlier.thing);
        if earlier().any(|other| other.name == *name) {
            let message = format!("\"{name}\" is the name of another sink too; give each its own");
            sink.name_error(report, NAMES, &message);
        } else if matches!(to, Sink::Stdout(_))
            && let Some(other) = earlier().find(|other| matches!(other.to, Sink::Stdout(_)))
        {
            let message = format!(
                "standard output belongs to sink {} already; choose another place",
                other.name
            );
            sink.error(report, &SinkConfig::to, message);
        }
        if from.contains(&Source::Sockets) && sockets.is_none() {
            let message =
                "there is no [sockets] to take records from; add [sockets], or remove the sink";
            sink.error(report, &SinkConfig::from, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn every_word_of_the_table_is_the_name_of_its_format() {
        for (word, format) in FORMATS.0 {
            assert_eq!(*word, format.name());
        }
        assert_eq!(FORMATS.0.len() + 1, Encoding::ALL.len(), "all but the array");
    }

    fn read(to: &str) -> Result<String, String> {
        let text = format!("[sockets]\n[[sink]]\nfrom = ['sockets']\nto = '{to}'\n");
        let config = Config::parse(&text, "t").map_err(|errors| errors[0].message.clone())?;
        Ok(config.sinks[0].to.to_string())
    }

    #[test]
    fn addresses() {
        let check = |text: &str, shown: &str| {
            assert_eq!(read(text).as_deref(), Ok(shown));
            assert_eq!(read(shown).as_deref(), Ok(shown));
        };
        check("stdout:", "stdout:");
        check("null:", "null:");
        check("file:weir-data/sockets.jsonl", "file:weir-data/sockets.jsonl");
        check("10.0.0.1:6350", "udp://10.0.0.1:6350");
        check("udp://collector.example.net:6350", "udp://collector.example.net:6350");
    }

    #[test]
    fn mistakes_are_named() {
        let check = |text: &str, message: &str| {
            assert_eq!(read(text), Err(format!("\"{text}\": {message}")));
        };
        check(
            "unix:/run/x",
            "\"unix\" is not a kind of sink; write file:/path, udp://HOST:PORT, stdout: or null:",
        );
        check("stdout", "it has no port; write for example stdout:514");
        check("file:", "it has no path; write for example file:/var/log/sockets.jsonl");
    }
}
