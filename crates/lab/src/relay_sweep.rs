//! A relay under growing load: what it loses, how late it delivers, and at which rate loss begins.
//!
//! For each combination of size, number of targets and number of flows, [`run`] searches the *knee*: the highest rate at which
//! the receivers miss no more than the tolerance. A rate that lost is measured once more, and counts as lossy if it lost both
//! times. Every measurement is a [`Sample`], so that the search draws the curve. Sender and receivers are one thread that takes
//! a whole processor; the knee is that of relay and machine together, and what the lab's own receivers lost is named apart.

mod loopback;
mod measure;

pub use loopback::Loopback;

use crate::About;
use load::Address;
use load::join::RelayLedger;
use load::search::{Knee, Rates, Search, Verdict};
use load::spin;
use serde::Serialize;
use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    pub combinations: Vec<Combination>,
    pub rates: Rates,
    /// Length of one measurement.
    pub duration: Duration,
    /// Share of datagrams that may be missing where nothing counts as lost, 0 to 1.
    pub tolerance: f64,
}

/// One load, but for its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Combination {
    /// Bytes of a datagram.
    pub size_bytes: usize,
    /// Addresses to which the relay sends each datagram.
    pub targets: usize,
    /// Source sockets.
    pub flows: usize,
}

impl Combination {
    /// The first of each list, and from there each list alone: how much each factor does by itself.
    pub fn one_at_a_time(sizes: &[usize], targets: &[usize], flows: &[usize]) -> Vec<Combination> {
        let (Some(&size_bytes), Some(&target), Some(&flow)) =
            (sizes.first(), targets.first(), flows.first())
        else {
            return Vec::new();
        };

        let base = Combination { size_bytes, targets: target, flows: flow };
        let sizes = sizes.iter().map(|&size_bytes| Combination { size_bytes, ..base });
        let targets = targets.iter().map(|&targets| Combination { targets, ..base });
        let flows = flows.iter().map(|&flows| Combination { flows, ..base });
        let others = sizes.chain(targets).chain(flows).filter(|one| *one != base);
        std::iter::once(base).chain(others).collect()
    }

    /// Every size with every number of targets and of flows.
    pub fn all(sizes: &[usize], targets: &[usize], flows: &[usize]) -> Vec<Combination> {
        let of = |&size_bytes: &usize| {
            let of = move |&targets: &usize| {
                flows.iter().map(move |&flows| Combination { size_bytes, targets, flows })
            };
            targets.iter().flat_map(of)
        };
        sizes.iter().flat_map(of).collect()
    }
}

/// A relay that can be measured.
pub trait Relay {
    /// Where the receivers listen; ports may be 0.
    fn receivers(&self, targets: usize) -> Vec<Address>;

    /// Makes it send everything to these targets, and says where it takes datagrams. Its counters are 0 from here on, or are
    /// those of the same relay as before.
    ///
    /// # Errors
    /// It does not start.
    fn start(&mut self, targets: &[Address]) -> Result<Address, Box<dyn StdError + Send + Sync>>;

    /// What it counted since [`Self::start`], now that nothing is sent any more; `None` if it does not say. Ends it.
    ///
    /// # Errors
    /// It does not answer.
    fn stop(&mut self) -> Result<Option<RelayLedger>, Box<dyn StdError + Send + Sync>>;
}

/// A relay that runs already and knows where to send.
#[derive(Clone)]
pub struct Elsewhere {
    /// Where it takes datagrams.
    pub to: Address,
    /// Where it sends them.
    pub receive: Vec<Address>,
}

impl Relay for Elsewhere {
    fn receivers(&self, _targets: usize) -> Vec<Address> {
        self.receive.clone()
    }

    fn start(&mut self, _targets: &[Address]) -> Result<Address, Box<dyn StdError + Send + Sync>> {
        Ok(self.to.clone())
    }

    fn stop(&mut self) -> Result<Option<RelayLedger>, Box<dyn StdError + Send + Sync>> {
        Ok(None)
    }
}

