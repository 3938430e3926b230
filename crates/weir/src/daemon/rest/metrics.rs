//! `/agents`, `/metric`, `/metrics`, `/dump`: interface counters and flows as metrics.

use super::super::flow_pages::Form;
use super::flows::{Active, Wanted, list};
use super::{Query, Site, shown, told, wrong};
use ::flows::{Across, Agent, AgentId, Port, Traffic};
use admin::service::Told;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most metrics in one request.
const METRICS_MAX: usize = 64;
/// Most values that one request reads, for each metric.
const VALUES_MAX: usize = 1_000_000;

/// A row: the metric's name, and how to read it from an interface.
type Counter = (&'static str, fn(u32, &Port) -> Option<f64>);

/// Interface metrics, in sFlow-RT's names and units: octets and frames per second, percent.
pub(super) const COUNTERS: &[Counter] = &[
    ("ifindex", |index, _| Some(index.into())),
    ("ifspeed", |_, port| Some(port.counters()?.speed_bits_per_sec as f64)),
    ("ifinoctets", |_, port| port.rates()?.input.bits_per_s.map(|bits| bits / 8.0)),
    ("ifoutoctets", |_, port| port.rates()?.output.bits_per_s.map(|bits| bits / 8.0)),
    ("ifinutilization", |_, port| percent(port, port.rates()?.input.bits_per_s)),
    ("ifoututilization", |_, port| percent(port, port.rates()?.output.bits_per_s)),
    ("ifinpkts", |_, port| port.rates()?.input.frames_per_s),
    ("ifoutpkts", |_, port| port.rates()?.output.frames_per_s),
    ("ifindiscards", |_, port| port.rates()?.input.discards_per_s),
    ("ifoutdiscards", |_, port| port.rates()?.output.discards_per_s),
    ("ifinerrors", |_, port| port.rates()?.input.errors_per_s),
    ("ifouterrors", |_, port| port.rates()?.output.errors_per_s),
];

fn percent(port: &Port, bits: Option<f64>) -> Option<f64> {
    Some(100.0 * bits? / port.full_bits_per_sec()? as f64)
}

fn counter(name: &str) -> Option<&'static Counter> {
    COUNTERS.iter().find(|(one, _)| *one == name)
}

/// Milliseconds since an agent was last heard.
fn silent_ms(agent: &Agent, now_ns: u64) -> u64 {
    now_ns.saturating_sub(agent.heard_ns()) / 1_000_000
}

/// Each agent by its address. Sub-agents at one address are merged.
pub(super) fn agents(site: &Site, query: &Query) -> Told {
    let wanted: Vec<&str> = query.all("agent").collect();
    let mut agents = BTreeMap::<String, Map<String, Json>>::new();
    for id in site.shared.agents(|_| true) {
        let address = id.address.to_string();
        if !wanted.is_empty() && !wanted.contains(&address.as_str()) {
            continue;
        }
        let described = site.shared.look(|analysis, now_ns| {
            analysis.engine().agent(&id).map(|agent| describe(agent, now_ns))
        });
        // An agent that was forgotten meanwhile is left out.
        if let Some(described) = described {
            join(agents.entry(address).or_default(), described);
        }
    }
    told(&json!(agents))
}

