//! `weir sockets` as a user runs it: real sockets, the real kernel, and `ss` beside it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod captures;
mod command;
mod follow;
mod formats;
mod like_ss;
mod namespaces;
mod reading;
mod receive;
mod rig;
mod ss;
#[path = "../support/mod.rs"]
mod support;
