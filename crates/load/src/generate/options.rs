use super::Error;
use crate::random::Random;
use crate::{Address, Payload};
use std::net::IpAddr;
use std::time::Duration;

/// Largest UDP payload over IPv4.
pub(super) const SIZE_MAX_BYTES: usize = 65_507;

/// What to send, where, and how fast. Rate, count and duration apply to the whole run; the datagrams are distributed
/// evenly over senders, targets and flows.
#[derive(Clone, Debug)]
pub struct Options {
    pub targets: Vec<Address>,
    pub rate: Rate,
    pub limit: Limit,
    pub sizes: Sizes,
    pub payload: Payload,
    /// Source sockets per target, shared by the senders.
    pub flows: usize,
    /// Sending threads.
    pub senders: usize,
    /// Datagrams sent back to back; does not change the average rate. At least 1.
    pub burst: u64,
    /// How often each stream reports how many datagrams it has sent; it also does so at the end. `None`: never, and a
    /// receiver cannot detect that the last datagrams of a stream are lost.
    pub heartbeat: Option<Duration>,
    pub source_address: Option<IpAddr>,
    pub source_port: Option<u16>,
    /// Send buffer size to request, in bytes of the kernel's accounting.
    pub send_buffer_bytes: Option<usize>,
    pub segmentation: Segmentation,
    pub pacing: Pacing,
    /// The run id; random when absent.
    pub run: Option<u64>,
}

impl Options {
    /// Options for one flow of 200-byte binary datagrams, 1,000 per second for 10 seconds: the defaults of `weir gen`.
    pub fn to(targets: Vec<Address>) -> Options {
        Options {
            targets,
            rate: Rate::DatagramsPerSec(1_000),
            limit: Limit { count: None, duration: Some(Duration::from_secs(10)) },
            sizes: Sizes::Fixed(200),
            payload: Payload::Binary,
            flows: 1,
            senders: 1,
            burst: 1,
            heartbeat: Some(Duration::from_millis(100)),
            source_address: None,
            source_port: None,
            send_buffer_bytes: None,
            segmentation: Segmentation::Off,
            pacing: Pacing::Sleep,
            run: None,
        }
    }

    /// All datagrams of a segmented message must have the same length, and they are only contiguous if all sizes are
    /// equal.
    pub(super) fn segmentation_possible(&self) -> Segmentation {
        match self.sizes {
            Sizes::Fixed(_) => self.segmentation,
            Sizes::Uniform(..) | Sizes::Mixed(_) => Segmentation::Off,
        }
    }

    pub(super) fn validate(&self) -> Result<(), Error> {
        if self.targets.is_empty() {
            return Err(Error::NoTarget);
        }

        let (min, max) = (self.payload.size_min_bytes(), SIZE_MAX_BYTES);
        let (smallest, largest) = self.sizes.range();
        if smallest < min {
            return Err(Error::SizeTooSmall { size: smallest, min });
        }
        if largest > max {
            return Err(Error::SizeTooLarge { size: largest, max });
        }

        if self.senders == 0 || self.flows < self.senders {
            return Err(Error::Flows { flows: self.flows, senders: self.senders });
        }
        if self.flows.saturating_mul(self.targets.len()) > usize::from(u16::MAX) {
            return Err(Error::TooManyFlows { targets: self.targets.len(), flows: self.flows });
        }
        if self.source_port.is_some() && self.flows > 1 {
            return Err(Error::SourcePort { flows: self.flows });
        }

        if matches!(self.rate, Rate::DatagramsPerSec(0) | Rate::BitsPerSec(0)) {
            return Err(Error::Rate);
        }
        if self.burst == 0 {
            return Err(Error::Burst);
        }
        Ok(())
    }
}

/// How fast to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rate {
    DatagramsPerSec(u64),
    /// Bits of UDP payload.
    BitsPerSec(u64),
    /// As fast as the kernel accepts them.
    Max,
}

/// When to stop: at whichever limit is reached first. Without limits the run ends when its stop flag is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limit {
    /// Data datagrams of the whole run.
    pub count: Option<u64>,
    pub duration: Option<Duration>,
}

/// Size of datagrams in bytes, including the check data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sizes {
    Fixed(usize),
    /// All sizes from the first to the last, with equal probability.
    Uniform(usize, usize),
    /// Sizes with their weights.
    Mixed(Vec<(usize, u32)>),
}

impl Sizes {
    pub(super) fn draw(&self, random: &mut Random) -> usize {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Uniform(from, to) => from + random.below((to - from + 1) as u64) as usize,
            Sizes::Mixed(weighted) => {
                let total: u64 = weighted.iter().map(|(_, weight)| u64::from(*weight)).sum();
                let mut left = random.below(total.max(1));
                for (size, weight) in weighted {
                    match left.checked_sub(u64::from(*weight)) {
                        Some(rest) => left = rest,
                        None => return *size,
                    }
                }
                weighted[0].0
            }
        }
    }

    /// The smallest and the largest size; (0, 0) if there is none.
    pub fn range(&self) -> (usize, usize) {
        match self {
            Sizes::Fixed(size) => (*size, *size),
            // An empty range is reported as too small.
            Sizes::Uniform(from, to) if from > to => (0, 0),
            Sizes::Uniform(from, to) => (*from, *to),
            Sizes::Mixed(weighted) => {
                let sizes = weighted.iter().map(|(size, _)| *size);
                (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0))
            }
        }
    }
}

/// Whether datagrams of a fixed size are sent as `UDP_SEGMENT` messages of up to 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segmentation {
    Off,
    /// Falls back to single datagrams if sizes vary, the target is a unix socket, or the kernel refuses.
    Gso,
}

/// How a sender waits for its next slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pacing {
    /// Sleeps, which costs no CPU; because of the kernel's timer slack it wakes 50 to 100 microseconds late.
    Sleep,
    /// Spins, which takes a whole CPU; less than a microsecond late.
    Spin,
}
