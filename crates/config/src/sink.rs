//! `[[sink]]`: where records are sent.

mod clickhouse;
mod credentials;
mod file;
mod http;
mod kafka;
pub(crate) mod kind;
mod nats;
mod nsq;
mod null;
mod parquet;
mod redis;
mod registry;
mod rules;
mod s3;
mod stdout;
mod store;
mod tcp;
mod udp;
mod unix;
mod url;

pub use clickhouse::ClickHouseSink;
pub(crate) use credentials::secret_path;
pub use credentials::{Credentials, Tls};
pub use file::FileSink;
pub use http::{HttpSink, OtlpSink, Requests};
pub use kafka::KafkaSink;
pub use kind::Opening;
pub(crate) use kind::is_built;
pub use nats::{NatsSink, Service};
pub use nsq::NsqSink;
pub use null::NullSink;
pub use parquet::{ParquetLayout, ParquetSink};
pub use redis::{RedisMode, RedisSink};
pub use registry::Registry;
pub(crate) use rules::check;
pub use s3::S3Sink;
pub use stdout::StdoutSink;
pub use store::StoreSink;
pub use tcp::{Framed, TcpSink};
pub use udp::UdpSink;
pub use unix::UnixSink;
pub use url::Url;

use crate::address::HostPort;
use crate::document::{Entry, Item, Table, Value};
use crate::flows::FLOWS_NAME;
use crate::form::{Choice, Form, Kind, List, OrOff, Slot, Span, path, size, whole};
use crate::host::Finding;
use crate::keys::{Section, Values, keys};
use crate::name::{NAME, name_of};
use crate::reader::{Placed, Reader, Report, repeated};
use crate::sockets::{COLLECTOR_NAME, FIELDS, refuse_no_field};
use crate::threshold::EVENTS_NAME;
use crate::time_zone::{TIME_ZONE, TimeZone};
use ::sink::{
    BatchLimits, Connector, DeliveryOptions, Durability, QueueOptions, SpoolOptions, SpoolSync,
    WhenFull,
};
use kind::kinds;
use record::Encoding;
use serde_json::Value as Json;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const SECTION: Section =
    Section { path: "sink", header: "[[sink]]", tables: TABLES, subsections: &[] };

kinds! {
    /// Where a sink's records go.
    pub enum Sink {
        File(FileSink) at file::SCHEMES, keys FileSink;
        /// Messages to a topic of Kafka.
        Kafka(KafkaSink) at kafka::SCHEMES, keys KafkaSink Registry;
        /// Messages to a topic of NSQ.
        Nsq(NsqSink) at nsq::SCHEMES, keys NsqSink;
        /// A folder of Parquet files.
        Parquet(ParquetSink) at parquet::SCHEMES, keys ParquetLayout ParquetSink;
        /// This machine's own history.
        Store(StoreSink) at store::SCHEMES, keys StoreSink;
        /// A bucket of Parquet files.
        S3(S3Sink) at s3::SCHEMES, keys S3Sink;
        /// Datagrams to a UDP address.
        Udp(UdpSink) at udp::SCHEMES;
        /// A connection to a receiver of streams.
        Tcp(TcpSink) at tcp::SCHEMES, keys Framed;
        /// A unix socket.
        Unix(UnixSink) at unix::SCHEMES;
        /// Redis or Valkey.
        Redis(RedisSink) at redis::SCHEMES, keys RedisSink;
        /// NATS.
        Nats(NatsSink) at nats::SCHEMES, keys NatsSink;
        ClickHouse(ClickHouseSink) at clickhouse::SCHEMES, keys Requests ClickHouseSink;
        Http(HttpSink) at http::SCHEMES, keys HttpSink;
        /// Logs of OpenTelemetry.
        Otlp(OtlpSink) at http::OTLP_SCHEMES;
        /// Standard output.
        Stdout(StdoutSink) at stdout::SCHEMES;
        /// Nowhere.
        Null(NullSink) at null::SCHEMES;
    }
}

