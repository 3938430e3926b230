//! Two small charts in Unicode block characters: datagrams over time, and the distribution of latencies.

use crate::{LatencyReport, Timeline};
use text::{grouped, time};

/// Columns of a line next to those of the chart in it.
const MARGIN: usize = 40;
/// Fewest and most columns of a chart over time.
const WIDTHS: (usize, usize) = (16, 120);
/// The same where nobody says how long a line may be.
const WIDTH: usize = 64;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One line of columns, each the average rate of its share of the time, and the highest one in figures. Empty for runs
/// too short to have a course. `columns` are those of the terminal.
pub fn rate_over_time(timeline: &Timeline, columns: Option<usize>) -> String {
    let intervals = &timeline.datagrams;
    if intervals.len() < 3 {
        return String::new();
    }

    let (least, most) = WIDTHS;
    let width = columns.map_or(WIDTH, |all| all.saturating_sub(MARGIN).clamp(least, most));
    let per_column = intervals.len().div_ceil(width);
    let column_seconds = |column: &[u64]| column.len() as f64 * timeline.interval_ns as f64 / 1e9;
    // The last interval is seldom complete; alone in a column it would look like a drop in the rate.
    let whole = &intervals[..intervals.len() - 1];

    let rates: Vec<f64> = whole
        .chunks(per_column)
        .map(|column| column.iter().sum::<u64>() as f64 / column_seconds(column))
        .collect();
    let top = rates.iter().copied().fold(0.0, f64::max);
    let chart: String = rates.iter().map(|rate| column(*rate, top)).collect();
    let seconds = whole.len() as f64 * timeline.interval_ns as f64 / 1e9;
    format!("  rate    ▕{chart}▏ {seconds:.1} s, top {}/s\n", grouped(top as u64))
}

fn column(value: f64, top: f64) -> char {
    if value <= 0.0 || top <= 0.0 {
        return EIGHTHS[0];
    }
    // Anything above zero is visible.
    EIGHTHS[((value / top * 8.0).round() as usize).clamp(1, 8)]
}

/// A bar for each bucket of the distribution.
pub fn latency(report: &LatencyReport) -> String {
    const BAR: usize = 40;

    let top = report.distribution.iter().map(|bucket| bucket.samples).max().unwrap_or(0);
    if top == 0 {
        return String::new();
    }

    let bars = report.distribution.iter().map(|bucket| {
        format!(
            "  {:>10}  {:<BAR$}  {:>6.2} %\n",
            format!("< {}", edge_text(bucket.up_to_ns)),
            bar(bucket.samples, top, BAR),
            bucket.samples as f64 * 100.0 / report.samples as f64,
        )
    });

    bars.collect()
}

/// Bucket edges are round numbers, so trailing zeros are dropped.
fn edge_text(edge_ns: u64) -> String {
    time(edge_ns as f64).replace(".00", "").replace(".0", "")
}

fn bar(value: u64, top: u64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (u128::from(value) * width as u128 * 8).div_ceil(u128::from(top)) as usize;
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bucket;

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(bar(0, 10, 4), "");
        assert_eq!(bar(10, 10, 4), "████");
        assert_eq!(bar(5, 10, 4), "██");
        assert_eq!(bar(1, 1_000_000, 4), "▏");
    }

    #[test]
    fn the_distribution_is_drawn() {
        let distribution = vec![
            Bucket { up_to_ns: 10_000, samples: 75 },
            Bucket { up_to_ns: 20_000, samples: 25 },
        ];
        let report = LatencyReport { samples: 100, distribution, ..LatencyReport::default() };
        let text = latency(&report);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("< 10 µs") && lines[0].ends_with(" 75.00 %"), "{text}");
        assert!(lines[1].contains("█████████████▍ "), "{text}");
    }

    #[test]
    fn columns_show_the_course() {
        let timeline = Timeline { datagrams: vec![100, 0, 50, 7], ..Timeline::default() };
        assert_eq!(rate_over_time(&timeline, None), "  rate    ▕█ ▄▏ 0.3 s, top 1,000/s\n");
        assert_eq!(rate_over_time(&Timeline::default(), None), "");
    }
}
