//! Thresholds: one event when a figure passes its limit, and one when it drops below again.
//!
//! A figure that fluctuates around its limit does not cause a storm of events: it counts as down only once it has stayed below a
//! lower limit for some time.

use crate::estimate::Estimate;
use crate::filter::Filter;
use crate::lookup::Network;
use std::collections::HashMap;
use std::time::Duration;

/// Which end of the interval must pass the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Judge {
    /// The figure itself: equally likely to be too early as too late.
    #[default]
    Value,
    /// The interval's lower end: an event means that the limit was passed with 97.5 % certainty, and comes some samples later.
    Sure,
}

/// What to watch.
#[derive(Clone, PartialEq, Debug)]
pub struct Threshold {
    /// Its name in events.
    pub name: String,
    /// At or above this the limit is passed, in the figure's unit.
    pub limit: f64,
    /// Below this the figure is down again. At most `limit`.
    pub clear: f64,
    /// How long it must stay below `clear`.
    pub clear_after: Duration,
    /// How long it must stay at or above `limit` before there is an event. With zero, the first check is enough.
    pub hold: Duration,
    /// What is compared with the limit.
    pub judge: Judge,
    /// For flows, only those whose keys pass. Ignored for everything else.
    pub filter: Option<Filter>,
    /// For interfaces and agents, only agents in these networks. Empty for all.
    pub agents: Vec<Network>,
    /// Maximum number of figures that may be above at once, at least one. Further ones are counted but cause no event.
    pub raised_max: usize,
}

impl Threshold {
    /// A threshold on everything, which clears below 80 % of the limit for 10 s.
    pub fn new(name: impl Into<String>, limit: f64) -> Threshold {
        Threshold {
            name: name.into(),
            limit,
            clear: limit * 0.8,
            clear_after: Duration::from_secs(10),
            hold: Duration::ZERO,
            judge: Judge::Value,
            filter: None,
            agents: Vec::new(),
            raised_max: 1_000,
        }
    }

    fn is_passed(&self, figure: &Estimate) -> bool {
        let judged = match self.judge {
            Judge::Value => figure.value,
            Judge::Sure => figure.low,
        };
        judged >= self.limit
    }
}

/// What happened to a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It has passed the limit.
    Raised,
    /// It has stayed below for long enough, or is no longer watched.
    Cleared,
}

impl Change {
    /// The word for the change.
    pub const fn word(self) -> &'static str {
        match self {
            Change::Raised => "raised",
            Change::Cleared => "cleared",
        }
    }
}

/// A figure passed a limit, or dropped below it again.
#[derive(Clone, PartialEq, Debug)]
pub struct Passed {
    /// What happened.
    pub change: Change,
    /// The key.
    pub key: Box<[u8]>,
    /// The figure at that time.
    pub figure: Estimate,
    /// The highest value since it was raised.
    pub peak: f64,
    /// When it was raised, in nanoseconds.
    pub raised_ns: u64,
    /// When this was noticed.
    pub at_ns: u64,
}

/// A key that is above the limit, or was and has not cleared yet.
struct Above {
    /// Where its figure comes from if a key has several: the vantage that sees most of it.
    origin: u32,
    figure: Estimate,
    peak: f64,
    /// Since when it has been above.
    since_ns: u64,
    /// When it was raised. `None` while it has been above for less than `hold`.
    raised_ns: Option<u64>,
    /// Since when it has been below `clear`.
    below_since_ns: Option<u64>,
    /// The last check that saw it.
    look: u64,
}

/// One threshold, and the keys above it.
pub struct Watch {
    threshold: Threshold,
    above: HashMap<Box<[u8]>, Above>,
    look: u64,
    untold: u64,
}

impl Watch {
    /// A watch with nothing above it yet.
    pub fn new(threshold: Threshold) -> Watch {
        Watch { threshold, above: HashMap::new(), look: 1, untold: 0 }
    }

    /// What is watched.
    pub fn threshold(&self) -> &Threshold {
        &self.threshold
    }

    /// Number of keys that are above now.
    pub fn raised(&self) -> usize {
        self.above.values().filter(|one| one.raised_ns.is_some()).count()
    }

