//! Shows where a relay begins to lose: table, charts, page, CSV and JSON of a [`Sweep`].

use super::charts::axis::Axis;
use super::charts::finish;
use super::charts::plot::{Curve as Line, Mark, Plot, heights};
use super::csv::Table;
use super::page::{self, Page, table, text_table};
use super::{Chart, ReportError};
use crate::relay_sweep::{Combination, Curve, Sample, Sweep};
use load::search::Knee;
use std::path::{Path, PathBuf};
use text::{Ink, grouped, percent, plural, short_count, time};

/// The report of a sweep.
pub struct RelayReport<'a> {
    sweep: &'a Sweep,
}

const HEAD: [&str; 10] = [
    "offered/s",
    "sent/s",
    "missing",
    "share",
    "p50",
    "p99",
    "p99.9",
    "max",
    "at receivers",
    "lost by the relay, as it says",
];

impl<'a> RelayReport<'a> {
    pub fn new(sweep: &'a Sweep) -> RelayReport<'a> {
        RelayReport { sweep }
    }

    /// A table for each combination, and the knees. Tables have lines of at most this many columns; sentences are the caller's
    /// to fold.
    pub fn terminal(&self, columns: Option<usize>, ink: Ink) -> String {
        let mut text = String::new();
        for curve in &self.sweep.curves {
            let title = format!("{}: {}", describe(curve.combination), knee(curve.knee));
            let rows: Vec<_> = curve.samples.iter().map(row).collect();
            text.push_str(&format!("{title}\n{}\n", text_table(&HEAD, &rows, columns, ink)));
        }
        text.push_str(&text_table(&KNEE_HEAD, &self.knee_rows(), columns, ink));
        for note in &self.sweep.about.notes {
            text.push_str(&format!("\nNote: {note}\n"));
        }
        text
    }

    /// Writes every form of the report into `folder`, which is created if missing, and returns the files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
        let others = [("samples.csv", self.samples_csv()), ("knees.csv", self.knees_csv())];
        page::write(folder, &self.page(), self.sweep, &others, &self.charts()?)
    }

    /// Charts of loss and latency against rate, of the places of loss, and of the knee against each factor
    /// that varied.
    ///
    /// # Errors
    /// Errors of the drawing library.
    pub fn charts(&self) -> Result<Vec<Chart>, ReportError> {
        let mut charts = Vec::new();
        if let Some(base) = self.sweep.curves.first() {
            charts.push(self.loss_chart()?);
            charts.push(self.latency_chart(base)?);
            charts.push(self.places_chart(base)?);
        }
        Ok(charts)
    }

    fn loss_chart(&self) -> Result<Chart, ReportError> {
        let lines = self.lines(|sample| Some(sample.missing_share));
        let y = Axis::shares_from_zero("share of datagrams that are missing", heights(&lines));
        let plot = self.plot("Loss against rate", COMBINATIONS, y, lines);
        finish(
            plot,
            "loss".to_owned(),
            format!(
                "Which share of what was sent is missing at the receivers. Up to {} counts as none.",
                percent(self.sweep.tolerance)
            ),
        )
    }

    fn latency_chart(&self, base: &Curve) -> Result<Chart, ReportError> {
        type Of = fn(&crate::relay_sweep::Quantiles) -> u64;
        let quantiles: [(&str, Of); 4] = [
            ("p50", |latency| latency.p50_ns),
            ("p99", |latency| latency.p99_ns),
            ("p99.9", |latency| latency.p99_9_ns),
            ("max", |latency| latency.max_ns),
        ];

        let lines = quantiles.iter().enumerate().map(|(style, (label, of))| {
            let y = |sample: &Sample| sample.latency.as_ref().map(|latency| of(latency) as f64);
            line((*label).to_owned(), style, &base.samples, y)
        });
        let lines: Vec<Line> = lines.collect();

        let y = Axis::times("latency from sender to receiver", heights(&lines));
        let title = "Latency through the relay against rate";
        let plot = self.plot(title, &describe(base.combination), y, lines);
        let caption = "Time from the sender's stamp to the receiver; at each quantile the slowest target. It leaps where queues fill.";
        finish(plot, "latency".to_owned(), caption.to_owned())
    }

