//! The only writer of a store.

use crate::arrivals::{self, Arrivals};
use crate::catalog::{self, Segment};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, sqlite};
use crate::foreign;
use crate::ledger_rows;
use crate::retention::{self, Bounds};
use crate::rollup::{Admitted, Rollup};
use crate::schema;
use crate::seal::{self, Sealing};
use crate::tables::Rows;
use ledger::Snapshot;
use record::{RecordKind, RowKind, decode_protobuf};
use rusqlite::{CachedStatement, Connection, TransactionBehavior};
use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use sys::clock::{Now, realtime_ns};

/// Rows and bytes at which a segment is sealed at any age; they bound the cost of sealing.
const SEGMENT_ROWS_MAX: i64 = 300_000;
const SEGMENT_BYTES_MAX: i64 = 96 << 20;

/// Time between two steps of background work.
const STEP_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a failed sealing.
const SEAL_PAUSE: Duration = Duration::from_secs(10);

/// The options of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Created if it is missing. Belongs to this store alone.
    pub folder: PathBuf,
    /// What arrived earlier is removed.
    pub keep_age: Option<Duration>,
    /// While the store is larger, the oldest data is removed, raw rows first.
    pub keep_bytes: Option<u64>,
    /// Raw rows become a Parquet file after this time.
    pub segment_age: Duration,
    /// Most units, peer networks, services and paths, each, with rows of their own in a minute or an hour.
    pub keys_max: usize,
}

/// What has happened to a batch when it is inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Commits {
    /// The system has it: a crash of the process loses nothing, a crash of the host may lose the last batches.
    #[default]
    Written,
    /// It is on the disk.
    Synced,
}

/// The result of inserting a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Indices of the rows that could not be read.
    pub unreadable: Vec<usize>,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// Nothing: it is too early, or a sealing that failed is to be tried again.
    NotDue,
    /// All that was due.
    Done,
}

/// What a store counts and measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Database and files.
    pub bytes: u64,
    /// Files removed because of age or size.
    pub files_removed: u64,
    /// Files left by a crash and removed.
    pub strays_removed: u64,
}

/// Inserts rows into a store.
pub struct Writer {
    connection: Connection,
    options: Options,
    commits: Commits,
    tables: Tables,
    admitted: Admitted,
    arrivals: Arrivals,
    /// The inode of this process's network namespace; `None` if it cannot be told.
    own_netns: Option<u64>,
    /// The segment that takes rows, and its start time.
    open: Option<(Segment, Instant)>,
    /// Full segments, and the one that is being sealed.
    full: VecDeque<Segment>,
    sealing: Option<Sealing>,
    /// Whether the last sealing failed.
    is_sealing_failing: bool,
    seal_due: Instant,
    step_due: Instant,
    checkpoint: Option<Checkpoint>,
    /// Whether anything was written since the last checkpoint began.
    is_behind: bool,
    figures: Figures,
    /// Held while the store is open.
    _lock: File,
}

struct Tables {
    closes: Rows,
    others: Vec<(RowKind, Rows)>,
}

impl Writer {
    /// Opens a store, and creates it if there is none. Cleans up after a crash.
    ///
    /// # Errors
    /// The folder cannot be used, or a newer Weir wrote to it.
    pub fn open(options: Options) -> Result<Writer, Error> {
        let lock = schema::lock(&options.folder)?;
        let connection = schema::open_writer(&options.folder)?;
        retention::take_over(&connection, signed(realtime_ns()))
            .map_err(sqlite("cannot prepare the store"))?;
        let segments = catalog::all(&connection).map_err(sqlite("cannot list segments"))?;
        let strays_removed = seal::remove_strays(&options.folder, &segments)?;
        let kinds = RowKind::ALL.into_iter().filter(|kind| *kind != RowKind::Record);
        let now = Instant::now();
        Ok(Writer {
            connection,
            tables: Tables {
                closes: Rows::closes(),
                others: kinds.map(|kind| (kind, Rows::of(kind))).collect(),
            },
            admitted: Admitted::new(options.keys_max),
            arrivals: Arrivals::default(),
            own_netns: sys::namespace::own().ok().map(|own| own.inode),
            open: None,
            full: segments.into_iter().filter(|segment| segment.file.is_none()).collect(),
            sealing: None,
            is_sealing_failing: false,
            seal_due: now,
            step_due: now,
            checkpoint: None,
            is_behind: true,
            commits: Commits::default(),
            figures: Figures { strays_removed, ..Figures::default() },
            options,
            _lock: lock,
        })
    }

