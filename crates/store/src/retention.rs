//! Keeps the store within its age and size: removes the oldest data, a little at a time.

use crate::arrivals;
use crate::catalog::{self, Segment};
use crate::error::{Error, sqlite};
use crate::foreign;
use crate::rollup::{self, HOUR_NS, MINUTE_NS};
use crate::schema;
use crate::tables;
use rusqlite::{Connection, Transaction, params};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most rows that one transaction deletes from each table, and from each dimension of sums; a row takes 14 µs.
const ROWS_MAX: i64 = 250;

/// How long one step may go on to delete, with one transaction after another; batches wait meanwhile.
const PRUNE_MAX: Duration = Duration::from_millis(50);

/// How much of the past goes at a time where there is too much.
const WINDOW_NS: i64 = 2 * MINUTE_NS;

/// Pages that one step gives back to the file system: 14 ms.
const PAGES_MAX: i64 = 500;

/// The share of the size limit that tables of the database may use before their oldest rows are deleted, in percent.
const TABLES_PERCENT: u64 = 50;

/// The name under which arrivals of segments are noted; the others are tables.
pub(crate) const SEGMENTS: &str = "segments";

/// The limits of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) now_unix_ns: i64,
    /// What arrived before this time is deleted.
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
    let aged = aged(connection, bounds).map_err(sqlite("cannot tell what is old"))?;
    let dropped = dropped(&segments, size, bounds, aged);
    let work = |transaction: Transaction<'_>| {
        for segment in &dropped {
            transaction.execute("DELETE FROM segments WHERE id = ?1", [segment.id])?;
        }
        arrivals::forget_gone(&transaction, SEGMENTS)?;
        transaction.commit()
    };
    connection.transaction().and_then(work).map_err(sqlite("cannot remove what is old"))?;

    let began = Instant::now();
    let mut is_emptying = true;
    while is_emptying && began.elapsed() < PRUNE_MAX {
        is_emptying = empty_some(connection)?;
    }
    // Until its rows are gone, a sealed segment makes the tables look larger than they are.
    let tables_max =
        bounds.bytes_max.filter(|_| !is_emptying).map(|max| max / 100 * TABLES_PERCENT);
    while prune_once(connection, bounds, tables_max)? > 0 && began.elapsed() < PRUNE_MAX {}
    forget_foreign(connection).map_err(sqlite("cannot remove what is old"))?;

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

/// Takes the arrivals in a store of an earlier version from the times in its rows.
pub(crate) fn take_over(connection: &Connection, now_unix_ns: i64) -> rusqlite::Result<()> {
    for table in tables::NAMES {
        arrivals::take_over(connection, table, (table, "rowid", "time_unix_ns"), now_unix_ns)?;
    }
    let ends = (SEGMENTS, "id", "last_unix_ns");
    arrivals::take_over(connection, SEGMENTS, ends, now_unix_ns)
}

/// The last segment that is too old.
fn aged(connection: &Connection, bounds: Bounds) -> rusqlite::Result<Option<i64>> {
    let Some(cutoff) = bounds.oldest_unix_ns else { return Ok(None) };
    match arrivals::before(connection, cutoff, bounds.now_unix_ns)? {
        Some(span) => arrivals::last_row(connection, SEGMENTS, span),
        None => Ok(None),
    }
}

/// Sealed segments to remove, in the order in which they arrived: up to `aged`, and more if there is too much.
fn dropped(segments: &[Segment], size: Size, bounds: Bounds, aged: Option<i64>) -> Vec<&Segment> {
    let mut sealed: Vec<_> = segments.iter().filter(|segment| segment.file.is_some()).collect();
    sealed.sort_unstable_by_key(|segment| segment.id);
    let mut left = size.total();
    let mut dropped = Vec::new();
    for segment in sealed {
        let is_old = aged.is_some_and(|aged| segment.id <= aged);
        let is_too_much = bounds.bytes_max.is_some_and(|max| left > max);
        if is_old || is_too_much {
            left = left.saturating_sub(segment.bytes.max(0) as u64);
            dropped.push(segment);
        }
    }
    dropped
}

/// Deletes some rows of a table whose segment has a file. Returns whether there was such a table.
pub(crate) fn empty_some(connection: &mut Connection) -> Result<bool, Error> {
    let work = |transaction: Transaction<'_>| {
        let was_there = catalog::empty_some(&transaction)?;
        transaction.commit()?;
        Ok(was_there)
    };
    connection.transaction().and_then(work).map_err(sqlite("cannot remove what is sealed"))
}

/// Deletes some of the rows that are too old, or too many where the tables have `tables_max`. Returns how many.
fn prune_once(
    connection: &mut Connection,
    bounds: Bounds,
    tables_max: Option<u64>,
) -> Result<usize, Error> {
    let size = size(connection)?;
    let is_crowded =
        tables_max.is_some_and(|max| size.database_bytes.saturating_sub(size.hot_bytes) > max);
    let work = |transaction: Transaction<'_>| {
        let deleted = match (is_crowded, bounds.oldest_unix_ns) {
            (true, _) => prune_oldest(&transaction, bounds.now_unix_ns)?,
            (false, Some(cutoff)) => {
                let span = arrivals::before(&transaction, cutoff, bounds.now_unix_ns)?;
                // The rows of a span go with its last one, and no row is there without its sum.
                let of_sums = cutoff.saturating_sub(arrivals::SPAN_NS as i64);
                prune(&transaction, of_sums, span)?
            }
            (false, None) => 0,
        };
        transaction.commit()?;
        Ok(deleted)
    };
    connection.transaction().and_then(work).map_err(sqlite("cannot remove what is old"))
}

