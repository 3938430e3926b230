//! A file destination: appended to, rotated by size and by time.
//!
//! A payload is in the file either whole or not at all: the remains of a failed write are truncated, and so is what a failed sync
//! may have lost. While the file cannot be written, payloads wait in the sink's queue, so a disk that is full for a moment costs
//! nothing.

mod hosts;
mod template;

pub use template::{PathTemplate, files};

use crate::batch::{Attempt, Failure, Fate, Outcome, Sent};
use crate::destination::{Connector, Destination, Form, OwnFigures};
use crate::durability::{Due, Durability, SyncTimer};
use crate::encode::{Content, Framing, Partition};
use ledger::{Event, Gauge, Reason, Trouble};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::Errno;

/// Time between attempts to write a file that could not be opened or written.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The owner may write, the group may read: records name processes, addresses and users.
const MODE: u32 = 0o640;

/// A file and when to rotate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Path of the file. Symbolic links are not followed, and only regular files are written.
    pub path: PathBuf,
    /// Rotate before the file would grow beyond this many bytes. A larger payload gets a separate file.
    pub rotate_bytes: Option<u64>,
    /// Rotate at each multiple of this time since 1970 (UTC): with one hour, on the hour.
    pub rotate_interval: Option<Duration>,
    /// How many rotated files to keep, as `path.1` (the newest), `path.2`, and so on.
    pub rotate_keep: u32,
    /// When rows are acknowledged.
    pub durability: Durability,
}

