//! Reproducible random numbers.

/// `splitmix64` (Steele, Lea, Flood 2014). Independent of all crates, so that a bug in their generator is not also in
/// the test's.
pub struct Random(pub u64);

impl Random {
    /// Any number.
    #[expect(
        clippy::should_implement_trait,
        reason = "numbers without an end are not an iterator's"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An index into something of this length, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number of up to `max` with a random number of bits, all ones; often the smallest or the largest.
    pub fn number(&mut self, max: u64) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => max,
            _ => {
                let shift = self.below(64);
                (self.next() >> shift) & max
            }
        }
    }
}
