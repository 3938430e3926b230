//! Memory that is a file: what is written there outlives the process, however it ends.

use crate::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file mapped into memory, which only this process may write. It does not survive a loss of power: nothing is flushed to disk.
///
/// If another process shortens the file, this process ends (`SIGBUS`, `mmap(2)`): keep it where only its owner may write.
#[derive(Debug)]
pub struct MappedFile {
    begin: NonNull<u8>,
    len: usize,
    /// Keeps the file, and the lock on it, as long as it is mapped.
    file: File,
}

// SAFETY: the mapping belongs to this value alone, and moves with it.
unsafe impl Send for MappedFile {}

impl MappedFile {
    /// Maps a file that is open for reading and writing, sets its length to `len` bytes and reserves space for all of them.
    ///
    /// # Errors
    /// The file system has no room (`ENOSPC`), or any other of `posix_fallocate(3)` and `mmap(2)`.
    pub fn map(file: File, len: usize) -> io::Result<MappedFile> {
        file.set_len(len as u64)?;
        // Without reserved space, a write to a page on a full disk would end the process.
        // SAFETY: the call takes a descriptor, which is open, and numbers.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len as libc::off_t) } {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place that the kernel chooses touches no memory of ours.
        let begin = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, file.as_raw_fd(), 0) };
        if begin == libc::MAP_FAILED {
            return Err(Errno::last().into());
        }
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MappedFile { begin, len, file })
    }

    /// Bytes of the file.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes `bytes` at offset `at`. Returns false, and writes nothing, if they do not fit.
    #[must_use]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> bool {
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        // SAFETY: the bytes from `at` on are within the mapping, which nothing else in this process knows of, so no reference to
        // them exists; `bytes` is not part of it.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.begin.as_ptr().add(at), bytes.len());
        }
        true
    }

    /// Stores a number at offset `at`, a multiple of 8, with release ordering: a reader that sees it also sees everything written
    /// before.
    ///
    /// # Panics
    /// If `at` is not a multiple of 8, or beyond the end.
    pub fn store(&mut self, at: usize, number: u64) {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len, "{at} of {}", self.len);
        // SAFETY: the eight bytes are within the mapping, which begins at a page boundary, so they are aligned; it lives as long
        // as `self`.
        let place = unsafe { AtomicU64::from_ptr(self.begin.as_ptr().add(at).cast()) };
        place.store(number.to_le(), Ordering::Release);
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.len) };
        // Closing would release the lock, unless a process that another thread is just starting holds a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};

    #[test]
    fn what_is_written_is_in_the_file_and_nothing_beside_it() {
        let path = std::env::temp_dir().join(format!("weir-mapped-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let mut mapped = MappedFile::map(file, 4_096).unwrap();
        assert!(mapped.write(100, b"here"));
        assert!(mapped.write(4_090, b"to end"));
        assert!(!mapped.write(4_091, b"to end"));
        assert!(!mapped.write(usize::MAX, b"far"));
        mapped.store(8, 0x0102);
        // Read while it is mapped, as after a crash.
        let bytes = fs::read(&path).unwrap();
        drop(mapped);
        assert_eq!(bytes.len(), 4_096);
        assert_eq!((&bytes[100..104], &bytes[4_090..]), (&b"here"[..], &b"to end"[..]));
        assert_eq!(bytes[8..16], 0x0102u64.to_le_bytes());
        assert_eq!(fs::read(&path).unwrap(), bytes);
        fs::remove_file(path).unwrap();
    }
}
