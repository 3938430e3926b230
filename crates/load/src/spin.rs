//! The generator and receivers for finding the highest rate: one spinning thread.
//!
//! In turn, it sends what is due and then empties the receivers, without ever sleeping. So the load costs one CPU at any rate,
//! the relay does not pay for waking up a receiver, and generator and receivers never wait for each other. Every datagram carries
//! a sequence number and its time of sending; every receiver checks number, order and length of all of them. [`crate::generate`]
//! and [`crate::verify`] also check every byte. With one CPU for the load and one for the C loop of `bench/`, and 200 bytes to
//! two receivers, both sustain about what that loop can take (300,000 datagrams per second and more). In addition, a run here
//! knows when its last datagram arrived, and so whether the relay kept up.

mod receiver;
mod sender;

pub use receiver::{Receiver, Tally};

use crate::Address;
use sender::Sender;
use serde::Serialize;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::clock::monotonic_ns;

/// Bytes at the start of every datagram: run (4), sequence number (8), time of sending (8).
pub const HEADER_BYTES: usize = 20;

/// The bytes after the header, repeated, starting anywhere within the first 256 bytes: a receiver can derive the rest of a
/// datagram from its first byte.
const PATTERN: [u8; 512] = {
    let mut bytes = [0; 512];
    let mut n = 0;
    while n < bytes.len() {
        bytes[n] = n as u8;
        n += 1;
    }
    bytes
};

/// Sending stops after this many times the offer's duration: the generator cannot sustain the rate.
const PATIENCE: u32 = 2;

/// Sizes of the datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Sizes {
    Equal(usize),
    /// Uniform over this range in bytes, inclusive. Neighbors are unlikely to be equal.
    Varying {
        min: usize,
        max: usize,
    },
}

impl Sizes {
    /// Size in bytes of the datagram with this sequence number.
    pub fn datagram_bytes(self, sequence: u64) -> usize {
        match self {
            Sizes::Equal(bytes) => bytes,
            Sizes::Varying { min, max } => {
                // Fibonacci hashing: spreads consecutive numbers over the whole range.
                let hash = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                min + hash as usize % (max - min + 1)
            }
        }
    }

    /// Largest size in bytes.
    pub fn max_bytes(self) -> usize {
        match self {
            Sizes::Equal(bytes) | Sizes::Varying { max: bytes, .. } => bytes,
        }
    }

    /// Average size in bytes.
    pub fn mean_bytes(self) -> usize {
        match self {
            Sizes::Equal(bytes) => bytes,
            Sizes::Varying { min, max } => min.midpoint(max),
        }
    }

    /// Datagrams to pass to the kernel per call: few enough not to be bursty, enough to be cheap.
    pub fn burst(self) -> usize {
        (45_000 / self.max_bytes()).clamp(1, 32)
    }
}

/// The load offered to a relay, or directly to a receiver.
#[derive(Clone, Debug)]
pub struct Offer {
    pub to: Address,
    /// Source sockets, which take turns burst by burst; at least 1.
    pub flows: usize,
    pub rate_per_sec: f64,
    pub duration: Duration,
    pub sizes: Sizes,
    /// Due datagrams are sent once there are this many; at most [`sys::send::BATCH`].
    pub burst: usize,
    /// A datagram that is still missing this long after the last arrival is lost.
    pub quiet: Duration,
    pub times: Times,
}

/// Whether receivers record latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    Note,
    Ignore,
}

/// The result of an offer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    pub offered_per_sec: f64,
    /// The rate that the generator achieved; below the offer if its CPU was too slow or not exclusive.
    pub sent_per_sec: f64,
    pub sent: u64,
    /// Datagrams per second at the slowest receiver during the last four fifths of the time.
    pub delivered_per_sec: f64,
    /// Time from the last datagram sent to the last one received.
    pub drain_ms: f64,
    pub elapsed_ns: u64,
    #[serde(rename = "sinks")]
    pub receivers: Vec<Tally>,
}

impl Outcome {
    /// Distinct copies that arrived, over all receivers.
    pub fn copies(&self) -> u64 {
        self.receivers.iter().map(|tally| tally.received).sum()
    }

    /// Copies that did not arrive, over all receivers.
    pub fn lost(&self) -> u64 {
        (self.sent * self.receivers.len() as u64).saturating_sub(self.copies())
    }

