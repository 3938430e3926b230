//! The configuration: a TOML file, or addresses with options on the command line.
//!
//! Two steps. What somebody typed is read into a plain tree with line numbers (`document`). From it `build` makes the
//! typed values here, with every mistake collected on the way (`section`) and every value checked against the others
//! (`rules`). Keys, ranges and defaults stand in one table, [`keys`].
//!
//! A value comes from a flag, else from the environment, else from the file, else it is the default.

pub mod keys;

mod address;
mod budget;
mod build;
mod document;
mod errors;
mod filter;
mod options;
mod paths;
mod rules;
mod section;
mod show;
mod sockets;

pub use address::{
    AddressError, Host, HostPort, ListenAddress, SinkAddress, TargetAddress, split_options,
};
pub use budget::{Budget, ListenerBudget, SocketsBudget};
pub use errors::{ConfigError, LoadError, list};
pub use rules::would_loop;
pub use show::Origins;
pub use sockets::{COLLECTOR_NAME, Namespaces, SinkConfig, SocketsConfig};

use relay::{FileFormat, Gso, Prefix, Sample, Schedule};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use sys::socket::SendOptions;
use text::units;

/// Everything that the daemon is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub admin: AdminConfig,
    pub daemon: DaemonConfig,
    /// `None`: the daemon's own figures are not pushed.
    pub statsd: Option<StatsdConfig>,
    /// Names and addresses differ; at least one if `sockets` is `None`.
    pub listeners: Vec<ListenerConfig>,
    /// `None`: no sockets are collected.
    pub sockets: Option<SocketsConfig>,
}

/// The HTTP server for metrics, health and the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    pub listen: AdminListen,
    /// Path of the unix socket for known users.
    pub socket: Option<PathBuf>,
    /// Names or numbers of users that may ask there beside root and the daemon's own.
    pub socket_users: Vec<String>,
}

/// Where the admin server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminListen {
    Off,
    On(SocketAddr),
}

/// The daemon's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonConfig {
    /// How long targets may go on sending on stop.
    pub drain_grace: Duration,
    pub log_level: LogLevel,
}

/// The least important messages that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

/// Pushing the daemon's own figures as StatsD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsdConfig {
    pub to: HostPort,
    pub prefix: String,
    pub interval: Duration,
}

/// A listener and its targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    pub name: String,
    pub listen: ListenAddress,
    /// Receive buffer to ask for, in bytes of the kernel's accounting.
    pub receive_buffer_bytes: usize,
    /// A power of two.
    pub ring_bytes: usize,
    pub schedule: Schedule,
    /// How long a datagram may wait for others; `None`: not at all.
    pub gather: Option<Duration>,
    pub allow_sources: Vec<Prefix>,
    pub deny_sources: Vec<Prefix>,
    pub multicast_interface: Option<String>,
    /// At least one, names differ.
    pub targets: Vec<TargetConfig>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    pub name: String,
    pub to: TargetAddress,
    pub only_sources: Vec<Prefix>,
    pub sample: Option<Sample>,
    pub rate_limit_per_sec: Option<NonZeroU32>,
    /// How its socket is opened. UDP only.
    pub send: SendOptions,
    /// UDP only.
    pub gso: Gso,
    /// How often a host name is resolved again. UDP only.
    pub resolve_interval: Duration,
    /// Files only.
    pub format: FileFormat,
    /// `None`: never rotated. Files only.
    pub rotate_bytes: Option<u64>,
    /// Rotated files to keep. Files only.
    pub rotate_keep: u32,
}

/// What flags and the environment say; they come before the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--admin-listen`, `WEIR_ADMIN_LISTEN`.
    pub admin_listen: Option<AdminListen>,
    /// `--log-level`, `WEIR_LOG_LEVEL`.
    pub log_level: Option<LogLevel>,
    /// `--drain-grace`, `WEIR_DRAIN_GRACE`.
    pub drain_grace: Option<Duration>,
}

impl Config {
    /// Reads a configuration file's text. `origin` is its name, for messages.
    ///
    /// # Errors
    /// Every mistake in it, in the order of the file.
    pub fn parse(text: &str, origin: &str) -> Result<Config, Vec<ConfigError>> {
        Config::parse_with_origins(text, origin).map(|(config, _)| config)
    }

    /// Like [`Config::parse`], and tells which line each value came from.
    ///
    /// # Errors
    /// Every mistake in it, in the order of the file.
    pub fn parse_with_origins(
        text: &str,
        origin: &str,
    ) -> Result<(Config, Origins), Vec<ConfigError>> {
        build::from_file(text, origin)
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// It cannot be read, or every mistake in it.
    pub fn load(path: &Path) -> Result<Config, LoadError> {
        let text = read(path)?;
        Config::parse(&text, &path.display().to_string()).map_err(LoadError::Invalid)
    }

    /// A configuration of addresses with options, as `weir relay` has them: every listener gets every target.
    /// Options have the names of the file's keys: `udp://10.0.0.1:514?rate_limit=1000&sample=10`.
    ///
    /// # Errors
    /// Every mistake in them.
    pub fn from_addresses(listen: &[String], to: &[String]) -> Result<Config, Vec<ConfigError>> {
        build::from_addresses(listen, to)
    }

    /// The configuration with what flags and the environment say in place of what the file says.
    #[must_use]
    pub fn overridden_by(mut self, overrides: &Overrides) -> Config {
        if let Some(listen) = overrides.admin_listen {
            self.admin.listen = listen;
        }
        if let Some(level) = overrides.log_level {
            self.daemon.log_level = level;
        }
        if let Some(grace) = overrides.drain_grace {
            self.daemon.drain_grace = grace;
        }
        self
    }

    /// The most memory that a running daemon with this configuration takes for datagrams.
    pub fn budget(&self) -> Budget {
        budget::of(self)
    }

    /// The configuration as TOML that reads as the same configuration. With `origins`, each line says where its value
    /// came from.
    pub fn to_toml(&self, origins: Option<&Origins>) -> String {
        show::to_toml(self, origins)
    }

    /// The configuration as JSON: each key with its value and where that came from.
    pub fn to_json(&self, origins: &Origins) -> serde_json::Value {
        show::to_json(self, origins)
    }
}

/// What differs between two configurations, in words: one entry for each section of the file that changed, with its keys.
pub fn changes(old: &Config, new: &Config) -> Vec<String> {
    show::differences(old, new)
}

/// Reads a configuration file's text.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path)
        .map_err(|source| LoadError::Read { path: path.to_owned(), source })
}

