//! Figures of flows as JSON: the same objects in `weir flows --json` and over HTTP.

use crate::daemon::flows::Summary;
use flows::{
    Agent, AgentId, Definition, DefinitionTotals, Discrepancies, EngineTotals, Estimate, Figure,
    Groups, Kind, Measure, Part, Port, PortRate, Traffic, Value,
};
use serde_json::{Map, Value as Json, json};

/// What became of datagrams and samples. `dropped_by_kernel` are datagrams lost at the socket, if known.
pub(crate) fn totals(totals: &EngineTotals, dropped_by_kernel: Option<u64>) -> Map<String, Json> {
    let unknown = totals.unknown.iter();
    let unknown: Map<String, Json> =
        unknown.map(|(format, count)| (format.to_string(), (*count).into())).collect();
    let mut datagrams = json!({
        "received": totals.datagrams,
        "read": totals.read,
        "duplicate": totals.duplicate,
        "malformed": totals.malformed,
        "agent_limit": totals.agent_limit,
    });
    if let Some(dropped) = dropped_by_kernel {
        datagrams["dropped_by_kernel"] = dropped.into();
    }

    let json = json!({
        "datagrams": datagrams,
        "samples": {
            "flow": totals.flow_samples,
            "counter": totals.counter_samples,
            "dropped_packet": totals.dropped_packets,
            "duplicate": totals.duplicate_samples,
            "source_limit": totals.source_limit,
            "implausible": totals.implausible_samples,
        },
        "agents_evicted": totals.agents_evicted,
        "discrepancies": discrepancies(&totals.discrepancies),
        "faults": totals.faults,
        "versions": versions(totals),
        "unknown": unknown,
        "unknown_other": totals.unknown_other,
    });
    match json {
        Json::Object(map) => map,
        _ => Map::new(),
    }
}

/// A definition and what it did with samples.
pub(crate) fn definition(summary: &Summary) -> Json {
    let Summary { definition, totals, flows, evicted, unwatched, lacking } = summary;
    let DefinitionTotals { seen, counted, filtered, without_key } = totals;
    let keys: Vec<String> = definition.keys.iter().map(|part| part.word()).collect();
    json!({
        "name": definition.name,
        "keys": keys,
        "value": measure(definition.measure),
        "of": traffic(definition.traffic),
        "smoothing_s": definition.smoothing.as_secs_f64(),
        "top": definition.top,
        "flows_kept": flows,
        "flows_max": definition.flows_max,
        "flows_evicted": evicted,
        "unwatched_samples": unwatched,
        "samples": {
            "seen": seen,
            "counted": counted,
            "filtered": filtered,
            "without_key": without_key,
            "lacking": lacking_parts(lacking),
        },
    })
}

/// How many samples lack each part of a key that some lack, by the first part that a sample lacks.
pub(crate) fn lacking_parts(lacking: &[(Part, u64)]) -> Json {
    let some = lacking.iter().filter(|(_, samples)| *samples > 0);
    Json::Object(some.map(|(part, samples)| (part.word(), (*samples).into())).collect())
}

/// The name of a measure.
pub(crate) fn measure(measure: Measure) -> &'static str {
    match measure {
        Measure::Bytes => "bytes",
        Measure::Frames => "frames",
        Measure::Samples => "samples",
    }
}

fn traffic(traffic: Traffic) -> &'static str {
    match traffic {
        Traffic::Sampled => "sampled",
        Traffic::Dropped => "dropped",
    }
}

/// One flow.
pub(crate) fn flow(definition: &Definition, groups: &Groups, figure: &Figure) -> Json {
    let parts = &definition.keys;
    let shown = definition.shown(&figure.key, groups);
    let key: Map<String, Json> = parts
        .iter()
        .zip(&figure.key)
        .zip(shown)
        .map(|((part, value), shown)| {
            let value = match (part, value) {
                (Part::Field(field), Value::Number(number)) if field.kind() == Kind::Number => {
                    (*number).into()
                }
                _ => shown.into(),
            };
            (part.word(), value)
        })
        .collect();
    json!({
        "key": key,
        "per_s": interval(&figure.rate),
        "total": interval(&figure.total),
        "missing_max_per_s": figure.rate_missing_max,
        "samples": figure.samples,
        "rate_samples": figure.rate_samples,
    })
}

fn interval(estimate: &Estimate) -> Json {
    json!({ "value": estimate.value, "low": estimate.low, "high": estimate.high })
}

/// An agent with its samplers, without its interfaces.
pub(crate) fn agent(id: &AgentId, agent: &Agent) -> Json {
    let totals = agent.datagrams();
    let samplers: Vec<Json> = agent
        .samplers()
        .map(|(of, source, sampler)| {
            let (rates, totals) = (sampler.rates(), sampler.totals());
            json!({
                "source": format!("{}:{}", source.class, source.index),
                "of": traffic(of),
                "configured": rates.configured,
                "agent_rate": rates.agent,
                "collector_rate": rates.collector,
                "agent_loss": rates.agent_loss,
                "path_loss": rates.path_loss,
                "samples": totals.samples.received,
                "lost": totals.samples.lost,
                "agent_dropped": totals.agent_dropped,
                "frames": totals.frames,
                "unattributed_frames": totals.unattributed_frames,
            })
        })
        .collect();
    json!({
        "address": id.address,
        "sub_agent": id.sub_agent,
        "datagrams": totals.received,
        "lost": totals.lost,
        "duplicate": totals.duplicate,
        "reordered": totals.reordered,
        "resets": totals.resets,
        "uptime_ms": agent.uptime_ms(),
        "discrepancies": discrepancies(agent.discrepancies()),
        "samplers": samplers,
    })
}

/// Datagrams of other versions of sFlow, with the last sender of each.
fn versions(totals: &EngineTotals) -> Json {
    let versions = totals.versions.iter().map(|(version, (datagrams, sender))| {
        (version.to_string(), json!({ "datagrams": datagrams, "last_sender": sender }))
    });
    Json::Object(versions.collect())
}

/// How often agents contradict themselves, by how.
fn discrepancies(of: &Discrepancies) -> Json {
    Json::Object(of.seen().map(|(one, count)| (one.word().into(), count.into())).collect())
}

/// The interfaces of an agent.
pub(crate) fn interfaces(agent: &Agent) -> Vec<Json> {
    let mut ports: Vec<_> = agent.ports().collect();
    ports.sort_by_key(|(index, _)| *index);
    ports.into_iter().map(|(index, port)| interface(index, port)).collect()
}

fn interface(index: u32, port: &Port) -> Json {
    let rates = port.rates().map(|rates| {
        let side = |rate: &PortRate| {
            json!({
                "bits_per_s": rate.bits_per_s,
                "frames_per_s": rate.frames_per_s,
                "discards_per_s": rate.discards_per_s,
                "errors_per_s": rate.errors_per_s,
            })
        };
        json!({
            "in": side(&rates.input),
            "out": side(&rates.output),
            "over_ms": rates.over_ms,
            "missed": rates.missed,
            "sampled_ratio": rates.sampled_ratio,
        })
    });
    json!({ "index": index, "rates": rates })
}
