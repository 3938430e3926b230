//! Numbers as people read them.

use crate::statistics::{Estimate, Interval};
use load::Civil;

/// A time in nanoseconds with three significant digits: `145 µs`, `1.34 s`, `14.0 min`.
pub(super) fn time(ns: f64) -> String {
    let (value, unit) = in_unit(ns, 3);
    format!("{value} {unit}")
}

/// Two times in nanoseconds with two significant digits, for narrow columns; the unit stands once if it is the same: `110-190ms`, `940µs-1.2s`.
pub(super) fn short_times(interval: Interval) -> String {
    let (low, high) = (in_unit(interval.low, 2), in_unit(interval.high, 2));
    if low.1 == high.1 {
        format!("{}-{}{}", low.0, high.0, high.1)
    } else {
        format!("{}{}-{}{}", low.0, low.1, high.0, high.1)
    }
}

/// `≥` where the figure is a lower bound, else nothing.
pub(super) fn bound_sign(estimate: &Estimate) -> &'static str {
    if estimate.at_least { "≥" } else { "" }
}

/// A share as percent without more digits than it has: `14 %`, `0.1 %`, `9.75 %`.
pub(super) fn percent(share: f64) -> String {
    let digits = format!("{:.2}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// `5 runs × 60 s`, `1 run × 300 s`.
pub(super) fn runs_by_length(runs: u32, seconds: f64) -> String {
    format!("{runs} {} × {} s", if runs == 1 { "run" } else { "runs" }, seconds.round())
}

/// A whole number with a comma between thousands: `1,234,567`.
pub(super) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with at most three significant digits, and `k` for thousands or `M` for millions: `850`, `12.5k`, `1.2M`.
pub(super) fn short_count(value: f64) -> String {
    let value = significant(value, 3);
    let (value, unit) = match value {
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = format!("{value:.2}");
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// The date and time of `unix_ns` in UTC: `2026-11-20 17:13:55 UTC`.
pub(super) fn date(unix_ns: u64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(unix_ns);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A time's digits and unit. Minutes only begin at ten, so that seconds can be compared.
fn in_unit(ns: f64, digits: i32) -> (String, &'static str) {
    let units = [(1e3, "ns"), (1e6, "µs"), (1e9, "ms"), (600e9, "s")];
    let scale = |unit: &str| match unit {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => 60e9,
    };
    let rounded = significant(ns, digits);
    let unit = units.iter().find(|(end, _)| rounded < *end).map_or("min", |(_, unit)| unit);
    let value = significant(ns / scale(unit), digits);
    let decimals =
        if value <= 0.0 { 0 } else { (digits - 1 - value.log10().floor() as i32).max(0) };
    (format!("{value:.*}", decimals as usize), unit)
}

fn significant(value: f64, digits: i32) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return value;
    }
    let step = 10_f64.powi(value.log10().floor() as i32 + 1 - digits);
    (value / step).round() * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (7.0, "7.00 ns"),
            (145_400.0, "145 µs"),
            (999_960.0, "1.00 ms"),
            (1_340_000_000.0, "1.34 s"),
            (45_300_000_000.0, "45.3 s"),
            (599_000_000_000.0, "599 s"),
            (840_000_000_000.0, "14.0 min"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn short_times_share_their_unit() {
        assert_eq!(short_times(Interval { low: 110e6, high: 187e6 }), "110-190ms");
        assert_eq!(short_times(Interval { low: 940e3, high: 1.2e9 }), "940µs-1.2s");
        assert_eq!(short_times(Interval { low: 9.94e9, high: 9.96e9 }), "9.9-10s");
    }

    #[test]
    fn other_numbers() {
        assert_eq!(
            [percent(0.14), percent(0.001), percent(0.0975), percent(0.0)],
            ["14 %", "0.1 %", "9.75 %", "0 %"]
        );
        assert_eq!(
            [count(0), count(999), count(1_000), count(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0.0, 850.0, 12_500.0, 1_234_567.0, 999_999.0].map(short_count),
            ["0", "850", "12.5k", "1.23M", "1M"]
        );
        assert_eq!(runs_by_length(5, 59.98), "5 runs × 60 s");
        // date -u -d @951782400, @1795192435
        assert_eq!(date(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_795_195_435_000_000_000), "2026-11-20 17:23:55 UTC");
    }
}
