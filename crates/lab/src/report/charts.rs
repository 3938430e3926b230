//! SVG charts of an experiment: which charts there are, and what they show.

pub(super) mod axis;
pub(super) mod plot;

use super::{Report, ReportError, sample_size};
use crate::experiment::model::{Point, Run, Schedule, TransportName};
use crate::statistics::{Estimate, Summary};
use axis::Axis;
use plot::{Curve, Mark, Plot, heights};
use text::percent;

/// Why a chart could not be drawn, as reported by the drawing library.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ChartError(String);

/// A finished chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// File name without extension.
    pub name: String,
    pub title: String,
    /// What the chart shows, in a sentence.
    pub caption: String,
    /// A complete SVG document of 900 × 540 without styles and identifiers, and without fonts except `sans-serif`.
    pub svg: String,
}

pub(super) fn all(report: &Report<'_>) -> Result<Vec<Chart>, ReportError> {
    let mut charts = Vec::new();
    for schedule in report.schedules() {
        for kind in &AGAINST_LOSS {
            charts.extend(against_loss(report, schedule, kind)?);
        }
        for loss in losses_to_show(report, schedule) {
            charts.extend(distribution(report, schedule, loss)?);
        }
    }
    Ok(charts)
}

/// A chart of one figure against loss, with one curve per transport.
struct AgainstLoss {
    name: &'static str,
    title: &'static str,
    caption: &'static str,
    y_name: &'static str,
    scale: Scale,
    of: fn(&Summary) -> Option<Estimate>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// Times in nanoseconds on a logarithmic axis.
    Time,
    /// Messages per second, starting at 0.
    Rate,
}

const AGAINST_LOSS: [AgainstLoss; 4] = [
    AgainstLoss {
        name: "mean-delay",
        title: "Mean delay against packet loss",
        caption: "Mean delay of a message. A datagram that is lost has no delay; on a stream, every message behind a lost segment waits for it.",
        y_name: "mean delay of a message",
        scale: Scale::Time,
        of: |summary| summary.mean_ns,
    },
    AgainstLoss {
        name: "max-delay",
        title: "Longest delay against packet loss",
        caption: "The longest delay of any message. It grows with the length of the runs: compare only runs of one length.",
        y_name: "longest delay of a message",
        scale: Scale::Time,
        of: |summary| summary.max_ns,
    },
    AgainstLoss {
        name: "throughput",
        title: "Messages delivered per second against packet loss",
        caption: "Datagrams fall in proportion to loss. A stream repairs loss at first, and collapses when timeouts pile up.",
        y_name: "messages delivered per second",
        scale: Scale::Rate,
        of: |summary| summary.rate_per_sec,
    },
    AgainstLoss {
        name: "age-of-information",
        title: "Age of information against packet loss",
        caption: "How old the newest message is that the receiver has: 99 % of the time it is younger than this. This is what an operator sees.",
        y_name: "age of the newest message, 99th percentile",
        scale: Scale::Time,
        of: |summary| summary.age_p99_ns,
    },
];

fn against_loss(
    report: &Report<'_>,
    schedule: Schedule,
    kind: &AgainstLoss,
) -> Result<Option<Chart>, ReportError> {
    let series = series_of(report, schedule);
    let curve = |(transport, points): &(TransportName, Vec<(&Point, &Summary)>)| {
        let estimate = |(_, summary): &(_, &Summary)| (summary.configured_loss, (kind.of)(summary));
        let style = style_of(report, transport);
        Curve::through(transport.to_string(), style, points.iter().map(estimate))
    };
    let curves: Vec<Curve> = series.iter().filter_map(curve).collect();
    if curves.is_empty() {
        return Ok(None);
    }

    let losses: Vec<f64> =
        curves.iter().flat_map(|curve| &curve.marks).map(|mark| mark.x).collect();

    let y = match kind.scale {
        Scale::Time => Axis::times(kind.y_name, heights(&curves)),
        Scale::Rate => Axis::from_zero(kind.y_name, heights(&curves)),
    };

    let plot = Plot {
        title: kind.title.to_owned(),
        subtitle: subtitle(report, schedule, &all_summaries(&series)),
        footnote: footnote(report, &curves),
        x: Axis::losses("packet loss on the path, one way", losses),
        y,
        curves,
    };
    finish(plot, format!("{}-{}", kind.name, file_word(schedule)), kind.caption.to_owned())
        .map(Some)
}

/// A chart for one loss rate: the share of sent messages that have not arrived, over time.
fn distribution(
    report: &Report<'_>,
    schedule: Schedule,
    loss: f64,
) -> Result<Option<Chart>, ReportError> {
    let mut curves = Vec::new();
    let mut summaries = Vec::new();
    for (transport, points) in series_of(report, schedule) {
        let Some((point, summary)) =
            points.into_iter().find(|(point, _)| same(point.configured_loss, loss))
        else {
            continue;
        };

        let marks = missing_after(point);
        if !marks.is_empty() {
            let style = style_of(report, &transport);
            // Marks distinguish curves without color; a few are enough on a curve with hundreds of points.
            let marks_every = (marks.len() / 5).max(1);
            curves.push(Curve { label: transport.to_string(), style, marks, marks_every });
            summaries.push(summary);
        }
    }

    if curves.is_empty() {
        return Ok(None);
    }

    let ends = |of: fn(&Mark) -> f64| {
        curves.iter().flat_map(|curve| &curve.marks).map(of).collect::<Vec<f64>>()
    };
    let plot = Plot {
        title: format!("Messages still missing, at {} packet loss", percent(loss)),
        subtitle: subtitle(report, schedule, &summaries),
        footnote: "A curve that ends level: those messages never arrived. One that breaks off: the rest was under way at the end."
            .to_owned(),
        x: Axis::times("time since the message was made", ends(|mark| mark.x).into_iter()),
        y: Axis::shares(
            "share of messages that has not arrived",
            ends(|mark| mark.y).into_iter(),
        ),
        curves,
    };

    let caption = format!(
        "At {} loss: the share of messages that has not arrived after a time. Datagrams arrive at once or never; streams deliver all, some of it very late.",
        percent(loss)
    );
    let name = format!(
        "delays-{}-percent-{}",
        percent(loss).replace([' ', '%'], "").replace('.', "_"),
        file_word(schedule)
    );
    finish(plot, name, caption).map(Some)
}

