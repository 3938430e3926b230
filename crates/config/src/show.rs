//! The configuration as TOML and as JSON, each value with its origin, and the differences between two configurations.

mod differences;

pub(crate) use differences::differences;

use crate::keys::{Fallback, Key, Section, Values};
use crate::reader::Found;
use crate::source::Places;
use crate::{
    Config, Overrides, admin, daemon, flows, listener, mitigation, sink, sockets, statsd, target,
    threshold,
};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The origins of a configuration's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    places: Places,
    /// Keyed by place and key, such as `listener[0].name`.
    found: BTreeMap<String, Found>,
    overridden: BTreeMap<String, &'static str>,
}

impl Origins {
    pub(crate) fn new(places: &Places, found: BTreeMap<String, Found>) -> Origins {
        Origins { places: places.clone(), found, overridden: BTreeMap::new() }
    }

    /// The origins after [`Config::overridden_by`] with the same overrides.
    #[must_use]
    pub fn overridden_by(mut self, overrides: &Overrides) -> Origins {
        self.overridden.extend(overrides.keys().map(|(key, variable)| (key.path(), variable)));
        self
    }

    fn of(&self, place: &str, key: &Key) -> String {
        let name = format!("{place}.{}", key.name);
        if let Some(variable) = self.overridden.get(&name) {
            return format!("environment {variable}");
        }
        let Some(found) = self.found.get(&name) else { return "default".to_owned() };
        let place = self.places.words(found.line);
        let from = found.borrowed.iter().flat_map(|borrowed| &borrowed.origins);
        from.fold(place, |all, one| format!("{all}, {one}"))
    }

    /// A value that refers to the environment, as written in the file: a variable may hold a secret, so its value is not shown.
    fn written(&self, place: &str, key: &Key) -> Option<&Json> {
        let name = format!("{place}.{}", key.name);
        let found = self.found.get(&name).filter(|_| !self.overridden.contains_key(&name))?;
        found.borrowed.as_ref().map(|borrowed| &borrowed.written)
    }
}

/// A section of the file with its values.
pub(crate) struct Shown<'a> {
    section: &'static Section,
    /// Such as `listener[0].target[1]`.
    pub(crate) place: String,
    /// The name of the listener that it belongs to and its own name, if they have names.
    names: Vec<&'a str>,
    pub(crate) values: Values,
}

/// All sections, in the order of the file.
pub(crate) fn sections(config: &Config) -> Vec<Shown<'_>> {
    let one = |section: &'static Section, values| {
        let place = section.path.to_owned();
        Shown { section, place, names: Vec::new(), values }
    };

    let mut all = vec![
        one(&admin::SECTION, config.admin.values()),
        one(&daemon::SECTION, config.daemon.values()),
    ];
    all.extend(config.statsd.iter().map(|statsd| one(&statsd::SECTION, statsd.values())));

    for (at, listener) in config.listeners.iter().enumerate() {
        let place = format!("listener[{at}]");
        let names = vec![listener.name.as_str()];
        let targets = listener.targets.iter().enumerate().map(|(at, target)| Shown {
            section: &target::SECTION,
            place: format!("{place}.target[{at}]"),
            names: vec![&listener.name, &target.name],
            values: target.values(),
        });
        let targets: Vec<_> = targets.collect();

        all.push(Shown { section: &listener::SECTION, place, names, values: listener.values() });
        all.extend(targets);
    }

    all.extend(config.sockets.iter().map(|sockets| one(&sockets::SECTION, sockets.values())));
    if let Some(flows) = &config.flows {
        all.push(one(&flows::SECTION, flows.values()));
        all.extend(flows.definitions.iter().enumerate().map(|(at, flow)| Shown {
            section: &flows::FLOW_SECTION,
            place: format!("flow[{at}]"),
            names: vec![&flow.name],
            values: flow.values(),
        }));
    }
    all.extend(config.thresholds.iter().enumerate().map(|(at, one)| Shown {
        section: &threshold::SECTION,
        place: format!("threshold[{at}]"),
        names: vec![&one.name],
        values: one.values(),
    }));
    all.extend(config.mitigations.iter().enumerate().map(|(at, one)| Shown {
        section: &mitigation::SECTION,
        place: format!("mitigation[{at}]"),
        names: vec![&one.name],
        values: one.values(),
    }));
    all.extend(config.sinks.iter().enumerate().map(|(at, sink)| Shown {
        section: &sink::SECTION,
        place: format!("sink[{at}]"),
        names: vec![&sink.name],
        values: sink.values(),
    }));
    all
}

