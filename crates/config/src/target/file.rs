//! A target that is a file.

use crate::form::{Choice, OrOff, size, whole};
use crate::keys::keys;
use relay::{FileFormat, FileOptions};
use std::path::PathBuf;

keys! {
    /// What a target that is a file has.
    pub struct FileTarget in "listener.target" of "file targets" given {
        /// `None`: standard output.
        path: Option<PathBuf>
    } {
        /// How datagrams are told apart: by line feeds, by four bytes of big-endian length
        /// before each, or as a capture for tcpdump and Wireshark.
        format => format: FileFormat = Choice(&[
            ("lines", FileFormat::Lines),
            ("length-prefixed", FileFormat::LengthPrefixed),
            ("pcap", FileFormat::Pcap),
        ]), default(FileFormat::Lines);
        /// The file is set aside as `.1` before it would grow beyond this; a datagram that is
        /// larger has a file of its own.
        rotate_size => rotate_bytes: Option<u64> = OrOff(size(64 << 10, 1 << 44)), default(None)
            where |file| file.path.is_some(), "standard output is not rotated. Fix: remove the key";
        /// How many files that were set aside are kept; older ones are deleted. Needs `rotate_size`.
        rotate_keep => rotate_keep: u32 = whole(1, 9_999), default(4)
            where |file| file.rotate_bytes.is_some(),
            "nothing is rotated. Fix: add rotate_size = \"64MiB\"";
    }
}

impl FileTarget {
    /// The options for writing it.
    pub fn file_options(&self) -> FileOptions {
        FileOptions {
            path: self.path.clone(),
            format: self.format,
            rotate_bytes: self.rotate_bytes,
            rotate_keep: self.rotate_keep,
        }
    }

    /// Number of rotated files that it keeps.
    pub(crate) fn kept_files(&self) -> u32 {
        if self.rotate_bytes.is_some() { self.rotate_keep } else { 0 }
    }
}
