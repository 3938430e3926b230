//! What one flow definition counts, and what it has counted.

use crate::batch::{Batch, Waiting};
use crate::estimate::Estimate;
use crate::field::{Facts, Value};
use crate::filter::Filter;
use crate::heaviest::SAMPLER_LEN;
use crate::key::Part;
use crate::lookup::Groups;
use crate::portion::{Accepted, Amounts, Cause, Portion, Told, Untold, Untolds};
use crate::sampler;
use crate::table::{Ended, Everything, Flow, Leaving, Table};
use std::sync::Arc;
use std::time::Duration;

/// What a figure adds up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Measure {
    /// Bytes on the wire.
    #[default]
    Bytes,
    /// Frames.
    Frames,
    /// Samples as they arrived, not scaled.
    Samples,
}

/// Which samples count, by the side of the interface at which they were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// All of them.
    #[default]
    Any,
    /// Taken where the frame came in.
    Ingress,
    /// Taken where the frame left.
    Egress,
}

/// Which frames a definition is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Traffic {
    /// Frames that were sampled as they passed.
    #[default]
    Sampled,
    /// Frames that a switch or host reports to have dropped.
    Dropped,
}

/// What becomes of one frame that several samplers see on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Aggregation {
    /// The figure of the sampler that saw most of a flow: nothing is counted twice.
    #[default]
    Max,
    /// The figures of all samplers together: right where each frame is sampled once.
    Sum,
    /// The figures of samplers at interfaces that are not `internal`, where frames come in.
    Edge,
}

/// One `[[flow]]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    /// How it is called.
    pub name: String,
    /// What flows are told apart by. A sample that does not have all of it is not counted; none at all is one flow for everything.
    pub keys: Vec<Part>,
    /// Which frames.
    pub traffic: Traffic,
    /// What is added up.
    pub measure: Measure,
    /// Which samples count.
    pub filter: Option<Filter>,
    /// Which samples count.
    pub direction: Direction,
    /// What becomes of frames that are seen several times.
    pub aggregation: Aggregation,
    /// Time constant of the rates.
    pub smoothing: Duration,
    /// How many flows are shown.
    pub top: usize,
    /// A flow that was not seen for so long has ended.
    pub active_timeout: Duration,
    /// How many flows are kept.
    pub flows_max: usize,
}

impl Definition {
    /// The most bytes that its flows take.
    pub fn memory_max_bytes(&self) -> usize {
        let key_len = self.key_len();
        Table::memory_max_bytes(key_len, self.flows_max) + Batch::memory_bytes(key_len)
    }

    /// A key for people: its parts with their values.
    pub fn shown(&self, values: &[Value], groups: &Groups) -> Vec<String> {
        let parts = self.keys.iter().zip(values);
        parts.map(|(part, value)| part.shown(*value, groups)).collect()
    }

    /// Whether flows are told apart by groups, which are numbers in what is counted.
    pub(crate) fn has_groups_in_keys(&self) -> bool {
        self.keys.iter().any(|part| matches!(part, Part::Group(_)))
    }

    /// Bytes of a key in the table.
    fn key_len(&self) -> usize {
        let sampler = if self.aggregation == Aggregation::Max { SAMPLER_LEN } else { 0 };
        sampler + self.keys.len() * Value::KEY_LEN
    }
}

/// How many samples the sum of all traffic is as good as known from. A scale follows the pool over some samples, so that over as few the sum
/// is as uncertain as their number.
pub(crate) fn pinned(samples: f64) -> f64 {
    let known = samples - sampler::SAMPLES;
    if known > 0.0 { samples * samples / known } else { f64::INFINITY }
}

/// What a sample is worth to a definition.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// What it is a sample of.
    pub traffic: Traffic,
    /// A number of its sampler, the same for all its samples.
    pub sampler: u32,
    /// Where it was taken.
    pub direction: Direction,
    /// Whether it was taken where frames come into the network.
    pub is_edge: bool,
    /// Frames that it stands for.
    pub frames: f64,
    /// Frames that it stands for by what the agent says: too few where samples are lost.
    pub configured_rate: u32,
    /// Bytes of the frame on the wire.
    pub frame_bytes: u32,
    /// When it arrived.
    pub now_ns: u64,
}

/// A flow with its figures.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The number of the sampler that the figure is of; 0 if it is of several.
    pub sampler: u32,
    /// How many samplers saw the flow, where they are kept apart.
    pub samplers: u32,
    /// A value for each part of the definition's key.
    pub key: Vec<Value>,
    /// What it is now, per second.
    pub rate: Estimate,
    /// Since it was first seen.
    pub total: Estimate,
    /// What it may be above `rate`, because other flows had its place before: per second.
    pub rate_missing_max: f64,
    /// Samples since it was first seen.
    pub samples: u64,
    /// Samples of equal size that would make `rate` as sure.
    pub rate_samples: f64,
    /// When it was first seen.
    pub first_ns: u64,
    /// When it was last seen.
    pub last_ns: u64,
}

