//! ClickHouse over HTTP: each batch of one kind of row is one `INSERT`.
//!
//! Rows are sent as column blocks (`Native`), which the engine ingests faster than rows: it needs no schema on the server, and
//! keeps enum words of a newer kernel as their numbers. The official crate would add only its own row encoder to the same HTTP.

#[cfg(feature = "http")]
mod answers;
#[cfg(feature = "http")]
mod ask;
#[cfg(feature = "http")]
mod columns;
#[cfg(feature = "http")]
mod insert;
#[cfg(feature = "http")]
mod tables;

#[cfg(feature = "http")]
pub use {
    ask::{AskError, AskErrorKind, AskLimits, Asker, Lines},
    insert::clickhouse,
};

use crate::http::Compression;
use crate::secret::{Login, TlsOptions};
use record::FieldSet;
use std::time::Duration;

/// A ClickHouse server.
#[derive(Clone, Debug)]
pub struct ClickHouseOptions {
    /// `http://host:port` or `https://host:port`.
    pub url: String,
    pub database: String,
    /// Prefix of all table names.
    pub table_prefix: String,
    pub login: Login,
    pub tls: TlsOptions,
    /// Timeout of a whole request, including its answer.
    pub request_timeout: Duration,
    pub compression: Compression,
    /// The fields of socket records; columns of other fields are empty.
    pub fields: FieldSet,
    pub missing_tables: MissingTables,
    pub duplicates: Duplicates,
    pub insertion: Insertion,
}

/// What to do when a table, or the database, does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissingTables {
    /// Retry batches until somebody creates them.
    #[default]
    Awaited,
    /// Create them as in `deploy/clickhouse`, with a deduplication window.
    Created,
}

/// What a table does with a batch that it already has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duplicates {
    /// Unknown.
    #[default]
    Kept,
    /// It stores it once: the table is replicated, or has `non_replicated_deduplication_window`.
    Removed,
}

/// When the server writes a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Insertion {
    /// Each batch separately.
    #[default]
    AtOnce,
    /// Together with batches of other clients (`async_insert`). The server answers once the rows are written.
    Gathered,
}
