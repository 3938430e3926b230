//! Mergeable sketches of round-trip times: counts in buckets, 8 per octave.
//!
//! As a blob, a sketch is its non-empty buckets in ascending order: for each, a varint of the distance from the previous one,
//! and a varint of its count. A quantile is the middle of its bucket, so it is within 6.25 % of the exact value.

/// Bits per octave: log2 of the number of buckets that share their leading bit.
const PER_OCTAVE_BITS: u32 = 3;
const PER_OCTAVE: u64 = 1 << PER_OCTAVE_BITS;

/// A histogram of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// Buckets and their counts, in ascending order, none of them 0.
    buckets: Vec<(u32, u64)>,
}

impl Sketch {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        let bucket = bucket_of(value);
        match self.buckets.binary_search_by_key(&bucket, |one| one.0) {
            Ok(at) => self.buckets[at].1 += 1,
            Err(at) => self.buckets.insert(at, (bucket, 1)),
        }
    }

    /// Adds all values of another sketch.
    pub fn merge(&mut self, other: &Sketch) {
        for &(bucket, count) in &other.buckets {
            match self.buckets.binary_search_by_key(&bucket, |one| one.0) {
                Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
                Err(at) => self.buckets.insert(at, (bucket, count)),
            }
        }
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, one| sum.saturating_add(one.1))
    }

    /// The number of values from `low` to below `high`; both are rounded down to the start of their bucket.
    pub fn count_between(&self, low: u64, high: u64) -> u64 {
        let range = bucket_of(low)..bucket_of(high);
        let inside = self.buckets.iter().filter(|one| range.contains(&one.0));
        inside.fold(0, |sum, one| sum.saturating_add(one.1))
    }

    /// The value below which the share `quantile` (0 to 1) of all values lies; `None` without any value.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let count = self.count();
        let rank = (quantile.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as u64;
        let mut before = 0_u64;
        let is_it = |one: &&(u32, u64)| {
            before = before.saturating_add(one.1);
            before >= rank
        };
        let &(bucket, _) = self.buckets.iter().find(is_it)?;
        let (low, width) = (low_of(bucket), width_of(bucket));
        Some(low as f64 + (width - 1) as f64 / 2.0)
    }

    /// The stored form.
    pub fn to_blob(&self) -> Vec<u8> {
        let mut blob = Vec::with_capacity(self.buckets.len() * 3);
        let mut before = 0;
        for &(bucket, count) in &self.buckets {
            put_varint(u64::from(bucket - before), &mut blob);
            put_varint(count, &mut blob);
            before = bucket;
        }
        blob
    }

    /// Reads the output of [`to_blob`](Self::to_blob); `None` if it is malformed.
    pub fn from_blob(mut blob: &[u8]) -> Option<Sketch> {
        let (mut buckets, mut bucket) = (Vec::new(), 0_u32);
        while !blob.is_empty() {
            let distance = u32::try_from(take_varint(&mut blob)?).ok()?;
            bucket = bucket.checked_add(distance)?;
            let count = take_varint(&mut blob)?;
            if bucket > BUCKET_MAX || count == 0 || (distance == 0 && !buckets.is_empty()) {
                return None;
            }
            buckets.push((bucket, count));
        }
        Some(Sketch { buckets })
    }
}

/// A sketch to which many others are added.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Used while it has few buckets.
    few: Sketch,
    /// The count of each bucket; empty before that.
    all: Vec<u64>,
}

impl Tally {
    /// The number of buckets up to which they are searched: a search among more takes longer than a look at memory.
    const FEW: usize = 32;

    /// Adds all values of a sketch.
    pub(crate) fn merge(&mut self, other: &Sketch) {
        if self.all.is_empty() {
            self.few.merge(other);
            if self.few.buckets.len() > Tally::FEW {
                self.all.resize(BUCKET_MAX as usize + 1, 0);
                let few = std::mem::take(&mut self.few);
                self.count(&few);
            }
            return;
        }
        self.count(other);
    }

