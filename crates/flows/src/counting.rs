//! A flow definition at work: samples in, flows with figures out.

mod teller;

use crate::batch::{Batch, Waiting};
use crate::definition::{Aggregation, Definition, DefinitionTotals, Direction, Measure, Sample};
use crate::estimate::Estimate;
use crate::field::{Facts, Value};
use crate::key::Part;
use crate::lookup::{Author, Groups};
use crate::portion::{Amounts, Cause, Told, Untolds};
use crate::table::{Everything, Flow, Table};
use std::sync::Arc;
use std::time::Duration;
use teller::Teller;

/// A definition at work.
pub struct Counting {
    author: Author,
    definition: Arc<Definition>,
    table: Table,
    totals: DefinitionTotals,
    /// Samples that lack a part of the key, by the first such part.
    lacking: Vec<u64>,
    batch: Batch,
    untolds: Option<Untolds>,
    /// Samples counted before it reported its flows.
    unreported: u64,
    /// Samples of its traffic before there was the definition.
    began: u64,
}

/// Fewest samples of a flow that is at the watched rate by more than chance, or by more than what one datagram says.
const HOT_SAMPLES_MIN: u64 = 5;

/// A flow at the watched rate.
pub(crate) struct Hot<'a> {
    /// The bytes of the values of its key.
    pub(crate) key: &'a [u8],
    /// Its vantage, if vantages have separate figures.
    pub(crate) vantage: u32,
    pub(crate) rate: Estimate,
    /// The rate without the two intervals between checks in which it got most. 0 until there are three, and with fewer than five
    /// samples.
    pub(crate) steady: f64,
}

impl Counting {
    /// A definition that has counted nothing yet.
    pub fn new(definition: Definition, author: Author) -> Counting {
        let key_len = definition.key_len();
        Counting {
            author,
            table: Table::new(key_len, definition.flows_max, definition.smoothing),
            totals: DefinitionTotals::default(),
            lacking: vec![0; definition.keys.len()],
            batch: Batch::new(key_len),
            definition: Arc::new(definition),
            untolds: None,
            unreported: 0,
            began: 0,
        }
    }

    /// The same, but it begins after this many samples of its traffic.
    pub(crate) fn begun(self, began: u64) -> Counting {
        Counting { began, ..self }
    }

    /// Samples of its traffic before there was the definition.
    pub(crate) fn began(&self) -> u64 {
        self.began
    }

    /// The same, but it reports a flow that goes on after each interval `every`, and each flow that ends.
    pub(crate) fn telling(mut self, every: Option<Duration>) -> Counting {
        match (&mut self.untolds, every) {
            (Some(untolds), Some(every)) => untolds.set_every(every),
            (untolds, every) => {
                *untolds = every.map(Untolds::new);
                self.unreported = self.totals.counted;
            }
        }
        self
    }

    /// What it has counted, in whole units, if it reports its flows: what it has reported and what it is still to report.
    pub fn counted(&self) -> Option<Amounts> {
        self.untolds.as_ref().map(Untolds::counted)
    }

    /// Samples in the portions that it has reported.
    pub(crate) fn reported_samples(&self) -> u64 {
        self.untolds.as_ref().map_or(0, Untolds::reported_samples)
    }

    /// How many samples its own counts contradict: what it has seen against what became of it, and what it has counted against
    /// what it reports. Call it between datagrams.
    pub(crate) fn contradictions(&self) -> u64 {
        let DefinitionTotals { seen, counted, filtered, without_key } = self.totals;
        let unsorted = seen.abs_diff(counted + filtered + without_key);
        let Some(untolds) = &self.untolds else { return unsorted };
        let Amounts { samples, .. } = untolds.counted();
        let too_many = untolds.reported_samples().saturating_sub(samples);
        unsorted + too_many + (counted - self.unreported).abs_diff(samples)
    }

    /// The definition.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Who made the definition.
    pub fn author(&self) -> Author {
        self.author
    }

    /// The definition, shared.
    pub fn shared_definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    /// The flows.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Length of a key in the table, in bytes.
    pub(crate) fn key_len(&self) -> usize {
        self.definition.key_len()
    }

    /// What became of samples.
    pub fn totals(&self) -> DefinitionTotals {
        self.totals
    }

    /// How many samples lack a part of the key, by the first such part. They add up to `without_key`.
    pub fn lacking(&self) -> impl Iterator<Item = (Part, u64)> {
        self.definition.keys.iter().copied().zip(self.lacking.iter().copied())
    }

    /// Number of flows kept now.
    pub fn flows(&self) -> usize {
        self.table.len()
    }

    /// How often a flow was evicted for another.
    pub fn evicted(&self) -> u64 {
        self.table.evicted()
    }

    /// Counts a sample. It is part of its flow after [`settle`](Self::settle).
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
        // The sampler's pool counts every frame, whatever this definition selects.
        let weight = self.table.weight_at(sample.now_ns);
        self.table.add_to_all(sample, weight);
        if !self.is_asked_for(sample) {
            self.totals.filtered += 1;
            return;
        }
        if self.definition.filter.as_ref().is_some_and(|filter| !filter.passes(facts, groups)) {
            self.totals.filtered += 1;
            return;
        }

