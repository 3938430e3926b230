//! An engine with its thresholds: what the daemon and `weir flows` run.

use crate::agent::AgentId;
use crate::definition::{Counting, Definition};
use crate::engine::{Engine, Limits, NO_ADDRESS, Taken};
use crate::estimate::Estimate;
use crate::event::{Event, EventLog, Subject};
use crate::field::Value;
use crate::lookup::Groups;
use crate::port::{Port, PortRates};
use crate::portion::Told;
use crate::threshold::{Change, Passed, Threshold, Watch};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A moment, by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// By the clock of figures, which does not go back, in nanoseconds.
    pub clock_ns: u64,
    /// Since 1970, in nanoseconds.
    pub unix_ns: u64,
}

/// What a threshold is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched {
    /// The rate of each flow of the definition of this name.
    Flow(String),
    /// A figure of each interface.
    Port(PortFigure),
}

/// A figure of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortFigure {
    /// Bits in, per second.
    InBits,
    /// Bits out, per second.
    OutBits,
    /// Frames in, per second.
    InFrames,
    /// Frames out, per second.
    OutFrames,
    /// Discards in and out, per second.
    Discards,
    /// Broken frames in and out, per second.
    Errors,
    /// Bits in, as a share of the interface's speed.
    InUse,
    /// Bits out, as a share of the interface's speed.
    OutUse,
}

