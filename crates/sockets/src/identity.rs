//! Identifies a record: its run, host and kernel, and the end of a connection it describes.

use crate::attribution::Host;
use crate::ends::Role;
use record::{ConnectionRole, RecordKind, SCHEMA_VERSION, SocketRecord, Tags};
use std::hash::{BuildHasher, Hasher, RandomState};

/// What all records of a collector have in common.
#[derive(Clone, Copy)]
pub struct Identity<'h> {
    /// The host.
    pub host: &'h Host,
    /// Names and values from the configuration.
    pub tags: &'h [(&'h str, &'h str)],
    /// See [`run_id`].
    pub run_id: u64,
}

/// A random number from the kernel that identifies one run of a collector. Above 0 and below 2^63, because many stores have no
/// larger integer.
pub fn run_id() -> u64 {
    // The standard library seeds its hash maps from the kernel's random numbers.
    (RandomState::new().build_hasher().finish() >> 1).max(1)
}

impl<'h> Identity<'h> {
    /// A record that carries its run, host and boot.
    #[must_use]
    pub fn record(&self, kind: RecordKind, time_unix_ns: u64) -> SocketRecord<'h> {
        SocketRecord {
            record_kind: Some(kind),
            time_unix_ns: Some(time_unix_ns),
            host: self.host.name(),
            host_id: self.host.host_id(),
            boot_id: self.host.boot_id(),
            kernel_release: self.host.kernel_release(),
            run_id: Some(self.run_id),
            schema_version: Some(SCHEMA_VERSION),
            tags: (!self.tags.is_empty()).then(|| Tags::new(self.tags)),
            ..SocketRecord::default()
        }
    }
}

impl Role {
    /// The word for the role in records.
    pub(crate) fn word(self) -> ConnectionRole {
        match self {
            Role::Opener => ConnectionRole::OPENER,
            Role::Acceptor => ConnectionRole::ACCEPTOR,
        }
    }
}
