//! Searches for the highest rate without loss: chooses the next rate, and evaluates the results.

use serde::Serialize;

/// Which rates to try, in datagrams per second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rates {
    /// From `first`, doubling until there is loss, and then halving the interval in which loss begins until it is no
    /// wider than an eighth of its lower end.
    Search { first: u64, highest: u64 },
    /// An interval that is expected to contain the knee, halved `steps` times by ratio. If that finds no lossy rate or
    /// no lossless one, the interval was wrong: continue beyond it, downward or upward, until both are found.
    Around { low: u64, high: u64, steps: usize },
    /// These rates, in this order. The knee is then the highest rate below the first lossy one.
    List(Vec<u64>),
}

/// The result of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Lossless,
    Lossy,
    /// Nothing was lost, but the sender did not reach the rate.
    NotReached,
}

/// Where loss begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Knee {
    /// At `lossless_per_sec` no more than the tolerance was lost, at `lossy_per_sec` more was.
    Between { lossless_per_sec: u64, lossy_per_sec: u64 },
    /// No tested rate lost more than the tolerance.
    Above { lossless_per_sec: u64 },
    /// The sender did not reach a higher rate; everything below got through.
    SenderLimit { lossless_per_sec: u64 },
    /// Even the lowest rate had loss.
    Below { lossy_per_sec: u64 },
    /// Nothing was measured.
    Unknown,
}

impl Knee {
    /// The lowest rate with loss.
    pub fn lossy_per_sec(self) -> Option<u64> {
        match self {
            Knee::Between { lossy_per_sec, .. } | Knee::Below { lossy_per_sec } => {
                Some(lossy_per_sec)
            }
            Knee::Above { .. } | Knee::SenderLimit { .. } | Knee::Unknown => None,
        }
    }

    /// The highest rate without loss.
    pub fn lossless_per_sec(self) -> Option<u64> {
        match self {
            Knee::Between { lossless_per_sec, .. }
            | Knee::Above { lossless_per_sec }
            | Knee::SenderLimit { lossless_per_sec } => Some(lossless_per_sec),
            Knee::Below { .. } | Knee::Unknown => None,
        }
    }
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Search {
    rates: Rates,
    tried: Vec<(u64, Verdict)>,
}

/// Rates closer together than this fraction count as equal.
const WIDTH: f64 = 0.125;

/// Limits of the search outside an interval.
const AROUND_MIN: u64 = 100;
const AROUND_MAX: u64 = 10_000_000;

impl Search {
    /// Nothing tried yet.
    pub fn new(rates: Rates) -> Search {
        Search { rates, tried: Vec::new() }
    }

    /// The next rate to measure; `None` when the search is complete.
    pub fn next_rate(&self) -> Option<u64> {
        match self.rates {
            Rates::List(ref rates) => rates.get(self.tried.len()).copied(),
            Rates::Search { first, highest } => self.doubled_or_halved(first.max(1), highest),
            Rates::Around { low, high, steps } if self.tried.len() < steps => {
                let low = self.passed().map_or(low, |(rate, _)| rate);
                let high = self.lost().unwrap_or(high);
                Some((low as f64 * high as f64).sqrt().round() as u64)
            }
            Rates::Around { low, high, .. } => self.beyond(low, high),
        }
    }

    fn doubled_or_halved(&self, first: u64, highest: u64) -> Option<u64> {
        match (self.lossless(), self.failed().map(|(rate, _)| rate)) {
            (None, None) => Some(first.min(highest.max(1))),
            // Even the first rate failed: search downward for one that gets through, within reason.
            (None, Some(failed)) => (failed > (first / 8).max(1)).then_some(failed / 2),
            (Some(lossless), None) => {
                (lossless < highest).then(|| lossless.saturating_mul(2).min(highest))
            }
            (Some(lossless), Some(failed)) => {
                let is_wide = (failed - lossless) as f64 > lossless as f64 * WIDTH;
                is_wide.then_some(lossless + (failed - lossless) / 2).filter(|&r| r > lossless)
            }
        }
    }

    /// First the ends of the interval, and then rates outside it.
    fn beyond(&self, low: u64, high: u64) -> Option<u64> {
        let scaled = |rate: u64, factor: f64| (rate as f64 * factor) as u64;

        match (self.passed(), self.lost()) {
            (None, Some(lost)) => {
                let rate = if lost > low { low } else { scaled(lost, 0.85) };
                (rate > AROUND_MIN).then_some(rate)
            }
            (Some((passed, Verdict::Lossless)), None) => {
                let rate = if passed < high { high } else { scaled(passed, 1.12) };
                (rate < AROUND_MAX).then_some(rate)
            }
            // Both are known, or the sender is at its limit.
            _ => None,
        }
    }

    /// The lowest rate with loss.
    fn lost(&self) -> Option<u64> {
        let lost = self.tried.iter().filter(|(_, verdict)| *verdict == Verdict::Lossy);
        lost.map(|(rate, _)| *rate).min()
    }

    /// The highest rate below it without loss, whether or not the sender reached it: around a known interval, a sender
    /// that was slow once does not make the relay slower.
    fn passed(&self) -> Option<(u64, Verdict)> {
        let end = self.lost().unwrap_or(u64::MAX);
        let passed =
            self.tried.iter().filter(|(rate, verdict)| *verdict != Verdict::Lossy && *rate < end);
        passed.copied().max_by_key(|(rate, _)| *rate)
    }

    /// Records the result of a rate.
    pub fn learn(&mut self, rate: u64, verdict: Verdict) {
        self.tried.push((rate, verdict));
    }

