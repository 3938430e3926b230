//! The tables for a terminal.

use super::figures::{Cell, Room, cells};
use super::{Report, sample_size};
use crate::statistics::Summary;
use text::{Align, Ink, Table, Tint, date};

/// Titles of the columns; those behind the last of the terminal are shown where there is room.
const TITLES: [&str; 16] = [
    "loss",
    "seen",
    "deliv.",
    "msg/s",
    "mean",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "age p50",
    "age p99",
    "resent",
    "timeouts",
    "under way",
    "runs",
];
/// Columns of a terminal from which on there is room for every column, with the page's digits.
const PAGE_FROM_COLUMNS: usize = 180;

/// Lines are at most as long as this terminal has columns, but for sentences, which the caller folds.
pub(super) fn render(report: &Report<'_>, columns: Option<usize>, ink: Ink) -> String {
    let mut out = String::new();
    heading(&mut out, report, ink);

    for (transport, schedule) in report.series_names() {
        let series: Vec<&Summary> =
            report.series(&transport, schedule).into_iter().map(|(_, summary)| summary).collect();
        let title = format!("{transport}, {}", schedule.label());
        let title = ink.tinted(&title, Tint::Heading);
        line(&mut out, &format!("\n{title}  {}", sample_size(&series)));
        out.push_str(&table(&series, columns).text(columns, ink));
    }

    legend(&mut out, report, ink);
    for note in &report.about.notes {
        line(&mut out, &format!("Note: {note}"));
    }
    out
}

/// The figures of each point, and below them their intervals.
fn table<'a>(series: &[&Summary], columns: Option<usize>) -> Table<'a> {
    let room = match columns {
        Some(columns) if columns >= PAGE_FROM_COLUMNS => Room::Page,
        _ => Room::Terminal,
    };
    let rows: Vec<Vec<Cell>> = series.iter().map(|summary| cells(summary, room)).collect();
    let titles = TITLES.iter().take(rows.first().map_or(0, Vec::len));
    let mut table = Table::new(titles.map(|title| (*title, Align::Right)));

    let narrow = |value: &str| value.replace(' ', "").replace('–', "-");
    for cells in rows {
        table.push(cells.iter().map(|cell| narrow(&cell.value)));
        if cells.iter().any(|cell| !cell.interval.is_empty()) {
            table.push_tinted(cells.into_iter().map(|cell| cell.interval), Tint::Dim);
        }
    }
    table
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn heading(out: &mut String, report: &Report<'_>, ink: Ink) {
    let (about, settings) = (&report.about, &report.experiment.settings);
    line(out, &ink.tinted("UDP against TCP for telemetry under packet loss", Tint::Heading));

    let what = format!(
        "{} bytes, {}/s; {}; {}",
        settings.message_bytes,
        settings.rate_per_sec,
        about.machine.kernel,
        date(about.began_unix_ns)
    );
    line(out, &what);

    if about.interrupted {
        let text = "Ended before all runs were done: what follows is what was finished.";
        line(out, &ink.tinted(text, Tint::Notice));
    }
}

fn legend(out: &mut String, report: &Report<'_>, ink: Ink) {
    let text = format!(
        "\nloss: configured, one way; seen: measured next to the runs; deliv.: delivered of what the schedule offered.\n\
         Below each figure its 95 % interval: bootstrap over runs, {} resamples; none with a single run.\n\
         ≥: a lower bound, for messages that were still under way at the end. age: of the newest message received.",
        report.bootstrap.resamples
    );
    text.lines().for_each(|text| line(out, &ink.tinted(text, Tint::Dim)));
}