/// A rotated file.
pub fn file(options: FileOptions, content: Content) -> Connector {
    let form = move || Form::Mixed(content.encoder(Partition::Whole));
    let destination = move || {
        let framing = content.framing();
        Ok(Box::new(RotatedFile::new(options.clone(), framing)) as Box<dyn Destination>)
    };
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

struct RotatedFile {
    options: FileOptions,
    framing: Framing,
    open: Option<OpenFile>,
    /// The file at the path may end within a batch: nothing may be appended to it.
    is_torn: bool,
    /// Acknowledgments that wait for a sync of the open file, and outcomes that wait for nothing.
    unsynced: Vec<Outcome>,
    done: Vec<Outcome>,
    timer: SyncTimer,
    rotations: u64,
    reopens: u64,
    last_errno: Errno,
}

struct OpenFile {
    file: File,
    device: u64,
    inode: u64,
    len_bytes: u64,
    /// Its length at the last sync.
    synced_bytes: u64,
    /// Whether its name is on the disk.
    is_named: Named,
    /// The multiple of the rotation interval that it belongs to.
    slot: u128,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Yes,
    NotYet,
}

impl RotatedFile {
    fn new(options: FileOptions, framing: Framing) -> RotatedFile {
        let timer = SyncTimer::new(options.durability);
        RotatedFile {
            options,
            framing,
            open: None,
            is_torn: false,
            unsynced: Vec::new(),
            done: Vec::new(),
            timer,
            rotations: 0,
            reopens: 0,
            last_errno: Errno(0),
        }
    }

    /// Appends one payload, whole.
    fn append(&mut self, payload: &[u8]) -> Result<(), Unwritten> {
        let limit_bytes = self.options.rotate_bytes.unwrap_or(u64::MAX);
        let header_bytes = self.framing.header.len() as u64;
        let slot = self.slot_now();

        if self.open.is_none() {
            self.open = Some(self.open_file()?);
        }
        let is_due = self.open.as_ref().is_some_and(|open| {
            let is_full = open.len_bytes.saturating_add(payload.len() as u64) > limit_bytes;
            open.len_bytes > header_bytes && (is_full || open.slot != slot)
        });
        if is_due {
            self.leave();
            self.rotate(self.options.rotate_keep)?;
            self.open = Some(self.open_file()?);
        }

        if self.open.as_ref().is_some_and(|open| open.len_bytes == 0) && header_bytes > 0 {
            self.write(Part::Header)?;
        }
        self.write(Part::Payload(payload))
    }

    fn write(&mut self, part: Part<'_>) -> Result<(), Unwritten> {
        let bytes = match part {
            Part::Header => &self.framing.header,
            Part::Payload(bytes) => bytes,
        };
        let Some(open) = &mut self.open else { return Ok(()) };
        if let Err(error) = open.file.write_all(bytes) {
            self.is_torn = open.file.set_len(open.len_bytes).is_err();
            // Of what cannot be truncated, some rows may be whole.
            let sent = if self.is_torn { Sent::Maybe } else { Sent::No };
            return Err(Unwritten { error, sent });
        }
        open.len_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Syncs the open file, and reports on what waits for that.
    fn sync(&mut self) {
        let Some(open) = self.open.as_mut().filter(|_| !self.unsynced.is_empty()) else { return };
        match open.sync(&self.options.path) {
            Ok(()) => {}
            Err(error) => {
                self.last_errno = Errno::from(&error);
                // The kernel reports a failed write-back once and then considers the pages clean (fsync(2)), so what was written
                // since the last sync is written again.
                let sent = match open.take_back() {
                    Ok(()) => Sent::No,
                    Err(_) => Sent::Maybe,
                };
                self.is_torn = sent == Sent::Maybe;
                let fate = Fate::Failed(failure(&self.options.path, &error, sent));
                self.unsynced.iter_mut().for_each(|outcome| outcome.fate = fate.clone());
                self.open.take_if(|_| sent == Sent::Maybe);
            }
        }
        self.done.append(&mut self.unsynced);
    }

    /// Closes the open file, once it is synced.
    fn leave(&mut self) {
        self.sync();
        self.open = None;
    }

    /// Closes a file that the path no longer refers to, or picks up a length changed by another process.
    fn look_at_path(&mut self) {
        let Some(open) = &mut self.open else { return };
        match fs::symlink_metadata(&self.options.path) {
            Ok(there) if open.is(&there) && there.len() == open.len_bytes => {}
            Ok(there) if open.is(&there) => {
                // What follows is taken back after a failed sync only as far as it is ours.
                self.sync();
                if let Some(open) = &mut self.open {
                    (open.len_bytes, open.synced_bytes) = (there.len(), there.len());
                }
            }
            _ => {
                self.leave();
                self.reopens += 1;
            }
        }
    }

    /// Opens the existing file if it can be continued; otherwise rotates it and starts a new one.
    fn open_file(&mut self) -> io::Result<OpenFile> {
        let open = self.open_any()?;
        if open.len_bytes == 0 || (!self.is_torn && self.can_continue(&open)?) {
            self.is_torn = false;
            return Ok(open);
        }

        // What others have written, and what is torn, is put aside even where nothing that was rotated is kept.
        self.rotate(self.options.rotate_keep.max(1))?;
        self.is_torn = false;
        self.open_any()
    }

    fn open_any(&self) -> io::Result<OpenFile> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(MODE)
            // Without O_NONBLOCK, opening a FIFO would wait for a reader (fifo(7)).
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&self.options.path)?;

        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }

        let modified = metadata.modified()?.duration_since(std::time::UNIX_EPOCH);
        let len_bytes = metadata.len();
        let slot = match len_bytes {
            0 => self.slot_now(),
            _ => self.slot_of(modified.unwrap_or_default()),
        };

        let (device, inode) = (metadata.dev(), metadata.ino());
        let (synced_bytes, is_named) = (len_bytes, Named::NotYet);
        Ok(OpenFile { file, device, inode, len_bytes, synced_bytes, is_named, slot })
    }

    /// Whether the file begins with our header and ends with a complete record.
    fn can_continue(&self, open: &OpenFile) -> io::Result<bool> {
        let header = &self.framing.header;
        if open.len_bytes < header.len() as u64 {
            return Ok(false);
        }

        let mut begin = vec![0; header.len()];
        open.file.read_exact_at(&mut begin, 0)?;
        let mut last = [0];
        open.file.read_exact_at(&mut last, open.len_bytes - 1)?;

        let is_whole = self.framing.record_end.is_none_or(|end| last == [end]);
        Ok(begin == *header && is_whole)
    }

    /// Renames `path` to `path.1`, `path.1` to `path.2`, and so on; the oldest is overwritten.
    fn rotate(&mut self, keep: u32) -> io::Result<()> {
        let numbered = |n: u32| -> PathBuf {
            let mut name = self.options.path.clone().into_os_string();
            name.push(format!(".{n}"));
            name.into()
        };

        if keep == 0 {
            fs::remove_file(&self.options.path)?;
            self.rotations += 1;
            return Ok(());
        }

        // Stop at the first free number: only existing files are touched, however many may be kept.
        let is_free = |n: &u32| {
            let there = fs::symlink_metadata(numbered(*n));
            there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let end = (1..keep).find(is_free).unwrap_or(keep);

        for n in (1..end).rev() {
            fs::rename(numbered(n), numbered(n + 1))?;
        }
        fs::rename(&self.options.path, numbered(1))?;
        self.rotations += 1;
        Ok(())
    }

    fn slot_now(&self) -> u128 {
        self.slot_of(Duration::from_nanos(sys::clock::realtime_ns()))
    }

    fn slot_of(&self, since_epoch: Duration) -> u128 {
        self.options.rotate_interval.map_or(0, |interval| {
            since_epoch.as_nanos().checked_div(interval.as_nanos()).unwrap_or_default()
        })
    }
}

