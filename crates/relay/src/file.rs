//! A target that writes to a file: lines, length-prefixed records, or a capture file; rotated by size.
//!
//! A disk may block a write for any length of time. So the datagrams of a claim are copied into a buffer, the claim is released,
//! and only then is the buffer written: the ring never waits for a disk.

mod disk;
mod format;
mod tail;

use crate::gate::Gate;
use crate::meter::TargetMeter;
use crate::pump::{Pump, Pumped, Replaced};
use crate::ring::Reader;
use crate::{FileOptions, TargetKind};
use disk::{Begun, OpenFile};
use ledger::{Amount, Reason};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use sys::Errno;
use sys::socket::LocalAddress;

/// The buffer is written when it holds this many bytes, or when the ring is empty.
const BUFFER_BYTES: usize = 256 * 1024;

/// Maximum size of the buffer, in bytes: the last datagram may exceed the mark, with what its format puts around it.
pub(crate) const BUFFER_BYTES_MAX: usize = BUFFER_BYTES + 64 * 1024 + 256;

/// Maximum number of datagrams in the buffer: what a file's thread may hold while the disk blocks it.
pub(crate) const BUFFERED_DATAGRAMS_MAX: u64 = 8_192;

/// Time between attempts to open a file that could not be opened or written, in nanoseconds.
const RETRY_INTERVAL_NS: u64 = 250_000_000;

/// A file target of one listener.
pub(crate) struct FileTarget {
    options: FileOptions,
    /// Destination address of the datagrams, for capture files.
    local: Option<LocalAddress>,
    reader: Reader,
    gate: Gate,
    meter: Arc<TargetMeter>,
    file: Option<OpenFile>,
    /// The file that the last write failed on, if the torn part was cut off.
    whole: Option<disk::Whole>,
    retry_at_ns: u64,
    buffer: Vec<u8>,
    /// The datagrams in the buffer.
    records: Vec<Record>,
}

/// A datagram in the buffer.
struct Record {
    /// Offset of its end in the buffer.
    end: usize,
    payload_bytes: usize,
    arrived_ns: u64,
}