fn describe(agent: &Agent, now_ns: u64) -> Vec<(&'static str, u64)> {
    let datagrams = agent.datagrams();
    let mut flow = [0; 6];
    for (_, _, sampler) in agent.samplers().filter(|(of, ..)| *of == Traffic::Sampled) {
        let totals = sampler.totals();
        let samples = totals.samples;
        let figures = [
            samples.received,
            samples.lost,
            samples.duplicate,
            samples.reordered,
            totals.agent_dropped,
            1,
        ];
        flow.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    }
    let mut counters = [0; 5];
    for (_, port) in agent.ports() {
        let samples = port.samples();
        let figures = [samples.received, samples.lost, samples.duplicate, samples.reordered, 1];
        counters.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    }

    let ago_ms = |then_ns: u64| now_ns.saturating_sub(then_ns) / 1_000_000;
    vec![
        ("sFlowDatagramsReceived", datagrams.received),
        ("sFlowDatagramsLost", datagrams.lost),
        ("sFlowDatagramsDuplicates", datagrams.duplicate),
        ("sFlowDatagramsOutOfOrder", datagrams.reordered),
        ("sFlowFlowSamples", flow[0]),
        ("sFlowFlowLostSamples", flow[1]),
        ("sFlowFlowDuplicateSamples", flow[2]),
        ("sFlowFlowOutOfOrderSamples", flow[3]),
        ("sFlowFlowDrops", flow[4]),
        ("sFlowFlowDatasources", flow[5]),
        ("sFlowCounterSamples", counters[0]),
        ("sFlowCounterLostSamples", counters[1]),
        ("sFlowCounterDuplicateSamples", counters[2]),
        ("sFlowCounterOutOfOrderSamples", counters[3]),
        ("sFlowCounterDatasources", counters[4]),
        (FIRST_SEEN, ago_ms(agent.first_ns())),
        (LAST_SEEN, ago_ms(agent.heard_ns())),
        (UPTIME, agent.uptime_ms().into()),
    ]
}

const FIRST_SEEN: &str = "firstSeen";
const LAST_SEEN: &str = "lastSeen";
const UPTIME: &str = "uptime";

