//! A destination that writes Parquet files to a folder; a batch is a file.
//!
//! A file gets its name only once it is complete and on disk: it is written under another name in the same folder, synced and
//! renamed, and then the folder is synced. Unfinished files of an earlier run are removed at the next start.

use super::encoder::form;
use super::keep::Keeper;
use super::name::{Names, unfinished};
use crate::batch::{Attempt, Batch, Failure, Fate, Outcome, Sent};
use crate::destination::{Connector, Destination, OwnFigures, ReadBack};
use crate::encode::NumberEncoding;
use ::record::FieldSet;
use ledger::{Event, Gauge, Reason, Trouble};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::Errno;

/// The owner may write and the group read: records name processes, addresses and users.
const FILE_MODE: u32 = 0o640;
const FOLDER_MODE: u32 = 0o750;

/// Where files go, and how long they are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderOptions {
    /// Created if it is missing.
    pub folder: PathBuf,
    /// Part of the files' names, so that hosts can share a folder.
    pub host: String,
    /// Files that were written longer ago are removed, but never within a minute.
    pub keep_age: Option<Duration>,
    /// While all files together are larger, the oldest are removed.
    pub keep_bytes: Option<u64>,
}

/// A folder of Parquet files, with a column for each of these fields.
pub fn folder(options: FolderOptions, fields: FieldSet, numbers: NumberEncoding) -> Connector {
    let destination = move || Ok(Box::new(Folder::new(&options)) as Box<dyn Destination>);
    Connector { form: Box::new(move || form(&fields, numbers)), destination: Box::new(destination) }
}

struct Folder {
    folder: PathBuf,
    names: Names,
    keeper: Keeper,
    done: Vec<Outcome>,
    last_errno: Errno,
}

/// Why a file could not be written.
struct Problem {
    path: PathBuf,
    error: io::Error,
    sent: Sent,
}

fn problem(path: &Path, sent: Sent) -> impl FnOnce(io::Error) -> Problem {
    move |error| Problem { path: path.to_owned(), error, sent }
}

impl Folder {
    fn new(options: &FolderOptions) -> Folder {
        let names = Names::of_host(&options.host);
        Folder {
            folder: options.folder.clone(),
            keeper: Keeper::new(options, names.clone()),
            names,
            done: Vec::new(),
            last_errno: Errno(0),
        }
    }

    /// The folder of a batch's file, and the file's name.
    fn place_of(&self, batch: &Batch) -> (PathBuf, String) {
        let (partition, name) = self.names.of(batch);
        (partition.iter().fold(self.folder.clone(), |path, part| path.join(part)), name)
    }

    fn write(&self, batch: &Batch) -> Result<(), Problem> {
        let (folder, name) = self.place_of(batch);
        let (path, beside) = (folder.join(&name), folder.join(unfinished(&name)));
        make_folders(&folder)?;

        if let Err(error) = write_synced(&beside, &batch.encoded.bytes) {
            // The file takes up space, which may be what ran out.
            let _ = fs::remove_file(&beside);
            return Err(problem(&beside, Sent::No)(error));
        }
        fs::rename(&beside, &path).map_err(problem(&path, Sent::No))?;
        // Until the folder is synced, a power failure may undo the rename.
        sync_folder(&folder).map_err(problem(&folder, Sent::Maybe))
    }

    fn failure(&self, problem: &Problem) -> Failure {
        let Problem { path, error, sent } = problem;
        let folder = self.folder.display();
        let fix = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                format!("free space on the file system of {folder}, or set keep_size")
            }
            ErrorKind::ReadOnlyFilesystem => {
                format!("mount the file system of {folder} writable: findmnt -T {folder}")
            }
            _ => format!("see that {folder} can be written: ls -ld {folder}"),
        };
        let trouble = Trouble { what: format!("{}: {error}", path.display()), fix };
        Failure { sent: *sent, reason: Some(Reason::WriteError), after: None, trouble }
    }
}

impl Destination for Folder {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        // Remove leftovers of an earlier run first: they may hold the space that is needed.
        self.keeper.look_at_start();
        let fate = match self.write(&attempt.batch) {
            Ok(()) => {
                self.keeper.written(attempt.batch.encoded.bytes.len() as u64);
                Fate::Acknowledged
            }
            Err(problem) => {
                self.last_errno = Errno::from(&problem.error);
                Fate::Failed(self.failure(&problem))
            }
        };
        self.done.push(Outcome::all(attempt.batch.id, fate));
        Ok(())
    }

    fn poll(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        done.append(&mut self.done);
        self.keeper.look_at_start();
        self.keeper.remove_old(sys::clock::realtime_ns());
    }

    fn read_back(&mut self, batch: &Batch, _wait: Duration) -> ReadBack {
        let (folder, name) = self.place_of(batch);
        let path = folder.join(name);
        match fs::read(&path) {
            Ok(bytes) if bytes == batch.encoded.bytes => ReadBack::Found,
            Ok(_) => ReadBack::Missing(format!("{} has other bytes", path.display())),
            Err(error) => ReadBack::Missing(format!("{}: {error}", path.display())),
        }
    }

    fn is_idempotent(&self) -> bool {
        // The same rows get the same name.
        true
    }

    fn figures(&self) -> OwnFigures {
        let mut figures = OwnFigures {
            events: vec![
                (Event::FilesRemoved, self.keeper.removed),
                (Event::LeftoversRemoved, self.keeper.leftovers_removed),
            ],
            gauges: vec![(Gauge::FolderBytes, self.keeper.bytes)],
            ..OwnFigures::default()
        };
        if self.last_errno != Errno(0) {
            figures.gauges.push((Gauge::LastErrno, u64::from(self.last_errno.0.unsigned_abs())));
        }
        figures
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A new file: a symbolic link or any other file of that name is not followed.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Creates a folder and its parents, and syncs them to disk.
fn make_folders(folder: &Path) -> Result<(), Problem> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_folders(parent)?;
    }

    let made = match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(io::Error::from_raw_os_error(libc::ENOTDIR))
        }
        made => made,
    };
    made.map_err(problem(folder, Sent::No))?;
    let parent = parent.unwrap_or(Path::new("."));
    sync_folder(parent).map_err(problem(parent, Sent::No))
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
