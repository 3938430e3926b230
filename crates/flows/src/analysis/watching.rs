//! One threshold at work: the figures it checks, and its events about them.

use super::Moment;
use crate::agent::{Agent, AgentId};
use crate::counting::{Counting, Hot};
use crate::engine::{Changed, Engine, NO_ADDRESS};
use crate::estimate::Estimate;
use crate::event::{Event, Subject};
use crate::field::{Facts, Field, Value};
use crate::key::Part;
use crate::port::{Port, PortRates, Rates as PortRate};
use crate::threshold::{Change, Passed, Threshold, Watch};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Interval at which figures of agents are checked, in nanoseconds. They cover many seconds.
const AGENTS_EVERY_NS: u64 = 1_000_000_000;

/// What a threshold watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched {
    /// The rate of each flow of the definition with this name, combined over its agents as the definition says.
    Flow(String),
    /// A figure of each interface.
    Port(PortFigure),
    /// A figure of each agent.
    Agent(AgentFigure),
}

/// Rows are `Name = "word", "meaning";`.
macro_rules! figures {
    ($(#[$about:meta])* $Figure:ident { $($name:ident = $word:literal, $meaning:literal;)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $Figure { $(#[doc = $meaning] $name,)+ }

        impl $Figure {
            /// All figures with their words.
            pub const ALL: &'static [(&'static str, $Figure)] = &[$(($word, $Figure::$name),)+];

            /// The word in files and events.
            pub const fn word(self) -> &'static str {
                match self { $($Figure::$name => $word,)+ }
            }

            /// What it means.
            pub const fn meaning(self) -> &'static str {
                match self { $($Figure::$name => $meaning,)+ }
            }
        }
    };
}

figures! {
    /// A figure of an interface, from its counters.
    PortFigure {
        InBits = "in_bits", "Bits in, per second.";
        OutBits = "out_bits", "Bits out, per second.";
        InFrames = "in_frames", "Frames in, per second.";
        OutFrames = "out_frames", "Frames out, per second.";
        Discards = "discards", "Discards in and out, per second.";
        Errors = "errors", "Broken frames in and out, per second.";
        InUse = "in_use", "Bits in, as a share of the interface's speed.";
        OutUse = "out_use", "Bits out, as a share of the interface's speed.";
    }
}

figures! {
    /// A figure of an agent.
    AgentFigure {
        Loss = "loss", "The share of its datagrams that did not arrive, of those of the last 10 to 20 s.";
        SampleLoss = "sample_loss", "The share of samples that it says it lost itself, of the sampler that lost most.";
        Silent = "silent", "Seconds since it was last heard.";
    }
}

impl PortFigure {
    /// The figure, if the interface has reported enough.
    pub fn of(self, port: &Port) -> Option<f64> {
        let PortRates { input, output, .. } = port.rates()?;
        self.of_rates(port, input, output)
    }

    /// The lower of its figures at the last two readings: one reading alone may be anybody's.
    fn steady(self, port: &Port) -> Option<f64> {
        let (input, output) = port.earlier_rates()?;
        Some(self.of_rates(port, &input, &output)?.min(self.of(port)?))
    }

    fn of_rates(self, port: &Port, input: &PortRate, output: &PortRate) -> Option<f64> {
        let both =
            |a: Option<f64>, b: Option<f64>| a.or(b).map(|_| a.unwrap_or(0.0) + b.unwrap_or(0.0));
        let share = |bits: Option<f64>| Some(bits? / port.full_bits_per_sec()? as f64);
        match self {
            PortFigure::InBits => input.bits_per_s,
            PortFigure::OutBits => output.bits_per_s,
            PortFigure::InFrames => input.frames_per_s,
            PortFigure::OutFrames => output.frames_per_s,
            PortFigure::Discards => both(input.discards_per_s, output.discards_per_s),
            PortFigure::Errors => both(input.errors_per_s, output.errors_per_s),
            PortFigure::InUse => share(input.bits_per_s),
            PortFigure::OutUse => share(output.bits_per_s),
        }
    }
}

impl AgentFigure {
    /// The figure, if the agent has reported enough.
    pub fn of(self, agent: &Agent, now_ns: u64) -> Option<f64> {
        match self {
            AgentFigure::Loss => agent.recent_loss(),
            AgentFigure::SampleLoss => {
                agent.samplers().map(|(.., one)| one.rates().agent_loss).reduce(f64::max)
            }
            AgentFigure::Silent => Some(now_ns.saturating_sub(agent.heard_ns()) as f64 / 1e9),
        }
    }

