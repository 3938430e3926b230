//! The other end of a UDP sink: receives its datagrams, and reports exactly how many records are missing.

mod stream;
mod window;

pub use stream::StreamReport;

use record::{PollTotals, SocketRecord, decode_datagram};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use stream::Stream;
use sys::poll::{Interest, PollSet};
use sys::recv::{ReceiveBatch, Wait};
use sys::socket::{ListenOptions, listen_udp, mem_info, set_receive_buffer};
use sys::{Errno, Source};

/// Options of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Receive buffer size to request, in bytes of the kernel's accounting: a whole poll arrives in a burst.
    pub receive_buffer_bytes: usize,
    /// Most streams to track; each takes about 2 KiB. A further one evicts the stream that has been silent longest.
    pub streams_max: usize,
}

impl ReceiverOptions {
    /// A receiver at an address, with room for 8 MiB in the kernel and for 4,096 streams.
    pub fn new(listen: SocketAddr) -> ReceiverOptions {
        ReceiverOptions { listen, receive_buffer_bytes: 8 << 20, streams_max: 4_096 }
    }
}

/// What a receiver passes on.
#[derive(Clone, Copy, Debug)]
pub enum Received<'a> {
    /// A record, never twice.
    Record(&'a SocketRecord<'a>),
    /// The totals of a poll, after all records in its datagram, and the current report on the stream.
    Totals(&'a StreamReport, &'a PollTotals<'a>),
}

/// A receiver's counters over all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Datagrams that arrived, including copies and unreadable ones.
    pub datagrams: u64,
    /// Datagrams that are damaged or not from a UDP sink. They are missing from their stream.
    pub malformed_datagrams: u64,
    /// Records in a readable datagram that could not be decoded, and were not passed on.
    pub malformed_records: u64,
    /// Streams evicted by newer ones.
    pub evicted_streams: u64,
    /// Records that were missing from those streams.
    pub evicted_records_missing: u64,
    /// Datagrams that the kernel dropped at this socket, most likely because its buffer was full: the part of the
    /// missing ones that a larger buffer would have saved.
    pub dropped_by_kernel: u64,
}

/// Receives the datagrams of any number of UDP sinks.
pub struct Receiver {
    socket: OwnedFd,
    batch: ReceiveBatch,
    set: PollSet,
    /// The kernel's wrapping drop counter at the last reading.
    dropped_before: u32,
    table: Table,
}

impl Receiver {
    /// Opens the socket.
    ///
    /// # Errors
    /// Any of `socket(2)`, `bind(2)` or the socket options.
    pub fn open(options: &ReceiverOptions) -> io::Result<Receiver> {
        let socket = listen_udp(options.listen, &ListenOptions::default())?;
        set_receive_buffer(socket.as_fd(), options.receive_buffer_bytes)?;
        Ok(Receiver::from_socket(socket, options.streams_max))
    }

    /// Takes over a bound socket.
    pub fn from_socket(socket: OwnedFd, streams_max: usize) -> Receiver {
        Receiver {
            socket,
            batch: ReceiveBatch::default(),
            set: PollSet::default(),
            dropped_before: 0,
            table: Table::new(streams_max),
        }
    }

    /// The socket: for its address, or for waiting on several.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Waits for datagrams, for at most `timeout`, passes on their contents, and returns the number of datagrams.
    ///
    /// # Errors
    /// Any of `recvmmsg(2)`, except a wait without result.
    pub fn receive(
        &mut self,
        timeout: Duration,
        mut on: impl FnMut(Received<'_>),
    ) -> io::Result<usize> {
        self.set.clear();
        self.set.add(self.socket.as_fd(), Interest::Readable);
        // An interrupted wait just ends early.
        let _ = self.set.wait(timeout);

        match self.batch.receive(self.socket.as_fd(), Wait::No) {
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(errno) => return Err(errno.into()),
        }

        let mut count = 0;
        for datagram in self.batch.datagrams() {
            self.table.take(datagram.source, datagram.bytes(), &mut on);
            count += 1;
        }
        Ok(count)
    }

    /// The counters so far.
    pub fn counts(&mut self) -> ReceiverCounts {
        // The call fails only for a bad descriptor.
        if let Ok(now) = mem_info(self.socket.as_fd()) {
            let more = now.dropped_datagrams.wrapping_sub(self.dropped_before);
            self.table.counts.dropped_by_kernel += u64::from(more);
            self.dropped_before = now.dropped_datagrams;
        }
        self.table.counts
    }

    /// Every tracked stream, in no particular order.
    pub fn streams(&self) -> impl Iterator<Item = StreamReport> {
        self.table.streams.values().map(Stream::report)
    }
}

/// The tracked streams.
struct Table {
    streams: HashMap<(Source, u64), Stream>,
    streams_max: usize,
    counts: ReceiverCounts,
}

impl Table {
    fn new(streams_max: usize) -> Table {
        Table {
            streams: HashMap::new(),
            streams_max: streams_max.max(1),
            counts: ReceiverCounts::default(),
        }
    }

    /// Processes one datagram and passes on what is new in it.
    fn take(&mut self, source: Source, bytes: &[u8], on: &mut impl FnMut(Received<'_>)) {
        self.counts.datagrams += 1;
        let now = self.counts.datagrams;
        let (Ok(view), Some(address)) = (decode_datagram(bytes), source.address()) else {
            self.counts.malformed_datagrams += 1;
            return;
        };

        let key = (source, view.stream_id);
        if self.streams.len() >= self.streams_max && !self.streams.contains_key(&key) {
            self.evict();
        }

        let stream = match self.streams.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Stream::new(address, view.stream_id)),
        };
        if !stream.note(&view, now) {
            return;
        }

        for record in view.records() {
            match record {
                Ok(record) => on(Received::Record(&record)),
                Err(_) => self.counts.malformed_records += 1,
            }
        }

        if let Some(totals) = &view.totals {
            on(Received::Totals(&stream.report(), totals));
        }
    }

    /// Evicts the stream that has been silent longest.
    fn evict(&mut self) {
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.heard_at());
        let Some(key) = oldest.map(|(key, _)| *key) else { return };

        if let Some(stream) = self.streams.remove(&key) {
            self.counts.evicted_streams += 1;
            // A forger may have chosen these numbers: they must not overflow.
            let missing = stream.report().records_missing();
            let sum = self.counts.evicted_records_missing.saturating_add(missing);
            self.counts.evicted_records_missing = sum;
        }
    }
}

#[cfg(test)]
mod tests;
