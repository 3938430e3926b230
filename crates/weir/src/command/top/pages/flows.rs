//! The page of flows: the heaviest with their intervals, the agents, and the last hour.

use super::super::answers::{Agent, Definition, Flow, Flows, HourFlow, Top};
use super::super::grid::{Column, Entry, Kind, column};
use super::super::model::Model;
use super::{Content, bytes, entry};
use serde_json::Value as Json;
use std::cmp::Reverse;
use text::{Tint, bit_rate, escaped, grouped, plural, short_count};

const FLOWS: &[Column] = &[
    column("definition", Kind::Name(8), 2),
    column("flow", Kind::Name(16), 0),
    column("rate", Kind::Figure, 0),
    column("95% interval", Kind::Figure, 1),
    column("samples", Kind::Figure, 3),
];

const HOUR: &[Column] = &[
    column("definition", Kind::Name(8), 2),
    column("flow", Kind::Name(16), 0),
    column("bytes", Kind::Figure, 0),
    column("95% interval", Kind::Figure, 1),
    column("samples", Kind::Figure, 3),
];

const AGENTS: &[Column] = &[
    column("agent", Kind::Name(16), 0),
    column("datagrams", Kind::Figure, 0),
    column("lost on the way", Kind::Figure, 0),
    column("lost inside", Kind::Figure, 1),
    column("restarts", Kind::Figure, 2),
];

pub(super) fn content(model: &Model) -> Content<'_> {
    let flows = match &model.flows {
        Some(Ok(flows)) => flows,
        told => {
            let mut content = Content::of(model, FLOWS, Vec::new());
            match told {
                Some(Err(why)) => content.refuse(why),
                _ => content.say("asking for flows", Tint::Dim),
            }
            return content;
        }
    };

    let mut content = match model.group() {
        "agent" => Content::of(model, AGENTS, flows.agents.iter().map(agent).collect()),
        "hour" => {
            let hour = flows.hour.as_ref().and_then(|told| told.as_ref().ok());
            let entries = hour.into_iter().flatten().map(of_hour).collect();
            Content::of(model, HOUR, entries)
        }
        _ => Content::of(model, FLOWS, heaviest(model.sort(), flows)),
    };
    content = content.filtered(model);

    let lost: u64 = flows.agents.iter().map(|agent| agent.lost).sum();
    let lost =
        if lost > 0 { format!("✕ {} lost", grouped(lost)) } else { "none lost".to_owned() };
    let datagrams: u64 = flows.agents.iter().map(|agent| agent.datagrams).sum();
    let agents = plural(flows.agents.len() as u64, "agent", "agents");
    content
        .say(format!("{agents}, {} datagrams, {lost} on the way", grouped(datagrams)), Tint::Plain);
    match (&flows.hour, model.group()) {
        (Some(Err(why)), "hour") => content.refuse(why),
        (None, "hour") => content.say("asking for the last hour", Tint::Dim),
        _ => {}
    }
    content
}

fn heaviest(sort: &str, flows: &Flows) -> Vec<Entry<'static>> {
    let mut all: Vec<(u64, Entry<'static>)> = flows.tops.iter().flat_map(rows).collect();
    match sort {
        "samples" => all.sort_by_key(|(samples, _)| Reverse(*samples)),
        "name" => all.sort_by(|(_, a), (_, b)| a.cells[1].cmp(&b.cells[1])),
        // As the daemon has them: definition by definition, the heaviest first.
        _ => {}
    }
    all.into_iter().map(|(_, entry)| entry).collect()
}

/// The flows of a definition, with all others as the last row: together every sample that was counted.
fn rows(top: &Top) -> Vec<(u64, Entry<'static>)> {
    let Top { definition, flows } = top;
    let is_dropped = definition.of == "dropped";
    let name = format!("{}{}", if is_dropped { "✕ " } else { "" }, escaped(&definition.name));
    let tint = if is_dropped { Tint::Notice } else { Tint::Plain };
    let rate = |rate: f64| rate_of(definition, rate);

    let row = |flow: &Flow| {
        let cells = [
            name.clone(),
            key(definition, flow),
            rate(flow.per_s.value),
            format!("{} – {}", rate(flow.per_s.low), rate(flow.per_s.high)),
            grouped(flow.samples),
        ];
        (flow.samples, entry(cells, tint))
    };
    let mut rows: Vec<_> = flows.iter().map(row).collect();
    let shown: u64 = flows.iter().map(|flow| flow.samples).sum();
    let other = definition.samples.counted.saturating_sub(shown);
    let cells = [name.clone(), "other".to_owned(), "-".to_owned(), "-".to_owned(), grouped(other)];
    rows.push((other, entry(cells, tint)));
    rows
}

fn rate_of(definition: &Definition, rate: f64) -> String {
    match &*definition.value {
        "bytes" => bit_rate(rate * 8.0),
        _ => format!("{}/s", short_count(rate)),
    }
}

/// The values of a flow's keys, in the definition's order.
fn key(definition: &Definition, flow: &Flow) -> String {
    let value = |name: &String| match flow.key.get(name) {
        Some(Json::String(text)) => escaped(text),
        Some(value) => value.to_string(),
        None => "?".to_owned(),
    };
    let values: Vec<String> = definition.keys.iter().map(value).collect();
    if values.is_empty() { "everything".to_owned() } else { values.join(",") }
}

fn of_hour(flow: &HourFlow) -> Entry<'static> {
    let cells = [
        escaped(&flow.definition),
        escaped(&flow.key),
        bytes(flow.bytes),
        format!("{} – {}", bytes(flow.low), bytes(flow.high)),
        grouped(flow.samples),
    ];
    entry(cells, Tint::Plain)
}

fn agent(agent: &Agent) -> Entry<'static> {
    let dropped = agent.dropped_there();
    let mark = |lost: u64| match lost {
        0 => "0".to_owned(),
        lost => format!("✕ {}", grouped(lost)),
    };
    let cells = [
        format!("{}/{}", escaped(&agent.address), agent.sub_agent),
        grouped(agent.datagrams),
        mark(agent.lost),
        mark(dropped),
        grouped(agent.resets),
    ];
    entry(cells, if agent.lost + dropped > 0 { Tint::Notice } else { Tint::Plain })
}
