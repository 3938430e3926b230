//! The part of sFlow-RT's REST API that scripts call, on top of the analysis. `docs/flows-rest.md` lists it.
//!
//! What scripts define lives in memory, is bounded, and never replaces what the file defines.

mod events;
mod flows;
mod metrics;
mod prometheus;
mod specs;
mod words;

use super::flow_pages::{Form, Listing, Parts, State, on_a_thread};
use super::flows::{Fresh, Shared};
use ::flows::{AgentId, Analysis, Author, Source, Traffic};
use admin::service::{Action, Answer, Asked, Body, Service, TEXT, Told, pairs};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Semaphore;
use words::shown;

/// Clients that may wait for an event at the same time.
const WAITERS_MAX: usize = 16;
/// Long answers that may be under way at the same time.
const STREAMS_MAX: usize = 8;
/// Agents that are read during one hold of the analysis.
const AGENTS_AT_ONCE: usize = 64;
/// Most thresholds that scripts may define.
const THRESHOLDS_MAX: usize = 100;
/// Most collections of groups that scripts may define.
const COLLECTIONS_MAX: usize = 100;

/// What scripts have defined.
#[derive(Default)]
struct Made {
    flows: BTreeMap<String, MadeFlow>,
    thresholds: BTreeMap<String, Map<String, Json>>,
    groups: BTreeMap<String, Map<String, Json>>,
    /// Flows that Prometheus scrapes have defined so far.
    scraped: u64,
}

struct MadeFlow {
    spec: Map<String, Json>,
    /// When it was last scraped, for a flow that a scrape defined.
    scraped: Option<Instant>,
}

/// The REST API.
pub(crate) struct Site {
    shared: Arc<Shared>,
    made: Mutex<Made>,
    listed: Fresh<flows::Question, Arc<flows::Listed>>,
    flows_max: usize,
    waiters: Semaphore,
    streams: Arc<Semaphore>,
    began: Instant,
}

impl Site {
    /// Makes an API that lets scripts define at most `flows_max` flows.
    pub(crate) fn new(shared: &Arc<Shared>, flows_max: usize) -> Arc<Site> {
        Arc::new(Site {
            shared: Arc::clone(shared),
            made: Mutex::default(),
            listed: Fresh::default(),
            flows_max,
            waiters: Semaphore::new(WAITERS_MAX),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            began: Instant::now(),
        })
    }

    /// The API as an HTTP service.
    pub(crate) fn service(self: &Arc<Site>) -> Service {
        let site = Arc::clone(self);
        Arc::new(move |asked| answer(Arc::clone(&site), asked))
    }