    /// The losses in the relay's ledger, and those that it cannot know.
    fn places_chart(&self, base: &Curve) -> Result<Chart, ReportError> {
        let mut places: Vec<&str> = Vec::new();
        for lost in base.samples.iter().filter_map(|sample| sample.ledger.as_ref()) {
            places.extend(lost.lost.iter().map(|lost| lost.at.as_str()));
        }

        places.sort_unstable();
        places.dedup();
        let share = |sample: &Sample, copies: u64| copies as f64 / sample.expected.max(1) as f64;
        let mut lines =
            vec![line("missing".to_owned(), 0, &base.samples, |sample| Some(sample.missing_share))];

        for (style, place) in places.into_iter().enumerate() {
            let y = |sample: &Sample| {
                let lost = &sample.ledger.as_ref()?.lost;
                let copies = lost.iter().filter(|lost| lost.at == place).map(|lost| lost.copies);
                Some(share(sample, copies.sum()))
            };
            lines.push(line(place.to_owned(), style + 2, &base.samples, y));
        }

        let at_receivers = |sample: &Sample| Some(share(sample, sample.dropped_at_receivers));
        lines.push(line("the lab's receivers".to_owned(), 1, &base.samples, at_receivers));

        let y = Axis::shares_from_zero("share of datagrams", heights(&lines));
        let plot = self.plot("Where datagrams were lost", &describe(base.combination), y, lines);
        let caption = "What is missing, and who says that it dropped it: the relay's ledger by place and reason, and the sockets of the lab's own receivers.";
        finish(plot, "places".to_owned(), caption.to_owned())
    }

    fn lines(&self, y: impl Fn(&Sample) -> Option<f64> + Copy) -> Vec<Line> {
        let curves = self.sweep.curves.iter().enumerate();
        curves.map(|(style, c)| line(describe_short(c.combination), style, &c.samples, y)).collect()
    }

    fn plot(&self, title: &str, what: &str, y: Axis, curves: Vec<Line>) -> Plot {
        let rates = curves.iter().flat_map(|curve| &curve.marks).map(|mark| mark.x);
        Plot {
            title: title.to_owned(),
            subtitle: format!("{what} · {} s each", self.sweep.duration_s),
            footnote: self.footnote(),
            x: Axis::counts("datagrams sent per second", rates.collect::<Vec<_>>().into_iter()),
            y,
            curves,
        }
    }

    fn footnote(&self) -> String {
        format!("{}. {}.", self.sweep.relay, self.sweep.about.machine.kernel)
    }

    fn knee_rows(&self) -> Vec<Vec<String>> {
        let row = |curve: &Curve| {
            let of = curve.combination;
            let sizes = [of.size_bytes, of.targets, of.flows].map(|value| value.to_string());
            let mut row = sizes.to_vec();
            row.push(knee(curve.knee));
            row
        };
        self.sweep.curves.iter().map(row).collect()
    }

    fn page(&self) -> Page<'_> {
        let sweep = self.sweep;
        let mut sections = format!(
            "<section>\n<h2>Where loss begins</h2>\n{}</section>\n",
            table(&KNEE_HEAD, &self.knee_rows())
        );

        for curve in &sweep.curves {
            let rows: Vec<_> = curve.samples.iter().map(row).collect();
            sections.push_str(&format!(
                "<section>\n<h2>{}</h2>\n{}</section>\n",
                describe(curve.combination),
                table(&HEAD, &rows)
            ));
        }

        sections.push_str(METHOD);
        Page {
            title: "A relay under growing load",
            lead: self.lead(),
            about: &sweep.about,
            sections,
            settings: vec![
                ("relay", sweep.relay.clone()),
                ("one measurement", format!("{} s", sweep.duration_s)),
                ("counts as no loss", percent(sweep.tolerance)),
            ],
        }
    }

    fn lead(&self) -> String {
        let base = self.sweep.curves.first();
        base.map_or("Nothing was measured.".to_owned(), |base| {
            format!("{}: {}.", describe(base.combination), knee(base.knee))
        })
    }

    fn samples_csv(&self) -> String {
        let mut csv = Table::default();
        for curve in &self.sweep.curves {
            for sample in &curve.samples {
                let mut row = csv.row();
                combination_cells(&mut row, curve.combination);

                row.cell("offered_per_sec", sample.offered_per_sec);
                row.cell("sent_per_sec", sample.sent_per_sec);
                row.cell("sent", sample.sent);
                row.cell("expected", sample.expected);
                row.cell("received", sample.received);
                row.cell("missing", sample.missing);
                row.cell("missing_share", sample.missing_share);
                row.cell("dropped_at_receivers", sample.dropped_at_receivers);
                row.cell("duplicates", sample.duplicates);

                row.maybe("latency_p50_ns", sample.latency.map(|latency| latency.p50_ns));
                row.maybe("latency_p99_ns", sample.latency.map(|latency| latency.p99_ns));
                row.maybe("latency_p99_9_ns", sample.latency.map(|latency| latency.p99_9_ns));
                row.maybe("latency_max_ns", sample.latency.map(|latency| latency.max_ns));

                let ledger = sample.ledger.as_ref();
                row.maybe("relay_received", ledger.map(|ledger| ledger.received));
                row.maybe("relay_sent", ledger.map(|ledger| ledger.sent));
                row.maybe("relay_balanced", ledger.map(|ledger| ledger.balanced));
                row.cell("relay_lost", lost(sample));
            }
        }
        csv.text
    }

    fn knees_csv(&self) -> String {
        let mut csv = Table::default();
        for curve in &self.sweep.curves {
            let mut row = csv.row();
            combination_cells(&mut row, curve.combination);
            row.maybe("lossless_per_sec", curve.knee.lossless_per_sec());
            row.maybe("lossy_per_sec", curve.knee.lossy_per_sec());
            row.cell("knee", knee(curve.knee));
        }
        csv.text
    }
}