/// What a definition did with samples. `seen = counted + filtered + without_key`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DefinitionTotals {
    /// All samples.
    pub seen: u64,
    /// Those that are in a flow.
    pub counted: u64,
    /// Those that the filter, the direction or the edge left out.
    pub filtered: u64,
    /// Those that lack a part of the key.
    pub without_key: u64,
}

/// A definition at work.
pub struct Counting {
    definition: Arc<Definition>,
    table: Table,
    totals: DefinitionTotals,
    batch: Batch,
    untolds: Option<Untolds>,
}

impl Counting {
    /// Nothing is counted yet.
    pub fn new(definition: Definition) -> Counting {
        let key_len = definition.key_len();
        Counting {
            table: Table::new(key_len, definition.flows_max, definition.smoothing),
            totals: DefinitionTotals::default(),
            batch: Batch::new(key_len),
            definition: Arc::new(definition),
            untolds: None,
        }
    }

    /// The same, which tells of a flow that goes on after so long, and of each that ends.
    pub(crate) fn telling(mut self, every: Option<Duration>) -> Counting {
        match (&mut self.untolds, every) {
            (Some(untolds), Some(every)) => untolds.set_every(every),
            (untolds, every) => *untolds = every.map(Untolds::new),
        }
        self
    }

    /// What it counted, in whole units, if it tells of its flows: what it has told and is still to tell.
    pub fn counted(&self) -> Option<Amounts> {
        self.untolds.as_ref().map(Untolds::counted)
    }

    /// What is counted.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The same, to be kept.
    pub fn shared_definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    /// The flows.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Bytes of a key in the table.
    pub(crate) fn key_len(&self) -> usize {
        self.definition.key_len()
    }

    /// What became of samples.
    pub fn totals(&self) -> DefinitionTotals {
        self.totals
    }

    /// Flows that are kept now.
    pub fn flows(&self) -> usize {
        self.table.len()
    }

    /// How often a flow made room for another.
    pub fn evicted(&self) -> u64 {
        self.table.evicted()
    }

    /// Counts a sample. It is in its flow after [`settle`](Self::settle).
    pub fn count(
        &mut self,
        sample: &Sample,
        facts: &impl Facts,
        groups: &Groups,
        told: &mut impl Told,
    ) {
        if sample.traffic != self.definition.traffic {
            return;
        }
        self.totals.seen += 1;
        // The sampler's pool counts every frame, whatever is asked for here.
        let weight = self.table.weight_at(sample.now_ns);
        self.table.add_to_all(sample.sampler, sample.frames, weight);
        if !self.is_asked_for(sample) {
            self.totals.filtered += 1;
            return;
        }
        if self.definition.filter.as_ref().is_some_and(|filter| !filter.passes(facts, groups)) {
            self.totals.filtered += 1;
            return;
        }

        let sampler_len = self.sampler_len();
        let (sampler, values) = self.batch.next_key().split_at_mut(sampler_len);
        if let Some(place) = sampler.first_chunk_mut() {
            *place = sample.sampler.to_be_bytes();
        }
        let places = values.as_chunks_mut::<{ Value::KEY_LEN }>().0;
        for (part, place) in self.definition.keys.iter().zip(places) {
            let value = part.value(facts, groups);
            if value == Value::Absent {
                self.totals.without_key += 1;
                return;
            }
            value.write(place);
        }

        self.totals.counted += 1;
        self.wait(*sample);
        if self.batch.is_full() {
            self.settle(groups, told);
        }
    }

    /// Has a sample wait, whose key is put together.
    fn wait(&mut self, sample: Sample) {
        let Counting { definition, table, batch, untolds, .. } = self;
        let value = match definition.measure {
            Measure::Bytes => sample.frames * f64::from(sample.frame_bytes),
            Measure::Frames => sample.frames,
            Measure::Samples => 1.0,
        };
        let before = batch.last_hash();
        let key = &*batch.next_key();
        let hash = table.hash(key);
        // While the next sample is read, memory brings what this one is looked up in, and the flow of the one before.
        table.prefetch_slot(hash);
        before.into_iter().for_each(|hash| table.prefetch_flow(hash));
        let all = untolds.as_ref().and_then(|_| all_of(definition, table, key));
        let all = all.map(|all| all.total).unwrap_or_default();
        batch.push(Waiting { hash, value, sample, all });
    }