    /// Discards everything that scripts have defined: the file's groups may have other numbers now.
    pub(crate) fn forget(&self) {
        let made = std::mem::take(&mut *self.made());
        self.shared.with(|analysis| {
            let of_file = analysis.engine().groups().clone();
            analysis.set_groups(of_file, Author::Script);
            made.thresholds.keys().for_each(|name| {
                analysis.unwatch(name);
            });
            made.flows.keys().for_each(|name| {
                analysis.undefine(name);
            });
        });
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer(site: Arc<Site>, asked: Asked) -> Answer {
    Box::pin(async move {
        if asked.path == "/events/json" {
            return events::answer(site, &asked).await.unwrap_or_else(|refusal| refusal);
        }
        on_a_thread(move || site.answer(&asked)).await
    })
}

impl Site {
    fn answer(&self, asked: &Asked) -> Result<Told, Told> {
        let segments = asked.path.split('/').skip(1).map(admin::service::decode);
        let segments = segments.collect::<Result<Vec<_>, _>>().map_err(|why| wrong(&why))?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();

        if let ["flow" | "threshold" | "group", .., "json"] = segments.as_slice() {
            return self.defined(asked, &segments);
        }
        if asked.action != Action::Read {
            return Err(Told::text(405, "only flows, thresholds and groups can be changed"));
        }
        let query = Query::of(asked)?;
        match segments.as_slice() {
            ["version"] => Ok(plain(env!("CARGO_PKG_VERSION").into())),
            ["analyzer", "json"] => Ok(self.analyzer()),
            ["agents", "json"] => Ok(metrics::agents(self, &query)),
            ["metrics", "json"] => Ok(metrics::known(self)),
            ["metric", agents, "json"] => metrics::of_agent(self, agents),
            ["metric", agents, metrics, "json"] => metrics::aggregated(self, agents, metrics),
            ["dump", agents, metrics, "json"] => metrics::dump(self, agents, metrics),
            ["flowkeys", "json"] => Ok(flow_keys()),
            ["activeflows", agents, name, "json"] => flows::active(self, agents, name, &query),
            ["prometheus", "metrics", agents, metrics, "txt"] => {
                prometheus::metrics(self, agents, metrics)
            }
            ["prometheus", "flows", agents, "txt"]
            | ["app", "prometheus", "scripts", "export.js", "flows", agents, "txt"] => {
                prometheus::flows(self, agents, &query)
            }
            _ => Err(Told::text(
                404,
                "no such page; docs/flows-rest.md lists what of sFlow-RT's is answered",
            )),
        }
    }

    /// Flows, thresholds and groups: list all, show one, define one, delete one.
    fn defined(&self, asked: &Asked, segments: &[&str]) -> Result<Told, Told> {
        match (segments, asked.action) {
            (["flow", "json"], Action::Read) => Ok(self.flows()),
            (["flow", name, "json"], Action::Read) => {
                self.flow(name).ok_or_else(|| unknown("flow", name))
            }
            (["flow", name, "json"], Action::Put) => self.define(name, &asked.body),
            (["flow", name, "json"], Action::Delete) => self.undefine(name),
            (["threshold", "json"], Action::Read) => Ok(told(&json!(self.made().thresholds))),
            (["threshold", name, "json"], Action::Read) => {
                let found = self.made().thresholds.get(*name).map(|spec| told(&json!(spec)));
                found.ok_or_else(|| unknown("threshold", name))
            }
            (["threshold", name, "json"], Action::Put) => self.watch(name, &asked.body),
            (["threshold", name, "json"], Action::Delete) => self.unwatch(name),
            // Without a name it is the collection `default`.
            (["group", "json"], _) => self.group("default", asked),
            (["group", name, "json"], _) => self.group(name, asked),
            _ => Err(Told::text(405, "PUT and DELETE take a name, as /flow/NAME/json")),
        }
    }

    fn flows(&self) -> Told {
        let specs = self.flow_names(None).into_iter().filter_map(|name| {
            let spec = self.spec(&name)?;
            Some((name, Json::Object(spec)))
        });
        told(&Json::Object(specs.collect()))
    }

    fn flow(&self, name: &str) -> Option<Told> {
        self.spec(name).map(|spec| told(&Json::Object(spec)))
    }

    /// A definition as a script put it, or one of the file in Weir's terms.
    fn spec(&self, name: &str) -> Option<Map<String, Json>> {
        if let Some(made) = self.made().flows.get(name) {
            return Some(made.spec.clone());
        }
        let definition = self.shared.look(|analysis, _| {
            analysis.counting(name).map(|counting| counting.shared_definition())
        })?;
        let keys: Vec<String> = definition.keys.iter().map(|part| part.word()).collect();
        let described = json!({
            "keys": keys.join(","),
            "value": crate::flow_json::measure(definition.measure),
            "n": definition.top,
            "t": definition.smoothing.as_secs_f64(),
            "activeTimeout": definition.active_timeout.as_secs_f64(),
            "dropped": definition.traffic == Traffic::Dropped,
        });
        described.as_object().cloned()
    }

    fn define(&self, name: &str, body: &[u8]) -> Result<Told, Told> {
        let spec = specs::object(body).map_err(|why| wrong(&why))?;
        self.define_flow(name, spec, None)?;
        Ok(done())
    }

    fn define_flow(
        &self,
        name: &str,
        spec: Map<String, Json>,
        scraped: Option<Instant>,
    ) -> Result<(), Told> {
        specs::name(name).map_err(|why| wrong(&why))?;
        // Expired scrape flows take up room that others need.
        self.forget_unscraped(Instant::now());
        let mut made = self.made();
        let is_known = made.flows.contains_key(name);
        if !is_known && made.flows.len() >= self.flows_max {
            let max = self.flows_max;
            let why = format!("there are {max} flows of scripts already (flows.rest_flows_max)");
            return Err(Told::text(409, &why));
        }

        self.shared.with(|analysis| {
            if !is_known && analysis.counting(name).is_some() {
                return Err(of_the_file("flow", name));
            }
            let groups = analysis.engine().groups_of(Author::Script);
            let definition = specs::definition(name, &spec, groups).map_err(|why| wrong(&why))?;
            analysis.define(definition, Author::Script);
            Ok(())
        })?;
        made.flows.insert(name.into(), MadeFlow { spec, scraped });
        Ok(())
    }

    fn undefine(&self, name: &str) -> Result<Told, Told> {
        if self.made().flows.remove(name).is_none() {
            let is_of_file = self.shared.with(|analysis| analysis.counting(name).is_some());
            return Err(if is_of_file { of_the_file("flow", name) } else { unknown("flow", name) });
        }
        self.shared.with(|analysis| analysis.undefine(name));
        Ok(done())
    }

    fn watch(&self, name: &str, body: &[u8]) -> Result<Told, Told> {
        specs::name(name).map_err(|why| wrong(&why))?;
        let spec = specs::object(body).map_err(|why| wrong(&why))?;
        let mut made = self.made();
        let is_known = made.thresholds.contains_key(name);
        if !is_known && made.thresholds.len() >= THRESHOLDS_MAX {
            let why = format!("there are {THRESHOLDS_MAX} thresholds of scripts already");
            return Err(Told::text(409, &why));
        }

        self.shared.with(|analysis| {
            if !is_known && is_watched(analysis, name) {
                return Err(of_the_file("threshold", name));
            }
            let is_flow = |flow: &str| analysis.counting(flow).is_some();
            let (of, threshold) =
                specs::threshold(name, &spec, is_flow).map_err(|why| wrong(&why))?;
            analysis.watch(of, threshold);
            Ok(())
        })?;
        made.thresholds.insert(name.into(), spec);
        Ok(done())
    }

    fn unwatch(&self, name: &str) -> Result<Told, Told> {
        if self.made().thresholds.remove(name).is_none() {
            let is_of_file = self.shared.with(|analysis| is_watched(analysis, name));
            let refusal = if is_of_file {
                of_the_file("threshold", name)
            } else {
                unknown("threshold", name)
            };
            return Err(refusal);
        }
        self.shared.with(|analysis| analysis.unwatch(name));
        Ok(done())
    }

    fn group(&self, name: &str, asked: &Asked) -> Result<Told, Told> {
        specs::name(name).map_err(|why| wrong(&why))?;
        let mut made = self.made();
        let mut groups = made.groups.clone();
        match asked.action {
            Action::Read => {
                let found = groups.get(name).map(|spec| told(&json!(spec)));
                return found.ok_or_else(|| unknown("group", name));
            }
            Action::Put => {
                let spec = specs::object(&asked.body).map_err(|why| wrong(&why))?;
                groups.insert(name.into(), spec);
            }
            Action::Delete => {
                groups.remove(name).ok_or_else(|| unknown("group", name))?;
            }
        }
        if groups.len() > COLLECTIONS_MAX {
            let why = format!("there are {COLLECTIONS_MAX} collections of groups already");
            return Err(Told::text(409, &why));
        }
        self.regroup(&mut made, groups)?;
        Ok(done())
    }

    /// Applies other groups, and redefines the flows of scripts accordingly. Flows that name no group keep their figures. What the
    /// file defines is counted by the file's groups alone.
    fn regroup(
        &self,
        made: &mut Made,
        collections: BTreeMap<String, Map<String, Json>>,
    ) -> Result<(), Told> {
        self.shared.with(|analysis| {
            let of_file = analysis.engine().groups();
            let mut groups = of_file.clone();
            let mut networks = 0;
            for spec in collections.values() {
                networks +=
                    specs::add_groups(&mut groups, of_file, spec).map_err(|why| wrong(&why))?;
            }
            if networks > specs::NETWORKS_MAX {
                return Err(wrong("there are too many networks in all groups together"));
            }

            let definitions = made.flows.iter().map(|(name, one)| {
                specs::definition(name, &one.spec, &groups)
                    .map_err(|why| wrong(&format!("flow {name} would not work any more: {why}")))
            });
            let definitions = definitions.collect::<Result<Vec<_>, _>>()?;
            analysis.set_groups(groups, Author::Script);
            definitions.into_iter().for_each(|one| analysis.define(one, Author::Script));
            Ok(())
        })?;
        made.groups = collections;
        Ok(())
    }

    fn analyzer(&self) -> Told {
        let uptime_ms = self.began.elapsed().as_millis() as u64;
        let (totals, agents, events) = self.shared.look(|analysis, _| {
            let engine = analysis.engine();
            (engine.totals().clone(), engine.agents().len(), analysis.events().last_id())
        });
        told(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime": uptime_ms,
            "sFlowAgents": agents,
            "sFlowDatagramsReceived": totals.datagrams,
            "sFlowDatagramsDiscarded": totals.duplicate + totals.agent_limit,
            "sFlowParseErrors": totals.malformed,
            "eventsGenerated": events,
        }))
    }

