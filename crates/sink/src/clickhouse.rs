//! ClickHouse over HTTP: one batch of one kind of row is one `INSERT`.
//!
//! Rows go as blocks of columns (`Native`), which the engine takes faster than rows: it needs no schema on the server, and keeps
//! words of a newer kernel as their numbers. The official crate would add only its own row encoder to the same HTTP.

#[cfg(feature = "http")]
mod answers;
#[cfg(feature = "http")]
mod columns;
#[cfg(feature = "http")]
mod insert;
#[cfg(feature = "http")]
mod tables;

#[cfg(feature = "http")]
pub use insert::clickhouse;

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
    /// Stands before the names of all tables.
    pub table_prefix: String,
    pub login: Login,
    pub tls: TlsOptions,
    /// For a whole request with its answer.
    pub request_timeout: Duration,
    pub compression: Compression,
    /// What records of sockets have; columns of other fields are empty.
    pub fields: FieldSet,
    pub missing_tables: MissingTables,
    pub duplicates: Duplicates,
    pub insertion: Insertion,
}

/// What happens where a table, or the database, is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissingTables {
    /// Somebody makes them; until then batches are tried again.
    #[default]
    Awaited,
    /// They are made as `deploy/clickhouse` has them, with a window for deduplication.
    Created,
}

/// What a table does with a batch that it has already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duplicates {
    /// Nothing is known of it.
    #[default]
    Kept,
    /// It takes it once: the table is replicated, or has `non_replicated_deduplication_window`.
    Removed,
}

/// When the server writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Insertion {
    /// Each batch by itself.
    #[default]
    AtOnce,
    /// Together with those of others (`async_insert`). It answers when the rows are written.
    Gathered,
}
