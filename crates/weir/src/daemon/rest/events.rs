//! `/events/json`: threshold events, latest first.

use super::flows::{key, places_of};
use super::{Place, Query, Site, source_text, specs, told};
use ::flows::{Change, Event, Subject};
use admin::service::{Asked, Told};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Events in an answer: without `maxEvents`, and at most.
const EVENTS: f64 = 100.0;
const EVENTS_MAX: f64 = 1_000.0;
/// Events copied at a time.
const COPIED_MAX: usize = 256;
/// Longest wait for an event; scripts ask for it with `timeout=60`.
const WAIT_MAX_S: f64 = 60.0;

pub(super) async fn answer(site: Arc<Site>, asked: &Asked) -> Result<Told, Told> {
    let query = Query::of(asked)?;
    let most = query.number("maxEvents", EVENTS)?.clamp(1.0, EVENTS_MAX) as usize;
    let wait_s = query.number("timeout", 0.0)?.clamp(0.0, WAIT_MAX_S);
    // Scripts begin with -1, which means everything.
    let after = query.number("eventID", -1.0)?.max(0.0) as u64;
    let names = query.all("thresholdID").flat_map(|list| list.split(',')).map(str::to_owned);
    let sought = Arc::new(Sought { after, most, names: names.collect() });

    let mut last_event = site.shared.events();
    let mut events = find(&site, &sought).await;
    if events.is_empty() && wait_s > 0.0 {
        let permit = site.waiters.try_acquire();
        let _permit = permit.map_err(|_| Told::text(429, "too many wait for events"))?;
        let wait = async {
            while events.is_empty() && last_event.changed().await.is_ok() {
                events = find(&site, &sought).await;
            }
        };
        // After a timeout the answer has no events.
        let _ = tokio::time::timeout(Duration::from_secs_f64(wait_s), wait).await;
    }
    Ok(told(&Json::Array(events)))
}

/// The search: raised events after event `after`, at most `most` of them, by the thresholds in `names`, or by all if it is
/// empty.
struct Sought {
    after: u64,
    most: usize,
    names: Vec<String>,
}

impl Sought {
    fn is_one(&self, event: &Event) -> bool {
        let is_named = || self.names.iter().any(|name| **name == *event.threshold);
        event.change == Change::Raised && (self.names.is_empty() || is_named())
    }
}

/// The matching events, latest first. Empty if the thread that looks for them panicked, which was reported on standard error.
async fn find(site: &Arc<Site>, sought: &Arc<Sought>) -> Vec<Json> {
    let (site, sought) = (Arc::clone(site), Arc::clone(sought));
    tokio::task::spawn_blocking(move || found(&site, &sought)).await.unwrap_or_default()
}

fn found(site: &Site, sought: &Sought) -> Vec<Json> {
    let mut events = Vec::new();
    let mut before = site.shared.look(|analysis, _| analysis.events().last_id()) + 1;
    while before > sought.after + 1 && events.len() < sought.most {
        let after = before.saturating_sub(1 + COPIED_MAX as u64).max(sought.after);
        let count = (before - after - 1) as usize;
        let (part, is_all) = site.shared.look(|analysis, _| {
            let log = analysis.events();
            let part: Vec<Arc<Event>> = log.after(after).take(count).cloned().collect();
            (part, log.missed_after(after) > 0)
        });
        let part = part.into_iter().rev().filter(|event| event.id < before && sought.is_one(event));
        events.extend(part.take(sought.most - events.len()));
        if is_all {
            break;
        }
        before = after + 1;
    }

    let metrics = site.metrics_of_thresholds();
    let mut places = HashMap::new();
    events.iter().map(|event| show(site, event, &metrics, &mut places)).collect()
}

type Places = HashMap<String, HashMap<Vec<String>, Place>>;

fn show(
    site: &Site,
    event: &Event,
    metrics: &HashMap<String, String>,
    places: &mut Places,
) -> Json {
    let metric = metrics.get(&*event.threshold).cloned();
    let (metric, agent, source, key) = match &event.subject {
        Subject::Flow { definition, key: values, .. } => {
            let known = site.shared.look(|analysis, _| {
                let counting = analysis.counting(definition)?;
                let groups = analysis.engine().shared_groups_of(counting.author());
                Some((counting.shared_definition(), groups))
            });
            let parts = known
                .map(|(definition, groups)| key(&definition, values, &groups))
                .unwrap_or_default();
            let known =
                places.entry(definition.to_string()).or_insert_with(|| places_of(site, definition));
            let (agent, source) = match known.get(&parts) {
                Some((agent, source)) => {
                    (agent.to_string(), source.map_or_else(|| "ALL".into(), source_text))
                }
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
    /// The metric of each threshold that a script defined.
    fn metrics_of_thresholds(&self) -> HashMap<String, String> {
        let made = self.made();
        let specs = made.thresholds.iter();
        let metrics = specs.filter_map(|(name, spec)| {
            Some((name.clone(), spec.get("metric")?.as_str()?.to_owned()))
        });
        metrics.collect()
    }
}
