//! The places of clients that watch the ledger.

use super::WATCHERS_MAX;
use crate::holder::{Holder, place_to_give};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All of them, in the order in which they were taken.
#[derive(Default)]
pub(super) struct Watchers(Mutex<Vec<Place>>);

struct Place {
    holder: Holder,
    /// Notified when another client gets the place.
    given: Arc<Notify>,
}

impl Watchers {
    /// Takes a place, if need be from the client that has most of them. `None` if all are taken and nobody has to give one.
    pub(super) fn take(self: &Arc<Watchers>, holder: Holder) -> Option<Watcher> {
        let mut places = self.lock();
        if places.len() >= WATCHERS_MAX {
            let holders: Vec<_> = places.iter().map(|place| place.holder).collect();
            let given = places.remove(place_to_give(&holders, holder)?);
            given.given.notify_one();
        }
        let given = Arc::new(Notify::new());
        places.push(Place { holder, given: Arc::clone(&given) });
        Some(Watcher { watchers: Arc::clone(self), given })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a client that watches. Dropping it leaves the place.
pub(super) struct Watcher {
    watchers: Arc<Watchers>,
    given: Arc<Notify>,
}

impl Watcher {
    /// Waits until another client has the place.
    pub(super) async fn was_given(&self) {
        self.given.notified().await;
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watchers.lock().retain(|place| !Arc::ptr_eq(&place.given, &self.given));
    }
}