keys! {
    /// Where records leave.
    pub struct SinkConfig in "sink" {
        /// Name in the ledger and in metrics. No two sinks share one.
        name => name: String = NAME, derived("the text of `to`", name_of(&to));
        /// Whose rows it takes: `sockets`, the records of the socket collector; `flows`, the flows, counters and totals of the analysis
        /// of sFlow; `events`, what passes a `[[threshold]]` and what is down again; or the name of a listener. Each datagram and each
        /// event becomes a row, and the payload of an event is JSON.
        from => from: Vec<Source> = List { of: "`sockets`, `flows`, `events` and names of listeners", parse: source },
            listed("write from = [\"sockets\"]");
        /// Where the records go. `udp:` packs them into datagrams no larger than the path takes without fragments,
        /// numbered, so that `weir sockets --receive` can say what is missing. `null:` counts and forgets. In the path of a file that
        /// takes datagrams, `{host}` is who sent one (the host that its syslog names, else the address), `{date}` the day (UTC),
        /// `{listener}` the listener: `file:/var/log/{host}/{date}.log`. `parquet:` writes files below the folder, as
        /// `table=sockets/date=2026-11-22/hour=18/….parquet`, which have a name once they are whole; `s3:` puts the same into a
        /// bucket. `docs/sinks.md` says what each kind does and promises.
        to => to: Sink = TO, chosen("write for example to = \"file:sockets.jsonl\"");
        /// What this sink's records have, of what `[sockets]` has; where that names none, of all fields.
        fields => fields: Vec<String> = FIELDS, empty("those of `[sockets]`");
        /// Memory for records that the destination has still to take, used when needed: a poll of 100,000 sockets
        /// comes faster than a disk takes it. Beyond it the oldest are dropped, and counted as `queue_full`.
        queue_size => queue_bytes: usize = size(256 << 10, 64 << 30), default(32 << 20);
        /// What a full queue drops: what waits longest, or what comes. `leave_in_ring`: what comes stays in the ring of its
        /// listener, which drops its oldest when it is full. Not with `sockets`, which cannot keep anything.
        when_full => when_full: WhenFull = WHEN_FULL, default(WhenFull::DropOldest);
        /// What is read out of each datagram: `syslog` gives its time, host, program and so on fields of their own.
        parse => parse: Parse = Choice(&[("none", Parse::None), ("syslog", Parse::Syslog)]), default(Parse::None)
            where |sink| sink.listeners().next().is_some(), "no listener is among its sources. Fix: remove the key, or add a listener's name to from";
        /// The zone of times in syslog messages that name none, as in `[[listener]]`, whose `time_zones` count before it.
        time_zone => time_zone: Option<TimeZone> = TIME_ZONE, unset("that of the listener")
            where |sink| sink.parse == Parse::Syslog, "no time is read. Fix: remove the key, or add parse = \"syslog\"";
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
        /// Folder, of this sink alone, in which rows are kept until their fate is known: through an outage, a restart
        /// and a crash. It is made if only its last part is missing.
        spool => spool_folder: Option<PathBuf> = path("path", folder), unset("rows wait in memory alone");
        /// What the spool may take on disk. Beyond it, rows are dropped and counted as `spool_full`.
        spool_size => spool_bytes: u64 = size(1 << 20, 1 << 44), default(1 << 30)
            where SinkConfig::has_spool, "there is no spool. Fix: add spool = \"/var/lib/weir/spool/NAME\"";
        /// How often what is written to the spool is made to survive the host: a crash of the host, not of the
        /// daemon, loses what came since. `always`: before anything is sent.
        spool_sync => spool_sync: SpoolSync = SYNC, default(SpoolSync::Every(Duration::from_millis(100)))
            where SinkConfig::has_spool, "there is no spool. Fix: add spool = \"/var/lib/weir/spool/NAME\"";
    }
}

const SYNC: Sync = Sync(Span(Duration::from_millis(1), Duration::from_secs(60)));

/// A duration, or the word `always`.
struct Sync(Span);

impl Form for Sync {
    type Value = SpoolSync;

    fn describe(&self) -> String {
        format!("{}, or `always`", self.0.describe())
    }

