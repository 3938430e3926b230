//! `[flows]`: turns the sFlow of listeners into traffic figures.

mod definition;
mod groups;
mod interface;

pub use definition::FlowConfig;
pub use interface::Interface;

pub(crate) use definition::SECTION as FLOW_SECTION;

use crate::document::{Entry, Table, Value};
use crate::errors::nearest;
use crate::form::{Bool, List, Span, parsed, text, whole};
use crate::keys::{Section, keys};
use crate::listener::ReadListener;
use crate::reader::{Placed, Reader, Report, single};
use ::flows::{Definition, Engine, Field, Groups, Limits, Network, Part};
use groups::GroupsForm;
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The name of the analysis in the ledger: as a target of its listeners, and in the place of a listener's name.
pub const FLOWS_NAME: &str = "flows";

/// Flows kept by each definition created through `rest`.
pub const REST_FLOWS_KEPT: usize = 10_000;
/// Most parts of the key of such a definition.
pub const REST_KEYS_MAX: usize = 12;

pub(crate) const SECTION: Section =
    Section { path: "flows", header: "[flows]", tables: &[FlowsConfig::TABLE], subsections: &[] };

const DAY: Duration = Duration::from_secs(24 * 3_600);

keys! {
    /// The analysis of sFlow.
    pub struct FlowsConfig in "flows"
    given {
        /// What is counted: `[[flow]]`, or the one definition that holds without any.
        definitions: Vec<FlowConfig>
    }
    {
        /// Listeners whose datagrams are sFlow. Each datagram goes to the analysis and to the listener's targets and sinks; a
        /// listener whose datagrams are analyzed needs no target.
        from => from: Vec<String> = List { of: "names of listeners", parse: listener },
            listed("write from = [\"NAME\"] with the name of the listener that receives sFlow");
        /// Agents that are known at a time; each sub-agent is one. Datagrams of more are dropped, and counted as
        /// `agent_limit`, unless they come from an address that has fewer agents than another: the one that has most gives way.
        agents_max => agents_max: usize = whole(1, 10_000_000), default(Limits::default().agents_max);
        /// Samplers and interfaces of all agents that are known at a time. Samples of more are scaled by the
        /// rate that their agent says, which is too low where datagrams are lost.
        sources_max => sources_max: usize = whole(1, 100_000_000), default(Limits::default().sources_max);
        /// Samplers and interfaces of one agent that are known at a time. Samples of more are scaled like those beyond `sources_max`.
        agent_sources_max => agent_sources_max: usize = whole(1, 1_000_000), default(Limits::default().agent_sources_max);
        /// An agent that was not heard for so long is forgotten.
        agent_timeout => agent_timeout: Duration =
            Span(Duration::from_secs(1), DAY), default(Limits::default().agent_timeout);
        /// Every so long a flow that goes on has a row, for sinks with `from = ["flows"]`, and so has each agent.
        export_every => export_every: Duration = Span(Duration::from_secs(1), DAY), default(Duration::from_secs(60));
        /// Events that are kept for those who ask later.
        events_max => events_max: usize = whole(1, 1_000_000), default(1_000);
        /// Interfaces that lead to other agents, such as `3@192.0.2.1`: `ifIndex` 3 of the agent of that
        /// address. Frames that come in there were counted before: definitions with `aggregation = "edge"` leave them out.
        internal => internal: Vec<Interface> =
            List { of: "interfaces as `INDEX@AGENT`", parse: parsed }, empty("every interface is an edge");
        /// Names of groups with their networks, for keys and filters: `groups = { lab = ["10.0.0.0/8"] }`, or a
        /// section `[flows.groups]` with a line for each. An address belongs to the longest network that it is in.
        groups => groups: BTreeMap<String, Vec<Network>> = GroupsForm, empty("none");
        /// MaxMind databases (MMDB) with AS numbers and countries, for `asn(src)` and `country(src)` in keys and
        /// filters; of several the first that knows an address decides. They are read at the start and at each reload.
        mmdb => mmdb: Vec<String> = List { of: "paths of files", parse: mmdb_path }, empty("none");
        /// Where the part of sFlow-RT's REST API that scripts use is served over HTTP, such as `127.0.0.1:8008`. Everyone who reaches it
        /// reads every figure of flows. [flows-rest.md](flows-rest.md) lists what it answers.
        rest => rest: Option<SocketAddr> = text("IP address and port", rest_address), unset("off");
        /// Whether flows, thresholds and groups can be defined there. On a loopback address they always can be. While a `[[mitigation]]`
        /// announces routes, it takes the token of `admin.token_file`.
        rest_changes => rest_changes: bool = Bool, default(false)
            where |flows| flows.rest.is_some(), "there is no such address. Fix: add rest = \"127.0.0.1:8008\"";
        /// Flows that can be defined there. Each keeps the 10,000 heaviest.
        rest_flows_max => rest_flows_max: usize = whole(0, 1_000), default(20);
    }
}

impl FlowsConfig {
    /// The limits of the engine.
    pub fn limits(&self) -> Limits {
        let FlowsConfig { agents_max, sources_max, agent_sources_max, agent_timeout, .. } = *self;
        Limits { agents_max, sources_max, agent_sources_max, agent_timeout }
    }

    /// The groups in the engine's form.
    pub fn built_groups(&self) -> Groups {
        let mut groups = groups::built(&self.groups);
        if !self.mmdb.is_empty() {
            groups.expect_places();
        }
        groups
    }