impl FileTarget {
    pub(crate) fn new(
        options: FileOptions,
        local: Option<LocalAddress>,
        reader: Reader,
        gate: Gate,
        meter: Arc<TargetMeter>,
    ) -> FileTarget {
        FileTarget {
            options,
            local,
            reader,
            gate,
            meter,
            file: None,
            whole: None,
            retry_at_ns: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES_MAX),
            records: Vec::with_capacity(BUFFERED_DATAGRAMS_MAX as usize),
        }
    }

    /// Moves datagrams from the ring into the buffer until it is full enough. Returns whether the ring is empty.
    fn fill(&mut self, now_ns: u64) -> bool {
        // Datagrams that arrive meanwhile are for the next call: a command may come first.
        let end = self.reader.head();

        while !is_full(&self.buffer, &self.records) {
            if self.reader.cursor() >= end {
                return self.reader.is_empty();
            }
            let Some(mut claim) = self.reader.claim(&self.meter.sender) else { return true };

            let mut taken = 0;
            while taken < claim.len() && !is_full(&self.buffer, &self.records) {
                let (descriptor, bytes) = claim.get(taken);
                taken += 1;
                if let Err(reason) = self.gate.decide(&descriptor.source, now_ns) {
                    self.meter.sender.drop(reason, Amount::one(bytes.len()));
                    continue;
                }

                format::append(
                    &mut self.buffer,
                    self.options.format,
                    &format::Datagram {
                        received_unix_ns: descriptor.times.received_unix_ns,
                        source: &descriptor.source,
                        bytes,
                        local: self.local.as_ref(),
                    },
                );
                self.records.push(Record {
                    end: self.buffer.len(),
                    payload_bytes: bytes.len(),
                    arrived_ns: descriptor.times.arrived_ns,
                });
            }

            claim.advance(taken);
        }

        false
    }

    /// Writes the buffer in parts as large as the file has room for. Each part counts as a whole, as delivered or as lost.
    fn write_out(&mut self, now_ns: u64) {
        let mut first = 0;

        while first < self.records.len() {
            let next = if self.file.is_none() && now_ns < self.retry_at_ns {
                // The last attempt failed a moment ago: do not spend a call on another.
                self.count_lost(first);
                self.records.len()
            } else {
                self.meter.send_calls.add(1);
                self.write_part(first).unwrap_or_else(|error| {
                    self.meter.count_error(Errno::from(&error));
                    self.file = None;
                    self.retry_at_ns = match self.options.path {
                        Some(_) => now_ns + RETRY_INTERVAL_NS,
                        None => u64::MAX,
                    };
                    self.count_lost(first);
                    self.records.len()
                })
            };
            first = next;
        }

        self.buffer.clear();
        self.records.clear();
    }

    fn count_lost(&self, first: usize) {
        self.meter.sender.drop(Reason::WriteError, amount_of(&self.records[first..]));
    }

    /// Writes the records from `first` on that fit into one file, at least one, and returns the index of the next one.
    fn write_part(&mut self, first: usize) -> io::Result<usize> {
        let limit_bytes = self.options.rotate_bytes.unwrap_or(u64::MAX);
        let begin = first.checked_sub(1).map_or(0, |before| self.records[before].end);
        let first_bytes = (self.records[first].end - begin) as u64;
        let header_bytes = disk::header(self.options.format).len() as u64;

        // Taken out until the write has succeeded: after an error the file is opened and looked at again.
        let still_there = match (self.file.take(), &self.options.path) {
            (Some(open), Some(path)) => open.still_at(path),
            (open, _) => open,
        };
        let mut open = match still_there {
            Some(open) => open,
            None => self.open_file()?,
        };

        // A file with nothing but its header takes any datagram, however long.
        let is_full = open.len_bytes > header_bytes && open.len_bytes + first_bytes > limit_bytes;
        if is_full && let Some(path) = &self.options.path {
            disk::rotate(path, self.options.rotate_keep)?;
            open = self.open_file()?;
        }

        let rest = &self.records[first..];
        let room_bytes = limit_bytes.saturating_sub(open.len_bytes);
        let fits = |record: &Record| (record.end - begin) as u64 <= room_bytes;
        // A record larger than a whole file gets a file of its own.
        let count = rest.partition_point(fits).max(1);
        let bytes = &self.buffer[begin..rest[count - 1].end];
        open.append(bytes, &mut self.whole)?;

        self.file = Some(open);
        self.meter.sender.delivered.add(amount_of(&rest[..count]));

        let now_ns = sys::clock::monotonic_ns();
        for record in &rest[..count] {
            self.meter.delay.add(now_ns.saturating_sub(record.arrived_ns) / 1_000, 1);
        }

        Ok(first + count)
    }

    fn open_file(&mut self) -> io::Result<OpenFile> {
        let Some(path) = &self.options.path else {
            return OpenFile::standard_output(self.options.format);
        };
        let (open, begun) = disk::open(path, &self.options, self.whole)?;
        match begun {
            Begun::AsItWas => {}
            Begun::Repaired => self.meter.tails_mended.add(1),
            Begun::Anew => self.meter.files_set_aside.add(1),
        }
        self.whole = None;
        Ok(open)
    }
}

fn is_full(buffer: &[u8], records: &[Record]) -> bool {
    buffer.len() >= BUFFER_BYTES || records.len() >= BUFFERED_DATAGRAMS_MAX as usize
}

fn amount_of(records: &[Record]) -> Amount {
    records.iter().map(|record| Amount::one(record.payload_bytes)).sum()
}

impl Pump for FileTarget {
    fn name(&self) -> &str {
        &self.meter.name
    }

    fn pump(&mut self, now_ns: u64, _claims_max: usize) -> Pumped {
        let is_empty = self.fill(now_ns);
        self.write_out(now_ns);
        if is_empty { Pumped::Idle } else { Pumped::More }
    }

    fn blocked_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn keep_house(&mut self, now_ns: u64) {
        self.meter.note_oldest(self.reader.oldest(), now_ns);
        self.meter.check_law(&self.reader);
        self.meter.reports_all.set(1);
        self.meter.note_state(now_ns);
    }

    fn is_idle(&self) -> bool {
        self.reader.is_empty()
    }

    fn head(&self) -> u64 {
        self.reader.head()
    }

    fn has_reached(&self, end: u64) -> bool {
        self.reader.cursor() >= end
    }

    fn has_outstanding(&mut self) -> bool {
        false
    }

    fn discard_until(&mut self, end: u64, reason: Reason) {
        self.reader.discard_until(end, reason, &self.meter.sender);
    }

    fn replace(&mut self, destination: TargetKind, gate: Option<Gate>) -> Replaced {
        let TargetKind::File(options) = destination else { return Replaced::No };
        // The buffer is empty between two pumps, so it holds nothing for the old file.
        self.options = options;
        self.file = None;
        self.retry_at_ns = 0;
        if let Some(gate) = gate {
            self.gate = gate;
        }
        Replaced::Yes
    }

    fn stop_at(&mut self, end: u64) {
        self.reader.stop_at(end);
    }

    fn leave(&mut self) {
        let seen = self.reader.leave(&self.meter.sender);
        self.meter.leave(seen);
    }
}
