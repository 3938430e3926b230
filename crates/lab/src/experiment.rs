//! Experiments: runs of transports over a path that loses packets, and what was measured.

pub mod flow;
pub mod model;
pub mod preset;
mod probe;
pub mod runner;

use std::time::Duration;

/// Between two samples of the age of information.
pub const AGE_INTERVAL: Duration = Duration::from_millis(10);