    /// The knee, according to all rates tried.
    pub fn knee(&self) -> Knee {
        match (self.lossless(), self.failed()) {
            (Some(lossless_per_sec), None) => Knee::Above { lossless_per_sec },
            (Some(lossless_per_sec), Some((lossy_per_sec, Verdict::Lossy))) => {
                Knee::Between { lossless_per_sec, lossy_per_sec }
            }
            (Some(lossless_per_sec), Some(_)) => Knee::SenderLimit { lossless_per_sec },
            (None, Some((lossy_per_sec, Verdict::Lossy))) => Knee::Below { lossy_per_sec },
            (None, _) => Knee::Unknown,
        }
    }

    /// The lowest rate that did not get through.
    fn failed(&self) -> Option<(u64, Verdict)> {
        let failed = self.tried.iter().filter(|(_, verdict)| *verdict != Verdict::Lossless);
        failed.copied().min_by_key(|(rate, _)| *rate)
    }

    /// The highest rate that got through, below all that did not: a higher one was luck.
    fn lossless(&self) -> Option<u64> {
        let end = self.failed().map_or(u64::MAX, |(rate, _)| rate);
        let lossless = self.tried.iter().filter(|(_, verdict)| *verdict == Verdict::Lossless);
        lossless.map(|(rate, _)| *rate).filter(|rate| *rate < end).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay that loses above `capacity`, and a sender whose limit is `reach`.
    fn search(rates: Rates, capacity: u64, reach: u64) -> (Knee, Vec<u64>) {
        let mut search = Search::new(rates);
        let mut tried = Vec::new();
        while let Some(rate) = search.next_rate() {
            tried.push(rate);
            assert!(tried.len() < 50, "{tried:?}");
            search.learn(
                rate,
                match rate {
                    _ if rate.min(reach) > capacity => Verdict::Lossy,
                    _ if rate > reach => Verdict::NotReached,
                    _ => Verdict::Lossless,
                },
            );
        }
        (search.knee(), tried)
    }

    const AUTO: Rates = Rates::Search { first: 1_000, highest: 100_000 };

    #[test]
    fn the_knee_is_closed_in() {
        let (knee, tried) = search(AUTO, 37_000, u64::MAX);
        let Knee::Between { lossless_per_sec, lossy_per_sec } = knee else { panic!("{knee:?}") };
        assert!(lossless_per_sec <= 37_000 && lossy_per_sec > 37_000, "{knee:?}");
        assert!(lossy_per_sec - lossless_per_sec <= lossless_per_sec / 8, "{knee:?}");
        assert_eq!(tried[..7], [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000]);
        assert!(tried.len() <= 12, "{tried:?}");
    }

    #[test]
    fn there_may_be_no_knee() {
        assert_eq!(search(AUTO, u64::MAX, u64::MAX).0, Knee::Above { lossless_per_sec: 100_000 });
        assert_eq!(search(AUTO, 0, u64::MAX).0, Knee::Below { lossy_per_sec: 125 });
        let Knee::SenderLimit { lossless_per_sec } = search(AUTO, u64::MAX, 50_000).0 else {
            panic!("the sender was the limit")
        };
        assert!((44_000..=50_000).contains(&lossless_per_sec));
        assert_eq!(Search::new(AUTO).knee(), Knee::Unknown);
        let (knee, _) = search(AUTO, 300, u64::MAX);
        assert!(matches!(knee, Knee::Between { lossless_per_sec: 250..=300, .. }), "{knee:?}");
    }

    #[test]
    fn a_list_is_tried_as_it_is() {
        let list = Rates::List(vec![9_000, 1_000, 2_000]);
        let (knee, tried) = search(list, 1_500, u64::MAX);
        assert_eq!(tried, [9_000, 1_000, 2_000]);
        assert_eq!(knee, Knee::Between { lossless_per_sec: 1_000, lossy_per_sec: 2_000 });
    }

    const AROUND: Rates = Rates::Around { low: 80_000, high: 120_000, steps: 3 };

    #[test]
    fn a_known_range_is_halved_by_ratio() {
        let (knee, tried) = search(AROUND, 100_000, u64::MAX);
        assert_eq!(tried, [97_980, 108_432, 103_074]);
        assert_eq!(knee, Knee::Between { lossless_per_sec: 97_980, lossy_per_sec: 103_074 });
    }

    #[test]
    fn a_wrong_range_is_left_by_its_ends() {
        let (knee, tried) = search(AROUND, 70_000, u64::MAX);
        assert_eq!(tried[3..], [80_000, 68_000]);
        assert!(matches!(knee, Knee::Between { lossless_per_sec: 68_000, .. }), "{knee:?}");
        let (knee, tried) = search(AROUND, 125_000, u64::MAX);
        assert_eq!(tried[3..], [120_000, 134_400]);
        assert_eq!(knee, Knee::Between { lossless_per_sec: 120_000, lossy_per_sec: 134_400 });
        // A sender at its limit is not asked for more, but one that was slow only once is.
        let (knee, tried) = search(AROUND, u64::MAX, 121_000);
        assert_eq!(tried[3..], [120_000, 134_400]);
        assert_eq!(knee, Knee::SenderLimit { lossless_per_sec: 120_000 });
        let mut slow_once = Search::new(AROUND);
        slow_once.learn(97_980, Verdict::NotReached);
        assert_eq!(slow_once.next_rate(), Some(108_432));
        assert!(matches!(search(AROUND, 0, u64::MAX).0, Knee::Below { .. }));
    }
}
