//! Sinks and their queues, with real files and sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "http")]
mod clickhouse;
mod fanout;
mod file;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod life;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
#[path = "../../../record/tests/record/support.rs"]
mod rows;
#[cfg(feature = "s3")]
mod s3;
mod spool;
mod support;
mod udp;
mod wire;
