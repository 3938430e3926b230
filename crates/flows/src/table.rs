//! Flows by key, in bounded memory: the heaviest stay.
//!
//! Space-Saving (Metwally, Agrawal and El Abbadi, 2005): when all places are taken, a new key takes the place of the lightest and
//! inherits its weight as its possible error, so no key heavier than `total / places` is ever missing. Weights decay over time by
//! increasing the weight of what is added instead ("forward decay", Cormode and others, 2009): an entry is touched only when its
//! key is seen, and the order of entries does not change by itself.

mod bounds;
mod everything;
mod hot;
mod index;

use crate::definition::Sample;
use crate::estimate::Sums;
use bounds::{Bound, Bounds};
pub(crate) use everything::Everything;
use foldhash::fast::RandomState;
use hot::{HotFlow, HotFlows};
use index::{Index, PLACES_MAX};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::Duration;
use sys::memory::prefer_huge_pages;
use sys::prefetch::prefetch;

/// Sums are scaled down before `exp` of this many time constants overflows.
const EXPONENT_MAX: f64 = 200.0;

/// What is known about one key. It fills one cache line, the only one that a sample changes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[repr(align(64))]
pub struct Flow {
    /// Decayed sums: divided by the time constant, a rate per second.
    pub recent: Sums,
    /// Sums since the key was first seen.
    pub total: Sums,
    /// Number of samples since then.
    pub samples: u64,
    /// Weight of the earlier keys in this place, decayed like `recent`: the most that may be missing.
    pub inherited: f64,
    /// When the key was first seen, in nanoseconds.
    pub first_ns: u64,
    /// When it was last seen.
    pub last_ns: u64,
}

impl Flow {
    /// Adds what another device saw of the flow.
    pub(crate) fn join(&mut self, other: &Flow) {
        self.recent.join(&other.recent);
        self.total.join(&other.total);
        self.samples += other.samples;
        self.inherited += other.inherited;
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    fn weight(&self) -> f64 {
        self.recent.value + self.inherited
    }
}

const _: () = assert!(size_of::<Flow>() == 64);

/// What is checked about a place when its flow comes, goes, or is at the watched rate.
struct Place {
    hash: u32,
    /// Incremented when the place gets another key, which marks the previous key's bound as stale.
    generation: u32,
    is_taken: bool,
    /// Whether the place is in `hot`.
    is_hot: bool,
}

/// Keys of one length with their sums.
pub struct Table {
    key_len: usize,
    capacity: usize,
    keys: Vec<u8>,
    flows: Vec<Flow>,
    places: Vec<Place>,
    free: Vec<u32>,
    index: Index,
    /// Between rescalings weights only grow, so bounds are corrected when they reach the top.
    bounds: Bounds,
    hasher: RandomState,
    /// Time constant of the decay, in seconds.
    smoothing_s: f64,
    /// When a weight of 1 applied.
    landmark_ns: u64,
    /// The last moment for which a weight was requested, and the weight.
    weighed: (u64, f64),
    /// Where the next sweep starts.
    swept: usize,
    evicted: u64,
    /// Flows that were at the watched rate when they were last counted.
    hot: HotFlows,
    /// Totals by vantage.
    all: HashMap<u32, Everything, RandomState>,
    /// When the first sample arrived.
    began_ns: u64,
}

/// Why a flow leaves its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// It is no longer seen.
    Idle,
    /// It is the lightest.
    Lightest,
}

/// Called for flows that end, in the order in which they end.
pub trait Ended {
    /// The flow at a place is about to leave it; the table still has it.
    fn ended(&mut self, table: &Table, place: u32, why: Leaving);
}

/// Ignores them.
impl Ended for () {
    fn ended(&mut self, _: &Table, _: u32, _: Leaving) {}
}

impl Table {
    /// A table for at most `capacity` keys of `key_len` bytes, whose weights decay with the time constant `smoothing`.
    pub fn new(key_len: usize, capacity: usize, smoothing: Duration) -> Table {
        let capacity = capacity.clamp(1, PLACES_MAX);
        Table {
            key_len,
            capacity,
            keys: Vec::new(),
            flows: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            index: Index::new(),
            bounds: Bounds::default(),
            hasher: RandomState::default(),
            smoothing_s: smoothing.as_secs_f64().max(1e-3),
            landmark_ns: 0,
            weighed: (0, 1.0),
            swept: 0,
            evicted: 0,
            hot: HotFlows::new(),
            all: HashMap::default(),
            began_ns: 0,
        }
    }

