//! The configuration as TOML, each value with where it came from.

mod differences;
mod sockets;

pub(super) use differences::differences;

use super::keys::{self, Fallback, Key, SectionKeys};
use super::rules::{FILE_KEYS, UDP_KEYS, UDP_LISTENER_KEYS};
use super::{
    AdminConfig, Config, DaemonConfig, ENV_ADMIN_LISTEN, ENV_DRAIN_GRACE, ENV_LOG_LEVEL,
    ListenAddress, ListenerConfig, Overrides, StatsdConfig, TargetAddress, TargetConfig,
};
use relay::{FileFormat, Gso, Prefix, SampleBy, Schedule};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use text::units::{display_duration, display_size};

/// Where the values of a configuration came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    file: String,
    /// Line by place and key, such as `listener[0].name`.
    lines: BTreeMap<String, Option<usize>>,
    overridden: BTreeMap<&'static str, &'static str>,
}

impl Origins {
    pub(super) fn new(file: &str, lines: BTreeMap<String, Option<usize>>) -> Origins {
        Origins { file: file.to_owned(), lines, overridden: BTreeMap::new() }
    }

    /// The origins after [`Config::overridden_by`] with what the environment says.
    #[must_use]
    pub fn overridden_by(mut self, overrides: &Overrides) -> Origins {
        let all = [
            ("admin.listen", ENV_ADMIN_LISTEN, overrides.admin_listen.is_some()),
            ("daemon.log_level", ENV_LOG_LEVEL, overrides.log_level.is_some()),
            ("daemon.drain_grace", ENV_DRAIN_GRACE, overrides.drain_grace.is_some()),
        ];
        let set = all.into_iter().filter(|(_, _, is_set)| *is_set);
        self.overridden.extend(set.map(|(key, variable, _)| (key, variable)));
        self
    }

    fn of(&self, name: &str) -> String {
        if let Some(variable) = self.overridden.get(name) {
            return format!("environment {variable}");
        }
        match self.lines.get(name) {
            Some(Some(line)) => format!("{}:{line}", self.file),
            Some(None) => self.file.clone(),
            None => "default".to_owned(),
        }
    }
}

/// A part of the configuration that is one section of the file.
trait Shown {
    /// The value of a key as TOML; `None` if it has none.
    fn value(&self, key: &str) -> Option<String>;

    /// The same as JSON.
    fn json(&self, key: &str) -> Option<Json> {
        as_json(&self.value(key)?)
    }

    /// Whether the key has a meaning here.
    fn fits(&self, _key: &str) -> bool {
        true
    }
}

/// TOML writes these strings, numbers, lists and truth values as JSON does.
fn as_json(toml: &str) -> Option<Json> {
    serde_json::from_str(toml).ok()
}

pub(super) fn to_toml(config: &Config, origins: Option<&Origins>) -> String {
    let mut out = String::new();
    let mut one = |keys: &SectionKeys, place: &str, shown: &dyn Shown| {
        if !out.is_empty() {
            out.push('\n');
        }
        section(&mut out, keys, place, shown, origins);
    };
    one(&keys::ADMIN, "admin", &config.admin);
    one(&keys::DAEMON, "daemon", &config.daemon);
    if let Some(statsd) = &config.statsd {
        one(&keys::STATSD, "metrics.statsd", statsd);
    }
    for (at, listener) in config.listeners.iter().enumerate() {
        let place = format!("listener[{at}]");
        one(&keys::LISTENER, &place, listener);
        for (at, target) in listener.targets.iter().enumerate() {
            one(&keys::TARGET, &format!("{place}.target[{at}]"), target);
        }
    }
    if let Some(sockets) = &config.sockets {
        one(&keys::SOCKETS, "sockets", sockets);
        for (at, sink) in sockets.sinks.iter().enumerate() {
            one(&keys::SINK, &format!("sockets.sink[{at}]"), sink);
        }
    }
    out
}

/// Every key with `value` (`null` if it is not set) and `origin`, by section.
pub(super) fn to_json(config: &Config, origins: &Origins) -> Json {
    let one = |keys: &SectionKeys, place: &str, shown: &dyn Shown| -> Map<String, Json> {
        let keys = keys.keys.iter().filter(|key| shown.fits(key.name));
        let entry = |key: &Key| {
            let value = shown.json(key.name).unwrap_or(Json::Null);
            let origin = origins.of(&format!("{place}.{}", key.name));
            (key.name.to_owned(), json!({ "value": value, "origin": origin }))
        };
        keys.map(entry).collect()
    };
    let listeners = config.listeners.iter().enumerate().map(|(at, listener)| {
        let place = format!("listener[{at}]");
        let targets = listener.targets.iter().enumerate();
        let targets: Vec<_> = targets
            .map(|(at, target)| one(&keys::TARGET, &format!("{place}.target[{at}]"), target))
            .collect();
        let mut section = one(&keys::LISTENER, &place, listener);
        section.insert("target".to_owned(), json!(targets));
        section
    });
    let statsd = config.statsd.as_ref().map(|statsd| one(&keys::STATSD, "metrics.statsd", statsd));
    let sockets = config.sockets.as_ref().map(|sockets| {
        let sinks = sockets.sinks.iter().enumerate();
        let sinks: Vec<_> = sinks
            .map(|(at, sink)| one(&keys::SINK, &format!("sockets.sink[{at}]"), sink))
            .collect();
        let mut section = one(&keys::SOCKETS, "sockets", sockets);
        section.insert("sink".to_owned(), json!(sinks));
        section
    });
    json!({
        "admin": one(&keys::ADMIN, "admin", &config.admin),
        "daemon": one(&keys::DAEMON, "daemon", &config.daemon),
        "metrics": { "statsd": statsd },
        "listener": listeners.collect::<Vec<_>>(),
        "sockets": sockets,
    })
}