    /// Whether every receiver got each datagram once, in order, intact.
    pub fn is_complete(&self) -> bool {
        self.receivers.iter().all(|tally| tally.is_complete(self.sent))
    }
}

/// Why the load could not be offered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address}")]
    Listen {
        address: Address,
        #[source]
        source: io::Error,
    },
    #[error("cannot open a socket to {address}")]
    Open {
        address: Address,
        #[source]
        source: io::Error,
    },
    #[error("cannot send to {address}")]
    Send {
        address: Address,
        #[source]
        source: io::Error,
    },
}

/// Sends the load and receives all of it, on the calling thread, until everything has arrived, nothing arrives any more, or
/// `stop` is set.
///
/// # Errors
/// A socket cannot be opened, or accepts nothing.
pub fn run(
    offer: &Offer,
    run: u32,
    receivers: &mut [Receiver],
    stop: &AtomicBool,
) -> Result<Outcome, Error> {
    let mut sender = Sender::open(offer, run)?;
    let total = (offer.rate_per_sec * offer.duration.as_secs_f64()).ceil() as u64;
    for receiver in &mut *receivers {
        receiver.begin(run, offer.sizes, total, offer.times);
    }

    let begin_ns = monotonic_ns();
    let warm_ns = begin_ns + offer.duration.as_nanos() as u64 / 5;
    let give_up_ns = begin_ns + (offer.duration * PATIENCE).as_nanos() as u64;
    let (mut sent, mut last_ns) = (0, begin_ns);
    // A time, and how many datagrams the slowest receiver had by then.
    let (mut warm, mut end) = (None, None);
    loop {
        let now_ns = monotonic_ns();
        let is_over = sent == total || now_ns > give_up_ns || stop.load(Ordering::Relaxed);
        if !is_over {
            let due = ((now_ns - begin_ns) as f64 * offer.rate_per_sec / 1e9) as u64;
            let count = due.min(total).saturating_sub(sent).min(offer.burst as u64);
            if count == offer.burst as u64 || sent + count == total {
                sent += sender.send(sent, count as usize, now_ns, give_up_ns, stop)? as u64;
            }
        }

        let fewest = drain(receivers, now_ns, &mut last_ns);
        if now_ns >= warm_ns && warm.is_none() {
            warm = Some((now_ns, fewest));
        }

        if is_over {
            if end.is_none() {
                end = Some((now_ns, fewest));
                last_ns = now_ns;
            }
            let is_quiet = now_ns.saturating_sub(last_ns) > offer.quiet.as_nanos() as u64;
            if fewest >= sent || is_quiet || stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }

    let (end_ns, at_end) = end.unwrap_or((begin_ns, 0));
    let (warm_ns, at_warm) = warm.unwrap_or((begin_ns, 0));
    let window_s = end_ns.saturating_sub(warm_ns).max(1) as f64 / 1e9;
    Ok(Outcome {
        offered_per_sec: offer.rate_per_sec,
        sent_per_sec: sent as f64 / ((end_ns - begin_ns).max(1) as f64 / 1e9),
        sent,
        delivered_per_sec: at_end.saturating_sub(at_warm) as f64 / window_s,
        drain_ms: last_ns.saturating_sub(end_ns) as f64 / 1e6,
        elapsed_ns: monotonic_ns() - begin_ns,
        receivers: receivers.iter_mut().map(Receiver::finish).collect(),
    })
}

/// Receives one batch on every receiver; returns the count of the slowest one.
fn drain(receivers: &mut [Receiver], now_ns: u64, last_ns: &mut u64) -> u64 {
    let mut fewest = u64::MAX;
    for receiver in receivers {
        if receiver.receive() > 0 {
            *last_ns = now_ns;
        }
        fewest = fewest.min(receiver.received());
    }
    fewest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsFd;

    static STOP: AtomicBool = AtomicBool::new(false);

    fn offer(to: &Receiver, sizes: Sizes) -> Offer {
        Offer {
            to: to.address().clone(),
            flows: 3,
            rate_per_sec: 5_000.0,
            duration: Duration::from_millis(200),
            sizes,
            burst: 8,
            quiet: Duration::from_millis(100),
            times: Times::Note,
        }
    }

    fn receiver() -> Receiver {
        Receiver::open(&Address::Udp((Ipv4Addr::LOCALHOST, 0).into()), 4_096).unwrap()
    }

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
        for sizes in [Sizes::Varying { min: 64, max: 336 }, Sizes::Equal(200)] {
            let mut receivers = [receiver()];
            let outcome = run(&offer(&receivers[0], sizes), 7, &mut receivers, &STOP).unwrap();
            assert!(outcome.is_complete(), "{outcome:?}");
            assert_eq!((outcome.sent, outcome.lost()), (1_000, 0));
            let latencies = outcome.receivers[0].latencies.as_ref().unwrap();
            assert_eq!(latencies.report().samples, 1_000);
        }
    }

    #[test]
    fn a_unix_socket_is_a_target_too_and_its_file_goes_with_the_receiver() {
        let path = std::env::temp_dir().join(format!("weir-load-spin-{}.sock", std::process::id()));
        let mut receivers = [Receiver::open(&Address::Unix(path.clone()), 4_096).unwrap()];
        let outcome = run(&offer(&receivers[0], Sizes::Equal(64)), 7, &mut receivers, &STOP);
        assert!(outcome.unwrap().is_complete());
        drop(receivers);
        assert!(!path.exists());
    }

    #[test]
    fn a_receiver_that_gets_nothing_has_lost_everything() {
        let mut receivers = [receiver(), receiver()];
        let outcome =
            run(&offer(&receivers[0], Sizes::Equal(64)), 7, &mut receivers, &STOP).unwrap();
        assert_eq!((outcome.copies(), outcome.lost()), (1_000, 1_000));
        assert!(!outcome.is_complete());
    }

    type Damage = fn(&mut [u8]) -> &[u8];

    #[test]
    fn what_a_relay_cuts_or_changes_is_lost() {
        let damages: [Damage; 2] = [
            |bytes| &bytes[..bytes.len() - 1],
            |bytes| {
                *bytes.last_mut().unwrap() ^= 1;
                bytes
            },
        ];
        for damage in damages {
            let relay = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            relay.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            // Room for everything: on a busy machine it may not run while all of it is sent.
            sys::socket::set_receive_buffer(relay.as_fd(), 4 << 20).unwrap();
            let mut receivers = [receiver()];
            let to = receivers[0].address().to_string();
            let sizes = Sizes::Varying { min: 64, max: 336 };
            let address = Address::Udp(relay.local_addr().unwrap());
            let offer = Offer { to: address, ..offer(&receivers[0], sizes) };

            let outcome = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let to = to.trim_start_matches("udp://");
                    let mut buffer = [0; 512];
                    for number in 0..1_000 {
                        let len = relay.recv(&mut buffer).unwrap();
                        let bytes = &mut buffer[..len];
                        let sent = if number % 10 == 0 { damage(bytes) } else { bytes };
                        relay.send_to(sent, to).unwrap();
                    }
                });
                run(&offer, 7, &mut receivers, &STOP).unwrap()
            });
            assert_eq!((outcome.copies(), outcome.lost()), (900, 100));
            assert_eq!(outcome.receivers[0].damaged, 100);
        }
    }

    #[test]
    fn a_relay_that_takes_nothing_is_a_figure_and_not_the_end() {
        let path = std::env::temp_dir().join(format!("weir-load-full-{}.sock", std::process::id()));
        let relay = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let address = Address::Unix(path.clone());
        let offer = Offer { to: address, ..offer(&receiver(), Sizes::Equal(64)) };
        let outcome = run(&offer, 7, &mut [receiver()], &STOP);
        drop(relay);
        std::fs::remove_file(path).unwrap();
        let outcome = outcome.unwrap();
        assert!((1..1_000).contains(&outcome.sent), "{outcome:?}");
        assert_eq!(outcome.lost(), outcome.sent);
    }

    #[test]
    fn a_stop_ends_it_where_nobody_listens() {
        let gone = receiver();
        let offer = offer(&gone, Sizes::Equal(64));
        drop(gone);
        let stop = AtomicBool::new(true);
        assert_eq!(run(&offer, 7, &mut [receiver()], &stop).unwrap().sent, 0);
        let outcome = run(&offer, 7, &mut [receiver()], &STOP).unwrap();
        assert_eq!((outcome.sent, outcome.copies()), (1_000, 0), "what is refused is lost");
    }
}
