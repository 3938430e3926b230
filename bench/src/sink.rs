//! A receiver that counts and checks.

use crate::load::{HEADER_BYTES, Sizes};
use anyhow::Context;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use sys::clock::monotonic_ns;
use sys::recv::{ReceiveBatch, Received, Wait};
use sys::socket::{
    ListenOptions, LocalAddress, listen_udp, local_address, mem_info, set_receive_buffer,
};

/// Room for about 200,000 datagrams of 200 bytes: half a second of anything that is offered here.
const RECEIVE_BUFFER_BYTES: usize = 256 << 20;

/// What one receiver got in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    pub(crate) received: u64,
    /// Sequence numbers that were jumped over; those that came later count as out of order as well.
    pub(crate) missing: u64,
    /// Datagrams with a number that was passed already: late or double.
    pub(crate) out_of_order: u64,
    pub(crate) wrong_length: u64,
    /// Dropped by the kernel at the receiver's own socket: then the run says nothing about the relay.
    pub(crate) own_drops: u32,
    /// Nanoseconds from sending to receiving, unsorted.
    #[serde(skip)]
    pub(crate) latencies_ns: Vec<u32>,
}

impl Tally {
    /// Whether each of `sent` datagrams came once, in order, whole.
    pub(crate) fn is_complete(&self, sent: u64) -> bool {
        self.received == sent && self.missing + self.out_of_order + self.wrong_length == 0
    }
}

/// A bound receiver.
pub(crate) struct Sink {
    socket: OwnedFd,
    addr: SocketAddr,
    batch: ReceiveBatch,
    buffer_bytes: usize,
    run: u32,
    sizes: Sizes,
    next: u64,
    drops_at_begin: u32,
    tally: Tally,
}

impl Sink {
    /// Opens a receiver that reads at most `buffer_bytes` of each datagram. Of longer ones it checks the start and that
    /// there is more: copying all of a 64,000-byte datagram would cost the load more than the relay.
    pub(crate) fn open(addr: IpAddr, buffer_bytes: usize) -> anyhow::Result<Sink> {
        let any = SocketAddr::new(addr, 0);
        let socket = listen_udp(any, &ListenOptions::default()).context("opening a receiver")?;
        set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER_BYTES).context("a receive buffer")?;
        let Some(LocalAddress::Inet(addr)) = local_address(socket.as_fd()) else {
            anyhow::bail!("a receiver has no address");
        };
        Ok(Sink {
            socket,
            addr,
            batch: ReceiveBatch::with_buffer_bytes(buffer_bytes),
            buffer_bytes,
            run: 0,
            sizes: Sizes::Equal(HEADER_BYTES),
            next: 0,
            drops_at_begin: 0,
            tally: Tally::default(),
        })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn received(&self) -> u64 {
        self.tally.received
    }

    /// Starts over for a run and notes the latency of its first `latency_room` datagrams. What arrives of other runs is
    /// ignored.
    pub(crate) fn begin(&mut self, run: u32, sizes: Sizes, latency_room: usize) {
        self.run = run;
        self.sizes = sizes;
        self.next = 0;
        self.tally = Tally { latencies_ns: Vec::with_capacity(latency_room), ..Tally::default() };
        self.drops_at_begin = self.drops();
    }

    /// What this run's tally is.
    pub(crate) fn finish(&mut self) -> Tally {
        self.tally.own_drops = self.drops().wrapping_sub(self.drops_at_begin);
        std::mem::take(&mut self.tally)
    }

    fn drops(&self) -> u32 {
        mem_info(self.socket.as_fd()).map_or(0, |info| info.dropped_datagrams)
    }

    /// Takes one batch, if there is one, and returns its size.
    pub(crate) fn receive(&mut self) -> usize {
        let Ok(count) = self.batch.receive(self.socket.as_fd(), Wait::No) else { return 0 };
        let now_ns = monotonic_ns();
        for datagram in self.batch.datagrams() {
            let Some((run, sequence, sent_ns)) = header(datagram.bytes()) else { continue };
            if run != self.run {
                continue;
            }
            self.tally.received += 1;
            if !has_length(&datagram, self.sizes.datagram_bytes(sequence), self.buffer_bytes) {
                self.tally.wrong_length += 1;
            }
            if sequence < self.next {
                self.tally.out_of_order += 1;
            } else {
                self.tally.missing += sequence - self.next;
                self.next = sequence + 1;
            }
            let latencies_ns = &mut self.tally.latencies_ns;
            if latencies_ns.len() < latencies_ns.capacity() {
                let latency_ns = now_ns.saturating_sub(sent_ns);
                latencies_ns.push(u32::try_from(latency_ns).unwrap_or(u32::MAX));
            }
        }
        count
    }
}

fn header(bytes: &[u8]) -> Option<(u32, u64, u64)> {
    let (run, rest) = bytes.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (sent_ns, _) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*run), u64::from_le_bytes(*sequence), u64::from_le_bytes(*sent_ns)))
}

fn has_length(datagram: &Received<'_>, expected: usize, buffer_bytes: usize) -> bool {
    datagram.bytes().len() == expected.min(buffer_bytes)
        && datagram.truncated == (expected > buffer_bytes)
}
