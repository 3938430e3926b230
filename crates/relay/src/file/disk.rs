//! The file itself: how it is opened, continued if it is intact, set aside if it is not, and rotated.

use super::format;
use super::tail::{self, Tail};
use crate::{FileFormat, FileOptions};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The owner writes and the group reads: payloads may hold anything.
const MODE: u32 = 0o640;

/// Maximum number of names tried for a file that is set aside without rotation.
const ASIDE_NAMES_MAX: u32 = 9_999;

/// A file open for writing.
pub(super) struct OpenFile {
    file: File,
    pub(super) len_bytes: u64,
    device: u64,
    inode: u64,
    /// No other process, and no older listener that still drains, writes to it too: a torn end is not a write in progress.
    is_ours_alone: bool,
}

/// A file known to end with a whole record, unless someone else has written to it since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Whole {
    device: u64,
    inode: u64,
    len_bytes: u64,
}

/// What an opened file contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begun {
    /// Its old contents, or nothing.
    AsItWas,
    /// Its old contents, without a partial record at the end or with a line feed added.
    Repaired,
    /// Nothing: the old contents were renamed.
    Anew,
}

impl OpenFile {
    fn new(file: File) -> io::Result<OpenFile> {
        let found = file.metadata()?;
        // The lock lasts as long as the descriptor. It is advisory and never waited for.
        let is_ours_alone = found.is_file() && file.try_lock().is_ok();
        let (len_bytes, device, inode) = (found.len(), found.dev(), found.ino());
        Ok(OpenFile { file, len_bytes, device, inode, is_ours_alone })
    }

    /// The file, if the path still leads to it. If it was moved or removed, what is written to it may be lost without a trace.
    /// Checked before each write; costs a microsecond.
    pub(super) fn still_at(mut self, path: &Path) -> Option<OpenFile> {
        let there = fs::metadata(path).ok()?;
        // Another process may have appended to the file, or emptied it as logrotate's `copytruncate` does. This is the length
        // that a failed write is cut back to.
        self.len_bytes = there.len();
        // An older listener that wrote to it too may have ended. Then the file is ours from here on, and the lock shows that to
        // the next one.
        self.is_ours_alone =
            self.is_ours_alone || (there.is_file() && self.file.try_lock().is_ok());
        ((there.dev(), there.ino()) == (self.device, self.inode)).then_some(self)
    }

    /// Standard output. It is somebody else's file: nothing in it is looked at or cut.
    pub(super) fn standard_output(format: FileFormat) -> io::Result<OpenFile> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut open = OpenFile { file, len_bytes: 0, device: 0, inode: 0, is_ours_alone: false };
        open.append(header(format), &mut None)?;
        Ok(open)
    }

    fn is(&self, whole: Whole) -> bool {
        whole == Whole { device: self.device, inode: self.inode, len_bytes: self.len_bytes }
    }

    /// Appends whole records, or leaves the file as it was. Sets `whole` when a failed write was undone.
    pub(super) fn append(&mut self, bytes: &[u8], whole: &mut Option<Whole>) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // A torn record at the end would make the file unreadable from there on. If even the cut fails, the file is checked
            // when it is opened again.
            let OpenFile { device, inode, len_bytes, is_ours_alone, .. } = *self;
            // What others have appended since is not ours to cut.
            let is_undone = is_ours_alone && self.file.set_len(len_bytes).is_ok();
            *whole = is_undone.then_some(Whole { device, inode, len_bytes });
            return Err(error);
        }

        self.len_bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Opens the file at the path and makes sure that it ends with a whole record: a part of one is cut off, a line without
