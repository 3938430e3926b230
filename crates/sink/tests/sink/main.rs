//! Sinks and their queues, with real files and sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "http")]
mod clickhouse;
mod durability;
mod fanout;
mod file;
#[cfg(feature = "http")]
mod http;
mod isolation;
#[cfg(feature = "kafka")]
mod kafka;
mod life;
#[cfg(feature = "nats")]
mod nats;
mod nsq;
mod outage;
#[cfg(feature = "parquet")]
mod parquet;
mod payloads;
#[cfg(feature = "redis")]
mod redis;
#[path = "../../../record/tests/record/support.rs"]
mod rows;
#[cfg(feature = "s3")]
mod s3;
#[cfg(all(feature = "kafka", feature = "http"))]
mod schema_registry;
mod sflow;
mod spool;
mod stream_errors;
mod streams;
mod support;
mod udp;
mod wire;
