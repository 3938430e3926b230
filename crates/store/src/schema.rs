//! The database: how it is opened, its version, and its tables.

use crate::arrivals;
use crate::error::{Error, file, sqlite};
use crate::foreign;
use crate::tables;
use crate::writer::Commits;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the tables. A store with another version is left alone, unless this Weir can migrate it.
pub const SCHEMA_VERSION: i64 = 1;

/// The application id that tells a store from other databases ("weir").
const APPLICATION_ID: i64 = 0x7765_6972;

/// How long a writer waits for a reader's checkpoint, or a reader for recovery after a crash.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Pages of the write-ahead log at which a batch copies them itself: 64 MiB, several polls of 10,000 sockets. Usually a thread of its
/// own has done that long before.
const LOG_PAGES_MAX: i64 = 8_192;

/// The owner may write and the group read: rows name processes, addresses and users.
const FOLDER_MODE: u32 = 0o750;

const FILE_MODE: u32 = 0o640;

/// Where the database lies.
pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("history.sqlite")
}

/// The folder of sealed segments.
pub(crate) fn raw(folder: &Path) -> PathBuf {
    folder.join("raw")
}

/// Creates the folder if it is missing, and keeps other processes from writing to the store while the returned file is open.
pub(crate) fn lock(folder: &Path) -> Result<File, Error> {
    let raw = raw(folder);
    let is_new = !raw.exists();
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&raw).map_err(file(&raw))?;
    if is_new {
        // So that it is there after a crash of the host. A folder above may not be ours to read.
        for made in raw.ancestors().skip(1).take(2) {
            let _ = File::open(made).and_then(|made| made.sync_all());
        }
    }
    let path = folder.join("lock");
    let opened = File::options().create(true).append(true).mode(FILE_MODE).open(&path);
    let opened = opened.map_err(file(&path))?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(folder.to_owned())),
        Err(TryLockError::Error(source)) => Err(Error::File { path, source }),
    }
}

/// Opens the store for its only writer.
pub(crate) fn open_writer(folder: &Path) -> Result<Connection, Error> {
    let path = database(folder);
    // SQLite gives its log the permissions of the database.
    let mut options = File::options();
    options.create(true).append(true).mode(FILE_MODE).open(&path).map_err(file(&path))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection =
        Connection::open_with_flags(&path, flags).map_err(sqlite("cannot open the store"))?;
    connection.busy_timeout(BUSY_WAIT).map_err(sqlite("cannot open the store"))?;
    // Closing a store that is refused must not move its log into it.
    let keeps_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(keeps_log, true).map_err(sqlite("cannot open the store"))?;
    if !is_empty(&connection).map_err(sqlite("cannot read the store's version"))? {
        check_version(&connection, &path)?;
    }

    connection.set_db_config(keeps_log, false).map_err(sqlite("cannot open the store"))?;
    prepare(&mut connection).map_err(sqlite("cannot prepare the store"))?;
    Ok(connection)
}

/// Opens the database of an open [writer](open_writer) once more, for checkpoints.
pub(crate) fn open_beside_writer(folder: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(database(folder), flags).map_err(sqlite("cannot open the store"))
}

/// Whether there is nothing in it, as after a first start that was interrupted.
fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let id: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let things: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(id == 0 && things == 0)
}

/// Opens it to read, and makes nothing.
pub(crate) fn open_reader(folder: &Path) -> Result<Connection, Error> {
    let path = database(folder);
    if !path.is_file() {
        return Err(Error::NoStore(folder.to_owned()));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let context = "cannot open the store";
    let connection = Connection::open_with_flags(&path, flags).map_err(sqlite(context))?;
    connection.busy_timeout(BUSY_WAIT).map_err(sqlite(context))?;
    match check_version(&connection, &path) {
        Ok(()) => Ok(connection),
        // Readers of a write-ahead log share an index next to it, which this process may not create. Without a log, no writer is
        // active.
        Err(Error::Sqlite { source, .. }) if needs_index(&source, folder) => {
            let connection =
                Connection::open_with_flags(unchanging(&path), flags | OpenFlags::SQLITE_OPEN_URI);
            let connection = connection.map_err(sqlite(context))?;
            check_version(&connection, &path)?;
            Ok(connection)
        }
        Err(error) => Err(error),
    }
}

fn needs_index(error: &rusqlite::Error, folder: &Path) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::CannotOpen)
        && !folder.join("history.sqlite-wal").exists()
}

/// The URI of a file that does not change.
fn unchanging(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{path}?immutable=1")
}

fn check_version(connection: &Connection, path: &Path) -> Result<(), Error> {
    let number = |pragma| {
        connection
            .pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
            .map_err(sqlite("cannot read the store's version"))
    };
    if number("application_id")? != APPLICATION_ID {
        return Err(Error::Foreign(path.to_owned()));
    }
    match number("user_version")? {
        found if found > SCHEMA_VERSION => {
            Err(Error::Newer { path: path.to_owned(), found, known: SCHEMA_VERSION })
        }
        _ => Ok(()),
    }
}

fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    // Both are stored in the file, and must be set before its first table exists.
    connection.pragma_update(None, "page_size", 8_192)?;
    connection.pragma_update(None, "auto_vacuum", "incremental")?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    set_commits(connection, Commits::Written)?;
    // In KiB. A batch of 10,000 sockets changes 2 MiB of sums again and again, and every other page once.
    connection.pragma_update(None, "cache_size", -8_192)?;
    connection.pragma_update(None, "journal_size_limit", 32 << 20)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES_MAX)?;
    connection.set_prepared_statement_cache_capacity(64);
    crate::functions::register(connection)?;

    let transaction = connection.transaction()?;
    transaction.execute_batch(FIXED)?;
    transaction.execute_batch(foreign::DEFINITION)?;
    transaction.execute_batch(arrivals::DEFINITION)?;
    for statement in tables::definitions() {
        transaction.execute_batch(&statement)?;
    }
    tables::add_missing_columns(&transaction)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

/// Sets what the next commits mean. Neither costs consistency: a checkpoint syncs the log before it copies from it.
pub(crate) fn set_commits(connection: &Connection, commits: Commits) -> rusqlite::Result<()> {
    let synchronous = match commits {
        Commits::Written => "normal",
        // Syncs the log at each commit, and with the first one its name and the database's, which is in the same folder.
        Commits::Synced => "full",
    };
    connection.pragma_update(None, "synchronous", synchronous)
}

/// The tables whose columns do not come from records.
const FIXED: &str = "
CREATE TABLE IF NOT EXISTS segments (
    id INTEGER PRIMARY KEY,
    first_unix_ns INTEGER NOT NULL,
    last_unix_ns INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    file TEXT
);
CREATE TABLE IF NOT EXISTS ledger (
    time_unix_ns INTEGER NOT NULL,
    hop TEXT NOT NULL,
    origin TEXT NOT NULL,
    target TEXT NOT NULL,
    way TEXT NOT NULL,
    reason TEXT NOT NULL,
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (time_unix_ns, hop, origin, target, way, reason)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ledger_seen (
    run_id TEXT NOT NULL,
    hop TEXT NOT NULL,
    origin TEXT NOT NULL,
    target TEXT NOT NULL,
    way TEXT NOT NULL,
    reason TEXT NOT NULL,
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (run_id, hop, origin, target, way, reason)
) WITHOUT ROWID;
";
