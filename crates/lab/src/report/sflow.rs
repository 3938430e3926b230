//! Shows figures from sFlow under loss: table, verdict, charts, page, CSV and JSON of an
//! [`Experiment`].

use super::charts::axis::Axis;
use super::charts::finish;
use super::charts::plot::{Curve as Line, Mark, Plot, heights};
use super::csv::Table;
use super::page::{self, Page, table, text_table};
use super::{Chart, ReportError};
use crate::sflow::{Accuracy, Detection, Estimator, Experiment, Path as Way, Point};
use std::path::{Path, PathBuf};
use text::{Ink, percent};

/// The report of an experiment.
pub struct SflowReport<'a> {
    experiment: &'a Experiment,
}

const HEAD: [&str; 8] = [
    "datagrams",
    "lost",
    "measured",
    "runs",
    "raw × N",
    "by the agent's rate",
    "by the collector's rate",
    "intervals that hold",
];

const ATTACK_HEAD: [&str; 6] = ["lost", "attacks", "noticed", "median", "p99", "longest"];

const CHECK_HEAD: [&str; 4] = ["what", "has to be", "measured", ""];

impl<'a> SflowReport<'a> {
    /// Creates a report of this experiment.
    pub fn new(experiment: &'a Experiment) -> SflowReport<'a> {
        SflowReport { experiment }
    }

    /// The tables and the verdict. Tables have lines of at most this many columns; sentences are the caller's to fold.
    pub fn terminal(&self, columns: Option<usize>, ink: Ink) -> String {
        let table = |titles: &[&str], rows: &[Vec<String>]| text_table(titles, rows, columns, ink);
        let mut text = format!(
            "mean of figure / truth - 1, and the share of 95 % intervals that hold the truth\n\n{}\n\
             attacks of 6 Gbit/s, limit 1 Gbit/s, one frame in 1,000 sampled: from the first frame to the event\n\n{}\n{}\n",
            table(&HEAD, &self.point_rows()),
            table(&ATTACK_HEAD, &self.attack_rows()),
            table(&CHECK_HEAD, &self.check_rows()),
        );
        text.push_str(&format!("{}\n", self.lead()));
        for note in &self.experiment.about.notes {
            text.push_str(&format!("Note: {note}\n"));
        }
        text
    }

    /// Writes every form of the report into `folder`, which is created if missing, and returns the
    /// files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
        let others = [("points.csv", self.points_csv()), ("attacks.csv", self.attacks_csv())];
        page::write(folder, &self.page(), self.experiment, &others, &self.charts()?)
    }

    /// Charts of figures and coverage against loss, and of times to an event.
    ///
    /// # Errors
    /// Errors of the drawing library.
    pub fn charts(&self) -> Result<Vec<Chart>, ReportError> {
        let mut charts = Vec::new();
        for (way, name) in [(Way::Simulated, "figures"), (Way::Network, "figures-network")] {
            charts.extend(self.figures_chart(way, name)?);
        }
        charts.extend(self.coverage_chart()?);
        charts.extend(self.detection_chart()?);
        Ok(charts)
    }

    fn figures_chart(&self, way: Way, name: &str) -> Result<Option<Chart>, ReportError> {
        let mark = |point: &Point, one: &Accuracy| Mark {
            x: point.loss,
            y: one.mean,
            interval: Some((one.mean - 1.96 * one.error, one.mean + 1.96 * one.error)),
            at_least: false,
        };
        let lines = Estimator::ALL.iter().enumerate().map(|(style, estimator)| {
            let points = self.points(way);
            let marks = points.map(|point| mark(point, &point.accuracy[*estimator as usize]));
            line(estimator.label().to_owned(), style, marks.collect())
        });
        let lines: Vec<Line> = lines.collect();
        if lines.iter().any(|line| line.marks.is_empty()) {
            return Ok(None);
        }

        let runs = self.points(way).map(|point| point.runs).max().unwrap_or(0);
        let plot = Plot {
            title: format!("Traffic figures against loss, {}", way.label()),
            subtitle: format!("Three flows of a port at 8.4 Gbit/s, 1 in 1,000, {runs} runs each"),
            footnote: "Bars: 95 % interval of the mean over runs, where longer than the mark."
                .into(),
            x: self.losses(&lines),
            y: Axis::from_zero("mean of figure / truth", heights(&lines)),
            curves: lines,
        };
        let caption = "What other collectors show is low by what was lost, and the agent's rate does not help: a sample that is lost has been counted by the agent. Scaled by what arrived, figures stay right.";
        finish(plot, name.to_owned(), caption.to_owned()).map(Some)
    }

