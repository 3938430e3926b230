//! What one flow definition counts.

use crate::batch::Batch;
use crate::estimate::Estimate;
use crate::field::Value;
use crate::filter::Filter;
use crate::heaviest::SAMPLER_LEN;
use crate::key::Part;
use crate::lookup::Groups;
use crate::table::Table;
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
    pub(crate) fn key_len(&self) -> usize {
        let sampler = if self.aggregation == Aggregation::Max { SAMPLER_LEN } else { 0 };
        sampler + self.keys.len() * Value::KEY_LEN
    }
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
