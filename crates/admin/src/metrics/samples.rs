use super::{FAMILIES, Family, FamilyId};
use std::borrow::Cow;

/// A value of one series.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    /// A whole number.
    Whole(u64),
    /// Any number.
    Number(f64),
    /// Counts in buckets.
    Histogram {
        /// Upper bounds, inclusive.
        bounds: Vec<f64>,
        /// The count of each bucket on its own; one more than there are bounds.
        counts: Vec<u64>,
        /// Sum of all observed values.
        sum: f64,
    },
}

/// One series with its value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sample<'a> {
    /// Label values, in the order of the family's label names.
    pub(crate) labels: Vec<Cow<'a, str>>,
    /// Further labels of this series, with their names.
    pub(crate) more: Vec<(String, String)>,
    pub(crate) value: Value,
}

/// Every series, by family.
pub(crate) struct Samples<'a> {
    by_family: Vec<Vec<Sample<'a>>>,
}

impl<'a> Samples<'a> {
    pub(crate) fn new() -> Samples<'a> {
        Samples { by_family: FAMILIES.iter().map(|_| Vec::new()).collect() }
    }

    /// Adds a series. The label values are in the order of the family's label names.
    pub(crate) fn add(
        &mut self,
        id: FamilyId,
        labels: impl IntoIterator<Item = impl Into<Cow<'a, str>>>,
        value: Value,
    ) {
        let family = &FAMILIES[id as usize];
        let labels: Vec<_> = labels.into_iter().map(Into::into).collect();
        debug_assert_eq!(family.labels.len(), labels.len(), "labels of {}", family.name);
        self.by_family[id as usize].push(Sample { labels, more: Vec::new(), value });
    }

    pub(crate) fn whole(
        &mut self,
        id: FamilyId,
        labels: impl IntoIterator<Item = impl Into<Cow<'a, str>>>,
        value: u64,
    ) {
        self.add(id, labels, Value::Whole(value));
    }

    pub(crate) fn number(
        &mut self,
        id: FamilyId,
        labels: impl IntoIterator<Item = impl Into<Cow<'a, str>>>,
        value: f64,
    ) {
        self.add(id, labels, Value::Number(value));
    }

    /// Adds a series of a family whose only label is `flow`, with further labels of its own after it.
    pub(crate) fn with_more(
        &mut self,
        id: FamilyId,
        flow: String,
        more: Vec<(String, String)>,
        value: f64,
    ) {
        debug_assert_eq!(FAMILIES[id as usize].labels, ["flow"]);
        let (labels, value) = (vec![flow.into()], Value::Number(value));
        self.by_family[id as usize].push(Sample { labels, more, value });
    }

    /// Every family that has series, in the order of the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static Family, &[Sample<'a>])> {
        let rows = FAMILIES.iter().zip(&self.by_family);
        rows.filter(|(_, samples)| !samples.is_empty())
            .map(|(family, samples)| (family, samples.as_slice()))
    }
}

/// No label values.
pub(crate) const NONE: [&str; 0] = [];