    fn read(&self, slot: &Slot<'_>) -> Option<SpoolSync> {
        match slot.value.text() {
            Ok("always") => Some(SpoolSync::Always),
            _ => self.0.read(slot).map(SpoolSync::Every),
        }
    }

    fn show(&self, value: &SpoolSync) -> Json {
        match value {
            SpoolSync::Always => "always".into(),
            SpoolSync::Every(time) => self.0.show(time),
        }
    }
}

fn folder(text: &str) -> Result<PathBuf, String> {
    match text.is_empty() || text.chars().any(char::is_control) {
        true => Err("it is not a path. Fix: write for example /var/lib/weir/spool/NAME".to_owned()),
        false => Ok(PathBuf::from(text)),
    }
}

const WHEN_FULL: Choice<WhenFull> = Choice(&[
    ("drop_oldest", WhenFull::DropOldest),
    ("drop_newest", WhenFull::DropNewest),
    ("leave_in_ring", WhenFull::LeaveAtSource),
]);

keys! {
    /// How records are written one after another.
    pub struct Written in "sink" of "sinks with a choice of formats" with (usual: Encoding) {
        /// How records are written. Not for UDP, whose datagrams have a form of their own.
        format => format: Encoding = FORMATS,
            derived("what the file's extension says, else `jsonl`", usual);
        /// What is written of a datagram: `record`, with its sender, its time and the rest, or `payload`, which is what
        /// arrived and nothing else.
        body => body: Body = Choice(&[("record", Body::Record), ("payload", Body::Payload)]), default(Body::Record);
    }
}

/// The part of a datagram that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The row, in the sink's format.
    Record,
    /// The payload as received.
    Payload,
}

/// The part of a datagram that is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse {
    /// Nothing.
    None,
    /// The fields of syslog (RFC 5424, RFC 3164). A datagram that cannot be parsed stays whole.
    Syslog,
}

/// A source of rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The socket collector.
    Sockets,
    /// Thresholds: each event is a row like a datagram's, with the event as JSON for its payload.
    Events,
    /// The analysis of sFlow.
    Flows,
    /// The listener with that name.
    Listener(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Sockets => f.write_str(COLLECTOR_NAME),
            Source::Events => f.write_str(EVENTS_NAME),
            Source::Flows => f.write_str(FLOWS_NAME),
            Source::Listener(name) => f.write_str(name),
        }
    }
}

/// Whether a listener with that name exists is checked once all are read.
fn source(text: &str) -> Result<Source, String> {
    Ok(match text {
        COLLECTOR_NAME => Source::Sockets,
        EVENTS_NAME => Source::Events,
        FLOWS_NAME => Source::Flows,
        name => Source::Listener(name.to_owned()),
    })
}

const TO: Kind<Sink> = Kind { form: to_form, read: |slot| kind::read(slot, SCHEMES) };

/// Every way to write `to`.
fn to_form() -> String {
    let forms = SCHEMES.iter().copied().flatten().map(|scheme| scheme.form);
    let forms: Vec<_> =
        forms.map(|form| format!("`{form}`")).chain(["`HOST:PORT`".to_owned()]).collect();
    kind::list(&forms.iter().map(String::as_str).collect::<Vec<_>>())
}

impl Sink {
    fn values(&self) -> Values {
        self.kind().values()
    }

    /// The address that it sends datagrams to, if it does.
    pub fn receiver(&self) -> Option<&HostPort> {
        self.kind().receiver()
    }

    /// Creates the connector with which its thread connects.
    ///
    /// # Errors
    /// Something that the process itself must have is missing, such as standard output.
    pub fn open(&self, given: &Opening) -> io::Result<Connector> {
        self.kind().open(given)
    }

    /// The same to try it out, which leaves nothing in this machine's history.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_check(&self, given: &Opening) -> io::Result<Connector> {
        self.kind().open_to_check(given)
    }

    /// Whether two of them must not write to the same place at once while one replaces the other on reload.
    pub fn is_exclusive(&self) -> bool {
        self.kind().is_exclusive()
    }

    /// Most memory that its encoders and its client use, with batches of `batch_bytes`.
    pub(crate) fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        self.kind().encoder_bytes_max(batch_bytes)
    }

    /// The encoding of its records.
    pub fn encoding(&self) -> Encoding {
        self.kind().encoding()
    }
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

