//! Replay window: which packets have arrived before (RFC 6479, WireGuard section 5.4.6).

/// Number of packets tracked, counted back from the highest.
pub(crate) const WINDOW: u64 = 2_048;

const WORDS: usize = WINDOW as usize / 64;

/// The packet numbers of one session that have arrived.
#[derive(Clone, Debug)]
pub(crate) struct ReplayWindow {
    /// One above the highest number that has arrived.
    end: u64,
    bits: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> ReplayWindow {
        ReplayWindow { end: 0, bits: [0; WORDS] }
    }
}

impl ReplayWindow {
    /// Whether a packet with this number may be new. Check before opening the packet.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        if number >= self.end {
            return number < u64::MAX;
        }
        self.end - number <= WINDOW && self.bits[word(number)] & bit(number) == 0
    }

    /// Records an authentic packet.
    pub(crate) fn note(&mut self, number: u64) {
        if number >= self.end {
            for skipped in self.end.max(number.saturating_sub(WINDOW - 1))..=number {
                self.bits[word(skipped)] &= !bit(skipped);
            }
            self.end = number + 1;
        }
        self.bits[word(number)] |= bit(number);
    }
}

fn word(number: u64) -> usize {
    (number / 64 % WORDS as u64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn it_says_what_a_set_says() {
        let (mut window, mut seen, mut largest) = (ReplayWindow::default(), HashSet::new(), 0u64);
        let mut random = 1u64;
        for _ in 0..200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let step = random >> 40;
            let number = match step % 100 {
                0 => largest + step % 5_000,
                1..40 => largest + 1,
                _ => largest.saturating_sub(step % 2_200),
            };
            let is_new = !seen.contains(&number) && (seen.is_empty() || number + WINDOW > largest);
            assert_eq!(window.is_new(number), is_new, "{number} of {largest}");
            if is_new {
                window.note(number);
                seen.insert(number);
                largest = largest.max(number);
            }
        }
        assert!(!window.is_new(u64::MAX));
    }
}
