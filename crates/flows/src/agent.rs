//! One agent: its datagrams, its samplers, its interfaces.

use crate::allowance::Allowance;
use crate::definition::{Direction, Traffic};
use crate::discrepancy::{Discrepancies, Discrepancy};
use crate::port::Port;
use crate::sampler::{Reading, Sampler, Worth};
use crate::sequence::{Seen, Sequence, SequenceTotals};
use crate::share::Shares;
use crate::source::Source;
use crate::twins::Twins;
use crate::vantage::{SIDES, vantages};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// A clock that goes back by more than this has restarted, in milliseconds: datagrams are never reordered by that much.
const BACK_MS: u32 = 5_000;

/// Length of a period of the recent loss, in nanoseconds: the loss covers one to two periods.
const RECENT_NS: u64 = 10_000_000_000;

/// Identity of an agent: what it says in its datagrams, not their source address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AgentId {
    /// The agent's address.
    pub address: IpAddr,
    /// The sub-agent.
    pub sub_agent: u32,
}

/// Datagrams of an agent that more than one sender's whim stands behind, and the time between the first and the last.
const ESTABLISHED_DATAGRAMS: u64 = 5;
const ESTABLISHED_NS: u64 = 100_000_000;

/// One sampler of an agent.
#[derive(Clone, Debug)]
struct Numbered {
    /// A unique number, the same for all samples of the sampler.
    number: u32,
    /// The sampler.
    sampler: Sampler,
    /// What its samples may stand for.
    allowance: Allowance,
    /// When its last sample arrived.
    heard_ns: u64,
    /// When it is to be noted again that it takes frames, by their direction.
    next_note_ns: [u64; SIDES],
}

/// How an agent's statements agree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statements {
    /// Where they do not.
    pub(crate) discrepancies: Discrepancies,
    /// Frames whose length is more than what was sampled of them.
    pub(crate) long: u64,
    /// Frames whose length is less than that of their packet.
    pub(crate) short: u64,
}

/// An agent states lengths of frames if at least one in this many of those that could show it does.
const SHORT_MAX: u64 = 64;

impl Statements {
    /// Whether the agent states the length of what it sampled instead of that of the frame.
    pub(crate) fn is_length_of_sample(&self) -> bool {
        self.long.saturating_mul(SHORT_MAX) < self.short
    }
}

/// A sample's sampler, with what the sample is worth.
pub(crate) struct Weighed<'a> {
    pub(crate) statements: &'a mut Statements,
    /// `None` when the sampler is new and there is no room for it.
    pub(crate) known: Option<Known<'a>>,
    /// The interface whose frames it samples, if its counters are known.
    pub(crate) port: Option<&'a mut Port>,
}

/// A sampler that has a place.
pub(crate) struct Known<'a> {
    /// The number of the sampler.
    pub(crate) number: u32,
    pub(crate) worth: Worth,
    /// Samples that the agent lost since the previous one.
    pub(crate) dropped: u64,
    pub(crate) allowance: &'a mut Allowance,
    /// When it is to be noted again that it takes frames, by their direction.
    pub(crate) next_note_ns: &'a mut [u64; SIDES],
    /// Whether its source has several samplers that number their samples separately.
    pub(crate) is_shared: bool,
    /// Whether the pool says what its samples stand for.
    pub(crate) has_pool: bool,
}

/// One agent or sub-agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The address from which it was first heard.
    sender: IpAddr,
    /// The place of its device, and the number of the device's first vantage.
    device: (u32, u32),
    sequence: Sequence,
    uptime_ms: u32,
    first_ns: u64,
    heard_ns: u64,
    /// Average number of milliseconds between two datagrams.
    ms_for_each: f64,
    /// Datagram totals as of one and two periods ago, and when the current period began.
    periods: [SequenceTotals; 2],
    period_ns: u64,
    statements: Statements,
    /// The last sender, and what each has sent since there was another.
    last_sender: IpAddr,
    twins: Option<Box<Twins>>,
    samplers: HashMap<(Traffic, Source), Numbered, RandomState>,
    ports: HashMap<u32, Port, RandomState>,
}

impl Agent {
    /// An agent heard for the first time, from this address, as a part of this device.
    pub(crate) fn new(sender: IpAddr, device: (u32, u32), now_ns: u64) -> Agent {
        Agent {
            sender,
            device,
            sequence: Sequence::default(),
            uptime_ms: 0,
            first_ns: now_ns,
            heard_ns: now_ns,
            ms_for_each: 0.0,
            periods: [SequenceTotals::default(); 2],
            period_ns: now_ns,
            statements: Statements::default(),
            last_sender: sender,
            twins: None,
            samplers: HashMap::default(),
            ports: HashMap::default(),
        }
    }

    /// Maximum memory of `agents` agents with `sources` samplers and interfaces, in bytes. A hash table has up to 16 slots for 7
    /// entries, and at least four.
    pub(crate) const fn memory_max_bytes(agents: usize, sources: usize) -> usize {
        let agent = size_of::<(AgentId, Agent)>() + 1;
        let source = size_of::<(u32, Port)>();
        let sampler = size_of::<((Traffic, Source), Numbered)>();
        let larger = if source > sampler { source } else { sampler };
        let each = agent + size_of::<Twins>() + 4 * (source + sampler + 2);
        let agents_bytes = (agents * each * 7 + (agents * agent + sources * (larger + 1)) * 16) / 7;
        agents_bytes + Shares::memory_max_bytes(agents)
    }

    /// Datagrams by sequence number. Those lost were lost on the network or at our socket.
    pub fn datagrams(&self) -> SequenceTotals {
        self.sequence.totals()
    }

