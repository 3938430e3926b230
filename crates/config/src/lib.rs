//! The configuration: a TOML file, or addresses with options on the command line.
//!
//! One module for each thing that can be configured (`listener`, `target` with its kinds, `sink` with its kinds, `sockets`,
//! `flows`, `admin`, `daemon`, `statsd`) holds its keys, its struct and its rules. [`keys`] generates everything else from a
//! table of keys.
//!
//! The input is first read into a plain tree with line numbers (`document`). Each module then reads its own sections of the tree
//! (`reader`). Mistakes are collected on the way, not returned at the first one.
//!
//! A flag overrides the environment, the environment overrides the file, and the file overrides the default.

#![forbid(unsafe_code)]

pub mod keys;
pub mod memory;

mod accounts;
mod address;
mod admin;
mod budget;
mod daemon;
mod document;
mod errors;
mod files;
mod flows;
mod form;
mod host;
mod inputs;
mod listener;
mod loops;
mod mistyped;
mod mitigation;
mod name;
mod not_toml;
mod overrides;
mod paths;
mod reader;
mod secrets;
mod service;
mod show;
mod sink;
mod sockets;
mod source;
mod statsd;
mod target;
mod threshold;
mod time_zone;
mod unix_listener;
mod weir_listener;

pub use self::flows::{
    FLOWS_NAME, FlowConfig, FlowsConfig, Interface, REST_FLOWS_KEPT, REST_KEYS_MAX,
};
pub use self::sink::{
    Body, ClickHouseSink, Credentials, FileSink, Framed, HttpSink, KafkaSink, NatsSink, NsqSink,
    NullSink, Opening, OtlpSink, ParquetLayout, ParquetSink, Parse, RedisMode, RedisSink, Registry,
    Requests, S3Sink, Service, Sink, SinkConfig, Source, StdoutSink, StoreSink, TcpSink, Tls,
    UdpSink, UnixSink, Url, Written,
};
pub use self::sockets::{COLLECTOR_NAME, Namespaces, SocketsConfig};
pub use accounts::{group_of, number_of};
pub use address::{AddressError, Host, HostPort, ListenAddress, TargetAddress, split_options};
pub use admin::{AdminConfig, AdminListen};
pub use budget::{
    AdminBudget, Budget, FOLLOWER_QUEUE_BYTES, FOLLOWERS_MAX, FlowsBudget, ListenerBudget,
    QUESTION_BYTES_MAX, QUESTIONS_MAX, SinkBudget, SocketsBudget,
};
pub use daemon::{DaemonConfig, LogFormat, LogLevel, drain_grace};
pub use errors::{ConfigError, LoadError, list};
pub use host::{Finding, Severity, choose};
pub use inputs::{Input, readable};
pub use keys::Key;
pub use listener::{Listen, ListenerConfig, RECEIVE_BUFFER_BYTES, ReceiveMode, UdpListener};
pub use loops::would_loop;
pub use mitigation::{MitigationConfig, RouteKind, SpeakerAddress};
pub use overrides::{
    ENV_ADMIN_LISTEN, ENV_DRAIN_GRACE, ENV_LOG_FORMAT, ENV_LOG_LEVEL, Overrides, mistyped_variables,
};
pub use service::ServiceMemory;
pub use show::Origins;
pub use source::{Sources, file_name, is_standard_input};
pub use statsd::StatsdConfig;
pub use target::{
    BitRate, FileTarget, PreserveSource, Target, TargetConfig, UdpTarget, WeirTarget,
};
pub use threshold::{EVENTS_NAME, Level, LevelUnit, ThresholdConfig};
pub use time_zone::{NetworkZone, TimeZone, TimeZones};
pub use unix_listener::{FileMode, UnixListener};
pub use weir_listener::WeirListener;

use document::Table;
use listener::ReadListener;
use reader::{Reader, Report, unknown_sections};
use std::net::SocketAddr;
use std::path::Path;

/// The daemon's whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub admin: AdminConfig,
    pub daemon: DaemonConfig,
    /// `None`: the daemon's own figures are not pushed.
    pub statsd: Option<StatsdConfig>,
    /// Names and addresses are unique; at least one if `sockets` is `None`.
    pub listeners: Vec<ListenerConfig>,
    /// `None`: no sockets are collected.
    pub sockets: Option<SocketsConfig>,
    /// `None`: no sFlow is analyzed.
    pub flows: Option<FlowsConfig>,
    /// Names are unique; each one watches a figure that exists.
    pub thresholds: Vec<ThresholdConfig>,
    /// Names are unique; each one answers existing thresholds, whose flows are keyed by a destination.
    pub mitigations: Vec<MitigationConfig>,
    /// Names are unique; at least one if `sockets` is set.
    pub sinks: Vec<SinkConfig>,
}

