//! Load for a path that carries datagrams: a generator that marks every datagram and a receiver that checks every mark.
//!
//! Both prove a relay's promise from outside, so they share no code with it but the system calls (`sys`): a bug that
//! tool and judge share cannot be seen.
//!
//! - [`check`]: the check data in every datagram, and the payloads that carry it.
//! - [`generate`]: sends marked datagrams on an absolute schedule, with heartbeats that carry the running total.
//! - [`verify`]: receives, and says what is missing, duplicate, reordered, corrupt, truncated or late.
//! - [`join`]: what was received, held against a relay's ledger: where each datagram was lost.

#![forbid(unsafe_code)]

pub mod check;
pub mod generate;
pub mod join;
pub mod verify;

mod address;
mod latency;
mod random;
mod timeline;

pub use address::Address;
pub use check::Payload;
pub use latency::{Bucket, LatencyReport};
pub use random::Random;
pub use timeline::Timeline;
