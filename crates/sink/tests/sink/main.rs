//! Sinks and their queues, with real files and sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fanout;
mod file;
#[cfg(feature = "kafka")]
mod kafka;
mod life;
mod nsq;
mod spool;
mod support;
mod udp;
mod wire;
