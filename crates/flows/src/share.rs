//! Who has the places for agents and their sources.
//!
//! An agent is whoever a datagram says it is, so one sender can be any number of them. Places are therefore shared by sender: by
//! the address that a datagram came from. When all are taken, a sender that has less gets one from the sender that has most.

use crate::agent::AgentId;
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;

/// An agent that was silent for this long gives its place to a new one, whoever has more, in nanoseconds. Agents send counters
/// every 20 to 30 s even without traffic.
const IDLE_NS: u64 = 60_000_000_000;

/// A sender gives sources away only if it has more than one in this many of all places. Several that need more than there is would
/// otherwise take them from one another for ever.
const LARGE_SHARE: usize = 10;

/// Limits of how many agents that give way are known at a time.
const YIELDING_MIN: usize = 64;
const YIELDING_MAX: usize = 4_096;

/// What one sender has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    pub(crate) agents: usize,
    pub(crate) sources: usize,
}

/// Something that there is a limited number of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Agent,
    Source,
}

/// The places for samplers and interfaces, and each sender's share of these and of agents.
pub(crate) struct Shares {
    sources_max: usize,
    agent_sources_max: usize,
    sources: usize,
    next: u32,
    by_sender: HashMap<IpAddr, Share, RandomState>,
    /// Whether somebody found no place for an agent, or for a source, since agents that give way were last looked for.
    is_short: [bool; 2],
    /// Whether there was no place for a source since the last call of [`take_want`](Self::take_want).
    wants_source: bool,
    /// Agents that give way, the first one last.
    yielding: [Vec<AgentId>; 2],
}

/// An agent as a candidate for giving way.
pub(crate) struct Candidate {
    pub(crate) id: AgentId,
    pub(crate) sender: IpAddr,
    pub(crate) heard_ns: u64,
}

impl Shares {
    pub(crate) fn new(sources_max: usize, agent_sources_max: usize) -> Shares {
        Shares {
            sources_max,
            agent_sources_max,
            sources: 0,
            next: 0,
            by_sender: HashMap::default(),
            is_short: [false; 2],
            wants_source: false,
            yielding: [Vec::new(), Vec::new()],
        }
    }

    /// Maximum memory for this many agents, in bytes.
    pub(crate) const fn memory_max_bytes(agents: usize) -> usize {
        let senders = (agents * (size_of::<(IpAddr, Share)>() + 1) * 16) / 7;
        let most = if agents < YIELDING_MAX { agents } else { YIELDING_MAX };
        senders + 3 * most * size_of::<(Reverse<usize>, u64, AgentId)>() * 2
    }

    pub(crate) fn set_max(&mut self, sources_max: usize, agent_sources_max: usize) {
        (self.sources_max, self.agent_sources_max) = (sources_max, agent_sources_max);
    }

    /// Maximum number of samplers and interfaces.
    pub(crate) fn sources_max(&self) -> usize {
        self.sources_max
    }

    pub(crate) fn of(&self, sender: IpAddr) -> Share {
        self.by_sender.get(&sender).copied().unwrap_or_default()
    }

    /// Counts an agent of a sender.
    pub(crate) fn add_agent(&mut self, sender: IpAddr) {
        self.by_sender.entry(sender).or_default().agents += 1;
    }

    /// Takes a place for a source of an agent that has `has` of them, with a number that is never reused. `None` when a limit is
    /// reached.
    pub(crate) fn take_source(&mut self, sender: IpAddr, has: usize) -> Option<u32> {
        if has >= self.agent_sources_max {
            return None;
        }
        if self.sources >= self.sources_max {
            self.is_short[Place::Source as usize] = true;
            self.wants_source = true;
            return None;
        }
        self.sources += 1;
        self.by_sender.entry(sender).or_default().sources += 1;
        self.next = self.next.wrapping_add(1);
        Some(self.next)
    }

    /// Notes that there is no place for an agent.
    pub(crate) fn note_short_of_agents(&mut self) {
        self.is_short[Place::Agent as usize] = true;
    }

    /// Whether there was no place for a source since the last call.
    pub(crate) fn take_want(&mut self) -> bool {
        std::mem::take(&mut self.wants_source)
    }

    /// Removes an agent with its sources.
    pub(crate) fn remove(&mut self, sender: IpAddr, sources: usize) {
        self.sources = self.sources.saturating_sub(sources);
        if let Some(share) = self.by_sender.get_mut(&sender) {
            share.agents = share.agents.saturating_sub(1);
            share.sources = share.sources.saturating_sub(sources);
            if share.agents == 0 {
                self.by_sender.remove(&sender);
            }
        }
    }

    /// Counts everything again: each agent's sender, and how many sources it has.
    pub(crate) fn recount(&mut self, agents: impl Iterator<Item = (IpAddr, usize)>) {
        self.sources = 0;
        self.by_sender.clear();
        for (sender, sources) in agents {
            let share = self.by_sender.entry(sender).or_default();
            share.agents += 1;
            share.sources += sources;
            self.sources += sources;
        }
    }

    /// Looks for agents that give way, if somebody found no place: those of the sender that has most, and of these the ones heard
    /// longest ago. Call it about once a second: it visits every agent.
    pub(crate) fn look(&mut self, agents_max: usize, agents: impl Fn(&mut dyn FnMut(Candidate))) {
        for place in [Place::Agent, Place::Source] {
            self.yielding[place as usize].clear();
            if !std::mem::take(&mut self.is_short[place as usize]) {
                continue;
            }
            let most = (agents_max / 16).clamp(YIELDING_MIN, YIELDING_MAX);
            // The top is the one that gives way last.
            let mut heap = BinaryHeap::new();
            agents(&mut |Candidate { id, sender, heard_ns }| {
                heap.push((Reverse(self.amount(place, sender)), heard_ns, id));
                if heap.len() > most {
                    heap.pop();
                }
            });
            let first_last = heap.into_sorted_vec().into_iter().rev().map(|(.., id)| id);
            self.yielding[place as usize].extend(first_last);
        }
    }

    /// The next agent that gives way to one of this sender, if any. `known` says what is known of an agent that still is there.
    pub(crate) fn next_yielding(
        &mut self,
        place: Place,
        sender: IpAddr,
        now_ns: u64,
        known: impl Fn(&AgentId) -> Option<Candidate>,
    ) -> Option<AgentId> {
        loop {
            let id = *self.yielding[place as usize].last()?;
            let Some(candidate) = known(&id) else {
                self.yielding[place as usize].pop();
                continue;
            };
            if candidate.sender == sender && place == Place::Source {
                return None;
            }
            if self.gives_way(place, &candidate, sender, now_ns) {
                self.yielding[place as usize].pop();
                return Some(id);
            }
            return None;
        }
    }

    fn gives_way(&self, place: Place, of: &Candidate, to: IpAddr, now_ns: u64) -> bool {
        let (has, newcomer) = (self.amount(place, of.sender), self.amount(place, to));
        let is_idle = now_ns.saturating_sub(of.heard_ns) >= IDLE_NS;
        let has_more = match place {
            Place::Agent => has > newcomer + 1,
            Place::Source => has > 2 * (newcomer + 1) && has > self.sources_max / LARGE_SHARE,
        };
        has_more || (is_idle && has >= newcomer)
    }

    fn amount(&self, place: Place, sender: IpAddr) -> usize {
        let Share { agents, sources } = self.of(sender);
        match place {
            Place::Agent => agents,
            Place::Source => sources,
        }
    }
}
