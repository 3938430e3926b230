//! Independent decoders read what the encoders write.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cells;
mod clickhouse;
mod datagrams;
mod encodings;
mod flows;
mod independent;
mod protobuf;
mod rows;
mod support;
