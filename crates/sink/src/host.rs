//! What sinks are told about this host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts changes of this host's addresses, routes and interfaces. Shared between sinks and whoever hears of the changes: an
/// open socket or connection may depend on what is gone.
#[derive(Clone, Debug, Default)]
pub struct HostChanges(Arc<AtomicU64>);

impl HostChanges {
    /// Records a change.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there was a change since `seen`, which becomes the current count.
    pub(crate) fn has_changed(&self, seen: &mut u64) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        std::mem::replace(seen, now) != now
    }
}
