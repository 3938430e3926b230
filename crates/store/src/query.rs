//! Read-only SQL on a store.

use crate::access::{Access, Clearance};
use crate::error::{Error, sqlite};
use crate::foreign;
use crate::functions;
use crate::scan::Source;
use crate::schema;
use crate::table;
use record::{
    CounterRecord, DatagramRecord, Field, FlowRecord, FlowTotals, PollTotals, SocketRecord,
};
use rusqlite::hooks::AuthContext;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, Statement};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A value in an answer.
pub use rusqlite::types::Value;
use rusqlite::types::ValueRef;

/// Instructions of SQLite's virtual machine between two checks of the deadline.
const STEPS: i32 = 1_000;

/// Most bytes of a value, and of a row.
const LENGTH_MAX: i32 = 256 << 10;

/// The limits set on SQLite's connection: (limit, value).
const LIMITS: &[(Limit, i32)] = &[
    (Limit::SQLITE_LIMIT_LENGTH, LENGTH_MAX),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 64 << 10),
    (Limit::SQLITE_LIMIT_COLUMN, 128),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 32),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 100),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Where SQLite keeps what is too large for its cache (`PRAGMA temp_store`).
const TEMPORARY_FILES: &str = "file";
const MEMORY: &str = "memory";

/// The limits of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub time: Duration,
    /// Most rows of an answer; it says whether there were more.
    pub rows_max: usize,
    /// Memory that its rows may take; it says whether there were more. What SQLite takes to find them is limited by the process.
    pub bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { time: Duration::from_secs(10), rows_max: 10_000, bytes_max: 64 << 20 }
    }
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// As in the field reference; empty if there is none, or if it is not known.
    pub unit: String,
}

impl Column {
    /// A column with this name, and the unit that the name has in the field reference or ends with.
    pub fn named(name: &str) -> Column {
        Column { name: name.to_owned(), unit: unit_of(name).to_owned() }
    }
}

/// The answer to a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Value>>,
    pub elapsed: Duration,
    /// Whether there were more rows than the limit.
    pub is_truncated: bool,
}

/// Answers statements. Each statement sees a snapshot from its start.
pub struct Reader {
    connection: Connection,
    source: Arc<Source>,
    access: Arc<Access>,
    /// When the running statement must end, in nanoseconds of the monotonic clock.
    deadline_ns: Arc<AtomicU64>,
}

impl Reader {
    /// Opens a store for reading, even while a daemon writes to it.
    ///
    /// # Errors
    /// There is no store, or a newer Weir wrote it.
    pub fn open(folder: &Path) -> Result<Reader, Error> {
        Reader::open_with(folder, TEMPORARY_FILES)
    }

    /// Opens a store as [`open`](Self::open) does. Statements sort and group in memory alone, whatever that takes, and write no file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_without_files(folder: &Path) -> Result<Reader, Error> {
        Reader::open_with(folder, MEMORY)
    }

    fn open_with(folder: &Path, temp_store: &str) -> Result<Reader, Error> {
        let mut connection = schema::open_reader(folder)?;
        let deadline_ns = Arc::new(AtomicU64::new(u64::MAX));
        let access = Arc::new(Access::new());
        let source = Arc::new(Source::open(folder, Arc::clone(&deadline_ns), Arc::clone(&access))?);
        connection
            .pragma_update(None, "temp_store", temp_store)
            .map_err(sqlite("cannot prepare the store for questions"))?;
        confine(&mut connection, &source, &deadline_ns, &access)
            .map_err(sqlite("cannot prepare the store for questions"))?;
        Ok(Reader { connection, source, access, deadline_ns })
    }

    /// Runs one statement, which may read everything.
    ///
    /// # Errors
    /// The statement is wrong, does more than read, or takes too long.
    pub fn ask(&self, statement: &str, limits: Limits) -> Result<Answer, Error> {
        self.ask_with(Clearance::Everything, statement, limits)
    }

    /// Runs one statement, which may read what the clearance says.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), or the statement reads what it may not ([`Error::NotForAnyone`]).
    pub fn ask_with(
        &self,
        clearance: Clearance,
        statement: &str,
        limits: Limits,
    ) -> Result<Answer, Error> {
        let began = Instant::now();
        let limit_ns = u64::try_from(limits.time.as_nanos()).unwrap_or(u64::MAX);
        self.deadline_ns
            .store(sys::clock::monotonic_ns().saturating_add(limit_ns), Ordering::Relaxed);

        self.source.begin()?;
        let answered = self.run_cleared(clearance, statement, limits);
        self.source.end();
        self.deadline_ns.store(u64::MAX, Ordering::Relaxed);
        let (columns, rows, is_truncated) = answered?;
        Ok(Answer { columns, rows, elapsed: began.elapsed(), is_truncated })
    }

    /// SQLite's plan for a statement, one line per step.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn explain(&self, statement: &str) -> Result<Vec<String>, Error> {
        let limits = Limits::default();
        self.source.begin()?;
        let lines = || {
            let mut statement =
                self.connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}"))?;
            let lines = statement.query_map([], |row| row.get::<_, String>(3))?;
            lines.collect::<rusqlite::Result<Vec<_>>>()
        };
        let lines = lines();
        self.source.end();
        lines.map_err(|error| told(error, limits))
    }

    /// Runs a statement in one snapshot with the look at whose rows the store has: none can be added in between.
    fn run_cleared(
        &self,
        clearance: Clearance,
        statement: &str,
        limits: Limits,
    ) -> Result<Found, Error> {
        self.connection.execute_batch("BEGIN").map_err(|error| told(error, limits))?;
        let answered = foreign::last(&self.connection).and_then(|foreign| {
            self.access.begin(clearance, foreign.is_some());
            self.run(clearance, statement, limits)
        });
        let refusal = self.access.refusal();
        self.access.end();
        // A failure loses nothing, since the transaction only read.
        let _ = self.connection.execute_batch("COMMIT");
        answered.map_err(|error| refusal.unwrap_or_else(|| told(error, limits)))
    }

    fn run(
        &self,
        clearance: Clearance,
        statement: &str,
        limits: Limits,
    ) -> rusqlite::Result<Found> {
        let text = statement;
        let mut statement = self.connection.prepare(statement)?;
        let is_checked = clearance == Clearance::Everything || statement.is_explain() != 0;
        if !is_checked && !self.access.check_program(&self.connection, text)? {
            return Err(rusqlite::Error::InvalidQuery);
        }
        let columns = columns_of(&statement);
        let (mut all, mut bytes) = (Vec::new(), 0);
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if all.len() == limits.rows_max {
                return Ok((columns, all, true));
            }
            // Before anything of it is copied.
            for at in 0..columns.len() {
                bytes += bytes_of(row.get_ref(at)?);
            }
            if bytes > limits.bytes_max {
                return Ok((columns, all, true));
            }
            let values = (0..columns.len()).map(|at| row.get::<_, Value>(at));
            all.push(values.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        Ok((columns, all, false))
    }
}