fn section(
    out: &mut String,
    keys: &SectionKeys,
    place: &str,
    shown: &dyn Shown,
    origins: Option<&Origins>,
) {
    let mut line = |text: &str, comment: Option<&str>| {
        match comment {
            Some(comment) => writeln!(out, "{text:<40} # {comment}"),
            None => writeln!(out, "{text}"),
        }
        .expect("writing to a string does not fail")
    };
    line(keys.header, None);
    for key in keys.keys.iter().filter(|key| shown.fits(key.name)) {
        let origin = origins.map(|origins| origins.of(&format!("{place}.{}", key.name)));
        match shown.value(key.name) {
            Some(value) => line(&format!("{} = {value}", key.name), origin.as_deref()),
            None if origins.is_some() => absent(key, &mut line),
            None => {}
        }
    }
}

/// A key without a value is shown too, so that the output lists everything that can be set.
fn absent(key: &Key, line: &mut dyn FnMut(&str, Option<&str>)) {
    if let Fallback::Absent(what) = key.fallback {
        line(&format!("# {} is not set", key.name), Some(what));
    }
}

impl Shown for AdminConfig {
    fn value(&self, key: &str) -> Option<String> {
        match key {
            "listen" => Some(quoted(&self.listen.to_string())),
            "socket" => self.socket.as_ref().map(|path| quoted(&path.display().to_string())),
            _ => sockets::list(&self.socket_users),
        }
    }
}

impl Shown for DaemonConfig {
    fn value(&self, key: &str) -> Option<String> {
        Some(quoted(&match key {
            "drain_grace" => display_duration(self.drain_grace),
            _ => self.log_level.to_string(),
        }))
    }
}

impl Shown for StatsdConfig {
    fn value(&self, key: &str) -> Option<String> {
        Some(quoted(&match key {
            "to" => self.to.to_string(),
            "prefix" => self.prefix.clone(),
            _ => display_duration(self.interval),
        }))
    }
}

impl Shown for ListenerConfig {
    fn fits(&self, key: &str) -> bool {
        match self.listen {
            ListenAddress::Udp(_) => true,
            ListenAddress::Unix(_) => !UDP_LISTENER_KEYS.iter().any(|(name, _)| *name == key),
        }
    }

    fn value(&self, key: &str) -> Option<String> {
        match key {
            "name" => Some(quoted(&self.name)),
            "listen" => Some(quoted(&self.listen.to_string())),
            "receive_buffer" => Some(quoted(&display_size(self.receive_buffer_bytes as u64))),
            "ring_size" => Some(quoted(&display_size(self.ring_bytes as u64))),
            "schedule" => Some(quoted(match self.schedule {
                Schedule::Auto => "auto",
                Schedule::Inline => "inline",
                Schedule::Threaded => "threaded",
            })),
            "gather" => Some(quoted(&self.gather.map_or("off".to_owned(), display_duration))),
            "allow_sources" => prefixes(&self.allow_sources),
            "deny_sources" => prefixes(&self.deny_sources),
            _ => self.multicast_interface.as_deref().map(quoted),
        }
    }
}

impl Shown for TargetConfig {
    fn fits(&self, key: &str) -> bool {
        match &self.to {
            TargetAddress::Udp(_) => !FILE_KEYS.contains(&key),
            TargetAddress::File(_) => !UDP_KEYS.contains(&key),
            TargetAddress::Unix(_) | TargetAddress::Null => {
                !FILE_KEYS.contains(&key) && !UDP_KEYS.contains(&key)
            }
        }
    }

    fn value(&self, key: &str) -> Option<String> {
        match key {
            "name" => Some(quoted(&self.name)),
            "to" => Some(quoted(&self.to.to_string())),
            "only_sources" => prefixes(&self.only_sources),
            "sample" => self.sample.map(|sample| sample.one_in.to_string()),
            "sample_by" => self.sample.map(|sample| {
                quoted(match sample.by {
                    SampleBy::Random => "random",
                    SampleBy::Source => "source",
                })
            }),
            "rate_limit" => self.rate_limit_per_sec.map(|rate| rate.to_string()),
            "send_buffer" => {
                self.send.send_buffer_bytes.map(|bytes| quoted(&display_size(bytes as u64)))
            }
            "source_address" => self.send.source_address.map(|ip| quoted(&ip.to_string())),
            "source_port" => self.send.source_port.map(|port| port.to_string()),
            "ttl" => self.send.ttl.map(|ttl| ttl.to_string()),
            "dscp" => self.send.dscp.map(|dscp| dscp.to_string()),
            "gso" => Some(quoted(if self.gso == Gso::Auto { "auto" } else { "off" })),
            "multicast_interface" => self.send.multicast_interface.as_deref().map(quoted),
            "resolve_interval" => Some(quoted(&display_duration(self.resolve_interval))),
            "format" => Some(quoted(match self.format {
                FileFormat::Lines => "lines",
                FileFormat::LengthPrefixed => "length-prefixed",
                FileFormat::Pcap => "pcap",
            })),
            "rotate_size" => {
                Some(quoted(&self.rotate_bytes.map_or("off".to_owned(), display_size)))
            }
            // Without rotation there is nothing to keep, and the key is a mistake.
            _ => self.rotate_bytes.map(|_| self.rotate_keep.to_string()),
        }
    }
}

fn prefixes(prefixes: &[Prefix]) -> Option<String> {
    let all: Vec<String> = prefixes.iter().map(|prefix| quoted(&prefix.to_string())).collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(", ")))
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                write!(out, "\\u{:04X}", u32::from(c)).expect("writing to a string does not fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
