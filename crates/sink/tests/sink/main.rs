//! Sinks and their queues, with real files and sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fanout;
mod file;
mod life;
#[cfg(feature = "nats")]
mod nats;
mod outage;
#[cfg(feature = "redis")]
mod redis;
mod spool;
mod stream_errors;
mod streams;
mod support;
mod udp;
mod wire;