    fn coverage_chart(&self) -> Result<Option<Chart>, ReportError> {
        let coverage = |way: Way, estimator: Estimator, style: usize| {
            let mark = |point: &Point| Mark {
                x: point.loss,
                y: point.accuracy[estimator as usize].coverage(),
                interval: None,
                at_least: false,
            };
            let label = match estimator {
                Estimator::Collector => way.label().to_owned(),
                other => format!("{}, {}", other.label(), way.label()),
            };
            line(label, style, self.points(way).map(mark).collect())
        };
        let lines = [
            coverage(Way::Simulated, Estimator::Raw, 0),
            coverage(Way::Simulated, Estimator::Collector, 2),
            coverage(Way::SimulatedBursts, Estimator::Collector, 3),
            coverage(Way::Network, Estimator::Collector, 4),
        ];
        let lines: Vec<Line> = lines.into_iter().filter(|line| !line.marks.is_empty()).collect();
        if lines.is_empty() {
            return Ok(None);
        }

        let plot = Plot {
            title: "Intervals that hold the truth, against loss".to_owned(),
            subtitle: "95 % intervals by the collector's rate, where nothing else is said; 93 to 97 % have to hold it".to_owned(),
            footnote: "Bursts: ten datagrams on average (Gilbert's model).".to_owned(),
            x: self.losses(&lines),
            y: Axis::shares_from_zero("share of the 95 % intervals", heights(&lines)),
            curves: lines,
        };
        let caption = "An interval around a figure that is low by the loss holds nothing; one around an unbiased figure holds the truth as often as it says, whatever is lost and however.";
        finish(plot, "coverage".to_owned(), caption.to_owned()).map(Some)
    }

    fn detection_chart(&self) -> Result<Option<Chart>, ReportError> {
        type Of = fn(&Detection) -> Option<f64>;
        let quantiles: [(&str, Of); 3] = [
            ("median", |one| one.median_s),
            ("p99", |one| one.p99_s),
            ("longest", |one| one.max_s),
        ];
        let lines = quantiles.iter().enumerate().map(|(style, (label, of))| {
            let detections = self.experiment.detections.iter();
            let marks = detections.filter_map(|one| {
                Some(Mark { x: one.loss, y: of(one)?, interval: None, at_least: false })
            });
            line((*label).to_owned(), style, marks.collect())
        });
        let lines: Vec<Line> = lines.filter(|line| !line.marks.is_empty()).collect();
        if lines.is_empty() {
            return Ok(None);
        }

        let plot = Plot {
            title: "Time to the event of an attack, against loss".to_owned(),
            subtitle: "6 Gbit/s more on a port of 10 Gbit/s, limit 1 Gbit/s, 1 in 1,000".to_owned(),
            footnote: "From the first frame of the attack to the event at the other host."
                .to_owned(),
            x: self.losses(&lines),
            y: Axis::from_zero("seconds", heights(&lines)),
            curves: lines,
        };
        let caption = "Loss makes rates less sure and does not make them late.";
        finish(plot, "detection".to_owned(), caption.to_owned()).map(Some)
    }

