//! Experiments: runs of transports over a path that loses packets, and what was measured.

pub mod model;
