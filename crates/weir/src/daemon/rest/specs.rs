//! Converts what scripts define (flows, thresholds and groups in sFlow-RT's format) into Weir's terms.

use super::words::{self, shown};
use config::{REST_FLOWS_KEPT, REST_KEYS_MAX};
use flows::{
    Aggregation, Definition, Filter, Groups, Measure, Network, Part, PortFigure, Threshold,
    Traffic, Watched,
};
use serde_json::{Map, Value as Json};
use std::time::Duration;

/// Most networks in all groups together.
pub(super) const NETWORKS_MAX: usize = 10_000;
/// Most figures that may be above a threshold at once.
const RAISED_MAX: usize = 1_000;

/// Parses a JSON object.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Json>, String> {
    match serde_json::from_slice(body) {
        Ok(Json::Object(map)) => Ok(map),
        Ok(_) => Err("expected an object".into()),
        Err(error) => Err(format!("it is no JSON: {error}")),
    }
}

/// Checks the name of a flow, a threshold or a group.
pub(super) fn name(text: &str) -> Result<(), String> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "_.-".contains(one);
    if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
        Ok(())
    } else {
        Err(format!("\"{}\": a name has 1 to 64 of a-z, A-Z, 0-9, _, . and -", shown(text)))
    }
}

/// A flow definition from sFlow-RT's attributes (sflow-rt.com/define_flow.php: n 5, within 5 to 20; t 2 s, within 0.2 to 600;
/// activeTimeout 60 s).
pub(super) fn definition(
    name: &str,
    spec: &Map<String, Json>,
    groups: &Groups,
) -> Result<Definition, String> {
    let keys = text(spec, "keys")?.ok_or("keys is missing")?;
    let keys = words::keys(&keys)?;
    if keys.len() > REST_KEYS_MAX {
        return Err(format!("more than {REST_KEYS_MAX} keys"));
    }

    let (asked, direction) = match text(spec, "filter")?.filter(|text| !text.is_empty()) {
        Some(filter) => words::filter(&filter)?,
        None => Default::default(),
    };
    let mut conditions: Vec<String> = keys.iter().map(|key| key.condition.clone()).collect();
    conditions.push(asked);
    conditions.retain(|condition| !condition.is_empty());
    conditions.dedup();
    let filter = conditions.join(" and ");
    let filter = (!filter.is_empty()).then(|| Filter::parse(&filter, groups)).transpose();

    let parts = keys.iter().map(|key| Part::parse(&key.part));
    Ok(Definition {
        name: name.into(),
        keys: parts.collect::<Result<_, _>>().map_err(|error| error.to_string())?,
        traffic: if flag(spec, "dropped")? { Traffic::Dropped } else { Traffic::Sampled },
        measure: measure(spec)?,
        filter: filter.map_err(|error| format!("filter: {error}"))?,
        direction,
        aggregation: Aggregation::Max,
        smoothing: seconds(spec, "t", 2.0, 0.2..=600.0)?,
        top: number(spec, "n")?.unwrap_or(5.0).clamp(5.0, 20.0) as usize,
        active_timeout: seconds(spec, "activeTimeout", 60.0, 1.0..=3_600.0)?,
        flows_max: REST_FLOWS_KEPT,
    })
}

fn measure(spec: &Map<String, Json>) -> Result<Measure, String> {
    match text(spec, "value")?.as_deref() {
        None | Some("bytes") => Ok(Measure::Bytes),
        Some("frames" | "requests") => Ok(Measure::Frames),
        Some(other) => {
            Err(format!("value \"{}\": expected bytes, frames or requests", shown(other)))
        }
    }
}

