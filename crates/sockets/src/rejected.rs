//! Connections that a poll's filter has rejected, so that their ends are left out as well.

use crate::table::mix;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Cookies of connections that did not pass, each with the poll that met it last: 17 bytes each, and twice that at most while
/// the map is as empty as it gets. Bounded; what found no room is counted, and judged by its close event alone.
#[derive(Debug)]
pub(crate) struct Rejected {
    polls: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    capacity: usize,
    overflowed: u64,
}

/// Polls between two looks for what is gone.
const SWEEP_POLLS: u32 = 8;

impl Rejected {
    /// Room for `capacity` connections.
    pub(crate) fn new(capacity: usize) -> Rejected {
        Rejected { polls: HashMap::default(), capacity, overflowed: 0 }
    }

    /// Notes that a poll met a connection and the filter rejected it.
    pub(crate) fn note(&mut self, cookie: u64, poll: u32) {
        if self.polls.len() < self.capacity || self.polls.contains_key(&cookie) {
            self.polls.insert(cookie, poll);
        } else {
            self.overflowed += 1;
        }
    }

    /// Notes that a poll met what is left of a connection: if it was rejected it stays so.
    pub(crate) fn see(&mut self, cookie: u64, poll: u32) {
        if let Some(seen) = self.polls.get_mut(&cookie) {
            *seen = poll;
        }
    }

    /// Forgets a connection; whether it was rejected.
    pub(crate) fn take(&mut self, cookie: u64) -> bool {
        self.polls.remove(&cookie).is_some()
    }

    /// Forgets, every few polls, those that `kept_polls` polls have not met.
    pub(crate) fn sweep(&mut self, poll: u32, kept_polls: u32) {
        if poll.is_multiple_of(SWEEP_POLLS) {
            self.polls.retain(|_, seen| poll.wrapping_sub(*seen) <= kept_polls);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.polls.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.polls.is_empty()
    }

    /// How often one found no room, since the last time that this was asked.
    pub(crate) fn take_overflowed(&mut self) -> u64 {
        std::mem::take(&mut self.overflowed)
    }
}

/// Cookies are consecutive numbers, and nobody chooses them.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted_and_what_has_is_kept() {
        let mut rejected = Rejected::new(100);
        for poll in 1..=2 {
            for cookie in 0..150 {
                rejected.note(cookie, poll);
            }
        }
        assert_eq!((rejected.len(), rejected.take_overflowed()), (100, 100));
        assert_eq!(rejected.take_overflowed(), 0);
        assert!(rejected.take(7) && !rejected.take(7) && !rejected.take(120));
    }

    #[test]
    fn those_that_no_poll_meets_are_forgotten() {
        let mut rejected = Rejected::new(100);
        for cookie in 0..3 {
            rejected.note(cookie, 1);
        }
        for poll in 2..=40 {
            rejected.see(1, poll);
            rejected.see(77, poll);
            rejected.sweep(poll, 30);
        }
        assert!(!rejected.take(0) && rejected.take(1) && !rejected.take(2) && !rejected.take(77));
    }
}
