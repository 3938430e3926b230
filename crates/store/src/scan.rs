//! Scans raw rows in segments and files, in batches. Reads only the columns that a statement uses, and skips what its bounds
//! rule out.

mod file;
mod hot;
mod values;

pub(crate) use values::Values;

use crate::access::Access;
use crate::catalog::{self, Segment};
use crate::error::{Error, sqlite};
use crate::schema;
use crate::sockets::{COOKIE_COLUMN, TIME_COLUMN, socket_columns};
use file::FilePart;
use hot::HotPart;
use rusqlite::{Connection, ffi};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of a row: its segment and its position in it.
fn number_of(segment: i64, place: i64) -> i64 {
    segment << 32 | place
}

/// Rows per batch.
const BATCH_ROWS: usize = 4_096;

/// The bounds of a statement that can rule out segments, row groups and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) first_unix_ns: i64,
    pub(crate) last_unix_ns: i64,
    pub(crate) cookie: Option<i64>,
}

impl Bounds {
    /// Every row.
    pub(crate) const ALL: Bounds =
        Bounds { first_unix_ns: i64::MIN, last_unix_ns: i64::MAX, cookie: None };

    fn is_all(self) -> bool {
        self == Bounds::ALL
    }

    fn may_have(&self, segment: &Segment) -> bool {
        segment.last_unix_ns >= self.first_unix_ns && segment.first_unix_ns <= self.last_unix_ns
    }

    fn has(&self, time_unix_ns: Option<i64>, cookie: Option<i64>) -> bool {
        let is_in_time = match time_unix_ns {
            Some(time) => (self.first_unix_ns..=self.last_unix_ns).contains(&time),
            None => self.first_unix_ns == i64::MIN && self.last_unix_ns == i64::MAX,
        };
        is_in_time && (self.cookie.is_none() || self.cookie == cookie)
    }
}

/// The raw rows of a store, for readers. All scans of a statement share one snapshot.
pub(crate) struct Source {
    folder: PathBuf,
    connection: Mutex<Connection>,
    segments: Mutex<Arc<[Segment]>>,
    /// When the running statement has to end, in nanoseconds of the monotonic clock. One step of SQLite's machine, between which it
    /// looks at the clock, may open thousands of files here.
    deadline_ns: Arc<AtomicU64>,
    /// What the running statement may read.
    pub(crate) access: Arc<Access>,
}

impl Source {
    pub(crate) fn open(
        folder: &Path,
        deadline_ns: Arc<AtomicU64>,
        access: Arc<Access>,
    ) -> Result<Source, Error> {
        let connection = schema::open_reader(folder)?;
        Ok(Source {
            folder: folder.to_owned(),
            connection: Mutex::new(connection),
            segments: Mutex::default(),
            deadline_ns,
            access,
        })
    }

    /// Begins a snapshot: until [`end`](Self::end), every scan sees the same rows.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        let connection = self.lock();
        let listed = connection.execute_batch("BEGIN").and_then(|()| catalog::all(&connection));
        let listed = listed.map_err(sqlite("cannot list segments"))?;
        *self.segments.lock().unwrap_or_else(PoisonError::into_inner) = listed.into();
        Ok(())
    }

    /// Ends the snapshot.
    pub(crate) fn end(&self) {
        // A failure loses nothing, since the transaction only read.
        let _ = self.lock().execute_batch("COMMIT");
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_time(&self) -> Result<(), Error> {
        match sys::clock::monotonic_ns() > self.deadline_ns.load(Ordering::Relaxed) {
            true => Err(Error::Sqlite {
                context: "stopped",
                source: rusqlite::Error::SqliteFailure(
                    ffi::Error::new(ffi::SQLITE_INTERRUPT),
                    None,
                ),
            }),
            false => Ok(()),
        }
    }

    fn segments(&self) -> Arc<[Segment]> {
        Arc::clone(&self.segments.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A scan of raw rows.
pub(crate) struct Scan {
    source: Arc<Source>,
    segments: VecDeque<Segment>,
    part: Option<Part>,
    bounds: Bounds,
    /// The columns of `sockets` that are read.
    used: Vec<usize>,
}

enum Part {
    Hot(HotPart),
    File(Box<FilePart>),
}

/// Some rows, and which of them are within the bounds.
#[derive(Default)]
pub(crate) struct Batch {
    /// One entry for each column of `sockets`; empty if the column is not read.
    pub(crate) columns: Vec<Values>,
    /// The rows within the bounds, each with a unique number that is the same in every scan of a statement.
    pub(crate) chosen: Vec<(u32, i64)>,
}

impl Scan {
    /// Begins a scan of the current snapshot. `used` lists the columns that the statement reads.
    pub(crate) fn new(source: &Arc<Source>, bounds: Bounds, mut used: Vec<usize>) -> Scan {
        if !bounds.is_all() {
            used.extend([TIME_COLUMN, COOKIE_COLUMN]);
            used.sort_unstable();
            used.dedup();
        }
        let segments = source.segments();
        let wanted = segments.iter().filter(|segment| bounds.may_have(segment));
        Scan {
            source: Arc::clone(source),
            segments: wanted.cloned().collect(),
            part: None,
            bounds,
            used,
        }
    }

    /// Reads the next batch with any rows. Returns whether there was one.
    pub(crate) fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.columns.resize_with(socket_columns().len(), Values::default);
        loop {
            self.source.check_time()?;
            let is_there = match &mut self.part {
                Some(Part::Hot(part)) => {
                    part.next(&self.source.lock(), &self.bounds, &self.used, batch)?
                }
                Some(Part::File(part)) => part.next(&self.bounds, &self.used, batch)?,
                None => match self.segments.pop_front() {
                    Some(segment) => {
                        self.part = self.open(&segment)?;
                        continue;
                    }
                    None => return Ok(false),
                },
            };
            match is_there {
                true if batch.chosen.is_empty() => {}
                true => return Ok(true),
                false => self.part = None,
            }
        }
    }

    fn open(&self, segment: &Segment) -> Result<Option<Part>, Error> {
        match &segment.file {
            None => Ok(Some(Part::Hot(HotPart::new(segment.id, &self.used)))),
            Some(name) => {
                let path = schema::raw(&self.source.folder).join(name);
                let part = FilePart::open(&path, segment.id)?;
                Ok(part.map(|part| Part::File(Box::new(part))))
            }
        }
    }
}
