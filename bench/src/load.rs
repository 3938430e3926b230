//! The generator and the receivers: one thread that spins.
//!
//! It sends what is due and then empties the receivers, in turn, without ever sleeping. So the load costs one processor
//! whatever the rate is, no wake-up of a receiver is charged to the relay, and generator and receivers never wait for each
//! other. Every datagram carries a sequence number and the time at which it was sent; every receiver checks order and
//! length of all of them.

use crate::sink::{Sink, Tally};
use anyhow::Context;
use serde::Serialize;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use sys::clock::monotonic_ns;
use sys::send::{BATCH, Message, send_messages};
use sys::socket::{SendOptions, connect_udp};

/// Bytes at the start of every datagram: run (4), sequence number (8), time of sending (8).
pub(crate) const HEADER_BYTES: usize = 20;

/// A run has ended when nothing has arrived for so long after the last datagram was sent.
const QUIET: Duration = Duration::from_millis(100);

/// How long the datagrams are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Sizes {
    Equal(usize),
    /// Evenly spread over this range, in bytes, both ends included. No two neighbours are likely to be equal.
    Varying {
        min: usize,
        max: usize,
    },
}

impl Sizes {
    /// Length of the datagram with this sequence number, in bytes.
    pub(crate) fn datagram_bytes(self, sequence: u64) -> usize {
        match self {
            Sizes::Equal(bytes) => bytes,
            Sizes::Varying { min, max } => {
                // Fibonacci hashing: consecutive numbers spread over the whole range.
                let hash = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                min + hash as usize % (max - min + 1)
            }
        }
    }

    pub(crate) fn max_bytes(self) -> usize {
        match self {
            Sizes::Equal(bytes) | Sizes::Varying { max: bytes, .. } => bytes,
        }
    }

    pub(crate) fn mean_bytes(self) -> usize {
        match self {
            Sizes::Equal(bytes) => bytes,
            Sizes::Varying { min, max } => min.midpoint(max),
        }
    }

    /// Datagrams handed to the kernel with one call: few enough to be no burst, enough to be cheap.
    pub(crate) fn burst(self) -> usize {
        (45_000 / self.max_bytes()).clamp(1, 32)
    }
}

/// What is offered to a relay, or to a receiver directly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) to: SocketAddr,
    pub(crate) rate_per_sec: f64,
    pub(crate) duration: Duration,
    pub(crate) sizes: Sizes,
    /// Datagrams that are due are sent once there are so many of them.
    pub(crate) burst: usize,
    pub(crate) latencies: Latencies,
}

/// Whether receivers note how long each datagram took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Latencies {
    Keep,
    Ignore,
}

/// What became of an offer.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) offered_per_sec: f64,
    /// What the generator managed; below the offer when its processor was not fast enough or not its own.
    pub(crate) sent_per_sec: f64,
    pub(crate) sent: u64,
    /// Datagrams a second at the slowest receiver during the last four fifths of the time.
    pub(crate) delivered_per_sec: f64,
    /// From the last datagram sent to the last one received.
    pub(crate) drain_ms: f64,
    pub(crate) elapsed_ns: u64,
    pub(crate) sinks: Vec<Tally>,
}

impl Outcome {
    /// Copies that arrived, all receivers together.
    pub(crate) fn copies(&self) -> u64 {
        self.sinks.iter().map(|sink| sink.received).sum()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.sinks.iter().all(|sink| sink.is_complete(self.sent))
    }
}

/// Offers load and receives all of it. Call it on the thread that is pinned to the load's processor.
pub(crate) fn run(offer: &Offer, run: u32, sinks: &mut [Sink]) -> anyhow::Result<Outcome> {
    let mut sender = Sender::open(offer, run)?;
    let total = (offer.rate_per_sec * offer.duration.as_secs_f64()).ceil() as u64;
    for sink in &mut *sinks {
        let room = if offer.latencies == Latencies::Keep { total as usize } else { 0 };
        sink.begin(run, offer.sizes, room);
    }
    let begin_ns = monotonic_ns();
    let warm_ns = begin_ns + offer.duration.as_nanos() as u64 / 5;
    let (mut sent, mut end_ns, mut last_ns) = (0, 0, begin_ns);
    let (mut warm, mut at_end) = (None, (0, 0));
    loop {
        let now_ns = monotonic_ns();
        if sent < total {
            let due = ((now_ns - begin_ns) as f64 * offer.rate_per_sec / 1e9) as u64;
            let count = due.min(total).saturating_sub(sent).min(offer.burst as u64);
            if count == offer.burst as u64 || sent + count == total {
                sender.send(sent, count as usize, now_ns)?;
                sent += count;
            }
        }
        let fewest = drain(sinks, now_ns, &mut last_ns);
        if now_ns >= warm_ns && warm.is_none() {
            warm = Some((now_ns, fewest));
        }
        if sent == total {
            if end_ns == 0 {
                (end_ns, last_ns) = (now_ns, now_ns);
                at_end = (now_ns, fewest);
            }
            let is_quiet = now_ns.saturating_sub(last_ns) > QUIET.as_nanos() as u64;
            if fewest >= total || is_quiet {
                break;
            }
        }
    }
    let (warm_at_ns, warm_count) = warm.unwrap_or((begin_ns, 0));
    let window_s = at_end.0.saturating_sub(warm_at_ns).max(1) as f64 / 1e9;
    Ok(Outcome {
        offered_per_sec: offer.rate_per_sec,
        sent_per_sec: sent as f64 / ((end_ns - begin_ns).max(1) as f64 / 1e9),
        sent,
        delivered_per_sec: at_end.1.saturating_sub(warm_count) as f64 / window_s,
        drain_ms: last_ns.saturating_sub(end_ns) as f64 / 1e6,
        elapsed_ns: monotonic_ns() - begin_ns,
        sinks: sinks.iter_mut().map(Sink::finish).collect(),
    })
}

