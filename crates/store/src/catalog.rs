//! The segments, which hold the raw rows. The database lists them, and each transaction that moves rows updates the list.

use rusqlite::{CachedStatement, Connection, OptionalExtension, Statement, params};

/// The raw rows of a few minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) id: i64,
    pub(crate) first_unix_ns: i64,
    pub(crate) last_unix_ns: i64,
    pub(crate) rows: i64,
    /// The size of its messages while it is hot, then of its file.
    pub(crate) bytes: i64,
    /// The name of its file; `None` while it is hot.
    pub(crate) file: Option<String>,
}

impl Segment {
    /// The table of a hot segment.
    pub(crate) fn table(id: i64) -> String {
        format!("hot_{id}")
    }

    /// Creates a segment and its table.
    pub(crate) fn create(connection: &Connection) -> rusqlite::Result<Segment> {
        connection
            .execute("INSERT INTO segments VALUES (NULL, ?1, ?2, 0, 0, NULL)", [i64::MAX, 0])?;
        let id = connection.last_insert_rowid();
        let table = Segment::table(id);
        // An id may return after its segment was removed, perhaps before the table was emptied.
        connection.execute_batch(&format!(
            "DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (time_unix_ns INTEGER, cookie INTEGER, message BLOB)"
        ))?;
        Ok(Segment { id, first_unix_ns: i64::MAX, last_unix_ns: 0, rows: 0, bytes: 0, file: None })
    }

    /// The statement that adds a row.
    pub(crate) fn insert<'c>(
        &self,
        connection: &'c Connection,
    ) -> rusqlite::Result<CachedStatement<'c>> {
        let table = Segment::table(self.id);
        connection.prepare_cached(&format!("INSERT INTO {table} VALUES (?1, ?2, ?3)"))
    }

    /// Adds a row with the statement of [`insert`](Self::insert).
    pub(crate) fn push(
        &mut self,
        insert: &mut Statement<'_>,
        (time_unix_ns, cookie): (i64, i64),
        message: &[u8],
    ) -> rusqlite::Result<()> {
        insert.execute(params![time_unix_ns, cookie, message])?;
        self.first_unix_ns = self.first_unix_ns.min(time_unix_ns);
        self.last_unix_ns = self.last_unix_ns.max(time_unix_ns);
        self.rows += 1;
        self.bytes += message.len() as i64;
        Ok(())
    }

    /// Saves its times, rows and bytes.
    pub(crate) fn save(&self, connection: &Connection) -> rusqlite::Result<()> {
        let update = "UPDATE segments SET first_unix_ns = ?2, last_unix_ns = ?3, rows = ?4, bytes = ?5 WHERE id = ?1";
        let Segment { id, first_unix_ns, last_unix_ns, rows, bytes, .. } = self;
        connection.prepare_cached(update)?.execute([
            id,
            first_unix_ns,
            last_unix_ns,
            rows,
            bytes,
        ])?;
        Ok(())
    }

    /// Moves its rows to a file: from this transaction on, readers read the file and not the table, which is
    /// [emptied](empty_some) later.
    pub(crate) fn seal(
        connection: &Connection,
        id: i64,
        file: &str,
        bytes: i64,
    ) -> rusqlite::Result<()> {
        let update = "UPDATE segments SET file = ?2, bytes = ?3 WHERE id = ?1";
        connection.execute(update, params![id, file, bytes])?;
        Ok(())
    }
}

/// Most rows that [`empty_some`] deletes.
pub(crate) const EMPTIED_ROWS: i64 = 2_000;

/// Deletes some rows of a table whose segment has a file, or the table if it is empty: to drop all rows at once would take as long
/// as reading them. Returns whether there was such a table.
pub(crate) fn empty_some(connection: &Connection) -> rusqlite::Result<bool> {
    let Some(table) = emptied(connection)? else { return Ok(false) };
    let delete = format!("DELETE FROM {table} WHERE rowid < (SELECT min(rowid) FROM {table}) + ?1");
    if connection.execute(&delete, [EMPTIED_ROWS])? == 0 {
        connection.execute_batch(&format!("DROP TABLE {table}"))?;
    }
    Ok(true)
}

/// The name of a table whose segment has a file.
fn emptied(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let select = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'hot_[0-9]*'
         AND CAST(substr(name, 5) AS INTEGER) NOT IN (SELECT id FROM segments WHERE file IS NULL) LIMIT 1";
    connection.prepare_cached(select)?.query_row([], |row| row.get(0)).optional()
}

/// Every segment, oldest first.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<Segment>> {
    let select = "SELECT id, first_unix_ns, last_unix_ns, rows, bytes, file FROM segments ORDER BY first_unix_ns, id";
    let mut statement = connection.prepare_cached(select)?;
    let segments = statement.query_map([], |row| {
        Ok(Segment {
            id: row.get(0)?,
            first_unix_ns: row.get(1)?,
            last_unix_ns: row.get(2)?,
            rows: row.get(3)?,
            bytes: row.get(4)?,
            file: row.get(5)?,
        })
    })?;
    segments.collect()
}
