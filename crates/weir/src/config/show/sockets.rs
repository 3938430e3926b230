//! The socket collector's keys as TOML.

use super::super::SinkAddress;
use super::super::rules::FILE_SINK_KEYS;
use super::super::sockets::{Namespaces, SinkConfig, SocketsConfig};
use super::{Shown, quoted};
use serde_json::Value as Json;
use sockets::Undecided;
use text::units::{display_duration, display_size};

impl Shown for SocketsConfig {
    fn value(&self, key: &str) -> Option<String> {
        match key {
            "interval" => Some(quoted(&display_duration(self.interval))),
            "jitter" => Some(quoted(&display_duration(self.jitter))),
            "namespaces" => match &self.namespaces {
                Namespaces::Own => Some(quoted("own")),
                Namespaces::All => Some(quoted("all")),
                Namespaces::Named(names) => list(names),
            },
            "namespaces_max" => Some(self.namespaces_max.to_string()),
            "states" => list(&self.states),
            "filter" => self.filter.as_deref().map(quoted),
            "closes" => Some(self.closes.to_string()),
            "closes_undecided" => Some(quoted(match self.closes_undecided {
                Undecided::Drop => "drop",
                Undecided::Keep => "keep",
            })),
            "skip_unchanged" => Some(self.skip_unchanged.to_string()),
            "keyframe_every" => Some(self.keyframe_every.to_string()),
            "sample" => Some(self.sample.to_string()),
            "listen_every" => Some(self.listen_every.to_string()),
            "fields" => list(&self.fields),
            "table_entries_max" => Some(self.table_entries_max.to_string()),
            "event_buffer" => Some(quoted(&display_size(self.event_buffer_bytes as u64))),
            "processes" => Some(self.processes.to_string()),
            "host" => self.host.as_deref().map(quoted),
            "host_id" => self.host_id.as_deref().map(quoted),
            "tags" => tags(self),
            _ => self.helper.as_ref().map(|path| quoted(&path.display().to_string())),
        }
    }

    fn json(&self, key: &str) -> Option<Json> {
        match key {
            "tags" if self.tags.is_empty() => None,
            "tags" => Some(serde_json::json!(self.tags)),
            _ => super::as_json(&self.value(key)?),
        }
    }
}

impl Shown for SinkConfig {
    fn fits(&self, key: &str) -> bool {
        match self.to {
            SinkAddress::File(_) => true,
            SinkAddress::Udp(_) => key != "format" && !FILE_SINK_KEYS.contains(&key),
            SinkAddress::Stdout | SinkAddress::Null => !FILE_SINK_KEYS.contains(&key),
        }
    }

    fn value(&self, key: &str) -> Option<String> {
        match key {
            "name" => Some(quoted(&self.name)),
            "to" => Some(quoted(&self.to.to_string())),
            "format" => Some(quoted(self.format.name())),
            "fields" => list(&self.fields),
            "queue_size" => Some(quoted(&display_size(self.queue_bytes as u64))),
            "rotate_size" => {
                Some(quoted(&self.rotate_bytes.map_or("off".to_owned(), display_size)))
            }
            "rotate_interval" => {
                Some(quoted(&self.rotate_interval.map_or("off".to_owned(), display_duration)))
            }
            // Without rotation there is nothing to keep, and the key is a mistake.
            _ => self.rotates().then(|| self.rotate_keep.to_string()),
        }
    }
}

pub(super) fn list(texts: &[String]) -> Option<String> {
    let all: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(", ")))
}

fn tags(config: &SocketsConfig) -> Option<String> {
    let pair = |(name, value): (&String, &String)| format!("{} = {}", quoted(name), quoted(value));
    let all: Vec<String> = config.tags.iter().map(pair).collect();
    (!all.is_empty()).then(|| format!("{{ {} }}", all.join(", ")))
}
