//! sFlow-RT's exports for Prometheus: interface counters, and flows that a scrape defines.

use super::super::flow_pages::Form;
use super::flows::{Wanted, across, list};
use super::metrics::{counters, split};
use super::{Query, Site, plain, wrong};
use ::flows::{Agent, AgentId};
use admin::service::Told;
use serde_json::{Map, Value as Json};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A flow that a scrape defined is forgotten when no scrape has asked for it for this long, as sFlow-RT's exporter does.
const UNSCRAPED_MAX: Duration = Duration::from_secs(300);
/// Most characters of a label's value.
const LABEL_CHARS_MAX: usize = 128;

/// Counters as `sflow_ifinoctets{agent="10.0.0.1",datasource="3"} 17`.
pub(super) fn metrics(site: &Site, agents: &str, metrics: &str) -> Result<Told, Told> {
    let names = match metrics {
        "ALL" => None,
        list => Some(split(list)?),
    };
    let names = names.map(Arc::new);
    let parts = move |id: &AgentId, agent: &Agent| {
        let values = counters(agent, names.as_ref().map(|names| names.as_slice())).into_iter();
        let lines = values.map(|(index, name, value)| {
            format!("sflow_{name}{{agent=\"{}\",datasource=\"{index}\"}} {value}", id.address)
        });
        lines.collect()
    };
    site.listing(Form::Lines, Vec::new(), site.agents(agents)?, Box::new(parts))
}

/// Flows by a definition in the query: metric, key, label, value, filter, n (10), t (15), maxFlows (20), minValue (0.1), scale
/// (1), aggMode, dropped.
pub(super) fn flows(site: &Site, agents: &str, query: &Query) -> Result<Told, Told> {
    let metric = query.text("metric").ok_or_else(|| wrong("metric is missing"))?;
    let keys: Vec<&str> = query.all("key").collect();
    let keys = keys.join(",");
    let name = site.scraped_flow(&spec(query, &keys)?)?;

    let usual = if query.text("dropped") == Some("true") { "sum" } else { "max" };
    let wanted = Wanted {
        agents,
        name: &name,
        most: query.number("maxFlows", 20.0)?.clamp(0.0, 1_000.0) as usize,
        least: query.number("minValue", 0.1)?,
        across: across(Some(query.text("aggMode").unwrap_or(usual)))?,
    };
    let scale = query.number("scale", 1.0)?;
    let labels: Vec<&str> = query.all("label").flat_map(|list| list.split(',')).collect();
    let names: Vec<String> = keys
        .split(',')
        .enumerate()
        .map(|(at, key)| plain_name(labels.get(at).filter(|one| !one.is_empty()).unwrap_or(&key)))
        .collect();

    let mut text = String::new();
    let metric = plain_name(metric);
    for flow in list(site, &wanted)? {
        let labels = names.iter().zip(&flow.key);
        let labels: Vec<String> =
            labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        // Writing to a string does not fail.
        let _ =
            writeln!(text, "{metric}{{{}}} {}", labels.join(","), flow.figure.rate.value * scale);
    }
    Ok(plain(text))
}

fn spec(query: &Query, keys: &str) -> Result<Map<String, Json>, Told> {
    let mut spec = Map::new();
    spec.insert("keys".into(), keys.into());
    spec.insert("n".into(), query.number("n", 10.0)?.into());
    spec.insert("t".into(), query.number("t", 15.0)?.into());
    for name in ["value", "filter", "dropped"] {
        if let Some(text) = query.text(name) {
            spec.insert(name.into(), text.into());
        }
    }
    Ok(spec)
}

impl Site {
    /// The name of the flow with this definition, which an earlier scrape has made or which is made now.
    fn scraped_flow(&self, spec: &Map<String, Json>) -> Result<String, Told> {
        let now = Instant::now();
        self.forget_unscraped(now);
        let mut made = self.made();
        let scraped =
            made.flows.iter_mut().find(|(_, one)| one.scraped.is_some() && one.spec == *spec);
        if let Some((name, one)) = scraped {
            one.scraped = Some(now);
            return Ok(name.clone());
        }

        let name = loop {
            let name = format!("prometheus_{}", made.scraped);
            made.scraped += 1;
            // The file or a script may have a flow of that name.
            if self.shared.with(|analysis| analysis.counting(&name).is_none()) {
                break name;
            }
        };
        drop(made);
        self.define_flow(&name, spec.clone(), Some(now))?;
        Ok(name)
    }

    pub(super) fn forget_unscraped(&self, now: Instant) {
        let mut made = self.made();
        let is_old = |at: Instant| now.saturating_duration_since(at) > UNSCRAPED_MAX;
        let flows = made.flows.iter().filter(|(_, one)| one.scraped.is_some_and(is_old));
        let old: Vec<String> = flows.map(|(name, _)| name.clone()).collect();
        for name in old {
            made.flows.remove(&name);
            self.shared.with(|analysis| analysis.undefine(&name));
        }
    }
}

/// Turns text into a name that Prometheus accepts.
fn plain_name(text: &str) -> String {
    let name = text.replace(|one: char| !one.is_ascii_alphanumeric() && one != '_', "_");
    let name: String = name.chars().take(LABEL_CHARS_MAX).collect();
    if name.starts_with(|one: char| one.is_ascii_digit()) || name.is_empty() {
        format!("_{name}")
    } else {
        name
    }
}

/// A label's value: quotes and backslashes escaped, control characters replaced.
fn escaped(text: &str) -> String {
    let letters = text.chars().take(LABEL_CHARS_MAX);
    letters
        .flat_map(|one| match one {
            '"' => vec!['\\', '"'],
            '\\' => vec!['\\', '\\'],
            one if one.is_control() => vec!['?'],
            one => vec![one],
        })
        .collect()
}
