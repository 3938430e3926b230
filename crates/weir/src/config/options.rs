//! What the library crates are told, from the configuration.

use super::{ListenAddress, ListenerConfig, TargetAddress, TargetConfig};
use relay::{FileOptions, ListenerOptions, SocketOwner, TargetOptions};
use std::path::Path;
use sys::socket::ListenOptions;

impl ListenerConfig {
    /// What the relay is told about this listener.
    pub fn listener_options(&self, socket_owner: SocketOwner) -> ListenerOptions {
        ListenerOptions {
            name: self.name.clone(),
            ring_bytes: self.ring_bytes,
            schedule: self.schedule,
            allow_sources: self.allow_sources.clone(),
            deny_sources: self.deny_sources.clone(),
            socket_owner,
            gather: self.gather,
        }
    }

    /// How its UDP socket is opened.
    pub fn listen_options(&self) -> ListenOptions {
        ListenOptions {
            multicast_interface: self.multicast_interface.clone(),
            ..ListenOptions::default()
        }
    }

    /// Whether it is the same but for its targets: on reload its socket and ring stay as they are.
    pub fn is_same_listener(&self, other: &ListenerConfig) -> bool {
        let without_targets =
            |config: &ListenerConfig| ListenerConfig { targets: Vec::new(), ..config.clone() };
        without_targets(self) == without_targets(other)
    }

    /// The unix socket that it listens on.
    pub fn unix_path(&self) -> Option<&Path> {
        match &self.listen {
            ListenAddress::Unix(path) => Some(path),
            ListenAddress::Udp(_) => None,
        }
    }
}

impl TargetConfig {
    /// What the relay is told about this target.
    pub fn target_options(&self) -> TargetOptions {
        TargetOptions {
            name: self.name.clone(),
            only_sources: self.only_sources.clone(),
            sample: self.sample,
            rate_limit_per_sec: self.rate_limit_per_sec,
        }
    }

    /// How its file is written; `None` unless it is a file target.
    pub fn file_options(&self) -> Option<FileOptions> {
        match &self.to {
            TargetAddress::File(path) => Some(FileOptions {
                path: path.clone(),
                format: self.format,
                rotate_bytes: self.rotate_bytes,
                rotate_keep: self.rotate_keep,
            }),
            _ => None,
        }
    }
}
