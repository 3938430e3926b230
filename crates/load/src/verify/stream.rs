/// State of one stream: a bitmap of the last sequence numbers, and counts that stay exact beyond it.
pub(crate) struct Stream {
    /// Bit `s % window` is set if sequence number `s` has arrived, for those in the window.
    seen: Box<[u64]>,
    /// Highest sequence number that arrived, plus one.
    next: u64,
    /// Highest number of sent datagrams reported by a heartbeat.
    announced: u64,
    /// Highest number of sent heartbeats reported by anything in the stream.
    pub(super) heartbeats_expected: u64,
    pub(super) has_ended: bool,
    pub(crate) received: u64,
    pub(crate) duplicate: u64,
    pub(crate) reordered: u64,
    pub(crate) beyond_window: u64,
}

/// The classification of a data datagram in its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    InOrder,
    /// New, and this far behind the highest sequence number.
    Reordered {
        extent: u64,
    },
    Duplicate,
    /// So far behind that the window no longer shows whether it is new.
    BeyondWindow,
}

impl Stream {
    /// A stream whose window holds at least `window` sequence numbers.
    pub(crate) fn new(window: usize) -> Stream {
        // One word more than requested, because the word that the window enters is cleared as a whole.
        let words = (window.div_ceil(64) + 1).next_power_of_two();
        Stream {
            seen: vec![0; words].into_boxed_slice(),
            next: 0,
            announced: 0,
            heartbeats_expected: 0,
            has_ended: false,
            received: 0,
            duplicate: 0,
            reordered: 0,
            beyond_window: 0,
        }
    }

    /// Datagrams known to have been sent: by the highest sequence number and the heartbeats.
    pub(super) fn expected(&self) -> u64 {
        self.next.max(self.announced)
    }

    /// Records a heartbeat's total.
    pub(super) fn announce(&mut self, total: u64) {
        self.announced = self.announced.max(total);
    }

    /// Records a data datagram. `sequence` is below `u64::MAX`.
    pub(crate) fn arrive(&mut self, sequence: u64) -> Arrival {
        let arrival = self.place(sequence);
        match arrival {
            Arrival::InOrder => self.received += 1,
            Arrival::Reordered { .. } => {
                self.received += 1;
                self.reordered += 1;
            }
            Arrival::Duplicate => self.duplicate += 1,
            Arrival::BeyondWindow => self.beyond_window += 1,
        }
        arrival
    }

    fn place(&mut self, sequence: u64) -> Arrival {
        let words = self.seen.len() as u64;
        let (word, bit) = (sequence / 64, 1 << (sequence % 64));
        let idx = (word % words) as usize;

        if sequence >= self.next {
            let first_new_word = self.next.div_ceil(64);
            if word >= first_new_word + words {
                self.seen.fill(0);
            } else {
                (first_new_word..=word).for_each(|new| self.seen[(new % words) as usize] = 0);
            }
            self.seen[idx] |= bit;
            self.next = sequence + 1;
            return Arrival::InOrder;
        }

        let highest = self.next - 1;
        if word + words <= highest / 64 {
            return Arrival::BeyondWindow;
        }

        if self.seen[idx] & bit != 0 {
            return Arrival::Duplicate;
        }
        self.seen[idx] |= bit;
        Arrival::Reordered { extent: highest - sequence }
    }

    /// Ranges of missing sequence numbers within the window, and after it up to what heartbeats reported; first and last.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        let words = self.seen.len() as u64;
        let first_word = (self.next.div_ceil(64)).saturating_sub(words);
        let mut from = first_word * 64;

        let within = std::iter::from_fn(move || {
            let is_seen = |s: u64| self.seen[(s / 64 % words) as usize] & (1 << (s % 64)) != 0;
            while from < self.next && is_seen(from) {
                from += 1;
            }
            let first = from;
            while from < self.next && !is_seen(from) {
                from += 1;
            }
            (first < from).then(|| (first, from - 1))
        });

