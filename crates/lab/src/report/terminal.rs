//! The table for a terminal with 100 to 120 columns.

use super::figures::{Room, cells};
use super::{Report, sample_size};
use crate::statistics::Summary;
use text::date;

/// Whether the terminal shows colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Plain,
    /// ANSI colors: headings bold, intervals dimmed.
    Color,
}

impl Ink {
    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Ink::Plain => text.to_owned(),
            Ink::Color => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

const DIM: &str = "2";
const BOLD: &str = "1";

/// Heading and width of each column. If a width is too small, the rest of the row moves; nothing is
/// cut off.
const COLUMNS: [(&str, usize); 13] = [
    ("loss", 6),
    ("seen", 6),
    ("deliv.", 6),
    ("msg/s", 6),
    ("mean", 10),
    ("p50", 10),
    ("p90", 10),
    ("p99", 10),
    ("p99.9", 10),
    ("max", 10),
    ("age p50", 9),
    ("age p99", 9),
    ("resent", 6),
];

pub(super) fn render(report: &Report<'_>, ink: Ink) -> String {
    let mut out = String::new();
    heading(&mut out, report, ink);

    for (transport, schedule) in report.series_names() {
        let series: Vec<&Summary> =
            report.series(&transport, schedule).into_iter().map(|(_, summary)| summary).collect();
        let title = format!("{transport}, {}", schedule.label());
        line(&mut out, &format!("\n{}  {}", ink.paint(BOLD, &title), sample_size(&series)));

        let heads: Vec<String> =
            COLUMNS.iter().map(|(name, width)| format!("{name:>width$}")).collect();
        line(&mut out, &ink.paint(DIM, &heads.join(" ")));
        for summary in series {
            rows(&mut out, summary, ink);
        }
    }

    legend(&mut out, report, ink);
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn heading(out: &mut String, report: &Report<'_>, ink: Ink) {
    let (about, settings) = (&report.about, &report.experiment.settings);
    line(out, &ink.paint(BOLD, "UDP against TCP for telemetry under packet loss"));

    let what = format!(
        "{} bytes, {}/s; {}; {}",
        settings.message_bytes,
        settings.rate_per_sec,
        about.machine.kernel,
        date(about.began_unix_ns)
    );
    line(out, &what);

    if about.interrupted {
        line(
            out,
            &ink.paint("33", "Ended before all runs were done: what follows is what was finished."),
        );
    }

    for note in &about.notes {
        line(out, &format!("Note: {note}"));
    }
}

/// The figures of a point, with their intervals below.
fn rows(out: &mut String, summary: &Summary, ink: Ink) {
    let cells = cells(summary, Room::Terminal);
    let narrow = |value: &str| value.replace(' ', "").replace('–', "-");
    line(out, &row(cells.iter().map(|cell| narrow(&cell.value))));
    if cells.iter().any(|cell| !cell.interval.is_empty()) {
        let text = row(cells.iter().map(|cell| cell.interval.clone()));
        line(out, &ink.paint(DIM, text.trim_end()));
    }
}

fn row(values: impl Iterator<Item = String>) -> String {
    COLUMNS.iter().zip(values).map(|((_, width), value)| format!("{value:>width$} ")).collect()
}

fn legend(out: &mut String, report: &Report<'_>, ink: Ink) {
    let text = format!(
        "\nloss: configured, one way; seen: measured next to the runs; deliv.: delivered of what the schedule offered.\n\
         Below each figure its 95 % interval: bootstrap over runs, {} resamples; none with a single run.\n\
         ≥: a lower bound, for messages that were still under way at the end. age: of the newest message received.",
        report.bootstrap.resamples
    );
    text.lines().for_each(|text| line(out, &ink.paint(DIM, text)));
}
