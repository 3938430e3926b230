//! Which rate to try next.

use super::{Knee, Rates};

/// What a rate turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Lossless,
    Lossy,
    /// Nothing was lost, but the sender did not send so fast.
    NotReached,
}

pub(super) struct Search {
    rates: Rates,
    tried: Vec<(u64, Verdict)>,
}

/// Rates that are no further apart than this share are one.
const WIDTH: f64 = 0.125;

impl Search {
    pub(super) fn new(rates: &Rates) -> Search {
        Search { rates: rates.clone(), tried: Vec::new() }
    }

    /// The next rate to measure; `None` when all is known.
    pub(super) fn next(&self) -> Option<u64> {
        let (first, highest) = match &self.rates {
            Rates::List(rates) => return rates.get(self.tried.len()).copied(),
            Rates::Search { first, highest } => ((*first).max(1), *highest),
        };
        match (self.lossless(), self.failed().map(|(rate, _)| rate)) {
            (None, None) => Some(first.min(highest.max(1))),
            // Not even the first: look for where it does get through, as far as it is worth it.
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

    pub(super) fn learn(&mut self, rate: u64, verdict: Verdict) {
        self.tried.push((rate, verdict));
    }

    pub(super) fn knee(&self) -> Knee {
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

    /// The highest rate that got through, below all that did not: a higher one was lucky.
    fn lossless(&self) -> Option<u64> {
        let end = self.failed().map_or(u64::MAX, |(rate, _)| rate);
        let lossless = self.tried.iter().filter(|(_, verdict)| *verdict == Verdict::Lossless);
        lossless.map(|(rate, _)| *rate).filter(|rate| *rate < end).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay that loses above `capacity`, and a sender that ends at `reach`.
    fn search(rates: &Rates, capacity: u64, reach: u64) -> (Knee, Vec<u64>) {
        let mut search = Search::new(rates);
        let mut tried = Vec::new();
        while let Some(rate) = search.next() {
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
        let (knee, tried) = search(&AUTO, 37_000, u64::MAX);
        let Knee::Between { lossless_per_sec, lossy_per_sec } = knee else { panic!("{knee:?}") };
        assert!(lossless_per_sec <= 37_000 && lossy_per_sec > 37_000, "{knee:?}");
        assert!(lossy_per_sec - lossless_per_sec <= lossless_per_sec / 8, "{knee:?}");
        assert_eq!(tried[..7], [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000]);
        assert!(tried.len() <= 12, "{tried:?}");
    }

    #[test]
    fn there_may_be_no_knee() {
        assert_eq!(search(&AUTO, u64::MAX, u64::MAX).0, Knee::Above { lossless_per_sec: 100_000 });
        assert_eq!(search(&AUTO, 0, u64::MAX).0, Knee::Below { lossy_per_sec: 125 });
        let Knee::SenderLimit { lossless_per_sec } = search(&AUTO, u64::MAX, 50_000).0 else {
            panic!("the sender was the limit")
        };
        assert!((44_000..=50_000).contains(&lossless_per_sec));
        assert_eq!(Search::new(&AUTO).knee(), Knee::Unknown);
        let (knee, _) = search(&AUTO, 300, u64::MAX);
        assert!(matches!(knee, Knee::Between { lossless_per_sec: 250..=300, .. }), "{knee:?}");
    }

    #[test]
    fn a_list_is_tried_as_it_is() {
        let list = Rates::List(vec![9_000, 1_000, 2_000]);
        let (knee, tried) = search(&list, 1_500, u64::MAX);
        assert_eq!(tried, [9_000, 1_000, 2_000]);
        assert_eq!(knee, Knee::Between { lossless_per_sec: 1_000, lossy_per_sec: 2_000 });
    }
}
