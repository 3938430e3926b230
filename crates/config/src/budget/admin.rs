//! The share of clients that follow records.

use crate::{AdminConfig, AdminListen, Config};
use serde::Serialize;
use sink::{BatchLimits, DeliveryOptions};

/// Most clients that follow records at a time: each has two threads and a queue.
pub const FOLLOWERS_MAX: usize = 4;
/// Most memory of a follower's queue. A poll of 20,000 sockets fits.
pub const FOLLOWER_QUEUE_BYTES: usize = 8 << 20;

/// The share of the admin server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdminBudget {
    /// Records that wait for clients which follow them, and batches under way to these.
    pub followers_bytes: u64,
}

impl AdminBudget {
    /// Memory of the process.
    pub fn process_bytes(&self) -> u64 {
        self.followers_bytes
    }
}

/// `None` if nobody can ask, or nothing can be followed.
pub(super) fn of(config: &Config) -> Option<AdminBudget> {
    let AdminConfig { listen, socket, grpc, .. } = &config.admin;
    let is_served = *listen != AdminListen::Off || socket.is_some() || grpc.is_some();
    let has_records =
        config.sockets.is_some() || config.flows.is_some() || !config.thresholds.is_empty();
    let batches = DeliveryOptions::default().in_flight_max + 1;
    let one = FOLLOWER_QUEUE_BYTES + batches * BatchLimits::default().bytes;
    let followers_bytes = (FOLLOWERS_MAX * one) as u64;
    (is_served && has_records).then_some(AdminBudget { followers_bytes })
}