/// Points of the curve (time in nanoseconds, share that has not arrived by then), thinned to steps of a few percent.
/// Messages that never arrived stay missing to the end; a share of 0 has no place on a logarithmic axis and is left
/// out.
fn missing_after(point: &Point) -> Vec<Mark> {
    let mut delays: Vec<u64> = point.runs.iter().flat_map(|run| &run.delays_ns).copied().collect();
    delays.sort_unstable();

    // On the open loop, a blocked sender leaves messages unsent that were due. They are as late as others.
    let of_run = |run: &Run| run.sent.max((run.delays_ns.len() + run.censored_ns.len()) as u64);
    let messages = point.runs.iter().map(of_run).sum::<u64>() as f64;

    let mut marks: Vec<Mark> = Vec::new();
    for (arrived, &delay) in delays.iter().enumerate() {
        let (x, y) = (delay.max(1) as f64, (messages - arrived as f64 - 1.0) / messages);
        let far = |last: &Mark| y < last.y * 0.97 || x > last.x * 1.05;
        let last = arrived + 1 == delays.len();
        if y > 0.0 && (last || marks.last().is_none_or(far)) {
            marks.push(Mark { x, y, interval: None, at_least: false });
        }
    }

    // Messages that a transport lost permanently stay missing. The outcome of messages in flight at the end of the run
    // is unknown.
    let lost_permanently = point.runs.iter().all(|run| run.censored_ns.is_empty());
    let level = marks.last().map(|last| Mark {
        x: f64::INFINITY,
        y: last.y,
        interval: None,
        at_least: false,
    });
    marks.extend(level.filter(|_| lost_permanently && messages > delays.len() as f64));
    marks
}

/// The loss rates whose distributions get a chart: the ones nearest to 2 and 10 %, and the highest.
fn losses_to_show(report: &Report<'_>, schedule: Schedule) -> Vec<f64> {
    let of_schedule = report.summaries.iter().filter(|summary| summary.schedule == schedule);
    let losses: Vec<f64> =
        of_schedule.map(|summary| summary.configured_loss).filter(|loss| *loss > 0.0).collect();
    let nearest = |wanted: f64| {
        losses.iter().copied().min_by(|a, b| (a - wanted).abs().total_cmp(&(b - wanted).abs()))
    };
    let mut chosen: Vec<f64> = [0.02, 0.10, 1.0].into_iter().filter_map(nearest).collect();
    chosen.dedup_by(|a, b| same(*a, *b));
    chosen
}

type Series<'a, 'r> = Vec<(TransportName, Vec<(&'a Point, &'r Summary)>)>;

fn series_of<'a, 'r>(report: &'r Report<'a>, schedule: Schedule) -> Series<'a, 'r> {
    let names = report.series_names().into_iter().filter(|(_, of)| *of == schedule);
    names.map(|(transport, _)| (transport.clone(), report.series(&transport, schedule))).collect()
}

fn all_summaries<'r>(series: &Series<'_, 'r>) -> Vec<&'r Summary> {
    series.iter().flat_map(|(_, points)| points).map(|(_, summary)| *summary).collect()
}

/// A transport has the same style on every chart.
fn style_of(report: &Report<'_>, transport: &TransportName) -> usize {
    let mut names: Vec<TransportName> =
        report.series_names().into_iter().map(|(name, _)| name).collect();
    names.dedup();
    names.iter().position(|name| name == transport).unwrap_or(0)
}

fn subtitle(report: &Report<'_>, schedule: Schedule, summaries: &[&Summary]) -> String {
    let settings = &report.experiment.settings;
    let bytes = text::grouped(settings.message_bytes as u64);
    let size = sample_size(summaries);
    format!(
        "{bytes}-byte messages, {}/s, {} · {size} per point",
        settings.rate_per_sec,
        schedule.label()
    )
}

fn footnote(report: &Report<'_>, curves: &[Curve]) -> String {
    let kernel = &report.about.machine.kernel;
    let has_bounds = curves.iter().flat_map(|curve| &curve.marks).any(|mark| mark.at_least);
    let bounds = if has_bounds { " Hollow: a lower bound." } else { "" };
    let bars = format!(
        "Bars: 95 % bootstrap interval over runs ({} resamples), where longer than the mark.",
        report.bootstrap.resamples
    );
    let bars = bars + bounds;
    if kernel.is_empty() { bars } else { format!("{bars} {kernel}.") }
}

fn file_word(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::ClosedLoop => "closed-loop",
        Schedule::OpenLoop => "open-loop",
    }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

pub(super) fn finish(plot: Plot, name: String, caption: String) -> Result<Chart, ReportError> {
    let svg = plot.draw().map_err(|source| ReportError::Chart { name: name.clone(), source })?;
    Ok(Chart { name, title: plot.title, caption, svg })
}
