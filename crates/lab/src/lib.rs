//! The lab: experiments with transports and relays in separate networks.
//!
//! - [`experiment`]: transports over a path that loses packets: settings and measurements.
//! - [`transport`]: how messages travel: UDP, and TCP in several variants.
//! - [`network`]: two hosts and a switch, with random loss on the links.
//! - [`relay_sweep`]: a relay under growing load, and the rate at which it begins to lose.
//! - [`sflow`]: figures from sFlow when datagrams are lost: bias, coverage, and time to an alarm.
//! - [`stages`]: the cost of each stage of a relay, and the resulting rate for other machines.
//! - [`statistics`]: quantiles, means and their intervals over runs.
//! - [`report`]: table, verdicts, charts, page, CSV and JSON of an experiment.

#![forbid(unsafe_code)]

pub mod experiment;
pub mod network;
pub mod relay_sweep;
pub mod report;
pub mod sflow;
pub mod stages;
pub mod statistics;
pub mod transport;

mod about;
mod machine;

pub use about::{About, Beginning};
pub use machine::Machine;
