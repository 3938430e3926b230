//! The history of one machine, and SQL on it.
//!
//! A [`Writer`] inserts rows in batches, one transaction each. Rows for the most frequent queries go to SQLite as they arrive:
//! rollups by minute and hour with mergeable sketches of round-trip times, closes, polls, flows, events, and increments of the
//! ledger. Raw rows go to a short *hot segment*, an SQLite table that holds the messages as they arrived. After some minutes, a
//! low-priority thread *seals* the segment: its rows become a Parquet file, ordered by connection. Once a transaction has named
//! the file, readers read it and not the segment's table, whose rows are then deleted a few at a time. For every reader and after
//! every crash, a row is therefore read either from the segment or from the file.
//!
//! A [`Reader`] answers SQL. One virtual table, `sockets`, reads segments and files alike. Statements can only read: an
//! authorizer refuses everything else, and a deadline stops statements that take too long.

// `VTab` and `VTabCursor` of rusqlite are unsafe traits; `table.rs`, and nothing else, implements them and guarantees their
// layout.
#![deny(unsafe_code)]

mod access;
mod arrivals;
mod catalog;
mod checkpoint;
mod dialect;
mod error;
mod foreign;
mod functions;
mod ledger_rows;
mod named;
mod query;
mod retention;
mod rollup;
mod scan;
mod schema;
mod seal;
mod sketch;
mod sockets;
mod table;
mod tables;
mod writer;

pub use access::{Audience, Clearance, TABLES, audience};
pub use dialect::ClickHouse;
pub use error::Error;
pub use named::{NAMED, Named, Parameters, expand, expand_for};
pub use query::{Answer, Column, Limits, Reader, Value};
pub use schema::SCHEMA_VERSION;
pub use sketch::Sketch;
pub use sockets::socket_columns;
pub use tables::row_tables;
pub use writer::{Commits, Figures, Inserted, Options, Stepped, Writer};
