//! When rows arrived, minute by minute: what the oldest ones are, and which are too old.
//!
//! The times in rows do not say that. Datagrams that came over a link have the time of another host, and this host's own clock may
//! have been wrong. Rows arrive in the order of their numbers, so one number for each table and minute is enough.

use rusqlite::{Connection, OptionalExtension, params};
use sys::clock::{Now, Steps};

/// The last row of each place that arrived in a span, and what the wall clock said then. A span is a minute or longer; spans are
/// numbered in order.
pub(crate) const DEFINITION: &str = "CREATE TABLE IF NOT EXISTS arrivals (
    span INTEGER NOT NULL,
    place TEXT NOT NULL,
    time_unix_ns INTEGER NOT NULL,
    last_row INTEGER NOT NULL,
    PRIMARY KEY (span, place)
) WITHOUT ROWID";

/// How long a span is, at least.
pub(crate) const SPAN_NS: u64 = 60_000_000_000;

/// Rows whose time is looked at, for each place, in a store that did not note arrivals.
const PROBES: i64 = 1_000;

/// Notes arrivals of this process.
#[derive(Default)]
pub(crate) struct Arrivals {
    steps: Steps,
    /// The first span of this process.
    first: Option<i64>,
    /// The current span, and when it began on the monotonic clock.
    open: Option<(i64, u64)>,
}

impl Arrivals {
    /// The span for what arrives now.
    pub(crate) fn span(&mut self, connection: &Connection, now: Now) -> rusqlite::Result<i64> {
        self.follow(connection, now)?;
        match self.open {
            Some((span, began_ns)) if now.monotonic_ns.saturating_sub(began_ns) < SPAN_NS => {
                Ok(span)
            }
            _ => {
                let span = 1 + last_span(connection)?.unwrap_or(0);
                self.first.get_or_insert(span);
                self.open = Some((span, now.monotonic_ns));
                Ok(span)
            }
        }
    }

    /// If the wall clock was set, what arrived before gets the time that it would have had.
    pub(crate) fn follow(&mut self, connection: &Connection, now: Now) -> rusqlite::Result<()> {
        let step_ns = self.steps.note(now.realtime_ns, now.monotonic_ns);
        if let (true, Some(first)) = (step_ns != 0, self.first) {
            let update = "UPDATE arrivals SET time_unix_ns = time_unix_ns + ?2 WHERE span >= ?1";
            connection.execute(update, params![first, step_ns])?;
        }
        Ok(())
    }
}

/// Notes the last row of a place in a span.
pub(crate) fn note(
    connection: &Connection,
    (span, time_unix_ns): (i64, i64),
    place: &str,
    last_row: i64,
) -> rusqlite::Result<()> {
    let upsert = "INSERT INTO arrivals VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET last_row = max(last_row, excluded.last_row),
         time_unix_ns = excluded.time_unix_ns";
    connection.prepare_cached(upsert)?.execute(params![span, place, time_unix_ns, last_row])?;
    Ok(())
}