/// A threshold from sFlow-RT's attributes: metric, value, byFlow, timeout. `is_flow` says whether a definition of a name
/// exists.
pub(super) fn threshold(
    name: &str,
    spec: &Map<String, Json>,
    is_flow: impl Fn(&str) -> bool,
) -> Result<(Watched, Threshold), String> {
    let metric = text(spec, "metric")?.ok_or("metric is missing")?;
    let limit = number(spec, "value")?.ok_or("value is missing")?;
    // A threshold that everything exceeds would hide all others.
    if !limit.is_finite() || limit <= 0.0 {
        return Err("value: expected a number above 0".into());
    }

    let (of, factor) = match metric.as_str() {
        flow if is_flow(flow) => (Watched::Flow(flow.into()), 1.0),
        // sFlow-RT counts octets and percent; we count bits and fractions.
        "ifinoctets" => (Watched::Port(PortFigure::InBits), 8.0),
        "ifoutoctets" => (Watched::Port(PortFigure::OutBits), 8.0),
        "ifinutilization" => (Watched::Port(PortFigure::InUse), 0.01),
        "ifoututilization" => (Watched::Port(PortFigure::OutUse), 0.01),
        "ifinpkts" | "ifinucastpkts" => (Watched::Port(PortFigure::InFrames), 1.0),
        "ifoutpkts" | "ifoutucastpkts" => (Watched::Port(PortFigure::OutFrames), 1.0),
        other => {
            return Err(format!(
                "metric \"{}\": no flow has this name, and thresholds of counters are on ifinoctets, ifoutoctets, \
                 ifinutilization, ifoututilization, ifinpkts and ifoutpkts",
                shown(other)
            ));
        }
    };
    let limit = limit * factor;
    let threshold = Threshold {
        clear: limit,
        clear_after: seconds(spec, "timeout", 1.0, 0.0..=86_400.0)?,
        raised_max: RAISED_MAX,
        ..Threshold::new(name, limit)
    };
    Ok((of, threshold))
}

/// The factor from a counter threshold's figure to sFlow-RT's unit.
pub(super) fn metric_unit(metric: &str) -> f64 {
    match metric {
        "ifinoctets" | "ifoutoctets" => 1.0 / 8.0,
        "ifinutilization" | "ifoututilization" => 100.0,
        _ => 1.0,
    }
}

/// Adds groups of networks: an object with a list of networks for each name. No name may be that of a group of the file, and no
/// network in one.
pub(super) fn add_groups(
    groups: &mut Groups,
    of_file: &Groups,
    spec: &Map<String, Json>,
) -> Result<usize, String> {
    let mut networks = 0;
    for (name, list) in spec {
        self::name(name)?;
        if of_file.named(name).is_some() {
            return Err(format!("group \"{name}\" is defined by the configuration file"));
        }
        let list = list.as_array().ok_or("expected a list of networks for each group")?;
        for network in list {
            let text = network.as_str().ok_or("expected networks as text")?;
            let network = Network::parse(text)
                .ok_or_else(|| format!("\"{}\" is not a network", shown(text)))?;
            if of_file.has(network) {
                return Err(format!("{network} is in a group of the configuration file already"));
            }
            groups.add(name, network);
            networks += 1;
            if networks > NETWORKS_MAX {
                return Err(format!("more than {NETWORKS_MAX} networks"));
            }
        }
    }
    Ok(networks)
}

fn text(spec: &Map<String, Json>, name: &str) -> Result<Option<String>, String> {
    match spec.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        // Some scripts write lists.
        Some(Json::Array(list)) if list.iter().all(Json::is_string) => {
            let parts: Vec<&str> = list.iter().filter_map(Json::as_str).collect();
            Ok(Some(parts.join(",")))
        }
        Some(_) => Err(format!("{name}: expected text")),
    }
}

/// A number, as a JSON number or as text.
fn number(spec: &Map<String, Json>, name: &str) -> Result<Option<f64>, String> {
    let number = match spec.get(name) {
        None | Some(Json::Null) => return Ok(None),
        Some(Json::Number(number)) => number.as_f64(),
        Some(Json::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    let number = number.filter(|number| number.is_finite());
    number.map(Some).ok_or_else(|| format!("{name}: expected a number"))
}

fn flag(spec: &Map<String, Json>, name: &str) -> Result<bool, String> {
    match spec.get(name) {
        None | Some(Json::Null) => Ok(false),
        Some(Json::Bool(is_set)) => Ok(*is_set),
        Some(Json::String(text)) if text == "true" || text == "false" => Ok(text == "true"),
        Some(_) => Err(format!("{name}: expected true or false")),
    }
}

fn seconds(
    spec: &Map<String, Json>,
    name: &str,
    usual: f64,
    range: std::ops::RangeInclusive<f64>,
) -> Result<Duration, String> {
    let seconds = number(spec, name)?.unwrap_or(usual);
    Ok(Duration::from_secs_f64(seconds.clamp(*range.start(), *range.end())))
}