    /// Parses a list of agents such as `ALL` or `10.0.0.1;10.0.0.2`.
    fn agents(&self, list: &str) -> Result<Vec<AgentId>, Told> {
        let addresses =
            match list {
                "ALL" => None,
                list => {
                    let addresses = list.split([';', ',']).map(str::parse::<IpAddr>);
                    let addresses = addresses.collect::<Result<Vec<_>, _>>();
                    Some(addresses.map_err(|_| {
                        wrong("agents: expected ALL, or addresses with ; between them")
                    })?)
                }
            };
        let is_asked = |id: &AgentId| {
            addresses.as_ref().is_none_or(|addresses| addresses.contains(&id.address))
        };
        Ok(self.shared.agents(is_asked))
    }

    /// A long answer with a part for each of these agents.
    fn listing(
        &self,
        form: Form,
        first: Vec<String>,
        mut agents: Vec<AgentId>,
        parts: Parts,
    ) -> Result<Told, Told> {
        let permit = Arc::clone(&self.streams).try_acquire_owned();
        let permit = permit.map_err(|_| Told::text(429, "too many answers are under way"))?;
        agents.reverse();
        let (shared, state) = (Arc::clone(&self.shared), State::Begin);
        let listing = Listing { shared, form, first, agents, parts, state, _permit: permit };
        let told = Told::pieces(Box::new(listing));
        Ok(if form == Form::Lines { Told { content_type: TEXT, ..told } } else { told })
    }
}

