//! Figures over time, drawn as bars: from the daemon's history, and from what has been seen since the start.

use std::collections::VecDeque;

/// Longest time that a line shows.
pub(super) const RANGE_MS: u64 = 900_000;
/// The times that a line may show: the shortest that has all of its figures.
const RANGES_MS: [u64; 4] = [60_000, 120_000, 300_000, RANGE_MS];

/// A figure over a stretch of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Stretch {
    /// Milliseconds since 1970.
    pub(super) begin_ms: u64,
    pub(super) end_ms: u64,
    pub(super) value: f64,
}

/// One figure over time.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Line {
    stored: Vec<Stretch>,
    seen: VecDeque<Stretch>,
}

impl Line {
    /// Adds the newest figure.
    pub(super) fn see(&mut self, stretch: Stretch) {
        let is_old = |one: &Stretch| one.end_ms + RANGE_MS < stretch.end_ms;
        while self.seen.front().is_some_and(is_old) {
            self.seen.pop_front();
        }
        self.seen.push_back(stretch);
    }

    /// Sets what the daemon's history has.
    pub(super) fn recall(&mut self, stored: Vec<Stretch>) {
        self.stored = stored;
    }

    /// Every figure, oldest first. What has been seen is finer than what is stored.
    fn all(&self) -> impl Iterator<Item = Stretch> + '_ {
        let seen_from = self.seen.front().map_or(u64::MAX, |first| first.begin_ms);
        let stored = self.stored.iter().copied().filter(move |one| one.begin_ms < seen_from);
        let stored = stored.map(move |one| Stretch { end_ms: one.end_ms.min(seen_from), ..one });
        stored.chain(self.seen.iter().copied())
    }

    /// When its first figure begins.
    pub(super) fn begin_ms(&self) -> Option<u64> {
        self.all().next().map(|first| first.begin_ms)
    }

    pub(super) fn latest(&self) -> Option<f64> {
        self.seen.back().map(|last| last.value)
    }

    /// The largest figure in each of `columns` equal parts of the range that ends at `now_ms`; `None` where there is none.
    pub(super) fn bars(&self, (now_ms, range_ms): (u64, u64), columns: usize) -> Vec<Option<f64>> {
        let mut bars = vec![None; columns];
        let begin_ms = now_ms.saturating_sub(range_ms);
        let column =
            |ms: u64| ms.saturating_sub(begin_ms) as f64 * columns as f64 / range_ms.max(1) as f64;
        for one in self.all().filter(|one| one.end_ms > begin_ms && one.begin_ms < now_ms) {
            let first = column(one.begin_ms) as usize;
            let after = (column(one.end_ms.min(now_ms)).ceil() as usize).min(columns);
            for bar in bars.iter_mut().take(after).skip(first) {
                *bar = Some(bar.map_or(one.value, |value: f64| value.max(one.value)));
            }
        }
        bars
    }
}

/// The shortest range that shows everything since `begin_ms`.
pub(super) fn range_ms(begin_ms: u64, now_ms: u64) -> u64 {
    let wanted = now_ms.saturating_sub(begin_ms);
    RANGES_MS.into_iter().find(|range| *range >= wanted).unwrap_or(RANGE_MS)
}

const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Bars of one row, in steps of an eighth of the largest.
pub(super) fn sparkline(values: &[Option<f64>]) -> String {
    chart(values, 1).concat()
}

/// Bars of several rows, the top row first.
pub(super) fn chart(values: &[Option<f64>], rows: usize) -> Vec<String> {
    let most = largest(values);
    let row = |below: usize| {
        let bar = |value: &Option<f64>| {
            let share = value.filter(|_| most > 0.0).map_or(0.0, |value| value / most);
            // Something is never drawn as nothing.
            let eighths = (share * (8 * rows) as f64).ceil() as usize;
            BARS[eighths.saturating_sub(8 * below).min(8)]
        };
        values.iter().map(bar).collect()
    };
    (0..rows).rev().map(row).collect()
}

/// The largest value, 0 if there is none.
pub(super) fn largest(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(begin_ms: u64, end_ms: u64, value: f64) -> Stretch {
        Stretch { begin_ms, end_ms, value }
    }

    #[test]
    fn history_fills_the_line_up_to_what_has_been_seen() {
        let mut line = Line::default();
        line.see(stretch(50_000, 60_000, 4.0));
        line.recall((0..6).map(|at| stretch(at * 10_000, (at + 1) * 10_000, 1.0)).collect());
        assert_eq!(line.bars((60_000, 60_000), 6), [1.0, 1.0, 1.0, 1.0, 1.0, 4.0].map(Some));
        assert_eq!((line.begin_ms(), line.latest()), (Some(0), Some(4.0)));
        assert_eq!(Line::default().bars((60_000, 60_000), 2), [None, None]);
    }

    #[test]
    fn old_figures_are_forgotten() {
        let mut line = Line::default();
        (0..2_000).for_each(|second| line.see(stretch(second * 1_000, second * 1_000 + 999, 1.0)));
        assert!(line.seen.len() <= 901, "{}", line.seen.len());
    }

    #[test]
    fn the_range_has_everything_and_is_as_short_as_it_can_be() {
        assert_eq!(
            [range_ms(0, 0), range_ms(0, 60_001), range_ms(0, u64::MAX)],
            [60_000, 120_000, RANGE_MS]
        );
    }

    #[test]
    fn bars_are_measured_by_the_largest() {
        let values = [Some(0.0), Some(1.0), Some(4.0), Some(8.0), None].to_vec();
        assert_eq!(sparkline(&values), " ▁▄█ ");
        assert_eq!(chart(&values, 2), ["   █ ", " ▂██ "]);
        assert_eq!(sparkline(&[Some(0.0), None]), "  ");
        assert_eq!(sparkline(&[Some(f64::MAX), Some(1.0)]), "█▁");
    }
}