    /// Sets what has happened to batches that are inserted from now on; at first they are written.
    pub fn set_commits(&mut self, commits: Commits) {
        self.commits = commits;
    }

    /// Inserts a batch that arrives now: all of it, or nothing on an error. A row is a protobuf message.
    ///
    /// # Errors
    /// Usually the disk. The batch may be inserted again.
    pub fn insert<'r>(
        &mut self,
        rows: impl Iterator<Item = (RowKind, &'r [u8])>,
        now: Now,
    ) -> Result<Inserted, Error> {
        let open = self.open.take_if(|(segment, began)| is_full(segment, *began, &self.options));
        self.full.extend(open.map(|(segment, _)| segment));
        self.check_waiting()?;
        let began = self.open.as_ref().map_or_else(Instant::now, |(_, began)| *began);

        let work = || {
            // Only batches: what else is written can be written again.
            schema::set_commits(&self.connection, self.commits)?;
            let transaction =
                self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let span = (self.arrivals.span(&transaction, now)?, signed(now.realtime_ns));
            let open = self.open.as_ref().map(|(segment, _)| segment);
            let mut batch = Batch::into(&transaction, open, self.own_netns)?;
            let inserted = batch.insert_all(&mut self.tables, rows)?;
            let segment = batch.finish(&mut self.admitted, span)?;
            transaction.commit()?;
            Ok((inserted, segment))
        };
        let done = work();
        // Without it the next commits are synced too.
        let _ = schema::set_commits(&self.connection, Commits::Written);
        let (inserted, segment) = done.map_err(sqlite("cannot write to the store"))?;
        self.open = segment.map(|segment| (segment, began));
        self.is_behind = true;
        Ok(inserted)
    }

    /// Does what inserting a batch does, and takes it back.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn rehearse<'r>(
        &mut self,
        rows: impl Iterator<Item = (RowKind, &'r [u8])>,
    ) -> Result<Inserted, Error> {
        let work = || {
            let transaction =
                self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut batch = Batch::into(&transaction, None, self.own_netns)?;
            let inserted = batch.insert_all(&mut self.tables, rows)?;
            batch.finish(&mut Admitted::new(self.options.keys_max), (i64::MAX, 0))?;
            transaction.rollback()?;
            Ok(inserted)
        };
        work().map_err(sqlite("cannot write to the store"))
    }

    /// Stores the increase of each hop of the ledger since the last call.
    ///
    /// # Errors
    /// Usually the disk; the next call then includes the increase.
    pub fn record_ledger(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let mut work = || {
            let transaction = self.connection.transaction()?;
            ledger_rows::write(&transaction, snapshot)?;
            transaction.commit()
        };
        work().map_err(sqlite("cannot write the ledger to the store"))
    }

    /// Does one step of the work that is due: sealing, and removing old data. Call it often; most calls do nothing.
    ///
    /// # Errors
    /// The disk, mostly. It is tried again.
    pub fn step(&mut self, now: Now) -> Result<Stepped, Error> {
        if self.step_due > Instant::now() {
            return Ok(Stepped::NotDue);
        }
        self.step_due = Instant::now() + STEP_INTERVAL;
        let open = self.open.take_if(|(segment, began)| is_full(segment, *began, &self.options));
        self.full.extend(open.map(|(segment, _)| segment));

        self.checkpoint_next()?;
        self.seal_next()?;
        self.arrivals.follow(&self.connection, now).map_err(sqlite("cannot note the time"))?;
        let oldest = |age: Duration| {
            i64::try_from(u128::from(now.realtime_ns).saturating_sub(age.as_nanos()))
                .unwrap_or(i64::MAX)
        };
        let bounds = Bounds {
            now_unix_ns: signed(now.realtime_ns),
            oldest_unix_ns: self.options.keep_age.map(oldest),
            bytes_max: self.options.keep_bytes,
        };
        let removed = retention::step(&mut self.connection, &self.options.folder, bounds)?;
        self.figures.files_removed += removed;
        self.figures.bytes = retention::size(&self.connection)?.total();
        // While a segment waits after a failure, it is not known to have passed.
        Ok(if self.seal_due > Instant::now() { Stepped::NotDue } else { Stepped::Done })
    }

