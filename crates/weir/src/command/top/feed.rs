//! Asks a daemon once per interval on a separate thread, so that a slow answer does not delay keys.

use crate::ask::{Daemon, ask};
use crate::command::ledger;
use ::ledger::Snapshot;
use serde::Deserialize;
use serde_json::Value as Json;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Longest wait for a page about flows.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most definitions whose heaviest flows are requested.
const DEFINITIONS_MAX: usize = 8;

/// A daemon's answers at one moment.
pub(super) struct Answer {
    pub(super) ledger: Snapshot,
    /// `None` if it does not analyze sFlow.
    pub(super) flows: Option<Flows>,
}

#[derive(Default)]
pub(super) struct Flows {
    pub(super) agents: Vec<Agent>,
    pub(super) heaviest: Vec<Flow>,
}

/// An sFlow agent.
#[derive(Deserialize)]
pub(super) struct Agent {
    pub(super) address: String,
    pub(super) sub_agent: u32,
    pub(super) datagrams: u64,
    /// Datagrams lost on the way.
    pub(super) lost: u64,
    pub(super) samplers: Vec<Sampler>,
}

#[derive(Deserialize)]
pub(super) struct Sampler {
    agent_dropped: u64,
}

impl Agent {
    /// Samples that the agent dropped before sending.
    pub(super) fn dropped_there(&self) -> u64 {
        self.samplers.iter().map(|sampler| sampler.agent_dropped).sum()
    }
}

pub(super) struct Flow {
    pub(super) definition: String,
    /// The values of its keys.
    pub(super) key: String,
    /// An estimate, in the definition's measure.
    pub(super) per_second: f64,
}

/// Asks once.
///
/// # Errors
/// No daemon answers.
pub(super) fn answer(daemon: &Daemon) -> anyhow::Result<Answer> {
    let ledger = ledger::fetch(daemon)?;
    let has_analysis = ledger.hops.iter().any(|hop| hop.hop == ::ledger::HopKind::Analysis);
    // If the flow pages fail, there is still the ledger.
    let flows = has_analysis.then(|| flows(daemon).unwrap_or_default());
    Ok(Answer { ledger, flows })
}

fn flows(daemon: &Daemon) -> anyhow::Result<Flows> {
    let about: Json = serde_json::from_str(&ask(daemon, "/flows", TIMEOUT)?)?;
    let definitions = about["definitions"].as_array().cloned().unwrap_or_default();
    let names = definitions.iter().filter_map(|definition| definition["name"].as_str());

    let mut heaviest = Vec::new();
    for name in names.take(DEFINITIONS_MAX) {
        let page = format!("/flows/top?flow={name}&n=50");
        let top: Json = serde_json::from_str(&ask(daemon, &page, TIMEOUT)?)?;
        let all = top["flows"].as_array().map(Vec::as_slice).unwrap_or_default();
        heaviest.extend(all.iter().map(|flow| Flow {
            definition: name.to_owned(),
            key: key(&flow["key"]),
            per_second: flow["per_s"]["value"].as_f64().unwrap_or_default(),
        }));
    }

    let agents = serde_json::from_str(&ask(daemon, "/flows/agents", TIMEOUT)?)?;
    Ok(Flows { agents, heaviest })
}

/// The values of a flow's keys, separated by commas.
fn key(of: &Json) -> String {
    let values = of.as_object().into_iter().flat_map(|map| map.values());
    let texts = values.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    texts.collect::<Vec<_>>().join(",")
}

/// Starts the thread. An error is the message about a daemon that does not answer. The thread ends when the receiver is
/// dropped.
pub(super) fn start(daemon: &Daemon, interval: Duration) -> Receiver<Result<Answer, String>> {
    let (sender, answers) = sync_channel(1);
    let daemon = daemon.clone();
    thread::spawn(move || go_on_asking(&daemon, interval, &sender));
    answers
}

fn go_on_asking(daemon: &Daemon, interval: Duration, to: &SyncSender<Result<Answer, String>>) {
    loop {
        let answer = answer(daemon).map_err(|error| format!("{error:#}"));
        if to.send(answer).is_err() {
            return;
        }
        thread::sleep(interval);
    }
}
