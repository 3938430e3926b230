//! `/activeflows`: the heaviest flows of a definition.

use super::super::flows::{FLOWS_MAX, Top};
use super::{Place, Places, Query, Site, places, source_text, told, unknown, wrong};
use ::flows::{Across, Analysis, Definition, Field, Figure, Groups, Kind, Part, Value};
use admin::service::Told;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Flows in an answer without a limit.
const FLOWS: f64 = 100.0;

/// How the figures of a flow at several agents become one, according to `aggMode`.
pub(super) fn across(text: Option<&str>) -> Result<Across, Told> {
    match text {
        // sFlow-RT's `edge` leaves out frames that leave the network. We count each flow where most of it was seen.
        None | Some("" | "max" | "edge") => Ok(Across::Max),
        Some("sum") => Ok(Across::Sum),
        Some(_) => Err(wrong("aggMode: expected max, sum or edge")),
    }
}

/// What a request asks of a definition.
pub(super) struct Wanted<'a> {
    pub(super) agents: &'a str,
    pub(super) name: &'a str,
    pub(super) most: usize,
    pub(super) least: f64,
    pub(super) across: Across,
}

/// A flow, ready to be shown.
pub(super) struct Active {
    pub(super) key: Vec<String>,
    pub(super) separator: String,
    pub(super) figure: Figure,
    /// The agent that saw most of it, and the source if that has only one; `None` for a sum.
    pub(super) seen: Option<Place>,
}

pub(super) fn active(site: &Site, agents: &str, name: &str, query: &Query) -> Result<Told, Told> {
    let most = query.number("maxFlows", FLOWS)?.clamp(0.0, FLOWS_MAX as f64) as usize;
    let least = query.number("minValue", 0.0)?;
    let across = across(query.text("aggMode"))?;

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
            "flowN": self.figure.vantages,
            "key": self.key.join(&self.separator),
            "value": self.figure.rate.value,
            // Additional fields, which sFlow-RT does not have.
            "valueLow": self.figure.rate.low,
            "valueHigh": self.figure.rate.high,
            "samples": self.figure.rate_samples,
        })
    }

    /// The agent and the data source as text.
    pub(super) fn place(&self) -> (String, String) {
        match self.seen {
            Some((agent, source)) => {
                (agent.to_string(), source.map_or_else(|| "ALL".into(), source_text))
            }
            None => ("ALL".into(), "ALL".into()),
        }
    }
}

/// The heaviest flows of a definition.
pub(super) fn list(site: &Site, wanted: &Wanted<'_>) -> Result<Vec<Active>, Told> {
    let separator = site.separator(wanted.name);
    let listed = site.listed(wanted.name, wanted.agents, wanted.across)?;
    let Listed { top, places } = &*listed;
    let figures = top.figures.iter().take(wanted.most);
    let flows = figures.filter(|one| one.rate.value >= wanted.least).map(|figure| Active {
        key: key(&top.summary.definition, &figure.key, &top.groups),
        separator: separator.clone(),
        seen: places.get(&figure.vantage).copied(),
        figure: figure.clone(),
    });
    Ok(flows.collect())
}

/// The heaviest flows at some agents, and where their vantages are.
pub(super) struct Listed {
    pub(super) top: Top,
    pub(super) places: Places,
}

/// The key of a shared list: definition, agents, and how their figures are combined.
pub(super) type Question = (String, String, Across);

impl Site {
    /// The heaviest flows of a definition at some agents. Many readers share one list.
    pub(super) fn listed(
        &self,
        name: &str,
        agents: &str,
        across: Across,
    ) -> Result<Arc<Listed>, Told> {
        let ids = self.agents(agents)?;
        let is_all = agents == "ALL";
        let make = || {
            let read = |analysis: &Analysis| {
                analysis.counting(name).map(|counting| counting.definition().traffic)
            };
            let traffic = self.shared.look(|analysis, _| read(analysis))?;
            let places = places(&self.shared, &ids, traffic);
            let is_chosen = |vantage: u32| is_all || places.contains_key(&vantage);
            let top = self.shared.heaviest(name, across, is_chosen)?;
            Some(Arc::new(Listed { top, places }))
        };
        let listed = self.listed.get((name.into(), agents.into(), across), make);
        listed.ok_or_else(|| unknown("flow", name))
    }

    /// The separator between the parts of a key: `fs` of the definition.
    pub(super) fn separator(&self, name: &str) -> String {
        let made = self.made();
        let spec = made.flows.get(name).and_then(|one| one.spec.get("fs"));
        spec.and_then(Json::as_str).unwrap_or(",").chars().take(16).collect()
    }
}

/// A key as sFlow-RT writes it: MAC addresses without colons, TCP flags as nine bits.
pub(super) fn key(definition: &Definition, values: &[Value], groups: &Groups) -> Vec<String> {
    let parts = definition.keys.iter().zip(values);
    let texts = parts.map(|(part, value)| match (part, value) {
        (Part::Field(Field::TcpFlags), Value::Number(flags)) => format!("{flags:09b}"),
        (Part::Field(field), Value::Number(number)) if field.kind() == Kind::Number => {
            number.to_string()
        }
        (_, Value::Mac(mac)) => mac.iter().map(|byte| format!("{byte:02X}")).collect(),
        (part, value) => part.shown(*value, groups),
    });
    texts.collect()
}

/// For each of the heaviest flows, where most of it is seen now.
pub(super) fn places_of(site: &Site, name: &str) -> HashMap<Vec<String>, Place> {
    let Ok(listed) = site.listed(name, "ALL", Across::Max) else { return HashMap::new() };
    let Listed { top, places } = &*listed;
    let seen = top.figures.iter().filter_map(|figure| {
        let place = places.get(&figure.vantage)?;
        Some((key(&top.summary.definition, &figure.key, &top.groups), *place))
    });
    seen.collect()
}
