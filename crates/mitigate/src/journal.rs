//! The routes from this Weir that a speaker may have, in a file: if a process is killed, the next one finds its routes.
//!
//! One line per change: `announce ROUTE` before the speaker is told, and `withdraw ROUTE` after it has done it. So a route that
//! the speaker has is always in the file, and on the disk, and a route in the file may be gone. The file is rewritten when most of its lines are
//! obsolete.

use crate::Nlri;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest file to read. One with the most routes possible, and as many obsolete lines, has less than a tenth.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Obsolete lines that are always allowed.
const OLD_LINES_MIN: usize = 1_000;

/// The file. Only one process can have it at a time.
pub struct Journal {
    path: PathBuf,
    file: File,
    routes: BTreeSet<Nlri>,
    lines: usize,
    /// Length of the file up to the end of its last complete line.
    bytes: u64,
}

impl Journal {
    /// Opens or creates the file, and reads it. Skips lines truncated by a full disk.
    ///
    /// # Errors
    /// It cannot be opened or written, another process has it, or it is not a journal: it has text, but no line with a route.
    pub fn open(path: &Path) -> io::Result<Journal> {
        let file = file_options().read(true).open(path)?;
        // Who can write it can have routes announced at the next start. A former one may have been made more widely accessible.
        if file.metadata()?.permissions().mode() & !FILE_TYPE & !FILE_MODE != 0 {
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process writes it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }

        let mut text = String::new();
        let bytes = (&file).take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if bytes as u64 > FILE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
        }
        let routes = BTreeSet::new();
        let mut this = Journal { path: path.to_owned(), file, routes, lines: 0, bytes: 0 };
        let mut wrong = None;
        for line in text.split_inclusive('\n') {
            // A line without an end was not complete, so the speaker had not been told.
            let Some(line) = line.strip_suffix('\n') else { continue };
            match this.read(line) {
                Ok(()) => this.lines += 1,
                Err(error) => wrong = Some(error),
            }
        }
        match wrong {
            // Whatever it is, it is not ours to write to.
            Some(error) if this.lines == 0 => Err(error),
            _ => this.write_anew().map(|()| this),
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The routes that the speaker may have.
    pub fn routes(&self) -> impl Iterator<Item = &Nlri> {
        self.routes.iter()
    }

    /// Records a route that the speaker is about to be told, on the disk: routers keep the route when this machine loses its power.
    ///
    /// # Errors
    /// It was not written, or not to the disk.
    pub fn announce(&mut self, nlri: &Nlri) -> io::Result<()> {
        if self.routes.contains(nlri) {
            return Ok(());
        }
        // First, so that a rewritten file includes it.
        self.routes.insert(nlri.clone());
        self.append("announce", nlri)?;
        self.file.sync_data()
    }

    /// Records that the speaker no longer has a route. The line reaches the disk with the next one, or when the kernel writes it
    /// back: a route that is gone and still in the file is withdrawn once more.
    ///
    /// # Errors
    /// It was not written.
    pub fn withdraw(&mut self, nlri: &Nlri) -> io::Result<()> {
        if !self.routes.remove(nlri) {
            return Ok(());
        }
        self.append("withdraw", nlri)
    }

    fn read(&mut self, line: &str) -> io::Result<()> {
        let wrong =
            || io::Error::new(io::ErrorKind::InvalidData, format!("{line:?} is no line of it"));
        let (word, route) = line.split_once(' ').ok_or_else(wrong)?;
        let nlri: Nlri = route.parse().map_err(|_| wrong())?;
        match word {
            "announce" => self.routes.insert(nlri),
            "withdraw" => self.routes.remove(&nlri),
            _ => return Err(wrong()),
        };
        Ok(())
    }

    fn append(&mut self, word: &str, nlri: &Nlri) -> io::Result<()> {
        let line = format!("{word} {nlri}\n");
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // A part written to a full disk would become the beginning of the next line. If it cannot be truncated either, both
            // lines are skipped when the file is read.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += line.len() as u64;
        self.lines += 1;
        if self.lines > 2 * self.routes.len() + OLD_LINES_MIN { self.write_anew() } else { Ok(()) }
    }

    /// Rewrites the file with only the current routes.
    fn write_anew(&mut self) -> io::Result<()> {
        let text: String = self.routes.iter().map(|nlri| format!("announce {nlri}\n")).collect();
        let next = self.path.with_extension("routes.new");
        let mut file = file_options().open(&next)?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Nobody else has the new file yet, and the one at `path` stays locked until it is replaced.
        file.try_lock()?;
        fs::rename(&next, &self.path)?;
        self.sync_folder()?;
        (self.file, self.lines, self.bytes) = (file, self.routes.len(), text.len() as u64);
        Ok(())
    }

    /// Writes the name of the file to the disk.
    fn sync_folder(&self) -> io::Result<()> {
        match self.path.parent() {
            None => Ok(()),
            Some(folder) if folder.as_os_str().is_empty() => File::open(".")?.sync_all(),
            Some(folder) => File::open(folder)?.sync_all(),
        }
    }
}

/// For its owner alone, whatever the process's umask.
const FILE_MODE: u32 = 0o600;
/// The bits of a mode that say what kind of file it is.
const FILE_TYPE: u32 = 0o170_000;

fn file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(FILE_MODE);
    options
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing would release the lock, unless a process that another thread is just starting holds a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process started by another thread has copies of all descriptors until it runs its own program.
    #[test]
    fn it_is_free_when_it_is_dropped_whoever_has_a_copy_of_its_descriptor() {
        let folder = testkit::TempDir::new();
        let path = folder.file("routes");
        let journal = Journal::open(&path).unwrap();
        let copy = journal.file.try_clone().unwrap();
        assert!(Journal::open(&path).is_err());
        drop(journal);
        Journal::open(&path).unwrap();
        drop(copy);
    }
}
