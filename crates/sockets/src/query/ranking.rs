//! The sockets with the largest figures, as JSON: sorted, limited and grouped here, so that somebody who watches takes two hundred
//! rows a second and not all. One walk answers everybody who waits.

mod figure;
mod group;

pub use figure::{Figure, Order};
pub use group::Group;

use super::round::{Listed, Round, Step};
use super::{Asker, Reach, TURN, Turn, WALK_MAX};
use crate::describe::{Whose, describe};
use crate::filter::{Compiled, Expr, Filter, Needs};
use crate::runner::Runner;
use group::Groups;
use record::{Encoder, Encoding, FieldSet, RecordKind, SocketRecord};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::Sender;
use std::time::Instant;
use sys::clock::{boottime_ns, realtime_ns};
use wire::inet_diag::{SocketMessage, States};

/// Most rows of a ranking.
pub const RANKED_MAX: usize = 200;
/// Buckets of round-trip times: two for each power of two.
const BUCKETS: usize = 64;

/// What is asked for.
pub struct Ranked {
    /// Which sockets; `None` for all.
    pub filter: Option<Filter>,
    /// By what they are sorted.
    pub sort: Figure,
    /// Which come first.
    pub order: Order,
    /// How many are shown, at most [`RANKED_MAX`].
    pub limit: usize,
    /// What they are counted by; `None` for nothing.
    pub group: Option<Group>,
    /// What is shown of them.
    pub fields: FieldSet,
}

/// A ranking on its way to its asker.
pub(crate) type Question = Asker<Ranked, Vec<u8>>;

/// A walk that answers everybody who waited when it began.
pub(super) struct Ranking {
    views: Vec<View>,
    round: Round,
    began: Instant,
    time_unix_ns: u64,
    boot_ns: u64,
    polls: u64,
    namespaces: usize,
    /// Unknown attributes of one socket.
    scratch: Vec<u8>,
}

impl Ranking {
    pub(super) fn begin(runner: &mut Runner<'_>, questions: Vec<Question>) -> Ranking {
        let default_states = runner.options.states;
        let views = questions.into_iter().map(|question| View::new(question, default_states));
        let views: Vec<View> = views.collect();
        // What one does not want another may: only states that nobody wants are left out by the kernel.
        let states = views.iter().fold(States::from_bits(0), |all, view| all | view.states);
        let wants_all = views.iter().any(|view| view.reach == Reach::All);
        let reach = if wants_all { Reach::All } else { Reach::Own };
        let round = Round::begin(runner, states, Vec::new(), reach);
        Ranking {
            namespaces: round.left(),
            views,
            round,
            began: Instant::now(),
            time_unix_ns: realtime_ns(),
            boot_ns: boottime_ns(),
            polls: runner.engine.moment.poll.into(),
            scratch: Vec::new(),
        }
    }

    /// Works on it for a moment. `None`: everybody has an answer.
    pub(super) fn turn(&mut self, runner: &mut Runner<'_>) -> Option<Turn> {
        let turn_began = Instant::now();
        while turn_began.elapsed() < TURN {
            let is_late = self.began.elapsed() >= WALK_MAX;
            if is_late || self.step(runner) == Step::Over {
                self.round.end();
                self.answer(is_late);
                return None;
            }
        }
        Some(Turn::More)
    }

    fn step(&mut self, runner: &mut Runner<'_>) -> Step {
        let Ranking { views, round, time_unix_ns, boot_ns, scratch, .. } = self;
        round.step(runner, |Listed { engine, place, known, message }| {
            if engine.is_served(message, Some(place)) {
                return;
            }
            let age_ns = engine.age_ns(message.id.cookie, *boot_ns);
            for view in views.iter_mut() {
                let is_within = view.reach == Reach::All || known.is_some_and(|known| known.is_own);
                view.wants = is_within
                    && view.states.contains(message.state)
                    && view.rest.as_ref().is_none_or(|rest| {
                        engine.passes_any(rest, view.needs, message, Some(place), age_ns)
                    });
            }
            if !views.iter().any(|view| view.wants) {
                return;
            }

            // Described once, for all who want it.
            let cgroup = message.cgroup_id.and_then(|id| engine.cgroup_of(id));
            let mut record = engine.emission.identity.record(RecordKind::POLL, *time_unix_ns);
            describe(&mut record, message, &Whose::of(known, cgroup.as_deref()), scratch);
            for view in views.iter_mut().filter(|view| view.wants) {
                view.take(message, &record);
            }
        })
    }

    fn answer(&mut self, is_late: bool) {
        let Ranking { time_unix_ns, polls, namespaces, round, .. } = self;
        let failed = round.failed;
        for view in self.views.drain(..) {
            let namespaces = match view.reach {
                Reach::All => *namespaces,
                Reach::Own => 1,
            };
            let head = format!(
                "{{\"time_unix_ns\":\"{time_unix_ns}\",\"polls\":{polls},\"namespaces\":{namespaces},\
                 \"namespaces_failed\":{failed},\"truncated\":{is_late}"
            );
            let (answer, json) = view.finish(&head);
            // One who has gone is told nothing.
            let _ = answer.send(json);
        }
    }
}