/// Merges the figures of a sub-agent into an agent.
fn join(agent: &mut Map<String, Json>, part: Vec<(&'static str, u64)>) {
    for (name, figure) in part {
        let before = agent.get(name).and_then(Json::as_u64);
        let both = before.map_or(figure, |before| match name {
            LAST_SEEN => before.min(figure),
            FIRST_SEEN | UPTIME => before.max(figure),
            _ => before + figure,
        });
        agent.insert(name.into(), both.into());
    }
}

/// The names of available metrics, each with the milliseconds since any agent was last heard.
pub(super) fn known(site: &Site) -> Told {
    let silent_ms = site.shared.look(|analysis, now_ns| {
        analysis.engine().agents().map(|(_, agent)| silent_ms(agent, now_ns)).min()
    });
    let flows = site.flow_names(None);
    let Some(silent_ms) = silent_ms else { return told(&json!({})) };
    let names = COUNTERS.iter().map(|(name, _)| (*name).to_owned()).chain(flows);
    told(&Json::Object(names.map(|name| (name, silent_ms.into())).collect()))
}

/// All counters of agents, as `INTERFACE.NAME`.
pub(super) fn of_agent(site: &Site, agents: &str) -> Result<Told, Told> {
    let mut values = Map::new();
    for id in site.agents(agents)? {
        let agent = site.shared.agent(&id);
        for (index, name, value) in agent.iter().flat_map(|agent| counters(agent, None)) {
            if values.len() >= VALUES_MAX {
                return Err(wrong("that is too much at once: ask for agents one by one"));
            }
            values.insert(format!("{index}.{name}"), json!(value));
        }
    }
    Ok(told(&Json::Object(values)))
}

/// The counters of an agent's interfaces: the named ones, or all.
pub(super) fn counters(agent: &Agent, names: Option<&[String]>) -> Vec<(u32, &'static str, f64)> {
    let mut ports: Vec<_> = agent.ports().collect();
    ports.sort_by_key(|(index, _)| *index);
    let is_asked = |name: &str| names.is_none_or(|names| names.iter().any(|one| one == name));
    let values = ports.into_iter().flat_map(|(index, port)| {
        let asked = COUNTERS.iter().filter(|(name, _)| is_asked(name));
        asked.filter_map(move |(name, of)| Some((index, *name, of(index, port)?)))
    });
    values.collect()
}

/// Every value of these metrics, or of `ALL`.
pub(super) fn dump(site: &Site, agents: &str, metrics: &str) -> Result<Told, Told> {
    let names = match metrics {
        "ALL" => None,
        list => Some(split(list)?),
    };
    let now_ns = site.shared.look(|_, now_ns| now_ns);
    let mut first = Vec::new();
    for name in site.flow_names(names.as_deref()) {
        let wanted = Wanted { agents, name: &name, most: 10_000, least: 0.0, across: Across::Max };
        for ((agent, source), flows) in by_place(list(site, &wanted)?) {
            let json = json!({
                "agent": agent,
                "dataSource": source,
                "lastUpdate": 0,
                "metricName": name,
                "metricValue": flows.first().map_or(0.0, |one| one.figure.rate.value),
                "topKeys": top_keys(&flows, now_ns),
            });
            first.push(json.to_string());
        }
    }

    let names = names.map(Arc::new);
    let parts = move |id: &AgentId, agent: &Agent| {
        let silent_ms = silent_ms(agent, now_ns);
        let values = counters(agent, names.as_ref().map(|names| names.as_slice())).into_iter();
        let parts = values.map(|(index, name, value)| {
            let json = json!({
                "agent": id.address,
                "dataSource": index.to_string(),
                "lastUpdate": silent_ms,
                "metricName": name,
                "metricValue": value,
            });
            json.to_string()
        });
        parts.collect()
    };
    site.listing(Form::Json, first, site.agents(agents)?, Box::new(parts))
}

impl Site {
    /// The flows among these names, or all.
    pub(super) fn flow_names(&self, names: Option<&[String]>) -> Vec<String> {
        let mut known: Vec<String> = self.shared.look(|analysis, _| {
            let counting = analysis.engine().counting().iter();
            counting.map(|one| one.definition().name.clone()).collect()
        });
        known.retain(|name| names.is_none_or(|names| names.contains(name)));
        known
    }
}

fn by_place(flows: Vec<Active>) -> BTreeMap<(String, String), Vec<Active>> {
    let mut places = BTreeMap::<_, Vec<Active>>::new();
    for flow in flows {
        places.entry(flow.place()).or_default().push(flow);
    }
    places
}

/// The heaviest flows, as sFlow-RT shows them for a metric that is a flow.
fn top_keys(flows: &[Active], now_ns: u64) -> Vec<Json> {
    let keys = flows.iter().take(20).map(|one| {
        json!({
            "key": one.key.join(&one.separator),
            "value": one.figure.rate.value,
            "lastUpdate": now_ns.saturating_sub(one.figure.last_ns) / 1_000_000,
        })
    });
    keys.collect()
}

/// One metric of a request: `max:ifinoctets`, `3.ifinoctets`, `ddos`.
struct Metric {
    text: String,
    operation: String,
    source: Option<String>,
    name: String,
}

const OPERATIONS: [&str; 12] =
    ["max", "min", "sum", "avg", "any", "med", "q1", "q2", "q3", "iqr", "var", "sdev"];

impl Metric {
    fn parse(text: &str) -> Metric {
        let (operation, rest) = match text.split_once(':') {
            Some((operation, rest)) if OPERATIONS.contains(&operation) => (operation, rest),
            _ => ("max", text),
        };
        let (source, name) = match rest.rsplit_once('.') {
            // 3.ifinoctets, 2.1.load_one, ALL.ddos: names of flows may contain dots as well.
            Some((source, name)) if source == "ALL" || is_source(source) => {
                (Some(source).filter(|source| *source != "ALL"), name)
            }
            _ => (None, rest),
        };
        Metric {
            text: text.into(),
            operation: operation.into(),
            source: source.map(str::to_owned),
            name: name.into(),
        }
    }
}

fn is_source(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|one| one.is_ascii_digit() || one == '.')
}

/// Aggregates each metric over all interfaces of some agents into one value; no value where there is no data.
pub(super) fn aggregated(site: &Site, agents: &str, metrics: &str) -> Result<Told, Told> {
    let mut values = Vec::new();
    for text in split(metrics)? {
        let metric = Metric::parse(&text);
        let is_flow = site.shared.look(|analysis, _| analysis.counting(&metric.name).is_some());
        let value = if is_flow {
            flow_metric(site, agents, &metric)?
        } else {
            let known = counter(&metric.name);
            known
                .map(|counter| counter_metric(site, agents, &metric, counter))
                .transpose()?
                .flatten()
        };
        values.extend(value);
    }
    Ok(told(&Json::Array(values)))
}

