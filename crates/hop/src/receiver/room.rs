//! The memory that all receivers of a listener share: for sequence numbers, parts, and datagrams that wait.

use crate::key::KeyId;
use std::collections::HashMap;

/// Maximum memory of free buffers kept for reuse, in bytes.
pub(crate) const FREE_BYTES_MAX: usize = 1 << 20;

/// Memory shared by the receivers of one listener.
///
/// It is shared by dynamic thresholds, as packet switches share their buffers: a key may have as much as is free, and a run as
/// much as its key may still have. So one key never has more than half, and one run never more than a third; `n` that want
/// everything leave an equal share for another. What a run has is never taken from it: its sequence numbers are what both ends'
/// counts rest on.
#[derive(Debug)]
pub struct Room {
    bytes_max: usize,
    used: usize,
    of_keys: HashMap<KeyId, usize>,
    free: Vec<Vec<u8>>,
    free_bytes: usize,
    /// A datagram that is put together from its parts.
    pub(super) whole: Vec<u8>,
}

/// What one run has of a [`Room`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    key: KeyId,
    bytes: usize,
}

impl Share {
    pub(super) fn new(key: KeyId) -> Share {
        Share { key, bytes: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Room {
    /// Room for this many bytes.
    pub fn new(bytes_max: usize) -> Room {
        Room {
            bytes_max,
            used: 0,
            of_keys: HashMap::new(),
            free: Vec::new(),
            free_bytes: 0,
            whole: Vec::new(),
        }
    }

    /// Bytes in use, by all runs.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Gives the run `bytes` more. False when it already has its share.
    pub(super) fn take(&mut self, share: &mut Share, bytes: usize) -> bool {
        let of_key = self.of_keys.entry(share.key).or_default();
        let (used, key) = (self.used.saturating_add(bytes), of_key.saturating_add(bytes));
        let left = self.bytes_max.checked_sub(used).and_then(|free| free.checked_sub(key));
        let is_allowed = left.is_some_and(|left| share.bytes + bytes <= left);
        if is_allowed {
            share.bytes += bytes;
            (self.used, *of_key) = (used, key);
        }
        is_allowed
    }

    pub(super) fn give_back(&mut self, share: &mut Share, bytes: usize) {
        share.bytes -= bytes;
        self.used -= bytes;
        if let Some(of_key) = self.of_keys.get_mut(&share.key) {
            *of_key -= bytes;
        }
    }

    /// A buffer that holds these bytes.
    pub(super) fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut own = self.free.pop().unwrap_or_default();
        self.free_bytes -= own.capacity();
        if own.capacity() > 2 * bytes.len() {
            // What a run has is charged by length.
            own = Vec::new();
        }
        own.reserve_exact(bytes.len());
        own.extend_from_slice(bytes);
        own
    }

    /// Keeps a buffer for reuse.
    pub(super) fn reuse(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.free_bytes + buffer.capacity() <= FREE_BYTES_MAX {
            self.free_bytes += buffer.capacity();
            self.free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    /// Runs of these keys take whatever they are given, in turn. Returns what each has.
    fn fill(room: &mut Room, keys: &[u64]) -> Vec<usize> {
        let mut shares: Vec<_> = keys.iter().map(|key| Share::new(KeyId(*key))).collect();
        let mut is_full = false;
        while !is_full {
            is_full = true;
            for share in &mut shares {
                is_full &= !room.take(share, 100);
            }
        }
        shares.iter().map(Share::bytes).collect()
    }

    fn check(keys: &[u64], each: usize) {
        let mut room = Room::new(MAX);
        let taken = fill(&mut room, keys);
        assert_eq!(room.used(), taken.iter().sum::<usize>());
        for bytes in taken {
            assert!(bytes.abs_diff(each) < MAX / 100, "{bytes}, not {each}");
        }
        let left = MAX - room.used();
        let another = fill(&mut room, &[99])[0];
        assert!(another > left / 3 - 200, "{another} of {left} for another key");
    }

    #[test]
    fn those_who_want_everything_leave_a_share_for_another() {
        check(&[1], MAX / 3);
        check(&[1, 1, 1, 1], MAX / 9);
        check(&[1, 2], MAX / 4);
        check(&[1, 2, 3, 4], MAX / 6);
        let mut room = Room::new(MAX);
        let runs = fill(&mut room, &[1; 1_000]);
        assert!(runs.iter().sum::<usize>() <= MAX / 2, "half for one key");
    }

    #[test]
    fn what_is_given_back_is_there_again() {
        let (mut room, mut share) = (Room::new(MAX), Share::new(KeyId(1)));
        assert!(room.take(&mut share, MAX / 3));
        assert!(!room.take(&mut share, MAX / 3));
        room.give_back(&mut share, MAX / 3);
        assert_eq!((room.used(), share.bytes()), (0, 0));
        assert!(room.take(&mut share, MAX / 3));
        assert!(!room.take(&mut share, usize::MAX));
    }

    #[test]
    fn free_buffers_are_bounded_and_fit_what_they_are_for() {
        let mut room = Room::new(MAX);
        for _ in 0..100 {
            room.reuse(Vec::with_capacity(60_000));
        }
        assert!(room.free_bytes <= FREE_BYTES_MAX && room.free.len() == FREE_BYTES_MAX / 60_000);
        assert!(room.buffer(&[1; 10]).capacity() < 100);
        assert_eq!(room.buffer(&[1; 50_000]).capacity(), 60_000);
    }
}
