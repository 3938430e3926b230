//! One machine's history, and SQL on it.
//!
//! A [`Writer`] takes rows in batches: one batch is one transaction. It keeps what people ask for most as it comes, in SQLite:
//! rollups by minute and hour with mergeable sketches of round-trip times, closes, polls, flows, events, and differences of the ledger. Raw rows
//! go into a short *hot segment*, a table of SQLite whose rows are the messages as they came; after minutes a thread of low
//! priority *seals* it: the rows become a Parquet file, ordered by connection, and the segment is dropped in the transaction that
//! names the file. So a row is in the segment or in the file, for every reader and after every crash.
//!
//! A [`Reader`] answers SQL. One virtual table, `sockets`, reads segments and files alike. Statements can only read: an authorizer
//! refuses everything else, and a deadline ends what takes too long.

// `VTab` and `VTabCursor` of rusqlite are unsafe traits: the layout that they promise is in `table.rs`, and there alone.
#![deny(unsafe_code)]

mod catalog;
mod error;
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

pub use error::Error;
pub use named::{NAMED, Named, Parameters, expand};
pub use query::{Answer, Column, Limits, Reader, Value};
pub use schema::SCHEMA_VERSION;
pub use sketch::Sketch;
pub use sockets::socket_columns;
pub use writer::{Figures, Inserted, Options, Stepped, Writer};
