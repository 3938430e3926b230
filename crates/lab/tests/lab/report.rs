//! Reports of synthetic experiments: the files are what they claim to be, and the figures in them are right.
pub(crate) mod synthetic;

use lab::experiment::model::{Experiment, Schedule};
use lab::report::Report;
use lab::statistics::Bootstrap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use testkit::{find_tool, need_python_module};
use text::Ink;

const ALL: [&str; 9] = [
    "udp",
    "tcp-cubic",
    "tcp-bbr",
    "tcp-reno",
    "tcp-cubic-nodelay",
    "tcp-bbr-nodelay",
    "tcp-cubic-bounded",
    "tcp-cubic-rto1s",
    "tcp-syslog",
];

/// Few resamples: the tests do not check the width of intervals.
const QUICK: Bootstrap = Bootstrap { resamples: 100, seed: 1 };

fn small() -> Experiment {
    synthetic::experiment(
        &["udp", "tcp-cubic", "tcp-bbr"],
        &[Schedule::ClosedLoop, Schedule::OpenLoop],
        3,
        20.0,
    )
}

#[test]
fn an_experiment_survives_json() {
    let experiment = synthetic::experiment(&["udp", "tcp-cubic"], &[Schedule::ClosedLoop], 2, 5.0);
    let text = serde_json::to_string(&experiment).unwrap();
    assert_eq!(serde_json::from_str::<Experiment>(&text).unwrap(), experiment);
    // An older or newer file may lack fields.
    assert_eq!(serde_json::from_str::<Experiment>("{}").unwrap(), Experiment::default());
}

#[test]
fn every_file_is_written_and_the_page_parses() {
    let experiment = small();
    let folder = folder("files");
    let written = Report::new(&experiment, QUICK).write(&folder).unwrap();
    let names: Vec<&str> =
        written.iter().map(|path| path.strip_prefix(&folder).unwrap().to_str().unwrap()).collect();
    for name in [
        "report.html",
        "report.json",
        "experiment.json",
        "points.csv",
        "runs.csv",
        "charts/mean-delay-closed-loop.svg",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let figures: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("report.json")).unwrap()).unwrap();
    assert_eq!(figures["points"].as_array().unwrap().len(), experiment.points.len());
    assert_eq!(figures["command"], experiment.about.command.as_str());
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("a &lt;folder&gt; &amp; more"), "the command is escaped");
    assert!(
        !page.contains("<script") && !page.contains("src=") && !page.contains("<link"),
        "the page needs nothing else"
    );
    assert_eq!(
        page.matches("<svg").count(),
        names.iter().filter(|name| name.ends_with(".svg")).count()
    );
    // The page uses these attributes to recolor the charts.
    for attribute in [
        "rect x=\"0\" y=\"0\" width=\"7200\" height=\"4320\" opacity=\"1\" fill=\"#FFFFFF\"",
        "fill=\"#222222\"",
        "fill=\"#666666\"",
        "stroke=\"#666666\"",
        "stroke=\"#E2E2E2\"",
        "stroke=\"#222222\"",
    ] {
        assert!(page.contains(attribute), "{attribute}");
    }
    // Lower bounds are hollow, and notes do not push the result off the screen.
    let chart = fs::read_to_string(folder.join("charts/mean-delay-closed-loop.svg")).unwrap();
    assert!(chart.contains("<polygon opacity=\"1\" fill=\"#FFFFFF\""), "{chart}");
    assert!(chart.contains("Hollow: a lower bound."), "{chart}");
    assert!(page.find("<figure>") < page.find("class=\"note\""), "{page}");
    if need_python_module("html.parser") {
        python(PARSE_HTML, &[&folder.join("report.html")]);
        let charts: Vec<&PathBuf> =
            written.iter().filter(|path| path.extension().is_some_and(|e| e == "svg")).collect();
        python(PARSE_XML, &charts.iter().map(|path| path.as_path()).collect::<Vec<_>>());
    }
}

#[test]
fn charts_render() {
    if !need_python_module("cairosvg") {
        return;
    }
    let folder = folder("charts");
    let few = synthetic::experiment(
        &["udp", "tcp-cubic", "tcp-bbr", "tcp-reno"],
        &[Schedule::ClosedLoop],
        5,
        60.0,
    );
    Report::new(&few, QUICK).write(&folder.join("few")).unwrap();
    let many = synthetic::experiment(&ALL, &[Schedule::ClosedLoop], 5, 20.0);
    let written = Report::new(&many, QUICK).write(&folder.join("many")).unwrap();
    let few = Report::new(&few, QUICK).write(&folder.join("few")).unwrap();
    let charts =
        written.iter().chain(&few).filter(|path| path.extension().is_some_and(|e| e == "svg"));
    python(RENDER, &charts.map(PathBuf::as_path).collect::<Vec<_>>());
}

