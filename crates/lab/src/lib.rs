//! The lab: a generator that marks every datagram and a receiver that checks every mark.
//!
//! Both prove a relay's promise from outside, so they share no code with it but the system calls (`sys`): a bug that
//! tool and judge share cannot be seen.
//!
//! - [`check`]: the check data in every datagram, and the payloads that carry it.
//! - [`generate`]: sends marked datagrams on an absolute schedule, with heartbeats that carry the running total.
//! - [`verify`]: receives, and says what is missing, duplicate, reordered, corrupt, truncated or late.
//! - [`experiment`]: transports over a path that loses packets: what was asked for and what was measured.
//! - [`transport`]: how messages travel: UDP, and TCP in several ways.
//! - [`network`]: two hosts and a switch of the lab's own, with random loss on the links.
//! - [`relay_sweep`]: a relay under growing load, and the rate at which it begins to lose.
//! - [`telemetry`]: what an observer still sees of a source through a network that loses packets.
//! - [`statistics`]: quantiles, means and their intervals over runs.
//! - [`report`]: table, verdicts, charts, page, CSV and JSON of an experiment.

#![forbid(unsafe_code)]

pub mod check;
pub mod experiment;
pub mod generate;
pub mod network;
pub mod relay_sweep;
pub mod report;
pub mod statistics;
pub mod telemetry;
pub mod transport;
pub mod verify;

mod about;
mod address;
mod latency;
mod random;
mod timeline;

pub use about::About;
pub use address::Address;
pub use check::Payload;
pub use latency::{Bucket, LatencyReport};
pub use timeline::Timeline;
