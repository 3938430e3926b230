//! Whether there may be rows of other network namespaces than Weir's own. Every process can list the sockets of its own namespace;
//! those of others are for known users only, for as long as anything about them is stored.

use rusqlite::{Connection, OptionalExtension};

/// The newest time of such rows; empty if there are none.
pub(crate) const DEFINITION: &str = "CREATE TABLE IF NOT EXISTS foreign_rows (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    last_unix_ns INTEGER NOT NULL
)";

/// Notes that there is such a row.
pub(crate) fn note(connection: &Connection, time_unix_ns: i64) -> rusqlite::Result<()> {
    let upsert = "INSERT INTO foreign_rows VALUES (1, ?1)
         ON CONFLICT DO UPDATE SET last_unix_ns = max(last_unix_ns, excluded.last_unix_ns)";
    connection.prepare_cached(upsert)?.execute([time_unix_ns])?;
    Ok(())
}

/// The newest time of such rows.
pub(crate) fn last(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let select = "SELECT last_unix_ns FROM foreign_rows";
    connection.prepare_cached(select)?.query_row([], |row| row.get(0)).optional()
}

/// Notes that there are no such rows any more, if everything in the store is newer. `oldest_unix_ns` is `None` if it is empty.
pub(crate) fn forget(connection: &Connection, oldest_unix_ns: Option<i64>) -> rusqlite::Result<()> {
    let delete = "DELETE FROM foreign_rows WHERE last_unix_ns < ?1";
    connection.prepare_cached(delete)?.execute([oldest_unix_ns.unwrap_or(i64::MAX)])?;
    Ok(())
}