fn flow_metric(site: &Site, agents: &str, metric: &Metric) -> Result<Option<Json>, Told> {
    let wanted =
        Wanted { agents, name: &metric.name, most: 10_000, least: 0.0, across: Across::Max };
    let mut flows = list(site, &wanted)?;
    if let Some(source) = &metric.source {
        flows.retain(|one| one.place().1 == *source);
    }
    let Some(first) = flows.first() else { return Ok(None) };

    let (agent, source) = first.place();
    let now_ns = site.shared.look(|_, now_ns| now_ns);
    let update_ms = now_ns.saturating_sub(first.figure.last_ns) / 1_000_000;
    let places = by_place_count(&flows);
    Ok(Some(json!({
        "agent": agent,
        "dataSource": source,
        "lastUpdate": update_ms,
        "lastUpdateMax": update_ms,
        "lastUpdateMin": update_ms,
        "metricN": places,
        "metricName": metric.text,
        "metricValue": first.figure.rate.value,
        "topKeys": top_keys(&flows, now_ns),
    })))
}

fn by_place_count(flows: &[Active]) -> usize {
    let places: std::collections::BTreeSet<_> = flows.iter().map(Active::place).collect();
    places.len()
}

fn counter_metric(
    site: &Site,
    agents: &str,
    metric: &Metric,
    (name, _): &Counter,
) -> Result<Option<Json>, Told> {
    let names = [(*name).to_owned()];
    let now_ns = site.shared.look(|_, now_ns| now_ns);
    let mut values: Vec<(f64, AgentId, u32, u64)> = Vec::new();
    for id in site.agents(agents)? {
        let agent = site.shared.agent(&id);
        let Some(agent) = agent else { continue };
        let silent_ms = silent_ms(&agent, now_ns);
        for (index, _, value) in counters(&agent, Some(&names)) {
            let is_asked = metric.source.as_ref().is_none_or(|one| *one == index.to_string());
            if is_asked && values.len() < VALUES_MAX {
                values.push((value, id, index, silent_ms));
            }
        }
    }
    values.sort_by(|a, b| a.0.total_cmp(&b.0));

    let numbers: Vec<f64> = values.iter().map(|(value, ..)| *value).collect();
    let Some(value) = aggregate(&metric.operation, &numbers) else { return Ok(None) };
    // The interface that the value comes from, if it comes from a single one.
    let of_one = match metric.operation.as_str() {
        "max" => values.last(),
        "min" | "any" => values.first(),
        _ => None,
    };
    let (agent, source) = of_one
        .map_or(("ALL".to_owned(), "ALL".to_owned()), |(_, id, index, _)| {
            (id.address.to_string(), index.to_string())
        });
    let updates = values.iter().map(|(.., silent_ms)| *silent_ms);
    let (least, most) = (updates.clone().min().unwrap_or(0), updates.max().unwrap_or(0));
    Ok(Some(json!({
        "agent": agent,
        "dataSource": source,
        "lastUpdate": of_one.map_or(least, |(.., silent_ms)| *silent_ms),
        "lastUpdateMax": most,
        "lastUpdateMin": least,
        "metricN": values.len(),
        "metricName": metric.text,
        "metricValue": value,
    })))
}

/// Aggregates sorted numbers. `None` if there are none.
fn aggregate(operation: &str, sorted: &[f64]) -> Option<f64> {
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let count = sorted.len() as f64;
    let sum: f64 = sorted.iter().sum();
    let average = sum / count;
    let quantile = |share: f64| sorted[((count - 1.0) * share).round() as usize];
    let variance =
        || sorted.iter().map(|one| (one - average).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    Some(match operation {
        "min" | "any" => first,
        "sum" => sum,
        "avg" => average,
        "q1" => quantile(0.25),
        "med" | "q2" => quantile(0.5),
        "q3" => quantile(0.75),
        "iqr" => quantile(0.75) - quantile(0.25),
        "var" => variance(),
        "sdev" => variance().sqrt(),
        _ => last,
    })
}

/// Splits a list of names such as `ifinoctets,max:ddos`.
pub(super) fn split(list: &str) -> Result<Vec<String>, Told> {
    let names: Vec<String> =
        list.split([',', ';']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.is_empty() || names.len() > METRICS_MAX {
        return Err(wrong(&format!(
            "\"{}\": expected 1 to {METRICS_MAX} names of metrics",
            shown(list)
        )));
    }
    Ok(names)
}
