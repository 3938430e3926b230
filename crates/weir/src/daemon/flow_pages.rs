//! `GET /flows` and the pages below it: the state of the sFlow analysis, as JSON.
//!
//! Pages copy the analysis in parts ([`Shared::look`]). They sort and write the answer on their own threads, never while they
//! hold it.

mod figures;
mod listing;

pub(crate) use figures::{Exported, figures};
pub(crate) use listing::{Form, Listing, Parts, State};

use super::flows::{FLOWS_MAX, Shared, Summary};
use super::mitigation::Recent;
use crate::{event_text, flow_json};
use admin::service::{Answer, Asked, Service, Told, pairs};
use flows::{Agent, AgentId, Event};
use serde_json::{Value as Json, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Clients that may wait for an event at the same time.
const WAITERS_MAX: usize = 16;
/// Streamed answers that may be under way at the same time: each takes a thread while its client reads.
const STREAMS_MAX: usize = 8;
/// Longest wait for an event.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Most events in an answer.
const EVENTS_MAX: usize = 1_000;

/// What the pages need to answer.
struct Pages {
    shared: Arc<Shared>,
    mitigated: Recent,
    waiters: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// The pages of an analysis, for the admin server.
pub(crate) fn pages(shared: &Arc<Shared>, mitigated: Recent) -> Service {
    let pages = Arc::new(Pages {
        shared: Arc::clone(shared),
        mitigated,
        waiters: Arc::new(Semaphore::new(WAITERS_MAX)),
        streams: Arc::new(Semaphore::new(STREAMS_MAX)),
    });
    Arc::new(move |asked| answer(Arc::clone(&pages), asked))
}

fn answer(pages: Arc<Pages>, asked: Asked) -> Answer {
    Box::pin(async move {
        if asked.path == "/flows/events" {
            return events(pages, &asked.query).await.unwrap_or_else(|refusal| refusal);
        }
        on_a_thread(move || pages.figures(&asked)).await
    })
}

/// Makes an answer on a blocking thread, because some take a while, such as the heaviest of many flows.
pub(crate) async fn on_a_thread(
    answer: impl FnOnce() -> Result<Told, Told> + Send + 'static,
) -> Told {
    match tokio::task::spawn_blocking(answer).await {
        Ok(told) => told.unwrap_or_else(|refusal| refusal),
        Err(error) => Told::text(500, &error.to_string()),
    }
}

impl Pages {
    fn figures(&self, Asked { path, query, .. }: &Asked) -> Result<Told, Told> {
        match path.as_str() {
            "/flows" => self.overview(query),
            "/flows/top" => self.top(query),
            "/flows/agents" => self.agents(query, one_agent),
            "/flows/interfaces" => self.agents(query, agent_interfaces),
            "/flows/mitigations" => {
                parameters(query, [])?;
                Ok(told(&json!({ "entries": self.mitigated.entries() })))
            }
            _ => Err(Told::text(
                404,
                "no such page; there are /flows, and top, agents, interfaces, events and mitigations below it",
            )),
        }
    }

    /// The definitions, and what became of datagrams and samples.
    fn overview(&self, query: &str) -> Result<Told, Told> {
        parameters(query, [])?;
        let (totals, definitions, agents, last_event) = self.shared.look(|analysis, _| {
            let engine = analysis.engine();
            let definitions: Vec<Summary> = engine.counting().iter().map(Summary::of).collect();
            (
                engine.totals().clone(),
                definitions,
                engine.agents().len(),
                analysis.events().last_id(),
            )
        });
        let mut json = flow_json::totals(&totals, None);
        let definitions: Vec<Json> = definitions.iter().map(flow_json::definition).collect();
        json.insert("definitions".into(), definitions.into());
        json.insert("agents".into(), agents.into());
        json.insert("last_event".into(), last_event.into());
        let taken = self.shared.taken_by_readers();
        let readers = json!({
            "holds": taken.holds,
            "held_ns": taken.held_ns.to_string(),
            "longest_ns": taken.longest_ns.to_string(),
            "copied_max": taken.rows_max,
        });
        json.insert("readers".into(), readers);
        json.insert("time_unix_ns".into(), sys::clock::realtime_ns().to_string().into());
        Ok(told(&Json::Object(json)))
    }

    /// The heaviest flows of a definition.
    fn top(&self, query: &str) -> Result<Told, Told> {
        let [name, most] = parameters(query, ["flow", "n"])?;
        let name = name.ok_or_else(|| wrong("flow=NAME is missing; /flows lists the names"))?;
        let most = number(most, "n", 1..=FLOWS_MAX as u64)?;

        let unknown = || Told::text(404, "no definition has this name; /flows lists the names");
        let top = self.shared.top(&name).ok_or_else(unknown)?;
        let definition = &top.summary.definition;
        let figures = top.figures.iter().take(most.unwrap_or(definition.top));
        let flows = figures.map(|one| flow_json::flow(definition, &top.groups, one));
        let flows: Vec<Json> = flows.collect();
        Ok(told(&json!({ "definition": flow_json::definition(&top.summary), "flows": flows })))
    }

    /// A listing with parts for each agent, or for one.
    fn agents(
        &self,
        query: &str,
        shown: fn(&AgentId, &Agent) -> Vec<String>,
    ) -> Result<Told, Told> {
        let [address] = parameters(query, ["agent"])?;
        let address = match address {
            Some(text) => Some(text.parse::<IpAddr>().map_err(|_| wrong("agent: no address"))?),
            None => None,
        };
        let permit = Arc::clone(&self.streams).try_acquire_owned();
        let permit = permit.map_err(|_| Told::text(429, "too many answers are under way"))?;

        let mut agents =
            self.shared.agents(|id| address.is_none_or(|address| id.address == address));
        agents.reverse();

        let listing = Listing {
            shared: Arc::clone(&self.shared),
            form: Form::Json,
            first: Vec::new(),
            agents,
            parts: Box::new(shown),
            state: State::Begin,
            _permit: permit,
        };
        Ok(Told::pieces(Box::new(listing)))
    }
}

/// The events after a given number. Waits for one if there is none yet.
async fn events(pages: Arc<Pages>, query: &str) -> Result<Told, Told> {
    let [after, wait] = parameters(query, ["after", "wait"])?;
    let after = number(after, "after", 0..=u64::MAX)?.unwrap_or(0);
    let wait = match wait {
        Some(text) => text::units::parse_duration(&text)
            .ok()
            .filter(|wait| *wait <= WAIT_MAX)
            .ok_or_else(|| wrong("wait: expected a time of at most 30s"))?,
        None => Duration::ZERO,
    };

    let mut last_event = pages.shared.events();
    if *last_event.borrow_and_update() <= after && !wait.is_zero() {
        let permit = pages.waiters.try_acquire();
        let _permit = permit.map_err(|_| Told::text(429, "too many wait for events"))?;
        // After a timeout the answer has no events.
        let _ = tokio::time::timeout(wait, last_event.wait_for(|last| *last > after)).await;
    }

    let answer = on_a_thread(move || {
        let (events, missed, last) = pages.shared.look(|analysis, _| {
            let log = analysis.events();
            let events: Vec<Arc<Event>> = log.after(after).take(EVENTS_MAX).cloned().collect();
            (events, log.missed_after(after), log.last_id())
        });
        let shown: Vec<Json> = events.iter().map(|event| event_text::json(event)).collect();
        Ok(told(&json!({ "events": shown, "missed": missed, "last_event": last })))
    });
    Ok(answer.await)
}

fn one_agent(id: &AgentId, agent: &Agent) -> Vec<String> {
    vec![flow_json::agent(id, agent).to_string()]
}

fn agent_interfaces(id: &AgentId, agent: &Agent) -> Vec<String> {
    let interfaces = flow_json::interfaces(agent).into_iter().map(|mut interface| {
        interface["agent"] = json!(id.address);
        interface["sub_agent"] = id.sub_agent.into();
        interface.to_string()
    });
    interfaces.collect()
}

fn told(json: &Json) -> Told {
    Told::json(format!("{json}\n"))
}

fn wrong(why: &str) -> Told {
    Told::text(400, why)
}

/// The values of these parameters; any other parameter is an error.
fn parameters<const N: usize>(query: &str, names: [&str; N]) -> Result<[Option<String>; N], Told> {
    let mut values = [const { None }; N];
    for (name, value) in pairs(query).map_err(|why| wrong(&why))? {
        let Some(at) = names.iter().position(|one| *one == name) else {
            let known = if N == 0 { "there are none".into() } else { names.join(", ") };
            let name = name.escape_debug();
            return Err(wrong(&format!("\"{name}\" is not a parameter; known: {known}")));
        };
        values[at] = Some(value);
    }
    Ok(values)
}

fn number<T: TryFrom<u64>>(
    text: Option<String>,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Option<T>, Told> {
    let Some(text) = text else { return Ok(None) };
    let number = text::units::parse_count_in(&text, range);
    let why = |error| format!("{name}: \"{}\": {error}", text.escape_debug());
    number.map(Some).map_err(|error| wrong(&why(error)))
}

#[cfg(test)]
pub(super) mod played;
#[cfg(test)]
mod tests;
