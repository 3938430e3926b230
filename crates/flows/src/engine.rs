//! Datagrams in, figures out: agents, samplers, interfaces and definitions together.

mod admission;
mod samples;
mod totals;

use crate::agent::{Agent, AgentId};
use crate::counting::Counting;
use crate::definition::{Definition, Traffic};
use crate::discrepancy::Discrepancy;
use crate::lookup::{Author, GroupSets, Groups};
use crate::portion::{Told, Untolds};
use crate::sequence::Seen;
use crate::share::Shares;
use crate::source::Structure;
use crate::table::Everything;
use crate::vantage::Devices;
use foldhash::fast::RandomState;
pub(crate) use samples::{Content, Heard};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
pub use totals::{EngineTotals, Taken};

/// Maximum number of unknown structure kinds that are counted separately; the rest share one counter.
const UNKNOWN_MAX: usize = 256;

/// Limits on what an [`Engine`] holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of agents (each sub-agent counts as one).
    pub agents_max: usize,
    /// Maximum number of samplers and interfaces over all agents.
    pub sources_max: usize,
    /// Maximum number of samplers and interfaces of one agent.
    pub agent_sources_max: usize,
    /// An agent, a sampler or an interface that was not heard for this long is forgotten.
    pub agent_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            agents_max: 10_000,
            sources_max: 100_000,
            // A chassis of a thousand interfaces that are all sampled.
            agent_sources_max: 2_048,
            agent_timeout: Duration::from_secs(600),
        }
    }
}

/// All agents, with their figures.
pub struct Engine {
    limits: Limits,
    agents: HashMap<AgentId, Agent, RandomState>,
    rest: Rest,
    swept_ns: u64,
    turned_ns: u64,
}

/// What samples of any agent pass through.
pub(crate) struct Rest {
    groups: GroupSets,
    internal: HashSet<(IpAddr, u32)>,
    counting: Vec<Counting>,
    /// Definitions that have ended, until all their flows are reported.
    ended: Vec<Counting>,
    tell_every: Option<Duration>,
    /// Places for agents, and for samplers and interfaces.
    shares: Shares,
    devices: Devices,
    totals: EngineTotals,
    /// Samples in portions that definitions reported that have ended.
    reported_samples: u64,
    changed: Changed,
}

/// What a datagram says about itself, and when and from where it came.
#[derive(Clone, Copy)]
pub(crate) struct Mark<'d> {
    /// Its number.
    pub(crate) sequence: u32,
    /// The agent's clock, in milliseconds since it started.
    pub(crate) uptime_ms: u32,
    /// All of it.
    pub(crate) bytes: &'d [u8],
    /// Who sent it.
    pub(crate) sender: IpAddr,
    /// When it arrived.
    pub(crate) now_ns: u64,
}

/// Interfaces whose rates have changed since the last query.
#[derive(Default)]
pub(crate) enum Changed {
    /// Changes are not tracked.
    #[default]
    Unwatched,
    /// These interfaces, possibly with repetitions.
    Ports(Vec<(AgentId, u32)>),
    /// More than are remembered: any interface may have changed.
    Any,
}

/// Maximum number of changed interfaces remembered.
const CHANGED_MAX: usize = 65_536;

impl Engine {
    /// An engine that has seen nothing. `internal` lists interfaces, by agent and index, that lead to other agents, for
    /// [`Aggregation::Edge`](crate::Aggregation::Edge).
    pub fn new(
        limits: Limits,
        groups: Groups,
        internal: HashSet<(IpAddr, u32)>,
        definitions: Vec<Definition>,
    ) -> Engine {
        let rest = Rest {
            groups: GroupSets::new(groups),
            internal,
            counting: definitions.into_iter().map(|one| Counting::new(one, Author::File)).collect(),
            ended: Vec::new(),
            tell_every: None,
            shares: Shares::new(limits.sources_max, limits.agent_sources_max),
            devices: Devices::default(),
            totals: EngineTotals::default(),
            reported_samples: 0,
            changed: Changed::default(),
        };
        Engine { limits, agents: HashMap::default(), rest, swept_ns: 0, turned_ns: 0 }
    }

