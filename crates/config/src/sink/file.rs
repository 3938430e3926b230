//! A file sink.

use super::kind::{Kind, Opening, SYNC_WAIT, Scheme, synced};
use super::{FORMATS, Sink, Written};
use crate::address::{AddressError, path};
use crate::form::{OrOff, Span, size, whole};
use crate::host::{self, Finding};
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::{BatchLimits, Connector, FileOptions, PathTemplate};
use record::Encoding;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[Scheme {
    words: &["file"],
    form: "file:/path",
    feature: None,
    read: |to, reader| {
        let template = PathTemplate::parse(to.rest).map_err(AddressError::Template)?;
        let path = path(to.rest, "file:/var/log/sockets.jsonl")?;
        Ok(FileSink::at(path, template, reader).map(Sink::File))
    },
}];

keys! {
    /// What a sink that is a file has.
    pub struct FileSink in "sink" of "files" given {
        path: PathBuf,
        /// Where `path` has names in braces: a file for each sender, day or listener.
        template: Option<PathTemplate>,
        written: Written
    } {
        /// The file is set aside as `.1` before it would grow beyond this. Records come in pieces of up
        /// to 64 KiB and a little, and a piece that is larger than this has a file of its own.
        rotate_size => rotate_bytes: Option<u64> = OrOff(size(64 << 10, 1 << 44)), default(None);
        /// The file is set aside as `.1` at each multiple of this time since 1970 (UTC): `1h` is at the full
        /// hour.
        rotate_interval => rotate_interval: Option<Duration> =
            OrOff(Span(Duration::from_secs(1), Duration::from_secs(366 * 86_400))), default(None);
        /// How many files that were set aside are kept; older ones are deleted. Needs
        /// `rotate_size` or `rotate_interval`.
        rotate_keep => rotate_keep: u32 = whole(1, 9_999), default(4)
            where FileSink::rotates, "nothing is rotated. Fix: add rotate_size = \"64MiB\"";
    }
}

impl FileSink {
    /// Reads the keys of a file sink at this path.
    fn at(path: PathBuf, template: Option<PathTemplate>, reader: &Reader<'_>) -> Option<FileSink> {
        let written = Written::read(reader, format_of(&path))?;
        FileSink::read(reader, path, template, written)
    }

    /// The folder that must exist before anything is written: the fixed part of a path with names in braces. `None` for a plain
    /// path.
    pub fn folder(&self) -> Option<PathBuf> {
        self.template.as_ref().map(PathTemplate::folder)
    }

    /// Whether it rotates files.
    pub fn rotates(&self) -> bool {
        self.rotate_bytes.is_some() || self.rotate_interval.is_some()
    }

    /// Number of rotated files that it keeps.
    pub(crate) fn kept_files(&self) -> u32 {
        if self.rotates() { self.rotate_keep } else { 0 }
    }
}

impl Kind for FileSink {
    fn values(&self) -> Values {
        self.written.values().into_iter().chain(FileSink::values(self)).collect()
    }

    fn open(&self, given: &Opening) -> io::Result<Connector> {
        let options = FileOptions {
            path: self.path.clone(),
            rotate_bytes: self.rotate_bytes,
            rotate_interval: self.rotate_interval,
            rotate_keep: self.rotate_keep,
            durability: given.durability,
        };
        let content = given.content(&self.written);
        Ok(match self.template.clone() {
            Some(template) => ::sink::files(template, options, content),
            None => ::sink::file(options, content),
        })
    }

    fn usual_with_spool(&self) -> (BatchLimits, usize) {
        synced()
    }

    fn tries_for(&self) -> Duration {
        SYNC_WAIT
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn written(&self) -> Option<&Written> {
        Some(&self.written)
    }

    fn examine(&self, what: &str, findings: &mut Vec<Finding>) {
        // The names of the files are not known in advance.
        let folder = self.folder();
        let path = folder.as_ref().map_or(self.path.clone(), |folder| folder.join("weir"));
        findings.push(host::file(what, &path));
    }
}

impl fmt::Display for FileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}", self.path.display())
    }
}

/// The format that a file's extension implies; JSON lines if it implies none.
fn format_of(path: &Path) -> Encoding {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let formats = FORMATS.0.iter().map(|(_, format)| *format);
    let is_it = |format: &Encoding| format.extension() == extension || format.name() == extension;
    formats.into_iter().find(is_it).unwrap_or(Encoding::Jsonl)
}
