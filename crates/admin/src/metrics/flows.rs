//! Metrics of flows, whose labels are the keys of their definition.

use super::samples::NONE;
use super::{FamilyId as Id, Samples};
use crate::service::Service;
use std::sync::Arc;

/// The server's view of flows.
#[derive(Clone)]
pub struct Flows {
    /// Answers `/flows` and the paths below it.
    pub pages: Service,
    /// Reads the figures for `/metrics`.
    pub figures: Arc<dyn Fn() -> FlowFigures + Send + Sync>,
}

/// The figures of flows in `/metrics`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FlowFigures {
    /// Agents heard from recently.
    pub agents: u64,
    /// Datagrams by result.
    pub datagrams: Vec<(&'static str, u64)>,
    /// Samples by kind or result.
    pub samples: Vec<(&'static str, u64)>,
    /// Unknown structures.
    pub unknown_structures: u64,
    /// Malformed structures by class.
    pub faults: Vec<(&'static str, u64)>,
    /// What agents say against what they say elsewhere, by kind.
    pub discrepancies: Vec<(&'static str, u64)>,
    /// Each definition in the file.
    pub definitions: Vec<DefinitionFigures>,
    /// The heaviest flows of the exported definitions.
    pub series: Vec<FlowSeries>,
    /// Flows that would be exported if there were room.
    pub series_omitted: u64,
}

/// The figures of one definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefinitionFigures {
    /// Its name.
    pub name: String,
    /// Samples by result.
    pub samples: Vec<(&'static str, u64)>,
    /// Samples that lack a part of the key, by that part.
    pub lacking: Vec<(String, u64)>,
    /// Flows that are tracked.
    pub flows: u64,
    /// Number of flows evicted to make room for another.
    pub evicted: u64,
}

/// The unit of a flow's value, per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Frames.
    Frames,
    /// Samples.
    Samples,
}

/// One flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowSeries {
    /// The definition.
    pub flow: String,
    /// The unit of the value.
    pub unit: Unit,
    /// Label names and values. A name has only letters, digits and underscores, begins with a letter, and is unique.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: f64,
    /// The lower end of its 95 % confidence interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Samples of equal size that would give the same confidence.
    pub samples: f64,
}

pub(super) fn add(samples: &mut Samples<'_>, figures: &FlowFigures) {
    samples.whole(Id::FlowAgents, NONE, figures.agents);
    for (result, count) in &figures.datagrams {
        samples.whole(Id::FlowDatagrams, [*result], *count);
    }
    for (kind, count) in &figures.samples {
        samples.whole(Id::FlowSamples, [*kind], *count);
    }
    samples.whole(Id::FlowUnknown, NONE, figures.unknown_structures);
    for (class, count) in &figures.faults {
        samples.whole(Id::FlowFaults, [*class], *count);
    }
    for (kind, count) in &figures.discrepancies {
        samples.whole(Id::FlowDiscrepancies, [*kind], *count);
    }
    samples.whole(Id::FlowSeriesOmitted, NONE, figures.series_omitted);

    for one in &figures.definitions {
        for (result, count) in &one.samples {
            let labels = [one.name.clone(), (*result).to_owned()];
            samples.whole(Id::FlowDefinitionSamples, labels, *count);
        }
        for (key, count) in &one.lacking {
            let labels = [one.name.clone(), key.clone()];
            samples.whole(Id::FlowDefinitionLacking, labels, *count);
        }
        samples.whole(Id::FlowDefinitionFlows, [one.name.clone()], one.flows);
        samples.whole(Id::FlowDefinitionEvicted, [one.name.clone()], one.evicted);
    }
    figures.series.iter().for_each(|one| add_series(samples, one));
}

fn add_series(samples: &mut Samples<'_>, one: &FlowSeries) {
    let ids = match one.unit {
        Unit::Bytes => [Id::FlowBytes, Id::FlowBytesLow, Id::FlowBytesHigh, Id::FlowBytesSamples],
        Unit::Frames => {
            [Id::FlowFrames, Id::FlowFramesLow, Id::FlowFramesHigh, Id::FlowFramesSamples]
        }
        Unit::Samples => {
            [Id::FlowSampled, Id::FlowSampledLow, Id::FlowSampledHigh, Id::FlowSampledSamples]
        }
    };
    for (id, value) in ids.into_iter().zip([one.value, one.low, one.high, one.samples]) {
        samples.with_more(id, one.flow.clone(), one.labels.clone(), value);
    }
}
