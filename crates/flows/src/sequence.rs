//! Sequence numbers: which are missing, duplicate or late, and when the sender restarted.

/// Numbers below the highest that are remembered, to distinguish a late number from a duplicate.
const WINDOW: u32 = 128;

/// A forward jump of up to this much counts as a loss, whatever the rate. Neil McKee of InMon suggests "maybe 50 or more" as the
/// limit (sflow.org, discussion 0092).
const GAP_MIN: u32 = 50;

/// A jump further than this never counts as a loss, however long the silence: it is some minutes of the fastest samplers.
const GAP_MAX: u32 = 1 << 24;

/// What one number means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The first number.
    First,
    /// Higher than all before it.
    Next {
        /// Numbers that were skipped. One that arrives later is credited back.
        lost: u32,
    },
    /// A number that was counted as lost and arrived after others.
    Late,
    /// A number that has already arrived.
    Duplicate,
    /// Far from all numbers seen so far: either the sender restarted, or one datagram strayed. The next number decides.
    Strange,
    /// The sender has restarted.
    Reset,
}

impl Seen {
    /// How far the counters that come with the number have advanced since the previous one, in numbers. `None` if they cannot be
    /// compared.
    pub fn advance(self) -> Option<u32> {
        match self {
            Seen::Next { lost } => Some(lost + 1),
            Seen::Late | Seen::Duplicate => Some(0),
            Seen::First | Seen::Strange | Seen::Reset => None,
        }
    }
}

/// Counts so far. `received + lost` is what the sender sent, judging by its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SequenceTotals {
    /// Numbers that arrived, each counted once.
    pub received: u64,
    /// Numbers that did not arrive.
    pub lost: u64,
    /// Numbers that arrived again.
    pub duplicate: u64,
    /// Numbers that arrived after higher ones. They are included in `received`.
    pub reordered: u64,
    /// How often the sender restarted.
    pub resets: u64,
}

/// One sender's sequence numbers: 32 bits, wrapping.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequence {
    /// The highest number.
    last: u32,
    /// Bit `i`: whether `last - i` has arrived.
    window: u128,
    /// The next number to expect if the previous, strange one was a restart.
    candidate: Option<u32>,
    totals: SequenceTotals,
}

impl Sequence {
    /// The counts so far.
    pub fn totals(&self) -> SequenceTotals {
        self.totals
    }

    /// The sender is known to have restarted, so the next number is a first one.
    pub fn restart(&mut self) {
        if self.window != 0 {
            self.window = 0;
            self.candidate = None;
            self.totals.resets += 1;
        }
    }

    /// Processes the next number. `gap_max` is how many may be missing at once before it counts as a restart; up to 50 always
    /// count as a loss.
    pub fn take(&mut self, number: u32, gap_max: u32) -> Seen {
        let seen = self.judge(number, gap_max.clamp(GAP_MIN, GAP_MAX));
        match seen {
            Seen::Next { lost } => {
                let ahead = lost + 1;
                self.window = self.window.checked_shl(ahead).unwrap_or(0) | 1;
                self.last = number;
                self.totals.lost += u64::from(lost);
            }
            Seen::Late => {
                self.window |= 1 << self.last.wrapping_sub(number);
                // A number from before the first one was never counted as lost.
                self.totals.lost = self.totals.lost.saturating_sub(1);
                self.totals.reordered += 1;
            }
            Seen::Duplicate => self.totals.duplicate += 1,
            Seen::First | Seen::Reset => {
                (self.last, self.window) = (number, 1);
                self.totals.resets += u64::from(seen == Seen::Reset);
            }
            Seen::Strange => {}
        }

        self.totals.received += u64::from(seen != Seen::Duplicate);
        self.candidate = (seen == Seen::Strange).then(|| number.wrapping_add(1));
        seen
    }

    fn judge(&self, number: u32, gap_max: u32) -> Seen {
        if self.window == 0 {
            return Seen::First;
        }

        let ahead = number.wrapping_sub(self.last);
        let behind = self.last.wrapping_sub(number);
        if (1..=gap_max).contains(&ahead) {
            Seen::Next { lost: ahead - 1 }
        } else if behind < WINDOW && self.window & (1 << behind) == 0 {
            Seen::Late
        } else if behind < WINDOW {
            Seen::Duplicate
        } else if self.candidate == Some(number) {
            Seen::Reset
        } else {
            Seen::Strange
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(numbers: &[u32]) -> (Vec<Seen>, SequenceTotals) {
        let mut sequence = Sequence::default();
        let seen = numbers.iter().map(|number| sequence.take(*number, 0)).collect();
        (seen, sequence.totals())
    }

    #[test]
    fn what_is_skipped_is_lost_until_it_comes() {
        let (says, totals) = seen(&[7, 8, 11, 9, 9, 12]);
        let expected = [
            Seen::First,
            Seen::Next { lost: 0 },
            Seen::Next { lost: 2 },
            Seen::Late,
            Seen::Duplicate,
            Seen::Next { lost: 0 },
        ];
        assert_eq!(says, expected);
        let expected =
            SequenceTotals { received: 5, lost: 1, duplicate: 1, reordered: 1, resets: 0 };
        assert_eq!(totals, expected);
    }

    #[test]
    fn numbers_wrap() {
        let (says, totals) = seen(&[u32::MAX - 1, 1, 0, u32::MAX, u32::MAX]);
        let expected =
            [Seen::First, Seen::Next { lost: 2 }, Seen::Late, Seen::Late, Seen::Duplicate];
        assert_eq!(says, expected);
        assert_eq!((totals.lost, totals.received), (0, 4));
    }

    #[test]
    fn one_that_strayed_resets_nothing() {
        let (says, totals) = seen(&[1_000_000, 1_000_001, 5, 1_000_002]);
        assert_eq!(says[2..], [Seen::Strange, Seen::Next { lost: 0 }]);
        assert_eq!((totals.lost, totals.resets), (0, 0));
    }

    #[test]
    fn two_in_a_row_from_elsewhere_are_a_new_beginning() {
        let (says, totals) = seen(&[1_000_000, 1, 2, 3]);
        assert_eq!(says[1..], [Seen::Strange, Seen::Reset, Seen::Next { lost: 0 }]);
        assert_eq!((totals.lost, totals.resets, totals.received), (0, 1, 4));
    }

    #[test]
    fn a_long_silence_may_be_a_loss() {
        let mut sequence = Sequence::default();
        sequence.take(1, 0);
        assert_eq!(sequence.take(1_001, 4_000), Seen::Next { lost: 999 });
        assert_eq!(sequence.take(2_002, 0), Seen::Strange);
    }

    /// However long the silence, a lower number is not one from far ahead.
    #[test]
    fn what_is_behind_is_not_ahead() {
        let mut sequence = Sequence::default();
        sequence.take(1_000_000, 0);
        assert_eq!(sequence.take(900_000, u32::MAX), Seen::Strange);
        assert_eq!(sequence.totals().lost, 0);
    }

    #[test]
    fn a_known_restart_is_believed_at_once() {
        let mut sequence = Sequence::default();
        sequence.take(40, 0);
        sequence.restart();
        assert_eq!(sequence.take(1, 0), Seen::First);
        assert_eq!(sequence.totals().resets, 1);
        assert_eq!(sequence.totals().duplicate, 0);
    }

    #[test]
    fn a_late_one_from_before_the_first_makes_no_negative_loss() {
        let (says, totals) = seen(&[10, 9]);
        assert_eq!(says[1], Seen::Late);
        assert_eq!(totals.lost, 0);
    }
}
