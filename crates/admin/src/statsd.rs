//! StatsD push (in the works).
use std::sync::atomic::AtomicU64;

/// What the push counts.
#[derive(Debug, Default)]
pub struct Counts {
    pub(crate) pushes: AtomicU64,
    pub(crate) failures: AtomicU64,
}