    /// Maximum memory of a table with this shape, in bytes.
    pub const fn memory_max_bytes(key_len: usize, capacity: usize) -> usize {
        let flow = key_len + size_of::<Flow>() + size_of::<Place>();
        let each = flow + size_of::<u32>();
        let found = Index::memory_max_bytes(capacity) + Bounds::memory_max_bytes(capacity);
        found + capacity * each + HotFlows::memory_max_bytes()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often a key was evicted for another.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The weight of what is added at `now_ns`: the same for all samples of one moment.
    pub fn weight_at(&mut self, now_ns: u64) -> f64 {
        if self.weighed.0 != now_ns {
            self.weighed = (now_ns, self.new_weight_at(now_ns));
        }
        self.weighed.1
    }

    fn new_weight_at(&mut self, now_ns: u64) -> f64 {
        if self.landmark_ns == 0 {
            (self.landmark_ns, self.began_ns) = (now_ns, now_ns);
        }
        let exponent = self.exponent(now_ns);
        if exponent > EXPONENT_MAX {
            self.rebase(now_ns, exponent);
            return 1.0;
        }
        exponent.exp()
    }

    /// The factor that turns a decayed sum into a rate per second at `now_ns`. Time before the first sample is not averaged in,
    /// so rates are right from the start.
    pub fn rate_factor(&self, now_ns: u64) -> f64 {
        self.rate_factor_of(now_ns, self.exponent(now_ns))
    }

    fn rate_factor_of(&self, now_ns: u64, exponent: f64) -> f64 {
        let lived_s = self.age(now_ns).as_secs_f64();
        // Less than a tenth of the time constant says too little.
        let share = 1.0 - (-(lived_s / self.smoothing_s).max(0.1)).exp();
        (-exponent).exp() / (self.smoothing_s * share)
    }

    /// The hash by which [`add`](Self::add) finds a key.
    pub fn hash(&self, key: &[u8]) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    /// Prefetches the memory where a search for this hash starts. This and [`prefetch_flow`](Self::prefetch_flow) affect only
    /// speed: a flow not seen lately is in no cache.
    pub fn prefetch_slot(&self, hash: u32) {
        self.index.prefetch(hash);
    }

    /// Prefetches the memory where a search for this hash ends: the flow and its key. Call it some time after
    /// [`prefetch_slot`](Self::prefetch_slot), or it has to wait for that memory.
    pub fn prefetch_flow(&self, hash: u32) {
        let Some(place) = self.index.places(hash).next() else { return };
        prefetch(&self.flows[place as usize]);
        // A key may span two cache lines.
        let key = self.key(place);
        key.first().into_iter().chain(key.last()).for_each(prefetch);
    }

    /// Adds a sample that stands for `value`; `weight` comes from [`weight_at`](Self::weight_at). `key` must have the table's key
    /// length, and `hash` must be [its hash](Self::hash). Returns the place of its flow.
    pub fn add(
        &mut self,
        (key, hash): (&[u8], u32),
        value: f64,
        weight: f64,
        now_ns: u64,
        ended: &mut impl Ended,
    ) -> u32 {
        debug_assert_eq!((key.len(), hash), (self.key_len, self.hash(key)));
        let at = match self.find(key, hash) {
            Some(at) => at,
            None => self.insert(key, hash, now_ns, ended),
        };

        let flow = &mut self.flows[at as usize];
        flow.recent.add(value, weight);
        flow.total.add(value, 1.0);
        flow.samples += 1;
        flow.last_ns = flow.last_ns.max(now_ns);
        if flow.recent.value >= self.hot.least * weight {
            self.note_hot(at);
        }
        at
    }

    /// Records that the flow at a place is at the watched rate.
    fn note_hot(&mut self, at: u32) {
        let place = &mut self.places[at as usize];
        if place.is_hot {
            return;
        }
        if self.hot.is_full() {
            return self.displace(at);
        }
        place.is_hot = true;
        self.hot.flows.push(HotFlow::new(at, place.generation));
    }

    /// Remembers a flow in place of a lighter one, so that many flows above a low threshold do not hide one above a high
    /// threshold. Each sample is compared with one other flow, in turn: a flow heavier than most finds a place within a few of
    /// its samples.
    fn displace(&mut self, at: u32) {
        self.hot.missed += 1;
        let other = self.hot.next_candidate();
        let value_at = |at: u32| self.flows[at as usize].recent.value;
        if value_at(other.place) < value_at(at) {
            self.places[other.place as usize].is_hot = false;
            self.places[at as usize].is_hot = true;
            *other = HotFlow::new(at, self.places[at as usize].generation);
        }
    }

    /// Time since the first sample; zero before it.
    pub fn age(&self, now_ns: u64) -> Duration {
        let since_ns = if self.began_ns == 0 { now_ns } else { self.began_ns };
        Duration::from_nanos(now_ns.saturating_sub(since_ns))
    }

    /// Tracks from now on which flows have at least this rate per second, and drops those that do not. Call it before each use of
    /// [`hot`](Self::hot): a flow's rate only falls between its samples, so none can pass unnoticed.
    pub fn watch(&mut self, rate: f64, now_ns: u64) {
        self.hot.least = rate / self.rate_factor_of(now_ns, 0.0);
        let least = rate / self.rate_factor(now_ns);
        let (places, flows, smoothing_s) = (&mut self.places, &self.flows, self.smoothing_s);
        self.hot.flows.retain_mut(|hot| {
            let (place, flow) = (&mut places[hot.place as usize], &flows[hot.place as usize]);
            place.is_hot = place.is_taken && flow.recent.value >= least;
            if place.generation != hot.generation {
                *hot = HotFlow::new(hot.place, place.generation);
            }
            hot.evidence.look(flow.total.value, now_ns, smoothing_s);
            place.is_hot
        });
    }

    /// The flows at or above the watched rate, in no particular order, each with its rate without the two intervals between
    /// checks in which it got most.
    pub fn hot(&self) -> impl Iterator<Item = (&[u8], &Flow, f64)> {
        let taken = self.hot.flows.iter().filter(|hot| self.places[hot.place as usize].is_taken);
        taken.map(|hot| (self.key(hot.place), self.flow(hot.place), hot.evidence.rate()))
    }

    /// Samples that brought a flow to the watched rate while the maximum number was remembered: one of two flows was then not
    /// recorded.
    pub fn hot_missed(&self) -> u64 {
        self.hot.missed
    }

    /// Adds a sample to the totals of its vantage.
    pub fn add_to_all(&mut self, sample: &Sample, weight: f64) {
        self.all.entry(sample.vantage).or_default().add(sample, weight);
    }

    /// Forgets the totals of these vantages.
    pub fn forget_vantages(&mut self, gone: &[u32]) {
        for vantage in gone {
            self.all.remove(vantage);
        }
    }

    /// The totals of a vantage.
    pub fn all_of(&self, vantage: u32) -> Option<&Everything> {
        self.all.get(&vantage)
    }

    /// The totals of all samples, if they come from one vantage.
    pub fn all_of_only(&self) -> Option<&Everything> {
        if self.all.len() == 1 { self.all.values().next() } else { None }
    }

    /// Ends the flows not seen since `before_ns`. Checks `places` places, starting where the last call stopped.
    pub fn sweep(&mut self, before_ns: u64, places: usize, ended: &mut impl Ended) {
        for _ in 0..places.min(self.places.len()) {
            let at = self.swept % self.places.len();
            self.swept = at + 1;
            if self.flows[at].last_ns < before_ns && self.places[at].is_taken {
                ended.ended(self, at as u32, Leaving::Idle);
                self.remove(at as u32);
                self.free.push(at as u32);
            }
        }
    }

    /// Number of places ever taken.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    /// The flows at up to `most` places, starting at `from`.
    pub(crate) fn part(&self, from: usize, most: usize) -> impl Iterator<Item = (&[u8], &Flow)> {
        let places = self.places.iter().enumerate().skip(from).take(most);
        let taken = places.filter(|(_, place)| place.is_taken);
        taken.map(|(at, _)| (self.key(at as u32), self.flow(at as u32)))
    }

    /// Every flow with its key, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Flow)> {
        let taken = self.places.iter().enumerate().filter(|(_, place)| place.is_taken);
        taken.map(|(at, _)| (self.key(at as u32), &self.flows[at]))
    }