/// One rate, measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Datagrams per second that were asked for.
    pub offered_per_sec: u64,
    /// Datagrams per second that the kernel took from the sender.
    pub sent_per_sec: f64,
    pub sent: u64,
    /// Copies that should have arrived: sent, times targets.
    pub expected: u64,
    /// Different copies that arrived whole.
    pub received: u64,
    /// `expected - received`.
    pub missing: u64,
    /// `missing / expected`; 0 when nothing was sent.
    pub missing_share: f64,
    /// Copies that the kernel dropped at the lab's own receivers: not the relay's loss.
    pub dropped_at_receivers: u64,
    /// Copies that came again.
    pub duplicates: u64,
    /// From the sender's stamp to the receiver, in nanoseconds; of the slowest target at each quantile. `None` when nothing
    /// arrived.
    pub latency: Option<Quantiles>,
    /// `None` when the relay does not say.
    pub ledger: Option<RelayLedger>,
}

/// Times in nanoseconds, to three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p99_9_ns: u64,
    pub max_ns: u64,
}

/// One combination, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    pub combination: Combination,
    pub knee: Knee,
    /// By offered rate ascending; those of one rate in the order of time.
    pub samples: Vec<Sample>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sweep {
    pub about: About,
    /// Whose relay, in words.
    pub relay: String,
    pub duration_s: f64,
    pub tolerance: f64,
    pub curves: Vec<Curve>,
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub combination: Combination,
    /// From 0.
    pub number: usize,
    pub combinations: usize,
    pub offered_per_sec: u64,
}

/// Why a rate could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the relay")]
    Relay(#[source] Box<dyn StdError + Send + Sync>),
    #[error("the lab's sender or receivers")]
    Load(#[from] spin::Error),
}

/// Measures everything. `progress` is called before each measurement; setting `stop` ends it with what was finished.
///
/// # Errors
/// See [`Error`].
pub fn run(
    plan: &Plan,
    relay: &mut dyn Relay,
    stop: &AtomicBool,
    progress: &dyn Fn(Progress),
) -> Result<Vec<Curve>, Error> {
    let mut curves = Vec::new();
    let combinations = plan.combinations.len();

    for (number, &combination) in plan.combinations.iter().enumerate() {
        let mut search = Search::new(plan.rates.clone());
        let mut samples: Vec<Sample> = Vec::new();
        while let Some(offered_per_sec) =
            search.next_rate().filter(|_| !stop.load(Ordering::Relaxed))
        {
            progress(Progress { combination, number, combinations, offered_per_sec });
            let measure = || measure::one(combination, offered_per_sec, plan.duration, relay, stop);
            let measured = twice_if_lossy(measure, plan.tolerance, stop)?;
            // A measurement that was cut short says less than it seems to.
            let Some((result, measured)) = measured else { break };
            search.learn(offered_per_sec, result);
            samples.extend(measured);
        }

        samples.sort_by_key(|sample| sample.offered_per_sec);
        if !samples.is_empty() {
            curves.push(Curve { combination, knee: search.knee(), samples });
        }
    }
    Ok(curves)
}

/// Measures a rate, and once more where something was lost: other work on the machine is not the relay. `None` when it was
/// stopped meanwhile.
fn twice_if_lossy(
    mut measure: impl FnMut() -> Result<Sample, Error>,
    tolerance: f64,
    stop: &AtomicBool,
) -> Result<Option<(Verdict, Vec<Sample>)>, Error> {
    let mut samples = Vec::new();
    loop {
        let sample = measure()?;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }

        let result = verdict(&sample, tolerance);
        samples.push(sample);

        if result != Verdict::Lossy || samples.len() == 2 {
            return Ok(Some((result, samples)));
        }
    }
}

/// Below this share of the rate that was asked for, the sender, not the relay, is what is measured.
const REACHED_SHARE: f64 = 0.95;

fn verdict(sample: &Sample, tolerance: f64) -> Verdict {
    if sample.missing_share > tolerance {
        Verdict::Lossy
    } else if sample.sent_per_sec < sample.offered_per_sec as f64 * REACHED_SHARE {
        Verdict::NotReached
    } else {
        Verdict::Lossless
    }
}