/// Why a payload was not appended, and whether some of it may be in the file all the same.
struct Unwritten {
    error: io::Error,
    sent: Sent,
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Unwritten {
        Unwritten { error, sent: Sent::No }
    }
}

#[derive(Clone, Copy)]
enum Part<'a> {
    Header,
    Payload(&'a [u8]),
}

impl OpenFile {
    fn is(&self, there: &Metadata) -> bool {
        (there.dev(), there.ino()) == (self.device, self.inode)
    }

    /// Makes it survive a crash of the host, at this path.
    fn sync(&mut self, path: &Path) -> io::Result<()> {
        self.file.sync_data()?;
        if self.is_named == Named::NotYet {
            File::open(folder_of(path))?.sync_all()?;
            self.is_named = Named::Yes;
        }
        self.synced_bytes = self.len_bytes;
        Ok(())
    }

    /// Removes what was written since the last sync.
    fn take_back(&mut self) -> io::Result<()> {
        // What another process has appended is not ours to remove.
        if self.file.metadata()?.len() != self.len_bytes {
            return Err(io::ErrorKind::Other.into());
        }
        self.file.set_len(self.synced_bytes)?;
        self.len_bytes = self.synced_bytes;
        Ok(())
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

impl Destination for RotatedFile {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        self.look_at_path();
        let outcome = |fate| Outcome::all(attempt.batch.id, fate);
        self.take(&attempt.batch.encoded.bytes, outcome);
        self.timer.wrote();
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        self.look_at_path();
        self.rotate_if_due();

        let wait = if self.done.is_empty() { wait } else { Duration::ZERO };
        if self.timer.wait(wait) == Due::Now {
            self.sync();
            self.timer.synced(Instant::now());
        }
        done.append(&mut self.done);
    }

    fn close(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        self.leave();
        done.append(&mut self.done);
    }

    fn figures(&self) -> OwnFigures {
        let mut figures = OwnFigures {
            events: vec![(Event::Rotations, self.rotations), (Event::Reopens, self.reopens)],
            ..OwnFigures::default()
        };
        if self.last_errno != Errno(0) {
            figures.gauges.push((Gauge::LastErrno, u64::from(self.last_errno.0.unsigned_abs())));
        }
        figures
    }
}

fn failure(path: &Path, error: &io::Error, sent: Sent) -> Failure {
    let folder = folder_of(path);
    let path = path.display();
    let fix = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("free space on the file system of {path}")
        }
        io::ErrorKind::NotFound => format!("make its folder: mkdir -p {}", folder.display()),
        _ => format!("see that {path} can be written: ls -ld {path}"),
    };
    let trouble = Trouble { what: format!("{path}: {error}"), fix };
    let reason = Some(Reason::WriteError);
    Failure { sent, reason, after: Some(RETRY_INTERVAL), trouble }
}

impl RotatedFile {
    /// Appends one payload, whole, and keeps the outcome.
    fn take(&mut self, payload: &[u8], outcome: impl FnOnce(Fate) -> Outcome) {
        match self.append(payload) {
            Ok(()) if self.timer.is_used() => self.unsynced.push(outcome(Fate::Acknowledged)),
            Ok(()) => self.done.push(outcome(Fate::Acknowledged)),
            Err(Unwritten { error, sent }) => {
                self.last_errno = Errno::from(&error);
                self.leave();
                let failure = failure(&self.options.path, &error, sent);
                self.done.push(outcome(Fate::Failed(failure)));
            }
        }
    }

    /// Rotates on time, so that readers of rotated files need not wait for the next record.
    fn rotate_if_due(&mut self) {
        let slot = self.slot_now();
        let header_bytes = self.framing.header.len() as u64;
        let is_due = self
            .open
            .as_ref()
            .is_some_and(|open| open.len_bytes > header_bytes && open.slot != slot);
        if is_due {
            self.leave();
            if let Err(error) = self.rotate(self.options.rotate_keep) {
                self.last_errno = Errno::from(&error);
            }
        }
    }
}
