//! The analysis of sFlow in the daemon: what listeners receive goes into one [`Analysis`], which a thread of its own ticks.
//!
//! # Time
//! Datagrams may wait in a listener's ring, and a figure is about when traffic was, not about when somebody came to count it.
//! So each datagram counts at the time at which it was received, and figures are read at the time up to which datagrams have been
//! taken: an analysis that is behind shows traffic late, and not too low. Receive stamps are of the wall clock, which people set;
//! how old a stamp is, is all that is taken of it.

mod losses;
mod reading;
mod rows;
mod shared;
mod tap;

pub(crate) use reading::{FLOWS_MAX, Fresh, Summary, Top};
pub(crate) use shared::Shared;

use super::events::Telling;
use super::mitigation::Mitigations;
use crate::command::flows::add_places;
use ::flows::{Analysis, Engine, Groups};
use config::{Config, FLOWS_NAME, FlowsConfig};
use ledger::{Ledger, Meter, Snapshot};
use losses::Losses;
use relay::{TargetKind, TargetOptions};
use rows::Rows;
use sink::Fanout;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tap::Tap;

/// Time between two looks at what has ended and what has passed a threshold.
const TICK: Duration = Duration::from_millis(100);

/// How long the thread rests after a panic, which may have written to the log.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Where what it makes goes: to the sinks that take it.
#[derive(Clone, Copy)]
pub(super) struct Outlets<'a> {
    /// Records of flows, counters and totals.
    pub(super) rows: &'a Fanout,
    /// What thresholds tell.
    pub(super) events: &'a Fanout,
    /// Routes that events start.
    pub(super) mitigations: &'a Arc<Mitigations>,
}

/// The analysis of the daemon, if it has one, and former ones.
#[derive(Default)]
pub(super) struct Flows {
    running: Option<Flowing>,
    /// Taken out of service by reloads, until listeners have given them what they have for them.
    ending: Vec<Flowing>,
    losses: Losses,
}

impl Flows {
    /// Starts what a configuration asks for. `events`: who takes them.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        config: &Config,
        outlets: Outlets<'_>,
        ledger: &Ledger,
    ) -> anyhow::Result<Flows> {
        let start = |flows| Flowing::start(flows, config, outlets);
        let running = config.flows.as_ref().map(start).transpose()?;
        running.iter().for_each(|one| one.register(ledger));
        Ok(Flows { running, ..Flows::default() })
    }

    /// What has the figures, if there is an analysis.
    pub(super) fn shared(&self) -> Option<&Arc<Shared>> {
        self.running.as_ref().map(|one| &one.shared)
    }

    /// How often the thread that hands events on has turned, if there is one.
    pub(super) fn events_heartbeat(&self) -> Option<u64> {
        self.running.as_ref()?.telling.as_ref().map(Telling::heartbeat)
    }

    /// Starts what a configuration asks for and is not there; nobody sees it yet.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn prepare(
        &self,
        config: &Config,
        outlets: Outlets<'_>,
    ) -> anyhow::Result<Option<Flowing>> {
        let wanted = config.flows.as_ref().filter(|_| self.running.is_none());
        wanted.map(|flows| Flowing::start(flows, config, outlets)).transpose()
    }

    /// Goes on as another configuration has it. What is the same there keeps its figures.
    pub(super) fn apply(
        &mut self,
        prepared: Option<Flowing>,
        (old, new): (&Config, &Config),
        ledger: &Ledger,
    ) {
        self.read_places(new);
        match (&old.flows, &new.flows) {
            (Some(flows), Some(next)) if flows != next || old.thresholds != new.thresholds => {
                let change = |analysis: &mut Analysis| {
                    change(analysis, flows, next);
                    change_thresholds(analysis, old, new);
                };
                if let Some(shared) = self.shared() {
                    shared.with(change);
                    shared.set_export_every(next.export_every);
                }
            }
            // What listeners have for it in their rings comes first.
            (_, None) => {
                let former = self.running.take();
                former.iter().flat_map(|one| &one.telling).for_each(Telling::silence);
                self.ending.extend(former);
            }
            _ => {}
        }
        if let Some(begun) = prepared {
            begun.register(ledger);
            self.running = Some(begun);
        }
    }

    /// Takes over the files that say where addresses are, as they are now. Those that cannot be read stay as they were.
    fn read_places(&self, config: &Config) {
        let (Some(shared), Some(flows)) = (self.shared(), &config.flows) else { return };
        match places(flows) {
            Ok(places) => shared.with(|analysis| analysis.set_places(&places)),
            Err(error) => {
                tracing::error!("[flows] mmdb: {error:#}: addresses stay where they were")
            }
        }
    }

    /// Notes what was lost before the analysis, by a snapshot of the ledger.
    pub(super) fn look(&mut self, config: &Config, snapshot: &Snapshot) {
        let Some(shared) = self.running.as_ref().map(|one| &one.shared) else { return };
        let from = config.flows.iter().flat_map(|flows| &flows.from);
        shared.add_dropped(self.losses.since_last(from, snapshot));
    }

    /// Closes the accounts of analyses that nothing feeds any longer.
    pub(super) fn turn(&mut self, ledger: &Ledger) {
        for at in (0..self.ending.len()).rev() {
            if !self.ending[at].shared.is_tapped() {
                let meter: Arc<dyn Meter> = self.ending.swap_remove(at).end();
                ledger.retire(&meter);
            }
        }
    }

    /// Hands on the events and rows that there are, and no others: sinks are about to close. Nothing may be tapped any more.
    pub(super) fn tell_all(&mut self) {
        for one in self.running.iter_mut().chain(&mut self.ending) {
            one.tell_all();
        }
    }

    /// Ends all; the ledger goes on to show what they have.
    pub(super) fn finish(&mut self) {
        self.running
            .take()
            .into_iter()
            .chain(self.ending.drain(..))
            .for_each(|one| drop(one.end()));
    }
}

