//! The metrics as text for Prometheus and OpenMetrics.
//!
//! [`FAMILIES`] is the only table of names, types, labels and help; everything shown or pushed refers to a row of it. The writer
//! is our own (`text.rs`): both formats need the same rows with different spelling, from one consistent snapshot, while client
//! libraries keep counters of their own and write one format.

mod collect;
pub(crate) mod flows;
mod samples;
mod sockets;
mod table;
mod text;

use crate::condition::VIOLATION_RECENT;
use collect::Figures;
pub(crate) use collect::add_ledger;
pub(crate) use samples::{Sample, Samples, Value};
pub use table::{FAMILIES, Family, FamilyId, Kind};

use crate::AdminState;

/// A text format for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exposition {
    /// Prometheus text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Exposition {
    /// The format that an `Accept` header asks for; Prometheus text if it asks for neither.
    pub fn negotiate(accept: &str) -> Exposition {
        let wish = |media_type: &str| {
            accept.split(',').filter_map(|range| quality(range, media_type)).fold(0.0, f64::max)
        };
        let open_metrics = wish("application/openmetrics-text");
        if open_metrics > 0.0 && open_metrics >= wish("text/plain") {
            Exposition::OpenMetrics
        } else {
            Exposition::Prometheus
        }
    }

    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The weight of one media range of an `Accept` header, if it names `media_type`.
fn quality(range: &str, media_type: &str) -> Option<f64> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(media_type) {
        return None;
    }
    let weight = parts.find_map(|part| part.strip_prefix("q="));
    Some(weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
}

/// Takes a snapshot and writes it.
pub fn render(state: &AdminState, exposition: Exposition) -> String {
    let snapshot = state.ledger.check();
    let host = state.host.read();
    let process = state.host.read_process();
    let health = state.health.view();

    let flows = state.flows.as_ref().map(|flows| (flows.figures)());

    let figures = Figures {
        snapshot: &snapshot,
        is_violation_recent: state.ledger.violated_within(VIOLATION_RECENT),
        host: &host,
        process: &process,
        health: &health,
        build: &state.build,
        http: &state.http,
        statsd: &state.statsd,
        flows: flows.as_ref(),
    };

    text::write(&figures.samples(), exposition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, expected: Exposition) {
        assert_eq!(Exposition::negotiate(accept), expected, "{accept}");
    }

    #[test]
    fn nothing_asked() {
        check("", Exposition::Prometheus);
        check("*/*", Exposition::Prometheus);
        check("text/html,*/*;q=0.8", Exposition::Prometheus);
    }

    #[test]
    fn what_prometheus_2_and_3_ask() {
        check(
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            Exposition::OpenMetrics,
        );
        check(
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6, text/plain;version=1.0.0;q=0.4",
            Exposition::OpenMetrics,
        );
    }

    #[test]
    fn text_preferred() {
        check("application/openmetrics-text;q=0.3,text/plain", Exposition::Prometheus);
        check("application/openmetrics-text;q=0", Exposition::Prometheus);
    }

    #[test]
    fn plain_open_metrics() {
        check("application/openmetrics-text", Exposition::OpenMetrics);
        check("Application/OpenMetrics-Text; version=1.0.0", Exposition::OpenMetrics);
    }
}