    /// Maximum memory with these limits and definitions, in bytes.
    pub fn memory_max_bytes(limits: &Limits, definitions: &[Definition]) -> usize {
        let flows: usize = definitions.iter().map(Definition::memory_max_bytes).sum();
        // Each definition keeps totals for each vantage.
        let vantages = definitions.len() * Devices::vantages_max(limits.agents_max);
        let all = vantages * (size_of::<(u32, Everything)>() + 1) * 16 / 7;
        let agents = Agent::memory_max_bytes(limits.agents_max, limits.sources_max);
        flows + all + agents + Devices::memory_max_bytes(limits.agents_max, limits.sources_max)
    }

    /// The counts so far.
    pub fn totals(&self) -> &EngineTotals {
        &self.rest.totals
    }

    /// How many samples its counts contradict. Each is counted where the decoder finds it, where its fate is decided, in each
    /// definition, and where it is reported, and what these counts say has to agree. Anything but 0 is a bug. Call it between
    /// datagrams.
    pub fn contradictions(&self) -> u64 {
        let EngineTotals { samples, flow_samples, dropped_packets, .. } = self.rest.totals;
        let EngineTotals { duplicate_samples, counter_samples, other_samples, .. } =
            self.rest.totals;
        let fates =
            flow_samples + dropped_packets + duplicate_samples + counter_samples + other_samples;
        let definitions = self.rest.counting.iter().map(|one| {
            let since = weighed(&self.rest.totals, one.definition().traffic) - one.began();
            one.contradictions() + since.abs_diff(one.totals().seen)
        });
        samples.abs_diff(fates) + definitions.sum::<u64>()
    }

    /// Samples in all portions that were reported and accepted.
    pub fn reported_samples(&self) -> u64 {
        let now = self.rest.counting.iter().map(Counting::reported_samples);
        self.rest.reported_samples + now.sum::<u64>()
    }

    /// The groups that keys and filters of the file name.
    pub fn groups(&self) -> &Groups {
        self.groups_of(Author::File)
    }

    /// The groups that keys and filters name.
    pub fn groups_of(&self, author: Author) -> &Groups {
        self.rest.groups.of(author)
    }

    /// The groups that keys and filters name, shared.
    pub fn shared_groups_of(&self, author: Author) -> Arc<Groups> {
        Arc::clone(self.rest.groups.of(author))
    }

    /// The definitions, with their flows.
    pub fn counting(&self) -> &[Counting] {
        &self.rest.counting
    }

    /// Starts counting by a definition, replacing one with the same name. An identical one keeps its flows.
    pub fn define(&mut self, definition: Definition, author: Author) {
        let counting = &mut self.rest.counting;
        match counting.iter_mut().find(|one| one.definition().name == definition.name) {
            Some(same) if *same.definition() == definition && same.author() == author => {}
            former => {
                let began = weighed(&self.rest.totals, definition.traffic);
                let next = Counting::new(definition, author).begun(began);
                let next = next.telling(self.rest.tell_every);
                match former {
                    Some(former) => self.rest.ended.push(std::mem::replace(former, next)),
                    None => counting.push(next),
                }
            }
        }
    }

    /// From now on, reports each flow that ends, and each flow that goes on after each interval `every`. Every sample from now on
    /// is reported exactly once, whatever the tables hold.
    pub fn tell_every(&mut self, every: Duration) {
        self.rest.tell_every = Some(every);
        let counting = std::mem::take(&mut self.rest.counting);
        self.rest.counting = counting.into_iter().map(|one| one.telling(Some(every))).collect();
    }

    /// Maximum memory for reporting flows, in bytes, on top of [`memory_max_bytes`](Self::memory_max_bytes).
    pub fn telling_max_bytes(definitions: &[Definition]) -> usize {
        definitions.iter().map(|one| Untolds::memory_max_bytes(one.flows_max)).sum()
    }

    /// Reports everything not reported yet.
    pub fn tell_all(&mut self, told: &mut impl Told) {
        self.rest.tell_ended(told);
        for counting in &mut self.rest.counting {
            counting.tell_all(self.rest.groups.of(counting.author()), told);
        }
    }

