//! Which of the latest sequence numbers have been seen.

/// Sequence numbers to remember: a datagram overtaken by this many others cannot be distinguished from a duplicate.
pub(super) const WINDOW: u64 = 16_384;

const WORD_BITS: u64 = 64;

/// A bitmap over the latest [`WINDOW`] sequence numbers.
pub(super) struct Window {
    /// Bit `sequence % WINDOW`.
    words: Box<[u64; (WINDOW / WORD_BITS) as usize]>,
    /// The highest number seen; `None` if none yet.
    highest: Option<u64>,
}

/// Classification of a sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// Higher than all before.
    Next,
    /// Lower than an earlier one, and seen for the first time.
    Reordered,
    /// Seen before.
    Duplicate,
    /// So low that the window no longer knows whether it was seen.
    TooOld,
}

impl Window {
    pub(super) fn new() -> Window {
        Window { words: Box::new([0; (WINDOW / WORD_BITS) as usize]), highest: None }
    }

    /// Records a sequence number.
    pub(super) fn note(&mut self, sequence: u64) -> Seen {
        match self.highest {
            Some(highest) if sequence <= highest => {
                if highest - sequence >= WINDOW {
                    return Seen::TooOld;
                }
                if self.set(sequence) { Seen::Duplicate } else { Seen::Reordered }
            }
            highest => {
                // The skipped numbers share bits with the numbers one window earlier.
                let skipped = highest.map_or(WINDOW, |highest| sequence - highest);
                if skipped >= WINDOW {
                    self.words.fill(0);
                } else {
                    for passed in sequence - skipped + 1..sequence {
                        self.clear(passed);
                    }
                    self.clear(sequence);
                }

                self.highest = Some(sequence);
                self.set(sequence);
                Seen::Next
            }
        }
    }

    /// Sets the bit and returns whether it was set.
    fn set(&mut self, sequence: u64) -> bool {
        let (word, bit) = place(sequence);
        let was_set = self.words[word] & bit != 0;
        self.words[word] |= bit;
        was_set
    }

    fn clear(&mut self, sequence: u64) {
        let (word, bit) = place(sequence);
        self.words[word] &= !bit;
    }
}

/// The word, always a valid index, and the bit in it.
fn place(sequence: u64) -> (usize, u64) {
    let at = sequence % WINDOW;
    ((at / WORD_BITS) as usize, 1 << (at % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sequences: &[u64], expected: &[Seen]) {
        let mut window = Window::new();
        let seen: Vec<_> = sequences.iter().map(|&sequence| window.note(sequence)).collect();
        assert_eq!(seen, expected, "{sequences:?}");
    }

    use Seen::{Duplicate, Next, Reordered, TooOld};

    #[test]
    fn in_order_twice_and_late() {
        check(
            &[0, 1, 1, 3, 2, 2, 0],
            &[Next, Next, Duplicate, Next, Reordered, Duplicate, Duplicate],
        );
    }

    #[test]
    fn a_stream_may_be_joined_anywhere() {
        check(&[70, 69, 0], &[Next, Reordered, Reordered]);
        check(&[u64::MAX, u64::MAX - 1, 0, u64::MAX], &[Next, Reordered, TooOld, Duplicate]);
    }

    #[test]
    fn what_the_window_has_passed_is_too_old() {
        check(&[0, WINDOW, 1, 0], &[Next, Next, Reordered, TooOld]);
        check(&[5, WINDOW + 4, 5], &[Next, Next, Duplicate]);
    }

    #[test]
    fn a_place_that_is_used_again_is_unseen() {
        check(
            &[1, 2, WINDOW + 3, WINDOW + 1, WINDOW + 2],
            &[Next, Next, Next, Reordered, Reordered],
        );
        check(&[7, 10 * WINDOW + 7, 9 * WINDOW + 8], &[Next, Next, Reordered]);
    }

    #[test]
    fn it_agrees_with_a_set_of_all_numbers() {
        let mut random = 1_u64;
        let mut all = std::collections::BTreeSet::new();
        let mut window = Window::new();
        let mut base = 0;
        for _ in 0..200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            base += (random >> 33) % 3;
            let sequence = base + (random >> 40) % (WINDOW / 2);
            let expected = if all.contains(&sequence) {
                Duplicate
            } else if all.last().is_none_or(|&last| last < sequence) {
                Next
            } else {
                Reordered
            };
            all.insert(sequence);
            assert_eq!(window.note(sequence), expected, "{sequence}");
        }
    }
}
