//! Checks that the servers, readers and faults that the sink tests rely on work as described.

#![expect(clippy::unwrap_used, reason = "tests")]

mod proxy;
mod readers;
mod servers;
