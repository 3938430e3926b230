//! Datagrams in, figures out: agents, samplers, interfaces and definitions together.

mod samples;

use crate::agent::{Agent, AgentId, Room};
use crate::counting::Counting;
use crate::definition::Definition;
use crate::lookup::Groups;
use crate::portion::{Told, Untolds};
use crate::sequence::Seen;
use crate::table::Everything;
use foldhash::fast::RandomState;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use wire::sflow::{DataFormat, Datagram, Malformed};

/// Kinds of structures that are counted by their number; those of more kinds are counted together.
const UNKNOWN_MAX: usize = 256;

/// What an [`Engine`] may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Agents (each of their parts is one).
    pub agents_max: usize,
    /// Samplers and interfaces of all agents together.
    pub sources_max: usize,
    /// An agent, a sampler or an interface that was not heard of for so long is forgotten.
    pub agent_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { agents_max: 10_000, sources_max: 100_000, agent_timeout: Duration::from_secs(600) }
    }
}

/// What became of datagrams and of what is in them.
/// `datagrams = read + malformed + duplicate + agent_limit`, and `samples` of the read ones are what the agents' figures are made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EngineTotals {
    /// Datagrams that were given to the engine.
    pub datagrams: u64,
    /// Datagrams whose samples were read.
    pub read: u64,
    /// Datagrams that had been read before.
    pub duplicate: u64,
    /// Datagrams of agents beyond `agents_max`.
    pub agent_limit: u64,
    /// Datagrams that have no readable header.
    pub malformed: u64,
    /// Datagrams that agents numbered and that have not arrived: lost on the network or before the engine. One that comes late is
    /// taken off again. Agents that were forgotten are in it.
    pub missing: u64,
    /// Samples that agents say they lost before they numbered them. Agents that were forgotten are in it.
    pub agent_dropped_samples: u64,
    /// Flow samples that are in the figures.
    pub flow_samples: u64,
    /// Samples that had been counted before.
    pub duplicate_samples: u64,
    /// Counter samples.
    pub counter_samples: u64,
    /// Dropped packets.
    pub dropped_packets: u64,
    /// Samples that were scaled by the configured rate, because there are more than `sources_max`.
    pub source_limit: u64,
    /// Broken datagrams, samples and records, by class.
    pub faults: BTreeMap<&'static str, u64>,
    /// Samples and records that are not known here, by their number.
    pub unknown: BTreeMap<DataFormat, u64>,
    /// Those of kinds beyond the first 256.
    pub unknown_other: u64,
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Its samples were read; what was broken among them was counted.
    Read,
    /// It had been read before.
    Duplicate,
    /// There are too many agents.
    AgentLimit,
    /// It has no readable header.
    Malformed(Malformed),
}

/// The figures of all agents.
pub struct Engine {
    limits: Limits,
    agents: HashMap<AgentId, Agent, RandomState>,
    rest: Rest,
    swept_ns: u64,
    turned_ns: u64,
}

/// What samples of any agent go through.
struct Rest {
    /// Readers keep them.
    groups: Arc<Groups>,
    internal: HashSet<(IpAddr, u32)>,
    counting: Vec<Counting>,
    /// Definitions that have ended, until everything of them is told.
    ended: Vec<Counting>,
    tell_every: Option<Duration>,
    /// For samplers and interfaces of all agents.
    room: Room,
    totals: EngineTotals,
    changed: Changed,
}

/// Interfaces whose rates have changed since somebody looked.
#[derive(Default)]
pub(crate) enum Changed {
    /// Nobody asks.
    #[default]
    Unwatched,
    /// These, some of them several times.
    Ports(Vec<(AgentId, u32)>),
    /// More than are remembered: any of them.
    Any,
}

/// Interfaces that are remembered to have changed.
const CHANGED_MAX: usize = 65_536;

impl Engine {
    /// An engine that has seen nothing. `internal`: interfaces, by agent and index, that lead to other agents, for
    /// [`Aggregation::Edge`](crate::Aggregation::Edge).
    pub fn new(
        limits: Limits,
        groups: Groups,
        internal: HashSet<(IpAddr, u32)>,
        definitions: Vec<Definition>,
    ) -> Engine {
        let rest = Rest {
            groups: Arc::new(groups),
            internal,
            counting: definitions.into_iter().map(Counting::new).collect(),
            ended: Vec::new(),
            tell_every: None,
            room: Room::new(limits.sources_max),
            totals: EngineTotals::default(),
            changed: Changed::default(),
        };
        Engine { limits, agents: HashMap::default(), rest, swept_ns: 0, turned_ns: 0 }
    }

