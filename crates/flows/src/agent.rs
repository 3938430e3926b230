//! One agent: its datagrams, its samplers, its interfaces.

use crate::definition::Traffic;
use crate::port::Port;
use crate::sampler::{Reading, Sampler, Worth};
use crate::sequence::{Seen, Sequence, SequenceTotals};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::net::IpAddr;
use wire::sflow::DataSource;

/// A clock that goes back further than this has begun anew: datagrams do not overtake each other by so much.
const BACK_MS: u32 = 5_000;

/// Who an agent is: by what it says, not by where its datagrams come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AgentId {
    /// Its address.
    pub address: IpAddr,
    /// Its part.
    pub sub_agent: u32,
}

/// How many samplers and interfaces there may be, over all agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) taken: usize,
    pub(crate) max: usize,
    next: u32,
}

impl Room {
    pub(crate) fn new(max: usize) -> Room {
        Room { taken: 0, max, next: 0 }
    }

    /// A place, with a number that no other ever has.
    fn take(&mut self) -> Option<u32> {
        if self.taken >= self.max {
            return None;
        }
        self.taken += 1;
        self.next = self.next.wrapping_add(1);
        Some(self.next)
    }
}

/// One sampler of an agent.
#[derive(Clone, Debug)]
struct Numbered {
    /// The same for all samples of the sampler, and no other's.
    number: u32,
    /// The sampler.
    sampler: Sampler,
    /// When its last sample came.
    heard_ns: u64,
}

/// One agent, or part of one.
#[derive(Clone, Debug)]
pub struct Agent {
    sequence: Sequence,
    uptime_ms: u32,
    first_ns: u64,
    heard_ns: u64,
    /// Milliseconds between two datagrams, averaged.
    ms_for_each: f64,
    samplers: HashMap<(Traffic, DataSource), Numbered, RandomState>,
    ports: HashMap<u32, Port, RandomState>,
}

impl Agent {
    /// One that is heard for the first time.
    pub(crate) fn new(now_ns: u64) -> Agent {
        Agent {
            sequence: Sequence::default(),
            uptime_ms: 0,
            first_ns: now_ns,
            heard_ns: now_ns,
            ms_for_each: 0.0,
            samplers: HashMap::default(),
            ports: HashMap::default(),
        }
    }

    /// The most bytes that so many agents with so many samplers and interfaces take. A hash table has up to 16 places for 7 entries, and
    /// at least four.
    pub(crate) const fn memory_max_bytes(agents: usize, sources: usize) -> usize {
        let agent = size_of::<(AgentId, Agent)>() + 1;
        let source = size_of::<(u32, Port)>();
        let sampler = size_of::<((Traffic, DataSource), Numbered)>();
        let larger = if source > sampler { source } else { sampler };
        let each = agent + 4 * (source + sampler + 2);
        (agents * each * 7 + (agents * agent + sources * (larger + 1)) * 16) / 7
    }

    /// Datagrams by their numbers. What is lost here was lost on the network or at our socket.
    pub fn datagrams(&self) -> SequenceTotals {
        self.sequence.totals()
    }

    /// When it was first heard.
    pub fn first_ns(&self) -> u64 {
        self.first_ns
    }

    /// When it was last heard.
    pub fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// Its clock in its last datagram, in milliseconds since it started.
    pub fn uptime_ms(&self) -> u32 {
        self.uptime_ms
    }

    /// Its samplers, in no order.
    pub fn samplers(&self) -> impl Iterator<Item = (Traffic, DataSource, &Sampler)> {
        self.samplers.iter().map(|((traffic, source), one)| (*traffic, *source, &one.sampler))
    }

    /// Its interfaces by index, in no order.
    pub fn ports(&self) -> impl Iterator<Item = (u32, &Port)> {
        self.ports.iter().map(|(index, port)| (*index, port))
    }

    /// Samplers and interfaces.
    pub(crate) fn sources(&self) -> usize {
        self.samplers.len() + self.ports.len()
    }

    /// Takes the header of a datagram.
    pub(crate) fn hear(&mut self, sequence: u32, uptime_ms: u32, now_ns: u64) -> Seen {
        let is_first = self.sequence.totals().received == 0;
        let back_ms = self.uptime_ms.wrapping_sub(uptime_ms);
        let is_restart = !is_first && (BACK_MS..=u32::MAX / 2).contains(&back_ms);
        if is_restart {
            self.sequence.restart();
            self.samplers.values_mut().for_each(|one| one.sampler.restart());
            self.ports.values_mut().for_each(Port::restart);
        }

        let silent_ms = now_ns.saturating_sub(self.heard_ns) as f64 / 1e6;
        let usual = if self.ms_for_each > 0.0 { silent_ms / self.ms_for_each } else { 0.0 };
        let seen = self.sequence.take(sequence, (4.0 * usual) as u32);
        if let Some(numbers @ 1..) = seen.advance() {
            let each = silent_ms / f64::from(numbers);
            self.ms_for_each += (each - self.ms_for_each) / 16.0;
        }
        self.heard_ns = now_ns;
        if !matches!(seen, Seen::Late | Seen::Duplicate | Seen::Strange) {
            self.uptime_ms = uptime_ms;
        }
        seen
    }

    /// Forgets samplers and interfaces that were not heard of since `before_ns`. The numbers of these samplers go to `gone`.
    pub(crate) fn forget(&mut self, before_ns: u64, gone: &mut Vec<u32>) {
        self.samplers.retain(|_, one| {
            let is_heard = one.heard_ns >= before_ns;
            if !is_heard {
                gone.push(one.number);
            }
            is_heard
        });
        self.ports.retain(|_, port| port.heard_ns() >= before_ns);
    }

    /// What a sample is worth, with the number of its sampler, and how many samples the agent lost since the one before. `None`: it would be a new one, and there is no room.
    pub(crate) fn weigh(
        &mut self,
        source: DataSource,
        traffic: Traffic,
        reading: Reading,
        room: &mut Room,
    ) -> Option<(u32, Worth, u64)> {
        let heard_ns = self.heard_ns;
        if let Some(one) = self.samplers.get_mut(&(traffic, source)) {
            one.heard_ns = heard_ns;
            let before = one.sampler.totals().agent_dropped;
            let worth = one.sampler.take(reading);
            return Some((one.number, worth, one.sampler.totals().agent_dropped - before));
        }
        let number = room.take()?;
        let (sampler, worth) = Sampler::begin(reading);
        self.samplers.insert((traffic, source), Numbered { number, sampler, heard_ns });
        Some((number, worth, 0))
    }

    /// An interface whose counters are known, to look at.
    pub fn port_of(&self, index: u32) -> Option<&Port> {
        self.ports.get(&index)
    }

    /// An interface whose counters are known.
    pub(crate) fn port(&mut self, index: u32) -> Option<&mut Port> {
        self.ports.get_mut(&index)
    }

    /// An interface. `None`: it would be a new one, and there is no room.
    pub(crate) fn port_or_new(&mut self, index: u32, room: &mut Room) -> Option<&mut Port> {
        if !self.ports.contains_key(&index) {
            room.take()?;
        }
        let port = self.ports.entry(index).or_default();
        port.hear(self.heard_ns);
        Some(port)
    }
}
