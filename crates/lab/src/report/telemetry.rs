//! What an observer still sees: table, charts, page, CSV and JSON of a [`Telemetry`].

use super::charts::axis::Axis;
use super::charts::finish;
use super::charts::plot::{Curve, Plot, heights};
use super::csv::{Table, estimated};
use super::estimates::{runs_by_length, short_times};
use super::page::{self, Page, table, text_table};
use super::{Chart, ReportError};
use crate::experiment::model::TransportName;
use crate::statistics::{Bootstrap, Estimate};
use crate::telemetry::{Figures, Point, Telemetry};
use serde::Serialize;
use std::path::{Path, PathBuf};
use text::{grouped, percent, time};

/// A measurement with what was computed from it.
pub struct TelemetryReport<'a> {
    telemetry: &'a Telemetry,
    bootstrap: Bootstrap,
    figures: Vec<Figures>,
}

const HEAD: [&str; 8] = [
    "transport",
    "loss",
    "measured",
    "events on screen",
    "events ever seen",
    "counter on screen",
    "age p50",
    "age p99",
];

impl<'a> TelemetryReport<'a> {
    pub fn new(telemetry: &'a Telemetry, bootstrap: Bootstrap) -> TelemetryReport<'a> {
        let figures = telemetry.points.iter().map(|point| point.figures(bootstrap)).collect();
        TelemetryReport { telemetry, bootstrap, figures }
    }

    /// Table for a terminal.
    pub fn terminal(&self) -> String {
        let window = self.window();
        let (events, steps) = (format!("events ≤ {window}"), format!("counter ≤ {window}"));
        let head = ["transport", "loss", "seen", &events, "ever", &steps, "age p50", "age p99"];
        let mut text = format!("{}\n\n{}", self.lead(), text_table(&head, &self.rows()));
        for note in &self.telemetry.about.notes {
            text.push_str(&format!("\n{note}"));
        }
        text
    }

    /// Writes every form of the report into `folder`, which is made if missing, and names the files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
        #[derive(Serialize)]
        struct Whole<'a> {
            #[serde(flatten)]
            telemetry: &'a Telemetry,
            bootstrap: Bootstrap,
            /// Of each point, in the order of the points.
            figures: &'a [Figures],
        }
        let Self { telemetry, bootstrap, figures } = self;
        let whole = Whole { telemetry, bootstrap: *bootstrap, figures };
        let others = [("points.csv", self.points_csv()), ("runs.csv", self.runs_csv())];
        page::write(folder, &self.page(), &whole, &others, &self.charts()?)
    }

    /// What is on screen against loss, and how old it is.
    ///
    /// # Errors
    /// The drawing library's.
    pub fn charts(&self) -> Result<Vec<Chart>, ReportError> {
        let window = self.window();
        let share =
            |of: fn(&Figures) -> Option<Estimate>, name: &str, title: String, caption: &str| {
                let y_name = format!("known within {window}");
                let y = |_: &[Curve]| Axis::shares_from_zero(&y_name, [1.0].into_iter());
                self.chart(of, y, name, title, caption)
            };

        Ok(vec![
            share(
                |figures| figures.events_on_screen,
                "events-on-screen",
                format!("Events on screen within {window} against packet loss"),
                "Each event is reported once. A datagram takes its events with it when it is lost; a stream delivers all, but late.",
            )?,
            share(
                |figures| figures.steps_on_screen,
                "counter-on-screen",
                format!("The counter's value known within {window} against packet loss"),
                "Every message carries the counter's value, so that the next one makes up for a lost one; on a stream the next one waits.",
            )?,
            self.chart(
                |figures| figures.age_p99_ns,
                |curves| Axis::times("age of the counter's value, 99th percentile", heights(curves)),
                "age",
                "Age of what is on screen against packet loss".to_owned(),
                "How old the newest value of the counter is that the observer has: 99 % of the time it is younger than this.",
            )?,
        ])
    }

    fn chart(
        &self,
        of: fn(&Figures) -> Option<Estimate>,
        y: impl Fn(&[Curve]) -> Axis,
        name: &str,
        title: String,
        caption: &str,
    ) -> Result<Chart, ReportError> {
        let settings = &self.telemetry.settings;

        let curve = |(style, transport): (usize, &TransportName)| {
            let points = self.points().filter(|(point, _)| point.transport == *transport);
            let estimates = points.map(|(point, figures)| (point.configured_loss, of(figures)));
            Curve::through(transport.to_string(), style, estimates)
        };
        let curves: Vec<Curve> = settings.transports.iter().enumerate().filter_map(curve).collect();

        let losses = self.telemetry.points.iter().map(|point| point.configured_loss).collect();
        let plot = Plot {
            title,
            subtitle: format!(
                "{} events/s and a counter, in a message of {} bytes every {} ms · {} per point",
                settings.events_per_sec,
                grouped(settings.message_bytes as u64),
                settings.interval_ms,
                runs_by_length(settings.runs, settings.duration_s)
            ),
            footnote: format!(
                "Bars: 95 % bootstrap interval over runs ({} resamples), where longer than the mark. {}.",
                self.bootstrap.resamples, self.telemetry.about.machine.kernel
            ),
            x: Axis::losses("packet loss on the path, one way, in both directions", losses),
            y: y(&curves),
            curves,
        };

        finish(plot, name.to_owned(), caption.to_owned())
    }

    fn points(&self) -> impl Iterator<Item = (&Point, &Figures)> {
        self.telemetry.points.iter().zip(&self.figures)
    }

    fn window(&self) -> String {
        match self.telemetry.settings.window_ms {
            ms if ms >= 1e3 => format!("{} s", ms / 1e3),
            ms => format!("{ms} ms"),
        }
    }

    /// At the highest loss, one transport after the other.
    fn lead(&self) -> String {
        let highest = self.points().map(|(point, _)| point.configured_loss).fold(0.0, f64::max);
        let at_highest = self.points().filter(|(point, _)| point.configured_loss >= highest - 1e-9);

        let transports: Vec<String> = at_highest
            .filter_map(|(point, figures)| {
                let (events, steps) = (figures.events_on_screen?, figures.steps_on_screen?);
                Some(format!(
                    "{}: {} of events, {} of the counter",
                    point.transport,
                    percent(events.value),
                    percent(steps.value)
                ))
            })
            .collect();

        format!(
            "On screen within {} at {} loss: {}.",
            self.window(),
            percent(highest),
            transports.join("; ")
        )
    }

    /// With the intervals of what a reader compares first; points.csv has all.
    fn rows(&self) -> Vec<Vec<String>> {
        let value = |estimate: Option<Estimate>| {
            estimate.map(|e| format!("{:.1} %", e.value * 100.0)).unwrap_or_default()
        };
        let share = |estimate: Option<Estimate>| {
            let interval = estimate.and_then(|estimate| estimate.interval);
            let interval = interval.map(|i| format!(" {:.1}-{:.1}", i.low * 100.0, i.high * 100.0));
            format!("{}{}", value(estimate), interval.unwrap_or_default())
        };

        let row = |(point, figures): (&Point, &Figures)| {
            let p99 = figures.age_p99_ns.map(|estimate| {
                let interval = estimate.interval.map(short_times).unwrap_or_default();
                format!("{} {interval}", time(estimate.value))
            });
            let measured = point.measured_loss.and_then(|loss| loss.share());
            vec![
                point.transport.to_string(),
                percent(point.configured_loss),
                measured.map(|loss| format!("{:.1} %", loss * 100.0)).unwrap_or_default(),
                share(figures.events_on_screen),
                value(figures.events_seen),
                share(figures.steps_on_screen),
                figures.age_p50_ns.map(|estimate| time(estimate.value)).unwrap_or_default(),
                p99.unwrap_or_default(),
            ]
        };

        self.points().map(row).collect()
    }

    fn page(&self) -> Page<'_> {
        let settings = &self.telemetry.settings;
        let sections = format!(
            "<section>\n<h2>Figures</h2>\n<p>Next to a figure, its 95 % interval over runs; points.csv has all of them.</p>\n{}</section>\n\
             <section>\n<h2>Method</h2>\n<ul>\n\
             <li><b>The source</b> has a counter that moves at a fixed rate, and numbered events at another, whatever the network does. \
             Its exporter reports the counter's value and the new events at a fixed interval, in messages of one length, the same over each \
             transport. A transport that holds the exporter up is given what is true when it goes on.</li>\n\
             <li><b>On screen</b>: an event, when a message with it came within {window}; a step of the counter, when a value at least as \
             high had come within {window}. Every event and every step of the run counts, its last ones too: source, exporter and observer go \
             on for {window} after it.</li>\n\
             <li><b>Age</b>: now minus the time at which the newest value that has come was true, every 10 ms.</li>\n\
             <li><b>Loss</b> is one way, over the whole path, independent from packet to packet, and the same in both directions. It is \
             measured next to the runs with numbered datagrams. Congestion on real networks comes in bursts, with delay; this is its \
             loss alone.</li>\n\
             <li><b>Intervals</b> are 95 % percentile bootstrap intervals over runs ({} resamples, seed {}). With few runs they are too \
             narrow.</li>\n</ul>\n</section>\n",
            table(&HEAD, &self.rows()),
            grouped(u64::from(self.bootstrap.resamples)),
            self.bootstrap.seed,
            window = self.window(),
        );

        Page {
            title: "What an observer still sees while the network loses packets",
            lead: self.lead(),
            about: &self.telemetry.about,
            sections,
            settings: vec![
                ("events", format!("{}/s", settings.events_per_sec)),
                ("steps of the counter", format!("{}/s", settings.steps_per_sec)),
                ("message", format!("{} bytes", grouped(settings.message_bytes as u64))),
                ("interval", format!("{} ms", settings.interval_ms)),
                ("window", self.window()),
                ("runs", runs_by_length(settings.runs, settings.duration_s)),
                ("loss injected by", settings.injector.clone()),
            ],
        }
    }

    fn points_csv(&self) -> String {
        let mut csv = Table::default();
        for (point, figures) in self.points() {
            let mut row = csv.row();
            row.cell("transport", &point.transport);
            row.cell("configured_loss", point.configured_loss);
            row.maybe("measured_loss", point.measured_loss.and_then(|loss| loss.share()));
            row.cell("runs", point.runs.len());

            for (name, estimate) in [
                ("events_on_screen", &figures.events_on_screen),
                ("events_seen", &figures.events_seen),
                ("steps_on_screen", &figures.steps_on_screen),
                ("age_mean_ns", &figures.age_mean_ns),
                ("age_p50_ns", &figures.age_p50_ns),
                ("age_p99_ns", &figures.age_p99_ns),
                ("age_max_ns", &figures.age_max_ns),
            ] {
                estimated(&mut row, name, estimate);
            }
        }

        csv.text
    }

    fn runs_csv(&self) -> String {
        let mut csv = Table::default();
        for (point, _) in self.points() {
            for (number, run) in point.runs.iter().enumerate() {
                let mut row = csv.row();
                row.cell("transport", &point.transport);
                row.cell("configured_loss", point.configured_loss);
                row.cell("run", number + 1);

                row.cell("events", run.events);
                row.cell("events_on_screen", run.events_on_screen);
                row.cell("events_seen", run.events_seen);
                row.cell("steps", run.steps);

                row.cell("steps_on_screen", run.steps_on_screen);
                row.cell("messages_sent", run.sent);
                row.cell("messages_refused", run.refused);
                row.cell("messages_received", run.received);
                row.cell("woken_late_ns", run.woken_late_ns);
                row.maybe("age_max_ns", run.ages_ns.last());
                row.cell("failure", &run.failure);
            }
        }
        csv.text
    }
}
