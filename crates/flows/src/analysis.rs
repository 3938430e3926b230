//! An engine with its thresholds: what the daemon and `weir flows` run.

mod watching;

pub use watching::{AgentFigure, PortFigure, Watched};

use crate::counting::Counting;
use crate::definition::Definition;
use crate::engine::{Changed, Engine, Limits, Taken};
use crate::event::{Event, EventLog};
use crate::lookup::{Author, Groups};
use crate::portion::Told;
use crate::threshold::{Passed, Threshold, Watch};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use watching::Watching;

/// A moment, on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// On the clock of figures, which never goes back, in nanoseconds.
    pub clock_ns: u64,
    /// Since 1970, in nanoseconds.
    pub unix_ns: u64,
}

/// An engine with its thresholds and their events.
pub struct Analysis {
    engine: Engine,
    watching: Vec<Watching>,
    /// Thresholds that are no longer watched, with that still to be reported.
    leaving: Vec<Watching>,
    events: EventLog,
    passed: Vec<Passed>,
}

impl Analysis {
    /// An analysis without thresholds that keeps the last `events_max` events.
    pub fn new(engine: Engine, events_max: usize) -> Analysis {
        Analysis {
            engine,
            watching: Vec::new(),
            leaving: Vec::new(),
            events: EventLog::new(events_max),
            passed: Vec::new(),
        }
    }

    /// The engine, with its figures.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The events of the thresholds.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// The thresholds, in the order in which they were added.
    pub fn thresholds(&self) -> impl Iterator<Item = (&Watched, &Watch)> {
        self.watching.iter().map(|one| (&one.of, &one.watch))
    }

    /// The events of everything above a threshold now, in no particular order.
    pub fn raised(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.watching.iter().flat_map(Watching::raised)
    }

    /// Samples of flows that no threshold examined because too many others were above the lowest threshold:
    /// [`Counting::hot_missed`] over all definitions.
    pub fn hot_missed(&self) -> u64 {
        self.engine.counting().iter().map(Counting::hot_missed).sum()
    }

    /// The definition with this name, and its flows.
    pub fn counting(&self, name: &str) -> Option<&Counting> {
        self.engine.counting().iter().find(|one| one.definition().name == name)
    }

    /// Starts counting by a definition, replacing one with the same name. An identical one keeps its flows. Otherwise its
    /// thresholds start over, and what was above them is cleared.
    pub fn define(&mut self, definition: Definition, author: Author) {
        let former = self.counting(&definition.name);
        let is_same = |one: &Counting| *one.definition() == definition && one.author() == author;
        if former.is_some_and(|former| !is_same(former)) {
            self.begin_anew(&definition.name);
        }
        self.engine.define(definition, author);
    }

    /// Stops counting by the definition with this name. Returns whether there was one.
    pub fn undefine(&mut self, name: &str) -> bool {
        self.begin_anew(name);
        self.engine.undefine(name)
    }

    /// Keeps the last `events_max` events from now on.
    pub fn set_events_max(&mut self, events_max: usize) {
        self.events.set_max(events_max);
    }

    /// Changes what the engine may hold, and which interfaces are not at the edge: see [`Engine::set_limits`].
    pub fn set_limits(&mut self, limits: Limits, internal: HashSet<(IpAddr, u32)>) {
        self.engine.set_limits(limits, internal);
    }

    fn begin_anew(&mut self, flow: &str) {
        for one in self.watching.iter_mut().filter(|one| one.is_of_flow(flow)) {
            let (of, threshold) = (one.of.clone(), one.watch.threshold().clone());
            let next = Watching::new(of, Watch::new(threshold));
            self.leaving.push(std::mem::replace(one, next));
        }
    }

    /// Replaces the files that locate addresses: see [`Engine::set_places`].
    pub fn set_places(&mut self, of: &Groups) {
        self.engine.set_places(of);
    }

