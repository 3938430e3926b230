//! Rows of a table as a Parquet file: protobuf messages in, columns out, without `arrow`.
//!
//! A file has all columns of its table, with or without values, so that all files of a table fit together. `docs/parquet.schema`
//! shows the column of each field:
//!
//! - Numbers are INT32 and INT64, because not every reader supports unsigned types. No field has values of 2^63 or more; such a
//!   number would keep its bits and become negative.
//! - `*_unix_ns` is an INT64, and also a TIMESTAMP in microseconds, in a column without the suffix: readers without nanosecond
//!   support refuse the whole file.
//! - Words are text; a word without a name is its number as text. Addresses are canonical text, tags are a JSON object as text.
//! - Unknown values are NULL.

#![forbid(unsafe_code)]

mod column;
mod encodings;
mod layout;
mod pages;
mod texts;
mod writer;

pub use layout::Table;
pub use writer::{GROUP_MEMORY_MAX_BYTES, TableWriter};
