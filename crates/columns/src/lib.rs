//! Rows of a table as a Parquet file: protobuf messages in, columns out, without `arrow`.
//!
//! A file has all columns of its table, whichever have values, so that the files of a table always fit together. What a field
//! becomes is in `docs/parquet.schema`:
//!
//! - Numbers are INT32 and INT64: not every reader takes unsigned ones. A number from 2^63 on, which no field of today has, keeps its
//!   bits and so becomes negative.
//! - `*_unix_ns` is an INT64, and once more a TIMESTAMP in microseconds, in a column without the unit: readers without nanoseconds
//!   refuse the whole file.
//! - Words are text, one that has no name here its number as text. Addresses are canonical text, tags are text with a JSON object.
//! - What is not known is NULL.

#![forbid(unsafe_code)]

mod column;
mod encodings;
mod layout;
mod pages;
mod texts;
mod writer;

pub use layout::Table;
pub use writer::{GROUP_MEMORY_MAX_BYTES, TableWriter};
