//! The page: one file with its styles and charts inside, without scripts, in the reader's light or dark.

mod tables;

use super::verdict::{Outcome, Verdict};
use super::{Chart, Report};
use crate::experiment::model::{LossIs, Machine, Settings};
use crate::statistics::Bootstrap;
use text::{date, grouped, size, time};

pub(super) const STYLE: &str = include_str!("html/style.css");

pub(super) fn render(report: &Report<'_>, charts: &[Chart]) -> String {
    let experiment = report.experiment;
    let mut page =
        String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str("<title>UDP against TCP for telemetry under packet loss</title>\n");
    page.push_str(&format!("<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"));
    page.push_str(&header(report));
    page.push_str(&claims(report));
    page.push_str(&charts_section(charts));
    page.push_str(&tables::figures(report));
    page.push_str(&checks(report));
    page.push_str(&method(&experiment.settings, report.bootstrap));
    page.push_str(&conditions(report));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn header(report: &Report<'_>) -> String {
    let experiment = report.experiment;
    let settings = &experiment.settings;
    let mut html =
        String::from("<header>\n<h1>UDP against TCP for telemetry under packet loss</h1>\n");
    html.push_str(&format!(
        "<p class=\"lead\">{} bytes, {} times a second, over a path that loses packets. {}.</p>\n",
        grouped(settings.message_bytes as u64),
        settings.rate_per_sec,
        escape(&report.claims_in_one_line())
    ));
    html.push_str(&format!(
        "<p class=\"meta\">{} · {} · took {}</p>\n",
        escape(&experiment.machine.kernel),
        date(experiment.began_unix_ns),
        time(experiment.took_ns as f64)
    ));
    html.push_str(&format!(
        "<pre class=\"command\"><code>{}</code></pre>\n",
        escape(&experiment.command)
    ));
    if experiment.interrupted {
        html.push_str("<p class=\"note\">Ended before all runs were done: this page shows what was finished.</p>\n");
    }
    for note in &experiment.notes {
        html.push_str(&format!("<p class=\"note\">{}</p>\n", escape(note)));
    }
    html.push_str("</header>\n");
    html
}

fn claims(report: &Report<'_>) -> String {
    let mut html = String::from(
        "<section>\n<h2>The article's claims</h2>\n<p>\u{201c}UDP vs TCP for telemetry\u{201d} (blog.sflow.com, 14 February \
         2022) printed one run per point. Each claim stands with what came out here, and why they differ where they do. \
         In brackets: 95 % intervals over runs.</p>\n",
    );
    html.push_str(&verdicts(&report.claims, Outcome::label));
    html.push_str(&agreement(&report.claims));
    html.push_str("</section>\n");
    html
}

fn checks(report: &Report<'_>) -> String {
    let table = verdicts(&report.checks, Outcome::check_label);
    format!(
        "<section>\n<h2>Checks</h2>\n<p>What must hold for the figures to be worth believing.</p>\n{table}</section>\n"
    )
}

fn verdicts(verdicts: &[Verdict], label: fn(Outcome) -> &'static str) -> String {
    let mut html = String::from(
        "<div class=\"wide\"><table class=\"verdicts\">\n<thead><tr><th></th><th>Claim</th><th>Verdict</th><th>Here</th>\
         <th>Difference</th></tr></thead>\n<tbody>\n",
    );
    for verdict in verdicts {
        let caveat = match verdict.caveat.as_str() {
            "" => String::new(),
            caveat => format!("<small>{}</small>", escape(caveat)),
        };
        html.push_str(&format!(
            "<tr><td class=\"id\">{}</td><td>{}</td><td><span class=\"pill {}\">{}</span></td><td>{}</td><td>{}{caveat}</td></tr>\n",
            verdict.id,
            escape(&verdict.claim),
            class(verdict.outcome),
            label(verdict.outcome),
            escape(&verdict.here),
            escape(&verdict.difference),
        ));
    }
    html.push_str("</tbody>\n</table></div>\n");
    html
}

/// What agrees and what does not, by number, so that nobody has to count pills.
fn agreement(verdicts: &[Verdict]) -> String {
    let named = |wanted: &[Outcome]| {
        let ids: Vec<&str> =
            verdicts.iter().filter(|v| wanted.contains(&v.outcome)).map(|v| v.id).collect();
        if ids.is_empty() { "none".to_owned() } else { ids.join(", ") }
    };
    format!(
        "<p><b>Agrees:</b> {}. <b>Agrees in direction, not in size:</b> {}. <b>Does not agree, or is unclear:</b> {}. \
         <b>Not tested:</b> {}.</p>\n",
        named(&[Outcome::Reproduced]),
        named(&[Outcome::DirectionOnly]),
        named(&[Outcome::Differs, Outcome::Unclear]),
        named(&[Outcome::NotTested])
    )
}

pub(super) fn charts_section(charts: &[Chart]) -> String {
    let mut html = String::from("<section>\n<h2>Charts</h2>\n");
    for chart in charts {
        // The title names the drawing for those who do not see it.
        let (head, body) = chart.svg.split_once('>').unwrap_or(("<svg", ""));
        let svg = format!("{head} role=\"img\"><title>{}</title>{body}", escape(&chart.title));
        html.push_str(&format!(
            "<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>\n",
            escape(&chart.caption)
        ));
    }
    html.push_str("</section>\n");
    html
}

fn method(settings: &Settings, bootstrap: Bootstrap) -> String {
    let age = if settings.age_sample_interval_ms > 0.0 {
        format!(", sampled every {} ms", settings.age_sample_interval_ms)
    } else {
        String::new()
    };
    format!(
        "<section>\n<h2>Method</h2>\n<ul>\n\
         <li><b>Loss</b> is one way, over the whole path, and the same in both directions, so a round trip fails more often: \
         at 20 % one way, 36 %. It is measured beside the runs with numbered datagrams.</li>\n\
         <li><b>Closed loop</b> (the article's): send, pause, send. A blocked sender makes fewer messages, so its worst times \
         weigh little. <b>Open loop</b>: messages become due at fixed times and wait; delay counts from the due time.</li>\n\
         <li><b>Delay</b> is over all messages of all runs. Quantiles are measured values (the inverse of the empirical \
         distribution), not interpolated.</li>\n\
         <li><b>Under way at the end:</b> both ends are logged. A message that a stream had not delivered when its run ended \
         counts with the time it had taken so far, and figures that depend on it are lower bounds, marked ≥. Datagrams that \
         were lost have no delay and count in delivered/offered.</li>\n\
         <li><b>Age of information:</b> now minus the making of the newest message received{age}.</li>\n\
         <li><b>Intervals</b> are 95 % percentile bootstrap intervals over runs ({} resamples, seed {}): messages of one run \
         depend on each other, runs do not. With few runs they are too narrow: with five, of a normal mean, they cover 84 % \
         instead of 95 %. The interval of a maximum cannot reach above the largest value seen.</li>\n\
         <li><b>A maximum grows with run length.</b> Never compare maxima of runs of different lengths.</li>\n\
         <li><b>Verdicts:</b> <i>reproduced</i>: our figure lies in the band that stands beside it. <i>In direction</i>: \
         outside, with the effect still there. <i>Unclear</i>: outside, with an interval that reaches in, or a lower bound \
         below the band. <i>Differs</i>: the whole interval lies outside.</li>\n\
         </ul>\n</section>\n",
        grouped(u64::from(bootstrap.resamples)),
        bootstrap.seed
    )
}

fn conditions(report: &Report<'_>) -> String {
    let experiment = report.experiment;
    let mut html = String::from("<section>\n<h2>Conditions</h2>\n<div class=\"pair\">\n");
    let program = match experiment.commit.as_str() {
        "" => experiment.version.clone(),
        commit => format!("{}, commit {commit}", experiment.version),
    };
    let mut rows = vec![
        ("program", format!("weir {program}")),
        ("command", experiment.command.clone()),
        ("preset", experiment.preset.clone()),
        ("began", date(experiment.began_unix_ns)),
    ];
    rows.extend(settings_rows(&experiment.settings));
    html.push_str(&definitions("Settings", &rows));
    html.push_str(&definitions("Machine", &machine_rows(&experiment.machine)));
    let sysctls = experiment
        .machine
        .sysctls
        .iter()
        .map(|(name, value)| (name.as_str(), value.replace('\t', " ")));
    html.push_str(&definitions("Kernel settings", &sysctls.collect::<Vec<_>>()));
    let options = experiment.settings.transport_options.iter();
    html.push_str(&definitions(
        "Transports",
        &options.map(|(name, text)| (name.as_str(), text.clone())).collect::<Vec<_>>(),
    ));
    html.push_str("</div>\n</section>\n");
    html
}

fn settings_rows(settings: &Settings) -> Vec<(&'static str, String)> {
    let known = |value: u64, unit: &str| {
        if value == 0 { String::new() } else { format!("{}{unit}", grouped(value)) }
    };
    let losses = match settings.loss_is {
        LossIs::PerPath => "per path, one way",
        LossIs::PerLink => "per link end; a path crosses two",
    };
    vec![
        ("message", known(settings.message_bytes as u64, " bytes")),
        ("rate", format!("{}/s", settings.rate_per_sec)),
        ("run", format!("{} s, unless a table says otherwise", settings.duration_s)),
        ("runs per point", settings.runs.to_string()),
        ("runs at a time", known(u64::from(settings.parallel_runs), "")),
        ("loss rates asked for", losses.to_owned()),
        ("loss injected by", settings.injector.clone()),
        ("privilege", settings.privilege.clone()),
        ("path MTU", known(u64::from(settings.mtu_bytes), " bytes")),
        (
            "gso_max_segs",
            settings.gso_max_segs.map(|segments| segments.to_string()).unwrap_or_default(),
        ),
    ]
}

pub(super) fn machine_rows(machine: &Machine) -> Vec<(&'static str, String)> {
    let load = |load: Option<f64>| load.map(|load| format!("{load:.2}")).unwrap_or_default();
    let memory = match machine.memory_bytes {
        0 => String::new(),
        bytes => size(bytes),
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

/// A list of names and values; what is unknown is left out.
pub(super) fn definitions(title: &str, rows: &[(&str, String)]) -> String {
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

/// Text as HTML, for elements and for quoted attributes.
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

fn class(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Reproduced => "yes",
        Outcome::DirectionOnly | Outcome::Unclear => "partly",
        Outcome::Differs => "no",
        Outcome::NotTested => "untested",
    }
}
