//! The heaviest flows of a definition, found from copies made one part at a time, so that counting does not wait for sorting.

use crate::counting::{Counting, sampled_share};
use crate::definition::{Aggregation, Definition, Figure, Measure};
use crate::estimate::Estimate;
use crate::field::Value;
use crate::table::{Everything, Flow};
use crate::vantage::device_of;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of places of a table copied at a time.
pub const ROWS_MAX: usize = 1_024;

/// Length of the vantage in front of the values of a key, in bytes.
pub(crate) const VANTAGE_LEN: usize = 4;

/// How the figures of several agents of one flow are combined. Of each agent, the direction counts in which it saw most of the flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Across {
    /// The figure of the agent that saw most.
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

/// What is known about a flow, over the vantages that saw it.
struct Merged {
    flow: Flow,
    /// Totals of the vantage, needed for the interval.
    all: Option<Everything>,
    vantage: u32,
    vantages: u32,
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

    /// Adds copies: those of chosen vantages, or all if the definition does not keep vantages separate.
    pub fn add(&mut self, rows: &Rows, is_chosen: impl Fn(u32) -> bool) {
        if rows.key_len == 0 {
            // One flow for everything, over all vantages.
            rows.flows.iter().for_each(|row| self.merge(&[], 0, row));
            return;
        }
        let mut of_device = Vec::with_capacity(rows.key_len);
        for (key, row) in rows.keys.chunks_exact(rows.key_len).zip(&rows.flows) {
            if self.definition.aggregation != Aggregation::Max {
                self.merge(key, 0, row);
                continue;
            }
            let (vantage, values) = key.split_at(VANTAGE_LEN.min(key.len()));
            let vantage = vantage.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            if !is_chosen(vantage) {
                continue;
            }
            match self.across {
                Across::Max => self.merge(values, vantage, row),
                // Devices are added up at the end, when the side of each that saw most is known.
                Across::Sum => {
                    of_device.clear();
                    of_device.extend_from_slice(&device_of(vantage).to_be_bytes());
                    of_device.extend_from_slice(values);
                    self.merge(&of_device, vantage, row);
                }
            }
        }
    }

    fn merge(&mut self, key: &[u8], vantage: u32, (flow, all): &(Flow, Option<Everything>)) {
        let Some(one) = self.flows.get_mut(key) else {
            let one = Merged { flow: *flow, all: *all, vantage, vantages: 1 };
            self.flows.insert(key.into(), one);
            return;
        };
        if self.definition.aggregation != Aggregation::Max {
            // It has moved to another place since it was copied: this is the later copy.
            (one.flow, one.all) = (*flow, *all);
            return;
        }
        one.vantages += 1;
        if flow.recent.value > one.flow.recent.value {
            (one.flow, one.all, one.vantage) = (*flow, *all, vantage);
        }
    }

    /// Adds up what devices saw of the same flow.
    fn sum_of_devices(flows: HashMap<Box<[u8]>, Merged, RandomState>) -> Vec<(Box<[u8]>, Merged)> {
        let mut sums: HashMap<Box<[u8]>, Merged, RandomState> = HashMap::default();
        for (key, one) in flows {
            let values = key.get(VANTAGE_LEN..).unwrap_or_default();
            let Some(sum) = sums.get_mut(values) else {
                sums.insert(values.into(), Merged { vantage: 0, ..one });
                continue;
            };
            sum.flow.join(&one.flow);
            sum.vantages += one.vantages;
            sum.all = None;
        }
        sums.into_iter().collect()
    }

    /// The `most` heaviest flows, heaviest first.
    pub fn figures(self, most: usize) -> Vec<Figure> {
        let Heaviest { definition, across, flows } = self;
        let is_sum = across == Across::Sum && definition.aggregation == Aggregation::Max;
        let mut flows: Vec<(Box<[u8]>, Merged)> =
            if is_sum { Self::sum_of_devices(flows) } else { flows.into_iter().collect() };
        let heavier = |a: &(Box<[u8]>, Merged), b: &(Box<[u8]>, Merged)| {
            let order = b.1.flow.recent.value.total_cmp(&a.1.flow.recent.value);
            order.then_with(|| a.0.cmp(&b.0))
        };
        if flows.len() > most && most > 0 {
            flows.select_nth_unstable_by(most - 1, heavier);
        }
        flows.truncate(most);
        flows.sort_unstable_by(heavier);
        flows.iter().map(|(key, one)| figure(&definition, key, one)).collect()
    }
}

fn figure(definition: &Definition, key: &[u8], one: &Merged) -> Figure {
    let (flow, all) = (&one.flow, one.all.as_ref());
    let recent = all.map_or(f64::INFINITY, |all| all.known_samples(&all.recent));
    let total = all.map_or(f64::INFINITY, |all| all.known_samples(&all.total));
    let sampled = match definition.measure {
        // What arrived is exactly known.
        Measure::Samples => 1.0,
        Measure::Bytes | Measure::Frames => sampled_share(all),
    };
    Figure {
        vantage: one.vantage,
        vantages: one.vantages,
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
