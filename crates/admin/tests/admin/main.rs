//! The admin server over HTTP, and the content of its pages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod flows;
mod http;
mod metrics;
mod rules;
mod server;
mod support;