/// a line feed gets it. A file that cannot be continued is set aside, as one that rotation has set aside or, without
/// rotation, under a name that nothing deletes; then a new one begins.
pub(super) fn open(
    path: &Path,
    options: &FileOptions,
    whole: Option<Whole>,
) -> io::Result<(OpenFile, Begun)> {
    let mut open = open_any(path)?;
    let mut begun = Begun::AsItWas;

    if open.is_ours_alone && open.len_bytes > 0 && !whole.is_some_and(|whole| open.is(whole)) {
        begun = repair(&mut open, options)?;
        if begun == Begun::Anew {
            match (set_aside(path, options), options.format) {
                (Ok(()), _) => open = open_any(path)?,
                // Lines can be read behind whatever is there.
                (Err(_), FileFormat::Lines) => begun = Begun::AsItWas,
                (Err(error), _) => return Err(error),
            }
        }
    }

    if open.len_bytes == 0 {
        open.append(header(options.format), &mut None)?;
    }
    Ok((open, begun))
}

fn open_any(path: &Path) -> io::Result<OpenFile> {
    let mut how = OpenOptions::new();
    how.append(true).create(true).mode(MODE);
    match how.clone().read(true).open(path) {
        // A file that may be written but not read cannot be looked at, and is set aside.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => how.open(path),
        opened => opened,
    }
    .and_then(OpenFile::new)
}

/// Makes a file end with a whole record. Returns [`Begun::Anew`] when it cannot be continued.
fn repair(open: &mut OpenFile, options: &FileOptions) -> io::Result<Begun> {
    let header = header(options.format);
    if !begins_with(&open.file, header) {
        return Ok(Begun::Anew);
    }

    match tail::look(&open.file, options.format, header.len() as u64, open.len_bytes) {
        Ok(Tail::Whole) => Ok(Begun::AsItWas),
        // It has grown since: another program writes to it without a lock.
        Ok(Tail::TornAt(_)) if open.file.metadata()?.len() != open.len_bytes => Ok(Begun::AsItWas),
        Ok(Tail::TornAt(whole_bytes)) => {
            open.file.set_len(whole_bytes)?;
            open.len_bytes = whole_bytes;
            Ok(Begun::Repaired)
        }
        Ok(Tail::OpenLine) => open.append(b"\n", &mut None).map(|()| Begun::Repaired),
        Ok(Tail::Unknown) | Err(_) => Ok(Begun::Anew),
    }
}

fn begins_with(file: &File, header: &[u8]) -> bool {
    let mut begin = vec![0; header.len()];
    // Lines and length-prefixed records have no header, which any file matches.
    header.is_empty() || file.read_exact_at(&mut begin, 0).is_ok_and(|()| begin == header)
}

/// The bytes at the start of every file.
pub(super) fn header(format: FileFormat) -> &'static [u8] {
    match format {
        FileFormat::Pcap => &format::PCAP_HEADER,
        FileFormat::Lines | FileFormat::LengthPrefixed => &[],
    }
}

fn set_aside(path: &Path, options: &FileOptions) -> io::Result<()> {
    if options.rotate_bytes.is_some() && options.rotate_keep > 0 {
        return rotate(path, options.rotate_keep);
    }

    for n in 1..=ASIDE_NAMES_MAX {
        // A link fails where the name is taken; a rename would replace what has it.
        let aside = with_suffix(path, &format!(".aside-{n}"));
        match fs::hard_link(path, &aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // File systems without links, and files owned by others (fs.protected_hardlinks).
            Err(_) if fs::symlink_metadata(&aside).is_err() => {
                return fs::rename(path, aside);
            }
            Err(error) => return Err(error),
            Ok(()) => return fs::remove_file(path),
        }
    }

    Err(io::ErrorKind::AlreadyExists.into())
}

/// `path` becomes `path.1`, `path.1` becomes `path.2`, and so on; the oldest goes.
pub(super) fn rotate(path: &Path, keep: u32) -> io::Result<()> {
    let numbered = |n: u32| with_suffix(path, &format!(".{n}"));
    if keep == 0 {
        return fs::remove_file(path);
    }

    // The oldest first: each takes the name that the one before it has left.
    for n in (1..keep).rev() {
        match fs::rename(numbered(n), numbered(n + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }

    fs::rename(path, numbered(1))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    name.into()
}