    /// The figure of an agent that was forgotten because it was silent for too long.
    fn of_forgotten(self, engine: &Engine) -> Option<f64> {
        match self {
            AgentFigure::Loss | AgentFigure::SampleLoss => None,
            AgentFigure::Silent => Some(engine.agent_timeout().as_secs_f64()),
        }
    }
}

pub(super) struct Watching {
    pub(super) of: Watched,
    pub(super) watch: Watch,
    name: Arc<str>,
    /// The keys that are above the limit, with the events that reported it.
    raised: HashMap<Box<[u8]>, Arc<Event>>,
    looked_ns: Option<u64>,
}

impl Watching {
    pub(super) fn new(of: Watched, watch: Watch) -> Watching {
        let name = watch.threshold().name.as_str().into();
        Watching { of, watch, name, raised: HashMap::new(), looked_ns: None }
    }

    pub(super) fn is_of_flow(&self, name: &str) -> bool {
        matches!(&self.of, Watched::Flow(of) if of == name)
    }

    /// Checks every figure that may have passed the limit or dropped below it.
    pub(super) fn look(
        &mut self,
        engine: &Engine,
        changed: &Changed,
        now: Moment,
        passed: &mut Vec<Passed>,
    ) {
        let now_ns = now.clock_ns;
        match &self.of {
            Watched::Flow(name) => {
                let counting = engine.counting().iter().find(|one| one.definition().name == *name);
                look_at_flows(&mut self.watch, counting, engine, now_ns, passed);
            }
            Watched::Port(figure) => {
                // The first check covers all of them.
                let changed = if self.looked_ns.is_none() { &Changed::Any } else { changed };
                self.looked_ns = Some(now_ns);
                look_at_ports(&mut self.watch, *figure, engine, changed, now_ns, passed);
            }
            Watched::Agent(figure) => {
                let due_ns = self.looked_ns.map_or(0, |looked_ns| looked_ns + AGENTS_EVERY_NS);
                if now_ns >= due_ns {
                    self.looked_ns = Some(now_ns);
                    look_at_agents(&mut self.watch, *figure, engine, now_ns, passed);
                }
            }
        }
    }

    /// The events of what is above the limit.
    pub(super) fn raised(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.raised.values()
    }

    /// What happened, as an event with this number.
    pub(super) fn event(
        &mut self,
        id: u64,
        engine: &Engine,
        now: Moment,
        passed: Passed,
    ) -> Arc<Event> {
        let Passed { change, key, figure, peak, raised_ns, at_ns } = passed;
        // A cleared event refers to what was raised, even if the definition has changed since.
        let former = self.raised.remove(&key).filter(|_| change == Change::Cleared);
        let (raised_id, subject) = match former {
            Some(raised) => (raised.id, raised.subject.clone()),
            None => (id, self.subject(engine, &key)),
        };
        let event = Arc::new(Event {
            id,
            raised_id,
            time_unix_ns: now.unix_ns,
            raised_unix_ns: now.unix_ns.saturating_sub(at_ns.saturating_sub(raised_ns)),
            threshold: Arc::clone(&self.name),
            subject,
            change,
            figure,
            peak,
            limit: self.watch.threshold().limit,
        });
        if change == Change::Raised {
            self.raised.insert(key, Arc::clone(&event));
        }
        event
    }

    fn subject(&self, engine: &Engine, key: &[u8]) -> Subject {
        let name = match &self.of {
            Watched::Flow(name) => name,
            Watched::Port(figure) => return source_subject(figure.word(), key),
            Watched::Agent(figure) => return source_subject(figure.word(), key),
        };
        let counting = engine.counting().iter().find(|one| one.definition().name == *name);
        let values = counting.map(|one| one.values(key)).unwrap_or_default();
        let groups = engine.groups_of(counting.map(Counting::author).unwrap_or_default());
        let words = counting.into_iter().flat_map(|one| &one.definition().keys);
        let shown = words
            .zip(&values)
            .map(|(part, value)| (part.word(), part.shown(*value, groups)))
            .collect();
        let measure = counting.map(|one| one.definition().measure).unwrap_or_default();
        Subject::Flow { definition: name.as_str().into(), measure, key: values, shown }
    }
}

fn look_at_flows(
    watch: &mut Watch,
    counting: Option<&Counting>,
    engine: &Engine,
    now_ns: u64,
    passed: &mut Vec<Passed>,
) {
    // Until a time constant has passed, a rate rests on a few samples, and with many flows some are above by chance.
    let is_young = counting.is_some_and(|one| one.is_young(now_ns));
    let hot = counting.into_iter().flat_map(|one| one.hot(now_ns).map(move |flow| (one, flow)));
    for (counting, Hot { key, vantage, rate, steady }) in hot {
        let Threshold { limit, filter, .. } = watch.threshold();
        let passes = filter.as_ref().is_none_or(|filter| {
            let facts = KeyFacts { parts: &counting.definition().keys, key: counting.values(key) };
            filter.passes(&facts, engine.groups())
        });
        if passes && !(is_young && rate.low < *limit) {
            watch.figure(now_ns, key, vantage, rate, steady);
        }
    }
    let rate_of = |key: &[u8], vantage| counting?.rate_of(key, vantage, now_ns);
    watch.end_look(now_ns, rate_of, passed);
}