/// The columns and rows of an answer, and whether there were more.
type Found = (Vec<Column>, Vec<Vec<Value>>, bool);

/// Restricts a connection to reading this store.
fn confine(
    connection: &mut Connection,
    source: &Arc<Source>,
    deadline_ns: &Arc<AtomicU64>,
    access: &Arc<Access>,
) -> rusqlite::Result<()> {
    functions::register(connection)?;
    table::register(connection, source)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    for (limit, value) in LIMITS {
        connection.set_limit(*limit, *value)?;
    }

    let deadline_ns = Arc::clone(deadline_ns);
    let is_late = move || sys::clock::monotonic_ns() > deadline_ns.load(Ordering::Relaxed);
    connection.progress_handler(STEPS, Some(is_late))?;
    // Last, because the connection can do nothing else afterwards.
    authorize(connection, access)
}

fn authorize(connection: &mut Connection, access: &Arc<Access>) -> rusqlite::Result<()> {
    let access = Arc::clone(access);
    connection.authorizer(Some(move |context: AuthContext<'_>| access.authorize(&context)))
}

fn told(error: rusqlite::Error, limits: Limits) -> Error {
    let text = match &error {
        rusqlite::Error::SqliteFailure(failure, text) => {
            let text = text.clone().unwrap_or_else(|| failure.to_string());
            match failure.code {
                ErrorCode::OperationInterrupted => {
                    return Error::Timeout { seconds: limits.time.as_secs_f64() };
                }
                ErrorCode::OutOfMemory => return Error::OutOfMemory,
                ErrorCode::TooBig => format!(
                    "a value would be longer than {} KiB ({text}). Fix: ask for a part of it, as with substr",
                    LENGTH_MAX >> 10
                ),
                ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly => {
                    let why = "only SELECT can be run here: the store can be read and not changed";
                    return Error::Refused(format!("{why} ({text})"));
                }
                _ => text,
            }
        }
        rusqlite::Error::MultipleStatement => {
            "write one statement, without another after it".to_owned()
        }
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    };
    Error::Statement(text)
}

fn columns_of(statement: &Statement<'_>) -> Vec<Column> {
    statement.column_names().map(Column::named).collect()
}

/// The unit of the field with this name, or otherwise the unit that the name ends with.
fn unit_of(name: &str) -> &'static str {
    let tables: [&[Field]; 6] = [
        SocketRecord::FIELDS,
        PollTotals::FIELDS,
        DatagramRecord::FIELDS,
        FlowRecord::FIELDS,
        CounterRecord::FIELDS,
        FlowTotals::FIELDS,
    ];
    let field = tables.iter().find_map(|table| table.iter().find(|field| field.name == name));
    let endings =
        [("_unix_ns", "ns"), ("_ns", "ns"), ("_us", "µs"), ("_ms", "ms"), ("_bytes", "bytes")];
    let by_ending = || endings.iter().find(|(ending, _)| name.ends_with(ending));
    match field {
        Some(field) => field.unit,
        None => by_ending().map_or("", |(_, unit)| unit),
    }
}

fn bytes_of(value: ValueRef<'_>) -> usize {
    size_of::<Value>()
        + match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::TempDir;

    #[test]
    fn an_answer_has_no_more_rows_than_fit() {
        let dir = TempDir::new();
        schema::lock(dir.path()).unwrap();
        schema::open_writer(dir.path()).unwrap();
        let reader = Reader::open(dir.path()).unwrap();
        let rows = |bytes_max: usize| {
            let statement = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT 10)
                 SELECT n, zeroblob(1000) FROM numbers";
            let answer = reader.ask(statement, Limits { bytes_max, ..Limits::default() }).unwrap();
            (answer.rows.len(), answer.is_truncated)
        };
        let row_bytes = 2 * size_of::<Value>() + 1_000;
        assert_eq!(rows(10 * row_bytes), (10, false));
        assert_eq!(rows(10 * row_bytes - 1), (9, true));
        assert_eq!(rows(row_bytes - 1), (0, true));
    }
}