impl Overrides {
    /// What the environment says.
    ///
    /// # Errors
    /// Every value that is wrong.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Overrides, Vec<ConfigError>> {
        fn one<T>(
            name: &str,
            text: Option<String>,
            parse: impl Fn(&str) -> Result<T, String>,
            errors: &mut Vec<ConfigError>,
        ) -> Option<T> {
            let text = text.filter(|text| !text.is_empty())?;
            let wrong = |message| ConfigError {
                origin: "environment".to_owned(),
                line: None,
                key: name.to_owned(),
                message: format!("\"{}\": {message}", text.escape_debug()),
            };
            parse(&text).map_err(|message| errors.push(wrong(message))).ok()
        }
        let mut errors = Vec::new();
        let value = |name: &str| variable(name);
        let overrides = Overrides {
            admin_listen: one(ENV_ADMIN_LISTEN, value(ENV_ADMIN_LISTEN), str::parse, &mut errors),
            log_level: one(ENV_LOG_LEVEL, value(ENV_LOG_LEVEL), str::parse, &mut errors),
            drain_grace: one(ENV_DRAIN_GRACE, value(ENV_DRAIN_GRACE), drain_grace, &mut errors),
        };
        if errors.is_empty() { Ok(overrides) } else { Err(errors) }
    }
}

/// The receive buffer that a listener asks for when its section does not say, in bytes of the kernel's accounting.
pub fn default_receive_buffer_bytes() -> u64 {
    match keys::LISTENER.key("receive_buffer").map(|key| key.fallback) {
        Some(keys::Fallback::Value(text)) => units::parse_size(text).unwrap_or_default(),
        _ => 0,
    }
}

/// The addresses that a host's name and port stand for, as the system resolves them; at least one.
///
/// # Errors
/// The name is not known, or the resolver does not answer.
pub fn resolve(addr: &HostPort) -> std::io::Result<Vec<SocketAddr>> {
    use std::io::{Error, ErrorKind};
    use std::net::ToSocketAddrs;
    let name = match &addr.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, addr.port)]),
        Host::Name(name) => name,
    };

    let mut found: Vec<_> = (name.as_str(), addr.port).to_socket_addrs()?.collect();
    found.dedup();
    match found.is_empty() {
        false => Ok(found),
        true => Err(Error::new(ErrorKind::NotFound, "the name has no address")),
    }
}

/// Environment variable of `admin.listen`.
pub const ENV_ADMIN_LISTEN: &str = "WEIR_ADMIN_LISTEN";
/// Environment variable of `daemon.log_level`.
pub const ENV_LOG_LEVEL: &str = "WEIR_LOG_LEVEL";
/// Environment variable of `daemon.drain_grace`.
pub const ENV_DRAIN_GRACE: &str = "WEIR_DRAIN_GRACE";

/// Reads a `--drain-grace`: a duration within the range of the key `daemon.drain_grace`.
///
/// # Errors
/// What is wrong with it.
pub fn drain_grace(text: &str) -> Result<Duration, String> {
    let duration = units::parse_duration(text).map_err(|error| error.to_string())?;
    match keys::DAEMON.key("drain_grace").map(|key| key.kind) {
        Some(keys::Kind::Duration(_, max)) if duration > max => {
            Err(format!("it is above the maximum of {}", units::display_duration(max)))
        }
        _ => Ok(duration),
    }
}

impl FromStr for AdminListen {
    type Err = String;

    fn from_str(text: &str) -> Result<AdminListen, String> {
        if text == "off" {
            return Ok(AdminListen::Off);
        }
        if let Some(port) = text.strip_prefix(':') {
            return Err(format!("say at which address: 127.0.0.1:{port} or 0.0.0.0:{port}"));
        }
        let literal = text.replacen("localhost:", "127.0.0.1:", 1);
        literal
            .parse()
            .map(AdminListen::On)
            .map_err(|_| "it is not an IP address and port; write 127.0.0.1:9464 or off".to_owned())
    }
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminListen::Off => f.write_str("off"),
            AdminListen::On(addr) => addr.fmt(f),
        }
    }
}

const LOG_LEVELS: [LogLevel; 4] =
    [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];
const LOG_LEVEL_NAMES: [&str; 4] = ["error", "warn", "info", "debug"];

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<LogLevel, String> {
        section::choose(text, &LOG_LEVEL_NAMES).map(|at| LOG_LEVELS[at])
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LOG_LEVEL_NAMES[*self as usize])
    }
}