    /// How often a check found a key above the limit while `raised_max` others were.
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// Checks the figures that may have changed, and every key that is above. `figure_of` returns the current figure of a key
    /// that is not among them; a missing key counts as zero.
    pub fn look<'a>(
        &mut self,
        now_ns: u64,
        figures: impl Iterator<Item = (&'a [u8], Estimate)>,
        figure_of: impl Fn(&[u8], u32) -> Option<Estimate>,
        passed: &mut Vec<Passed>,
    ) {
        for (key, figure) in figures {
            self.figure(now_ns, key, 0, figure, figure.value);
        }
        self.end_look(now_ns, figure_of, passed);
    }

    /// Checks one figure. If a key has several, the highest counts. `steady` is the figure without what may come from a single
    /// moment: only if it passes the limit as well does the figure pass it.
    pub(crate) fn figure(
        &mut self,
        now_ns: u64,
        key: &[u8],
        origin: u32,
        figure: Estimate,
        steady: f64,
    ) {
        let look = self.look;
        if let Some(above) = self.above.get_mut(key) {
            if above.look != look || figure.value > above.figure.value {
                (above.figure, above.origin, above.look) = (figure, origin, look);
            }
            return;
        }
        let is_steady = steady >= self.threshold.limit;
        if !is_steady || !self.threshold.is_passed(&figure) {
            return;
        }
        if self.above.len() >= self.threshold.raised_max.max(1) {
            self.untold += 1;
            return;
        }

        let one = Above {
            origin,
            figure,
            peak: figure.value,
            since_ns: now_ns,
            raised_ns: None,
            below_since_ns: None,
            look,
        };
        self.above.insert(key.into(), one);
    }

    /// Ends a check whose figures came one by one.
    pub(crate) fn end_look(
        &mut self,
        now_ns: u64,
        figure_of: impl Fn(&[u8], u32) -> Option<Estimate>,
        passed: &mut Vec<Passed>,
    ) {
        let (threshold, look) = (&self.threshold, self.look);
        self.above.retain(|key, one| {
            if one.look != look {
                one.figure = figure_of(key, one.origin).unwrap_or(Estimate::ZERO);
            }
            one.judge(threshold, key, now_ns, passed)
        });
        self.look += 1;
    }

    /// Clears everything that is raised, whatever its figure, because it is no longer watched.
    pub(crate) fn release(&mut self, now_ns: u64, passed: &mut Vec<Passed>) {
        for (key, one) in self.above.drain() {
            if let Some(raised_ns) = one.raised_ns {
                passed.push(one.passed(Change::Cleared, &key, raised_ns, now_ns));
            }
        }
    }
}

impl Above {
    /// Evaluates the figure of this check. Returns whether to keep watching the key.
    fn judge(
        &mut self,
        threshold: &Threshold,
        key: &[u8],
        now_ns: u64,
        passed: &mut Vec<Passed>,
    ) -> bool {
        self.peak = self.peak.max(self.figure.value);
        let Some(raised_ns) = self.raised_ns else {
            if !threshold.is_passed(&self.figure) {
                return false;
            }
            if now_ns.saturating_sub(self.since_ns) >= threshold.hold.as_nanos() as u64 {
                self.raised_ns = Some(now_ns);
                passed.push(self.passed(Change::Raised, key, now_ns, now_ns));
            }
            return true;
        };

        if self.figure.value >= threshold.clear {
            self.below_since_ns = None;
            return true;
        }
        let since_ns = *self.below_since_ns.get_or_insert(now_ns);
        let is_down = now_ns.saturating_sub(since_ns) >= threshold.clear_after.as_nanos() as u64;
        if is_down {
            passed.push(self.passed(Change::Cleared, key, raised_ns, now_ns));
        }
        !is_down
    }

