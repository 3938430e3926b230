//! Turns rows of chunks into batches.

use crate::batch::{Batch, BatchId, PartKey};
use crate::destination::{BatchEncoder, Form, Pushed};
use crate::options::BatchLimits;
use ledger::{Amount, Reason};
use record::{Arrivals, Chunk, Row, RowKind};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of a spool entry, for rows that are in the spool.
pub(crate) type EntryId = u64;

/// A batch, and where its rows come from.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) batch: Arc<Batch>,
    /// How many of its rows come from each spool entry, in the order of the entries.
    pub(crate) entries: Vec<(EntryId, u64)>,
    /// Whether an earlier process may have delivered its rows.
    pub(crate) is_repeated: bool,
    /// When the newest row arrived at this host, in nanoseconds since 1970, UTC; 0 if that is unknown.
    pub(crate) newest_unix_ns: u64,
}

/// A chunk to be batched.
#[derive(Clone, Debug)]
pub(crate) struct Fed {
    pub(crate) chunk: Arc<Chunk>,
    pub(crate) entry: Option<EntryId>,
    pub(crate) is_repeated: bool,
}

/// Rows that are not in any batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Skipped {
    pub(crate) reason: Reason,
    pub(crate) amount: Amount,
    pub(crate) entry: Option<EntryId>,
}

/// Fills one batch for each kind of row that is batched separately.
pub(crate) struct Batcher {
    limits: BatchLimits,
    lanes: Vec<Lane>,
    pub(crate) out: Output,
}

/// What leaves the batcher.
#[derive(Default)]
pub(crate) struct Output {
    next_id: u64,
    /// Complete batches, oldest first.
    pub(crate) made: VecDeque<Made>,
    /// Rows that could not be encoded, not counted yet.
    pub(crate) skipped: Vec<Skipped>,
    /// How often an encoder's counts were not those of the rows that it had taken, not counted yet.
    pub(crate) violations: u64,
}

/// A batch being filled.
struct Lane {
    /// `None`: rows of every kind.
    kind: Option<RowKind>,
    encoder: Box<dyn BatchEncoder>,
    since: Option<Instant>,
    amount: Amount,
    oldest_unix_ns: u64,
    newest_unix_ns: u64,
    token: Token,
    entries: Vec<(EntryId, u64)>,
    is_repeated: bool,
}

impl Batcher {
    pub(crate) fn new(limits: BatchLimits, form: Form) -> Batcher {
        let lanes = match form {
            Form::Mixed(encoder) => vec![Lane::new(None, encoder)],
            Form::ByKind(encoders) => {
                let lane = |(kind, encoder)| Lane::new(Some(kind), encoder);
                encoders.into_iter().map(lane).collect()
            }
        };
        Batcher { limits, lanes, out: Output::default() }
    }

    /// Replaces the encoders after one has panicked. Batches being filled are lost.
    pub(crate) fn replace(&mut self, form: Form) {
        let fresh = Batcher::new(self.limits, form);
        let lost = std::mem::replace(&mut self.lanes, fresh.lanes);
        self.out.skipped.extend(lost.into_iter().flat_map(Lane::into_lost));
    }

    /// Counts the rows of a chunk from index `at` on as lost to a panic.
    pub(crate) fn skip_from(&mut self, fed: &Fed, at: usize) {
        let lost: Amount = fed.chunk.rows().skip(at).map(|row| Amount::one(row.bytes.len())).sum();
        if !lost.is_zero() {
            let (reason, entry) = (Reason::SinkPanicked, fed.entry);
            self.out.skipped.push(Skipped { reason, amount: lost, entry });
        }
    }

    /// Adds all rows of a chunk, and counts in `fed_rows` those that were handled. Full batches are completed.
    pub(crate) fn feed(&mut self, fed: &Fed, now: Instant, fed_rows: &mut usize) {
        let chunk = &fed.chunk;
        // Rows in the spool do not share a batch with rows that are not: the former stay when the sink ends. Nor do rows that may
        // have been delivered before share one with rows that cannot.
        for lane in &mut self.lanes {
            let is_spooled = !lane.entries.is_empty();
            if is_spooled != fed.entry.is_some() || lane.is_repeated != fed.is_repeated {
                self.out.finish(lane);
            }
        }

        for row in chunk.rows() {
            let amount = Amount::one(row.bytes.len());
            let lane =
                self.lanes.iter_mut().find(|lane| lane.kind.is_none_or(|kind| kind == row.kind));
            let Some(lane) = lane else {
                self.out.skip(Reason::NotInFormat, amount, fed.entry);
                *fed_rows += 1;
                continue;
            };

            let (host, run) = (chunk.source_id(), chunk.stream());
            let key = PartKey { host, connection: row.key, run };
            let pushed = lane.encoder.push(&row, key);
            *fed_rows += 1;
            match pushed {
                Pushed::Taken => {
                    lane.took(fed, &row, now);
                    if lane.is_full(&self.limits) {
                        self.out.finish(lane);
                    }
                }
                Pushed::Skipped(reason) => self.out.skip(reason, amount, fed.entry),
            }
        }
    }