    /// The interfaces that are not at the network's edge, by agent and index.
    pub fn built_internal(&self) -> HashSet<(IpAddr, u32)> {
        self.internal.iter().map(|one| (one.agent, one.if_index)).collect()
    }

    /// The definitions in the engine's form.
    pub fn built_definitions(&self) -> Vec<Definition> {
        let groups = self.built_groups();
        self.definitions.iter().map(|one| one.built(&groups)).collect()
    }

    /// Whether flows can be defined through `rest`.
    pub fn takes_changes(&self) -> bool {
        self.rest_changes || self.rest.is_some_and(|rest| rest.ip().is_loopback())
    }

    /// The names of the definitions exported as metrics.
    pub fn exported(&self) -> impl Iterator<Item = &str> {
        self.definitions.iter().filter(|one| one.metrics).map(|one| one.name.as_str())
    }

    /// Most memory that the analysis uses, in bytes.
    pub fn memory_max_bytes(&self) -> u64 {
        let mut definitions = self.built_definitions();
        if self.rest.is_some() {
            let keys = vec![Part::Field(Field::Src); REST_KEYS_MAX];
            let largest = FlowConfig { keys, flows_max: REST_FLOWS_KEPT, ..FlowConfig::usual() };
            let largest = largest.built(&Groups::default());
            definitions.extend(std::iter::repeat_n(largest, self.rest_flows_max));
        }
        Engine::memory_max_bytes(&self.limits(), &definitions) as u64
    }
}

fn rest_address(address: &str) -> Result<SocketAddr, String> {
    let literal = address.replacen("localhost:", "127.0.0.1:", 1);
    let wrong = |_| "it is not an IP address and port. Fix: write 127.0.0.1:8008".to_owned();
    literal.parse().map_err(wrong)
}

fn mmdb_path(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty. Fix: write the path of a file".to_owned()),
        path => Ok(path.to_owned()),
    }
}

/// Whether the listener exists is checked once all are read.
fn listener(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty. Fix: write a listener's name".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// Reads `[flows]` and every `[[flow]]`; `None` if `[flows]` is missing, or wrong, which is reported.
pub(crate) fn read(report: &Report, document: &Table) -> Option<Placed<FlowsConfig>> {
    // Read first, because definitions refer to its groups.
    let section = single(report, document, SECTION.path, (SECTION.path, SECTION.header));
    let config = section.and_then(|table| {
        let reader = Reader::open(report, table, &SECTION, SECTION.path);
        if reader.is_empty_list(&FlowsConfig::from) {
            let message = "it names no listener. Fix: write from = [\"NAME\"]";
            reader.error(&FlowsConfig::from, message);
        }
        FlowsConfig::read(&reader, Vec::new())
    });

    let groups = config.as_ref().map(FlowsConfig::built_groups);
    let mut definitions = definition::read_all(report, document, groups.as_ref());
    if section.is_none() && document.has_section(FLOW_SECTION.path) {
        let line = document.get(FLOW_SECTION.path).and_then(|entry| entry.line);
        let message = "there is no [flows] to count it. Fix: add [flows] with from = [\"NAME\"]";
        report.error(line, FLOW_SECTION.path, message);
    }
    if definitions.is_empty() {
        definitions.push(FlowConfig::usual());
    }

    let thing = FlowsConfig { definitions, ..config? };
    Some(Placed { place: SECTION.path.to_owned(), thing })
}

/// Checks the analysis against the listeners.
pub(crate) fn check(report: &Report, flows: &Placed<FlowsConfig>, listeners: &[ReadListener]) {
    let names = || listeners.iter().map(|one| one.listener.thing.name.as_str());
    let from = &flows.thing.from;
    for (at, name) in from.iter().enumerate() {
        if from[..at].contains(name) {
            flows.error(
                report,
                &FlowsConfig::from,
                format!("{name} is there twice. Fix: remove one"),
            );
            continue;
        }
        let Some(listener) = listeners.iter().find(|one| one.listener.thing.name == *name) else {
            let hint = match nearest(name, names()) {
                Some(near) => format!("did you mean {near}?"),
                None if listeners.is_empty() => "add a [[listener]]".to_owned(),
                None => format!("write one of {}", names().collect::<Vec<_>>().join(", ")),
            };
            let message =
                format!("there is no listener called \"{}\". Fix: {hint}", name.escape_debug());
            flows.error(report, &FlowsConfig::from, message);
            continue;
        };
        // In the ledger, the analysis is a target of the listener with a line of its own.
        if listener.targets.iter().any(|target| target.thing.name == FLOWS_NAME) {
            let message = format!(
                "a target of listener {name} is called \"{FLOWS_NAME}\", which is the analysis in the ledger. Fix: rename the target"
            );
            flows.error(report, &FlowsConfig::from, message);
        }
    }
}

/// Whether `[flows]` of this document, valid or not, names this listener.
pub(crate) fn is_source(document: &Table, listener: &str) -> bool {
    let Some(Entry { item, .. }) = document.get(SECTION.path) else { return false };
    let Value::Table(table) = &item.value else { return false };
    let from = table.get(FlowsConfig::from.name).map(|entry| &entry.item.value);
    matches!(from, Some(Value::List(names)) if names.iter().any(|one| one.value.text() == Ok(listener)))
}
