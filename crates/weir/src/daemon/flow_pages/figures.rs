//! Figures of flows for `/metrics`.

use super::super::flows::Shared;
use admin::{DefinitionFigures, FlowFigures, FlowSeries, Unit};
use flows::{Analysis, Counting, Figure, Groups, Measure};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most flows with series, over all definitions.
const SERIES_MAX: usize = 1_000;
/// Figures are made anew when they are older, so that many scrapers cost as much as one.
const FRESH: Duration = Duration::from_millis(500);
/// Most characters of a label's value.
const LABEL_CHARS_MAX: usize = 128;

/// The definitions whose flows have series: those of the file that say so. It changes with a reload.
#[derive(Default)]
pub(crate) struct Exported(Mutex<HashSet<String>>);

impl Exported {
    /// Exchanges the names.
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
    let last = Mutex::new(None::<(Instant, FlowFigures)>);
    Arc::new(move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, figures)) = &*last
            && at.elapsed() < FRESH
        {
            return figures.clone();
        }

        let names = exported.names();
        let now_ns = shared.clock_ns();
        let mut figures = shared.with(|analysis| totals(analysis));
        for name in sorted(&names) {
            // The lock is let go between definitions, so that datagrams wait for one of them at most.
            shared.with(|analysis| {
                if let Some(counting) = analysis.counting(name) {
                    add(&mut figures, counting, analysis.engine().groups(), now_ns);
                }
            });
        }
        *last = Some((Instant::now(), figures.clone()));
        figures
    })
}

fn sorted(names: &HashSet<String>) -> Vec<&String> {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    sorted
}

fn totals(analysis: &Analysis) -> FlowFigures {
    let engine = analysis.engine();
    let totals = engine.totals();
    let definitions = engine.counting().iter().map(|counting| {
        let did = counting.totals();
        DefinitionFigures {
            name: counting.definition().name.clone(),
            samples: vec![
                ("counted", did.counted),
                ("filtered", did.filtered),
                ("without_key", did.without_key),
            ],
            flows: counting.flows() as u64,
            evicted: counting.evicted(),
        }
    });
    FlowFigures {
        agents: engine.agents().count() as u64,
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
        ],
        unknown_structures: totals.unknown.values().sum::<u64>() + totals.unknown_other,
        faults: totals.faults.iter().map(|(class, count)| (*class, *count)).collect(),
        definitions: definitions.collect(),
        series: Vec::new(),
        series_omitted: 0,
    }
}

fn add(figures: &mut FlowFigures, counting: &Counting, groups: &Groups, now_ns: u64) {
    let names = label_names(counting);
    for figure in counting.top(now_ns) {
        if figures.series.len() < SERIES_MAX {
            figures.series.push(series(counting, groups, &names, &figure));
        } else {
            figures.series_omitted += 1;
        }
    }
}

fn series(counting: &Counting, groups: &Groups, names: &[String], figure: &Figure) -> FlowSeries {
    let definition = counting.definition();
    let values = counting.shown(&figure.key, groups).into_iter();
    // Names of groups are the file's, and a terminal obeys nothing of them.
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

/// A label's name for each part of the key: `src`, `src_24_48`, `group_src`. Parts that come to the same have their number behind it.
pub(super) fn label_names(counting: &Counting) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in &counting.definition().keys {
        let word = part.word().replace(|one: char| !one.is_ascii_alphanumeric(), "_");
        let name = word.trim_matches('_');
        let again = names.iter().any(|one| one == name);
        names.push(if again { format!("{name}_{}", names.len() + 1) } else { name.to_owned() });
    }
    names
}