    /// The most bytes that these limits and definitions take.
    pub fn memory_max_bytes(limits: &Limits, definitions: &[Definition]) -> usize {
        let flows: usize = definitions.iter().map(Definition::memory_max_bytes).sum();
        // Each definition knows what all samples of each sampler are.
        let samplers =
            definitions.len() * limits.sources_max * (size_of::<(u32, Everything)>() + 1) * 16 / 7;
        flows + samplers + Agent::memory_max_bytes(limits.agents_max, limits.sources_max)
    }

    /// What was counted so far.
    pub fn totals(&self) -> &EngineTotals {
        &self.rest.totals
    }

    /// The groups that keys and filters name.
    pub fn groups(&self) -> &Groups {
        &self.rest.groups
    }

    /// The same, to be kept.
    pub fn shared_groups(&self) -> Arc<Groups> {
        Arc::clone(&self.rest.groups)
    }

    /// The definitions with their flows.
    pub fn counting(&self) -> &[Counting] {
        &self.rest.counting
    }

    /// Begins to count by a definition, in the place of one of the same name. One that is the same goes on with its flows.
    pub fn define(&mut self, definition: Definition) {
        let counting = &mut self.rest.counting;
        match counting.iter_mut().find(|one| one.definition().name == definition.name) {
            Some(same) if *same.definition() == definition => {}
            former => {
                let next = Counting::new(definition).telling(self.rest.tell_every);
                match former {
                    Some(former) => self.rest.ended.push(std::mem::replace(former, next)),
                    None => counting.push(next),
                }
            }
        }
    }

    /// From now on, tells of each flow that ends, and of each that goes on after so long. Whatever the tables say, every sample from now on is
    /// told of once.
    pub fn tell_every(&mut self, every: Duration) {
        self.rest.tell_every = Some(every);
        let counting = std::mem::take(&mut self.rest.counting);
        self.rest.counting = counting.into_iter().map(|one| one.telling(Some(every))).collect();
    }

    /// The most bytes that telling of flows takes on top of [`memory_max_bytes`](Self::memory_max_bytes).
    pub fn telling_max_bytes(definitions: &[Definition]) -> usize {
        definitions.iter().map(|one| Untolds::memory_max_bytes(one.flows_max)).sum()
    }

    /// Tells everything that is untold.
    pub fn tell_all(&mut self, told: &mut impl Told) {
        self.rest.tell_ended(told);
        for counting in &mut self.rest.counting {
            counting.tell_all(&self.rest.groups, told);
        }
    }

    /// Forgets what was counted by the definition of this name, and counts by this one.
    pub(crate) fn begin_anew(&mut self, definition: Definition) {
        let mut counting = self.rest.counting.iter_mut();
        if let Some(one) = counting.find(|one| one.definition().name == definition.name) {
            *one = Counting::new(definition);
        }
    }

    /// Counts no longer by the definition of this name. Returns whether there was one.
    pub fn undefine(&mut self, name: &str) -> bool {
        let Rest { counting, ended, .. } = &mut self.rest;
        let at = counting.iter().position(|one| one.definition().name == name);
        ended.extend(at.map(|at| counting.remove(at)));
        at.is_some()
    }

    /// Changes what it may hold, and which interfaces are no edge. Agents and sources that it knows already stay, above a lower limit too.
    pub fn set_limits(&mut self, limits: Limits, internal: HashSet<(IpAddr, u32)>) {
        self.limits = limits;
        self.rest.room.max = limits.sources_max;
        self.rest.internal = internal;
    }

    /// Exchanges the files that say where addresses are. What was counted stays as it is.
    pub fn set_places(&mut self, of: &Groups) {
        Arc::make_mut(&mut self.rest.groups).share_places(of);
    }

    /// Exchanges the groups. What names them is to be defined anew: groups are numbers there.
    ///
    /// The files that say where addresses are stay: see [`set_places`](Self::set_places).
    pub fn set_groups(&mut self, mut groups: Groups) {
        groups.share_places(&self.rest.groups);
        self.rest.groups = Arc::new(groups);
    }

    /// The agents that were heard lately, in no order.
    pub fn agents(&self) -> impl ExactSizeIterator<Item = (&AgentId, &Agent)> {
        self.agents.iter()
    }

    /// An agent that was heard lately.
    pub fn agent(&self, id: &AgentId) -> Option<&Agent> {
        self.agents.get(id)
    }

    /// When an agent is forgotten that is not heard.
    pub(crate) fn agent_timeout(&self) -> Duration {
        self.limits.agent_timeout
    }

    /// The definitions at work.
    pub(crate) fn counting_mut(&mut self) -> &mut [Counting] {
        &mut self.rest.counting
    }