    /// Completes batches that have reached their age. `is_quiet`: no more rows are waiting, so batches without an age limit are
    /// completed too.
    pub(crate) fn end_aged(&mut self, now: Instant, is_quiet: Quiet) {
        for lane in &mut self.lanes {
            let is_due = lane.since.is_some_and(|since| now >= since + self.limits.age);
            let waits_for_more = self.limits.age.is_zero() && is_quiet == Quiet::No;
            if is_due && !waits_for_more {
                self.out.finish(lane);
            }
        }
    }

    /// Completes all batches.
    pub(crate) fn end_all(&mut self) {
        for lane in &mut self.lanes {
            self.out.finish(lane);
        }
    }

    /// Time until the next batch reaches its age. `None` also while a complete batch waits: that one goes first.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        if !self.out.made.is_empty() {
            return None;
        }
        let ages = self.lanes.iter().filter_map(|lane| lane.since);
        ages.min().map(|since| (since + self.limits.age).saturating_duration_since(now))
    }

    /// Whether all rows here are in the spool.
    pub(crate) fn is_spooled(&self) -> bool {
        let is_open =
            self.lanes.iter().all(|lane| lane.since.is_none() || !lane.entries.is_empty());
        is_open && self.out.made.iter().all(|made| !made.entries.is_empty())
    }

    /// Rows here that are in the spool.
    pub(crate) fn spooled(&self) -> Amount {
        let is_spooled = |lane: &&Lane| !lane.entries.is_empty();
        let open: Amount = self.lanes.iter().filter(is_spooled).map(|lane| lane.amount).sum();
        let made = self.out.made.iter().filter(|made| !made.entries.is_empty());
        open + made.map(|made| made.batch.amount()).sum()
    }

    /// Rows in batches being filled and in complete ones.
    pub(crate) fn inside(&self) -> Amount {
        let open: Amount = self.lanes.iter().map(|lane| lane.amount).sum();
        open + self.out.made.iter().map(|made| made.batch.amount()).sum()
    }

    /// When the oldest row inside arrived; 0 if that is unknown.
    pub(crate) fn oldest_unix_ns(&self) -> u64 {
        let made = self.out.made.iter().map(|made| made.batch.oldest_unix_ns);
        let open = self.lanes.iter().map(|lane| lane.oldest_unix_ns);
        made.chain(open).filter(|time| *time > 0).min().unwrap_or(0)
    }
}

impl Output {
    /// Records skipped rows; equal neighbors are merged into one entry.
    fn skip(&mut self, reason: Reason, amount: Amount, entry: Option<EntryId>) {
        match self.skipped.last_mut() {
            Some(last) if (last.reason, last.entry) == (reason, entry) => last.amount += amount,
            _ => self.skipped.push(Skipped { reason, amount, entry }),
        }
    }

    /// Completes a lane's batch, if it has any rows.
    fn finish(&mut self, lane: &mut Lane) {
        if lane.since.is_none() {
            return;
        }
        // Comes first: if it panics, the lane still knows what was in the batch.
        let encoded = lane.encoder.finish();
        lane.since = None;
        let batch = Batch {
            id: BatchId(self.next_id),
            kind: lane.kind,
            token: std::mem::take(&mut lane.token).value(),
            encoded,
            rows: lane.amount.count,
            oldest_unix_ns: std::mem::take(&mut lane.oldest_unix_ns),
        };
        self.next_id += 1;

        // A row that no part counts would never have a fate.
        let (taken, encoded) = (std::mem::take(&mut lane.amount), batch.amount());
        if taken != encoded {
            self.violations += 1;
            self.skip(Reason::EncodeError, taken.saturating_sub(encoded), None);
        }

        self.made.push_back(Made {
            batch: Arc::new(batch),
            entries: std::mem::take(&mut lane.entries),
            is_repeated: std::mem::take(&mut lane.is_repeated),
            newest_unix_ns: std::mem::take(&mut lane.newest_unix_ns),
        });
    }
}

/// Whether no more rows are waiting to be batched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quiet {
    Yes,
    No,
}

