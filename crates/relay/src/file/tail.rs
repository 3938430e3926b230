//! Finds where the whole records of a file end: a killed process or a power failure may leave a partial record behind.

use crate::FileFormat;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Largest file, in bytes, whose records are read through at opening: about 0.2 s from the page cache. For a file of lines only
/// the last byte is read, whatever its size.
pub(super) const SCAN_BYTES_MAX: u64 = 256 << 20;

const WINDOW_BYTES: usize = 256 * 1024;

/// Longest payload ever written, in bytes (`sys::recv`).
const PAYLOAD_BYTES_MAX: u32 = sys::recv::BUFFER_BYTES as u32;

/// Longest packet of a capture, in bytes: an IPv6 header before the longest UDP datagram.
const PACKET_BYTES_MAX: u32 = 40 + 0xffff;

/// Shortest packet of a capture, in bytes: headers of IPv4 and UDP.
const PACKET_BYTES_MIN: u32 = 28;

/// How a file ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    /// With a whole record, or the file is empty.
    Whole,
    /// With a partial record, which begins at this offset.
    TornAt(u64),
    /// With a line that has no line feed.
    OpenLine,
    /// The file holds bytes that this format never writes, or is too long to be read through.
    Unknown,
}

/// Finds how a file of `len_bytes` ends. `begin` is the offset of its first record.
pub(super) fn look(
    file: &File,
    format: FileFormat,
    begin: u64,
    len_bytes: u64,
) -> io::Result<Tail> {
    match format {
        _ if len_bytes <= begin => Ok(Tail::Whole),
        FileFormat::Lines => {
            let mut last = [0];
            file.read_exact_at(&mut last, len_bytes - 1)?;
            Ok(if last == *b"\n" { Tail::Whole } else { Tail::OpenLine })
        }
        _ if len_bytes > SCAN_BYTES_MAX => Ok(Tail::Unknown),
        FileFormat::LengthPrefixed => Scan::new(file, len_bytes).run(begin, prefixed_bytes),
        FileFormat::Pcap => Scan::new(file, len_bytes).run(begin, packet_bytes),
    }
}

/// Length of the record behind its length prefix. `None` if no datagram is that long.
fn prefixed_bytes(head: &[u8; 4]) -> Option<u32> {
    Some(u32::from_be_bytes(*head)).filter(|&len| len <= PAYLOAD_BYTES_MAX)
}

/// Length of the packet behind the head of its record. `None` if `format::append` would not write this.
fn packet_bytes(head: &[u8; 16]) -> Option<u32> {
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (nanoseconds, captured, len) = (word(4), word(8), word(12));
    let is_ours = nanoseconds < 1_000_000_000
        && (PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&captured)
        && captured <= len;
    is_ours.then_some(captured)
}

