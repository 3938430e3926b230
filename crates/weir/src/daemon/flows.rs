//! The sFlow analysis in the daemon: what listeners receive goes into one [`Analysis`], which is ticked by its own thread.
//!
//! # Time
//! Datagrams may wait in a listener's ring, and a figure must describe when the traffic flowed, not when we counted it. So each
//! datagram counts at the time it was received, and figures are read at the time up to which datagrams have been processed: an
//! analysis that is behind shows traffic late, but not too low. Receive stamps use the wall clock, which people may set, so we
//! use a stamp only to compute a datagram's age.

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
use ::flows::{Analysis, Author, Engine, Groups};
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

/// Time between two checks for flows that have ended and thresholds that have been crossed.
const TICK: Duration = Duration::from_millis(100);

/// How long the thread rests after a panic, so that repeated panics do not flood the log.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Where the analysis sends its output.
#[derive(Clone, Copy)]
pub(super) struct Outlets<'a> {
    /// Records of flows, counters and totals.
    pub(super) rows: &'a Fanout,
    /// Threshold events.
    pub(super) events: &'a Fanout,
    /// Routes that events start.
    pub(super) mitigations: &'a Arc<Mitigations>,
}

/// The daemon's analysis, if any, and former ones.
#[derive(Default)]
pub(super) struct Flows {
    running: Option<Flowing>,
    /// Analyses that reloads took out of service, until listeners have handed over what they still hold for them.
    ending: Vec<Flowing>,
    losses: Losses,
}

impl Flows {
    /// Starts the analysis that a configuration asks for.
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

    /// The shared analysis, if there is one.
    pub(super) fn shared(&self) -> Option<&Arc<Shared>> {
        self.running.as_ref().map(|one| &one.shared)
    }

    /// Heartbeat of the thread that hands events on, if there is one.
    pub(super) fn events_heartbeat(&self) -> Option<u64> {
        self.running.as_ref()?.telling.as_ref().map(Telling::heartbeat)
    }

    /// Starts the analysis that a configuration asks for if there is none yet. It is not visible until [`apply`](Self::apply).
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

    /// Switches to another configuration. Whatever is the same in both keeps its figures.
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
            // It first takes what listeners still hold for it in their rings.
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

    /// Reads the files that locate addresses again. If one cannot be read, all locations stay as they were.
    fn read_places(&self, config: &Config) {
        let (Some(shared), Some(flows)) = (self.shared(), &config.flows) else { return };
        match places(flows) {
            Ok(places) => shared.with(|analysis| analysis.set_places(&places)),
            Err(error) => {
                tracing::error!("[flows] mmdb: {error:#}: addresses stay where they were")
            }
        }
    }

    /// Notes what was lost before the analysis, from a snapshot of the ledger.
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

    /// Hands on all pending events and rows, and nothing after that: sinks are about to close. No tap may feed the analysis any
    /// more.
    pub(super) fn tell_all(&mut self) {
        for one in self.running.iter_mut().chain(&mut self.ending) {
            one.tell_all();
        }
    }

    /// Ends all analyses. The ledger continues to show their counts.
    pub(super) fn finish(&mut self) {
        self.running
            .take()
            .into_iter()
            .chain(self.ending.drain(..))
            .for_each(|one| drop(one.end()));
    }
}

/// Whether the analysis takes this listener's datagrams.
pub(super) fn is_source(config: &Config, listener: &str) -> bool {
    let from = config.flows.iter().flat_map(|flows| &flows.from);
    from.into_iter().any(|name| name == listener)
}

/// The relay target that feeds a listener's datagrams to an analysis.
pub(super) fn tap(analysis: &Arc<Shared>) -> (TargetOptions, TargetKind) {
    let options = TargetOptions {
        name: FLOWS_NAME.to_owned(),
        only_sources: Vec::new(),
        sample: None,
        rate_limit_per_sec: None,
    };
    (options, TargetKind::Rows(Box::new(Tap::new(Arc::clone(analysis)))))
}

/// An analysis and the thread that ticks it.
pub(super) struct Flowing {
    shared: Arc<Shared>,
    /// Dropping it ends the thread.
    _stop: Sender<()>,
    thread: JoinHandle<()>,
    /// Hands on its events, until sinks close.
    telling: Option<Telling>,
}

/// Where addresses are located, according to a configuration's files.
fn places(config: &FlowsConfig) -> anyhow::Result<Groups> {
    let mut groups = Groups::default();
    for path in &config.mmdb {
        add_places(&mut groups, Path::new(path))?;
    }
    Ok(groups)
}

/// Whether a file locates addresses.
///
/// # Errors
/// It cannot be read, or is of another kind.
pub(crate) fn check_places(path: &Path) -> anyhow::Result<()> {
    add_places(&mut Groups::default(), path)
}

/// Switches an analysis from one configuration to another. What scripts have defined meanwhile stays.
fn change(analysis: &mut Analysis, old: &FlowsConfig, new: &FlowsConfig) {
    analysis.set_limits(new.limits(), new.built_internal());
    analysis.set_events_max(new.events_max);
    let has_new_groups = old.groups != new.groups;
    if has_new_groups {
        // What scripts add to them is gone already.
        analysis.set_groups(new.built_groups(), Author::File);
        analysis.set_groups(new.built_groups(), Author::Script);
    }

    for former in &old.definitions {
        let next = new.definitions.iter().find(|one| one.name == former.name);
        // Flows store groups by number, and the numbers have changed.
        let is_stale = has_new_groups && former.names_groups();
        if next.is_none() || is_stale {
            analysis.undefine(&former.name);
        }
    }
    for definition in new.built_definitions() {
        analysis.define(definition, Author::File);
    }
}

/// Sets the thresholds of a configuration. An unchanged threshold continues; a removed or changed one is cleared.
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
        // Configuration checks reject thresholds that cannot be watched, so this always matches.
        if let (Some(of), Ok(threshold)) = (one.watched(), one.threshold(&groups)) {
            analysis.watch(of, threshold);
        }
    }
}

impl Flowing {
    /// Starts to analyze what taps feed.
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
                // The panic was reported on standard error. Datagrams are taken whether or not ticks happen.
                let outcome = catch_unwind(AssertUnwindSafe(|| ticked.tick()));
                wait = if outcome.is_ok() { TICK } else { PANIC_PAUSE };
            }
        };
        let thread = thread::Builder::new().name(FLOWS_NAME.to_owned()).spawn(turn)?;
        let telling = Some(Telling::start(Arc::clone(&shared), outlets, whole)?);
        Ok(Flowing { shared, _stop: stop, thread, telling })
    }

    /// The shared analysis.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Registers it in the ledger.
    fn register(&self, ledger: &Ledger) {
        let meter: Arc<dyn Meter> = Arc::clone(&self.shared) as _;
        ledger.register(meter);
    }

    /// Hands on everything pending, and nothing after that.
    fn tell_all(&mut self) {
        let shared = &self.shared;
        // The panic was reported on standard error.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            shared.tick();
            shared.tell_all();
        }));
        self.telling.take().into_iter().for_each(Telling::finish);
    }

    /// Ends the thread. No tap may feed the analysis any more.
    fn end(mut self) -> Arc<Shared> {
        // Account for what arrived after the last tick.
        self.tell_all();
        let Flowing { shared, _stop: stop, thread, .. } = self;
        drop(stop);
        // A panic was reported on standard error.
        let _ = thread.join();
        shared
    }
}
