//! The flows at the watched rate, and what speaks for them besides their rate.
//!
//! A rate is a decayed sum, and one sample that claims enough makes any sum. So each check notes how much a flow got since the one
//! before, and the largest two of these amounts are set aside: all that comes within the time between two checks falls into two
//! such intervals at most. What the others add up to, over their own time, is the rate that no single moment explains.

/// Maximum number of flows above the watched rate that are remembered between two checks.
pub(super) const HOT_MAX: usize = 16_384;

/// Checks that follow one another faster than this are one, in nanoseconds.
const LOOK_MIN_NS: u64 = 80_000_000;

/// An interval of which decay has left less than this is over, in seconds.
const OLD_S: f32 = 1e-4;

/// What a flow got between two checks, and the time between them, in seconds. Both decay like its rate.
#[derive(Clone, Copy, Default)]
struct Look {
    value: f32,
    seconds: f32,
}

impl Look {
    fn add(&mut self, other: Look) {
        self.value += other.value;
        self.seconds += other.seconds;
    }

    /// Decay does not change it.
    fn rate(&self) -> f32 {
        if self.seconds > 0.0 { self.value / self.seconds } else { 0.0 }
    }

    fn decay(&mut self, factor: f32) {
        self.value *= factor;
        self.seconds *= factor;
    }
}

/// What a flow got since it is at the watched rate.
#[derive(Clone, Copy, Default)]
pub(super) struct Evidence {
    /// Its total at the last check, and when that was. What came before the first is not known to come from several moments.
    last: Option<(f64, u64)>,
    largest: [Look; 2],
    rest: Look,
}

impl Evidence {
    /// Notes the flow's total at a check.
    pub(super) fn look(&mut self, total: f64, now_ns: u64, smoothing_s: f64) {
        let Some((before, at_ns)) = self.last else {
            self.last = Some((total, now_ns));
            return;
        };
        let since_ns = now_ns.saturating_sub(at_ns);
        if since_ns < LOOK_MIN_NS {
            return;
        }
        self.last = Some((total, now_ns));

        let seconds = since_ns as f64 / 1e9;
        let factor = (-seconds / smoothing_s).exp() as f32;
        self.rest.decay(factor);
        let mut least = Look { value: (total - before) as f32, seconds: seconds as f32 };
        for one in &mut self.largest {
            one.decay(factor);
            if one.seconds < OLD_S {
                *one = Look::default();
            }
            // The slowest of the three joins the rest; a place without time is free.
            if one.rate() < least.rate() || one.seconds == 0.0 {
                std::mem::swap(one, &mut least);
            }
        }
        self.rest.add(least);
    }

    /// The rate per second without the largest two intervals. 0 while there are no others.
    pub(super) fn rate(&self) -> f64 {
        self.rest.rate().into()
    }
}

/// A flow at the watched rate.
#[derive(Clone, Copy)]
pub(super) struct HotFlow {
    pub(super) place: u32,
    /// Generation of the key that the evidence is about.
    pub(super) generation: u32,
    pub(super) evidence: Evidence,
}

impl HotFlow {
    pub(super) fn new(place: u32, generation: u32) -> HotFlow {
        HotFlow { place, generation, evidence: Evidence::default() }
    }
}

/// The flows at the watched rate, each once.
pub(super) struct HotFlows {
    pub(super) flows: Vec<HotFlow>,
    /// This decayed sum, times the current weight, is at the watched rate. It is low by the time since the last check.
    pub(super) least: f64,
    pub(super) missed: u64,
    /// Index of the last candidate for replacement.
    turn: usize,
}

impl HotFlows {
    pub(super) fn new() -> HotFlows {
        HotFlows { flows: Vec::new(), least: f64::INFINITY, missed: 0, turn: 0 }
    }

    /// Maximum memory, in bytes: the list may be twice as long as needed.
    pub(super) const fn memory_max_bytes() -> usize {
        HOT_MAX * 2 * size_of::<HotFlow>()
    }

    pub(super) fn is_full(&self) -> bool {
        self.flows.len() >= HOT_MAX
    }

    /// The next candidate for replacement.
    pub(super) fn next_candidate(&mut self) -> &mut HotFlow {
        self.turn = (self.turn + 1) % self.flows.len();
        &mut self.flows[self.turn]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: u64 = 100_000_000;

    /// The rate after these amounts in intervals of 100 ms, with a time constant of 1 s.
    fn rate(amounts: &[f64]) -> f64 {
        let (mut evidence, mut total) = (Evidence::default(), 1e12);
        evidence.look(total, 0, 1.0);
        for (at, amount) in amounts.iter().enumerate() {
            total += amount;
            evidence.look(total, (at as u64 + 1) * TICK_NS, 1.0);
        }
        evidence.rate()
    }

    #[test]
    fn what_goes_on_has_its_rate_after_three_checks() {
        assert_eq!(rate(&[]), 0.0);
        assert_eq!(rate(&[10.0, 10.0]), 0.0);
        for checks in 3..100 {
            let rate = rate(&vec![10.0; checks]);
            assert!((rate / 100.0 - 1.0).abs() < 1e-3, "{checks}: {rate}");
        }
    }

    #[test]
    fn no_two_intervals_make_a_rate() {
        for at in 0..18 {
            let mut amounts = vec![1.0; 20];
            (amounts[at], amounts[at + 1]) = (1e13, 1e12);
            let rate = rate(&amounts);
            assert!((rate / 10.0 - 1.0).abs() < 1e-3, "{at}: {rate}");
        }
        // Nor do they later, when little is left of them.
        for checks in [50, 100, 200, 500] {
            let mut amounts = vec![1.0; checks];
            (amounts[0], amounts[1]) = (1e13, 1e12);
            let rate = rate(&amounts);
            assert!((rate / 10.0 - 1.0).abs() < 1e-3, "{checks}: {rate}");
        }
        // Nor do they when there is nothing else.
        assert_eq!(rate(&[1e13, 1e13, 0.0, 0.0, 0.0]), 0.0);
    }

    #[test]
    fn checks_that_follow_at_once_are_one() {
        let mut evidence = Evidence::default();
        for check in 0..50 {
            evidence.look(f64::from(check) * 1e9, 1_000 * check as u64, 1.0);
        }
        assert_eq!(evidence.rate(), 0.0);
    }
}
