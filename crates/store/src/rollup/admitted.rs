//! The keys that have rows of their own, up to a limit, so that strangers cannot create rows without end.

use super::key::{Dimension, Key};
use super::sums::{Sums, Total};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Spans whose keys are kept in memory, for each table: the current one, and those that rows of a late batch may belong to.
const SPANS_KEPT: usize = 4;

/// A table and a dimension.
type Place = (&'static str, Dimension);

pub(crate) struct Admitted {
    /// Most keys of a dimension in one span of a table.
    keys_max: usize,
    spans: BTreeMap<(&'static str, Dimension, i64), HashSet<Key>>,
}

/// The sums of the rows with one key.
pub(super) struct Group {
    /// The start of its span, in nanoseconds since 1970.
    pub(super) span: i64,
    pub(super) key: Key,
    pub(super) sums: Sums,
}

impl Admitted {
    pub(crate) fn new(keys_max: usize) -> Admitted {
        Admitted { keys_max, spans: BTreeMap::new() }
    }

    /// Adds up the sums that have the same span and key. Keys beyond the limit become one; keys with the most records are
    /// admitted first.
    pub(super) fn group<'s>(
        &mut self,
        (table, dimension): Place,
        sums: impl Iterator<Item = (i64, Key, &'s Sums)>,
    ) -> Vec<Group> {
        // Only groups with a row of their own get sums, since nearly all may be beyond the limit.
        let mut numbers: HashMap<(i64, Key), usize> = HashMap::new();
        let mut records: Vec<u64> = Vec::new();
        let mut parts: Vec<(usize, &Sums)> = Vec::with_capacity(sums.size_hint().0);
        for (span, key, sums) in sums {
            let next = records.len();
            let number = *numbers.entry((span, key)).or_insert(next);
            if number == next {
                records.push(0);
            }
            records[number] += sums.records();
            parts.push((number, sums));
        }

        let (keys, places) = self.admit((table, dimension), numbers, &records);
        self.forget((table, dimension));
        let mut totals: Vec<Total> = Vec::new();
        totals.resize_with(keys.len(), Total::default);
        for (number, sums) in parts {
            totals[places[number]].merge(sums);
        }
        let groups = keys.into_iter().zip(totals);
        groups.map(|((span, key), total)| Group { span, key, sums: total.into_sums() }).collect()
    }

    /// Decides which keys get rows of their own. Returns the span and key of each row, and the row that each number goes to.
    fn admit(
        &mut self,
        (table, dimension): Place,
        numbers: HashMap<(i64, Key), usize>,
        records: &[u64],
    ) -> (Vec<(i64, Key)>, Vec<usize>) {
        let mut spans: BTreeMap<i64, Vec<(Key, usize)>> = BTreeMap::new();
        for ((span, key), number) in numbers {
            spans.entry(span).or_default().push((key, number));
        }

        let (mut rows, mut places) = (Vec::new(), vec![0; records.len()]);
        let other_key = dimension.other();
        for (span, keys) in spans {
            let known = self.spans.entry((table, dimension, span)).or_default();
            let (mut beyond, keys): (Vec<_>, Vec<_>) =
                keys.into_iter().partition(|(key, _)| *key == other_key);
            let (mut own, mut new): (Vec<_>, Vec<_>) =
                keys.into_iter().partition(|(key, _)| known.contains(key));
            let room = self.keys_max.saturating_sub(known.len());
            if (1..new.len()).contains(&room) {
                // The order of keys decides among equals, so that each minute admits the same ones.
                new.sort_unstable_by(|(one_key, one), (two_key, two)| {
                    records[*two].cmp(&records[*one]).then_with(|| one_key.cmp(two_key))
                });
            }
            beyond.extend(new.drain(room.min(new.len())..));
            known.extend(new.iter().map(|(key, _)| key.clone()));
            own.append(&mut new);

            for (key, number) in own {
                places[number] = rows.len();
                rows.push((span, key));
            }
            if !beyond.is_empty() {
                beyond.iter().for_each(|(_, number)| places[*number] = rows.len());
                rows.push((span, other_key.clone()));
            }
        }
        (rows, places)
    }

    fn forget(&mut self, (table, dimension): Place) {
        let range = (table, dimension, i64::MIN)..=(table, dimension, i64::MAX);
        while self.spans.range(range.clone()).count() > SPANS_KEPT {
            let Some(oldest) = self.spans.range(range.clone()).next().map(|one| *one.0) else {
                return;
            };
            self.spans.remove(&oldest);
        }
    }
}
