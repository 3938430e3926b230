//! Flow figures for `/metrics`.

use super::super::flows::{Fresh, Shared, Summary, Top};
use admin::{DefinitionFigures, FlowFigures, FlowSeries, Unit};
use flows::{Definition, EngineTotals, Figure, Groups, Measure, Part};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Most flows exported as series, over all definitions.
const SERIES_MAX: usize = 1_000;
/// Most characters of a label's value.
const LABEL_CHARS_MAX: usize = 128;

/// The definitions whose flows are exported as series, as the file says. Changes with a reload.
#[derive(Default)]
pub(crate) struct Exported(Mutex<HashSet<String>>);

impl Exported {
    /// Replaces the names.
    pub(crate) fn set(&self, names: HashSet<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    fn names(&self) -> HashSet<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What `/metrics` shows of an analysis.
pub(crate) fn figures(
    shared: &Arc<Shared>,
    exported: &Arc<Exported>,
) -> Arc<dyn Fn() -> FlowFigures + Send + Sync> {
    let (shared, exported) = (Arc::clone(shared), Arc::clone(exported));
    let made = Fresh::default();
    Arc::new(move || made.get((), || Some(make(&shared, &exported))).unwrap_or_default())
}

fn make(shared: &Shared, exported: &Exported) -> FlowFigures {
    let (read, definitions, agents) = shared.look(|analysis, _| {
        let engine = analysis.engine();
        let definitions: Vec<Summary> = engine.counting().iter().map(Summary::of).collect();
        (engine.totals().clone(), definitions, engine.agents().len() as u64)
    });
    let mut figures = totals(&read, &definitions, agents);
    for name in sorted(&exported.names()) {
        if let Some(top) = shared.top(name) {
            add(&mut figures, &top);
        }
    }
    figures
}

fn sorted(names: &HashSet<String>) -> Vec<&String> {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    sorted
}

fn totals(totals: &EngineTotals, definitions: &[Summary], agents: u64) -> FlowFigures {
    let definitions = definitions.iter().map(|summary| {
        let did = summary.totals;
        DefinitionFigures {
            name: summary.definition.name.clone(),
            samples: vec![
                ("counted", did.counted),
                ("filtered", did.filtered),
                ("without_key", did.without_key),
            ],
            lacking: lacking(&summary.lacking),
            flows: summary.flows as u64,
            evicted: summary.evicted,
        }
    });
    FlowFigures {
        agents,
        datagrams: vec![
            ("read", totals.read),
            ("duplicate", totals.duplicate),
            ("malformed", totals.malformed),
            ("agent_limit", totals.agent_limit),
        ],
        samples: vec![
            ("flow", totals.flow_samples),
            ("counter", totals.counter_samples),
            ("dropped_packet", totals.dropped_packets),
            ("duplicate", totals.duplicate_samples),
            ("source_limit", totals.source_limit),
            ("implausible", totals.implausible_samples),
        ],
        unknown_structures: totals.unknown.values().sum::<u64>() + totals.unknown_other,
        faults: totals.faults.iter().map(|(class, count)| (*class, *count)).collect(),
        discrepancies: totals.discrepancies.seen().map(|(of, count)| (of.word(), count)).collect(),
        definitions: definitions.collect(),
        series: Vec::new(),
        series_omitted: 0,
    }
}

/// Samples by the part that they lack; a definition may have a part twice.
fn lacking(parts: &[(Part, u64)]) -> Vec<(String, u64)> {
    let mut by_word = BTreeMap::new();
    for (part, samples) in parts {
        *by_word.entry(part.word()).or_default() += samples;
    }
    by_word.into_iter().collect()
}

fn add(figures: &mut FlowFigures, top: &Top) {
    let definition = &top.summary.definition;
    let names = label_names(definition);
    for figure in top.figures.iter().take(definition.top) {
        if figures.series.len() < SERIES_MAX {
            figures.series.push(series(definition, &top.groups, &names, figure));
        } else {
            figures.series_omitted += 1;
        }
    }
}

fn series(
    definition: &Definition,
    groups: &Groups,
    names: &[String],
    figure: &Figure,
) -> FlowSeries {
    let values = definition.shown(&figure.key, groups).into_iter();
    // Group names come from the file. Replace control characters, so that no terminal acts on them.
    let letters = |value: String| -> String {
        let letters = value.chars().take(LABEL_CHARS_MAX);
        letters.map(|one| if one.is_control() { '?' } else { one }).collect()
    };
    let values = values.map(letters);
    FlowSeries {
        flow: definition.name.clone(),
        unit: match definition.measure {
            Measure::Bytes => Unit::Bytes,
            Measure::Frames => Unit::Frames,
            Measure::Samples => Unit::Samples,
        },
        labels: names.iter().cloned().zip(values).collect(),
        value: figure.rate.value,
        low: figure.rate.low,
        high: figure.rate.high,
        samples: figure.rate_samples,
    }
}

/// A label name for each part of the key: `src`, `src_24_48`, `group_src`. A repeated name gets its part's number as a suffix.
pub(super) fn label_names(definition: &Definition) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in &definition.keys {
        let word = part.word().replace(|one: char| !one.is_ascii_alphanumeric(), "_");
        let name = word.trim_matches('_');
        let again = names.iter().any(|one| one == name);
        names.push(if again { format!("{name}_{}", names.len() + 1) } else { name.to_owned() });
    }
    names
}
