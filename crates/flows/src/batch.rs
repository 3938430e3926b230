//! Samples of one datagram that a definition counts, until all of them are added to their flows.

use crate::definition::Sample;
use crate::estimate::Sums;

/// As many as datagrams have, as a rule.
const SAMPLES_MAX: usize = 16;

/// A sample that waits.
pub(crate) struct Waiting {
    /// Of its key.
    pub(crate) hash: u32,
    /// What it adds to its flow.
    pub(crate) value: f64,
    /// The sample.
    pub(crate) sample: Sample,
    /// What all samples of its sampler are, this one included.
    pub(crate) all: Sums,
}

/// Samples with their keys.
pub(crate) struct Batch {
    key_len: usize,
    /// One behind the other; behind those of the samples that wait, the next one is put together.
    keys: Vec<u8>,
    waiting: Vec<Waiting>,
}

impl Batch {
    /// Of keys of this length.
    pub(crate) fn new(key_len: usize) -> Batch {
        let waiting = Vec::with_capacity(SAMPLES_MAX);
        Batch { key_len, keys: vec![0; SAMPLES_MAX * key_len], waiting }
    }

    /// The bytes that it takes.
    pub(crate) const fn memory_bytes(key_len: usize) -> usize {
        SAMPLES_MAX * (key_len + size_of::<Waiting>())
    }

    /// Whether no more may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() == SAMPLES_MAX
    }

    /// Where the key of the next sample is put together. There is room for it.
    pub(crate) fn next_key(&mut self) -> &mut [u8] {
        let start = self.waiting.len() * self.key_len;
        &mut self.keys[start..start + self.key_len]
    }

    /// Has a sample wait, whose key is in [`next_key`](Self::next_key).
    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    /// The hash of the one that came last.
    pub(crate) fn last_hash(&self) -> Option<u32> {
        self.waiting.last().map(|one| one.hash)
    }

    /// Those that wait, with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Waiting)> {
        let key = |at: usize| &self.keys[at * self.key_len..][..self.key_len];
        self.waiting.iter().enumerate().map(move |(at, one)| (key(at), one))
    }

    /// Has none wait.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}
