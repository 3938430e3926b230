//! Connections that a poll's filter has rejected, so that their ends are left out as well.

use crate::table::mix;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Cookies of connections that did not pass, each with the last poll that met it: 17 bytes each, and up to twice that when the
/// map is at its emptiest. Bounded; connections that found no room are counted, and judged by their close event alone.
#[derive(Debug)]
pub(crate) struct Rejected {
    polls: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    capacity: usize,
    overflowed: u64,
}

/// Polls between two sweeps.
const SWEEP_POLLS: u32 = 8;

impl Rejected {
    /// An empty set with room for `capacity` connections.
    pub(crate) fn new(capacity: usize) -> Rejected {
        Rejected { polls: HashMap::default(), capacity, overflowed: 0 }
    }

    /// Records that a poll met a connection and the filter rejected it.
    pub(crate) fn note(&mut self, cookie: u64, poll: u32) {
        if self.polls.len() < self.capacity || self.polls.contains_key(&cookie) {
            self.polls.insert(cookie, poll);
        } else {
            self.overflowed += 1;
        }
    }

    /// Records that a poll met the remnant of a connection: if the connection was rejected, it stays so.
    pub(crate) fn see(&mut self, cookie: u64, poll: u32) {
        if let Some(seen) = self.polls.get_mut(&cookie) {
            *seen = poll;
        }
    }

    /// Forgets a connection. Returns whether it was rejected.
    pub(crate) fn take(&mut self, cookie: u64) -> bool {
        self.polls.remove(&cookie).is_some()
    }

    /// Every few polls, forgets the connections that `kept_polls` polls have not met.
    pub(crate) fn sweep(&mut self, poll: u32, kept_polls: u32) {
        if poll.is_multiple_of(SWEEP_POLLS) {
            self.polls.retain(|_, seen| poll.wrapping_sub(*seen) <= kept_polls);
        }
    }

    /// Number of connections.
    pub(crate) fn len(&self) -> usize {
        self.polls.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.polls.is_empty()
    }

    /// How often a connection found no room since the last call.
    pub(crate) fn take_overflowed(&mut self) -> u64 {
        std::mem::take(&mut self.overflowed)
    }
}

/// Hashes cookies, which are consecutive numbers that nobody chooses.
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