    fn points(&self, way: Way) -> impl Iterator<Item = &'a Point> {
        self.experiment.points.iter().filter(move |point| point.path == way)
    }

    fn losses(&self, lines: &[Line]) -> Axis {
        let losses = lines.iter().flat_map(|line| &line.marks).map(|mark| mark.x).collect();
        Axis::losses("datagrams lost on the path", losses)
    }

    fn point_rows(&self) -> Vec<Vec<String>> {
        let bias = |one: &Accuracy| format!("{:+.2} %", (one.mean - 1.0) * 100.0);
        let row = |point: &Point| {
            let [raw, agent, collector] = &point.accuracy;
            let covered = |one: &Accuracy| format!("{:.1} %", one.coverage() * 100.0);
            vec![
                point.path.label().to_owned(),
                percent(point.loss),
                format!("{:.2} %", point.measured_loss * 100.0),
                point.runs.to_string(),
                format!("{} ({})", bias(raw), covered(raw)),
                format!("{} ({})", bias(agent), covered(agent)),
                bias(collector),
                covered(collector),
            ]
        };
        self.experiment.points.iter().map(row).collect()
    }

    fn attack_rows(&self) -> Vec<Vec<String>> {
        let time = |seconds: Option<f64>| {
            seconds.map_or("never".to_owned(), |seconds| text::time(seconds * 1e9))
        };
        let row = |one: &Detection| {
            vec![
                percent(one.loss),
                one.attacks.to_string(),
                one.noticed.to_string(),
                time(one.median_s),
                time(one.p99_s),
                time(one.max_s),
            ]
        };
        self.experiment.detections.iter().map(row).collect()
    }

    fn check_rows(&self) -> Vec<Vec<String>> {
        let row = |check: &crate::sflow::Check| {
            vec![
                format!("{}: {}", check.rule.label(), check.place),
                check.wanted.to_owned(),
                check.measured.clone(),
                if check.holds { "holds" } else { "FAILS" }.to_owned(),
            ]
        };
        self.experiment.checks.iter().map(row).collect()
    }

    fn lead(&self) -> String {
        let checks = &self.experiment.checks;
        let failed: Vec<_> = checks.iter().filter(|check| !check.holds).collect();
        match failed.first() {
            _ if checks.is_empty() => "Nothing was measured.".to_owned(),
            None => format!("All {} checks hold.", checks.len()),
            Some(first) => format!(
                "{} of {} checks fail; the first: {}, {}: {}, and has to be {}.",
                failed.len(),
                checks.len(),
                first.rule.label(),
                first.place,
                first.measured,
                first.wanted
            ),
        }
    }

    fn page(&self) -> Page<'_> {
        let plan = &self.experiment.plan;
        let section = |title: &str, table: String| {
            format!("<section>\n<h2>{title}</h2>\n{table}</section>\n")
        };
        let sections = [
            section("Verdict", table(&CHECK_HEAD, &self.check_rows())),
            section("Figures against the truth", table(&HEAD, &self.point_rows())),
            section("Time to the event of an attack", table(&ATTACK_HEAD, &self.attack_rows())),
            METHOD.to_owned(),
        ];
        let runs = u64::from(plan.path_rounds) * u64::from(plan.agents);
        Page {
            title: "Traffic figures from sFlow under packet loss",
            lead: self.lead(),
            about: &self.experiment.about,
            sections: sections.concat(),
            settings: vec![
                ("runs in memory", plan.simulated_runs.to_string()),
                ("runs over the network", runs.to_string()),
                ("length of a run", format!("{} s", plan.run_s)),
                ("seed", plan.seed.to_string()),
            ],
        }
    }

    fn points_csv(&self) -> String {
        let mut csv = Table::default();
        for point in &self.experiment.points {
            for one in &point.accuracy {
                let mut row = csv.row();
                row.cell("datagrams", point.path.label());
                row.cell("loss", point.loss);
                row.cell("measured_loss", point.measured_loss);
                row.cell("runs", point.runs);
                row.cell("estimator", one.estimator.label());
                row.cell("mean", one.mean);
                row.cell("standard_error", one.error);
                row.cell("covered", one.covered);
                row.cell("figures", one.figures);
            }
        }
        csv.text
    }

    fn attacks_csv(&self) -> String {
        let mut csv = Table::default();
        for one in &self.experiment.detections {
            let mut row = csv.row();
            row.cell("loss", one.loss);
            row.cell("attacks", one.attacks);
            row.cell("noticed", one.noticed);
            row.cell("false_alarms", one.false_alarms);
            row.maybe("median_s", one.median_s);
            row.maybe("p99_s", one.p99_s);
            row.maybe("max_s", one.max_s);
        }
        csv.text
    }
}

fn line(label: String, style: usize, marks: Vec<Mark>) -> Line {
    Line { label, style, marks, marks_every: 1 }
}

const METHOD: &str = "<section>\n<h2>How it was measured</h2>\n<ul>\n\
    <li><b>The truth is known.</b> Each flow has a fixed rate and size of frames; what is random is which frames are sampled, each with the same \
    chance. It is counted from the first datagram that arrived to the last, because nobody who sees only these can know what passed before and after.</li>\n\
    <li><b>Most runs are in memory</b>, with time that is the agent's and loss that is drawn with a seed, because coverage takes thousands of runs; the others cross a network with \
    links that drop, in real time, to a socket. Each row says which it is.</li>\n\
    <li><b>raw × N</b> and <b>by the agent's rate</b> are made by the lab itself, with the interval of sFlow's packet sampling theory (196 × √(1/samples) percent); \
    the agent's rate is the growth of the pool divided by that of the samples' numbers.</li>\n\
    <li><b>A check fails only on what chance brings once in 10,000 times</b> to a collector that is right at the edge of what is allowed, so that all together fail a right one less than once in a hundred \
    times: the mean may be off by 3.89 standard errors (over runs) more than 1 %, and 93 to 97 % has to be outside of the exact 99.99 % interval (Clopper and \
    Pearson) of as many intervals as there were runs. Few runs find only large faults.</li>\n\
    <li><b>An attack</b> begins while the port carries 4 Gbit/s in 40 flows, and adds 6 Gbit/s to one destination. Rates are averaged, so that even an endless number of samples \
    needs time: an exponential average over 2 s needs 0.36 s to pass a sixth. What passed is asked every 100 ms.</li>\n</ul>\n</section>\n";