/// Takes one batch from every receiver; returns what the slowest has by now.
fn drain(sinks: &mut [Sink], now_ns: u64, last_ns: &mut u64) -> u64 {
    let mut fewest = u64::MAX;
    for sink in sinks {
        if sink.receive() > 0 {
            *last_ns = now_ns;
        }
        fewest = fewest.min(sink.received());
    }
    fewest
}

struct Sender {
    socket: OwnedFd,
    sizes: Sizes,
    run: u32,
    /// The datagrams of one burst, one behind the other.
    payload: Vec<u8>,
}

impl Sender {
    fn open(offer: &Offer, run: u32) -> anyhow::Result<Sender> {
        let options = SendOptions { send_buffer_bytes: Some(8 << 20), ..SendOptions::default() };
        let socket = connect_udp(offer.to, &options).context("opening the generator's socket")?;
        let payload = (0..BATCH * offer.sizes.max_bytes()).map(|n| n as u8).collect();
        Ok(Sender { socket, sizes: offer.sizes, run, payload })
    }

    fn send(&mut self, first: u64, count: usize, now_ns: u64) -> anyhow::Result<()> {
        let mut ranges: [Range<usize>; BATCH] = std::array::from_fn(|_| 0..0);
        let mut start = 0;
        for (range, sequence) in ranges[..count].iter_mut().zip(first..) {
            let end = start + self.sizes.datagram_bytes(sequence);
            let datagram = &mut self.payload[start..end];
            datagram[..4].copy_from_slice(&self.run.to_le_bytes());
            datagram[4..12].copy_from_slice(&sequence.to_le_bytes());
            datagram[12..HEADER_BYTES].copy_from_slice(&now_ns.to_le_bytes());
            *range = start..end;
            start = end;
        }
        // Equal datagrams go as one UDP_SEGMENT message, which the kernel takes apart before it queues them at the relay's
        // socket (net/ipv4/udp.c, udp_queue_rcv_skb). The relay reads single datagrams as ever, and the generator, which
        // would be the limit otherwise, needs a fraction of the time.
        let is_run = matches!(self.sizes, Sizes::Equal(_)) && count > 1;
        let messages: [Message<'_>; BATCH] = std::array::from_fn(|n| {
            if is_run && n == 0 {
                Message::run(&self.payload[..start], ranges[0].len() as u16)
            } else {
                Message::single(&self.payload[ranges[n].clone()])
            }
        });
        let mut rest = &messages[..if is_run { 1 } else { count }];
        while !rest.is_empty() {
            match send_messages(self.socket.as_fd(), rest) {
                Ok(taken) => rest = &rest[taken..],
                // Nothing listened there a moment ago, or the send buffer is full: the same datagram goes again.
                Err(sys::Errno::CONNREFUSED | sys::Errno::AGAIN) => {}
                Err(errno) => anyhow::bail!("sending to the relay: {errno}"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn lengths_vary_evenly_around_their_mean() {
        let sizes = Sizes::Varying { min: 64, max: 336 };
        let lens: Vec<_> = (0..100_000).map(|n| sizes.datagram_bytes(n)).collect();
        let mean = lens.iter().sum::<usize>() / lens.len();
        assert!((195..=205).contains(&mean), "{mean}");
        assert!(lens.iter().all(|len| (64..=336).contains(len)));
        let equal = lens.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(equal < 1_000, "{equal}");
    }

    #[test]
    fn a_direct_run_is_complete() {
        let mut sinks = [Sink::open(Ipv4Addr::LOCALHOST.into(), 4_096).unwrap()];
        let offer = Offer {
            to: sinks[0].addr(),
            rate_per_sec: 5_000.0,
            duration: Duration::from_millis(200),
            sizes: Sizes::Varying { min: 64, max: 336 },
            burst: 8,
            latencies: Latencies::Keep,
        };
        let outcome = run(&offer, 7, &mut sinks).unwrap();
        assert!(outcome.is_complete(), "{outcome:?}");
        assert_eq!(outcome.sent, 1_000);
        assert_eq!(outcome.sinks[0].latencies_ns.len(), 1_000);
    }
}
