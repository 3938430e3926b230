//! A part of the table that never moves.

use super::Entry;

/// Entries per block. Growing the table by blocks copies and frees nothing.
pub(super) const BLOCK_ENTRIES: usize = 1_024;

/// Consecutive places.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) entries: Vec<Entry>,
    /// One bit for each place in use; the entries in the others have been removed.
    pub(super) used: [u64; BLOCK_ENTRIES / 64],
}

impl Block {
    pub(super) fn new() -> Block {
        Block { entries: Vec::with_capacity(BLOCK_ENTRIES), used: [0; BLOCK_ENTRIES / 64] }
    }

    pub(super) fn is_used(&self, at: usize) -> bool {
        self.used[at / 64] & 1 << (at % 64) != 0
    }

    pub(super) fn set_used(&mut self, at: usize) {
        self.used[at / 64] |= 1 << (at % 64);
    }

    pub(super) fn set_free(&mut self, at: usize) {
        self.used[at / 64] &= !(1 << (at % 64));
    }
}
