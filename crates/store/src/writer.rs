//! The only writer of a store.

use crate::catalog::{self, Segment};
use crate::error::{Error, sqlite};
use crate::ledger_rows;
use crate::retention::{self, Bounds};
use crate::rollup::{Admitted, Rollup};
use crate::schema;
use crate::seal::{self, Sealing};
use crate::tables::Rows;
use ledger::Snapshot;
use record::{RecordKind, RowKind, decode_protobuf};
use rusqlite::{Connection, TransactionBehavior};
use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

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
    /// Older data is removed.
    pub keep_age: Option<Duration>,
    /// While the store is larger, the oldest data is removed, raw rows first.
    pub keep_bytes: Option<u64>,
    /// Raw rows become a Parquet file after this time.
    pub segment_age: Duration,
    /// Most units, peer networks, services and paths, each, with rows of their own in a minute or an hour.
    pub keys_max: usize,
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
    tables: Tables,
    admitted: Admitted,
    /// The segment that takes rows, and its start time.
    open: Option<(Segment, Instant)>,
    /// Full segments, and the one that is being sealed.
    full: VecDeque<Segment>,
    sealing: Option<Sealing>,
    seal_due: Instant,
    step_due: Instant,
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
            open: None,
            full: segments.into_iter().filter(|segment| segment.file.is_none()).collect(),
            sealing: None,
            seal_due: now,
            step_due: now,
            figures: Figures { strays_removed, ..Figures::default() },
            options,
            _lock: lock,
        })
    }

    /// Inserts a batch: all of it, or nothing on an error. A row is a protobuf message.
    ///
    /// # Errors
    /// Usually the disk. The batch may be inserted again.
    pub fn insert<'r>(
        &mut self,
        rows: impl Iterator<Item = (RowKind, &'r [u8])>,
    ) -> Result<Inserted, Error> {
        let open = self.open.take_if(|(segment, began)| is_full(segment, *began, &self.options));
        self.full.extend(open.map(|(segment, _)| segment));
        let began = self.open.as_ref().map_or_else(Instant::now, |(_, began)| *began);
        let segment = self.open.as_ref().map(|(segment, _)| segment.clone());

        let context = "cannot write to the store";
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(sqlite(context))?;
        let inserted = insert_all(&transaction, &mut self.tables, segment, rows, |rollup| {
            rollup.write(&transaction, &mut self.admitted)
        });
        let (inserted, segment) = inserted.map_err(sqlite(context))?;
        transaction.commit().map_err(sqlite(context))?;

        self.open = segment.map(|segment| (segment, began));
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
            let mut admitted = Admitted::new(self.options.keys_max);
            let write = |rollup: &Rollup| rollup.write(&transaction, &mut admitted);
            let (inserted, _) = insert_all(&transaction, &mut self.tables, None, rows, write)?;
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
    pub fn step(&mut self, now_unix_ns: u64) -> Result<Stepped, Error> {
        if self.step_due > Instant::now() {
            return Ok(Stepped::NotDue);
        }
        self.step_due = Instant::now() + STEP_INTERVAL;
        let open = self.open.take_if(|(segment, began)| is_full(segment, *began, &self.options));
        self.full.extend(open.map(|(segment, _)| segment));

        self.seal_next()?;
        let oldest = |age: Duration| {
            i64::try_from(u128::from(now_unix_ns).saturating_sub(age.as_nanos()))
                .unwrap_or(i64::MAX)
        };
        let bounds = Bounds {
            oldest_unix_ns: self.options.keep_age.map(oldest),
            bytes_max: self.options.keep_bytes,
        };
        let removed = retention::step(&mut self.connection, &self.options.folder, bounds)?;
        self.figures.files_removed += removed;
        self.figures.bytes = retention::size(&self.connection)?.total();
        // While a segment waits after a failure, it is not known to have passed.
        Ok(if self.seal_due > Instant::now() { Stepped::NotDue } else { Stepped::Done })
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
        Ok(())
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
        let sealed = sealing.finish()?;
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
    }
}

fn is_full(segment: &Segment, began: Instant, options: &Options) -> bool {
    segment.rows >= SEGMENT_ROWS_MAX
        || segment.bytes >= bytes_max(options)
        || (segment.rows > 0 && began.elapsed() >= options.segment_age)
}

fn insert_all<'r>(
    connection: &Connection,
    tables: &mut Tables,
    mut segment: Option<Segment>,
    rows: impl Iterator<Item = (RowKind, &'r [u8])>,
    write: impl FnOnce(&Rollup) -> rusqlite::Result<()>,
) -> rusqlite::Result<(Inserted, Option<Segment>)> {
    let (mut inserted, mut rollup) = (Inserted::default(), Rollup::default());
    for (at, (kind, message)) in rows.enumerate() {
        let is_read = match kind {
            RowKind::Record => {
                insert_record(connection, &mut tables.closes, (&mut segment, &mut rollup), message)?
            }
            kind => match tables.others.iter_mut().find(|(other, _)| *other == kind) {
                Some((_, rows)) => rows.insert(connection, message)?,
                None => false,
            },
        };
        if !is_read {
            inserted.unreadable.push(at);
        }
    }

    write(&rollup)?;
    if let Some(segment) = &segment {
        segment.save(connection)?;
    }
    Ok((inserted, segment))
}

fn insert_record(
    connection: &Connection,
    closes: &mut Rows,
    (segment, rollup): (&mut Option<Segment>, &mut Rollup),
    message: &[u8],
) -> rusqlite::Result<bool> {
    let Ok(record) = decode_protobuf(message) else { return Ok(false) };
    let time_unix_ns = record.time_unix_ns.unwrap_or_default() as i64;
    let cookie = record.cookie.unwrap_or_default() as i64;
    if record.record_kind == Some(RecordKind::CLOSE) && !closes.insert(connection, message)? {
        return Ok(false);
    }

    let segment = match segment {
        Some(segment) => segment,
        none => none.insert(Segment::create(connection)?),
    };
    segment.push(connection, (time_unix_ns, cookie), message)?;
    rollup.add(&record, time_unix_ns);
    Ok(true)
}