impl PortFigure {
    /// The figure, if the interface said enough.
    pub fn of(self, port: &Port) -> Option<f64> {
        let PortRates { input, output, .. } = port.rates()?;
        let both =
            |a: Option<f64>, b: Option<f64>| a.or(b).map(|_| a.unwrap_or(0.0) + b.unwrap_or(0.0));
        let share = |bits: Option<f64>| {
            let speed = port.counters()?.speed_bits_per_sec;
            bits.filter(|_| speed > 0).map(|bits| bits / speed as f64)
        };
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

struct Watching {
    of: Watched,
    name: Arc<str>,
    watch: Watch,
    /// The keys that are above, with the numbers of the events that said so.
    raised: HashMap<Box<[u8]>, u64>,
}

/// An engine, its thresholds, and what they told.
pub struct Analysis {
    engine: Engine,
    watching: Vec<Watching>,
    events: EventLog,
    passed: Vec<Passed>,
}

impl Analysis {
    /// Without thresholds; keeps the last `events_max` events.
    pub fn new(engine: Engine, events_max: usize) -> Analysis {
        Analysis {
            engine,
            watching: Vec::new(),
            events: EventLog::new(events_max),
            passed: Vec::new(),
        }
    }

    /// The figures.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the thresholds told.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// The thresholds, in the order in which they came.
    pub fn thresholds(&self) -> impl Iterator<Item = (&Watched, &Watch)> {
        self.watching.iter().map(|one| (&one.of, &one.watch))
    }

    /// The definition of this name with its flows.
    pub fn counting(&self, name: &str) -> Option<&Counting> {
        self.engine.counting().iter().find(|one| one.definition().name == name)
    }

    /// Begins to count by a definition, in the place of one of the same name. One that is the same goes on with its flows.
    pub fn define(&mut self, definition: Definition) {
        self.engine.define(definition);
    }

    /// Counts no longer by the definition of this name. Returns whether there was one.
    pub fn undefine(&mut self, name: &str) -> bool {
        self.engine.undefine(name)
    }

    /// Keeps the last `events_max` events from now on.
    pub fn set_events_max(&mut self, events_max: usize) {
        self.events.set_max(events_max);
    }

    /// Changes what the engine may hold, and which interfaces are no edge: see [`Engine::set_limits`].
    pub fn set_limits(&mut self, limits: Limits, internal: HashSet<(IpAddr, u32)>) {
        self.engine.set_limits(limits, internal);
    }

    /// Exchanges the groups that keys and filters name. Definitions that name them are to be defined anew, since groups are numbers there.
    pub fn set_groups(&mut self, groups: Groups) {
        self.engine.set_groups(groups);
    }

    /// Watches a figure, in the place of a threshold of the same name. One that is the same goes on with what is above it.
    pub fn watch(&mut self, of: Watched, threshold: Threshold) {
        let same =
            self.watching.iter().any(|one| one.of == of && *one.watch.threshold() == threshold);
        if same {
            return;
        }
        self.unwatch(&threshold.name);
        let name = threshold.name.as_str().into();
        self.watching.push(Watching {
            of,
            name,
            watch: Watch::new(threshold),
            raised: HashMap::new(),
        });
    }

    /// Watches the threshold of this name no longer. Returns whether there was one.
    pub fn unwatch(&mut self, name: &str) -> bool {
        let before = self.watching.len();
        self.watching.retain(|one| &*one.name != name);
        self.watching.len() < before
    }

    /// Tells of flows from now on: see [`Engine::tell_every`].
    pub fn tell_every(&mut self, every: Duration) {
        self.engine.tell_every(every);
    }

    /// Tells everything that is untold.
    pub fn tell_all(&mut self, told: &mut impl Told) {
        self.engine.tell_all(told);
    }

    /// Takes a datagram: see [`Engine::datagram`].
    pub fn datagram(
        &mut self,
        bytes: &[u8],
        source: IpAddr,
        clock_ns: u64,
        told: &mut impl Told,
    ) -> Taken {
        self.engine.datagram(bytes, source, clock_ns, told)
    }

    /// Ends flows, forgets agents, and looks at every threshold. To be called every 100 ms or so. Returns whether there are new events.
    pub fn tick(&mut self, now: Moment, told: &mut impl Told) -> bool {
        self.engine.tick(now.clock_ns, told);
        let before = self.events.last_id();
        for one in &mut self.watching {
            one.look(&self.engine, now, &mut self.passed);
            for passed in self.passed.drain(..) {
                let event = one.event(&self.engine, now, &self.events, passed);
                self.events.push(event);
            }
        }
        self.events.last_id() > before
    }
}

impl Watching {
    fn look(&mut self, engine: &Engine, now: Moment, passed: &mut Vec<Passed>) {
        let now_ns = now.clock_ns;
        match &self.of {
            Watched::Flow(name) => {
                let counting = engine.counting().iter().find(|one| one.definition().name == *name);
                let rates = counting.into_iter().flat_map(|one| one.rates(now_ns));
                self.watch.look(now_ns, rates, passed);
            }
            Watched::Port(figure) => {
                for (id, agent) in engine.agents() {
                    for (index, port) in agent.ports() {
                        if let Some(value) = figure.of(port) {
                            self.watch.figure(now_ns, &port_key(id, index), sure(value), passed);
                        }
                    }
                }
                self.watch.end_look(now_ns, passed);
            }
        }
    }

    /// What happened, as an event with the log's next number.
    fn event(&mut self, engine: &Engine, now: Moment, log: &EventLog, passed: Passed) -> Event {
        let Passed { change, key, figure, peak, raised_ns, at_ns } = passed;
        let id = log.next_id();
        let subject = self.subject(engine, &key);
        let raised_id = match change {
            Change::Raised => {
                self.raised.insert(key, id);
                id
            }
            Change::Cleared => self.raised.remove(&key).unwrap_or(id),
        };
        Event {
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
        }
    }

    fn subject(&self, engine: &Engine, key: &[u8]) -> Subject {
        let Watched::Flow(name) = &self.of else { return port_subject(key) };
        let counting = engine.counting().iter().find(|one| one.definition().name == *name);
        let values = counting.map(|one| one.values(key)).unwrap_or_default();
        let words = counting.into_iter().flat_map(|one| &one.definition().keys);
        let shown = words
            .zip(&values)
            .map(|(part, value)| (part.word(), part.shown(*value, engine.groups())))
            .collect();
        Subject::Flow { definition: name.as_str().into(), key: values, shown }
    }
}

/// A figure that is no estimate.
fn sure(value: f64) -> Estimate {
    Estimate { value, low: value, high: value }
}

/// Bytes that tell interfaces apart: the agent's address, its part, the index.
fn port_key(id: &AgentId, if_index: u32) -> [u8; Value::KEY_LEN + 8] {
    let mut key = [0; Value::KEY_LEN + 8];
    let (address, rest) = key.split_at_mut(Value::KEY_LEN);
    if let Some(place) = address.first_chunk_mut() {
        Value::Address(id.address).write(place);
    }
    rest[..4].copy_from_slice(&id.sub_agent.to_be_bytes());
    rest[4..].copy_from_slice(&if_index.to_be_bytes());
    key
}

/// The interface of a key that [`port_key`] made.
fn port_subject(key: &[u8]) -> Subject {
    let number = |at: usize| {
        let bytes = key.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let agent = match key.first_chunk().map(Value::read) {
        Some(Value::Address(address)) => address,
        _ => NO_ADDRESS,
    };
    let (sub_agent, if_index) = (number(Value::KEY_LEN), Some(number(Value::KEY_LEN + 4)));
    Subject::Source { agent, sub_agent, if_index }
}

#[cfg(test)]
mod tests;
