//! Real listeners and targets on loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aggregates;
mod clocks;
mod group;
mod link;
mod reload;
mod rows;
mod support;
mod tee;