    /// Ends the definition with this name, and counts by this one.
    pub(crate) fn begin_anew(&mut self, definition: Definition) {
        let mut counting = self.rest.counting.iter_mut();
        if let Some(one) = counting.find(|one| one.definition().name == definition.name) {
            let began = weighed(&self.rest.totals, definition.traffic);
            let next = Counting::new(definition, one.author()).begun(began);
            let next = next.telling(self.rest.tell_every);
            self.rest.ended.push(std::mem::replace(one, next));
        }
    }

    /// Stops counting by the definition with this name. Returns whether there was one.
    pub fn undefine(&mut self, name: &str) -> bool {
        let Rest { counting, ended, .. } = &mut self.rest;
        let at = counting.iter().position(|one| one.definition().name == name);
        ended.extend(at.map(|at| counting.remove(at)));
        at.is_some()
    }

    /// Changes what it may hold, and which interfaces are not at the edge. Known agents and sources stay, even above a lower
    /// limit.
    pub fn set_limits(&mut self, limits: Limits, internal: HashSet<(IpAddr, u32)>) {
        self.limits = limits;
        self.rest.shares.set_max(limits.sources_max, limits.agent_sources_max);
        self.rest.internal = internal;
    }

    /// Replaces the files that locate addresses. What was counted stays as it is.
    pub fn set_places(&mut self, of: &Groups) {
        self.rest.groups.set_places(of);
    }

    /// Replaces the groups that definitions of this author name. Definitions that name groups must be defined again: they refer
    /// to groups by number.
    ///
    /// The files that locate addresses stay: see [`set_places`](Self::set_places).
    pub fn set_groups(&mut self, groups: Groups, author: Author) {
        self.rest.groups.set(author, groups);
    }

    /// The agents heard lately, in no particular order.
    pub fn agents(&self) -> impl ExactSizeIterator<Item = (&AgentId, &Agent)> {
        self.agents.iter()
    }

    /// An agent, if it was heard lately.
    pub fn agent(&self, id: &AgentId) -> Option<&Agent> {
        self.agents.get(id)
    }

    /// How long a silent agent is remembered.
    pub(crate) fn agent_timeout(&self) -> Duration {
        self.limits.agent_timeout
    }

    /// The definitions at work.
    pub(crate) fn counting_mut(&mut self) -> &mut [Counting] {
        &mut self.rest.counting
    }

    /// The interfaces whose rates have changed since the last call. From now on, changes are tracked.
    pub(crate) fn take_changed(&mut self) -> Changed {
        std::mem::replace(&mut self.rest.changed, Changed::Ports(Vec::new()))
    }

    /// Stops tracking changes of interfaces.
    pub(crate) fn forget_changed(&mut self) {
        self.rest.changed = Changed::Unwatched;
    }

    /// Counts a datagram without a readable header by its fault. `version` is that of an old edition of its protocol.
    #[cold]
    pub(crate) fn malformed(
        &mut self,
        class: &'static str,
        version: Option<u32>,
        sender: IpAddr,
    ) -> Taken {
        let totals = &mut self.rest.totals;
        totals.datagrams += 1;
        totals.malformed += 1;
        if let Some(version) = version {
            totals.note_version(version, sender);
        }
        self.rest.fault(class);
        Taken::Malformed
    }

    /// Processes a datagram of this agent. `read` hands over its samples; it is not called if they count already.
    #[inline]
    pub(crate) fn take<T: Told>(
        &mut self,
        id: AgentId,
        mark: Mark<'_>,
        told: &mut T,
        read: impl FnOnce(&mut Rest, Heard, &mut Agent, &mut T),
    ) -> Taken {
        self.rest.totals.datagrams += 1;
        self.take_of(id, mark, told, read)
    }