/// Whether the analysis takes the datagrams of this listener.
pub(super) fn is_source(config: &Config, listener: &str) -> bool {
    let from = config.flows.iter().flat_map(|flows| &flows.from);
    from.into_iter().any(|name| name == listener)
}

/// What takes a listener's datagrams for an analysis.
pub(super) fn tap(analysis: &Arc<Shared>) -> (TargetOptions, TargetKind) {
    let options = TargetOptions {
        name: FLOWS_NAME.to_owned(),
        only_sources: Vec::new(),
        sample: None,
        rate_limit_per_sec: None,
    };
    (options, TargetKind::Rows(Box::new(Tap::new(Arc::clone(analysis)))))
}

/// An analysis, and the thread that ticks it.
pub(super) struct Flowing {
    shared: Arc<Shared>,
    /// Ends the thread when it is dropped.
    _stop: Sender<()>,
    thread: JoinHandle<()>,
    /// Hands on its events, until sinks close.
    telling: Option<Telling>,
}

/// Where addresses are, by the files of a configuration.
fn places(config: &FlowsConfig) -> anyhow::Result<Groups> {
    let mut groups = Groups::default();
    for path in &config.mmdb {
        add_places(&mut groups, Path::new(path))?;
    }
    Ok(groups)
}

/// Makes an analysis that was begun with one configuration that of another. What others have defined meanwhile stays.
fn change(analysis: &mut Analysis, old: &FlowsConfig, new: &FlowsConfig) {
    analysis.set_limits(new.limits(), new.built_internal());
    analysis.set_events_max(new.events_max);
    let has_new_groups = old.groups != new.groups;
    if has_new_groups {
        analysis.set_groups(new.built_groups());
    }

    for former in &old.definitions {
        let next = new.definitions.iter().find(|one| one.name == former.name);
        // Groups are numbers in what was counted.
        let is_stale = has_new_groups && former.names_groups();
        if next.is_none() || is_stale {
            analysis.undefine(&former.name);
        }
    }
    for definition in new.built_definitions() {
        analysis.define(definition);
    }
}

/// Watches what a configuration asks for. A threshold that is the same goes on; one that is gone or another is cleared.
fn change_thresholds(analysis: &mut Analysis, old: &Config, new: &Config) {
    let gone =
        old.thresholds.iter().filter(|old| new.thresholds.iter().all(|one| one.name != old.name));
    for one in gone {
        analysis.unwatch(&one.name);
    }
    watch(analysis, new);
}

fn watch(analysis: &mut Analysis, config: &Config) {
    let Some(flows) = &config.flows else { return };
    let groups = flows.built_groups();
    for one in &config.thresholds {
        // What cannot be watched was a mistake in the file.
        if let (Some(of), Ok(threshold)) = (one.watched(), one.threshold(&groups)) {
            analysis.watch(of, threshold);
        }
    }
}

impl Flowing {
    /// Begins to analyze what taps give.
    ///
    /// # Errors
    /// The thread cannot be started.
    fn start(
        config: &FlowsConfig,
        whole: &Config,
        outlets: Outlets<'_>,
    ) -> anyhow::Result<Flowing> {
        let mut groups = config.built_groups();
        groups.share_places(&places(config)?);
        let engine = Engine::new(
            config.limits(),
            groups,
            config.built_internal(),
            config.built_definitions(),
        );
        let mut analysis = Analysis::new(engine, config.events_max);
        watch(&mut analysis, whole);
        let rows = Rows::new(whole, config.export_every, outlets.rows);
        let shared = Shared::new(analysis, rows);

        let (stop, stopped) = mpsc::channel();
        let ticked = Arc::clone(&shared);
        let turn = move || {
            let mut wait = TICK;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) {
                // A panic has said so on standard error; what is taken does not depend on ticks.
                let outcome = catch_unwind(AssertUnwindSafe(|| ticked.tick()));
                wait = if outcome.is_ok() { TICK } else { PANIC_PAUSE };
            }
        };
        let thread = thread::Builder::new().name(FLOWS_NAME.to_owned()).spawn(turn)?;
        let telling = Some(Telling::start(Arc::clone(&shared), outlets, whole)?);
        Ok(Flowing { shared, _stop: stop, thread, telling })
    }

    /// What has the figures.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Enters it into the ledger.
    fn register(&self, ledger: &Ledger) {
        let meter: Arc<dyn Meter> = Arc::clone(&self.shared) as _;
        ledger.register(meter);
    }

    /// Hands on what there is to tell, and then nothing more.
    fn tell_all(&mut self) {
        let shared = &self.shared;
        // A panic has said so on standard error.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            shared.tick();
            shared.tell_all();
        }));
        self.telling.take().into_iter().for_each(Telling::finish);
    }

    /// Ends the thread. Nothing may be tapped any more.
    fn end(mut self) -> Arc<Shared> {
        // What came after the last tick is in the account too.
        self.tell_all();
        let Flowing { shared, _stop: stop, thread, .. } = self;
        drop(stop);
        // A panic has said so on standard error.
        let _ = thread.join();
        shared
    }
}
