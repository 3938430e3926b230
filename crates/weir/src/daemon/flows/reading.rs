//! Reading figures while datagrams arrive.
//!
//! Readers come one at a time, hold the analysis only while they copy bounded parts of it, and then stay away nine times as
//! long. So readers hold the analysis for at most a tenth of the time, whatever they ask and however many they are. They may
//! sleep, so they never run on a thread that others need.

use super::Shared;
use ::flows::{
    Across, Agent, AgentId, Analysis, Counting, Definition, DefinitionTotals, Figure, Groups,
    Heaviest, Part, Rows,
};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Readers get one part in this many of the time.
const SHARE: u32 = 10;
/// How much of their share readers may save up during a pause and use at once, so that short answers need not wait.
const SAVED_MAX: Duration = Duration::from_millis(5);
/// A list of the heaviest flows is made again when it is older than this, so that many readers cost as much as one.
pub(crate) const FRESH: Duration = Duration::from_millis(500);
/// Most lists kept for that time.
const KEPT_MAX: usize = 8;
/// Most flows in a list.
pub(crate) const FLOWS_MAX: usize = 10_000;

/// The readers' turn, and what they have used.
#[derive(Default)]
pub(super) struct Readers {
    turn: Mutex<Turn>,
    tops: Fresh<String, Arc<Top>>,
    /// Largest copy, in flow rows.
    rows_max: AtomicU64,
    holds: AtomicU64,
    held_ns: AtomicU64,
    longest_ns: AtomicU64,
}

/// How much readers have used of the analysis so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Times that a reader held it.
    pub(crate) holds: u64,
    /// Total time it was held, in nanoseconds.
    pub(crate) held_ns: u64,
    /// Longest single hold, in nanoseconds.
    pub(crate) longest_ns: u64,
    /// Most flows copied during one hold.
    pub(crate) rows_max: u64,
}

/// When the next reader may come.
#[derive(Default)]
struct Turn(Option<Instant>);

impl Turn {
    /// How long a reader that comes now has to wait.
    fn wait(&self, now: Instant) -> Duration {
        self.0.map_or(Duration::ZERO, |free_at| free_at.saturating_duration_since(now))
    }

    /// Notes that a reader held the analysis for `held`, until `now`.
    fn held(&mut self, held: Duration, now: Instant) {
        let saved = now.checked_sub(SAVED_MAX + held).unwrap_or(now);
        let from = self.0.map_or(saved, |free_at| free_at.max(saved));
        self.0 = Some(from + held * SHARE);
    }
}

/// A definition without its flows, as of one moment.
pub(crate) struct Summary {
    pub(crate) definition: Arc<Definition>,
    pub(crate) totals: DefinitionTotals,
    pub(crate) flows: usize,
    pub(crate) evicted: u64,
    /// Samples of flows that no threshold checked, because the limit of checked flows was taken by heavier ones.
    pub(crate) unwatched: u64,
    /// Samples that lack a part of the key, by the first such part.
    pub(crate) lacking: Vec<(Part, u64)>,
}

impl Summary {
    pub(crate) fn of(counting: &Counting) -> Summary {
        Summary {
            definition: counting.shared_definition(),
            totals: counting.totals(),
            flows: counting.flows(),
            evicted: counting.evicted(),
            unwatched: counting.hot_missed(),
            lacking: counting.lacking().collect(),
        }
    }
}

/// The heaviest flows of a definition, heaviest first, at most [`FLOWS_MAX`]. Each is as of when its part of the table was
/// copied, which can be as long ago as the list took to make.
pub(crate) struct Top {
    pub(crate) summary: Summary,
    pub(crate) groups: Arc<Groups>,
    pub(crate) figures: Vec<Figure>,
}