    /// Adds the samples that were counted to their flows. To be called after each datagram.
    pub fn settle(&mut self, groups: &Groups, told: &mut impl Told) {
        let Counting { definition, table, batch, untolds, .. } = self;
        batch.last_hash().into_iter().for_each(|hash| table.prefetch_flow(hash));
        for (key, Waiting { hash, value, sample, all }) in batch.iter() {
            let weight = table.weight_at(sample.now_ns);
            let Some(untolds) = untolds else {
                table.add((key, *hash), *value, weight, sample.now_ns, &mut ());
                continue;
            };
            let mut teller = Teller { definition, groups, untolds, told };
            let place = table.add((key, *hash), *value, weight, sample.now_ns, &mut teller);
            untolds.add(place as usize, sample, *all);
        }
        batch.clear();
    }

    /// Ends flows that were not seen for the active timeout. Looks at a part of them at a time.
    pub fn sweep(&mut self, now_ns: u64, groups: &Groups, told: &mut impl Told) {
        let timeout_ns = self.definition.active_timeout.as_nanos() as u64;
        let places = self.table.len() / 8 + 64;
        let before_ns = now_ns.saturating_sub(timeout_ns);
        let Counting { definition, table, untolds, .. } = self;
        let Some(untolds) = untolds else { return table.sweep(before_ns, places, &mut ()) };

        let mut teller = Teller { definition, groups, untolds, told };
        table.sweep(before_ns, places, &mut teller);
        teller.tell_active(table, now_ns, places);
        teller.tell_merged(table);
    }

    /// Tells everything that is untold: the definition ends, or who is told does.
    pub fn tell_all(&mut self, groups: &Groups, told: &mut impl Told) {
        let Counting { definition, table, untolds, .. } = self;
        let Some(untolds) = untolds else { return };
        let mut teller = Teller { definition, groups, untolds, told };
        for place in 0..teller.untolds.places() {
            teller.tell_or_merge(table, place as u32, Cause::Stopped);
        }
        teller.tell_merged(table);
    }

    /// Forgets what all samples of these samplers are.
    pub(crate) fn forget_samplers(&mut self, gone: &[u32]) {
        self.table.forget_samplers(gone);
    }

    /// Notes from now on which flows have this rate per second or more; infinity: none. To be called before each look at
    /// [`hot`](Self::hot).
    pub(crate) fn watch(&mut self, rate: f64, now_ns: u64) {
        self.table.watch(rate, now_ns);
    }

    /// The flows that were at the watched rate when it was last set, and those that have come to it since: each with the bytes that tell it
    /// from others, its sampler if each has a figure of its own, and its rate.
    pub(crate) fn hot(&self, now_ns: u64) -> impl Iterator<Item = (&[u8], u32, Estimate)> {
        let factor = self.table.rate_factor(now_ns);
        self.table.hot().map(move |(key, flow)| {
            let (sampler, values) = key.split_at(self.sampler_len());
            let sampler = sampler.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            (values, sampler, self.rate(key, flow).times(factor))
        })
    }

    /// The rate of one flow that [`hot`](Self::hot) told of, if it is still there.
    pub(crate) fn rate_of(&self, values: &[u8], sampler: u32, now_ns: u64) -> Option<Estimate> {
        let mut key = sampler.to_be_bytes()[..self.sampler_len()].to_vec();
        key.extend_from_slice(values);
        let flow = self.table.get(&key)?;
        Some(self.rate(&key, flow).times(self.table.rate_factor(now_ns)))
    }

    /// Whether it has counted for less than a time constant of its rates.
    pub(crate) fn is_young(&self, now_ns: u64) -> bool {
        self.table.age(now_ns) < self.definition.smoothing
    }

    /// Samples of flows at the watched rate that no threshold looked at, because too many others were.
    pub fn hot_missed(&self) -> u64 {
        self.table.hot_missed()
    }

    /// Bytes before the values in a key of the table.
    fn sampler_len(&self) -> usize {
        self.definition.key_len() - self.definition.keys.len() * Value::KEY_LEN
    }

    /// The values of a key of the table, with or without its sampler.
    pub fn values(&self, key: &[u8]) -> Vec<Value> {
        let start = key.len().saturating_sub(self.definition.keys.len() * Value::KEY_LEN);
        key[start..].as_chunks::<{ Value::KEY_LEN }>().0.iter().map(Value::read).collect()
    }

    /// A key for people: its parts with their values.
    pub fn shown(&self, values: &[Value], groups: &Groups) -> Vec<String> {
        self.definition.shown(values, groups)
    }

    fn rate(&self, key: &[u8], flow: &Flow) -> Estimate {
        let all = self.all_of(key);
        let recent = all.map_or(f64::INFINITY, |all| pinned(all.recent.effective_samples()));
        Estimate::of(&flow.recent, recent, self.sampled(all))
    }