impl Lane {
    fn new(kind: Option<RowKind>, encoder: Box<dyn BatchEncoder>) -> Lane {
        Lane {
            kind,
            encoder,
            since: None,
            amount: Amount::default(),
            oldest_unix_ns: 0,
            newest_unix_ns: 0,
            token: Token::default(),
            entries: Vec::new(),
            is_repeated: false,
        }
    }

    fn took(&mut self, fed: &Fed, row: &Row<'_>, now: Instant) {
        self.since.get_or_insert(now);
        self.amount += Amount::one(row.bytes.len());
        self.token.add(fed.chunk.stream(), row.number);
        self.is_repeated |= fed.is_repeated;

        let Arrivals { oldest_unix_ns: oldest, newest_unix_ns: newest } = row.arrivals;
        if oldest > 0 && (self.oldest_unix_ns == 0 || oldest < self.oldest_unix_ns) {
            self.oldest_unix_ns = oldest;
        }
        self.newest_unix_ns = self.newest_unix_ns.max(newest);

        let Some(entry) = fed.entry else { return };
        match self.entries.last_mut() {
            Some((last, rows)) if *last == entry => *rows += 1,
            _ => self.entries.push((entry, 1)),
        }
    }

    fn is_full(&self, limits: &BatchLimits) -> bool {
        self.amount.count >= limits.rows as u64 || self.encoder.bytes() >= limits.bytes
    }

    /// The contents of a batch whose encoder panicked, by spool entry.
    fn into_lost(self) -> Vec<Skipped> {
        let skipped = |entry, amount| Skipped { reason: Reason::SinkPanicked, amount, entry };
        let spooled: u64 = self.entries.iter().map(|(_, rows)| rows).sum();
        let mut rest = self.amount;

        // The distribution of bytes over entries is unknown: the first entry gets them all.
        let mut lost = Vec::new();
        for (entry, rows) in self.entries {
            let amount = Amount { count: rows, bytes: std::mem::take(&mut rest.bytes) };
            lost.push(skipped(Some(entry), amount));
        }
        rest.count -= spooled;
        if !rest.is_zero() {
            lost.push(skipped(None, rest));
        }
        lost
    }
}

/// A hash of row ids that is the same in every process: 128-bit FNV-1a
/// (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>).
#[derive(Default)]
struct Token(u128);

impl Token {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    fn add(&mut self, stream: u64, number: u64) {
        // Two 64-bit steps instead of sixteen one-byte steps: an attacker cannot choose ids.
        for word in [stream, number] {
            self.0 = (self.0 ^ u128::from(word)).wrapping_mul(Self::PRIME);
        }
    }

    fn value(self) -> u128 {
        self.0 ^ Self::BASIS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Encoded, Part};
    use record::{ChunkBuilder, SocketRecord};

    /// Counts a row less than it was given.
    #[derive(Default)]
    struct Forgetful {
        rows: u32,
        row_bytes: u64,
    }

    impl BatchEncoder for Forgetful {
        fn push(&mut self, row: &Row<'_>, _key: PartKey) -> Pushed {
            self.rows += 1;
            self.row_bytes += row.bytes.len() as u64;
            Pushed::Taken
        }

        fn bytes(&self) -> usize {
            0
        }

        fn finish(&mut self) -> Encoded {
            let Forgetful { rows, row_bytes } = std::mem::take(self);
            let row_bytes = row_bytes / u64::from(rows) * u64::from(rows - 1);
            let part = Part { end: 0, rows: rows - 1, row_bytes, key: PartKey::NONE };
            Encoded { bytes: Vec::new(), parts: vec![part] }
        }
    }

    #[test]
    fn a_row_that_an_encoder_forgets_is_a_violation_and_has_a_fate() {
        let mut builder = ChunkBuilder::new(1, [0; 16]);
        (0..3).for_each(|_| builder.record(&SocketRecord::default()));
        let chunk = Arc::new(builder.cut(None).unwrap());
        let mut batcher =
            Batcher::new(BatchLimits::default(), Form::Mixed(Box::new(Forgetful::default())));
        let fed = Fed { chunk, entry: None, is_repeated: false };
        batcher.feed(&fed, Instant::now(), &mut 0);
        batcher.end_all();
        assert_eq!(batcher.out.violations, 1);
        assert_eq!(batcher.inside().count, 2);
        let [Skipped { reason: Reason::EncodeError, amount, .. }] = batcher.out.skipped[..] else {
            panic!("{:?}", batcher.out.skipped)
        };
        assert_eq!(amount.count, 1);
    }
}
