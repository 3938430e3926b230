//! Chunks between the queue and the batches.

use crate::batcher::{EntryId, Fed};
use crate::queue::Queue;
use ledger::Amount;
use std::sync::Arc;

/// Where chunks wait until a batch has room for them.
pub(crate) struct Backlog {
    queue: Arc<Queue>,
}

impl Backlog {
    pub(crate) fn new(queue: Arc<Queue>) -> Backlog {
        Backlog { queue }
    }

    /// The oldest chunk that waits.
    pub(crate) fn next(&mut self) -> Option<Fed> {
        let chunk = self.queue.pop()?;
        Some(Fed { chunk, entry: None, is_repeated: false })
    }

    /// Rows of entries whose fate is known.
    pub(crate) fn settle(&mut self, _rows: &[(EntryId, u64)]) {}

    /// What waits in the spool, without what was handed on.
    pub(crate) fn unread(&self) -> Amount {
        Amount::default()
    }
}
