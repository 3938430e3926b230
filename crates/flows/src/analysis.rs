//! An engine with its thresholds: what the daemon and `weir flows` run.

mod watching;

pub use watching::{AgentFigure, PortFigure, Watched};

use crate::counting::Counting;
use crate::definition::Definition;
use crate::engine::{Changed, Engine, Limits, Taken};
use crate::event::{Event, EventLog};
use crate::lookup::Groups;
use crate::portion::Told;
use crate::threshold::{Passed, Threshold, Watch};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use watching::Watching;

/// A moment, by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// By the clock of figures, which does not go back, in nanoseconds.
    pub clock_ns: u64,
    /// Since 1970, in nanoseconds.
    pub unix_ns: u64,
}

/// An engine, its thresholds, and what they told.
pub struct Analysis {
    engine: Engine,
    watching: Vec<Watching>,
    /// Thresholds that are watched no longer, and of which that is still to be told.
    leaving: Vec<Watching>,
    events: EventLog,
    passed: Vec<Passed>,
}

impl Analysis {
    /// Without thresholds; keeps the last `events_max` events.
    pub fn new(engine: Engine, events_max: usize) -> Analysis {
        Analysis {
            engine,
            watching: Vec::new(),
            leaving: Vec::new(),
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

    /// The events of what is above a threshold now, in no order.
    pub fn raised(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.watching.iter().flat_map(Watching::raised)
    }

    /// Samples of flows that no threshold looked at, because too many others were above the lowest one: [`Counting::hot_missed`] of all
    /// definitions.
    pub fn hot_missed(&self) -> u64 {
        self.engine.counting().iter().map(Counting::hot_missed).sum()
    }

    /// The definition of this name with its flows.
    pub fn counting(&self, name: &str) -> Option<&Counting> {
        self.engine.counting().iter().find(|one| one.definition().name == name)
    }

    /// Begins to count by a definition, in the place of one of the same name. One that is the same goes on with its flows; with another,
    /// thresholds begin anew, and what was above them is cleared.
    pub fn define(&mut self, definition: Definition) {
        let former = self.counting(&definition.name).map(Counting::definition);
        if former.is_some_and(|former| *former != definition) {
            self.begin_anew(&definition.name);
        }
        self.engine.define(definition);
    }

    /// Counts no longer by the definition of this name. Returns whether there was one.
    pub fn undefine(&mut self, name: &str) -> bool {
        self.begin_anew(name);
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

    fn begin_anew(&mut self, flow: &str) {
        for one in self.watching.iter_mut().filter(|one| one.is_of_flow(flow)) {
            let (of, threshold) = (one.of.clone(), one.watch.threshold().clone());
            let next = Watching::new(of, Watch::new(threshold));
            self.leaving.push(std::mem::replace(one, next));
        }
    }

    /// Exchanges the files that say where addresses are: see [`Engine::set_places`].
    pub fn set_places(&mut self, of: &Groups) {
        self.engine.set_places(of);
    }

    /// Exchanges the groups that keys and filters name. Groups are numbers in what was counted: where one has another number now, definitions with groups
    /// in their keys begin anew. Those that name groups in their filters are to be defined anew.
    pub fn set_groups(&mut self, groups: Groups) {
        if !groups.continues(self.engine.groups()) {
            let definitions = self.engine.counting().iter().map(Counting::definition);
            let stale = definitions.filter(|one| one.has_groups_in_keys()).cloned();
            for definition in stale.collect::<Vec<_>>() {
                self.begin_anew(&definition.name);
                self.engine.begin_anew(definition);
            }
        }
        self.engine.set_groups(groups);
    }

    /// Watches a figure, in the place of a threshold of the same name. One that is the same goes on with what is above it; of another, what
    /// was above is cleared.
    pub fn watch(&mut self, of: Watched, threshold: Threshold) {
        let is_same = |one: &Watching| one.of == of && *one.watch.threshold() == threshold;
        if !self.watching.iter().any(is_same) {
            self.unwatch(&threshold.name);
            self.watching.push(Watching::new(of, Watch::new(threshold)));
        }
    }

    /// Watches the threshold of this name no longer: what was above it is cleared. Returns whether there was one.
    pub fn unwatch(&mut self, name: &str) -> bool {
        let at = self.watching.iter().position(|one| one.watch.threshold().name == name);
        self.leaving.extend(at.map(|at| self.watching.remove(at)));
        at.is_some()
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

    /// Has each definition note the flows that a threshold may be about: from the lowest rate on at which one is not clear.
    fn watch_rates(&mut self, now_ns: u64) {
        for counting in self.engine.counting_mut() {
            let name = counting.definition().name.as_str();
            let watches = self.watching.iter().filter(|one| one.is_of_flow(name));
            let clear = watches.map(|one| one.watch.threshold().clear);
            let least = clear.fold(f64::INFINITY, f64::min);
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

/// Makes events of what has passed.
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
