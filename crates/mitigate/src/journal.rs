//! The routes that a speaker may have of this Weir, in a file: what a life that was killed leaves is found by the next one.
//!
//! One line for each change, `announce ROUTE` before the speaker is told and `withdraw ROUTE` after it has done it. So a route that the
//! speaker has is always in the file, and one that it has not may be. The file is written anew when most of its lines are old.

use crate::Nlri;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Longest file that is read. One with all routes that can be, and as many old lines, has less than a tenth.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Old lines that are always allowed.
const OLD_LINES_MIN: usize = 1_000;

/// The file. One process has it at a time.
pub struct Journal {
    path: PathBuf,
    file: File,
    routes: BTreeSet<Nlri>,
    lines: usize,
    /// Length of the file up to the end of its last whole line.
    bytes: u64,
}

impl Journal {
    /// Opens the file, or makes it, and reads what is in it. Lines that a full disk has cut short are left out.
    ///
    /// # Errors
    /// It cannot be opened or written, another process has it, or it is another kind of file: one with text, and no line of a route.
    pub fn open(path: &Path) -> io::Result<Journal> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
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
            // A line without an end was not written before the speaker was told.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The routes that the speaker may have.
    pub fn routes(&self) -> impl Iterator<Item = &Nlri> {
        self.routes.iter()
    }

    /// Notes a route that the speaker is about to be told. The line reaches the disk when the kernel writes it: it outlives this process, not
    /// the machine.
    ///
    /// # Errors
    /// It was not written.
    pub fn announce(&mut self, nlri: &Nlri) -> io::Result<()> {
        if self.routes.contains(nlri) {
            return Ok(());
        }
        // First: what is written anew must have it.
        self.routes.insert(nlri.clone());
        self.append("announce", nlri)
    }

    /// Notes that the speaker has a route no longer.
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
            // What a full disk took of it would be the beginning of the next line. Where that cannot be mended either, both lines are
            // left out when the file is read.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += line.len() as u64;
        self.lines += 1;
        if self.lines > 2 * self.routes.len() + OLD_LINES_MIN { self.write_anew() } else { Ok(()) }
    }

    /// Has nothing in the file but the routes that there are.
    fn write_anew(&mut self) -> io::Result<()> {
        let text: String = self.routes.iter().map(|nlri| format!("announce {nlri}\n")).collect();
        let next = self.path.with_extension("routes.new");
        let mut file = OpenOptions::new().append(true).create(true).open(&next)?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        // Nobody else has it yet: what is at `path` is locked until it is replaced.
        file.try_lock()?;
        fs::rename(&next, &self.path)?;
        (self.file, self.lines, self.bytes) = (file, self.routes.len(), text.len() as u64);
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing would be enough, had not a process that another thread is just starting a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that another thread starts has copies of all descriptors until it runs its own program.
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
