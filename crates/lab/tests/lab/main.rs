//! Experiments in a separate, lossy network, and their reports.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod experiment;
mod network;
mod relay_sweep;
mod report;
mod screens;
mod sflow;
