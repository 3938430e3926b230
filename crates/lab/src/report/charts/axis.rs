use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// One axis: the positions of values along it, and its ticks with their labels. The drawing library sees coordinates of
/// positions, which are the values' logarithms on a logarithmic axis.
pub(in crate::report) struct Axis {
    pub(in crate::report) name: String,
    place: fn(f64) -> f64,
    pub(in crate::report) range: Range<f64>,
    /// Positions of ticks, with their labels.
    pub(in crate::report) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Times in nanoseconds on a logarithmic axis, in whole decades. Values of 0 and below are at the lower end.
    pub(in crate::report) fn times(name: &str, values: impl Iterator<Item = f64>) -> Axis {
        Axis::decades(name, values, |digit, exponent| {
            let digits = 10_u64.pow(exponent.rem_euclid(3) as u32);
            let unit = ["ns", "µs", "ms", "s"]
                .get(exponent.div_euclid(3).clamp(0, 3) as usize)
                .unwrap_or(&"s");
            let thousands = if exponent >= 12 { 10_u64.pow(exponent as u32 - 9) } else { digits };
            format!("{} {unit}", thousands * u64::from(digit))
        })
    }

    /// Shares from 1 down on a logarithmic axis, in whole decades.
    pub(in crate::report) fn shares(name: &str, values: impl Iterator<Item = f64>) -> Axis {
        let label = |digit: u32, exponent: i32| match exponent + 2 {
            percent @ 0.. => format!("{} %", 10_u64.pow(percent as u32) * u64::from(digit)),
            percent => {
                let value = 10_f64.powi(percent) * f64::from(digit);
                format!("{value:.*} %", percent.unsigned_abs() as usize)
            }
        };
        let mut axis = Axis::decades(name, values.chain([1.0]), label);
        axis.range.end = 0.0;
        axis.ticks.retain(|(place, _)| *place <= 0.0);
        axis
    }

    /// Values from 0 to slightly above the highest on a linear axis, in steps of 1, 2 or 5.
    pub(in crate::report) fn from_zero(name: &str, values: impl Iterator<Item = f64>) -> Axis {
        Axis::linear(name, values, |value, digits| format!("{value:.digits$}"))
    }

    /// Numbers from 0 up, with `k` for thousands and `M` for millions.
    pub(in crate::report) fn counts(name: &str, values: impl Iterator<Item = f64>) -> Axis {
        Axis::linear(name, values, |value, _| text::short_count(value))
    }

    /// Shares from 0 to at least one percent on a linear axis, which ends at 100 % at the latest.
    pub(in crate::report) fn shares_from_zero(
        name: &str,
        values: impl Iterator<Item = f64>,
    ) -> Axis {
        // Labels have two decimal places: below one percent, steps would have equal labels.
        let values = values.chain([0.01]);
        let mut axis = Axis::linear(name, values, |value, _| text::percent(value));
        axis.ticks.retain(|(place, _)| *place <= 1.0 + 1e-9);
        axis.range.end = axis.range.end.min(1.0);
        axis
    }

    /// From 0 to slightly above the highest value, in steps of 1, 2 or 5. `label` gets a value and the number of decimal
    /// places of its step.
    fn linear(
        name: &str,
        values: impl Iterator<Item = f64>,
        label: impl Fn(f64, usize) -> String,
    ) -> Axis {
        let highest = values.filter(|value| value.is_finite()).fold(0.0, f64::max).max(1e-9);
        let rough = highest / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|digit| digit * decade)
            .into_iter()
            .find(|step| *step >= rough);
        let step = step.unwrap_or(rough);

        let count = (highest * 1.01 / step).ceil() as u32;
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let ticks =
            (0..=count).map(|n| f64::from(n) * step).map(|v| (v, label(v, digits))).collect();

