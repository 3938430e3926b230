//! The files in which either end of a link keeps the state that outlives its process.
//!
//! A file begins with [`MAGIC`], the machine's boot id, and a number: of the valid copy (the sending end has two), or of valid
//! bytes of records (the receiving end). State written under another boot is not valid, because a power failure keeps some pages
//! of a file and not others.

use hop::kept::{FILE_ROOM_BYTES, KEPT_SENDER_BYTES, KeptSender, Memory};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::mapped::MappedFile;

/// First bytes of a file, of the sending end and of the receiving end.
const MAGIC: [&[u8; 8]; 2] = [b"weir snd", b"weir rcv"];
const BOOT: usize = 8;
const NUMBER: usize = 56;
const HEAD_BYTES: usize = 64;

/// Size of a sending end's file, in bytes: two copies, each at the start of its half.
const SENDER_FILE_BYTES: usize = 2 * COPY_BYTES;
const COPY_BYTES: usize = 2_048;
const _: () = assert!(HEAD_BYTES + KEPT_SENDER_BYTES <= COPY_BYTES);

/// Room left when a file counts as full, in bytes: enough for what one batch records.
const SPARE_BYTES: usize = 64 << 10;

/// Write position in a file that is not valid.
const NOWHERE: usize = usize::MAX - HEAD_BYTES;

/// Checks whether a file can hold the state of one end of a link. Creates the file if it does not exist.
///
/// # Errors
/// The file cannot be created, read or written, or it holds something else (`ErrorKind::InvalidData`).
pub fn check_link_state(path: &Path) -> io::Result<()> {
    match open_locked(path) {
        // Held by the listener or target that this one will replace.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        opened => opened.map(drop),
    }
}

/// Opens a file of this end and locks it.
///
/// # Errors
/// `ErrorKind::WouldBlock` when another process or another end holds the lock. `ErrorKind::InvalidData` when the file holds
/// something else.
fn open_locked(path: &Path) -> io::Result<File> {
    loop {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = file.open(path)?;
        let mut begin = Vec::new();
        (&mut file).take(BOOT as u64).read_to_end(&mut begin)?;
        if !begin.is_empty() && !MAGIC.iter().any(|magic| begin == *magic) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is something else"));
        }
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        // The previous holder may have replaced the file before we got the lock.
        let (here, there) = (file.metadata()?, fs::metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (here.dev(), here.ino())) {
            return Ok(file);
        }
    }
}

/// The start of a file written under this boot.
fn head(magic: &[u8; 8]) -> io::Result<[u8; NUMBER]> {
    let mut head = [0; NUMBER];
    head[..BOOT].copy_from_slice(magic);
    let boot = sys::process::boot_id()?;
    let place = head[BOOT..].get_mut(..boot.len()).ok_or(io::ErrorKind::InvalidData)?;
    place.copy_from_slice(boot.as_bytes());
    Ok(head)
}

/// The number in a file written under this boot, with the file's bytes.
fn read(path: &Path, head: &[u8]) -> io::Result<Option<(u64, Vec<u8>)>> {
    let bytes = fs::read(path)?;
    let number = bytes.strip_prefix(head).and_then(<[u8]>::first_chunk);
    let Some(number) = number.map(|number| u64::from_le_bytes(*number)) else { return Ok(None) };
    Ok((number > 0).then_some((number, bytes)))
}

/// The file of a sending end.
pub(super) struct SenderFile {
    file: MappedFile,
    copy: u64,
    written: KeptSender,
}

impl SenderFile {
    /// Opens the file and reads what an earlier process left there.
    ///
    /// # Errors
    /// The file cannot be opened or created, or another process or end [holds it](io::ErrorKind::WouldBlock).
    pub(super) fn open(path: &Path) -> io::Result<(SenderFile, Option<KeptSender>)> {
        let file = open_locked(path)?;
        let head = head(MAGIC[0])?;
        let found = read(path, &head)?.and_then(|(copy, bytes)| {
            let kept = bytes.get(place_of(copy)..)?.get(..KEPT_SENDER_BYTES)?;
            Some((copy, KeptSender::decode(kept)?))
        });
        let mut file = MappedFile::map(file, SENDER_FILE_BYTES)?;
        if found.is_none() {
            file.store(NUMBER, 0);
            let _ = file.write(0, &head);
        }
        let (copy, kept) = found.unzip();
        let written = KeptSender::default();
        Ok((SenderFile { file, copy: copy.unwrap_or(1), written }, kept))
    }

