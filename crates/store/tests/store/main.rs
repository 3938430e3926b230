//! Stores in real folders.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod crash;
mod faults;
mod history;
mod random_queries;
mod read_only;
mod support;
mod versions;
