//! Sinks and their queues, with real files and sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fanout;
mod file;
mod isolation;
mod life;
mod spool;
mod support;
mod udp;
mod wire;