impl SinkConfig {
    /// The limits of its queue in memory.
    pub fn queue(&self) -> QueueOptions {
        QueueOptions { bytes_max: self.queue_bytes, when_full: self.when_full }
    }

    /// What the kind of sink has where the file says nothing.
    fn usual(&self) -> (BatchLimits, usize) {
        let kind = self.to.kind();
        if self.has_spool() { kind.usual_with_spool() } else { kind.usual() }
    }

    /// When a destination on this host acknowledges rows: with a spool, which then lets go of them, once they are on the disk.
    pub fn durability(&self) -> Durability {
        match self.has_spool() {
            true => Durability::Synced { batches_max: self.delivery().in_flight_max },
            false => Durability::Written,
        }
    }

    /// When a batch is complete.
    pub fn batch(&self) -> BatchLimits {
        let (usual, _) = self.usual();
        BatchLimits {
            rows: self.batch_rows.unwrap_or(usual.rows),
            bytes: self.batch_bytes.unwrap_or(usual.bytes),
            age: self.batch_age.unwrap_or(usual.age),
        }
    }

    /// The listeners among its sources.
    pub fn listeners(&self) -> impl Iterator<Item = &str> {
        self.from.iter().filter_map(|source| match source {
            Source::Sockets | Source::Events | Source::Flows => None,
            Source::Listener(name) => Some(name.as_str()),
        })
    }

    fn has_spool(&self) -> bool {
        self.spool_folder.is_some()
    }

    /// The options of its spool on disk, if it has one.
    pub fn spool_options(&self) -> Option<SpoolOptions> {
        Some(SpoolOptions {
            folder: self.spool_folder.clone()?,
            bytes_max: self.spool_bytes,
            sync: self.spool_sync,
        })
    }

    /// How its batches are delivered.
    pub fn delivery(&self) -> DeliveryOptions {
        let (_, in_flight) = self.usual();
        DeliveryOptions {
            in_flight_max: self.in_flight.unwrap_or(in_flight),
            retry_max: self.retry_max,
            answer_max: self.to.kind().tries_for() + self.answer_max,
            expire_after: self.expire_after,
        }
    }

    /// Checks what it needs of this host.
    pub(crate) fn examine(&self, findings: &mut Vec<Finding>) {
        self.to.kind().examine(&format!("sink {}", self.name), findings);
    }
}

/// The encodings of sinks. There is no JSON array: it needs an end, and a daemon's output has none.
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
        reader.error(&SinkConfig::from, "it names no source. Fix: write from = [\"sockets\"]");
    }
    refuse_no_field(&reader, &SinkConfig::fields, &sink.fields);
    Some(Placed { place, thing: sink })
}

/// Reads a `sink` section inside `[sockets]` only for its mistakes.
pub(crate) fn check_old(report: &Report, table: &Table) {
    read_of_sockets(report, table, "sockets.sink");
}

/// Reads a section that may leave out its source.
pub(crate) fn read_of_sockets(report: &Report, table: &Table, place: &str) -> Option<Sink> {
    let mut table = table.clone();
    if table.get(SinkConfig::from.name).is_none() {
        let sockets = Item { line: table.line, value: Value::Text(COLLECTOR_NAME.to_owned()) };
        table.entries.push(Entry {
            line: table.line,
            key: SinkConfig::from.name.to_owned(),
            item: Item { line: table.line, value: Value::List(vec![sockets]) },
            borrowed: None,
        });
    }
    read(report, &table, place.to_owned()).map(|placed| placed.thing.to)
}

