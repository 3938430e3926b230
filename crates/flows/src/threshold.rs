//! Thresholds: one event when a figure passes its limit, one when it is down again.
//!
//! A figure that goes up and down around its limit gives no storm: it is down only once it has stayed below a lower limit
//! for a time.

use crate::estimate::Estimate;
use std::collections::HashMap;
use std::time::Duration;

/// Which end of the interval has to pass the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Judge {
    /// The figure itself: as likely too early as too late.
    #[default]
    Value,
    /// The interval's lower end: an event says that the limit was passed with 97.5 % certainty, and comes some samples later.
    Sure,
}

/// What is watched.
#[derive(Clone, PartialEq, Debug)]
pub struct Threshold {
    /// How events name it.
    pub name: String,
    /// From here on it is passed, in the figure's unit.
    pub limit: f64,
    /// Below this it is down again. At most `limit`.
    pub clear: f64,
    /// For how long it has to stay below `clear`.
    pub clear_after: Duration,
    /// What is held against the limit.
    pub judge: Judge,
    /// How many figures may be above at once. More are counted and give no event.
    pub raised_max: usize,
}

/// What happened to a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It has passed the limit.
    Raised,
    /// It has stayed below for long enough.
    Cleared,
}

/// A figure passed a limit, or is down again.
#[derive(Clone, PartialEq, Debug)]
pub struct Passed {
    /// What happened.
    pub change: Change,
    /// Of which key.
    pub key: Box<[u8]>,
    /// The figure then.
    pub figure: Estimate,
    /// The highest since it was raised.
    pub peak: f64,
    /// When it was raised, in nanoseconds.
    pub raised_ns: u64,
    /// When this was seen.
    pub at_ns: u64,
}

struct Above {
    raised_ns: u64,
    peak: f64,
    /// Since when it is below `clear`.
    below_since_ns: Option<u64>,
    /// The look that saw it last.
    look: u64,
}

/// One threshold and the keys that are above it.
pub struct Watch {
    threshold: Threshold,
    above: HashMap<Box<[u8]>, Above>,
    look: u64,
    untold: u64,
}

impl Watch {
    /// Nothing is above it yet.
    pub fn new(threshold: Threshold) -> Watch {
        Watch { threshold, above: HashMap::new(), look: 0, untold: 0 }
    }

    /// What is watched.
    pub fn threshold(&self) -> &Threshold {
        &self.threshold
    }

    /// Keys that are above now.
    pub fn raised(&self) -> usize {
        self.above.len()
    }

    /// How often a key passed the limit while `raised_max` others were above.
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// Looks at every figure there is. A key that is above and not among them counts as zero.
    pub fn look<'a>(
        &mut self,
        now_ns: u64,
        figures: impl Iterator<Item = (&'a [u8], Estimate)>,
        passed: &mut Vec<Passed>,
    ) {
        for (key, figure) in figures {
            self.figure(now_ns, key, figure, passed);
        }
        self.end_look(now_ns, passed);
    }

    /// Ends a look whose figures came one by one.
    pub(crate) fn end_look(&mut self, now_ns: u64, passed: &mut Vec<Passed>) {
        let unseen: Vec<Box<[u8]>> = self
            .above
            .iter()
            .filter(|(_, one)| one.look != self.look)
            .map(|(key, _)| key.clone())
            .collect();
        for key in unseen {
            self.figure(now_ns, &key, Estimate::ZERO, passed);
        }
        self.look += 1;
    }

    /// Looks at one figure.
    pub(crate) fn figure(
        &mut self,
        now_ns: u64,
        key: &[u8],
        figure: Estimate,
        passed: &mut Vec<Passed>,
    ) {
        let threshold = &self.threshold;
        let Some(above) = self.above.get_mut(key) else {
            let judged = match threshold.judge {
                Judge::Value => figure.value,
                Judge::Sure => figure.low,
            };
            if judged < threshold.limit {
                return;
            }
            if self.above.len() >= threshold.raised_max {
                self.untold += 1;
                return;
            }

            let look = self.look;
            let one = Above { raised_ns: now_ns, peak: figure.value, below_since_ns: None, look };
            self.above.insert(key.into(), one);
            let (peak, raised_ns, at_ns) = (figure.value, now_ns, now_ns);
            passed.push(Passed {
                change: Change::Raised,
                key: key.into(),
                figure,
                peak,
                raised_ns,
                at_ns,
            });
            return;
        };

        above.look = self.look;
        above.peak = above.peak.max(figure.value);
        if figure.value >= threshold.clear {
            above.below_since_ns = None;
            return;
        }
        let since_ns = *above.below_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) >= threshold.clear_after.as_nanos() as u64 {
            let (peak, raised_ns) = (above.peak, above.raised_ns);
            self.above.remove(key);
            let at_ns = now_ns;
            passed.push(Passed {
                change: Change::Cleared,
                key: key.into(),
                figure,
                peak,
                raised_ns,
                at_ns,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn watch(judge: Judge) -> Watch {
        Watch::new(Threshold {
            name: "flood".into(),
            limit: 100.0,
            clear: 80.0,
            clear_after: Duration::from_secs(5),
            judge,
            raised_max: 2,
        })
    }

    fn about(value: f64) -> Estimate {
        Estimate { value, low: value * 0.9, high: value * 1.1 }
    }

    /// What is told of one key whose figure is so, second by second.
    fn told(judge: Judge, values: impl IntoIterator<Item = f64>) -> Vec<(u64, Change)> {
        let (mut watch, mut passed) = (watch(judge), Vec::new());
        for (second, value) in values.into_iter().enumerate() {
            let figures = [(&b"key"[..], about(value))];
            watch.look(second as u64 * SECOND_NS, figures.into_iter(), &mut passed);
        }
        passed.iter().map(|one| (one.at_ns / SECOND_NS, one.change)).collect()
    }

    #[test]
    fn one_event_up_and_one_down() {
        let values = [10.0, 99.0, 100.0, 500.0, 90.0, 79.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0];
        assert_eq!(told(Judge::Value, values), [(2, Change::Raised), (10, Change::Cleared)]);
    }

    #[test]
    fn a_figure_that_flaps_is_told_once() {
        let flapping = (0..1_000).map(|second| if second % 3 == 0 { 150.0 } else { 10.0 });
        assert_eq!(told(Judge::Value, flapping), [(0, Change::Raised)]);
    }

    #[test]
    fn the_sure_one_waits_for_the_lower_end() {
        assert_eq!(told(Judge::Sure, [105.0, 110.0, 112.0]), [(2, Change::Raised)]);
    }

    #[test]
    fn a_key_that_is_gone_is_down_after_its_time() {
        let (mut watch, mut passed) = (watch(Judge::Value), Vec::new());
        watch.look(0, [(&b"a"[..], about(200.0))].into_iter(), &mut passed);
        for second in 1..=6 {
            watch.look(second * SECOND_NS, [].into_iter(), &mut passed);
        }
        let last = passed.last().unwrap();
        assert_eq!((last.change, last.at_ns, last.raised_ns), (Change::Cleared, 6 * SECOND_NS, 0));
        assert_eq!((last.peak, watch.raised()), (200.0, 0));
    }

    #[test]
    fn more_than_may_be_above_are_counted() {
        let (mut watch, mut passed) = (watch(Judge::Value), Vec::new());
        let keys: Vec<[u8; 1]> = (0..5).map(|key| [key]).collect();
        watch.look(0, keys.iter().map(|key| (&key[..], about(200.0))), &mut passed);
        assert_eq!((passed.len(), watch.raised(), watch.untold()), (2, 2, 3));
    }
}