    /// Replaces the groups that keys and filters of this author's definitions name. Counts refer to groups by number: if a group's
    /// number changes, definitions with groups in their keys start over. Definitions whose filters name groups must be defined
    /// again.
    pub fn set_groups(&mut self, groups: Groups, author: Author) {
        if !groups.continues(self.engine.groups_of(author)) {
            let theirs = self.engine.counting().iter().filter(|one| one.author() == author);
            let definitions = theirs.map(Counting::definition);
            let stale = definitions.filter(|one| one.has_groups_in_keys()).cloned();
            for definition in stale.collect::<Vec<_>>() {
                self.begin_anew(&definition.name);
                self.engine.begin_anew(definition);
            }
        }
        self.engine.set_groups(groups, author);
    }

    /// Watches a figure, replacing a threshold with the same name. An identical one keeps what is above it; otherwise, what was
    /// above the old one is cleared.
    pub fn watch(&mut self, of: Watched, threshold: Threshold) {
        let is_same = |one: &Watching| one.of == of && *one.watch.threshold() == threshold;
        if !self.watching.iter().any(is_same) {
            self.unwatch(&threshold.name);
            self.watching.push(Watching::new(of, Watch::new(threshold)));
        }
    }

    /// Stops watching the threshold with this name, and clears what was above it. Returns whether there was one.
    pub fn unwatch(&mut self, name: &str) -> bool {
        let at = self.watching.iter().position(|one| one.watch.threshold().name == name);
        self.leaving.extend(at.map(|at| self.watching.remove(at)));
        at.is_some()
    }

    /// Reports flows from now on: see [`Engine::tell_every`].
    pub fn tell_every(&mut self, every: Duration) {
        self.engine.tell_every(every);
    }

    /// Reports everything not reported yet.
    pub fn tell_all(&mut self, told: &mut impl Told) {
        self.engine.tell_all(told);
    }

    /// Processes a datagram: see [`Engine::datagram`].
    pub fn datagram(
        &mut self,
        bytes: &[u8],
        source: IpAddr,
        clock_ns: u64,
        told: &mut impl Told,
    ) -> Taken {
        self.engine.datagram(bytes, source, clock_ns, told)
    }

    /// Ends flows, forgets agents, and checks every threshold. Call it about every 100 ms. Returns whether there are new events.
    pub fn tick(&mut self, now: Moment, told: &mut impl Told) -> bool {
        self.engine.tick(now.clock_ns, told);
        let before = self.events.last_id();
        self.watch_rates(now.clock_ns);
        let changed = self.take_changed();

        // Everything stays in its place: a panic at one threshold loses no other.
        let Analysis { engine, watching, leaving, events, passed } = self;
        while !leaving.is_empty() {
            let mut one = leaving.remove(0);
            one.watch.release(now.clock_ns, passed);
            tell(&mut one, (engine, events), now, passed);
        }
        for one in watching {
            one.look(engine, &changed, now, passed);
            tell(one, (engine, events), now, passed);
        }
        self.events.last_id() > before
    }

    /// Makes each definition track the flows that may concern a threshold: those above a clear rate, and those that are half way to
    /// a limit, so that something is known about them when they get there.
    fn watch_rates(&mut self, now_ns: u64) {
        for counting in self.engine.counting_mut() {
            let name = counting.definition().name.as_str();
            let watches = self.watching.iter().filter(|one| one.is_of_flow(name));
            let levels = watches.map(|one| one.watch.threshold());
            let least = levels.map(|one| one.clear.min(one.limit / 2.0));
            let least = least.fold(f64::INFINITY, f64::min);
            counting.watch(least, now_ns);
        }
    }

    fn take_changed(&mut self) -> Changed {
        if self.watching.iter().any(|one| matches!(one.of, Watched::Port(_))) {
            return self.engine.take_changed();
        }
        self.engine.forget_changed();
        Changed::Unwatched
    }
}

/// Turns `passed` into events.
fn tell(
    one: &mut Watching,
    (engine, events): (&Engine, &mut EventLog),
    now: Moment,
    passed: &mut Vec<Passed>,
) {
    for passed in passed.drain(..) {
        events.push(one.event(events.next_id(), engine, now, passed));
    }
}

#[cfg(test)]
mod tests;
