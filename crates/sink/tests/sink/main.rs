//! Sinks and their queues, with real files and sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fanout;
mod file;
#[cfg(feature = "kafka")]
mod kafka;
mod life;
mod nsq;
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