/// Longest line with its comment at the end; on a longer line the comment goes below.
const COLUMNS_MAX: usize = 80;

pub(crate) fn to_toml(config: &Config, origins: Option<&Origins>) -> String {
    let mut out = String::new();
    let mut line = |text: &str, comment: Option<&str>| {
        match comment {
            Some(comment) => {
                let whole = format!("{text:<40} # {comment}");
                match whole.chars().count() > COLUMNS_MAX {
                    true => writeln!(out, "{text}\n    # {comment}"),
                    false => writeln!(out, "{whole}"),
                }
            }
            None => writeln!(out, "{text}"),
        }
        .expect("writing to a string does not fail");
    };

    for (at, Shown { section, place, values, .. }) in sections(config).iter().enumerate() {
        if at > 0 {
            line("", None);
        }
        line(section.header, None);

        for (key, value) in values {
            let origin = origins.map(|origins| origins.of(place, key));
            let written = origins.and_then(|origins| origins.written(place, key));
            match (value, key.fallback) {
                // Keys without a value are listed too, so that the output shows everything that can be set.
                (Json::Null, Fallback::Absent(what)) if origins.is_some() => {
                    line(&format!("# {} is not set", key.name), Some(what));
                }
                (Json::Null, _) => {}
                _ => {
                    let text = written.map_or_else(|| toml(value), as_written);
                    line(&format!("{} = {text}", key.name), origin.as_deref());
                }
            }
        }
    }

    out
}

/// Every key with its `value` (`null` if not set) and `origin`, by section.
pub(crate) fn to_json(config: &Config, origins: &Origins) -> Json {
    // Missing sections are shown as null or an empty list, so that readers always find the same names.
    let mut all = json!({
        "metrics": { "statsd": null }, "listener": [], "sockets": null, "flows": null, "flow": [], "threshold": [], "mitigation": [], "sink": [],
    });

    for Shown { place, values, .. } in sections(config) {
        let value = |(key, value): (&Key, Json)| {
            let origin = origins.of(&place, key);
            let value = origins.written(&place, key).cloned().unwrap_or(value);
            (key.name.to_owned(), json!({ "value": value, "origin": origin }))
        };
        let values: Map<String, Json> = values.into_iter().map(value).collect();

        // `listener[0].target[1]` appends to a list that may not exist yet.
        let mut into = &mut all;
        for part in place.split('.') {
            let (name, index) = match part.trim_end_matches(']').split_once('[') {
                Some((name, index)) => (name, index.parse::<usize>().ok()),
                None => (part, None),
            };
            into = &mut into[name];
            if let Some(index) = index {
                if into.is_null() {
                    *into = json!([]);
                }
                let list = into.as_array_mut().expect("what has an index is a list");
                list.resize(list.len().max(index + 1), Json::Null);
                into = &mut list[index];
            }
        }

        *into = Json::Object(values);
    }

    all
}

/// A value as TOML. A dollar sign is escaped, so that it does not name a variable.
pub(crate) fn toml(value: &Json) -> String {
    rendered(value, &|text| quoted(&text.replace('$', "$$")))
}

/// The same for a value that names variables.
fn as_written(value: &Json) -> String {
    rendered(value, &quoted)
}

fn rendered(value: &Json, quote: &dyn Fn(&str) -> String) -> String {
    match value {
        Json::String(text) => quote(text),
        Json::Array(items) => {
            let items = items.iter().map(|item| rendered(item, quote));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        Json::Object(pairs) => {
            let pair = |(name, value): (&String, &Json)| {
                format!("{} = {}", quoted(name), rendered(value, quote))
            };
            format!("{{ {} }}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        // TOML and JSON write numbers and booleans alike.
        other => other.to_string(),
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                write!(out, "\\u{:04X}", u32::from(c)).expect("writing to a string does not fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
