//! The SQL table `sockets`: all raw rows, as a virtual table of SQLite.
//!
//! SQLite reports the columns that a statement uses and its bounds. The bounds rule out segments, row groups and rows, and
//! SQLite then checks every remaining row.

#![expect(
    unsafe_code,
    reason = "rusqlite's traits for virtual tables ask for a promise about the layout of two structs"
)]

use crate::error::Error;
use crate::scan::{Batch, Bounds, Scan, Source};
use crate::sockets::{COOKIE_COLUMN, TIME_COLUMN, socket_columns};
use crate::tables::sql_type;
use rusqlite::ffi::{sqlite3_vtab, sqlite3_vtab_cursor};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig,
    VTabConnection, VTabCursor, VTabKind,
};
use rusqlite::{Connection, Result, ToSql};
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;

/// The table's name.
const NAME: &str = "sockets";

/// Registers the table on a connection.
pub(crate) fn register(connection: &Connection, source: &Arc<Source>) -> Result<()> {
    const SOCKETS: &Module<'static, SocketsTable> = &Module::eponymous_only_module();
    connection.create_module(c"sockets", SOCKETS, Some(Arc::clone(source)))
}

/// The table. SQLite owns its first field.
#[repr(C)]
struct SocketsTable {
    base: sqlite3_vtab,
    source: Arc<Source>,
}

// SAFETY: the struct is `repr(C)`, and its first field is `sqlite3_vtab`.
unsafe impl<'vtab> VTab<'vtab> for SocketsTable {
    type Aux = Arc<Source>;
    type Cursor = SocketsCursor;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Arc<Source>>,
        _module_name: &[u8],
        _database_name: &[u8],
        _table_name: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, SocketsTable)> {
        let source = aux.ok_or_else(|| module_error("it has no source"))?;
        // It can only read, so views and triggers may use it.
        db.config(VTabConfig::Innocuous)?;
        let columns: Vec<String> = socket_columns()
            .iter()
            .map(|field| format!("{} {}", field.name, sql_type(field.kind)))
            .collect();
        let definition = format!("CREATE TABLE sockets ({})", columns.join(", "));
        let definition = CString::new(definition).map_err(|_| module_error("a column's name"))?;
        let table = SocketsTable { base: sqlite3_vtab::default(), source: Arc::clone(source) };
        Ok((Cow::Owned(definition), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut plan = format!("{:x}", info.col_used());
        let mut given = 0;
        let (mut has_cookie, mut has_time) = (false, false);
        for (constraint, mut usage) in info.constraints_and_usages() {
            let Some(bound) = BoundKind::of(constraint.column(), constraint.operator()) else {
                continue;
            };
            if !constraint.is_usable() {
                continue;
            }
            given += 1;
            // SQLite checks each row again: a bound may be a text or a fraction.
            usage.set_argv_index(given);
            plan.push(bound.letter());
            match bound {
                BoundKind::Cookie => has_cookie = true,
                _ => has_time = true,
            }
        }

        info.set_idx_str(&plan);
        let (cost, rows) = match (has_cookie, has_time) {
            (true, _) => (1e4, 100),
            (false, true) => (1e6, 100_000),
            (false, false) => (1e8, 10_000_000),
        };
        info.set_estimated_cost(cost);
        info.set_estimated_rows(rows);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<SocketsCursor> {
        Ok(SocketsCursor {
            base: sqlite3_vtab_cursor::default(),
            source: Arc::clone(&self.source),
            scan: None,
            batch: Batch::default(),
            at: 0,
            is_at_end: true,
        })
    }
}

impl CreateVTab<'_> for SocketsTable {
    const KIND: VTabKind = VTabKind::EponymousOnly;
}

/// A bound of a statement that can rule out rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BoundKind {
    Cookie,
    TimeIs,
    TimeFrom,
    TimeAfter,
    TimeTo,
    TimeBefore,
}

impl BoundKind {
    const ALL: [BoundKind; 6] = [
        BoundKind::Cookie,
        BoundKind::TimeIs,
        BoundKind::TimeFrom,
        BoundKind::TimeAfter,
        BoundKind::TimeTo,
        BoundKind::TimeBefore,
    ];

    fn of(column: c_int, operator: IndexConstraintOp) -> Option<BoundKind> {
        use IndexConstraintOp as Op;
        match (usize::try_from(column).ok()?, operator) {
            (COOKIE_COLUMN, Op::SQLITE_INDEX_CONSTRAINT_EQ) => Some(BoundKind::Cookie),
            (TIME_COLUMN, Op::SQLITE_INDEX_CONSTRAINT_EQ) => Some(BoundKind::TimeIs),
            (TIME_COLUMN, Op::SQLITE_INDEX_CONSTRAINT_GE) => Some(BoundKind::TimeFrom),
            (TIME_COLUMN, Op::SQLITE_INDEX_CONSTRAINT_GT) => Some(BoundKind::TimeAfter),
            (TIME_COLUMN, Op::SQLITE_INDEX_CONSTRAINT_LE) => Some(BoundKind::TimeTo),
            (TIME_COLUMN, Op::SQLITE_INDEX_CONSTRAINT_LT) => Some(BoundKind::TimeBefore),
            _ => None,
        }
    }