    /// The same, unless its sender is another with the same address: that one has the address that it sends from.
    fn take_of<T: Told>(
        &mut self,
        id: AgentId,
        mark: Mark<'_>,
        told: &mut T,
        read: impl FnOnce(&mut Rest, Heard, &mut Agent, &mut T),
    ) -> Taken {
        let Mark { sequence, uptime_ms, bytes, sender, now_ns } = mark;
        let agent = match self.agents.entry(id) {
            Entry::Occupied(agent) => agent.into_mut(),
            Entry::Vacant(_) => {
                if self.admit(sender, now_ns).is_none() {
                    self.rest.totals.agent_limit += 1;
                    return Taken::AgentLimit;
                }
                let at = self.rest.devices.enter(id.address);
                self.agents.entry(id).or_insert_with(|| Agent::new(sender, at, now_ns))
            }
        };
        if agent.has_moved(sender) {
            self.rest.totals.discrepancies.note(Discrepancy::Senders);
        }
        if agent.is_of_another(sender, sequence, bytes) && id.address != sender {
            return self.take_of(AgentId { address: sender, ..id }, mark, told, read);
        }
        let totals = &mut self.rest.totals;
        let missing = agent.datagrams().lost;
        let seen = agent.hear(sequence, uptime_ms, now_ns);
        totals.missing = totals.missing + agent.datagrams().lost - missing;
        if seen == Seen::Duplicate {
            totals.duplicate += 1;
            return Taken::Duplicate;
        }
        totals.read += 1;
        let heard = Heard { id, is_new: seen != Seen::Strange, now_ns };
        read(&mut self.rest, heard, agent, told);
        self.rest.settle(told);
        if self.rest.shares.take_want() {
            self.make_room_for_sources(sender, now_ns);
        }
        Taken::Read
    }

    /// Forgets agents, samplers and interfaces that were not heard since `before_ns`.
    fn forget(&mut self, before_ns: u64) {
        let (mut gone, devices) = (Vec::new(), &mut self.rest.devices);
        self.agents.retain(|id, agent| {
            agent.forget(before_ns);
            let is_heard = agent.heard_ns() >= before_ns;
            if !is_heard {
                devices.leave(id.address, agent.place(), &mut gone);
            }
            is_heard
        });
        let agents = self.agents.values();
        self.rest.shares.recount(agents.map(|agent| (agent.sender(), agent.sources())));
        for counting in &mut self.rest.counting {
            counting.forget_vantages(&gone);
        }
    }

    /// Ends flows, and forgets agents, samplers and interfaces not seen for long. Call it about every 100 ms.
    pub fn tick(&mut self, now_ns: u64, told: &mut impl Told) {
        self.rest.tell_ended(told);
        for counting in &mut self.rest.counting {
            counting.sweep(now_ns, self.rest.groups.of(counting.author()), told);
        }

        const EVERY_NS: u64 = 1_000_000_000;
        if now_ns.saturating_sub(self.turned_ns) >= EVERY_NS {
            self.turned_ns = now_ns;
            self.agents.values_mut().for_each(|agent| agent.turn(now_ns));
            self.rest.devices.fade();
            self.look_for_yielding();
        }

        // Visits every source: with a million of them that takes milliseconds.
        let timeout_ns = self.limits.agent_timeout.as_nanos() as u64;
        if now_ns.saturating_sub(self.swept_ns) >= (timeout_ns / 64).max(1_000_000_000) {
            self.swept_ns = now_ns;
            self.rest.devices.forget(now_ns);
            self.forget(now_ns.saturating_sub(timeout_ns));
        }
    }
}

impl Rest {
    fn tell_ended(&mut self, told: &mut impl Told) {
        for mut ended in self.ended.drain(..) {
            let author = ended.author();
            ended.tell_all(self.groups.of(author), told);
            self.reported_samples += ended.reported_samples();
        }
    }

    /// Counts what could not be read, by its class.
    pub(crate) fn fault(&mut self, class: &'static str) {
        *self.totals.faults.entry(class).or_default() += 1;
    }

    /// Counts a structure of a kind that is not known.
    pub(crate) fn unknown(&mut self, of: Structure) {
        let kinds = self.totals.unknown.len();
        match self.totals.unknown.get_mut(&of) {
            Some(count) => *count += 1,
            None if kinds < UNKNOWN_MAX => {
                self.totals.unknown.insert(of, 1);
            }
            None => self.totals.unknown_other += 1,
        }
    }
}

/// Samples of this traffic that definitions were given.
fn weighed(totals: &EngineTotals, traffic: Traffic) -> u64 {
    match traffic {
        Traffic::Sampled => totals.flow_samples,
        Traffic::Dropped => totals.dropped_packets,
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

/// The address of an agent that does not say one.
pub const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[cfg(test)]
mod tests;
