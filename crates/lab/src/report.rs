//! Reports of an experiment: a table for the terminal, charts, a page, CSV and JSON.
//!
//! A report depends only on an [`Experiment`], so the report of an old one can be created again from its `experiment.json`.

mod charts;
mod csv;
mod doubts;
mod estimates;
mod figures;
mod folder;
mod method;
mod page;
mod relay;
mod sflow;
mod terminal;

pub use charts::{Chart, ChartError};
pub use folder::{Earlier, Folder};
pub use relay::RelayReport;
pub use sflow::SflowReport;

use crate::About;
use crate::experiment::model::{Experiment, Point, Schedule, Settings, TransportName};
use crate::statistics::{Bootstrap, Summary};
use page::Page;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::{fs, iter};
use text::Ink;

/// An experiment and everything computed from it.
pub struct Report<'a> {
    pub experiment: &'a Experiment,
    /// Where, when and how the experiment ran; the notes include the doubts that its figures raise.
    pub about: About,
    /// One per point: by transport in the order of the settings, then schedule, then loss in ascending order.
    pub summaries: Vec<Summary>,
    pub bootstrap: Bootstrap,
    points: Vec<&'a Point>,
}

/// Why a file of the report could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("draw the chart {name}")]
    Chart {
        name: String,
        #[source]
        source: ChartError,
    },
}

impl<'a> Report<'a> {
    pub fn new(experiment: &'a Experiment, bootstrap: Bootstrap) -> Report<'a> {
        let order =
            |name: &TransportName| experiment.settings.transports.iter().position(|t| t == name);
        let mut points: Vec<&Point> =
            experiment.points.iter().filter(|point| !point.runs.is_empty()).collect();
        points.sort_by(|a, b| {
            let place = |point: &Point| {
                (order(&point.transport).unwrap_or(usize::MAX), point.transport.clone())
            };
            let of = |point: &Point| (place(point), point.schedule);
            of(a).cmp(&of(b)).then(a.configured_loss.total_cmp(&b.configured_loss))
        });

        let summaries: Vec<Summary> =
            points.iter().map(|point| Summary::of(point, bootstrap)).collect();
        let mut about = experiment.about.clone();
        about.notes.extend(doubts::doubts(&experiment.settings, &points, &summaries));
        Report { experiment, about, summaries, bootstrap, points }
    }

    /// The tables, in lines of at most this many columns but for sentences; of any length if it is not said.
    pub fn terminal(&self, columns: Option<usize>, ink: Ink) -> String {
        terminal::render(self, columns, ink)
    }

    /// CSV with one row per point.
    pub fn points_csv(&self) -> String {
        csv::points(self)
    }

    /// CSV with one row per run.
    pub fn runs_csv(&self) -> String {
        csv::runs(self)
    }

    /// All charts, in a sensible order for the reader.
    pub fn charts(&self) -> Result<Vec<Chart>, ReportError> {
        charts::all(self)
    }

    /// A self-contained page: it includes styles and charts, and has no scripts.
    pub fn html(&self) -> Result<String, ReportError> {
        Ok(self.page().html(&self.charts()?))
    }

    /// Writes every form of the report into `folder`, which is created if missing, and returns the files: `report.html`,
    /// `report.json` (figures), `experiment.json` (every message; [`Experiment`] reads it back), `points.csv`, `runs.csv` and
    /// `charts/*.svg`.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
        let others = [("points.csv", self.points_csv()), ("runs.csv", self.runs_csv())];
        let mut written =
            page::write(folder, &self.page(), &self.figures(), &others, &self.charts()?)?;

        // Written separately, because it may have 130 MB.
        let path = folder.join("experiment.json");
        write_file(&path, &|out| Ok(serde_json::to_writer(out, self.experiment)?))?;
        written.push(path);
        Ok(written)
    }

    /// Everything except individual messages, for JSON.
    pub fn figures(&self) -> impl Serialize + '_ {
        let Experiment { preset, settings, .. } = self.experiment;
        Figures {
            about: &self.about,
            preset,
            settings,
            bootstrap: self.bootstrap,
            points: &self.summaries,
        }
    }

    fn page(&self) -> Page<'_> {
        let Experiment { preset, settings, .. } = self.experiment;
        let mut rows = vec![("preset", preset.clone())];
        rows.extend(method::settings_rows(settings));
        let options = settings.transport_options.iter();
        rows.extend(options.map(|(name, text)| (name.as_str(), text.clone())));

        Page {
            title: "UDP against TCP for telemetry under packet loss",
            lead: format!(
                "{} bytes, {} times a second, over a path that loses packets.",
                text::grouped(settings.message_bytes as u64),
                settings.rate_per_sec
            ),
            about: &self.about,
            sections: figures::figures(self) + &method::method(settings, self.bootstrap),
            settings: rows,
        }
    }

    /// The runs of one transport on one schedule with their summaries, by loss in ascending order.
    fn series(&self, transport: &TransportName, schedule: Schedule) -> Vec<(&'a Point, &Summary)> {
        let pairs = iter::zip(self.points.iter().copied(), &self.summaries);
        pairs
            .filter(|(point, _)| point.transport == *transport && point.schedule == schedule)
            .collect()
    }

    /// Transports and schedules that have points, in the report's order.
    fn series_names(&self) -> Vec<(TransportName, Schedule)> {
        let mut names: Vec<_> =
            self.points.iter().map(|point| (point.transport.clone(), point.schedule)).collect();
        names.dedup();
        names
    }

    fn schedules(&self) -> Vec<Schedule> {
        let mut schedules: Vec<Schedule> = self.points.iter().map(|point| point.schedule).collect();
        schedules.sort_unstable();
        schedules.dedup();
        schedules
    }
}

#[derive(Serialize)]
struct Figures<'a> {
    #[serde(flatten)]
    about: &'a About,
    preset: &'a str,
    settings: &'a Settings,
    bootstrap: Bootstrap,
    points: &'a [Summary],
}

fn write_file(
    path: &Path,
    content: &dyn Fn(&mut dyn Write) -> io::Result<()>,
) -> Result<(), ReportError> {
    let write = || {
        let mut file = BufWriter::new(fs::File::create(path)?);
        content(&mut file)?;
        file.flush()
    };
    write().map_err(|source| ReportError::Write { path: path.to_owned(), source })
}

/// The number of runs behind the points and their length, for example `5 runs × 60 s`; as ranges if the points differ.
fn sample_size(series: &[&Summary]) -> String {
    let range = |values: &dyn Fn(&Summary) -> f64| {
        let values = || series.iter().map(|summary| values(summary).round());
        (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
    };
    let (few, many) = range(&|summary| f64::from(summary.runs));
    let (short, long) = range(&|summary| summary.longest_run_s);

    match series {
        [] => "no runs".to_owned(),
        [first, ..] if few == many && short == long => {
            estimates::runs_by_length(first.runs, first.longest_run_s)
        }
        _ => format!("{few} to {many} runs × {short} to {long} s"),
    }
}
