//! Figures for programs.

use super::input::Input;
use crate::flow_json;
use ::flows::Engine;
use serde_json::Value as Json;

/// All figures, as one line.
pub(super) fn line(engine: &Engine, input: &Input, now_ns: u64) -> String {
    let counting = &engine.counting()[0];
    let top = counting.top(now_ns);
    let flows: Vec<Json> = top
        .iter()
        .map(|one| flow_json::flow(counting.definition(), engine.groups(), one))
        .collect();
    let agents = engine.agents().map(|(id, agent)| {
        let mut json = flow_json::agent(id, agent);
        json["interfaces"] = flow_json::interfaces(agent).into();
        json
    });
    let agents: Vec<Json> = agents.collect();

    let mut line = flow_json::totals(engine.totals(), Some(input.dropped()));
    line.insert("time_unix_ns".into(), sys::clock::realtime_ns().to_string().into());
    line.insert("flows".into(), flows.into());
    line.insert("flows_kept".into(), counting.flows().into());
    let lacking: Vec<_> = counting.lacking().collect();
    line.insert("lacking".into(), flow_json::lacking_parts(&lacking));
    line.insert("without_key".into(), counting.totals().without_key.into());
    line.insert("flows_evicted".into(), counting.evicted().into());
    line.insert("agents".into(), agents.into());
    format!("{}\n", Json::Object(line))
}