    /// Does one step, although none is due.
    #[cfg(test)]
    pub(crate) fn step_at_once(&mut self, now: Now) -> Result<Stepped, Error> {
        self.step_due = Instant::now();
        self.step(now)
    }

    /// The current counters and sizes.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Seals all segments, and waits for the end.
    ///
    /// # Errors
    /// Usually the disk; segments that are not sealed stay as they are.
    pub fn seal_all(&mut self) -> Result<(), Error> {
        self.full.extend(self.open.take().map(|(segment, _)| segment));
        self.seal_due = Instant::now();
        while self.sealing.is_some() || !self.full.is_empty() {
            match self.sealing.take() {
                Some(sealing) => self.take_sealed(sealing)?,
                None => self.start_sealing()?,
            }
        }
        while retention::empty_some(&mut self.connection)? {}
        Ok(())
    }

    /// Refuses a batch while sealing fails and its rows would push sealed ones out of the store. They wait in the sink's queue, as
    /// with a full disk.
    fn check_waiting(&self) -> Result<(), Error> {
        let Some(keep_bytes) = self.options.keep_bytes.filter(|_| self.is_sealing_failing) else {
            return Ok(());
        };
        let open = self.open.iter().map(|(segment, _)| segment);
        let waiting: i64 = self.full.iter().chain(open).map(|segment| segment.bytes).sum();
        let (waiting_bytes, max_bytes) = (waiting.max(0) as u64, keep_bytes / WAITING_PART);
        match waiting_bytes > max_bytes {
            true => Err(Error::Waiting { waiting_bytes, max_bytes }),
            false => Ok(()),
        }
    }

    fn checkpoint_next(&mut self) -> Result<(), Error> {
        let ended = self.checkpoint.take_if(|checkpoint| checkpoint.has_ended());
        let is_due = self.checkpoint.is_none() && self.is_behind;
        if is_due {
            self.is_behind = false;
            self.checkpoint = Some(Checkpoint::start(&self.options.folder)?);
        }
        ended.map_or(Ok(()), Checkpoint::finish)
    }

    fn seal_next(&mut self) -> Result<(), Error> {
        if let Some(ended) = self.sealing.take_if(|sealing| sealing.has_ended()) {
            self.seal_due = Instant::now() + SEAL_PAUSE;
            // One that cannot be sealed does not hold up those after it.
            self.full.rotate_left(1);
            self.take_sealed(ended)?;
            self.seal_due = Instant::now();
        }
        match self.sealing.is_none() && self.seal_due <= Instant::now() {
            true => self.start_sealing(),
            false => Ok(()),
        }
    }

    fn start_sealing(&mut self) -> Result<(), Error> {
        let Some(segment) = self.full.front() else { return Ok(()) };
        self.sealing = Some(Sealing::start(&self.options.folder, segment)?);
        Ok(())
    }

    fn take_sealed(&mut self, sealing: Sealing) -> Result<(), Error> {
        let sealed = sealing.finish();
        self.is_sealing_failing = sealed.is_err();
        let sealed = sealed?;
        let bytes = i64::try_from(sealed.bytes).unwrap_or(i64::MAX);
        let mut work = || {
            let transaction = self.connection.transaction()?;
            Segment::seal(&transaction, sealed.id, &sealed.file, bytes)?;
            transaction.commit()
        };
        work().map_err(sqlite("cannot seal a segment"))?;
        self.full.retain(|segment| segment.id != sealed.id);
        Ok(())
    }
}

/// The part of the store's size limit that unsealed rows may take while sealing fails, as a divisor: two segments.
const WAITING_PART: u64 = 4;

/// A segment is at most an eighth of the store's size limit.
fn bytes_max(options: &Options) -> i64 {
    let part = options.keep_bytes.map_or(u64::MAX, |keep_bytes| keep_bytes / 8);
    i64::try_from(part).map_or(SEGMENT_BYTES_MAX, |part| part.min(SEGMENT_BYTES_MAX))
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread works in a folder that another writer may open next.
        if let Some(sealing) = self.sealing.take() {
            let _ = sealing.finish();
        }
        if let Some(checkpoint) = self.checkpoint.take() {
            let _ = checkpoint.finish();
        }
    }
}

fn is_full(segment: &Segment, began: Instant, options: &Options) -> bool {
    segment.rows >= SEGMENT_ROWS_MAX
        || segment.bytes >= bytes_max(options)
        || (segment.rows > 0 && began.elapsed() >= options.segment_age)
}