impl Config {
    /// Reads a configuration file's text. `origin` is its name, for messages.
    ///
    /// # Errors
    /// Every mistake in it, in the order of the file.
    pub fn parse(text: &str, origin: &str) -> Result<Config, Vec<ConfigError>> {
        Config::parse_with_origins(text, origin).map(|(config, _)| config)
    }

    /// Like [`Config::parse`], and also returns the line that each value came from.
    ///
    /// # Errors
    /// Every mistake in it, in the order of the file.
    pub fn parse_with_origins(
        text: &str,
        origin: &str,
    ) -> Result<(Config, Origins), Vec<ConfigError>> {
        Config::parse_sources(&Sources::of(origin, text), &|name| std::env::var(name).ok())
    }

    /// Parses the text of one or more files, with the given environment, and returns the line that each value came from.
    ///
    /// # Errors
    /// Every mistake in them, in the order of the files.
    pub fn parse_sources(
        sources: &Sources,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Config, Origins), Vec<ConfigError>> {
        let report = Report::of(sources.places().clone());
        let document = document::parse(sources, environment, &report);
        if report.has_errors() {
            // What was parsed around a syntax error is not what the author meant; further messages would mislead.
            return Err(report.into_parts().0);
        }

        let known = [
            "admin",
            "daemon",
            "metrics",
            "listener",
            "sockets",
            "flows",
            "flow",
            "threshold",
            "mitigation",
            "sink",
        ];
        unknown_sections(&report, &document, &known, "");
        if !document.has_section("listener") && !document.has_section("sockets") {
            match sources.texts().next() {
                Some(_) => report.error(None, "listener", NO_LISTENER),
                None => report.error(None, "", NO_FILE),
            }
        }
        let listeners = listener::read_all(&report, &document);
        let config = read(&report, &document, listeners);

        let (errors, found) = report.into_parts();
        match config {
            Some(config) if errors.is_empty() => {
                Ok((config, Origins::new(sources.places(), found)))
            }
            _ => Err(errors),
        }
    }

    /// Reads a configuration from a file, or from all files of a folder.
    ///
    /// # Errors
    /// The file cannot be read, or every mistake in it.
    pub fn load(path: &Path) -> Result<Config, LoadError> {
        let sources = Sources::read(path)?;
        let config = Config::parse_sources(&sources, &|name| std::env::var(name).ok());
        config.map(|(config, _)| config).map_err(LoadError::Invalid)
    }

    /// Builds a configuration from addresses with options, as `weir relay` takes them: every listener gets every target.
    /// Options have the names of the file's keys: `udp://10.0.0.1:514?rate_limit=1000&sample=10`.
    ///
    /// # Errors
    /// Every mistake in them.
    pub fn from_addresses(listen: &[String], to: &[String]) -> Result<Config, Vec<ConfigError>> {
        let all = Report::new("command line");
        if listen.is_empty() {
            all.error(None, "", "there is nothing to listen on. Fix: add --listen 127.0.0.1:5514");
        }
        if to.is_empty() {
            all.error(None, "", "there is no target. Fix: add --to 10.0.0.1:514");
        }
        // Each address is an origin of its own, so that messages name the address with the mistake.
        let address = |flag: &str, key: &Key, text: &str| {
            let (address, options) = split_options(text);
            let report = Report::new(&format!("{flag} {text}"));
            let table = document::from_options(key.name, address, &options);
            table.report_duplicates(&report, key.section);
            (report, table)
        };

        let mut targets = Vec::new();
        for text in to {
            let (report, table) = address("--to", &TargetConfig::to, text);
            targets.extend(target::read(&report, &table, "target"));
            all.add(report.into_parts().0);
        }
        let mut listeners = Vec::new();
        for text in listen {
            let (report, table) = address("--listen", &ListenerConfig::listen, text);
            let listener = listener::read(&report, &table, "listener");
            let targets = targets.clone();
            listeners.extend(listener.map(|listener| ReadListener { listener, targets }));
            all.add(report.into_parts().0);
        }

        let config = read(&all, &Table::default(), listeners);
        let (errors, _) = all.into_parts();
        config.filter(|_| errors.is_empty()).ok_or(errors)
    }

