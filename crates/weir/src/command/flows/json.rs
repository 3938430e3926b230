//! Figures for programs.

use super::input::Input;
use ::flows::{Agent, AgentId, Counting, Engine, Estimate, Figure, Groups, Value};
use serde_json::{Map, Value as Json, json};

/// All figures, as one line.
pub(super) fn line(engine: &Engine, input: &Input, now_ns: u64) -> String {
    let totals = engine.totals();
    let counting = &engine.counting()[0];
    let flows: Vec<Json> =
        counting.top(now_ns).iter().map(|one| flow(counting, engine.groups(), one)).collect();
    let agents: Vec<Json> = engine.agents().map(|(id, agent)| self::agent(id, agent)).collect();
    let unknown: Map<String, Json> = totals
        .unknown
        .iter()
        .map(|(format, count)| (format.to_string(), (*count).into()))
        .collect();

    let line = json!({
        "time_unix_ns": sys::clock::realtime_ns().to_string(),
        "datagrams": {
            "received": totals.datagrams,
            "read": totals.read,
            "duplicate": totals.duplicate,
            "malformed": totals.malformed,
            "agent_limit": totals.agent_limit,
            "dropped_by_kernel": input.dropped(),
        },
        "samples": {
            "flow": totals.flow_samples,
            "counter": totals.counter_samples,
            "dropped_packet": totals.dropped_packets,
            "duplicate": totals.duplicate_samples,
            "source_limit": totals.source_limit,
        },
        "faults": totals.faults,
        "unknown": unknown,
        "flows": flows,
        "flows_kept": counting.flows(),
        "flows_evicted": counting.evicted(),
        "agents": agents,
    });
    format!("{line}\n")
}

fn flow(counting: &Counting, groups: &Groups, figure: &Figure) -> Json {
    let parts = &counting.definition().keys;
    let shown = counting.shown(&figure.key, groups);
    let key: Map<String, Json> = parts
        .iter()
        .zip(&figure.key)
        .zip(shown)
        .map(|((part, value), shown)| {
            let value = match (part, value) {
                (::flows::Part::Field(_), Value::Number(number)) => (*number).into(),
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

fn agent(id: &AgentId, agent: &Agent) -> Json {
    let totals = agent.datagrams();
    let samplers: Vec<Json> = agent
        .samplers()
        .map(|(traffic, source, sampler)| {
            let (rates, totals) = (sampler.rates(), sampler.totals());
            json!({
                "source": format!("{}:{}", source.class, source.index),
                "of": match traffic {
                    ::flows::Traffic::Sampled => "sampled",
                    ::flows::Traffic::Dropped => "dropped",
                },
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
    let ports: Vec<Json> = agent
        .ports()
        .map(|(index, port)| {
            let rates = port.rates().map(|rates| {
                let side = |rate: &::flows::PortRate| {
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
        "samplers": samplers,
        "interfaces": ports,
    })
}
