//! `/events/json`: what passed a threshold, the latest first.

use super::flows::{key, places_of};
use super::{Query, Site, source_text, specs, told};
use ::flows::{Analysis, Change, Event, Subject};
use admin::service::{Asked, Told};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::time::Duration;

/// Events in an answer that says no number, and at most.
const EVENTS: f64 = 100.0;
const EVENTS_MAX: f64 = 1_000.0;
/// Longest wait for an event, as scripts ask for (`timeout=60`).
const WAIT_MAX_S: f64 = 60.0;

pub(super) async fn answer(site: &Site, asked: &Asked) -> Result<Told, Told> {
    let query = Query::of(asked)?;
    let most = query.number("maxEvents", EVENTS)?.clamp(1.0, EVENTS_MAX) as usize;
    let wait_s = query.number("timeout", 0.0)?.clamp(0.0, WAIT_MAX_S);
    // Scripts begin with -1, which is everything.
    let after = query.number("eventID", -1.0)?.max(0.0) as u64;
    let names: Vec<&str> = query.all("thresholdID").flat_map(|list| list.split(',')).collect();

    let mut last_event = site.shared.events();
    let mut events = find(site, after, most, &names);
    if events.is_empty() && wait_s > 0.0 {
        let permit = site.waiters.try_acquire();
        let _permit = permit.map_err(|_| Told::text(429, "too many wait for events"))?;
        let wait = async {
            while events.is_empty() && last_event.changed().await.is_ok() {
                events = find(site, after, most, &names);
            }
        };
        // After the time there is an answer all the same, without events.
        let _ = tokio::time::timeout(Duration::from_secs_f64(wait_s), wait).await;
    }
    Ok(told(&Json::Array(events)))
}

/// What was raised after the event of a number, the latest first.
fn find(site: &Site, after: u64, most: usize, names: &[&str]) -> Vec<Json> {
    let is_asked = |event: &Event| {
        event.change == Change::Raised && (names.is_empty() || names.contains(&&*event.threshold))
    };
    let metrics = site.metrics_of_thresholds();
    let now_ns = site.shared.clock_ns();
    site.shared.with(|analysis| {
        let mut places = HashMap::new();
        let events = analysis.events().after(after).rev().filter(|event| is_asked(event));
        let shown =
            events.take(most).map(|event| show(analysis, event, &metrics, &mut places, now_ns));
        shown.collect()
    })
}

type Places = HashMap<String, HashMap<Vec<String>, (std::net::IpAddr, wire::sflow::DataSource)>>;

fn show(
    analysis: &Analysis,
    event: &Event,
    metrics: &HashMap<String, String>,
    places: &mut Places,
    now_ns: u64,
) -> Json {
    let metric = metrics.get(&*event.threshold).cloned();
    let (metric, agent, source, key) = match &event.subject {
        Subject::Flow { definition, key: values, .. } => {
            let parts = analysis
                .counting(definition)
                .map(|counting| key(counting, values, analysis.engine().groups()))
                .unwrap_or_default();
            let known = places
                .entry(definition.to_string())
                .or_insert_with(|| places_of(analysis, definition, now_ns));
            let (agent, source) = match known.get(&parts) {
                Some((agent, source)) => (agent.to_string(), source_text(*source)),
                None => ("ALL".into(), "ALL".into()),
            };
            (definition.to_string(), agent, source, Some(parts.join(",")))
        }
        Subject::Source { figure, agent, if_index, .. } => {
            let source = if_index.map_or("ALL".into(), |index| index.to_string());
            (metric.unwrap_or_else(|| (*figure).into()), agent.to_string(), source, None)
        }
    };

    let unit = specs::metric_unit(&metric);
    let mut json = json!({
        "agent": agent,
        "dataSource": source,
        "eventID": event.id,
        "metric": metric,
        "threshold": event.limit * unit,
        "thresholdID": *event.threshold,
        "timestamp": event.time_unix_ns / 1_000_000,
        "value": event.figure.value * unit,
    });
    if let Some(key) = key {
        json["flowKey"] = key.into();
    }
    json
}

impl Site {
    /// The metric of each threshold of a script.
    fn metrics_of_thresholds(&self) -> HashMap<String, String> {
        let made = self.made();
        let specs = made.thresholds.iter();
        let metrics = specs.filter_map(|(name, spec)| {
            Some((name.clone(), spec.get("metric")?.as_str()?.to_owned()))
        });
        metrics.collect()
    }
}
