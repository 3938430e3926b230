//! What an experiment says: a table for the terminal, a verdict for each claim, charts, a page, CSV and JSON.
//!
//! A report is made of an [`Experiment`] alone, so an old one can be drawn again from its `experiment.json`.

mod charts;
mod csv;
mod estimates;
mod html;
mod page;
mod relay;
mod telemetry;
mod terminal;
mod verdict;

pub use charts::{Chart, ChartError};
pub use relay::RelayReport;
pub use telemetry::TelemetryReport;
pub use terminal::Ink;
pub use verdict::{Outcome, Verdict};

use crate::experiment::model::{Experiment, Machine, Point, Schedule, Settings, TransportName};
use crate::statistics::{Bootstrap, Summary};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::{fs, iter};

/// An experiment with all that was computed from it.
pub struct Report<'a> {
    pub experiment: &'a Experiment,
    /// One per point: by transport in the settings' order, then schedule, then loss ascending.
    pub summaries: Vec<Summary>,
    /// On the article's claims C1 to C10.
    pub claims: Vec<Verdict>,
    /// On what must hold for the experiment to be worth believing.
    pub checks: Vec<Verdict>,
    pub bootstrap: Bootstrap,
    points: Vec<&'a Point>,
}

/// A file of the report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("write {path}")]
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
        let evidence = verdict::Evidence {
            settings: &experiment.settings,
            points: &points,
            summaries: &summaries,
        };
        let (claims, checks) =
            (verdict::claims(&evidence, bootstrap), verdict::checks(&evidence, bootstrap));
        Report { experiment, summaries, claims, checks, bootstrap, points }
    }

    /// Table and verdicts, at most 120 columns wide.
    pub fn terminal(&self, ink: Ink) -> String {
        terminal::render(self, ink)
    }

    /// For the end of a command: `7 of 10 claims reproduced, 2 in direction only, 1 not tested`.
    pub fn claims_in_one_line(&self) -> String {
        terminal::in_one_line(&self.claims)
    }

    /// One row per point.
    pub fn points_csv(&self) -> String {
        csv::points(self)
    }

    /// One row per run.
    pub fn runs_csv(&self) -> String {
        csv::runs(self)
    }

    /// All charts, in the order in which a reader wants them.
    pub fn charts(&self) -> Result<Vec<Chart>, ReportError> {
        charts::all(self)
    }

    /// A page that needs nothing else: styles and charts are in it, and there are no scripts.
    pub fn html(&self) -> Result<String, ReportError> {
        Ok(html::render(self, &self.charts()?))
    }

    /// Writes every form of the report into `folder`, which is made if missing, and names the files:
    /// `report.html`, `report.json` (figures and verdicts), `experiment.json` (every message; [`Experiment`] reads it
    /// back), `points.csv`, `runs.csv` and `charts/*.svg`.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
        let charts = self.charts()?;
        let charts_folder = folder.join("charts");
        fs::create_dir_all(&charts_folder)
            .map_err(|source| ReportError::Write { path: charts_folder.clone(), source })?;
        let mut written = Vec::new();
        let mut write = |path: PathBuf, content: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            write_file(&path, content)
                .map_err(|source| ReportError::Write { path: path.clone(), source })?;
            written.push(path);
            Ok(())
        };
        let page = html::render(self, &charts);
        write(folder.join("report.html"), &|out| out.write_all(page.as_bytes()))?;
        write(folder.join("report.json"), &|out| {
            Ok(serde_json::to_writer_pretty(out, &self.figures())?)
        })?;
        write(folder.join("experiment.json"), &|out| {
            Ok(serde_json::to_writer(out, self.experiment)?)
        })?;
        write(folder.join("points.csv"), &|out| out.write_all(self.points_csv().as_bytes()))?;
        write(folder.join("runs.csv"), &|out| out.write_all(self.runs_csv().as_bytes()))?;
        for chart in &charts {
            write(charts_folder.join(format!("{}.svg", chart.name)), &|out| {
                out.write_all(chart.svg.as_bytes())
            })?;
        }
        Ok(written)
    }

    /// Everything but single messages, for JSON.
    pub fn figures(&self) -> impl Serialize + '_ {
        Figures {
            experiment: Provenance::of(self.experiment),
            bootstrap: self.bootstrap,
            claims: &self.claims,
            checks: &self.checks,
            points: &self.summaries,
        }
    }

    /// The runs of one transport on one schedule, by loss ascending, with what they say.
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
    experiment: Provenance<'a>,
    bootstrap: Bootstrap,
    claims: &'a [Verdict],
    checks: &'a [Verdict],
    points: &'a [Summary],
}

/// An experiment without its points.
#[derive(Serialize)]
struct Provenance<'a> {
    command: &'a str,
    version: &'a str,
    commit: &'a str,
    preset: &'a str,
    began_unix_ns: u64,
    took_ns: u64,
    interrupted: bool,
    machine: &'a Machine,
    settings: &'a Settings,
    notes: &'a [String],
}

impl<'a> Provenance<'a> {
    fn of(experiment: &'a Experiment) -> Provenance<'a> {
        let Experiment { began_unix_ns, took_ns, interrupted, .. } = *experiment;
        let Experiment { command, version, commit, preset, machine, settings, notes, .. } =
            experiment;
        Provenance {
            command,
            version,
            commit,
            preset,
            began_unix_ns,
            took_ns,
            interrupted,
            machine,
            settings,
            notes,
        }
    }
}

fn write_file(path: &Path, content: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    content(&mut file)?;
    file.flush()
}

/// How many runs of which length stand behind each point, for example `5 runs × 60 s`; where points differ, by loss:
/// `5 runs × 60 s up to 14 %, 5 runs × 300 s from 16 %`.
fn sample_size(series: &[&Summary]) -> String {
    let of = |summary: &Summary| estimates::runs_by_length(summary.runs, summary.longest_run_s);
    let mut by_loss: Vec<&&Summary> = series.iter().collect();
    by_loss.sort_by(|a, b| a.configured_loss.total_cmp(&b.configured_loss));
    let mut groups: Vec<(String, f64, f64)> = Vec::new();
    for summary in by_loss {
        let (size, loss) = (of(summary), summary.configured_loss);
        match groups.last_mut() {
            Some(group) if group.0 == size => group.2 = loss,
            _ => groups.push((size, loss, loss)),
        }
    }
    match &groups[..] {
        [] => "no runs".to_owned(),
        [(size, ..)] => size.clone(),
        [(first, _, last_loss), (second, next_loss, _)] => {
            format!(
                "{first} up to {}, {second} from {}",
                text::percent(*last_loss),
                text::percent(*next_loss)
            )
        }
        _ => {
            let seconds = series.iter().map(|s| s.longest_run_s);
            let (short, long) =
                (seconds.clone().fold(f64::INFINITY, f64::min), seconds.fold(0.0, f64::max));
            let runs = series.iter().map(|s| s.runs);
            let (few, many) = (runs.clone().min().unwrap_or(0), runs.max().unwrap_or(0));
            format!("{few} to {many} runs × {} to {} s", short.round(), long.round())
        }
    }
}