/// Reads a file from its beginning, a window at a time.
struct Scan<'f> {
    file: &'f File,
    len_bytes: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl Scan<'_> {
    fn new(file: &File, len_bytes: u64) -> Scan<'_> {
        Scan { file, len_bytes, window: Vec::new(), window_at: 0 }
    }

    /// Steps from record to record. `body_bytes` returns the length of the record behind a head.
    fn run<const HEAD: usize>(
        mut self,
        begin: u64,
        body_bytes: impl Fn(&[u8; HEAD]) -> Option<u32>,
    ) -> io::Result<Tail> {
        let mut at = begin;

        while at < self.len_bytes {
            let Some(head) = self.head(at)? else { return Ok(Tail::TornAt(at)) };
            let Some(body) = body_bytes(&head) else { return Ok(Tail::Unknown) };
            let end = at + HEAD as u64 + u64::from(body);
            if end > self.len_bytes {
                return Ok(Tail::TornAt(at));
            }
            at = end;
        }

        Ok(Tail::Whole)
    }

    /// The head of the record at offset `at`. `None` if the file ends inside it.
    fn head<const HEAD: usize>(&mut self, at: u64) -> io::Result<Option<[u8; HEAD]>> {
        if self.len_bytes - at < HEAD as u64 {
            return Ok(None);
        }

        let window_end = self.window_at + self.window.len() as u64;
        if at + HEAD as u64 > window_end {
            let left_bytes = usize::try_from(self.len_bytes - at).unwrap_or(usize::MAX);
            self.window.resize(left_bytes.min(WINDOW_BYTES), 0);
            self.file.read_exact_at(&mut self.window, at)?;
            self.window_at = at;
        }

        let offset = (at - self.window_at) as usize;
        Ok(self.window[offset..].first_chunk().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{self, PCAP_HEADER};
    use super::*;
    use std::io::Write;
    use sys::Source;

    /// Payloads of many lengths in this format, and the offset at which each record ends.
    fn records(format: FileFormat, lens: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = match format {
            FileFormat::Pcap => PCAP_HEADER.to_vec(),
            FileFormat::Lines | FileFormat::LengthPrefixed => Vec::new(),
        };
        let mut ends = vec![bytes.len()];
        for &len in lens {
            let datagram = format::Datagram {
                received_unix_ns: 7,
                source: &Source::NONE,
                bytes: &vec![0xa5; len],
                local: None,
            };
            format::append(&mut bytes, format, &datagram);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    fn tail_of(format: FileFormat, bytes: &[u8]) -> Tail {
        let mut file = tempfile();
        file.write_all(bytes).unwrap();
        let begin = if format == FileFormat::Pcap { PCAP_HEADER.len() as u64 } else { 0 };
        look(&file, format, begin, bytes.len() as u64).unwrap()
    }

    /// A file without a name.
    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!(
            "weir-tail-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let options =
            File::options().read(true).write(true).create(true).truncate(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        options.unwrap()
    }

    /// Cuts the file at every byte: exactly the whole records before the cut must be found.
    fn check_all_cuts(format: FileFormat, lens: &[usize]) {
        let (bytes, ends) = records(format, lens);
        for cut in ends[0]..=bytes.len() {
            let whole = *ends.iter().rfind(|&&end| end <= cut).unwrap();
            let expected = if whole == cut { Tail::Whole } else { Tail::TornAt(whole as u64) };
            assert_eq!(tail_of(format, &bytes[..cut]), expected, "{format:?} cut at {cut}");
        }
    }

    #[test]
    fn a_length_prefixed_file_is_whole_up_to_its_last_whole_record() {
        check_all_cuts(FileFormat::LengthPrefixed, &[0, 1, 200, 0, 0, 31, 64]);
    }

    #[test]
    fn a_capture_is_whole_up_to_its_last_whole_packet() {
        check_all_cuts(FileFormat::Pcap, &[0, 1, 200, 0, 31, 64]);
    }

    #[test]
    fn records_that_cross_the_window_are_found() {
        for format in [FileFormat::LengthPrefixed, FileFormat::Pcap] {
            // The longest payloads, and many short ones: heads lie before, across and behind the ends of windows.
            let long: Vec<_> = (0..40).map(|n| 65_500 - n * 7).collect();
            for lens in [long, vec![3; 200_000]] {
                let (bytes, ends) = records(format, &lens);
                assert_eq!(tail_of(format, &bytes), Tail::Whole);
                let whole = ends[ends.len() - 2] as u64;
                let torn = &bytes[..bytes.len() - 1];
                assert_eq!(tail_of(format, torn), Tail::TornAt(whole), "{format:?}");
            }
        }
    }

    #[test]
    fn what_the_format_never_writes_is_left_alone() {
        let text = b"Feb  3 10:00:00 host app: a file of somebody else\n";
        assert_eq!(tail_of(FileFormat::LengthPrefixed, text), Tail::Unknown);
        let (mut bytes, ends) = records(FileFormat::LengthPrefixed, &[5, 6]);
        bytes.extend_from_slice(text);
        assert_eq!(tail_of(FileFormat::LengthPrefixed, &bytes), Tail::Unknown);
        let (mut capture, _) = records(FileFormat::Pcap, &[5, 6]);
        // Zeros, such as a file system may leave behind after a power failure.
        capture.extend_from_slice(&[0; 64]);
        assert_eq!(tail_of(FileFormat::Pcap, &capture), Tail::Unknown);
        assert_eq!(ends, [0, 9, 19]);
    }

    #[test]
    fn a_file_of_lines_needs_a_line_feed_only() {
        for (bytes, tail) in [("", Tail::Whole), ("a\n", Tail::Whole), ("a\nb", Tail::OpenLine)] {
            assert_eq!(tail_of(FileFormat::Lines, bytes.as_bytes()), tail);
        }
    }

    /// Holes take no room on the disk. Reading this file would take a second.
    #[test]
    fn a_very_long_file_is_not_read() {
        let file = tempfile();
        let len_bytes = SCAN_BYTES_MAX + 1;
        file.set_len(len_bytes).unwrap();
        let tail = look(&file, FileFormat::LengthPrefixed, 0, len_bytes).unwrap();
        assert_eq!(tail, Tail::Unknown);
    }
}
