//! Samples of one datagram that a definition counts, until all of them are added to their flows.

use crate::definition::Sample;
use crate::estimate::Sums;

/// Maximum number of waiting samples: usually as many as a datagram has.
const SAMPLES_MAX: usize = 16;

/// A waiting sample.
pub(crate) struct Waiting {
    /// Hash of its key.
    pub(crate) hash: u32,
    /// What it adds to its flow.
    pub(crate) value: f64,
    /// The sample.
    pub(crate) sample: Sample,
    /// The sums over all samples of its vantage, including this one.
    pub(crate) all: Sums,
}

/// Samples with their keys.
pub(crate) struct Batch {
    key_len: usize,
    /// Concatenated keys; the key of the next sample is built behind those of the waiting ones.
    keys: Vec<u8>,
    waiting: Vec<Waiting>,
}

impl Batch {
    /// An empty batch for keys of this length.
    pub(crate) fn new(key_len: usize) -> Batch {
        let waiting = Vec::with_capacity(SAMPLES_MAX);
        Batch { key_len, keys: vec![0; SAMPLES_MAX * key_len], waiting }
    }

    /// Its memory, in bytes.
    pub(crate) const fn memory_bytes(key_len: usize) -> usize {
        SAMPLES_MAX * (key_len + size_of::<Waiting>())
    }

    /// Whether no more samples may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() == SAMPLES_MAX
    }

    /// Buffer for the key of the next sample. There must be room for it.
    pub(crate) fn next_key(&mut self) -> &mut [u8] {
        let start = self.waiting.len() * self.key_len;
        &mut self.keys[start..start + self.key_len]
    }

    /// Adds a sample, whose key is in [`next_key`](Self::next_key).
    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    /// The hash of the last sample.
    pub(crate) fn last_hash(&self) -> Option<u32> {
        self.waiting.last().map(|one| one.hash)
    }

    /// The waiting samples, with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Waiting)> {
        let key = |at: usize| &self.keys[at * self.key_len..][..self.key_len];
        self.waiting.iter().enumerate().map(move |(at, one)| (key(at), one))
    }

    /// Removes all samples.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}