    /// Keeps this state from here on. Call it before anything that the state counts leaves.
    pub(super) fn keep(&mut self, kept: KeptSender) {
        if kept == self.written {
            return;
        }
        let copy = if self.copy == 1 { 2 } else { 1 };
        if self.file.write(place_of(copy), &kept.encode()) {
            self.file.store(NUMBER, copy);
            (self.copy, self.written) = (copy, kept);
        }
    }
}

/// Offset of the first or the second copy.
fn place_of(copy: u64) -> usize {
    if copy == 2 { COPY_BYTES } else { HEAD_BYTES }
}

/// The file of a receiving end.
pub(super) struct ReceiverFile {
    path: PathBuf,
    head: [u8; NUMBER],
    /// `None` when it could no longer be written. Its contents are not valid then.
    file: Option<MappedFile>,
    is_kept: Arc<AtomicBool>,
    len: usize,
}

impl ReceiverFile {
    /// Opens the file and reads what an earlier process recorded. From here on, `is_kept` tells whether records outlive the
    /// process.
    ///
    /// # Errors
    /// As of [`SenderFile::open`].
    pub(super) fn open(
        path: &Path,
        is_kept: Arc<AtomicBool>,
    ) -> io::Result<(ReceiverFile, Vec<u8>)> {
        let file = open_locked(path)?;
        let head = head(MAGIC[1])?;
        let noted = read(path, &head)?.and_then(|(len, bytes)| {
            let noted = bytes.get(HEAD_BYTES..)?.get(..usize::try_from(len).ok()?)?;
            Some(noted.to_vec())
        });
        let len = file.metadata()?.len() as usize;
        let file = MappedFile::map(file, len.max(HEAD_BYTES))?;
        let path = path.to_owned();
        let file = ReceiverFile { path, head, file: Some(file), is_kept, len: NOWHERE };
        Ok((file, noted.unwrap_or_default()))
    }

    /// Creates a file with these records in place of the existing one.
    fn make(&self, records: &[u8]) -> io::Result<MappedFile> {
        let path = self.path.with_added_extension("new");
        // Left behind by a process that ended at this point.
        let _ = fs::remove_file(&path);
        let file = open_locked(&path)?;
        let len = HEAD_BYTES + 2 * records.len() + FILE_ROOM_BYTES;
        let mut file = MappedFile::map(file, len)?;
        let fits = file.write(0, &self.head) && file.write(HEAD_BYTES, records);
        file.store(NUMBER, if fits { records.len() as u64 } else { 0 });
        fs::rename(&path, &self.path)?;
        Ok(file)
    }
}

impl Memory for ReceiverFile {
    fn note(&mut self, record: &[u8]) {
        let Some(file) = &mut self.file else { return };
        if file.write(HEAD_BYTES + self.len, record) {
            self.len += record.len();
            file.store(NUMBER, self.len as u64);
        } else {
            // A missing record leaves a gap, so nothing is valid until the file starts over.
            file.store(NUMBER, 0);
            self.len = NOWHERE;
        }
    }

    fn is_full(&self) -> bool {
        let len = self.len.saturating_add(SPARE_BYTES);
        self.file.as_ref().is_some_and(|file| HEAD_BYTES.saturating_add(len) > file.len())
    }

    fn begin_anew(&mut self, records: &[u8]) {
        let made = self.make(records);
        if made.is_err()
            && let Some(file) = &mut self.file
        {
            file.store(NUMBER, 0);
        }
        self.is_kept.store(made.is_ok(), Ordering::Relaxed);
        (self.file, self.len) = (made.ok(), records.len());
    }
}
