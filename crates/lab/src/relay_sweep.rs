//! A relay under growing load: its losses, its latency, and the rate at which loss begins.
//!
//! For each combination of size, number of targets and number of flows, [`run`] searches the *knee*: the highest rate at which
//! the share of missing datagrams stays within the tolerance. A lossy rate is measured again, and counts as lossy only if it
//! lost both times. Every measurement is a [`Sample`], so the search itself yields the points of the curve. Sender and
//! receivers share one thread that occupies a whole CPU. The knee describes relay and machine together; losses at the lab's own
//! receivers are reported separately.

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
    /// Share of missing datagrams, 0 to 1, up to which a rate counts as free of loss.
    pub tolerance: f64,
}

/// One load, without its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Combination {
    /// Size of a datagram in bytes.
    pub size_bytes: usize,
    /// Number of addresses to which the relay sends each datagram.
    pub targets: usize,
    /// Number of source sockets.
    pub flows: usize,
}

impl Combination {
    /// Starts with the first value of each list and varies one list at a time: shows the effect of each factor separately.
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
    /// The addresses where the receivers listen; ports may be 0.
    fn receivers(&self, targets: usize) -> Vec<Address>;

    /// Makes the relay send everything to these targets, and returns the address where it receives datagrams. From now on its
    /// counters start at 0, or continue from those of the same relay.
    ///
    /// # Errors
    /// The relay does not start.
    fn start(&mut self, targets: &[Address]) -> Result<Address, Box<dyn StdError + Send + Sync>>;

    /// The relay's counters since [`Self::start`], now that nothing is sent any more; `None` if it does not report them. Ends
    /// the relay.
    ///
    /// # Errors
    /// The relay does not answer.
    fn stop(&mut self) -> Result<Option<RelayLedger>, Box<dyn StdError + Send + Sync>>;
}

/// A relay that already runs and knows where to send.
#[derive(Clone)]
pub struct Elsewhere {
    /// Where the relay receives datagrams.
    pub to: Address,
    /// Where the relay sends datagrams.
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

/// One measurement at one rate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Requested datagrams per second.
    pub offered_per_sec: u64,
    /// Datagrams per second that the kernel accepted from the sender.
    pub sent_per_sec: f64,
    pub sent: u64,
    /// Copies that should have arrived: sent datagrams times targets.
    pub expected: u64,
    /// Distinct copies that arrived completely.
    pub received: u64,
    /// `expected - received`.
    pub missing: u64,
    /// `missing / expected`; 0 when nothing was sent.
    pub missing_share: f64,
    /// Copies that the kernel dropped at the lab's own receivers: not a loss by the relay.
    pub dropped_at_receivers: u64,
    /// Copies that arrived again.
    pub duplicates: u64,
    /// Time from the sender's timestamp to the receiver, in nanoseconds; each quantile is that of the slowest target. `None` if
    /// nothing arrived.
    pub latency: Option<Quantiles>,
    /// `None` if the relay does not report its counters.
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

/// All measurements of one combination.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    pub combination: Combination,
    pub knee: Knee,
    /// By offered rate in ascending order; samples of one rate in the order of time.
    pub samples: Vec<Sample>,
}

/// All measurements and their settings.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sweep {
    pub about: About,
    /// A short description of the relay.
    pub relay: String,
    pub duration_s: f64,
    pub tolerance: f64,
    pub curves: Vec<Curve>,
}

/// The progress of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub combination: Combination,
    /// Counted from 0.
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

/// Measures everything. `progress` is called before each measurement. Setting `stop` ends the sweep with the results up to
/// then.
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
            // A measurement that was cut short is not reliable.
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

/// Measures a rate, and measures it again if something was lost, because other work on the machine may be the cause. `None` if
/// stopped in the meantime.
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

/// Below this share of the requested rate, the measurement describes the sender, not the relay.
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
