//! The ledger as rows: the increase at each hop, by way, since the last snapshot.

use ledger::{Amount, HopSnapshot, Snapshot};
use rusqlite::{Connection, OptionalExtension, params};

/// A way in or out of a hop, and its reason, if it has one.
type WayIn = (&'static str, &'static str);

/// Writes what a snapshot adds to the previous one of the same run.
pub(crate) fn write(connection: &Connection, snapshot: &Snapshot) -> rusqlite::Result<()> {
    let time_unix_ns = signed(snapshot.taken_at_unix_ms).saturating_mul(1_000_000);
    connection
        .prepare_cached("DELETE FROM ledger_seen WHERE run_id <> ?1")?
        .execute([&snapshot.run_id])?;
    for hop in snapshot.whole_hops() {
        for (way, amount) in ways(hop) {
            write_way(connection, (&snapshot.run_id, time_unix_ns), hop, way, amount)?;
        }
    }
    Ok(())
}

fn write_way(
    connection: &Connection,
    (run_id, time_unix_ns): (&str, i64),
    hop: &HopSnapshot,
    (way, reason): WayIn,
    amount: Amount,
) -> rusqlite::Result<()> {
    let place = (hop.hop.label(), hop.origin.as_str(), hop.target.as_deref().unwrap_or(""));
    let seen = "SELECT count, bytes FROM ledger_seen WHERE run_id = ?1 AND hop = ?2 AND origin = ?3 AND target = ?4 AND way = ?5 AND reason = ?6";
    let seen: Option<(i64, i64)> = connection
        .prepare_cached(seen)?
        .query_row(params![run_id, place.0, place.1, place.2, way, reason], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;

    let (before, bytes_before) = seen.unwrap_or_default();
    let (count, bytes) = (signed(amount.count), signed(amount.bytes));
    if (count, bytes) == (before, bytes_before) {
        return Ok(());
    }
    connection
        .prepare_cached("REPLACE INTO ledger_seen VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
        .execute(params![run_id, place.0, place.1, place.2, way, reason, count, bytes])?;
    // After the clock was set back, a time may occur twice.
    let insert = "INSERT INTO ledger VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        ON CONFLICT DO UPDATE SET count = count + excluded.count, bytes = bytes + excluded.bytes";
    connection.prepare_cached(insert)?.execute(params![
        time_unix_ns,
        place.0,
        place.1,
        place.2,
        way,
        reason,
        count - before,
        bytes - bytes_before
    ])?;
    Ok(())
}

fn ways(hop: &HopSnapshot) -> Vec<(WayIn, Amount)> {
    let mut ways = vec![(("received", ""), hop.received), (("delivered", ""), hop.delivered)];
    ways.extend(hop.dropped.iter().map(|one| {
        let way = if one.reason.is_intended() { "skipped" } else { "dropped" };
        ((way, one.reason.label()), one.amount)
    }));
    ways.extend(hop.rejected.iter().map(|one| (("rejected", one.class.label()), one.amount)));
    ways.extend([(("uncertain", ""), hop.uncertain), (("kept", ""), hop.kept)]);
    ways
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