impl Shared {
    /// Calls `copy` on the analysis when it is the reader's turn, with the time of its figures: datagrams have been processed
    /// up to that time, so rates read at it are not too low when the analysis is behind. `copy` takes what it needs and does
    /// nothing else. May sleep.
    pub(crate) fn look<R>(&self, copy: impl FnOnce(&Analysis, u64) -> R) -> R {
        let mut turn = self.readers.turn.lock().unwrap_or_else(PoisonError::into_inner);
        thread::sleep(turn.wait(Instant::now()));

        let guard = self.lock();
        let began = Instant::now();
        let result = copy(&guard.analysis, guard.clock.read_ns);
        drop(guard);

        let now = Instant::now();
        let held = now.saturating_duration_since(began);
        turn.held(held, now);
        self.readers.holds.fetch_add(1, Ordering::Relaxed);
        let held_ns = held.as_nanos() as u64;
        self.readers.held_ns.fetch_add(held_ns, Ordering::Relaxed);
        self.readers.longest_ns.fetch_max(held_ns, Ordering::Relaxed);
        result
    }

    /// What readers have used so far.
    pub(crate) fn taken_by_readers(&self) -> Taken {
        Taken {
            holds: self.readers.holds.load(Ordering::Relaxed),
            held_ns: self.readers.held_ns.load(Ordering::Relaxed),
            longest_ns: self.readers.longest_ns.load(Ordering::Relaxed),
            rows_max: self.readers.rows_max.load(Ordering::Relaxed),
        }
    }

    /// A copy of an agent as it is now. The largest copy of all is that of an agent with very many interfaces.
    pub(crate) fn agent(&self, id: &AgentId) -> Option<Agent> {
        self.look(|analysis, _| analysis.engine().agent(id).cloned())
    }

    /// The agents that match the predicate, sorted.
    pub(crate) fn agents(&self, is_asked: impl Fn(&AgentId) -> bool) -> Vec<AgentId> {
        let mut agents: Vec<AgentId> =
            self.look(|analysis, _| analysis.engine().agents().map(|(id, _)| *id).collect());
        agents.retain(is_asked);
        agents.sort_unstable();
        agents
    }

    /// The heaviest flows of the named definition. Many readers share one list.
    pub(crate) fn top(&self, name: &str) -> Option<Arc<Top>> {
        let make = || self.heaviest(name, Across::Max, |_| true).map(Arc::new);
        self.readers.tops.get(name.to_owned(), make)
    }

    /// Makes a list of the heaviest flows at chosen samplers. `None` if there is no definition of this name, or if another has
    /// replaced it meanwhile.
    pub(crate) fn heaviest(
        &self,
        name: &str,
        across: Across,
        is_chosen: impl Fn(u32) -> bool,
    ) -> Option<Top> {
        let (definition, groups) = self.look(|analysis, _| {
            let counting = analysis.counting(name)?;
            let groups = analysis.engine().shared_groups_of(counting.author());
            Some((counting.shared_definition(), groups))
        })?;
        let mut heaviest = Heaviest::new(Arc::clone(&definition), across);
        let (mut rows, mut from) = (Rows::default(), 0);
        loop {
            let (next, summary) = self.look(|analysis, now_ns| {
                let counting = analysis.counting(name)?;
                let is_same = std::ptr::eq(counting.definition(), &*definition);
                is_same.then(|| (counting.copy(from, now_ns, &mut rows), Summary::of(counting)))
            })?;
            self.readers.rows_max.fetch_max(rows.len() as u64, Ordering::Relaxed);
            heaviest.add(&rows, &is_chosen);
            match next {
                Some(next) => from = next,
                None => {
                    let figures = heaviest.figures(FLOWS_MAX);
                    return Some(Top { summary, groups, figures });
                }
            }
        }
    }
}

/// Recent values by question. A reader that asks for a missing value waits until it is made, and readers that come meanwhile
/// get the same one.
pub(crate) struct Fresh<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Fresh<K, V> {
    fn default() -> Fresh<K, V> {
        Fresh(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Fresh<K, V> {
    /// The value made for this question within the last [`FRESH`], or else a new one.
    pub(crate) fn get(&self, asked: K, make: impl FnOnce() -> Option<V>) -> Option<V> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (made_at, _)| made_at.elapsed() < FRESH);
        if let Some((_, value)) = kept.get(&asked) {
            return Some(value.clone());
        }

        let value = make()?;
        if kept.len() < KEPT_MAX {
            kept.insert(asked, (Instant::now(), value.clone()));
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests;