    fn count(&mut self, other: &Sketch) {
        for &(bucket, count) in &other.buckets {
            let sum = &mut self.all[bucket as usize];
            *sum = sum.saturating_add(count);
        }
    }

    /// What was added.
    pub(crate) fn into_sketch(self) -> Sketch {
        if self.all.is_empty() {
            return self.few;
        }
        let counted = (0..).zip(self.all).filter(|(_, count)| *count > 0);
        Sketch { buckets: counted.collect() }
    }
}

/// The bucket of the largest value.
const BUCKET_MAX: u32 = (u64::BITS - PER_OCTAVE_BITS) * PER_OCTAVE as u32 + PER_OCTAVE as u32 - 1;

fn bucket_of(value: u64) -> u32 {
    if value < PER_OCTAVE {
        return value as u32;
    }
    let octave = value.ilog2() - PER_OCTAVE_BITS;
    let within = (value >> octave) & (PER_OCTAVE - 1);
    (octave + 1) * PER_OCTAVE as u32 + within as u32
}

/// The smallest value of a bucket.
fn low_of(bucket: u32) -> u64 {
    let (octave, within) = (bucket / PER_OCTAVE as u32, u64::from(bucket) % PER_OCTAVE);
    match octave.checked_sub(1) {
        None => within,
        Some(shift) => (PER_OCTAVE + within) << shift,
    }
}

/// The number of values in a bucket's range.
fn width_of(bucket: u32) -> u64 {
    1 << (bucket / PER_OCTAVE as u32).saturating_sub(1)
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(blob: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = blob.split_first()?;
        *blob = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a fixed sequence (SplitMix64).
    fn numbers(mut seed: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        })
    }

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        for bucket in 0..BUCKET_MAX {
            assert_eq!(bucket_of(low_of(bucket)), bucket);
            assert_eq!(low_of(bucket) + width_of(bucket), low_of(bucket + 1));
        }
        assert_eq!(bucket_of(u64::MAX), BUCKET_MAX);
    }

    #[test]
    fn quantiles_are_within_a_sixteenth_of_the_exact_ones() {
        for seed in 0..20 {
            // From 8 µs to 8 s, equally many in each octave.
            let mut values: Vec<u64> = numbers(seed)
                .map(|number| (8.0 * (number as f64 / u64::MAX as f64 * 20.0).exp2()) as u64)
                .take(1_000)
                .collect();
            let mut sketch = Sketch::default();
            values.iter().for_each(|value| sketch.add(*value));
            values.sort_unstable();

            for quantile in [0.5, 0.9, 0.95, 0.99] {
                let exact = values[(quantile * 1_000.0) as usize - 1] as f64;
                let told = sketch.quantile(quantile).unwrap();
                assert!((told - exact).abs() <= exact / 16.0, "{quantile}: {told}, exact {exact}");
            }
        }
    }

    #[test]
    fn merging_is_adding_all_values() {
        let (mut all, mut left, mut right) = <(Sketch, Sketch, Sketch)>::default();
        for (at, value) in numbers(7).map(|number| number >> (number % 64)).take(5_000).enumerate()
        {
            all.add(value);
            if at % 3 == 0 { left.add(value) } else { right.add(value) }
        }
        let mut tally = Tally::default();
        [&left, &right].into_iter().for_each(|part| tally.merge(part));
        assert_eq!(tally.into_sketch(), all);
        left.merge(&right);
        assert_eq!(left, all);
        assert_eq!(Sketch::from_blob(&all.to_blob()), Some(all));
    }

    #[test]
    fn what_is_no_sketch_is_refused() {
        for blob in [
            &[1][..],
            &[1, 0],
            &[1, 1, 0, 1],
            &[0x80, 1],
            &[0xff; 11],
            &[0xff, 0xff, 0xff, 0x7f, 1],
        ] {
            assert_eq!(Sketch::from_blob(blob), None, "{blob:?}");
        }
        assert_eq!(Sketch::from_blob(&[]), Some(Sketch::default()));
        assert_eq!(Sketch::default().quantile(0.5), None);
    }
}