        let tail = (self.announced > self.next).then(|| (self.next, self.announced - 1));
        within.chain(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::BTreeSet;

    /// The same with a set that never forgets.
    #[derive(Default)]
    struct Naive {
        seen: BTreeSet<u64>,
        announced: u64,
        duplicate: u64,
        reordered: u64,
    }

    impl Naive {
        fn arrive(&mut self, sequence: u64) -> Arrival {
            let highest = self.seen.last().copied();
            if !self.seen.insert(sequence) {
                self.duplicate += 1;
                return Arrival::Duplicate;
            }
            match highest {
                Some(highest) if highest > sequence => {
                    self.reordered += 1;
                    Arrival::Reordered { extent: highest - sequence }
                }
                _ => Arrival::InOrder,
            }
        }
    }

    /// A stream with loss, duplicates and reordering, all over distances shorter than the window.
    fn check_against_naive(seed: u64) {
        const WINDOW: u64 = 256;
        let mut random = Random::seeded(seed);
        let (mut stream, mut naive) = (Stream::new(WINDOW as usize), Naive::default());
        let mut sequence = 0;
        for _ in 0..2_000 {
            match random.below(20) {
                0 => sequence += random.below(if seed.is_multiple_of(3) { 2_000 } else { 40 }),
                1 => {
                    let total = sequence + random.below(3);
                    stream.announce(total);
                    naive.announced = naive.announced.max(total);
                }
                2..6 => {
                    let back = sequence.saturating_sub(random.below(WINDOW));
                    assert_eq!(stream.arrive(back), naive.arrive(back), "seed {seed}");
                    sequence = sequence.max(back + 1);
                }
                _ => {
                    assert_eq!(stream.arrive(sequence), naive.arrive(sequence), "seed {seed}");
                    sequence += 1;
                }
            }
        }
        let expected = naive.seen.last().map_or(0, |last| last + 1).max(naive.announced);
        assert_eq!(stream.expected(), expected, "seed {seed}");
        assert_eq!(
            (stream.received, stream.duplicate, stream.reordered, stream.beyond_window),
            (naive.seen.len() as u64, naive.duplicate, naive.reordered, 0),
            "seed {seed}"
        );
        let gaps: Vec<_> = stream.gaps().collect();
        let first = gaps.first().map_or(expected, |(first, _)| *first);
        for sequence in first..expected {
            let in_gap = gaps.iter().any(|(from, to)| (*from..=*to).contains(&sequence));
            assert_eq!(in_gap, !naive.seen.contains(&sequence), "seed {seed}: {sequence}");
        }
    }

    #[test]
    fn agrees_with_a_naive_model() {
        (0..300).for_each(check_against_naive);
    }

    #[test]
    fn far_behind_is_neither_new_nor_duplicate() {
        let mut stream = Stream::new(128);
        assert_eq!(stream.arrive(10_000), Arrival::InOrder);
        assert_eq!(stream.arrive(10_000 - 128), Arrival::Reordered { extent: 128 });
        assert_eq!(stream.arrive(5), Arrival::BeyondWindow);
        assert_eq!((stream.received, stream.expected()), (2, 10_001));
    }

    #[test]
    fn the_largest_sequence_numbers_do_not_overflow() {
        let mut stream = Stream::new(128);
        assert_eq!(stream.arrive(u64::MAX - 1), Arrival::InOrder);
        assert_eq!(stream.arrive(u64::MAX - 1), Arrival::Duplicate);
        assert_eq!(stream.arrive(0), Arrival::BeyondWindow);
        assert_eq!(stream.expected(), u64::MAX);
        assert_eq!(stream.gaps().last(), Some((u64::MAX - 1 - 62 - 64 * 3, u64::MAX - 2)));
    }

    #[test]
    fn tail_loss_shows_by_the_heartbeat() {
        let mut stream = Stream::new(128);
        (0..10).for_each(|sequence| {
            stream.arrive(sequence);
        });
        stream.announce(25);
        assert_eq!(stream.expected() - stream.received, 15);
        assert_eq!(stream.gaps().collect::<Vec<_>>(), [(10, 24)]);
    }
}
