use super::{Error, HEADER_BYTES, PATTERN, Sizes, Times};
use crate::verify::{Bound, Options, Stream};
use crate::{Address, Latencies};
use serde::Serialize;
use std::os::fd::AsFd;
use sys::clock::monotonic_ns;
use sys::recv::{ReceiveBatch, Received, Wait};
use sys::socket::mem_info;

/// Room for about 200,000 datagrams of 200 bytes: half a second at the highest rates used here.
const RECEIVE_BUFFER_BYTES: usize = 256 << 20;

/// Datagrams within which late arrivals can be distinguished from duplicates: 128 KiB of memory.
const WINDOW: usize = 1 << 20;

/// What one receiver got in one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Distinct datagrams.
    pub received: u64,
    /// Repeated arrivals of a datagram.
    pub duplicates: u64,
    /// Datagrams whose number had already been passed: late or duplicate.
    pub out_of_order: u64,
    /// Datagrams whose length or bytes differ from what was sent. Not included in `received`.
    pub damaged: u64,
    /// Dropped by the kernel at the receiver's own socket: the run then says nothing about the relay.
    pub own_drops: u32,
    /// Time from sending to receiving, if recorded.
    #[serde(skip)]
    pub latencies: Option<Latencies>,
}

impl Tally {
    /// Whether each of `sent` datagrams arrived once, in order, intact.
    pub fn is_complete(&self, sent: u64) -> bool {
        let wrong = self.duplicates + self.out_of_order + self.damaged;
        self.received == sent && wrong == 0
    }
}

/// A bound receiver that counts and checks.
pub struct Receiver {
    bound: Bound,
    batch: ReceiveBatch,
    buffer_bytes: usize,
    run: u32,
    sizes: Sizes,
    /// Upper limit of the run's datagrams.
    total: u64,
    stream: Stream,
    drops_at_begin: u32,
    tally: Tally,
}

impl Receiver {
    /// Opens a receiver that reads at most `buffer_bytes` of each datagram. For longer ones it checks the beginning and
    /// that there is more: copying whole 64,000-byte datagrams would cost the load more than the relay.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn open(address: &Address, buffer_bytes: usize) -> Result<Receiver, Error> {
        let options =
            Options { receive_buffer_bytes: RECEIVE_BUFFER_BYTES, ..Options::on(Vec::new()) };
        let bound = Bound::open(address, &options)
            .map_err(|source| Error::Listen { address: address.clone(), source })?;

        Ok(Receiver {
            bound,
            batch: ReceiveBatch::with_buffer_bytes(buffer_bytes),
            buffer_bytes,
            run: 0,
            sizes: Sizes::Equal(HEADER_BYTES),
            total: 0,
            stream: Stream::new(0),
            drops_at_begin: 0,
            tally: Tally::default(),
        })
    }

    /// Where it is bound, with the port that the kernel chose for port 0.
    pub fn address(&self) -> &Address {
        &self.bound.address
    }

    pub(super) fn received(&self) -> u64 {
        self.stream.received
    }

    /// Resets for a run of at most `total` datagrams. Datagrams of other runs are ignored.
    pub(super) fn begin(&mut self, run: u32, sizes: Sizes, total: u64, times: Times) {
        (self.run, self.sizes) = (run, sizes);
        (self.total, self.stream) = (total, Stream::new(WINDOW));
        let latencies = (times == Times::Note).then(Latencies::new);
        self.tally = Tally { latencies, ..Tally::default() };
        self.drops_at_begin = self.drops();
    }

    /// Returns this run's tally.
    pub(super) fn finish(&mut self) -> Tally {
        let Stream { received, duplicate, reordered, beyond_window, .. } = self.stream;
        Tally {
            received,
            duplicates: duplicate,
            out_of_order: reordered + duplicate + beyond_window,
            own_drops: self.drops().wrapping_sub(self.drops_at_begin),
            ..std::mem::take(&mut self.tally)
        }
    }

    fn drops(&self) -> u32 {
        mem_info(self.bound.socket.as_fd()).map_or(0, |info| info.dropped_datagrams)
    }

    /// Receives one batch, if there is one, and returns its size.
    pub fn receive(&mut self) -> usize {
        let Ok(count) = self.batch.receive(self.bound.socket.as_fd(), Wait::No) else { return 0 };
        let now_ns = monotonic_ns();
        for datagram in self.batch.datagrams() {
            let Some((run, sequence, sent_ns)) = header(datagram.bytes()) else { continue };
            if run != self.run || sequence >= self.total {
                continue;
            }

            let tally = &mut self.tally;
            if !is_whole(&datagram, self.sizes.datagram_bytes(sequence), self.buffer_bytes) {
                tally.damaged += 1;
                continue;
            }

            self.stream.arrive(sequence);
            if let Some(latencies) = &mut tally.latencies {
                latencies.record(now_ns.saturating_sub(sent_ns));
            }
        }
        count
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.bound.admit_nothing();
    }
}

fn header(bytes: &[u8]) -> Option<(u32, u64, u64)> {
    let (run, rest) = bytes.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (sent_ns, _) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*run), u64::from_le_bytes(*sequence), u64::from_le_bytes(*sent_ns)))
}

/// Whether it has the length that was sent and, after the header, bytes from [`PATTERN`], as far as the buffer shows.
fn is_whole(datagram: &Received<'_>, expected: usize, buffer_bytes: usize) -> bool {
    let bytes = datagram.bytes();
    let has_length = bytes.len() == expected.min(buffer_bytes)
        && datagram.truncated == (expected > buffer_bytes);

    let Some(body) = bytes.get(HEADER_BYTES..) else { return false };
    let begin = body.first().map_or(0, |first| usize::from(*first));
    has_length && body.chunks(256).all(|part| *part == PATTERN[begin..begin + part.len()])
}
