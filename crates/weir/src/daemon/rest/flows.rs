//! `/activeflows`: the heaviest flows of a definition.

use super::{Query, Site, samplers, source_text, told, unknown, wrong};
use ::flows::{Analysis, Counting, Field, Figure, Groups, Part, Value};
use admin::service::Told;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::net::IpAddr;
use wire::sflow::DataSource;

/// Flows in an answer that says no number, and at most.
const FLOWS: f64 = 100.0;
const FLOWS_MAX: usize = 10_000;

/// How the figures of several samplers of one flow become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Across {
    /// That of the sampler which saw most.
    Max,
    /// Their sum.
    Sum,
}

impl Across {
    pub(super) fn parse(text: Option<&str>) -> Result<Across, Told> {
        match text {
            // Frames that leave the network are left out of `edge` there; here each flow is counted where most was seen of it.
            None | Some("" | "max" | "edge") => Ok(Across::Max),
            Some("sum") => Ok(Across::Sum),
            Some(_) => Err(wrong("aggMode: expected max, sum or edge")),
        }
    }
}

/// What is asked of a definition.
pub(super) struct Wanted<'a> {
    pub(super) agents: &'a str,
    pub(super) name: &'a str,
    pub(super) most: usize,
    pub(super) least: f64,
    pub(super) across: Across,
}

/// A flow as it is shown.
pub(super) struct Active {
    pub(super) key: Vec<String>,
    pub(super) separator: String,
    pub(super) figure: Figure,
    /// Where most was seen of it; `None` for a sum.
    pub(super) seen: Option<(IpAddr, DataSource)>,
}

pub(super) fn active(site: &Site, agents: &str, name: &str, query: &Query) -> Result<Told, Told> {
    let most = query.number("maxFlows", FLOWS)?.clamp(0.0, FLOWS_MAX as f64) as usize;
    let least = query.number("minValue", 0.0)?;
    let across = Across::parse(query.text("aggMode"))?;

    let flows = list(site, &Wanted { agents, name, most, least, across })?;
    let flows: Vec<Json> = flows.iter().map(Active::json).collect();
    Ok(told(&Json::Array(flows)))
}

impl Active {
    fn json(&self) -> Json {
        let (agent, source) = self.place();
        json!({
            "agent": agent,
            "dataSource": source,
            "flowN": self.figure.samplers,
            "key": self.key.join(&self.separator),
            "value": self.figure.rate.value,
            // What sFlow-RT does not say.
            "valueLow": self.figure.rate.low,
            "valueHigh": self.figure.rate.high,
            "samples": self.figure.rate_samples,
        })
    }

    /// The agent and the data source as text.
    pub(super) fn place(&self) -> (String, String) {
        match self.seen {
            Some((agent, source)) => (agent.to_string(), source_text(source)),
            None => ("ALL".into(), "ALL".into()),
        }
    }
}

/// The heaviest flows of a definition.
pub(super) fn list(site: &Site, wanted: &Wanted<'_>) -> Result<Vec<Active>, Told> {
    let agents = site.agents(wanted.agents)?;
    let is_all = wanted.agents == "ALL";
    let separator = site.separator(wanted.name);
    let now_ns = site.shared.clock_ns();

    site.shared.with(|analysis| {
        let counting =
            analysis.counting(wanted.name).ok_or_else(|| unknown("flow", wanted.name))?;
        let places = samplers(analysis, &agents, counting.definition().traffic);
        let is_chosen = |sampler: u32| is_all || places.contains_key(&sampler);
        let figures = match wanted.across {
            Across::Max => counting.top_of(now_ns, wanted.most, is_chosen),
            Across::Sum => counting.sums_of(now_ns, wanted.most, is_chosen),
        };
        let figures = figures.into_iter().filter(|one| one.rate.value >= wanted.least);
        let flows = figures.map(|figure| Active {
            key: key(counting, &figure.key, analysis.engine().groups()),
            separator: separator.clone(),
            seen: places.get(&figure.sampler).copied(),
            figure,
        });
        Ok(flows.collect())
    })
}

impl Site {
    /// What stands between the parts of a key: `fs` of the definition.
    pub(super) fn separator(&self, name: &str) -> String {
        let made = self.made();
        let spec = made.flows.get(name).and_then(|one| one.spec.get("fs"));
        spec.and_then(Json::as_str).unwrap_or(",").chars().take(16).collect()
    }
}

/// A key as sFlow-RT writes it: MAC addresses without colons, flags of TCP as nine bits.
pub(super) fn key(counting: &Counting, values: &[Value], groups: &Groups) -> Vec<String> {
    let parts = counting.definition().keys.iter().zip(values);
    let texts = parts.map(|(part, value)| match (part, value) {
        (Part::Field(Field::TcpFlags), Value::Number(flags)) => format!("{flags:09b}"),
        (Part::Field(_), Value::Number(number)) => number.to_string(),
        (_, Value::Mac(mac)) => mac.iter().map(|byte| format!("{byte:02X}")).collect(),
        (part, value) => part.shown(*value, groups),
    });
    texts.collect()
}

/// For each of these flows, where most is seen of it now.
pub(super) fn places_of(
    analysis: &Analysis,
    name: &str,
    now_ns: u64,
) -> HashMap<Vec<String>, (IpAddr, DataSource)> {
    let Some(counting) = analysis.counting(name) else { return HashMap::new() };
    let agents: Vec<_> = analysis.engine().agents().map(|(id, _)| *id).collect();
    let places = samplers(analysis, &agents, counting.definition().traffic);
    let figures = counting.top_of(now_ns, FLOWS_MAX, |_| true).into_iter();
    let groups = analysis.engine().groups();
    let seen = figures.filter_map(|figure| {
        let place = places.get(&figure.sampler)?;
        Some((key(counting, &figure.key, groups), *place))
    });
    seen.collect()
}
