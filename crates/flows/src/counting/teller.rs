//! What a definition reports about its flows, as they end and as they go on.

use super::{all_of, sampled_share};
use crate::definition::{Aggregation, Definition};
use crate::heaviest::VANTAGE_LEN;
use crate::lookup::Groups;
use crate::portion::{Accepted, Cause, Portion, Told, Untold, Untolds};
use crate::table::{Ended, Leaving, Table};

/// Reports portions of a definition's flows.
pub(super) struct Teller<'a, T> {
    pub(super) definition: &'a Definition,
    pub(super) groups: &'a Groups,
    pub(super) untolds: &'a mut Untolds,
    pub(super) told: &'a mut T,
}

impl<T: Told> Ended for Teller<'_, T> {
    fn ended(&mut self, table: &Table, place: u32, why: Leaving) {
        let cause = match why {
            Leaving::Idle => Cause::Ended,
            Leaving::Lightest => Cause::Evicted,
        };
        self.tell_or_merge(table, place, cause);
    }
}

impl<T: Told> Teller<'_, T> {
    pub(super) fn tell_or_merge(&mut self, table: &Table, place: u32, cause: Cause) {
        let untold = self.untolds.take(place as usize);
        if !untold.is_empty() && self.tell(table, place, &untold, cause) == Accepted::No {
            self.untolds.merge(&untold);
        }
    }

    /// Reports flows that go on, until one is not accepted.
    pub(super) fn tell_active(&mut self, table: &Table, now_ns: u64, mut places: usize) {
        while let Some(place) = self.untolds.next_due(now_ns, &mut places) {
            let untold = self.untolds.take(place);
            if self.tell(table, place as u32, &untold, Cause::Active) == Accepted::No {
                return self.untolds.put_back(place, untold);
            }
        }
    }

    pub(super) fn tell_merged(&mut self, table: &Table) {
        let flows = std::mem::take(&mut self.untolds.merged_flows);
        let untold = std::mem::take(&mut self.untolds.merged);
        if flows == 0 {
            return;
        }
        let sampled = sampled_share(table.all_of_only());
        let (bytes, frames) = untold.estimates(f64::INFINITY, sampled);
        // A merged portion is always accepted.
        self.told.flow(&Portion {
            definition: self.definition,
            groups: self.groups,
            cause: Cause::Merged,
            key: &[],
            vantage: None,
            flows,
            amounts: untold.amounts,
            bytes,
            frames,
            first_ns: untold.first_ns,
            last_ns: untold.last_ns(),
            rate_missing_max: 0.0,
        });
        self.untolds.note_reported(&untold.amounts);
    }

    fn tell(&mut self, table: &Table, place: u32, untold: &Untold, cause: Cause) -> Accepted {
        let key = table.key(place);
        let all = all_of(self.definition, table, key);
        let all_samples =
            all.map_or(f64::INFINITY, |all| all.known_samples(&untold.all_since(&all.total)));
        let (bytes, frames) = untold.estimates(all_samples, sampled_share(all));

        let (vantage, values) = match self.definition.aggregation {
            Aggregation::Max => key.split_at(VANTAGE_LEN),
            Aggregation::Sum | Aggregation::Edge => key.split_at(0),
        };
        let accepted = self.told.flow(&Portion {
            definition: self.definition,
            groups: self.groups,
            cause,
            key: values,
            vantage: vantage.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)),
            flows: 1,
            amounts: untold.amounts,
            bytes,
            frames,
            first_ns: untold.first_ns,
            last_ns: untold.last_ns(),
            rate_missing_max: table.flow(place).inherited * table.rate_factor(untold.last_ns()),
        });
        if accepted == Accepted::Yes {
            self.untolds.note_reported(&untold.amounts);
        }
        accepted
    }
}
