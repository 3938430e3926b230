//! The disk operations that a spool needs, and their implementation on a real directory.

use super::OpenError;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use sys::Errno;

/// A directory and its files.
pub trait Disk {
    /// An open file in it.
    type File: DiskFile;

    /// Names of its files, in any order.
    ///
    /// # Errors
    /// Any error of the system.
    fn names(&mut self) -> Result<Vec<String>, Errno>;

    /// Creates an empty file.
    ///
    /// # Errors
    /// `EEXIST` if it exists, or any other error of the system.
    fn create(&mut self, name: &str) -> Result<Self::File, Errno>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist, or any other error of the system.
    fn open(&mut self, name: &str) -> Result<Self::File, Errno>;

    /// Removes a file.
    ///
    /// # Errors
    /// Any error of the system.
    fn remove(&mut self, name: &str) -> Result<(), Errno>;

    /// Makes the directory's entries durable.
    ///
    /// # Errors
    /// Any error of the system.
    fn sync(&mut self) -> Result<(), Errno>;

    /// An unpredictable number.
    fn salt(&mut self) -> u32;
}

/// A file that is read and written at offsets.
pub trait DiskFile {
    /// Its length in bytes.
    ///
    /// # Errors
    /// Any error of the system.
    fn len_bytes(&self) -> Result<u64, Errno>;

    /// Reads up to `bytes.len()` bytes; fewer at the end of the file, and possibly elsewhere.
    ///
    /// # Errors
    /// Any error of the system.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize, Errno>;

    /// Writes some of `bytes`.
    ///
    /// # Errors
    /// Any error of the system; some bytes may have been written.
    fn write_at(&self, bytes: &[u8], at: u64) -> Result<usize, Errno>;

    /// Sets its length.
    ///
    /// # Errors
    /// Any error of the system.
    fn cut(&self, len_bytes: u64) -> Result<(), Errno>;

    /// Makes what was written durable. After an error nothing is known about what was written since the last success.
    ///
    /// # Errors
    /// Any error of the system.
    fn sync(&self) -> Result<(), Errno>;
}

/// Writes all bytes.
pub(super) fn write_all(file: &impl DiskFile, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = file.write_at(bytes, at)?;
        if written == 0 {
            return Err(Errno::IO);
        }
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

/// Reads as much as there is; returns how much that was.
pub(super) fn read_all(file: &impl DiskFile, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

/// A directory locked by this process while it is open. It remains the same directory even if its path comes to lead
/// elsewhere.
#[derive(Debug)]
pub struct Folder {
    folder: File,
    /// Path of its files, through the descriptor: this costs one lookup and avoids `openat`, which std lacks.
    files: PathBuf,
}

impl Folder {
    /// Opens a directory; creates it, for its owner alone, if it does not exist.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while another process, or another spool of this one, has it.
    pub fn open(path: &Path) -> Result<Folder, OpenError> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(open_error)?;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path)
            .map_err(open_error)?;

        match folder.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::Locked),
            Err(TryLockError::Error(error)) => return Err(open_error(error)),
        }
        let files = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        Ok(Folder { folder, files })
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        // Without O_NONBLOCK, opening a FIFO would wait for a reader (fifo(7)).
        options
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        options
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Closing would release the lock, unless a process that another thread is just starting holds a copy of the
        // descriptor.
        let _ = self.folder.unlock();
    }
}

fn open_error(error: io::Error) -> OpenError {
    OpenError::Io(Errno::from(&error))
}

impl Disk for Folder {
    type File = File;

    fn names(&mut self) -> Result<Vec<String>, Errno> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.files).map_err(errno)? {
            names.extend(entry.map_err(errno)?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&mut self, name: &str) -> Result<File, Errno> {
        Folder::options().create_new(true).open(self.files.join(name)).map_err(errno)
    }

    fn open(&mut self, name: &str) -> Result<File, Errno> {
        let file = Folder::options().open(self.files.join(name)).map_err(errno)?;
        let is_file = file.metadata().map_err(errno)?.is_file();
        if is_file { Ok(file) } else { Err(Errno::INVAL) }
    }

    fn remove(&mut self, name: &str) -> Result<(), Errno> {
        fs::remove_file(self.files.join(name)).map_err(errno)
    }

    fn sync(&mut self) -> Result<(), Errno> {
        self.folder.sync_all().map_err(errno)
    }

    fn salt(&mut self) -> u32 {
        // Each `RandomState` has keys from the system's random number generator.
        RandomState::new().hash_one(0) as u32
    }
}

impl DiskFile for File {
    fn len_bytes(&self) -> Result<u64, Errno> {
        Ok(self.metadata().map_err(errno)?.len())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
        again_if_interrupted(|| FileExt::read_at(self, bytes, at))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<usize, Errno> {
        again_if_interrupted(|| FileExt::write_at(self, bytes, at))
    }

    fn cut(&self, len_bytes: u64) -> Result<(), Errno> {
        self.set_len(len_bytes).map_err(errno)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.sync_data().map_err(errno)
    }
}

fn again_if_interrupted(mut call: impl FnMut() -> io::Result<usize>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map_err(errno),
        }
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from(&error)
}
