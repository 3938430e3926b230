//! Load for a path that carries datagrams: a generator that marks every datagram and a receiver that checks every mark.
//!
//! Both verify a relay's promise from outside, so they share no code with it except the system calls (`sys`): a bug
//! shared by the tool and its judge cannot be seen.
//!
//! - [`check`]: the check data in every datagram, and the payloads that carry it.
//! - [`generate`]: sends marked datagrams on an absolute schedule, with heartbeats that carry the running total.
//! - [`verify`]: receives, and reports what is missing, duplicate, reordered, corrupt, truncated or late.
//! - [`spin`]: sends and receives on one thread, at the highest rates.
//! - [`search`]: chooses the next rate in a search for the highest one.
//! - [`join`]: compares what was received with a relay's ledger: where each datagram was lost.

#![forbid(unsafe_code)]

pub mod chart;
pub mod check;
pub mod generate;
pub mod join;
pub mod search;
pub mod sflow;
pub mod spin;
pub mod verify;

mod address;
mod latency;
mod random;
mod rate;
mod timeline;

pub use address::Address;
pub use check::Payload;
pub use latency::{Bucket, Latencies, LatencyReport};
pub use random::Random;
pub use timeline::Timeline;
