//! Sealing: the rows of a hot segment become a Parquet file, ordered by connection and time.

use crate::catalog::Segment;
use crate::error::{Error, file, sqlite};
use crate::schema;
use columns::{Table, TableWriter};
use record::FieldSet;
use rusqlite::Connection;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

/// The owner may write and the group read: rows name processes, addresses and users.
const FILE_MODE: u32 = 0o640;

/// A file with the rows of a segment.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) id: i64,
    pub(crate) file: String,
    pub(crate) bytes: u64,
}

/// A sealing in progress.
pub(crate) struct Sealing {
    thread: JoinHandle<Result<Sealed, Error>>,
}

impl Sealing {
    /// Starts on a thread of low priority.
    pub(crate) fn start(folder: &Path, segment: &Segment) -> Result<Sealing, Error> {
        let (folder, segment) = (folder.to_owned(), segment.clone());
        let work = move || {
            sys::process::lower_thread_priority();
            seal(&folder, &segment)
        };
        let thread = thread::Builder::new().name("store-seal".to_owned()).spawn(work);
        Ok(Sealing { thread: thread.map_err(file("the thread that seals"))? })
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end, and returns the result.
    pub(crate) fn finish(self) -> Result<Sealed, Error> {
        // The panic was printed to standard error; the segment stays hot.
        let panicked = |_| Err(Error::Refused("the thread that seals panicked".to_owned()));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// Writes the file of a segment. It is not part of the store until the database names it.
pub(crate) fn seal(folder: &Path, segment: &Segment) -> Result<Sealed, Error> {
    let name = format!("{}-{:08}.parquet", segment.first_unix_ns, segment.id);
    let raw = schema::raw(folder);
    let path = raw.join(&name);
    let bytes = encode(folder, segment, &path)?;

    let beside = raw.join(format!(".{name}.tmp"));
    if let Err(error) = write_synced(&beside, &bytes) {
        // The file takes up space, which may be what ran out.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    fs::rename(&beside, &path).map_err(file(&path))?;
    File::open(&raw).and_then(|raw| raw.sync_all()).map_err(file(&raw))?;
    Ok(Sealed { id: segment.id, file: name, bytes: bytes.len() as u64 })
}

fn encode(folder: &Path, segment: &Segment, path: &Path) -> Result<Vec<u8>, Error> {
    let parquet = |source| Error::Parquet { path: PathBuf::from(path), source };
    let connection = schema::open_reader(folder)?;
    // In one transaction, or each row would take and release a lock on the file.
    connection.execute_batch("BEGIN").map_err(sqlite("cannot read a segment"))?;
    let mut writer = TableWriter::new(Table::sockets(&FieldSet::ALL)).map_err(parquet)?;

    let rows = in_order(&connection, segment).map_err(sqlite("cannot order a segment"))?;
    let select = format!("SELECT message FROM {} WHERE rowid = ?1", Segment::table(segment.id));
    let mut statement = connection.prepare(&select).map_err(sqlite("cannot read a segment"))?;
    for (_, _, rowid) in rows {
        let pushed = statement.query_row([rowid], |row| {
            let message = row.get_ref(0)?.as_blob()?;
            // Only readable messages were inserted.
            Ok(writer.push(message).is_ok())
        });
        if pushed.map_err(sqlite("cannot read a segment"))? {
            writer.end_full_group().map_err(parquet)?;
        }
    }
    writer.finish().map_err(parquet)
}

/// Cookie, time and row number of each row, in that order.
fn in_order(connection: &Connection, segment: &Segment) -> rusqlite::Result<Vec<(i64, i64, i64)>> {
    let select = format!("SELECT cookie, time_unix_ns, rowid FROM {}", Segment::table(segment.id));
    let mut statement = connection.prepare(&select)?;
    let mut found = statement.query([])?;
    let mut rows = Vec::with_capacity(usize::try_from(segment.rows).unwrap_or_default());
    while let Some(row) = found.next()? {
        rows.push((row.get(0)?, row.get(1)?, row.get(2)?));
    }
    rows.sort_unstable();
    Ok(rows)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(file(path)(error)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(FILE_MODE).open(path);
    let mut opened = opened.map_err(file(path))?;
    opened.write_all(bytes).and_then(|()| opened.sync_all()).map_err(file(path))
}

/// Removes files that the database does not name: from a sealing that a crash interrupted, and of dropped segments.
pub(crate) fn remove_strays(folder: &Path, segments: &[Segment]) -> Result<u64, Error> {
    let raw = schema::raw(folder);
    let mut removed = 0;
    for entry in fs::read_dir(&raw).map_err(file(&raw))? {
        let name = entry.map_err(file(&raw))?.file_name();
        let Some(name) = name.to_str().filter(|name| is_own(name)) else { continue };
        if segments.iter().all(|segment| segment.file.as_deref() != Some(name)) {
            let path = raw.join(name);
            fs::remove_file(&path).map_err(file(&path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Whether a file's name has the form that sealing uses.
fn is_own(name: &str) -> bool {
    let whole = name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp")).unwrap_or(name);
    let parts = whole.strip_suffix(".parquet").and_then(|name| name.split_once('-'));
    parts.is_some_and(|(first, id)| first.parse::<i64>().is_ok() && id.parse::<i64>().is_ok())
}