    /// Its letter in a plan; no letter is a hexadecimal digit.
    fn letter(self) -> char {
        match self {
            BoundKind::Cookie => 'k',
            BoundKind::TimeIs => '=',
            BoundKind::TimeFrom => 'g',
            BoundKind::TimeAfter => '>',
            BoundKind::TimeTo => 'l',
            BoundKind::TimeBefore => '<',
        }
    }

    fn narrow(self, bounds: &mut Bounds, value: i64) {
        match self {
            BoundKind::Cookie => bounds.cookie = Some(value),
            BoundKind::TimeIs => {
                bounds.first_unix_ns = bounds.first_unix_ns.max(value);
                bounds.last_unix_ns = bounds.last_unix_ns.min(value);
            }
            BoundKind::TimeFrom => bounds.first_unix_ns = bounds.first_unix_ns.max(value),
            BoundKind::TimeAfter => {
                bounds.first_unix_ns = bounds.first_unix_ns.max(value.saturating_add(1));
            }
            BoundKind::TimeTo => bounds.last_unix_ns = bounds.last_unix_ns.min(value),
            BoundKind::TimeBefore => {
                bounds.last_unix_ns = bounds.last_unix_ns.min(value.saturating_sub(1));
            }
        }
    }
}

/// A scan of the table. SQLite owns its first field.
#[repr(C)]
struct SocketsCursor {
    base: sqlite3_vtab_cursor,
    source: Arc<Source>,
    scan: Option<Scan>,
    batch: Batch,
    /// Position among the chosen rows of the batch.
    at: usize,
    is_at_end: bool,
}

impl SocketsCursor {
    fn read_batch(&mut self) -> Result<()> {
        self.at = 0;
        let is_there = match &mut self.scan {
            Some(scan) => scan.next(&mut self.batch).map_err(from_scan)?,
            None => false,
        };
        self.is_at_end = !is_there;
        Ok(())
    }
}

// SAFETY: the struct is `repr(C)`, and its first field is `sqlite3_vtab_cursor`.
unsafe impl VTabCursor for SocketsCursor {
    fn filter(&mut self, _idx_num: c_int, idx_str: Option<&str>, args: &Filters<'_>) -> Result<()> {
        // Not every way to read a table is asked of the authorizer ([`crate::access::Access::check_program`]).
        if !self.source.access.allows(NAME) {
            return Err(module_error("it is not for anyone"));
        }
        let plan = idx_str.unwrap_or_default();
        let letters = plan.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(plan.len());
        let (used, letters) = plan.split_at(letters);
        let used = u64::from_str_radix(used, 16).unwrap_or(u64::MAX);
        let used = (0..socket_columns().len()).filter(|column| used >> column.min(&63) & 1 == 1);

        let mut bounds = Bounds::ALL;
        for (letter, value) in letters.chars().zip(args.iter()) {
            let kind = BoundKind::ALL.into_iter().find(|kind| kind.letter() == letter);
            if let (Some(kind), ValueRef::Integer(value)) = (kind, value) {
                kind.narrow(&mut bounds, value);
            }
        }
        self.scan = Some(Scan::new(&self.source, bounds, used.collect()));
        self.read_batch()
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        match self.at < self.batch.chosen.len() {
            true => Ok(()),
            false => self.read_batch(),
        }
    }

    fn eof(&self) -> bool {
        self.is_at_end
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let values = usize::try_from(column).ok().and_then(|at| self.batch.columns.get(at));
        let row = self.batch.chosen.get(self.at).map(|(row, _)| *row as usize);
        let value = values.zip(row).map_or(ValueRef::Null, |(values, row)| values.value(row));
        context.set_result(Given(value))
    }

    fn rowid(&self) -> Result<i64> {
        // With OR, SQLite scans the table more than once, and recognizes rows it has seen by this number.
        Ok(self.batch.chosen.get(self.at).map_or(0, |(_, number)| *number))
    }
}

/// A value bound without a copy.
struct Given<'v>(ValueRef<'v>);

impl ToSql for Given<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0))
    }
}

fn module_error(text: &str) -> rusqlite::Error {
    rusqlite::Error::ModuleError(text.to_owned())
}

fn from_scan(error: Error) -> rusqlite::Error {
    // As SQLite's own look at the clock ends a statement.
    if let Error::Sqlite { source: source @ rusqlite::Error::SqliteFailure(failure, _), .. } =
        &error
        && failure.code == rusqlite::ErrorCode::OperationInterrupted
    {
        return rusqlite::Error::SqliteFailure(*failure, Some(source.to_string()));
    }
    rusqlite::Error::ModuleError(match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })
}
