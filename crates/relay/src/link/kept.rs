//! The files in which either end of a link keeps what is to outlive its process.
//!
//! A file begins with [`MAGIC`], the id of the machine's boot, and a number: of the copy that counts (the sending end has two), or of
//! bytes of records that count (the receiving end). What was written under another boot does not count, because a loss of power
//! keeps some pages of a file and not others.

use hop::kept::{KEPT_SENDER_BYTES, KeptSender, Memory};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::mapped::MappedFile;

/// What a file begins with: of the sending and of the receiving end.
const MAGIC: [&[u8; 8]; 2] = [b"weir snd", b"weir rcv"];
const BOOT: usize = 8;
const NUMBER: usize = 56;
const HEAD_BYTES: usize = 64;

/// Bytes of a sending end's file: two copies, each at the begin of its half.
const SENDER_FILE_BYTES: usize = 2 * COPY_BYTES;
const COPY_BYTES: usize = 2_048;
const _: () = assert!(HEAD_BYTES + KEPT_SENDER_BYTES <= COPY_BYTES);

/// Room for records behind those with which a file begins, in bytes: some 160,000 datagrams, and again as much as it begins with.
const RECORDS_BYTES: usize = 4 << 20;

/// Room that is left when a file is full: for what one batch notes.
const SPARE_BYTES: usize = 64 << 10;

/// How far a file is written that does not count.
const NOWHERE: usize = usize::MAX - HEAD_BYTES;

/// Whether a file can be used to keep what either end of a link has. It is made if it is not there.
///
/// # Errors
/// It cannot be made, read or written, or it is something else (`ErrorKind::InvalidData`).
pub fn check_link_state(path: &Path) -> io::Result<()> {
    match open_locked(path) {
        // The listener or target that this one takes the place of.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        opened => opened.map(drop),
    }
}

/// Opens a file of this end's, and locks it.
///
/// # Errors
/// `ErrorKind::WouldBlock`: another process or another end has it. `ErrorKind::InvalidData`: it is something else.
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
        // Whoever had it may have put a new one in its place before the lock was had.
        let (here, there) = (file.metadata()?, fs::metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (here.dev(), here.ino())) {
            return Ok(file);
        }
    }
}

/// The begin of a file, in this boot.
fn head(magic: &[u8; 8]) -> io::Result<[u8; NUMBER]> {
    let mut head = [0; NUMBER];
    head[..BOOT].copy_from_slice(magic);
    let boot = sys::process::boot_id()?;
    let place = head[BOOT..].get_mut(..boot.len()).ok_or(io::ErrorKind::InvalidData)?;
    place.copy_from_slice(boot.as_bytes());
    Ok(head)
}

/// The number of a file that this boot has written, and what follows it.
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
    /// Opens it, and reads what a former process left there.
    ///
    /// # Errors
    /// It cannot be opened or made, or somebody else [has it](io::ErrorKind::WouldBlock).
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

    /// Keeps this from here on. Nothing of it leaves before.
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

/// Where the first copy is, and the second one.
fn place_of(copy: u64) -> usize {
    if copy == 2 { COPY_BYTES } else { HEAD_BYTES }
}

/// The file of a receiving end.
pub(super) struct ReceiverFile {
    path: PathBuf,
    head: [u8; NUMBER],
    /// `None`: it could not be written any more. What is there does not count.
    file: Option<MappedFile>,
    is_kept: Arc<AtomicBool>,
    len: usize,
}

impl ReceiverFile {
    /// Opens it, and reads what a former process has noted. `is_kept` says from here on whether what is noted outlives the process.
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

    /// A file with these records, in the place of the one that there is.
    fn make(&self, records: &[u8]) -> io::Result<MappedFile> {
        let path = self.path.with_added_extension("new");
        // What a process that ended in this left behind.
        let _ = fs::remove_file(&path);
        let file = open_locked(&path)?;
        let len = HEAD_BYTES + 2 * records.len() + RECORDS_BYTES;
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
            // What is not noted is missing between what is: nothing of it counts until it begins anew.
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
