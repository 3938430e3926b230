//! Portions: what was added to flows since they were last reported. Each sample is in exactly one portion, and the portions add
//! up to what was counted.
//!
//! Estimates of samples are fractions, and sums of fractions depend on their order. So each sample is assigned whole bytes and
//! frames, and the remainder goes to the next sample of the definition: integers add up exactly, and rounding loses nothing.

use crate::agent::AgentId;
use crate::definition::{Definition, Sample};
use crate::estimate::{Estimate, Sums};
use crate::field::Value;
use crate::key::Part;
use crate::lookup::Groups;
use crate::port::{Compared, Port};
use std::time::Duration;

/// Why a portion is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The flow goes on.
    Active,
    /// The flow was not seen for its definition's active timeout.
    Ended,
    /// The flow was the lightest, and another one took its place.
    Evicted,
    /// The definition ends.
    Stopped,
    /// Several flows that could not be reported one by one.
    Merged,
}

/// Whether the receiver of a portion accepts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// It is reported.
    Yes,
    /// There are too many: report it later, or merged with others.
    No,
}

/// Receives reports about flows and interfaces. `()` ignores them.
pub trait Told {
    /// A portion of a flow. A [`Cause::Merged`] one must always be accepted.
    fn flow(&mut self, _portion: &Portion<'_>) -> Accepted {
        Accepted::Yes
    }

    /// An interface's counters have arrived. `port` has them, and its rates if these are new.
    fn counters(&mut self, _reading: &CounterReading<'_>) {}
}

impl Told for () {}

/// Sums of whole units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amounts {
    /// Samples that arrived.
    pub samples: u64,
    /// Bytes that they stand for.
    pub bytes: u64,
    /// Frames that they stand for.
    pub frames: u64,
    /// Bytes according to the configured rate.
    pub raw_bytes: u64,
    /// Frames according to the configured rate.
    pub raw_frames: u64,
}

impl Amounts {
    fn add(&mut self, other: &Amounts) {
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.frames += other.frames;
        self.raw_bytes += other.raw_bytes;
        self.raw_frames += other.raw_frames;
    }
}

/// A portion of one flow, or of several.
pub struct Portion<'a> {
    /// The definition that counts it.
    pub definition: &'a Definition,
    /// The groups that its key may name.
    pub groups: &'a Groups,
    /// Why it is reported.
    pub cause: Cause,
    /// The bytes of the values of its key. Empty if it is merged.
    pub key: &'a [u8],
    /// The number of its vantage, if flows are counted by vantage.
    pub vantage: Option<u32>,
    /// Number of flows in it.
    pub flows: u64,
    /// The amounts.
    pub amounts: Amounts,
    /// The bytes with their interval.
    pub bytes: Estimate,
    /// The frames with their interval.
    pub frames: Estimate,
    /// When the first sample arrived, on the clock of figures.
    pub first_ns: u64,
    /// When the last sample arrived.
    pub last_ns: u64,
    /// How much may be missing from the rate, per second, in the definition's measure.
    pub rate_missing_max: f64,
}

impl Portion<'_> {
    /// The parts of the key with their values. Empty if it is merged.
    pub fn values(&self) -> impl Iterator<Item = (Part, Value)> {
        let values = self.key.as_chunks::<{ Value::KEY_LEN }>().0.iter().map(Value::read);
        self.definition.keys.iter().copied().zip(values)
    }
}

/// A counter sample of an interface.
pub struct CounterReading<'a> {
    /// The agent.
    pub id: AgentId,
    /// The agent's clock when it read them, in milliseconds since it started; wraps after 49.7 days.
    pub uptime_ms: u32,
    /// The interface, with what it reports now.
    pub port: &'a Port,
    /// The previous counters, if they can be compared.
    pub compared: Compared,
    /// When it arrived, on the clock of figures.
    pub now_ns: u64,
}

/// The part of one flow that was not reported yet.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Untold {
    pub(crate) amounts: Amounts,
    squared_bytes: f64,
    squared_frames: f64,
    pub(crate) first_ns: u64,
    last_ns: u64,
    /// Totals of the vantage before the first sample.
    all_before: Sums,
}

impl Untold {
    /// Whether there is nothing to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.amounts.samples == 0
    }

    fn merge(&mut self, other: &Untold) {
        self.first_ns =
            if self.is_empty() { other.first_ns } else { self.first_ns.min(other.first_ns) };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.amounts.add(&other.amounts);
        self.squared_bytes += other.squared_bytes;
        self.squared_frames += other.squared_frames;
    }

    /// Totals of the vantage since the first sample.
    pub(crate) fn all_since(&self, all: &Sums) -> Sums {
        let Sums { value, square } = self.all_before;
        Sums { value: all.value - value, square: all.square - square }
    }

    /// Bytes and frames with their intervals: see [`Estimate::of`].
    pub(crate) fn estimates(&self, all_samples: f64, sampled: f64) -> (Estimate, Estimate) {
        let Amounts { bytes, frames, .. } = self.amounts;
        let of = |value: u64, square| {
            Estimate::of(&Sums { value: value as f64, square }, all_samples, sampled)
        };
        (of(bytes, self.squared_bytes), of(frames, self.squared_frames))
    }

    /// When the last sample arrived.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }
}