    /// The interfaces whose rates have changed since the last call; from now on they are noted.
    pub(crate) fn take_changed(&mut self) -> Changed {
        std::mem::replace(&mut self.rest.changed, Changed::Ports(Vec::new()))
    }

    /// Changes of interfaces are not noted any more.
    pub(crate) fn forget_changed(&mut self) {
        self.rest.changed = Changed::Unwatched;
    }

    /// Takes a datagram. `source`: who sent it, for agents that do not know their address. `now_ns`: when it arrived, by a clock that does not go back.
    pub fn datagram(
        &mut self,
        bytes: &[u8],
        source: IpAddr,
        now_ns: u64,
        told: &mut impl Told,
    ) -> Taken {
        let totals = &mut self.rest.totals;
        totals.datagrams += 1;
        let datagram = match Datagram::parse(bytes) {
            Ok(datagram) => datagram,
            Err(malformed) => {
                totals.malformed += 1;
                self.rest.fault(&malformed);
                return Taken::Malformed(malformed);
            }
        };
        let id = AgentId {
            address: datagram.agent.ip().unwrap_or(source),
            sub_agent: datagram.sub_agent,
        };

        let count = self.agents.len();
        let agent = match self.agents.entry(id) {
            Entry::Occupied(agent) => agent.into_mut(),
            Entry::Vacant(place) if count < self.limits.agents_max => {
                place.insert(Agent::new(now_ns))
            }
            Entry::Vacant(_) => {
                totals.agent_limit += 1;
                return Taken::AgentLimit;
            }
        };
        let missing = agent.datagrams().lost;
        let seen = agent.hear(datagram.sequence, datagram.uptime_ms, now_ns);
        totals.missing = totals.missing + agent.datagrams().lost - missing;
        if seen == Seen::Duplicate {
            totals.duplicate += 1;
            return Taken::Duplicate;
        }
        totals.read += 1;
        self.rest.samples(&datagram, id, agent, now_ns, told);
        Taken::Read
    }

    /// Forgets agents, samplers and interfaces that were not heard since then.
    fn forget(&mut self, before_ns: u64) {
        let mut gone = Vec::new();
        self.agents.retain(|_, agent| {
            agent.forget(before_ns, &mut gone);
            agent.heard_ns() >= before_ns
        });
        self.rest.room.taken = self.agents.values().map(Agent::sources).sum();
        for counting in &mut self.rest.counting {
            counting.forget_samplers(&gone);
        }
    }

    /// Ends flows and forgets agents, samplers and interfaces that were not seen for long. To be called every 100 ms or so.
    pub fn tick(&mut self, now_ns: u64, told: &mut impl Told) {
        self.rest.tell_ended(told);
        for counting in &mut self.rest.counting {
            counting.sweep(now_ns, &self.rest.groups, told);
        }

        const EVERY_NS: u64 = 1_000_000_000;
        if now_ns.saturating_sub(self.turned_ns) >= EVERY_NS {
            self.turned_ns = now_ns;
            self.agents.values_mut().for_each(|agent| agent.turn(now_ns));
        }

        // Every source is looked at: with a million of them that takes milliseconds.
        let timeout_ns = self.limits.agent_timeout.as_nanos() as u64;
        if now_ns.saturating_sub(self.swept_ns) >= (timeout_ns / 64).max(1_000_000_000) {
            self.swept_ns = now_ns;
            self.forget(now_ns.saturating_sub(timeout_ns));
        }
    }
}

impl Rest {
    fn tell_ended(&mut self, told: &mut impl Told) {
        for mut ended in self.ended.drain(..) {
            ended.tell_all(&self.groups, told);
        }
    }

    fn fault(&mut self, malformed: &Malformed) {
        *self.totals.faults.entry(malformed.class()).or_default() += 1;
    }

    fn unknown(&mut self, format: DataFormat) {
        let kinds = self.totals.unknown.len();
        match self.totals.unknown.get_mut(&format) {
            Some(count) => *count += 1,
            None if kinds < UNKNOWN_MAX => {
                self.totals.unknown.insert(format, 1);
            }
            None => self.totals.unknown_other += 1,
        }
    }
}

impl Changed {
    fn note(&mut self, id: AgentId, if_index: u32) {
        match self {
            Changed::Ports(ports) if ports.len() < CHANGED_MAX => ports.push((id, if_index)),
            Changed::Ports(_) => *self = Changed::Any,
            Changed::Unwatched | Changed::Any => {}
        }
    }
}

/// The address of an agent of which nothing is known.
pub const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[cfg(test)]
mod tests;
