//! `[metrics.statsd]`: pushing the daemon's own figures as StatsD.

use crate::address::{HostPort, TargetAddress};
use crate::document::Table;
use crate::form::{Span, text};
use crate::keys::{Section, keys};
use crate::listener::{ReadListener, who_hears};
use crate::reader::{Placed, Reader, Report, single, unknown_sections};
use std::time::Duration;

pub(crate) const SECTION: Section = Section {
    path: "metrics.statsd",
    header: "[metrics.statsd]",
    tables: &[StatsdConfig::TABLE],
    subsections: &[],
};

keys! {
    /// Pushing the daemon's own figures as StatsD.
    pub struct StatsdConfig in "metrics.statsd" {
        /// Where Weir's own figures are pushed to as StatsD over UDP.
        to => to: HostPort = text("`HOST:PORT`", udp),
            required("write to = \"127.0.0.1:8125\", or remove the section");
        /// First part of every name that is pushed.
        prefix => prefix: String = text("letters, digits, `_`, `-` and `.`", prefix),
            default("weir".to_owned());
        /// Time between two pushes.
        interval => interval: Duration =
            Span(Duration::from_millis(100), Duration::from_secs(3_600)),
            default(Duration::from_secs(10));
        /// How often a host name is resolved again.
        resolve_interval => resolve_interval: Duration =
            Span(Duration::from_secs(1), Duration::from_secs(86_400)), default(Duration::from_secs(30));
    }
}

/// Reads the section; `None` if it is missing, or wrong, which is reported.
pub(crate) fn read(report: &Report, document: &Table) -> Option<Placed<StatsdConfig>> {
    let metrics = single(report, document, "metrics", ("metrics", SECTION.header))?;
    unknown_sections(report, metrics, &["statsd"], "metrics.");
    let table = single(report, metrics, "statsd", (SECTION.path, SECTION.header))?;
    let thing = StatsdConfig::read(&Reader::open(report, table, &SECTION, SECTION.path))?;
    Some(Placed { place: SECTION.path.to_owned(), thing })
}

fn udp(text: &str) -> Result<HostPort, String> {
    match text.parse() {
        Ok(TargetAddress::Udp(addr)) => Ok(addr),
        Ok(_) => Err("StatsD is pushed over UDP. Fix: write for example 127.0.0.1:8125".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn prefix(text: &str) -> Result<String, String> {
    let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    let wrong = || {
        "it has other characters than letters, digits, `_`, `-` and `.`. Fix: leave those out"
            .to_owned()
    };
    (is_name && !text.is_empty()).then(|| text.to_owned()).ok_or_else(wrong)
}

/// Refuses a destination where a listener would receive the daemon's own figures as data.
pub(crate) fn check(report: &Report, statsd: &Placed<StatsdConfig>, all: &[ReadListener]) {
    let listeners = all.iter().map(|one| &one.listener.thing);
    if let Some(owner) = who_hears(listeners, &statsd.thing.to) {
        let message = format!(
            "{} is where listener {} receives, which would take the figures for data. Fix: name a StatsD server",
            statsd.thing.to, owner.name
        );
        statsd.error(report, &StatsdConfig::to, message);
    }
}