/// The parts of a definition's flows that were not reported yet, by place.
pub(crate) struct Untolds {
    every_ns: u64,
    by_place: Vec<Untold>,
    /// Where the next search for flows that go on starts.
    looked: usize,
    /// The part that was not reported one by one.
    pub(crate) merged: Untold,
    pub(crate) merged_flows: u64,
    /// Fractions of a byte and of a frame, for the next sample.
    rest: (f64, f64),
    counted: Amounts,
    reported_samples: u64,
}

impl Untolds {
    pub(crate) fn new(every: Duration) -> Untolds {
        Untolds {
            every_ns: every.as_nanos() as u64,
            by_place: Vec::new(),
            looked: 0,
            merged: Untold::default(),
            merged_flows: 0,
            rest: (0.0, 0.0),
            counted: Amounts::default(),
            reported_samples: 0,
        }
    }

    /// Reports flows that go on after each such interval.
    pub(crate) fn set_every(&mut self, every: Duration) {
        self.every_ns = every.as_nanos() as u64;
    }

    /// Maximum memory for this many flows, in bytes: the list may briefly be held twice more while it grows.
    pub(crate) const fn memory_max_bytes(flows: usize) -> usize {
        3 * flows * size_of::<Untold>()
    }

    /// Everything counted since the start.
    pub(crate) fn counted(&self) -> Amounts {
        self.counted
    }

    /// Samples in the portions that were reported.
    pub(crate) fn reported_samples(&self) -> u64 {
        self.reported_samples
    }

    /// Notes a portion that was accepted.
    pub(crate) fn note_reported(&mut self, amounts: &Amounts) {
        self.reported_samples += amounts.samples;
    }

    /// Adds a sample of the flow at a place. `all` holds the totals of its vantage, including this sample.
    pub(crate) fn add(&mut self, place: usize, sample: &Sample, all: Sums) {
        if place >= self.by_place.len() {
            self.by_place.resize(place + 1, Untold::default());
        }
        let (frames, bytes) = (sample.frames, sample.frames * f64::from(sample.frame_bytes));
        let amounts = Amounts {
            samples: 1,
            bytes: whole(bytes, &mut self.rest.0),
            frames: whole(frames, &mut self.rest.1),
            raw_bytes: u64::from(sample.configured_rate) * u64::from(sample.frame_bytes),
            raw_frames: sample.configured_rate.into(),
        };
        self.counted.add(&amounts);

        let untold = &mut self.by_place[place];
        if untold.is_empty() {
            untold.first_ns = sample.now_ns;
            untold.all_before =
                Sums { value: all.value - frames, square: all.square - frames * frames };
        }
        untold.amounts.add(&amounts);
        untold.squared_bytes += bytes * bytes;
        untold.squared_frames += frames * frames;
        untold.last_ns = untold.last_ns.max(sample.now_ns);
    }

    /// Takes the unreported part of the flow at a place, and leaves it empty.
    pub(crate) fn take(&mut self, place: usize) -> Untold {
        self.by_place.get_mut(place).map(std::mem::take).unwrap_or_default()
    }

    /// Puts back a part that was not accepted.
    pub(crate) fn put_back(&mut self, place: usize, untold: Untold) {
        if let Some(slot) = self.by_place.get_mut(place) {
            *slot = untold;
        }
    }

    /// Adds a part to those that are reported together.
    pub(crate) fn merge(&mut self, untold: &Untold) {
        self.merged.merge(untold);
        self.merged_flows += 1;
    }

    /// The next place, among the next `places`, whose flow has gone on for so long that it is due.
    pub(crate) fn next_due(&mut self, now_ns: u64, places: &mut usize) -> Option<usize> {
        while *places > 0 {
            *places -= 1;
            let at = if self.looked < self.by_place.len() { self.looked } else { 0 };
            self.looked = at + 1;
            let untold = self.by_place.get(at)?;
            if !untold.is_empty() && now_ns.saturating_sub(untold.first_ns) >= self.every_ns {
                return Some(at);
            }
        }
        None
    }

    /// Number of places ever used.
    pub(crate) fn places(&self) -> usize {
        self.by_place.len()
    }
}

/// The whole units of a value and of the remainder from before.
fn whole(value: f64, rest: &mut f64) -> u64 {
    *rest += value;
    let whole = rest.floor().max(0.0);
    *rest -= whole;
    whole as u64
}

#[cfg(test)]
mod tests;