const KNEE_HEAD: [&str; 4] = ["bytes", "targets", "flows", "loss begins"];

/// Appended to charts whose legend names all combinations.
const COMBINATIONS: &str = "every combination of B bytes, t targets and f flows";

const METHOD: &str = "<section>\n<h2>Method</h2>\n<ul>\n\
    <li><b>Sent and received</b> are counted by marks in the datagrams, from outside the relay: each has a number and a time stamp, and \
    each receiver says which numbers it has. <b>Missing</b> is what was sent, times the targets, minus what came.</li>\n\
    <li><b>The sender</b> keeps an absolute schedule, to 50 µs: what is due in that time leaves together, and at once what is late. A rate \
    that it did not reach to 95 % is the sender's limit, not the relay's.</li>\n\
    <li><b>Latency</b> is from the sender's stamp to the receiver; at each quantile that of the slowest target.</li>\n\
    <li><b>At receivers</b>: copies that the kernel dropped at the lab's own receivers. Where this is \
    most of what is missing, the lab was the limit.</li>\n\
    <li><b>Lost by the relay</b> is its own ledger: place, reason, and copies, so that a datagram lost before it was copied counts once \
    for each target.</li>\n\
    <li><b>Everything shares the processors</b> of one machine: relay, sender and receivers, of which the last two are one thread that spins. The knee is that of this machine with \
    all of them on it. A rate that lost was measured once more, and counts as lossy if it lost both times, because other work \
    on the machine is not the relay; all measurements stand in the tables.</li>\n</ul>\n</section>\n";

fn line(
    label: String,
    style: usize,
    samples: &[Sample],
    y: impl Fn(&Sample) -> Option<f64>,
) -> Line {
    let mark = |sample: &Sample| {
        Some(Mark { x: sample.sent_per_sec, y: y(sample)?, interval: None, at_least: false })
    };
    let mut marks: Vec<Mark> = samples.iter().filter_map(mark).collect();
    marks.sort_by(|a, b| a.x.total_cmp(&b.x));
    Line { label, style, marks, marks_every: 1 }
}

fn row(sample: &Sample) -> Vec<String> {
    let latency = |of: fn(&crate::relay_sweep::Quantiles) -> u64| {
        sample.latency.as_ref().map(|latency| time(of(latency) as f64)).unwrap_or_default()
    };

    vec![
        grouped(sample.offered_per_sec),
        grouped(sample.sent_per_sec.round() as u64),
        grouped(sample.missing),
        format!("{:.3} %", sample.missing_share * 100.0),
        latency(|latency| latency.p50_ns),
        latency(|latency| latency.p99_ns),
        latency(|latency| latency.p99_9_ns),
        latency(|latency| latency.max_ns),
        grouped(sample.dropped_at_receivers),
        lost(sample),
    ]
}

/// The losses that the relay reports: `socket: socket_buffer 1,234`; `nothing`; empty if it does not report
/// them.
fn lost(sample: &Sample) -> String {
    let Some(ledger) = &sample.ledger else { return String::new() };
    let lost: Vec<String> =
        ledger.lost.iter().map(|lost| format!("{} {}", lost.at, grouped(lost.copies))).collect();
    let unbalanced = if ledger.balanced { "" } else { " (does not add up)" };
    match &lost[..] {
        [] => format!("nothing{unbalanced}"),
        _ => format!("{}{unbalanced}", lost.join(", ")),
    }
}

fn knee(knee: Knee) -> String {
    let rate = |rate: u64| short_count(rate as f64);
    match knee {
        Knee::Between { lossless_per_sec, lossy_per_sec } => {
            format!("between {}/s and {}/s", rate(lossless_per_sec), rate(lossy_per_sec))
        }
        Knee::Above { lossless_per_sec } => {
            format!("above {}/s, the highest that was tried", rate(lossless_per_sec))
        }
        Knee::SenderLimit { lossless_per_sec } => {
            format!("above {}/s, the sender's limit", rate(lossless_per_sec))
        }
        Knee::Below { lossy_per_sec } => {
            format!("below {}/s, the lowest that was tried", rate(lossy_per_sec))
        }
        Knee::Unknown => "not found: the sender reached none of the rates".to_owned(),
    }
}

fn describe(of: Combination) -> String {
    let size = grouped(of.size_bytes as u64);
    let targets = plural(of.targets as u64, "target", "targets");
    let flows = plural(of.flows as u64, "flow", "flows");
    format!("{size} bytes, {targets}, {flows}")
}

/// Short form for a legend.
fn describe_short(of: Combination) -> String {
    format!("{} B, {} t, {} f", of.size_bytes, of.targets, of.flows)
}

fn combination_cells(row: &mut super::csv::Row<'_>, of: Combination) {
    row.cell("size_bytes", of.size_bytes);
    row.cell("targets", of.targets);
    row.cell("flows", of.flows);
}
