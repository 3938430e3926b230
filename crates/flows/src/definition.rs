//! What one flow definition counts.

use crate::batch::Batch;
use crate::estimate::Estimate;
use crate::field::Value;
use crate::filter::Filter;
use crate::heaviest::VANTAGE_LEN;
use crate::key::Part;
use crate::lookup::Groups;
use crate::table::Table;
use std::time::Duration;

/// What a figure sums up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Measure {
    /// Bytes on the wire.
    #[default]
    Bytes,
    /// Frames.
    Frames,
    /// Samples as they arrived, without scaling.
    Samples,
}

/// Which samples count, by the side of the interface where they were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// All samples.
    #[default]
    Any,
    /// Taken where the frame came in.
    Ingress,
    /// Taken where the frame left.
    Egress,
}

/// Which frames a definition covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Traffic {
    /// Frames sampled as they passed.
    #[default]
    Sampled,
    /// Frames that a switch or host reports as dropped.
    Dropped,
}

/// How to count a frame that is sampled several times on its way. At one agent, what its ports see as frames enter adds up, what they
/// see as frames leave adds up, and the larger of the two counts: they are the same frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Aggregation {
    /// Use the figure of the agent that saw most of a flow: nothing is counted twice.
    #[default]
    Max,
    /// Sum the figures of all agents: right if each frame passes only one of them. Of an agent, a frame that is sampled as it enters
    /// and as it leaves counts in the direction in which the agent samples most.
    Sum,
    /// Count only samplers at interfaces that are not `internal`, where frames enter the network.
    Edge,
}

/// One `[[flow]]` of the configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// What distinguishes flows. A sample that lacks any part is not counted; an empty key makes one flow of everything.
    pub keys: Vec<Part>,
    /// Which frames to count.
    pub traffic: Traffic,
    /// What to sum up.
    pub measure: Measure,
    /// Which samples to count, by their content.
    pub filter: Option<Filter>,
    /// Which samples to count, by direction.
    pub direction: Direction,
    /// How to count frames that are seen several times.
    pub aggregation: Aggregation,
    /// Time constant of the rates.
    pub smoothing: Duration,
    /// How many flows are shown.
    pub top: usize,
    /// A flow that was not seen for this long has ended.
    pub active_timeout: Duration,
    /// Maximum number of flows kept.
    pub flows_max: usize,
}

impl Definition {
    /// Maximum memory of its flows, in bytes.
    pub fn memory_max_bytes(&self) -> usize {
        let key_len = self.key_len();
        Table::memory_max_bytes(key_len, self.flows_max) + Batch::memory_bytes(key_len)
    }

    /// A key for people: its parts with their values.
    pub fn shown(&self, values: &[Value], groups: &Groups) -> Vec<String> {
        let parts = self.keys.iter().zip(values);
        parts.map(|(part, value)| part.shown(*value, groups)).collect()
    }

    /// Whether keys contain groups, which counts refer to by number.
    pub(crate) fn has_groups_in_keys(&self) -> bool {
        self.keys.iter().any(|part| matches!(part, Part::Group(_)))
    }

    /// Length of a key in the table, in bytes.
    pub(crate) fn key_len(&self) -> usize {
        let vantage = if self.aggregation == Aggregation::Max { VANTAGE_LEN } else { 0 };
        vantage + self.keys.len() * Value::KEY_LEN
    }
}

/// A sample, as counted by a definition.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The kind of traffic that was sampled.
    pub traffic: Traffic,
    /// The number of its vantage: of all samplers of its agent in its direction.
    pub vantage: u32,
    /// The number of its sampler, the same for all its samples.
    pub sampler: u32,
    /// Side of the interface where it was taken.
    pub direction: Direction,
    /// Whether it was taken where frames enter the network.
    pub is_edge: bool,
    /// Whether a sum over agents takes it: it does of each frame of an agent once, whichever of its sides sampled it.
    pub is_once: bool,
    /// Number of frames that it stands for.
    pub frames: f64,
    /// Number of frames that it stands for according to the agent: too low when samples are lost.
    pub configured_rate: u32,
    /// Length of the frame on the wire, in bytes.
    pub frame_bytes: u32,
    /// When it arrived.
    pub now_ns: u64,
}

/// A flow with its figures.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The number of the vantage behind the figure; 0 if there are several.
    pub vantage: u32,
    /// How many vantages saw the flow, if they are kept separate.
    pub vantages: u32,
    /// A value for each part of the definition's key.
    pub key: Vec<Value>,
    /// Current value, per second.
    pub rate: Estimate,
    /// Total since the flow was first seen.
    pub total: Estimate,
    /// How much may be missing from `rate`, because other flows had its place before; per second.
    pub rate_missing_max: f64,
    /// Samples since the flow was first seen.
    pub samples: u64,
    /// Number of equal-sized samples that would make `rate` equally certain.
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
    /// Samples that are part of a flow.
    pub counted: u64,
    /// Samples left out by the filter, the direction, the edge or the sum.
    pub filtered: u64,
    /// Samples that lack a part of the key.
    pub without_key: u64,
}
