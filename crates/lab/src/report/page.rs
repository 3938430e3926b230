//! Shared parts of all reports with an [`About`]: the page around their sections, and writing the files.

use super::folder::REPORT;
use super::{Chart, ReportError, write_file};
use crate::{About, Machine};
use std::fs;
use std::path::{Path, PathBuf};
use text::{Ink, Table, date, time};

const STYLE: &str = include_str!("style.css");

/// The page of a report, without its charts.
pub(super) struct Page<'a> {
    pub(super) title: &'static str,
    /// The most important result in one sentence, as plain text.
    pub(super) lead: String,
    pub(super) about: &'a About,
    /// The sections after the charts, as HTML.
    pub(super) sections: String,
    /// Names and values of the settings.
    pub(super) settings: Vec<(&'a str, String)>,
}

impl Page<'_> {
    /// A self-contained page.
    pub(super) fn html(&self, charts: &[Chart]) -> String {
        let (title, about) = (self.title, self.about);
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{title}</h1>\n<p class=\"lead\">{}</p>\n\
             <p class=\"meta\">{} · {} · took {}</p>\n<pre class=\"command\"><code>{}</code></pre>\n",
            prose(&self.lead),
            escape(&about.machine.kernel),
            date(about.began_unix_ns),
            time(about.took_ns as f64),
            escape(&about.command),
        );

        if about.interrupted {
            html.push_str("<p class=\"note\">Ended before everything was measured: this page shows what was finished.</p>\n");
        }
        html.push_str("</header>\n");
        html.push_str(&charts_section(charts));
        // Behind the result, which they would push off the screen.
        for note in &about.notes {
            html.push_str(&format!("<p class=\"note\">{}</p>\n", prose(note)));
        }
        html.push_str(&self.sections);
        html.push_str(&self.conditions());
        html.push_str("</main>\n</body>\n</html>\n");
        html
    }

    fn conditions(&self) -> String {
        let about = self.about;
        let program = match about.commit.as_str() {
            "" => format!("weir {}", about.version),
            commit => format!("weir {}, commit {commit}", about.version),
        };

        let mut rows = vec![("program", program), ("command", about.command.clone())];
        rows.extend(self.settings.iter().cloned());
        let sysctls = about.machine.sysctls.iter();
        let sysctls: Vec<(&str, String)> =
            sysctls.map(|(name, value)| (name.as_str(), value.clone())).collect();

        format!(
            "<section>\n<h2>Conditions</h2>\n<div class=\"pair\">\n{}{}{}</div>\n</section>\n",
            definitions("Settings", &rows),
            definitions("Machine", &machine_rows(&about.machine)),
            definitions("Kernel settings", &sysctls)
        )
    }
}

fn charts_section(charts: &[Chart]) -> String {
    let mut html = String::from("<section>\n<h2>Charts</h2>\n");
    for chart in charts {
        // The title describes the drawing to those who cannot see it.
        let (head, body) = chart.svg.split_once('>').unwrap_or(("<svg", ""));
        let svg = format!("{head} role=\"img\"><title>{}</title>{body}", escape(&chart.title));
        html.push_str(&format!(
            "<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>\n",
            prose(&chart.caption)
        ));
    }
    html.push_str("</section>\n");
    html
}

fn machine_rows(machine: &Machine) -> Vec<(&'static str, String)> {
    let load = |load: Option<f64>| load.map(|load| format!("{load:.2}")).unwrap_or_default();
    let memory = match machine.memory_bytes {
        0 => String::new(),
        bytes => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    };

    vec![
        ("kernel", format!("{} {}", machine.kernel, machine.architecture)),
        ("processor", machine.processor.clone()),
        (
            "processors",
            if machine.processors == 0 { String::new() } else { machine.processors.to_string() },
        ),
        ("memory", memory),
        ("default congestion control", machine.congestion_control_default.clone()),
        ("congestion controls", machine.congestion_controls.join(", ")),
        ("load before", load(machine.load_before)),
        ("load after", load(machine.load_after)),
    ]
}

/// A list of names and values, without unknown values.
fn definitions(title: &str, rows: &[(&str, String)]) -> String {
    let known: Vec<String> = rows
        .iter()
        .filter(|(_, value)| !value.trim().is_empty())
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value)))
        .collect();
    if known.is_empty() {
        return String::new();
    }
    format!("<div>\n<h3>{title}</h3>\n<dl>\n{}</dl>\n</div>\n", known.concat())
}

/// Escapes text for HTML elements and quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

/// Text as HTML, in which a number and its unit stay on one line.
pub(super) fn prose(text: &str) -> String {
    const UNITS: [&str; 12] =
        ["%", "s", "ms", "µs", "ns", "minutes", "bytes", "KiB", "MiB", "GiB", "kbit/s", "Mbit/s"];
    let mut html = String::new();
    for (at, word) in text.split(' ').enumerate() {
        let is_unit = UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')']));
        let separator = match html.chars().next_back() {
            Some(last) if is_unit && last.is_ascii_digit() => "\u{a0}",
            _ if at > 0 => " ",
            _ => "",
        };
        html.push_str(separator);
        html.push_str(&escape(word));
    }
    html
}

/// A table of figures. `head` and `rows` are text.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
        let cells: String = cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String =
        rows.iter().map(|row| cells("td", &mut row.iter().map(String::as_str))).collect();
    format!(
        "<div class=\"wide\"><table class=\"figures\">\n<thead>{}</thead>\n<tbody>\n{body}</tbody>\n</table></div>\n",
        cells("th", &mut head.iter().copied())
    )
}

/// The same for a terminal of this many columns: the first to the left, the others to the right.
pub(super) fn text_table(
    titles: &[&str],
    rows: &[Vec<String>],
    columns: Option<usize>,
    ink: Ink,
) -> String {
    let mut table = Table::of_figures(titles);
    rows.iter().for_each(|row| table.push(row.iter().cloned()));
    table.text(columns, ink)
}

/// Writes `report.html`, `report.json`, `others` and `charts/*.svg` into `folder`, which is created if missing, and returns the
/// files.
pub(super) fn write(
    folder: &Path,
    page: &Page<'_>,
    figures: &impl serde::Serialize,
    others: &[(&str, String)],
    charts: &[Chart],
) -> Result<Vec<PathBuf>, ReportError> {
    let charts_folder = folder.join("charts");
    fs::create_dir_all(&charts_folder)
        .map_err(|source| ReportError::Write { path: charts_folder.clone(), source })?;

    let json = folder.join("report.json");
    write_file(&json, &|out| Ok(serde_json::to_writer_pretty(out, figures)?))?;
    let mut written = vec![json];

    let mut files = vec![(folder.join(REPORT), page.html(charts))];
    files.extend(others.iter().map(|(name, text)| (folder.join(name), text.clone())));
    let svg =
        |chart: &Chart| (charts_folder.join(format!("{}.svg", chart.name)), chart.svg.clone());
    files.extend(charts.iter().map(svg));
    for (path, text) in files {
        write_file(&path, &|out| out.write_all(text.as_bytes()))?;
        written.push(path);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit_stay_together() {
        let check = |text: &str, html: &str| assert_eq!(prose(text), html);
        check("At 14 % loss, 30 s.", "At 14\u{a0}% loss, 30\u{a0}s.");
        check("in 3 runs (200 bytes) & <s>", "in 3 runs (200\u{a0}bytes) &amp; &lt;s&gt;");
        check("a  b % c", "a  b % c");
        check("", "");
    }
}