        Axis {
            name: name.to_owned(),
            place: |value| value,
            range: 0.0..f64::from(count) * step,
            ticks,
        }
    }

    /// Loss rates, with a tick at each rate that was run, unless the ticks are too close together.
    pub(in crate::report) fn losses(name: &str, mut losses: Vec<f64>) -> Axis {
        losses.sort_unstable_by(f64::total_cmp);
        losses.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
        let (first, last) =
            (losses.first().copied().unwrap_or(0.0), losses.last().copied().unwrap_or(1.0));

        let span = (last - first).max(0.01);
        let mut ticks: Vec<(f64, String)> = Vec::new();
        for loss in losses {
            if ticks.last().is_none_or(|(before, _)| loss - before >= span * 0.045) {
                ticks.push((loss, text::percent(loss)));
            }
        }

        Axis {
            name: name.to_owned(),
            place: |value| value,
            range: first - span * 0.025..last + span * 0.025,
            ticks,
        }
    }

    /// Whole decades; `label` gets a digit and the exponent of ten. With fewer than three decades there is more to read: ticks at 2 and 5.
    fn decades(
        name: &str,
        values: impl Iterator<Item = f64>,
        label: impl Fn(u32, i32) -> String,
    ) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for exponent in values.filter(|value| *value > 0.0 && value.is_finite()).map(f64::log10) {
            low = low.min(exponent);
            high = high.max(exponent);
        }

        let (low, high) =
            if low <= high { (low.floor() as i32, high.ceil() as i32) } else { (0, 1) };
        let high = high.max(low + 1);

        let digits: &[u32] = if high - low < 3 { &[1, 2, 5] } else { &[1] };
        let tick = |exponent: i32, digit: u32| {
            (f64::from(exponent) + f64::from(digit).log10(), label(digit, exponent))
        };
        let ticks =
            (low..high).flat_map(|exponent| digits.iter().map(move |digit| (exponent, *digit)));
        let ticks =
            ticks.chain([(high, 1)]).map(|(exponent, digit)| tick(exponent, digit)).collect();
        let place = |value: f64| value.log10();
        Axis { name: name.to_owned(), place, range: f64::from(low)..f64::from(high), ticks }
    }

    /// The position of `value`, limited to the axis.
    pub(in crate::report) fn place(&self, value: f64) -> f64 {
        let place = (self.place)(value);
        if place.is_nan() {
            self.range.start
        } else {
            place.clamp(self.range.start, self.range.end)
        }
    }
}

impl Ranged for &Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }

    fn map(&self, place: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (place - self.range.start) / (self.range.end - self.range.start);
        first + (f64::from(last - first) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(place, _)| *place).collect()
    }
}

/// The label of the tick at a position.
impl ValueFormatter<f64> for &Axis {
    fn format_ext(&self, place: &f64) -> String {
        let distance = |tick: &(f64, String)| (tick.0 - place).abs();
        let nearest = self.ticks.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn times_are_in_decades() {
        let axis = Axis::times("", [80e3, 3e9].into_iter());
        assert_eq!(labels(&axis), ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]);
        let one = Axis::times("", [840e9].into_iter());
        assert_eq!(labels(&one), ["100 s", "200 s", "500 s", "1000 s"]);
        assert_eq!((axis.place(0.0), axis.place(1e30)), (4.0, 10.0));
    }

    #[test]
    fn shares_end_at_all() {
        assert_eq!(
            labels(&Axis::shares("", [0.0003, 0.5].into_iter())),
            ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"]
        );
        let one = Axis::shares("", [0.2].into_iter());
        assert_eq!(labels(&one), ["10 %", "20 %", "50 %", "100 %"]);
        let places: Vec<f64> = one.ticks.iter().map(|(place, _)| *place).collect();
        assert_eq!((places[0], places[3]), (-1.0, 0.0));
        assert!((places[1] + 0.699).abs() < 1e-3, "{places:?}");
        let two = Axis::shares("", [0.007].into_iter());
        assert_eq!(labels(&two)[..4], ["0.1 %", "1 %", "10 %", "100 %"]);
        let two = Axis::shares("", [0.02].into_iter());
        assert_eq!(labels(&two), ["1 %", "2 %", "5 %", "10 %", "20 %", "50 %", "100 %"]);
    }

    #[test]
    fn rates_begin_at_zero() {
        assert_eq!(
            labels(&Axis::from_zero("", [98.5, 7.0].into_iter())),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(&Axis::from_zero("", [0.3].into_iter())),
            ["0.0", "0.1", "0.2", "0.3", "0.4"]
        );
    }

    #[test]
    fn counts_and_shares() {
        let values = [0.0, 350_000.0];
        assert_eq!(
            labels(&Axis::counts("", values.into_iter())),
            ["0", "100k", "200k", "300k", "400k"]
        );
        let shares = Axis::shares_from_zero("", [1.0, 0.2].into_iter());
        assert_eq!(labels(&shares), ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]);
        assert_eq!(shares.range, 0.0..1.0);
        let none = Axis::shares_from_zero("", [0.0].into_iter());
        assert_eq!(labels(&none)[..3], ["0 %", "0.2 %", "0.4 %"]);
    }

    #[test]
    fn nothing_still_has_an_axis() {
        for axis in [
            Axis::counts("", [].into_iter()),
            Axis::shares_from_zero("", [].into_iter()),
            Axis::times("", [].into_iter()),
            Axis::from_zero("", [].into_iter()),
            Axis::losses("", vec![]),
        ] {
            assert!(axis.range.start < axis.range.end);
        }
    }
}
