//! Events as text: a line for people, JSON for programs.

use ::flows::{AgentFigure, Change, Event, PortFigure, Subject};
use ::text::units::display_duration;
use ::text::{bit_rate, percent, short_count};
use config::LevelUnit;
use serde_json::{Map, Value as Json, json};
use std::time::Duration;

/// An event as JSON, with its [`line()`] as `text`. Times are decimal strings, like all numbers that may exceed 2^53.
pub(crate) fn json(event: &Event) -> Json {
    let subject = match &event.subject {
        Subject::Flow { definition, shown, .. } => {
            let parts = shown.iter().map(|(word, value)| (word.clone(), value.as_str().into()));
            json!({ "flow": **definition, "key": parts.collect::<Map<String, Json>>() })
        }
        Subject::Source { figure, agent, sub_agent, if_index } => {
            json!({ "figure": figure, "agent": agent, "sub_agent": sub_agent, "interface": if_index })
        }
    };
    json!({
        "id": event.id,
        "text": line(event),
        "raised_id": event.raised_id,
        "change": event.change.word(),
        "threshold": *event.threshold,
        "of": subject,
        "limit": event.limit,
        "figure": { "value": event.figure.value, "low": event.figure.low, "high": event.figure.high },
        "peak": event.peak,
        "time_unix_ns": event.time_unix_ns.to_string(),
        "raised_unix_ns": event.raised_unix_ns.to_string(),
    })
}

/// An event for people. It contains no text from agents: only addresses, numbers and names from the configuration.
pub(crate) fn line(event: &Event) -> String {
    let what = match &event.subject {
        Subject::Flow { shown, .. } => {
            let parts = shown.iter().map(|(word, value)| format!("{word}={value}"));
            let what = parts.collect::<Vec<_>>().join(" ");
            if what.is_empty() { "all traffic".into() } else { what }
        }
        Subject::Source { figure, agent, sub_agent, if_index } => {
            let part = if *sub_agent == 0 { String::new() } else { format!("/{sub_agent}") };
            let index = if_index.map(|index| format!(" interface {index}")).unwrap_or_default();
            format!("{figure} of {agent}{part}{index}")
        }
    };
    let shown = |value| figure(event, value);

    let lasted_s = event.time_unix_ns.saturating_sub(event.raised_unix_ns) / 1_000_000_000;
    let about = match event.change {
        Change::Raised => {
            format!("{} (limit {})", shown(event.figure.value), shown(event.limit))
        }
        Change::Cleared => {
            let lasted = display_duration(Duration::from_secs(lasted_s));
            format!(
                "{}, after {lasted} with up to {}",
                shown(event.figure.value),
                shown(event.peak)
            )
        }
    };
    let (id, change) = (event.raised_id, event.change.word());
    format!("#{id} {change} {}: {what}: {about}", event.threshold)
}

/// A figure of what an event is about, with its unit.
pub(crate) fn figure(event: &Event, value: f64) -> String {
    let (unit, bits_each) = match &event.subject {
        Subject::Flow { measure, .. } => (Some(LevelUnit::of_measure(*measure)), 8.0),
        Subject::Source { figure, .. } => (unit_named(figure), 1.0),
    };
    match unit {
        Some(LevelUnit::Bits) => bit_rate(value * bits_each),
        Some(LevelUnit::Share) => percent(value),
        Some(LevelUnit::Time) => display_duration(Duration::from_secs(value as u64)),
        Some(LevelUnit::Count) | None => format!("{}/s", short_count(value)),
    }
}

/// The unit of a figure of interfaces or agents.
fn unit_named(word: &str) -> Option<LevelUnit> {
    let port = PortFigure::ALL.iter().find(|(name, _)| *name == word);
    let agent = AgentFigure::ALL.iter().find(|(name, _)| *name == word);
    let agent = agent.map(|(_, figure)| LevelUnit::of_agent(*figure));
    port.map(|(_, figure)| LevelUnit::of_port(*figure)).or(agent)
}
