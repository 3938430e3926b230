//! Keeps the store within its age and size: removes the oldest data, a little at a time.

use crate::catalog::{self, Segment};
use crate::error::{Error, sqlite};
use crate::rollup::{HOUR_NS, MINUTE_NS};
use crate::schema;
use crate::tables;
use rusqlite::{Connection, Transaction};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most rows that one step deletes from each table; a row takes 14 µs.
const ROWS_MAX: i64 = 2_000;

/// Longest time that one step spends deleting while there are too many rows; batches wait meanwhile.
const PRUNE_MAX: Duration = Duration::from_millis(100);

/// How much of the past goes at a time where there is too much.
const WINDOW_NS: i64 = 2 * MINUTE_NS;

/// Pages that one step gives back to the file system: 14 ms.
const PAGES_MAX: i64 = 500;

/// The share of the size limit that tables of the database may use before their oldest rows are deleted, in percent.
const TABLES_PERCENT: u64 = 50;

/// The limits of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Rows before this time are deleted.
    pub(crate) oldest_unix_ns: Option<i64>,
    pub(crate) bytes_max: Option<u64>,
}

/// The current size of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) database_bytes: u64,
    /// Part of the database: segments that are not sealed.
    pub(crate) hot_bytes: u64,
    pub(crate) files_bytes: u64,
}

impl Size {
    /// Database and files together.
    pub(crate) fn total(self) -> u64 {
        self.database_bytes + self.files_bytes
    }
}

/// Measures the store. Free pages do not count: they are reused before the file grows.
pub(crate) fn size(connection: &Connection) -> Result<Size, Error> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let measured = || {
        let pages = number("page_count")? - number("freelist_count")?;
        let segments: (i64, i64) = connection.query_row(
            "SELECT ifnull(sum(bytes) FILTER (WHERE file IS NULL), 0), ifnull(sum(bytes) FILTER (WHERE file IS NOT NULL), 0)
             FROM segments",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok((pages * number("page_size")?, segments))
    };
    let (database, (hot, files)) = measured().map_err(sqlite("cannot measure the store"))?;
    let bytes = |number: i64| number.max(0) as u64;
    Ok(Size { database_bytes: bytes(database), hot_bytes: bytes(hot), files_bytes: bytes(files) })
}

/// Does one step of the removal that is due. Returns the number of files removed.
pub(crate) fn step(
    connection: &mut Connection,
    folder: &Path,
    bounds: Bounds,
) -> Result<u64, Error> {
    let size = size(connection)?;
    let segments = catalog::all(connection).map_err(sqlite("cannot list segments"))?;
    let dropped = dropped(&segments, size, bounds);
    let work = |transaction: Transaction<'_>| {
        for segment in &dropped {
            transaction.execute("DELETE FROM segments WHERE id = ?1", [segment.id])?;
        }
        transaction.commit()
    };
    connection.transaction().and_then(work).map_err(sqlite("cannot remove what is old"))?;

    let began = Instant::now();
    while prune_once(connection, bounds)? && began.elapsed() < PRUNE_MAX {}

    // No new reader opens these files; a reader that has one open can go on reading it.
    for file in dropped.iter().filter_map(|segment| segment.file.as_deref()) {
        let path = schema::raw(folder).join(file);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(Error::File { path, source });
            }
            _ => {}
        }
    }
    give_back(connection).map_err(sqlite("cannot shrink the store"))?;
    Ok(dropped.len() as u64)
}

/// Sealed segments to remove, oldest first.
fn dropped(segments: &[Segment], size: Size, bounds: Bounds) -> Vec<&Segment> {
    let mut left = size.total();
    let mut dropped = Vec::new();
    for segment in segments.iter().filter(|segment| segment.file.is_some()) {
        let is_old = bounds.oldest_unix_ns.is_some_and(|oldest| segment.last_unix_ns < oldest);
        let is_too_much = bounds.bytes_max.is_some_and(|max| left > max);
        if is_old || is_too_much {
            left = left.saturating_sub(segment.bytes.max(0) as u64);
            dropped.push(segment);
        }
    }
    dropped
}

