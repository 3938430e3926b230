//! The share of clients that follow records, and of questions to the history.

use crate::{AdminConfig, AdminListen, Config, Sink};
use serde::Serialize;
use sink::{BatchLimits, DeliveryOptions};

/// Most clients that follow records at a time: each has two threads and a queue.
pub const FOLLOWERS_MAX: usize = 4;
/// Most memory of a follower's queue. A poll of 20,000 sockets fits.
pub const FOLLOWER_QUEUE_BYTES: usize = 8 << 20;
/// Most questions to the history that are answered at a time, each by a process of its own.
pub const QUESTIONS_MAX: usize = 2;
/// Most memory that a statement takes in such a process.
pub const QUESTION_BYTES_MAX: u64 = 128 << 20;

/// The share of the admin server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdminBudget {
    /// Records that wait for clients which follow them, and batches under way to these.
    pub followers_bytes: u64,
    /// Processes that answer questions to the history. They count as memory of the service.
    pub questions_bytes: u64,
}

impl AdminBudget {
    /// Memory of the process and of those that it starts.
    pub fn process_bytes(&self) -> u64 {
        self.followers_bytes + self.questions_bytes
    }
}

/// `None` if nobody can ask, or there is nothing to follow and no history.
pub(super) fn of(config: &Config) -> Option<AdminBudget> {
    let AdminConfig { listen, socket, grpc, .. } = &config.admin;
    let is_served = *listen != AdminListen::Off || socket.is_some() || grpc.is_some();
    let has_records =
        config.sockets.is_some() || config.flows.is_some() || !config.thresholds.is_empty();
    let has_history = config.sinks.iter().any(|sink| matches!(sink.to, Sink::Store(_)));
    if !is_served || !(has_records || has_history) {
        return None;
    }

    let batches = DeliveryOptions::default().in_flight_max + 1;
    let follower_bytes = FOLLOWER_QUEUE_BYTES + batches * BatchLimits::default().bytes;
    Some(AdminBudget {
        followers_bytes: if has_records { (FOLLOWERS_MAX * follower_bytes) as u64 } else { 0 },
        questions_bytes: if has_history { QUESTIONS_MAX as u64 * QUESTION_BYTES_MAX } else { 0 },
    })
}