/// The spans of all places but one, in order, with the time of the last arrival in each: a span is too old
/// when all of it is.
fn each_span(
    connection: &Connection,
    without: &str,
    mut look: impl FnMut(i64, i64) -> Goes,
) -> rusqlite::Result<()> {
    let select = "SELECT span, max(time_unix_ns) FROM arrivals WHERE place <> ?1 GROUP BY span ORDER BY span";
    let mut statement = connection.prepare_cached(select)?;
    let mut rows = statement.query([without])?;
    while let Some(row) = rows.next()? {
        if look(row.get(0)?, row.get(1)?) == Goes::NoFurther {
            break;
        }
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Goes {
    On,
    NoFurther,
}

/// The last span that ended before `cutoff`.
///
/// Time only goes on, so a span is not earlier than one before it, whatever the clock said: a clock that is behind for a while ages
/// nothing. A time after `now` says nothing, except that the span is before the next one.
pub(crate) fn before(
    connection: &Connection,
    cutoff: i64,
    now_unix_ns: i64,
) -> rusqlite::Result<Option<i64>> {
    let (mut found, mut latest) = (None, i64::MIN);
    each_span(connection, "", |span, time| {
        if time > now_unix_ns {
            return Goes::On;
        }
        latest = latest.max(time);
        if latest >= cutoff {
            return Goes::NoFurther;
        }
        found = Some(span);
        Goes::On
    })?;
    Ok(found)
}

/// The first span in which something arrived at a place other than this, and when that was as far as it is known.
pub(crate) fn oldest(
    connection: &Connection,
    without: &str,
    now_unix_ns: i64,
) -> rusqlite::Result<Option<(i64, i64)>> {
    let mut found = None;
    each_span(connection, without, |span, time| {
        let (first, _) = *found.get_or_insert((span, now_unix_ns));
        if time > now_unix_ns {
            return Goes::On;
        }
        found = Some((first, time));
        Goes::NoFurther
    })?;
    Ok(found)
}

fn last_span(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached("SELECT max(span) FROM arrivals")?.query_row([], |row| row.get(0))
}

/// The last row of a place that arrived up to a span and is not still growing in a later one.
pub(crate) fn last_row(
    connection: &Connection,
    place: &str,
    span: i64,
) -> rusqlite::Result<Option<i64>> {
    let select =
        "SELECT max(last_row) FILTER (WHERE span <= ?2), min(last_row) FILTER (WHERE span > ?2)
         FROM arrivals WHERE place = ?1";
    let (last, next): (Option<i64>, Option<i64>) = connection
        .prepare_cached(select)?
        .query_row(params![place, span], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(last.map(|last| next.map_or(last, |next| last.min(next.saturating_sub(1)))))
}

/// Forgets the arrivals of a place up to a span: their rows are gone.
pub(crate) fn forget(connection: &Connection, place: &str, span: i64) -> rusqlite::Result<()> {
    let delete = "DELETE FROM arrivals WHERE place = ?1 AND span <= ?2";
    connection.prepare_cached(delete)?.execute(params![place, span])?;
    Ok(())
}

/// Forgets the arrivals of a place, whose name is that of its table with a column `id`, before the first of its rows.
pub(crate) fn forget_gone(connection: &Connection, place: &str) -> rusqlite::Result<()> {
    let delete = format!(
        "DELETE FROM arrivals WHERE place = ?1 AND last_row < (SELECT min(id) FROM {place})"
    );
    connection.prepare_cached(&delete)?.execute([place])?;
    Ok(())
}

/// Takes the arrivals of rows that an earlier version stored from their own times: a row is not earlier than one before it.
pub(crate) fn take_over(
    connection: &Connection,
    place: &str,
    (table, row, time): (&str, &str, &str),
    now_unix_ns: i64,
) -> rusqlite::Result<()> {
    // An earlier version may have removed every row since, and then numbered from 1 again.
    let is_noted = "SELECT max(last_row) > (SELECT ifnull(max({row}), 0) FROM {table}) FROM arrivals WHERE place = ?1";
    let is_noted = is_noted.replace("{row}", row).replace("{table}", table);
    if connection.query_row(&is_noted, [place], |row| row.get::<_, Option<bool>>(0))? == Some(true)
    {
        forget(connection, place, i64::MAX)?;
    }
    let noted = "SELECT 1 FROM arrivals WHERE place = ?1 LIMIT 1";
    if connection.query_row(noted, [place], |_| Ok(())).optional()?.is_some() {
        return Ok(());
    }
    let ends = format!("SELECT min({row}), max({row}) FROM {table}");
    let ends = connection.query_row(&ends, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (Some(first), Some(last)): (Option<i64>, Option<i64>) = ends else { return Ok(()) };

    let probe =
        format!("SELECT {row}, {time} FROM {table} WHERE {row} <= ?1 ORDER BY {row} DESC LIMIT 1");
    let mut probe = connection.prepare(&probe)?;
    let mut latest = i64::MIN;
    for part in 1..=PROBES {
        let at = first + (i128::from(last - first) * i128::from(part) / i128::from(PROBES)) as i64;
        let (number, time): (i64, Option<i64>) =
            probe.query_row([at], |row| Ok((row.get(0)?, row.get(1)?)))?;
        latest = time.filter(|time| *time <= now_unix_ns).map_or(latest, |time| latest.max(time));
        if latest > i64::MIN {
            // Spans of all places in one order.
            note(connection, (latest / SPAN_NS as i64, latest), place, number)?;
        }
    }
    Ok(())
}