/// What one asker gets.
struct View {
    answer: Sender<Vec<u8>>,
    reach: Reach,
    states: States,
    rest: Option<Expr>,
    needs: Needs,
    /// Whether the socket that is looked at passes.
    wants: bool,
    sort: Figure,
    order: Order,
    limit: usize,
    encoder: Encoder,
    /// The rows that are shown so far; the one that goes next is on top.
    rows: BinaryHeap<Reverse<Row>>,
    matched: u64,
    groups: Option<Groups>,
    round_trips: [u64; BUCKETS],
}

/// A row and its place. Of equal ones, the one with the smaller cookie comes first, so that rows do not change places.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    rank: i128,
    cookie: Reverse<u64>,
    json: Vec<u8>,
}

impl View {
    fn new(question: Question, default_states: States) -> View {
        let Ranked { filter, sort, order, limit, group, fields } = question.wanted;
        let Compiled { states, whole, .. } = Compiled::of(filter.as_ref(), default_states);
        View {
            answer: question.answer,
            reach: question.reach,
            states,
            rest: whole,
            needs: filter.as_ref().map_or(Needs::NONE, Filter::needs),
            wants: false,
            sort,
            order,
            limit: limit.min(RANKED_MAX),
            encoder: Encoder::new(Encoding::Jsonl, &fields),
            rows: BinaryHeap::new(),
            matched: 0,
            groups: group.map(Groups::new),
            round_trips: [0; BUCKETS],
        }
    }

    fn take(&mut self, message: &SocketMessage<'_>, record: &SocketRecord<'_>) {
        self.matched += 1;
        if let Some(groups) = &mut self.groups {
            groups.add(record);
        }
        if let Some(rtt_us) = record.rtt_us.filter(|rtt_us| *rtt_us > 0) {
            self.round_trips[bucket(rtt_us)] += 1;
        }

        let rank = self.order.rank(self.sort.of(record));
        let cookie = Reverse(message.id.cookie);
        let mut json = Vec::new();
        if self.rows.len() >= self.limit {
            let stays = |Reverse(last): &Reverse<Row>| (last.rank, last.cookie) >= (rank, cookie);
            if self.rows.peek().is_none_or(stays) {
                return;
            }
            // Its memory is used again.
            json = self.rows.pop().map(|Reverse(row)| row.json).unwrap_or_default();
            json.clear();
        }

        self.encoder.encode(record, &mut json);
        // The end of the line.
        json.pop();
        self.rows.push(Reverse(Row { rank, cookie, json }));
    }

    fn finish(self, head: &str) -> (Sender<Vec<u8>>, Vec<u8>) {
        let View { answer, matched, rows, round_trips, groups, .. } = self;
        let mut json = head.as_bytes().to_vec();
        let counts = format!(",\"matched\":{matched},\"shown\":{},\"sockets\":[", rows.len());
        json.extend_from_slice(counts.as_bytes());
        // Of reversed rows, the largest is the first.
        for (at, Reverse(row)) in rows.into_sorted_vec().iter().enumerate() {
            if at > 0 {
                json.push(b',');
            }
            json.extend_from_slice(&row.json);
        }

        let used = round_trips.iter().enumerate().filter(|(_, count)| **count > 0);
        let buckets: Vec<String> =
            used.map(|(at, count)| format!("[{},{count}]", lower_bound_us(at))).collect();
        json.extend_from_slice(format!("],\"rtt_us\":[{}]", buckets.join(",")).as_bytes());
        if let Some(groups) = groups {
            groups.write(&mut json);
        }
        json.extend_from_slice(b"}\n");
        (answer, json)
    }
}

/// The bucket of a round-trip time.
fn bucket(rtt_us: u32) -> usize {
    let power = rtt_us.ilog2();
    let half = power.checked_sub(1).map_or(0, |shift| rtt_us >> shift & 1);
    (power * 2 + half) as usize
}

/// The smallest round-trip time in a bucket, in microseconds.
fn lower_bound_us(bucket: usize) -> u64 {
    let whole = 1_u64 << (bucket / 2);
    if bucket.is_multiple_of(2) { whole } else { whole + whole / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_trip_time_is_in_the_bucket_that_begins_below_it() {
        for rtt_us in (1..5_000).chain([65_535, 65_536, 98_304, u32::MAX - 1, u32::MAX]) {
            let at = bucket(rtt_us);
            assert!(lower_bound_us(at) <= rtt_us.into(), "{rtt_us} in {at}");
            // Between 1 and 2 there is none: the second half of the first power is empty.
            assert!(at == 0 || lower_bound_us(at + 1) > rtt_us.into(), "{rtt_us} in {at}");
        }
    }

    #[test]
    fn sockets_without_a_figure_come_last_in_both_orders() {
        for order in [Order::LargestFirst, Order::SmallestFirst] {
            assert!(order.rank(None) < order.rank(Some(0)));
            assert!(order.rank(None) < order.rank(Some(u64::MAX)));
        }
        assert!(Order::SmallestFirst.rank(Some(1)) > Order::SmallestFirst.rank(Some(2)));
    }
}