    /// The flow of one key.
    pub fn get(&self, key: &[u8]) -> Option<&Flow> {
        Some(self.flow(self.find(key, self.hash(key))?))
    }

    fn exponent(&self, now_ns: u64) -> f64 {
        let since_ns = now_ns.saturating_sub(self.landmark_ns);
        since_ns as f64 / 1e9 / self.smoothing_s
    }

    /// Makes a weight of 1 apply at `now_ns` from now on.
    fn rebase(&mut self, now_ns: u64, exponent: f64) {
        let factor = (-exponent).exp();
        self.all.values_mut().for_each(|all| all.rebase(factor));
        for flow in &mut self.flows {
            flow.recent.scale(factor);
            flow.inherited *= factor;
        }
        self.bounds.scale(factor);
        self.landmark_ns = now_ns;
    }

    /// The flow at a place.
    pub fn flow(&self, place: u32) -> &Flow {
        &self.flows[place as usize]
    }

    /// The key of the flow at a place.
    pub fn key(&self, at: u32) -> &[u8] {
        let start = at as usize * self.key_len;
        &self.keys[start..start + self.key_len]
    }

    fn find(&self, key: &[u8], hash: u32) -> Option<u32> {
        self.index.places(hash).find(|place| self.key(*place) == key)
    }