    fn passed(&self, change: Change, key: &[u8], raised_ns: u64, at_ns: u64) -> Passed {
        let (figure, peak) = (self.figure, self.peak);
        Passed { change, key: key.into(), figure, peak, raised_ns, at_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn watch(judge: Judge) -> Watch {
        let clear_after = Duration::from_secs(5);
        Watch::new(Threshold {
            clear_after,
            judge,
            raised_max: 2,
            ..Threshold::new("flood", 100.0)
        })
    }

    fn about(value: f64) -> Estimate {
        Estimate { value, low: value * 0.9, high: value * 1.1 }
    }

    /// A key about which nothing is known.
    fn gone(_: &[u8], _: u32) -> Option<Estimate> {
        None
    }

    /// The events for one key with these figures, second by second.
    fn told(judge: Judge, values: impl IntoIterator<Item = f64>) -> Vec<(u64, Change)> {
        told_by(watch(judge), values)
    }

    fn told_by(mut watch: Watch, values: impl IntoIterator<Item = f64>) -> Vec<(u64, Change)> {
        let mut passed = Vec::new();
        for (second, value) in values.into_iter().enumerate() {
            let figures = [(&b"key"[..], about(value))];
            watch.look(second as u64 * SECOND_NS, figures.into_iter(), gone, &mut passed);
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
    fn a_peak_that_is_too_short_is_none() {
        let hold = Duration::from_secs(2);
        let watch = || {
            let Watch { threshold, .. } = watch(Judge::Value);
            Watch::new(Threshold { hold, ..threshold })
        };
        assert_eq!(told_by(watch(), [150.0, 150.0, 50.0, 150.0, 150.0, 50.0]), []);
        assert_eq!(told_by(watch(), [150.0, 50.0, 150.0, 150.0, 150.0]), [(4, Change::Raised)]);
    }

    #[test]
    fn a_key_that_is_not_looked_at_keeps_the_figure_that_it_has() {
        let (mut watch, mut passed) = (watch(Judge::Value), Vec::new());
        watch.look(0, [(&b"a"[..], about(200.0))].into_iter(), gone, &mut passed);
        for second in 1..=100 {
            let known = |_: &[u8], _| Some(about(190.0));
            watch.look(second * SECOND_NS, [].into_iter(), known, &mut passed);
        }
        assert_eq!((passed.len(), watch.raised()), (1, 1));
    }

    #[test]
    fn of_several_figures_of_one_key_the_highest_holds() {
        let (mut watch, mut passed) = (watch(Judge::Value), Vec::new());
        for (origin, value) in [(1, 110.0), (2, 300.0), (3, 120.0)] {
            watch.figure(0, b"a", origin, about(value), value);
        }
        watch.end_look(0, gone, &mut passed);
        let raised: Vec<f64> = passed.iter().map(|one| one.figure.value).collect();
        assert_eq!(raised, [300.0]);
        let asked = std::cell::Cell::new(0);
        watch.end_look(
            SECOND_NS,
            |_, origin| {
                asked.set(origin);
                None
            },
            &mut passed,
        );
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn what_is_watched_no_longer_is_cleared() {
        let (mut watch, mut passed) = (watch(Judge::Value), Vec::new());
        watch.look(0, [(&b"a"[..], about(200.0))].into_iter(), gone, &mut passed);
        watch.release(SECOND_NS, &mut passed);
        assert_eq!((passed.len(), passed[1].change), (2, Change::Cleared));
        assert_eq!(watch.raised(), 0);
    }

    #[test]
    fn a_key_that_is_gone_is_down_after_its_time() {
        let (mut watch, mut passed) = (watch(Judge::Value), Vec::new());
        watch.look(0, [(&b"a"[..], about(200.0))].into_iter(), gone, &mut passed);
        for second in 1..=6 {
            watch.look(second * SECOND_NS, [].into_iter(), gone, &mut passed);
        }
        let last = passed.last().unwrap();
        assert_eq!((last.change, last.at_ns, last.raised_ns), (Change::Cleared, 6 * SECOND_NS, 0));
        assert_eq!((last.peak, watch.raised()), (200.0, 0));
    }

    #[test]
    fn more_than_may_be_above_are_counted() {
        let (mut watch, mut passed) = (watch(Judge::Value), Vec::new());
        let keys: Vec<[u8; 1]> = (0..5).map(|key| [key]).collect();
        watch.look(0, keys.iter().map(|key| (&key[..], about(200.0))), gone, &mut passed);
        assert_eq!((passed.len(), watch.raised(), watch.untold()), (2, 2, 3));
    }
}