    /// Share of its datagrams in the last 10 to 20 s that did not arrive. `None` if there were none.
    pub fn recent_loss(&self) -> Option<f64> {
        let [_, before] = self.periods;
        let now = self.sequence.totals();
        // A late datagram takes back a loss that may belong to the previous period.
        let lost = now.lost.saturating_sub(before.lost);
        let sent = now.received.saturating_sub(before.received) + lost;
        (sent > 0).then(|| lost as f64 / sent as f64)
    }

    /// Starts a new period of the recent loss when it is time.
    pub(crate) fn turn(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.period_ns) >= RECENT_NS {
            self.period_ns = now_ns;
            self.periods = [self.sequence.totals(), self.periods[0]];
        }
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

    /// Where its statements contradict one another.
    pub fn discrepancies(&self) -> &Discrepancies {
        &self.statements.discrepancies
    }

    /// Its samplers, in no particular order.
    pub fn samplers(&self) -> impl Iterator<Item = (Traffic, Source, &Sampler)> {
        self.samplers.iter().map(|((traffic, source), one)| (*traffic, *source, &one.sampler))
    }

    /// The numbers that figures use for its vantages: what all ports of all agents with its address see, by direction.
    pub fn vantages(&self) -> impl Iterator<Item = u32> {
        vantages(self.device.1)
    }

    /// The vantage of its samples in this direction.
    pub(crate) fn vantage(&self, direction: Direction) -> u32 {
        self.device.1 + direction as u32
    }

    /// The place of its device.
    pub(crate) fn place(&self) -> u32 {
        self.device.0
    }

    /// Its interfaces by index, in no particular order.
    pub fn ports(&self) -> impl Iterator<Item = (u32, &Port)> {
        self.ports.iter().map(|(index, port)| (*index, port))
    }

    /// The address from which it was first heard.
    pub(crate) fn sender(&self) -> IpAddr {
        self.sender
    }

    /// Whether it was heard often enough, and for long enough, that it is more than a datagram that says so.
    pub(crate) fn is_established(&self) -> bool {
        self.datagrams().received >= ESTABLISHED_DATAGRAMS
            && self.heard_ns.saturating_sub(self.first_ns) >= ESTABLISHED_NS
    }

    /// Number of samplers and interfaces.
    pub(crate) fn sources(&self) -> usize {
        self.samplers.len() + self.ports.len()
    }

    /// Notes who sent its next datagram. Returns whether the one before came from another address.
    #[inline]
    pub(crate) fn has_moved(&mut self, sender: IpAddr) -> bool {
        let has_moved = sender != self.last_sender;
        if has_moved {
            self.last_sender = sender;
            self.statements.discrepancies.note(Discrepancy::Senders);
            self.twins.get_or_insert_with(|| Box::new(Twins::new()));
        }
        has_moved
    }

    /// Whether a datagram is one of another agent with the same address.
    #[inline]
    pub(crate) fn is_of_another(&mut self, sender: IpAddr, number: u32, bytes: &[u8]) -> bool {
        let Some(twins) = &mut self.twins else { return false };
        twins.note(self.sender, sender, number, bytes)
    }

    /// Processes the header of a datagram.
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

    /// Forgets samplers and interfaces that were not heard since `before_ns`.
    pub(crate) fn forget(&mut self, before_ns: u64) {
        self.samplers.retain(|_, one| one.heard_ns >= before_ns);
        self.ports.retain(|_, port| port.heard_ns() >= before_ns);
    }

    /// What a sample is worth, and its sampler.
    #[inline]
    pub(crate) fn weigh(
        &mut self,
        source: Source,
        traffic: Traffic,
        reading: Reading,
        shares: &mut Shares,
    ) -> Weighed<'_> {
        let (heard_ns, has) = (self.heard_ns, self.sources());
        let port = source.if_index().and_then(|index| self.ports.get_mut(&index));
        let known = match self.samplers.entry((traffic, source)) {
            Entry::Occupied(one) => {
                let one = one.into_mut();
                one.heard_ns = heard_ns;
                let before = one.sampler.agent_dropped();
                let worth = one.sampler.take(reading);
                let dropped = one.sampler.agent_dropped() - before;
                let (is_shared, has_pool) = (one.sampler.is_shared(), one.sampler.has_pool());
                let Numbered { number, allowance, next_note_ns, .. } = one;
                let number = *number;
                Some(Known { number, worth, dropped, allowance, next_note_ns, is_shared, has_pool })
            }
            Entry::Vacant(place) => shares.take_source(self.sender, has).map(|number| {
                let (sampler, worth) = Sampler::begin(reading);
                let (allowance, next_note_ns) = (Allowance::default(), [0; SIDES]);
                let one = Numbered { number, sampler, allowance, heard_ns, next_note_ns };
                let Numbered { allowance, next_note_ns, .. } = place.insert(one);
                let (dropped, is_shared, has_pool) = (0, false, false);
                Known { number, worth, dropped, allowance, next_note_ns, is_shared, has_pool }
            }),
        };
        Weighed { statements: &mut self.statements, known, port }
    }

    /// One of its interfaces.
    pub fn port_of(&self, index: u32) -> Option<&Port> {
        self.ports.get(&index)
    }

    /// One of its interfaces.
    pub(crate) fn port_mut(&mut self, index: u32) -> Option<&mut Port> {
        self.ports.get_mut(&index)
    }

    /// An interface, and what the agent's statements are compared in. `None` when it is new and there is no room for it.
    pub(crate) fn port_or_new(
        &mut self,
        index: u32,
        shares: &mut Shares,
    ) -> Option<(&mut Port, &mut Statements)> {
        if !self.ports.contains_key(&index) {
            shares.take_source(self.sender, self.sources())?;
        }
        let port = self.ports.entry(index).or_default();
        port.hear(self.heard_ns);
        Some((port, &mut self.statements))
    }
}