    fn insert(&mut self, key: &[u8], hash: u32, now_ns: u64, ended: &mut impl Ended) -> u32 {
        let (at, inherited) = match self.free.pop() {
            Some(at) => (at, 0.0),
            None if self.places.len() < self.capacity => (self.grow(), 0.0),
            None => self.evict(ended),
        };

        let start = at as usize * self.key_len;
        self.keys[start..start + self.key_len].copy_from_slice(key);
        let flow = Flow { inherited, first_ns: now_ns, last_ns: now_ns, ..Flow::default() };
        self.flows[at as usize] = flow;
        let place = &mut self.places[at as usize];
        (place.hash, place.is_taken) = (hash, true);
        let generation = place.generation;

        self.index.insert(hash, at);
        let places = &self.places;
        let is_old = |one: &Bound| places[one.place as usize].generation != one.generation;
        self.bounds.push(Bound { bound: inherited, place: at, generation }, is_old);
        at
    }

    /// Reserves memory for all places at once: untouched memory takes no space yet, and moving would split huge pages.
    fn reserve(&mut self) {
        self.places.reserve_exact(self.capacity);
        self.flows.reserve_exact(self.capacity);
        self.keys.reserve_exact(self.capacity * self.key_len);
        self.free.reserve_exact(self.capacity);
        self.bounds.make_room(self.capacity);
        prefer_huge_pages(&self.flows);
        prefer_huge_pages(&self.keys);
    }

    fn grow(&mut self) -> u32 {
        if self.places.capacity() == 0 {
            self.reserve();
        }

        let at = self.places.len() as u32;
        self.keys.resize(self.keys.len() + self.key_len, 0);
        self.flows.push(Flow::default());
        self.places.push(Place { hash: 0, generation: 0, is_taken: false, is_hot: false });
        self.index.make_room(self.places.len());
        at
    }

    /// Evicts the lightest key from its place. Returns the place and its weight.
    fn evict(&mut self, ended: &mut impl Ended) -> (u32, f64) {
        loop {
            let Some(top) = self.bounds.first() else {
                // Unreachable: every taken place has a bound. The first place is as good as any.
                self.remove(0);
                return (0, 0.0);
            };
            let weight = self.flow(top.place).weight();
            if self.places[top.place as usize].generation != top.generation {
                self.bounds.pop();
            } else if weight > top.bound {
                self.bounds.raise_first(weight);
            } else {
                self.bounds.pop();
                ended.ended(self, top.place, Leaving::Lightest);
                self.remove(top.place);
                self.evicted += 1;
                return (top.place, weight);
            }
        }
    }

    /// Removes the key of a place from the index.
    fn remove(&mut self, at: u32) {
        let place = &mut self.places[at as usize];
        place.is_taken = false;
        place.generation = place.generation.wrapping_add(1);
        self.index.remove(place.hash, at);
    }
}

#[cfg(test)]
mod tests;