fn look_at_ports(
    watch: &mut Watch,
    figure: PortFigure,
    engine: &Engine,
    changed: &Changed,
    now_ns: u64,
    passed: &mut Vec<Passed>,
) {
    let port_of = |id: &AgentId, index| engine.agent(id)?.port_of(index);
    let mut look = |id: &AgentId, index| {
        if let Some(port) = port_of(id, index)
            && let Some(value) = figure.of(port)
            && is_asked_for(watch, id)
        {
            let steady = figure.steady(port).unwrap_or(0.0);
            watch.figure(now_ns, &source_key(id, Some(index)), 0, sure(value), steady);
        }
    };
    match changed {
        Changed::Unwatched => {}
        Changed::Ports(ports) => ports.iter().for_each(|(id, index)| look(id, *index)),
        Changed::Any => {
            let all = engine.agents().flat_map(|(id, one)| one.ports().map(move |port| (id, port)));
            all.for_each(|(id, (index, _))| look(id, index));
        }
    }

    let figure_of = |key: &[u8], _| {
        let (id, index) = source_of(key);
        port_of(&id, index?).and_then(|port| figure.of(port)).map(sure)
    };
    watch.end_look(now_ns, figure_of, passed);
}

fn look_at_agents(
    watch: &mut Watch,
    figure: AgentFigure,
    engine: &Engine,
    now_ns: u64,
    passed: &mut Vec<Passed>,
) {
    for (id, agent) in engine.agents() {
        if let Some(value) = figure.of(agent, now_ns)
            && is_asked_for(watch, id)
        {
            let steady = if agent.is_established() { value } else { 0.0 };
            watch.figure(now_ns, &source_key(id, None), 0, sure(value), steady);
        }
    }
    let figure_of = |key: &[u8], _| match engine.agent(&source_of(key).0) {
        Some(agent) => figure.of(agent, now_ns).map(sure),
        None => figure.of_forgotten(engine).map(sure),
    };
    watch.end_look(now_ns, figure_of, passed);
}

fn is_asked_for(watch: &Watch, id: &AgentId) -> bool {
    let agents = &watch.threshold().agents;
    agents.is_empty() || agents.iter().any(|network| network.contains(id.address))
}

/// What a flow's key tells a filter.
struct KeyFacts<'a> {
    parts: &'a [Part],
    key: Vec<Value>,
}

impl Facts for KeyFacts<'_> {
    fn value(&self, field: Field) -> Value {
        let is_it = |part: &&Part| match part {
            Part::Field(of) | Part::Prefix(of, ..) => *of == field,
            Part::Group(_) | Part::Asn(_) | Part::Country(_) => false,
        };
        let at = self.parts.iter().position(|part| is_it(&part));
        at.and_then(|at| self.key.get(at)).copied().unwrap_or(Value::Absent)
    }
}

/// A figure that is exact.
fn sure(value: f64) -> Estimate {
    Estimate { value, low: value, high: value }
}

/// Bytes that identify agents and interfaces: the agent's address, the sub-agent, the index.
fn source_key(id: &AgentId, if_index: Option<u32>) -> Vec<u8> {
    let mut address = [0; Value::KEY_LEN];
    Value::Address(id.address).write(&mut address);
    let index = if_index.map(u32::to_be_bytes);
    [&address[..], &id.sub_agent.to_be_bytes(), index.as_ref().map_or(&[], |index| index)].concat()
}

/// The agent and interface in a key made by [`source_key`].
fn source_of(key: &[u8]) -> (AgentId, Option<u32>) {
    let number = |at: usize| {
        let bytes = key.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map(|bytes| u32::from_be_bytes(*bytes))
    };
    let address = match key.first_chunk().map(Value::read) {
        Some(Value::Address(address)) => address,
        _ => NO_ADDRESS,
    };
    let sub_agent = number(Value::KEY_LEN).unwrap_or(0);
    (AgentId { address, sub_agent }, number(Value::KEY_LEN + 4))
}

fn source_subject(figure: &'static str, key: &[u8]) -> Subject {
    let (AgentId { address, sub_agent }, if_index) = source_of(key);
    let agent: IpAddr = address;
    Subject::Source { figure, agent, sub_agent, if_index }
}