    /// All samples of the sampler that a flow is of; of several samplers, nothing.
    pub(crate) fn all_of(&self, key: &[u8]) -> Option<&Everything> {
        all_of(&self.definition, &self.table, key)
    }

    /// The share of frames that were sampled and arrived.
    fn sampled(&self, all: Option<&Everything>) -> f64 {
        match self.definition.measure {
            // What arrived is known.
            Measure::Samples => 1.0,
            Measure::Bytes | Measure::Frames => sampled_share(all),
        }
    }

    fn is_asked_for(&self, sample: &Sample) -> bool {
        let is_direction = match self.definition.direction {
            Direction::Any => true,
            direction => direction == sample.direction,
        };
        let is_place = match self.definition.aggregation {
            Aggregation::Edge => sample.is_edge,
            Aggregation::Max | Aggregation::Sum => true,
        };
        is_direction && is_place
    }
}

/// All samples of the sampler that a flow is of; of several samplers, nothing.
fn all_of<'t>(definition: &Definition, table: &'t Table, key: &[u8]) -> Option<&'t Everything> {
    match (definition.aggregation, key.first_chunk()) {
        (Aggregation::Max, Some(sampler)) => table.all_of(u32::from_be_bytes(*sampler)),
        _ => table.all_of_only(),
    }
}

pub(crate) fn sampled_share(all: Option<&Everything>) -> f64 {
    match all {
        Some(all) if all.total.value > 0.0 => all.total.effective_samples() / all.total.value,
        _ => 0.0,
    }
}

/// Tells what comes of a definition's flows.
struct Teller<'a, T> {
    definition: &'a Definition,
    groups: &'a Groups,
    untolds: &'a mut Untolds,
    told: &'a mut T,
}

impl<T: Told> Ended for Teller<'_, T> {
    fn ended(&mut self, table: &Table, place: u32, why: Leaving) {
        let cause = match why {
            Leaving::Idle => Cause::Ended,
            Leaving::Lightest => Cause::Evicted,
        };
        self.tell_or_merge(table, place, cause);
    }
}

impl<T: Told> Teller<'_, T> {
    fn tell_or_merge(&mut self, table: &Table, place: u32, cause: Cause) {
        let untold = self.untolds.take(place as usize);
        if !untold.is_empty() && self.tell(table, place, &untold, cause) == Accepted::No {
            self.untolds.merge(&untold);
        }
    }

    /// Tells of flows that go on, until no more are taken.
    fn tell_active(&mut self, table: &Table, now_ns: u64, mut places: usize) {
        while let Some(place) = self.untolds.next_due(now_ns, &mut places) {
            let untold = self.untolds.take(place);
            if self.tell(table, place as u32, &untold, Cause::Active) == Accepted::No {
                return self.untolds.put_back(place, untold);
            }
        }
    }

    fn tell_merged(&mut self, table: &Table) {
        let flows = std::mem::take(&mut self.untolds.merged_flows);
        let untold = std::mem::take(&mut self.untolds.merged);
        if flows == 0 {
            return;
        }
        let sampled = sampled_share(table.all_of_only());
        let (bytes, frames) = untold.estimates(f64::INFINITY, sampled);
        // Such a one is always taken.
        self.told.flow(&Portion {
            definition: self.definition,
            groups: self.groups,
            cause: Cause::Merged,
            key: &[],
            sampler: None,
            flows,
            amounts: untold.amounts,
            bytes,
            frames,
            first_ns: untold.first_ns,
            last_ns: untold.last_ns(),
            rate_missing_max: 0.0,
        });
    }

    fn tell(&mut self, table: &Table, place: u32, untold: &Untold, cause: Cause) -> Accepted {
        let key = table.key(place);
        let all = all_of(self.definition, table, key);
        let since = all.map(|all| untold.all_since(&all.total).effective_samples());
        let all_samples = since.map_or(f64::INFINITY, pinned);
        let (bytes, frames) = untold.estimates(all_samples, sampled_share(all));

        let (sampler, values) = match self.definition.aggregation {
            Aggregation::Max => key.split_at(SAMPLER_LEN),
            Aggregation::Sum | Aggregation::Edge => key.split_at(0),
        };
        self.told.flow(&Portion {
            definition: self.definition,
            groups: self.groups,
            cause,
            key: values,
            sampler: sampler.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)),
            flows: 1,
            amounts: untold.amounts,
            bytes,
            frames,
            first_ns: untold.first_ns,
            last_ns: untold.last_ns(),
            rate_missing_max: table.flow(place).inherited * table.rate_factor(untold.last_ns()),
        })
    }
}
