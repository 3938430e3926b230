//! The heaviest flows of a definition, found from copies made one part at a time, so that counting does not wait for sorting.

use crate::counting::{Counting, pinned, sampled_share};
use crate::definition::{Aggregation, Definition, Figure, Measure};
use crate::estimate::Estimate;
use crate::field::Value;
use crate::table::{Everything, Flow};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of places of a table copied at a time.
pub const ROWS_MAX: usize = 1_024;

/// Length of the sampler in front of the values of a key, in bytes.
pub(crate) const SAMPLER_LEN: usize = 4;

/// How the figures of several samplers of one flow are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Across {
    /// The figure of the sampler that saw most.
    Max,
    /// The sum of the figures.
    Sum,
}

/// Some flows as of when they were copied, with rates per second in place of decayed sums.
#[derive(Default)]
pub struct Rows {
    key_len: usize,
    keys: Vec<u8>,
    flows: Vec<(Flow, Option<Everything>)>,
}

impl Rows {
    /// Number of flows, at most [`ROWS_MAX`].
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
}

impl Counting {
    /// Copies the flows of at most [`ROWS_MAX`] places, starting at `from`, and replaces the content of `rows`. Returns where the
    /// next part starts, if there is one.
    pub fn copy(&self, from: usize, now_ns: u64, rows: &mut Rows) -> Option<usize> {
        let factor = self.table().rate_factor(now_ns);
        rows.key_len = self.key_len();
        rows.keys.clear();
        rows.flows.clear();
        for (key, flow) in self.table().part(from, ROWS_MAX) {
            let mut flow = *flow;
            flow.recent.scale(factor);
            flow.inherited *= factor;
            rows.keys.extend_from_slice(key);
            rows.flows.push((flow, self.all_of(key).copied()));
        }
        let next = from + ROWS_MAX;
        (next < self.table().places()).then_some(next)
    }

    /// The heaviest flows now, heaviest first.
    pub fn top(&self, now_ns: u64) -> Vec<Figure> {
        let mut heaviest = Heaviest::new(self.shared_definition(), Across::Max);
        let (mut rows, mut next) = (Rows::default(), Some(0));
        while let Some(from) = next {
            next = self.copy(from, now_ns, &mut rows);
            heaviest.add(&rows, |_| true);
        }
        heaviest.figures(self.definition().top)
    }
}

/// What is known about a flow, over the samplers that saw it.
struct Merged {
    flow: Flow,
    /// Totals of the sampler, needed for the interval.
    all: Option<Everything>,
    sampler: u32,
    samplers: u32,
}

/// Combines copies.
pub struct Heaviest {
    definition: Arc<Definition>,
    across: Across,
    flows: HashMap<Box<[u8]>, Merged, RandomState>,
}

impl Heaviest {
    /// An empty collection for this definition.
    pub fn new(definition: Arc<Definition>, across: Across) -> Heaviest {
        Heaviest { definition, across, flows: HashMap::default() }
    }

    /// Adds copies: those of chosen samplers, or all if the definition does not keep samplers separate.
    pub fn add(&mut self, rows: &Rows, is_chosen: impl Fn(u32) -> bool) {
        if rows.key_len == 0 {
            // One flow for everything, over all samplers.
            rows.flows.iter().for_each(|row| self.merge(&[], 0, row));
            return;
        }
        for (key, row) in rows.keys.chunks_exact(rows.key_len).zip(&rows.flows) {
            if self.definition.aggregation != Aggregation::Max {
                self.merge(key, 0, row);
                continue;
            }
            let (sampler, values) = key.split_at(SAMPLER_LEN.min(key.len()));
            let sampler = sampler.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            if is_chosen(sampler) {
                self.merge(values, sampler, row);
            }
        }
    }

    fn merge(&mut self, key: &[u8], sampler: u32, (flow, all): &(Flow, Option<Everything>)) {
        let Some(one) = self.flows.get_mut(key) else {
            let one = Merged { flow: *flow, all: *all, sampler, samplers: 1 };
            self.flows.insert(key.into(), one);
            return;
        };
        if self.definition.aggregation != Aggregation::Max {
            // It has moved to another place since it was copied: this is the later copy.
            (one.flow, one.all) = (*flow, *all);
            return;
        }
        one.samplers += 1;
        match self.across {
            Across::Sum => one.flow.join(flow),
            Across::Max if flow.recent.value > one.flow.recent.value => {
                (one.flow, one.all, one.sampler) = (*flow, *all, sampler);
            }
            Across::Max => {}
        }
    }

    /// The `most` heaviest flows, heaviest first.
    pub fn figures(self, most: usize) -> Vec<Figure> {
        let Heaviest { definition, across, flows } = self;
        let mut flows: Vec<(Box<[u8]>, Merged)> = flows.into_iter().collect();
        let heavier = |a: &(Box<[u8]>, Merged), b: &(Box<[u8]>, Merged)| {
            let order = b.1.flow.recent.value.total_cmp(&a.1.flow.recent.value);
            order.then_with(|| a.0.cmp(&b.0))
        };
        if flows.len() > most && most > 0 {
            flows.select_nth_unstable_by(most - 1, heavier);
        }
        flows.truncate(most);
        flows.sort_unstable_by(heavier);
        flows.iter().map(|(key, one)| figure(&definition, across, key, one)).collect()
    }
}

fn figure(definition: &Definition, across: Across, key: &[u8], one: &Merged) -> Figure {
    let (flow, all) = (&one.flow, one.all.as_ref());
    let samples = |of: fn(&Everything) -> f64| all.map_or(f64::INFINITY, |all| pinned(of(all)));
    let recent = samples(|all| all.recent.effective_samples());
    let total = samples(|all| all.total.effective_samples());
    let sampled = match definition.measure {
        // What arrived is exactly known.
        Measure::Samples => 1.0,
        Measure::Bytes | Measure::Frames => sampled_share(all),
    };
    Figure {
        sampler: if across == Across::Sum { 0 } else { one.sampler },
        samplers: one.samplers,
        key: key.as_chunks::<{ Value::KEY_LEN }>().0.iter().map(Value::read).collect(),
        rate: Estimate::of(&flow.recent, recent, sampled),
        total: Estimate::of(&flow.total, total, sampled),
        rate_missing_max: flow.inherited,
        samples: flow.samples,
        rate_samples: flow.recent.effective_samples(),
        first_ns: flow.first_ns,
        last_ns: flow.last_ns,
    }
}