/// An agent, and its source if it has only one.
type Place = (IpAddr, Option<Source>);

/// Where samples were taken, by the vantage's number in figures.
type Places = HashMap<u32, Place>;

/// The places of these agents' vantages.
fn places(shared: &Shared, agents: &[AgentId], traffic: Traffic) -> Places {
    let mut places = Places::new();
    for part in agents.chunks(AGENTS_AT_ONCE) {
        shared.look(|analysis, _| {
            let known = part.iter().filter_map(|id| Some((id, analysis.engine().agent(id)?)));
            for (id, agent) in known {
                let mut sources = agent.samplers().filter(|(of, ..)| *of == traffic);
                let first = sources.next().map(|(_, source, _)| source);
                let only = first.filter(|_| sources.next().is_none());
                for vantage in agent.vantages() {
                    // The agents of one address share vantages.
                    let several = |place: &mut Place| place.1 = None;
                    places.entry(vantage).and_modify(several).or_insert((id.address, only));
                }
            }
        });
    }
    places
}

/// A data source as sFlow-RT writes it: an interface as its bare index.
fn source_text(source: Source) -> String {
    match source.if_index() {
        Some(index) => index.to_string(),
        None => format!("{}.{}", source.class, source.index),
    }
}

fn is_watched(analysis: &Analysis, name: &str) -> bool {
    analysis.thresholds().any(|(_, watch)| watch.threshold().name == name)
}

fn flow_keys() -> Told {
    // We do not know when a key was last seen.
    let keys: Map<String, Json> =
        words::names().into_iter().map(|name| (name.to_owned(), 0.into())).collect();
    told(&Json::Object(keys))
}

/// The parameters of a query. Unknown ones are ignored, as sFlow-RT does.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(asked: &Asked) -> Result<Query, Told> {
        pairs(&asked.query).map(Query).map_err(|why| wrong(&why))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str, usual: f64) -> Result<f64, Told> {
        let Some(text) = self.text(name).filter(|text| !text.is_empty()) else { return Ok(usual) };
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| wrong(&format!("{name}: expected a number")))
    }
}

fn told(json: &Json) -> Told {
    Told::json(json.to_string())
}

fn plain(text: String) -> Told {
    Told { status: 200, content_type: TEXT, body: Body::Whole(text.into_bytes()) }
}

fn done() -> Told {
    plain(String::new())
}

fn wrong(why: &str) -> Told {
    Told::text(400, why)
}

fn unknown(what: &str, name: &str) -> Told {
    Told::text(404, &format!("there is no {what} \"{}\"", shown(name)))
}

fn of_the_file(what: &str, name: &str) -> Told {
    let name = shown(name);
    Told::text(409, &format!("{what} \"{name}\" is defined by the configuration file"))
}

#[cfg(test)]
mod tests;
