//! The last entries of mitigations, for those who look at the page.

use mitigate::Entry;
use serde_json::{Value as Json, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries that are kept: what a page shows.
const ENTRIES_MAX: usize = 50;

/// The last entries, oldest first. All clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct Recent(Arc<Mutex<VecDeque<Json>>>);

impl Recent {
    /// Adds an entry, in the place of the oldest if there are too many.
    pub(super) fn push(&self, entry: &Entry, unix_ns: u64) {
        let mut json = entry.to_json();
        json["time_unix_ns"] = json!(unix_ns.to_string());
        let mut entries = self.lock();
        if entries.len() >= ENTRIES_MAX {
            entries.pop_front();
        }
        entries.push_back(json);
    }

    /// What is kept.
    pub(crate) fn entries(&self) -> Vec<Json> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Json>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entries_are_kept() {
        let recent = Recent::default();
        for at in 0..60_u64 {
            recent.clone().push(&Entry::Connected { speaker: at.to_string() }, at);
        }
        let entries = recent.entries();
        assert_eq!(entries.len(), ENTRIES_MAX);
        assert_eq!(
            (&entries[0]["speaker"], &entries[49]["time_unix_ns"]),
            (&json!("10"), &json!("59"))
        );
    }
}
