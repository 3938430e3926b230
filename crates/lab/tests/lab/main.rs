//! Experiments in a lossy network of their own, and their reports.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod experiment;
mod network;
mod relay_sweep;
mod report;
mod sflow;