        let vantage_len = self.vantage_len();
        let (vantage, values) = self.batch.next_key().split_at_mut(vantage_len);
        if let Some(place) = vantage.first_chunk_mut() {
            *place = sample.vantage.to_be_bytes();
        }
        let places = values.as_chunks_mut::<{ Value::KEY_LEN }>().0;
        let lacking = &mut self.lacking;
        for ((part, place), lacking) in self.definition.keys.iter().zip(places).zip(lacking) {
            let value = part.value(facts, groups);
            if value == Value::Absent {
                self.totals.without_key += 1;
                *lacking += 1;
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

    /// Queues a sample whose key has been built.
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
        // While the next sample is read, memory loads the slot for this one, and the flow of the one before.
        table.prefetch_slot(hash);
        before.into_iter().for_each(|hash| table.prefetch_flow(hash));
        let all = untolds.as_ref().and_then(|_| all_of(definition, table, key));
        let all = all.map(|all| all.total).unwrap_or_default();
        batch.push(Waiting { hash, value, sample, all });
    }

    /// Adds the counted samples to their flows. Call it after each datagram.
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

    /// Ends flows that were not seen for the active timeout. Checks only part of the flows per call.
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

    /// Reports everything not reported yet, because the definition or its reader ends.
    pub fn tell_all(&mut self, groups: &Groups, told: &mut impl Told) {
        let Counting { definition, table, untolds, .. } = self;
        let Some(untolds) = untolds else { return };
        let mut teller = Teller { definition, groups, untolds, told };
        for place in 0..teller.untolds.places() {
            teller.tell_or_merge(table, place as u32, Cause::Stopped);
        }
        teller.tell_merged(table);
    }

    /// Forgets the totals of these vantages.
    pub(crate) fn forget_vantages(&mut self, gone: &[u32]) {
        self.table.forget_vantages(gone);
    }

    /// Tracks from now on which flows have at least this rate per second; infinity for none. Call it before each use of
    /// [`hot`](Self::hot).
    pub(crate) fn watch(&mut self, rate: f64, now_ns: u64) {
        self.table.watch(rate, now_ns);
    }

    /// The flows that had the watched rate when it was last set, or have reached it since.
    pub(crate) fn hot(&self, now_ns: u64) -> impl Iterator<Item = Hot<'_>> {
        let factor = self.table.rate_factor(now_ns);
        self.table.hot().map(move |(key, flow, steady)| {
            let (vantage, values) = key.split_at(self.vantage_len());
            let vantage = vantage.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            let rate = self.rate(key, flow).times(factor);
            let steady = if flow.samples < HOT_SAMPLES_MIN { 0.0 } else { steady };
            Hot { key: values, vantage, rate, steady }
        })
    }

    /// The rate of one flow that [`hot`](Self::hot) returned, if it still exists.
    pub(crate) fn rate_of(&self, values: &[u8], vantage: u32, now_ns: u64) -> Option<Estimate> {
        let mut key = vantage.to_be_bytes()[..self.vantage_len()].to_vec();
        key.extend_from_slice(values);
        let flow = self.table.get(&key)?;
        Some(self.rate(&key, flow).times(self.table.rate_factor(now_ns)))
    }

    /// Whether it has counted for less than the time constant of its rates.
    pub(crate) fn is_young(&self, now_ns: u64) -> bool {
        self.table.age(now_ns) < self.definition.smoothing
    }

    /// Samples of flows at the watched rate that no threshold examined, because there were too many others.
    pub fn hot_missed(&self) -> u64 {
        self.table.hot_missed()
    }

    /// Length of the vantage in front of the values in a key of the table, in bytes.
    fn vantage_len(&self) -> usize {
        self.definition.key_len() - self.definition.keys.len() * Value::KEY_LEN
    }

    /// The values of a key of the table, with or without its vantage.
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
        let recent = all.map_or(f64::INFINITY, |all| all.known_samples(&all.recent));
        Estimate::of(&flow.recent, recent, self.sampled(all))
    }

    /// Totals of the vantage to which a flow belongs. `None` if there are several.
    pub(crate) fn all_of(&self, key: &[u8]) -> Option<&Everything> {
        all_of(&self.definition, &self.table, key)
    }

    /// The share of frames that were sampled and whose samples arrived.
    fn sampled(&self, all: Option<&Everything>) -> f64 {
        match self.definition.measure {
            // What arrived is exactly known.
            Measure::Samples => 1.0,
            Measure::Bytes | Measure::Frames => sampled_share(all),
        }
    }

    /// Whether of each frame of an agent it takes one sample: it adds up what comes. In one direction, nothing comes twice.
    #[inline]
    pub(crate) fn takes_once(&self) -> bool {
        self.definition.aggregation == Aggregation::Sum
            && self.definition.direction == Direction::Any
    }

    fn is_asked_for(&self, sample: &Sample) -> bool {
        let is_direction = match self.definition.direction {
            Direction::Any => true,
            direction => direction == sample.direction,
        };
        let is_place = match self.definition.aggregation {
            Aggregation::Edge => sample.is_edge,
            Aggregation::Sum => sample.is_once || !self.takes_once(),
            Aggregation::Max => true,
        };
        is_direction && is_place
    }
}

/// Totals of the vantage to which a flow belongs. `None` if there are several.
fn all_of<'t>(definition: &Definition, table: &'t Table, key: &[u8]) -> Option<&'t Everything> {
    match (definition.aggregation, key.first_chunk()) {
        (Aggregation::Max, Some(vantage)) => table.all_of(u32::from_be_bytes(*vantage)),
        _ => table.all_of_only(),
    }
}

pub(crate) fn sampled_share(all: Option<&Everything>) -> f64 {
    match all {
        Some(all) if all.total.value > 0.0 => all.total.effective_samples() / all.total.value,
        _ => 0.0,
    }
}
