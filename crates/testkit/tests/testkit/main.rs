//! The servers, readers and faults that the tests of sinks rely on do what they say.

#![expect(clippy::unwrap_used, reason = "tests")]

mod proxy;
mod readers;
mod servers;