/// Deletes some of the rows that are too old or too many. Returns whether there are still too many.
fn prune_once(connection: &mut Connection, bounds: Bounds) -> Result<bool, Error> {
    let size = size(connection)?;
    let tables_max = bounds.bytes_max.map(|max| max / 100 * TABLES_PERCENT);
    let is_crowded =
        tables_max.is_some_and(|max| size.database_bytes.saturating_sub(size.hot_bytes) > max);
    let work = |transaction: Transaction<'_>| {
        let cutoff = match is_crowded {
            true => oldest(&transaction)?.map(|oldest| oldest.saturating_add(WINDOW_NS)),
            false => bounds.oldest_unix_ns,
        };
        if let Some(cutoff) = cutoff {
            prune(&transaction, cutoff)?;
        }
        transaction.commit()
    };
    connection.transaction().and_then(work).map_err(sqlite("cannot remove what is old"))?;
    Ok(is_crowded)
}

/// The oldest moment of which there is something, but for sums of an hour, which go with their last minute.
fn oldest(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let all = tables::NAMES.iter().map(|table| format!("SELECT min(time_unix_ns) FROM {table}"));
    let minutes = "SELECT min(time_unix_ns) FROM sockets_minute WHERE dimension = 'all'".to_owned();
    let ledger = "SELECT min(time_unix_ns) FROM ledger".to_owned();
    let mut oldest: Option<i64> = None;
    for statement in all.chain([minutes, ledger]) {
        let found: Option<i64> =
            connection.prepare_cached(&statement)?.query_row([], |row| row.get(0))?;
        oldest = [oldest, found].into_iter().flatten().min();
    }
    Ok(oldest)
}

/// Deletes some of what is before a moment, the same for all tables: a full one does not cost the others their past.
fn prune(connection: &Connection, cutoff: i64) -> rusqlite::Result<()> {
    for table in tables::NAMES {
        let delete = format!(
            "DELETE FROM {table} WHERE rowid IN
             (SELECT rowid FROM {table} WHERE time_unix_ns < ?1 ORDER BY time_unix_ns LIMIT ?2)"
        );
        connection.prepare_cached(&delete)?.execute([cutoff, ROWS_MAX])?;
    }

    // The keys of these begin with the dimension: one time after another.
    for (table, span_ns) in [("sockets_minute", MINUTE_NS), ("sockets_hour", HOUR_NS)] {
        let whole_before = cutoff.saturating_sub(span_ns);
        for dimension in ["all", "unit", "peer", "service", "path"] {
            let delete = format!(
                "DELETE FROM {table} WHERE dimension = ?1 AND time_unix_ns <= ?2 AND time_unix_ns IN
                 (SELECT DISTINCT time_unix_ns FROM {table} WHERE dimension = ?1 ORDER BY time_unix_ns LIMIT 1)"
            );
            connection
                .prepare_cached(&delete)?
                .execute(rusqlite::params![dimension, whole_before])?;
        }
    }
    let delete = "DELETE FROM ledger WHERE time_unix_ns < ?1 AND time_unix_ns IN
         (SELECT DISTINCT time_unix_ns FROM ledger ORDER BY time_unix_ns LIMIT 20)";
    connection.prepare_cached(delete)?.execute([cutoff])?;
    Ok(())
}

fn give_back(connection: &Connection) -> rusqlite::Result<()> {
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    // SQLite reuses free pages; only a large number of them is returned.
    if free < 4 * PAGES_MAX {
        return Ok(());
    }
    // The pragma works while its rows are stepped through.
    let mut statement =
        connection.prepare_cached(&format!("PRAGMA incremental_vacuum({PAGES_MAX})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}
