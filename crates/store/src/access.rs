//! Who may read what: an answer for each table, which SQLite's authorizer gives while a statement is prepared.

use crate::error::Error;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// What the one who asks may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Clearance {
    /// Everything: root, the daemon's own user, one whom it knows.
    Everything,
    /// What anyone may, and sums of all sockets: a question of ours whose answer names none of them.
    Sums,
    /// What anyone may who reaches the machine's own pages.
    Public,
}

/// Who may read a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    /// Anyone: figures, as the pages `/ledger` and `/flows` show them.
    Anyone,
    /// Anyone while every stored socket is of the network namespace that Weir ran in, whose sockets each of its processes can
    /// list; else those with a clearance for everything, and sums.
    OwnSockets,
    /// Those with a clearance for everything: what was received, payloads included, and events.
    Known,
}

/// The answer for each table. A table that is not here is for those with a clearance for everything.
pub const TABLES: &[(&str, Audience)] = &[
    ("sockets", Audience::OwnSockets),
    ("sockets_minute", Audience::OwnSockets),
    ("sockets_hour", Audience::OwnSockets),
    ("closes", Audience::OwnSockets),
    ("datagrams", Audience::Known),
    ("events", Audience::Known),
    ("polls", Audience::Anyone),
    ("arrivals", Audience::Anyone),
    ("flows", Audience::Anyone),
    ("counters", Audience::Anyone),
    ("flow_totals", Audience::Anyone),
    ("ledger", Audience::Anyone),
    ("ledger_seen", Audience::Anyone),
    ("segments", Audience::Anyone),
    ("foreign_rows", Audience::Anyone),
    ("sqlite_schema", Audience::Anyone),
    ("sqlite_master", Audience::Anyone),
    // Functions that make rows of their arguments.
    ("json_each", Audience::Anyone),
    ("json_tree", Audience::Anyone),
];

/// Segments of raw rows, each with its number.
const SEGMENT: &str = "hot_";

/// Who may read the table of this name.
pub fn audience(table: &str) -> Audience {
    let found = TABLES.iter().find(|(name, _)| name.eq_ignore_ascii_case(table));
    match found {
        Some((_, audience)) => *audience,
        None if table.to_ascii_lowercase().starts_with(SEGMENT) => Audience::OwnSockets,
        None => Audience::Known,
    }
}

/// What the statement that is being prepared or run may read. Shared with SQLite's authorizer and the table `sockets`.
pub(crate) struct Access {
    clearance: AtomicU8,
    has_foreign_rows: AtomicBool,
    /// Whose table the statement was refused.
    refused: AtomicU8,
}

const NONE: u8 = 0;
const SOCKETS: u8 = 1;
const CONTENTS: u8 = 2;

impl Access {
    pub(crate) fn new() -> Access {
        Access {
            clearance: AtomicU8::new(Clearance::Everything as u8),
            has_foreign_rows: AtomicBool::new(true),
            refused: AtomicU8::new(NONE),
        }
    }

    /// Begins a statement.
    pub(crate) fn begin(&self, clearance: Clearance, has_foreign_rows: bool) {
        self.clearance.store(clearance as u8, Ordering::Relaxed);
        self.has_foreign_rows.store(has_foreign_rows, Ordering::Relaxed);
        self.refused.store(NONE, Ordering::Relaxed);
    }

    /// Ends it: what follows are the reader's own statements.
    pub(crate) fn end(&self) {
        self.clearance.store(Clearance::Everything as u8, Ordering::Relaxed);
    }

    /// Whether the statement may read this table. Notes a refusal.
    pub(crate) fn allows(&self, table: &str) -> bool {
        let clearance = self.clearance.load(Ordering::Relaxed);
        if clearance == Clearance::Everything as u8 {
            return true;
        }
        let refused = match audience(table) {
            Audience::Anyone => return true,
            Audience::OwnSockets => {
                if clearance == Clearance::Sums as u8
                    || !self.has_foreign_rows.load(Ordering::Relaxed)
                {
                    return true;
                }
                SOCKETS
            }
            Audience::Known => CONTENTS,
        };
        self.refused.store(refused, Ordering::Relaxed);
        false
    }

    /// Why the statement was refused, if it was because of who asks.
    pub(crate) fn refusal(&self) -> Option<Error> {
        let audience = match self.refused.load(Ordering::Relaxed) {
            NONE => return None,
            SOCKETS => Audience::OwnSockets,
            _ => Audience::Known,
        };
        Some(Error::NotForAnyone(audience))
    }

    /// Allows selecting, calling functions, recursion, and reading what the asker may read; refuses everything else.
    pub(crate) fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        let is_own = self.clearance.load(Ordering::Relaxed) == Clearance::Everything as u8;
        match context.action {
            AuthAction::Select | AuthAction::Function { .. } | AuthAction::Recursive => {
                Authorization::Allow
            }
            // SQLite asks so for each thing in FROM of which no column is read, common table expressions among them; what a
            // statement opens is checked when it is prepared.
            AuthAction::Read { table_name, column_name: "" }
                if !is_own && audience(table_name) == Audience::Known && !is_named(table_name) =>
            {
                Authorization::Allow
            }
            AuthAction::Read { table_name, .. } if self.allows(table_name) => Authorization::Allow,
            // The snapshot that a statement is answered from.
            AuthAction::Transaction { .. } if is_own => Authorization::Allow,
            _ => Authorization::Deny,
        }
    }

    /// Checks the program that SQLite made of a statement: each table and index that it opens is one that it may read.
    ///
    /// SQLite does not ask the authorizer about the columns that `USING` and `NATURAL` compare (resolve.c,
    /// `sqlite3CreateColumnExpr`), and so does not about a table of which nothing else is read. The answer would still say
    /// whether a guess at its content is right.
    pub(crate) fn check_program(
        &self,
        connection: &Connection,
        statement: &str,
    ) -> rusqlite::Result<bool> {
        let mut roots =
            connection.prepare_cached("SELECT rootpage, tbl_name FROM sqlite_schema")?;
        let roots: Vec<(i64, String)> = roots
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let readable: HashSet<i64> = roots
            .iter()
            .filter(|(_, table)| self.allows(table))
            .map(|(root, _)| *root)
            .chain([SCHEMA_ROOT])
            .collect();
        // Tables that are merely there are no refusal.
        self.refused.store(NONE, Ordering::Relaxed);

        let mut program = connection.prepare(&format!("EXPLAIN {statement}"))?;
        let mut steps = program.query([])?;
        while let Some(step) = steps.next()? {
            let opcode: String = step.get("opcode")?;
            if !OPENS.contains(&opcode.as_str()) {
                continue;
            }
            let (root, database): (i64, i64) = (step.get("p2")?, step.get("p3")?);
            if database == MAIN && !readable.contains(&root) {
                let table = roots.iter().find(|(number, _)| *number == root);
                self.allows(table.map_or("", |(_, table)| table));
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Instructions of SQLite's machine that open a table or an index of a database by its root page.
const OPENS: [&str; 3] = ["OpenRead", "ReopenIdx", "OpenWrite"];
/// The root page of `sqlite_schema`.
const SCHEMA_ROOT: i64 = 1;
/// The number of the database `main` in a program.
const MAIN: i64 = 0;

fn is_named(table: &str) -> bool {
    TABLES.iter().any(|(name, _)| name.eq_ignore_ascii_case(table))
}
