//! The collector on the running kernel, in network namespaces of the tests' own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attribution;
mod choices;
mod closing_ends;
mod collector;
mod helper;
mod new_namespaces;
mod support;