fn signed(unix_ns: u64) -> i64 {
    i64::try_from(unix_ns).unwrap_or(i64::MAX)
}

/// A batch that is being inserted.
struct Batch<'c> {
    connection: &'c Connection,
    /// The segment that takes the rows, and the statement that adds one to it.
    segment: Option<(Segment, CachedStatement<'c>)>,
    rollup: Rollup,
    /// The inode of Weir's own network namespace.
    own_netns: Option<u64>,
    /// The newest time of a row of another namespace.
    foreign_unix_ns: Option<i64>,
    /// The last row of each table that took some.
    last_rows: Vec<(&'static str, i64)>,
}

impl<'c> Batch<'c> {
    /// A batch for this segment, or for a new one.
    fn into(
        connection: &'c Connection,
        open: Option<&Segment>,
        own_netns: Option<u64>,
    ) -> rusqlite::Result<Batch<'c>> {
        let segment = match open {
            Some(segment) => Some((segment.clone(), segment.insert(connection)?)),
            None => None,
        };
        Ok(Batch {
            connection,
            segment,
            rollup: Rollup::default(),
            own_netns,
            foreign_unix_ns: None,
            last_rows: Vec::new(),
        })
    }

    fn insert_all<'r>(
        &mut self,
        tables: &mut Tables,
        rows: impl Iterator<Item = (RowKind, &'r [u8])>,
    ) -> rusqlite::Result<Inserted> {
        let mut inserted = Inserted::default();
        for (at, (kind, message)) in rows.enumerate() {
            let is_read = match kind {
                RowKind::Record => self.insert_record(&mut tables.closes, message)?,
                kind => match tables.others.iter_mut().find(|(other, _)| *other == kind) {
                    Some((_, rows)) => self.insert_into(rows, message)?,
                    None => false,
                },
            };
            if !is_read {
                inserted.unreadable.push(at);
            }
        }
        Ok(inserted)
    }

    fn insert_into(&mut self, rows: &mut Rows, message: &[u8]) -> rusqlite::Result<bool> {
        if !rows.insert(self.connection, message)? {
            return Ok(false);
        }
        let (name, row) = (rows.name(), self.connection.last_insert_rowid());
        match self.last_rows.iter_mut().find(|(other, _)| *other == name) {
            Some((_, last)) => *last = row,
            None => self.last_rows.push((name, row)),
        }
        Ok(true)
    }

    fn insert_record(&mut self, closes: &mut Rows, message: &[u8]) -> rusqlite::Result<bool> {
        let Ok(record) = decode_protobuf(message) else { return Ok(false) };
        let time_unix_ns = record.time_unix_ns.unwrap_or_default() as i64;
        let cookie = record.cookie.unwrap_or_default() as i64;
        if record.record_kind == Some(RecordKind::CLOSE) && !self.insert_into(closes, message)? {
            return Ok(false);
        }

        let (segment, insert) = match &mut self.segment {
            Some(open) => open,
            none => {
                let segment = Segment::create(self.connection)?;
                let insert = segment.insert(self.connection)?;
                none.insert((segment, insert))
            }
        };
        segment.push(insert, (time_unix_ns, cookie), message)?;
        self.rollup.add(&record, time_unix_ns);
        if record.netns_inode.is_some() && record.netns_inode != self.own_netns {
            self.foreign_unix_ns = self.foreign_unix_ns.max(Some(time_unix_ns));
        }
        Ok(true)
    }

    /// Writes what was added up, and when it arrived. Returns the segment that took the rows.
    fn finish(
        self,
        admitted: &mut Admitted,
        span: (i64, i64),
    ) -> rusqlite::Result<Option<Segment>> {
        self.rollup.write(self.connection, admitted)?;
        if let Some(time_unix_ns) = self.foreign_unix_ns {
            foreign::note(self.connection, time_unix_ns)?;
        }
        let segment = self.segment.map(|(segment, _)| segment);
        if let Some(segment) = &segment {
            segment.save(self.connection)?;
            arrivals::note(self.connection, span, retention::SEGMENTS, segment.id)?;
        }
        for (table, last_row) in self.last_rows {
            arrivals::note(self.connection, span, table, last_row)?;
        }
        Ok(segment)
    }
}

#[cfg(test)]
mod tests;