/// The oldest moment of which there is something, except for sums of an hour, which go with their last minute.
fn oldest(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let mut oldest = first(connection, "SELECT min(time_unix_ns) FROM ledger")?;
    for table in tables::NAMES {
        let found = first(connection, &format!("SELECT min(time_unix_ns) FROM {table}"))?;
        oldest = [oldest, found].into_iter().flatten().min();
    }
    let found = oldest_sum(connection, "sockets_minute")?;
    Ok([oldest, found].into_iter().flatten().min())
}

fn oldest_sum(connection: &Connection, table: &str) -> rusqlite::Result<Option<i64>> {
    let mut oldest = None;
    for dimension in rollup::dimensions() {
        let select =
            format!("SELECT min(time_unix_ns) FROM {table} WHERE dimension = '{dimension}'");
        oldest = [oldest, first(connection, &select)?].into_iter().flatten().min();
    }
    Ok(oldest)
}

fn first(connection: &Connection, select: &str) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(select)?.query_row([], |row| row.get(0))
}

/// Notes that there are no rows of other network namespaces any more, if that is so.
fn forget_foreign(connection: &Connection) -> rusqlite::Result<()> {
    if foreign::last(connection)?.is_none() {
        return Ok(());
    }
    let raw = first(connection, "SELECT min(first_unix_ns) FROM segments WHERE rows > 0")?;
    let all = [raw, oldest(connection)?, oldest_sum(connection, "sockets_hour")?];
    foreign::forget(connection, all.into_iter().flatten().min())
}

/// Deletes some of the oldest rows, from all tables up to the same moment.
fn prune_oldest(connection: &Connection, now_unix_ns: i64) -> rusqlite::Result<usize> {
    let arrived = arrivals::oldest(connection, SEGMENTS, now_unix_ns)?;
    let ledger = first(connection, "SELECT min(time_unix_ns) FROM ledger")?;
    let summed = [ledger, oldest_sum(connection, "sockets_minute")?].into_iter().flatten().min();
    let times = [summed, arrived.map(|(_, time)| time)].into_iter().flatten();
    let Some(oldest) = times.min() else { return Ok(0) };

    let cutoff = oldest.saturating_add(WINDOW_NS);
    let span = match (arrivals::before(connection, cutoff, now_unix_ns)?, arrived) {
        // Where no time is known to be right, the order is.
        (None, Some((first, time))) if time < cutoff => Some(first),
        (span, _) => span,
    };
    prune(connection, cutoff, span)
}

/// Deletes some of what is before a moment, the same for all tables: a full one does not cost the others their past. Rows go by
/// when they arrived, up to the end of `span`; sums and the ledger, which have the times of this host alone, by those. Returns the
/// number of rows.
fn prune(connection: &Connection, cutoff: i64, span: Option<i64>) -> rusqlite::Result<usize> {
    let mut deleted = match span {
        Some(span) => prune_rows(connection, span)?,
        None => 0,
    };

    // The keys of these begin with the dimension.
    for (table, span_ns) in [("sockets_minute", MINUTE_NS), ("sockets_hour", HOUR_NS)] {
        let whole_before = cutoff.saturating_sub(span_ns);
        let delete = format!(
            "DELETE FROM {table} WHERE (dimension, time_unix_ns, unit, service, peer) IN
             (SELECT dimension, time_unix_ns, unit, service, peer FROM {table}
              WHERE dimension = ?1 AND time_unix_ns <= ?2 ORDER BY time_unix_ns LIMIT ?3)"
        );
        let mut delete = connection.prepare_cached(&delete)?;
        for dimension in rollup::dimensions() {
            deleted += delete.execute(params![dimension, whole_before, ROWS_MAX])?;
        }
    }
    let delete = "DELETE FROM ledger WHERE (time_unix_ns, hop, origin, target, way, reason) IN
         (SELECT time_unix_ns, hop, origin, target, way, reason FROM ledger
          WHERE time_unix_ns < ?1 ORDER BY time_unix_ns LIMIT ?2)";
    deleted += connection.prepare_cached(delete)?.execute([cutoff, ROWS_MAX])?;
    Ok(deleted)
}

fn prune_rows(connection: &Connection, span: i64) -> rusqlite::Result<usize> {
    let mut deleted = 0;
    for table in tables::NAMES {
        let Some(last_row) = arrivals::last_row(connection, table, span)? else { continue };
        let delete = format!(
            "DELETE FROM {table} WHERE rowid IN
             (SELECT rowid FROM {table} WHERE rowid <= ?1 ORDER BY rowid LIMIT ?2)"
        );
        deleted += connection.prepare_cached(&delete)?.execute([last_row, ROWS_MAX])?;
        // With the last row, so that the next oldest moment is one of which there is something.
        let left = first(connection, &format!("SELECT min(rowid) FROM {table}"))?;
        if left.is_none_or(|left| left > last_row) {
            arrivals::forget(connection, table, span)?;
        }
    }
    Ok(deleted)
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

#[cfg(test)]
mod tests;