#[test]
fn the_table_fits_a_terminal() {
    let experiment = small();
    let table = Report::new(&experiment, QUICK).terminal(Some(120), Ink::Plain);
    println!("{table}");
    let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest} columns");
    for word in ["tcp-cubic, closed loop", "3 runs × 20 s", "≥", "100 resamples"] {
        assert!(table.contains(word), "{word} is missing");
    }
    let colors = Report::new(&experiment, QUICK).terminal(Some(120), Ink::Color);
    assert_eq!(strip(&colors), table, "color changes nothing else");
}

#[test]
fn csv_rows_all_have_the_header_s_columns() {
    let experiment = small();
    let report = Report::new(&experiment, QUICK);
    let runs: usize = experiment.points.iter().map(|point| point.runs.len()).sum();
    for (csv, rows) in [(report.points_csv(), experiment.points.len()), (report.runs_csv(), runs)] {
        let mut lines = csv.split_terminator("\r\n");
        let columns = lines.next().unwrap().split(',').count();
        let counts: Vec<usize> = lines.map(|line| line.split(',').count()).collect();
        assert_eq!(counts, vec![columns; rows]);
    }
}

#[test]
fn the_verdicts_of_the_documents_are_made_from_these_files() {
    if !need_python_module("csv") {
        return;
    }
    let folder = folder("verdicts");
    Report::new(&small(), QUICK).write(&folder).unwrap();
    let script = testkit::root().join("docs/udp-vs-tcp/verdicts.py");
    let output =
        Command::new(find_tool("weir-python").unwrap()).arg(script).arg(&folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for (id, words) in [
        ("C2", "| reproduced |"),
        ("C5", "| not tested |"),
        ("C6", "UDP 98.0/s"),
        ("C9", "falls below at 10.2 % ("),
        ("M1", "54 of 54 points"),
        ("M2", "0 dropped in the buffer | holds |"),
        ("M3", "162 of 162 runs | holds |"),
    ] {
        let row = text.lines().find(|line| line.starts_with(&format!("| {id} |")));
        assert!(row.is_some_and(|row| row.contains(words)), "{id}: {words} is missing in\n{text}");
    }
}

#[test]
fn broken_runs_and_local_drops_are_notes() {
    let mut experiment = small();
    let notes = |experiment: &Experiment| Report::new(experiment, QUICK).about.notes.join("\n");
    assert_eq!(notes(&experiment), experiment.about.notes.join("\n"), "no doubt without a reason");

    experiment.points[3].runs[0].failure = "connection timed out".to_owned();
    experiment.points[4].runs[0].kernel.retransmit_failures = 3;
    experiment.points[5].configured_loss = 0.5;
    let notes = notes(&experiment);
    for words in
        ["1 of 162 runs ended early: connection timed out.", "3 retransmissions", "udp 50 % ("]
    {
        assert!(notes.contains(words), "{words} is missing in {notes}");
    }
}

#[test]
fn little_or_nothing_measured_is_still_a_report() {
    let mut bare = synthetic::experiment(&["udp"], &[Schedule::OpenLoop], 1, 1.0);
    bare.points.truncate(1);
    for experiment in [Experiment::default(), bare] {
        let report = Report::new(&experiment, QUICK);
        assert!(report.html().unwrap().contains("</html>"));
        assert!(!report.terminal(None, Ink::Plain).is_empty());
    }
}

/// Fails unless all elements are closed in order and there are a title, a heading and a language.
const PARSE_HTML: &str = r#"
import html.parser, sys
VOID = {"meta", "br", "hr", "img", "input", "link", "col", "wbr"}
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()
    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)
    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)
    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> at {self.getpos()} closes {self.open[-3:]}"
        self.open.pop()
page = Page()
text = open(sys.argv[1], encoding="utf-8").read()
assert text.startswith("<!doctype html>") and '<html lang="en"' in text
page.feed(text)
page.close()
assert not page.open, page.open
assert {"title", "h1", "table", "figure", "svg"} <= page.seen, page.seen
"#;

const PARSE_XML: &str = r#"
import sys, xml.etree.ElementTree as tree
for path in sys.argv[1:]:
    root = tree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("width") == "900", path
    words = " ".join(text.text.strip() for text in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "loss" in words and "udp" in words and "runs ×" in words, (path, words)
    assert all(text.get("font-family") == "sans-serif" for text in root.iter("{http://www.w3.org/2000/svg}text")), path
"#;

/// Creates a PNG for each chart; fails if one shows only background.
const RENDER: &str = r#"
import sys, cairosvg, io
from PIL import Image
for path in sys.argv[1:]:
    png = cairosvg.svg2png(url=path, output_width=1800)
    open(path.replace(".svg", ".png"), "wb").write(png)
    image = Image.open(io.BytesIO(png)).convert("RGB")
    assert image.size == (1800, 1080), (path, image.size)
    colors = image.getcolors(maxcolors=1 << 24)
    assert len(colors) > 50 and max(colors)[0] < 0.98 * 1800 * 1080, path
"#;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn python(script: &str, paths: &[&Path]) {
    let output = Command::new(find_tool("weir-python").unwrap())
        .arg("-c")
        .arg(script)
        .args(paths)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn strip(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.map(|part| part.split_once('m').unwrap().1).collect::<String>()
}