    /// Reads the address of a sink with options, which have the names of its keys: `clickhouse://host:8123/weir?user=weir`.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn sink_from_address(flag: &str, text: &str) -> Result<Sink, Vec<ConfigError>> {
        // Not with its text, which may have a password before an @.
        let report = Report::new(flag);
        let (address, options) = split_options(text);
        let table = document::from_options(SinkConfig::to.name, address, &options);
        table.report_duplicates(&report, SinkConfig::to.section);
        let sink = sink::read_of_sockets(&report, &table, "sink");
        let (errors, _) = report.into_parts();
        sink.filter(|_| errors.is_empty()).ok_or(errors)
    }

    /// The sinks that take records from this source.
    pub fn sinks_from<'c>(&'c self, source: &'c Source) -> impl Iterator<Item = &'c SinkConfig> {
        self.sinks.iter().filter(move |sink| sink.from.contains(source))
    }

    /// The most memory that a running daemon with this configuration takes for datagrams.
    pub fn budget(&self) -> Budget {
        budget::of(self)
    }

    /// The configuration as TOML that parses to the same configuration. With `origins`, each line says where its value came
    /// from.
    pub fn to_toml(&self, origins: Option<&Origins>) -> String {
        show::to_toml(self, origins)
    }

    /// The configuration as JSON: each key with its value and its origin.
    pub fn to_json(&self, origins: &Origins) -> serde_json::Value {
        show::to_json(self, origins)
    }
}

const NO_FILE: &str = "the folder has no file whose name ends in .toml, and only those are read. Fix: put one there, or name a file";

const NO_LISTENER: &str = "there is no listener and no [sockets]. Fix: add [[listener]] with listen = \"127.0.0.1:5514\" and a \
                           [[listener.target]] with to = \"…\" (weir config example shows a whole file)";

/// Reads everything except the listeners, then checks the sections against each other.
fn read(report: &Report, document: &Table, mut listeners: Vec<ReadListener>) -> Option<Config> {
    let admin = self::admin::read(report, document);
    let daemon = DaemonConfig::read(&Reader::of_document(report, document, &daemon::SECTION));
    let statsd = statsd::read(report, document);
    let sockets = self::sockets::read(report, document);
    let flows = self::flows::read(report, document);
    let thresholds = threshold::read_all(report, document);
    let mitigations = mitigation::read_all(report, document);
    let sinks = self::sink::read_all(report, document);

    listener::note_shared_ports(&mut listeners);
    listener::check(report, &listeners);
    target::check(report, &listeners);
    if let Some(statsd) = &statsd {
        statsd::check(report, statsd, &listeners);
    }
    if let Some(flows) = &flows {
        self::flows::check(report, flows, &listeners);
    }
    let analysis = flows.as_ref().map(|flows| &flows.thing);
    threshold::check(report, &thresholds, analysis);
    mitigation::check(report, &mitigations, &thresholds, analysis, &listeners);
    let made = [document.get("sockets"), document.get("flows"), document.get("threshold")];
    self::sink::check(report, &sinks, made, &listeners);
    files::check(report, &listeners, &sinks);

    Some(Config {
        admin: admin?,
        daemon: daemon?,
        statsd: statsd.map(|statsd| statsd.thing),
        listeners: listeners.into_iter().map(ReadListener::whole).collect(),
        sockets,
        flows: flows.map(|flows| flows.thing),
        thresholds: thresholds.into_iter().map(|one| one.thing).collect(),
        mitigations: mitigations.into_iter().map(|one| one.thing).collect(),
        sinks: sinks.into_iter().map(|sink| sink.thing).collect(),
    })
}

impl Config {
    /// Whether a mitigation announces routes.
    pub fn announces(&self) -> bool {
        self.mitigations.iter().any(|one| !one.dry_run)
    }
}

/// The differences between two configurations, in words: one entry for each section that changed, with its keys.
pub fn changes(old: &Config, new: &Config) -> Vec<String> {
    show::differences(old, new)
}

/// The addresses that a host and port resolve to on this system; at least one.
///
/// # Errors
/// The name is unknown, or the resolver does not answer.
pub fn resolve(addr: &HostPort) -> std::io::Result<Vec<SocketAddr>> {
    use std::io::{Error, ErrorKind};
    use std::net::ToSocketAddrs;
    let name = match &addr.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, addr.port)]),
        Host::Name(name) => name,
    };

    let mut found: Vec<_> = (name.as_str(), addr.port).to_socket_addrs()?.collect();
    found.dedup();
    if name == address::LOCALHOST {
        // Most programs of one family have this one; and `HostPort::known` says so without asking.
        found.sort_by_key(SocketAddr::is_ipv6);
    }
    match found.is_empty() {
        false => Ok(found),
        true => Err(Error::new(ErrorKind::NotFound, "the name has no address")),
    }
}