/// Whether a sink of this document, valid or not, names this listener as its source.
pub(crate) fn is_source(document: &Table, listener: &str) -> bool {
    let list = |table: &Table, key: &str| match table.get(key).map(|entry| entry.item.value.clone())
    {
        Some(Value::List(items)) => items,
        _ => Vec::new(),
    };
    list(document, SECTION.path).iter().any(|sink| match &sink.value {
        Value::Table(sink) => {
            list(sink, "from").iter().any(|source| source.value.text() == Ok(listener))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use ::sink::StreamFraming;

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
        #[cfg(feature = "parquet")]
        check("parquet:/var/lib/weir/records", "parquet:/var/lib/weir/records");
        check("10.0.0.1:6350", "udp://10.0.0.1:6350");
        check("udp://collector.example.net:6350", "udp://collector.example.net:6350");
        check("tcp://[2001:db8::1]:514", "tcp://[2001:db8::1]:514");
        check("unix:///run/receiver.sock", "unix:/run/receiver.sock");
        check("unixgram:receiver.sock", "unixgram:receiver.sock");
        if cfg!(feature = "tls") {
            check("tls://logs.example.net:6514", "tls://logs.example.net:6514");
        }
        if cfg!(feature = "redis") {
            check("redis://10.0.0.5/weir:sockets", "redis://10.0.0.5:6379/weir:sockets");
            check("rediss://10.0.0.5:1/x", "rediss://10.0.0.5:1/x");
        }
        if cfg!(feature = "nats") {
            check("nats://a,b:4223/weir.x", "nats://a:4222,b:4223/weir.x");
            check("jetstreams://a/weir.x", "jetstreams://a:4222/weir.x");
        }
    }

    #[test]
    fn framing_follows_the_format_unless_it_is_said() {
        let framing = |keys: &str| {
            let text = format!("[sockets]\n[[sink]]\nfrom = ['sockets']\nto = 'tcp://h:1'\n{keys}");
            let config = Config::parse(&text, "t").map_err(|errors| errors[0].message.clone())?;
            match &config.sinks[0].to {
                Sink::Tcp(sink) => Ok(sink.framed.framing),
                other => Err(format!("it is {other}")),
            }
        };
        assert_eq!(framing(""), Ok(StreamFraming::Newline));
        assert_eq!(framing("format = 'protobuf'"), Ok(StreamFraming::None));
        assert_eq!(
            framing("format = 'protobuf'\nframing = 'length_prefixed'"),
            Ok(StreamFraming::LengthPrefixed)
        );
        let refused = framing("format = 'protobuf'\nframing = 'newline'").unwrap_err();
        assert!(refused.contains("line feeds inside"), "{refused}");
    }

    #[test]
    fn mistakes_are_named() {
        let check = |text: &str, message: &str| {
            assert_eq!(read(text), Err(format!("\"{text}\": {message}")));
        };
        let unknown = read("nowhere:/run/x").unwrap_err();
        assert!(
            unknown.contains("\"nowhere\" is not a kind of sink. Fix: write file:/path, "),
            "{unknown}"
        );
        #[cfg(not(feature = "parquet"))]
        check(
            "parquet:/x",
            "this build has no parquet. Fix: build with `cargo build --release -p weir --features parquet`, or use the image",
        );
        check("null:x", "something follows null: and nothing may. Fix: write null:");
        check("stdout", "its colon is missing. Fix: write stdout:");
        check("file:", "it has no path. Fix: write for example file:/var/log/sockets.jsonl");
    }

    #[test]
    fn a_password_in_an_address_is_in_no_message() {
        let check = |text: &str| {
            let message = read(text).unwrap_err();
            assert!(!message.contains("geheim") && message.contains('@'), "{message}");
        };
        check("udp://user:geheim@10.0.0.1:514");
        check("user:geheim@10.0.0.1:514");
        check("nothing://user:geheim@10.0.0.1");
        check("udp://user:ge@heim:geheim@10.0.0.1:514");
    }

    #[test]
    fn schemes_are_told_apart_and_their_features_are_known() {
        let schemes: Vec<_> = SCHEMES.iter().copied().flatten().collect();
        let words: Vec<_> = schemes.iter().flat_map(|scheme| scheme.words).collect();
        let distinct: std::collections::BTreeSet<_> = words.iter().collect();
        assert_eq!(words.len(), distinct.len(), "{words:?}");
        for scheme in schemes {
            assert!(scheme.feature.is_none_or(kind::is_feature), "{}", scheme.form);
        }
    }
}
