//! Which datagrams a target takes: by source, by sample, and by rate.

use crate::prefix::PrefixSet;
use crate::{Sample, SampleBy, TargetOptions};
use ledger::Reason;
use std::num::NonZeroU32;
use sys::Source;

/// The filters of one target, and their state.
#[derive(Debug)]
pub(crate) struct Gate {
    only_sources: PrefixSet,
    sample: Option<Sample>,
    bucket: Option<Bucket>,
    random: u64,
}

impl Gate {
    /// `seed` decides which datagrams a random sample takes.
    pub(crate) fn new(options: &TargetOptions, seed: u64) -> Gate {
        Gate {
            only_sources: PrefixSet::new(&options.only_sources),
            sample: options.sample,
            bucket: options.rate_limit_per_sec.map(Bucket::new),
            random: mix(seed | 1),
        }
    }

    /// Whether a target with these options needs sources.
    pub(crate) fn asks_for_sources(options: &TargetOptions) -> bool {
        let samples_by_source = options.sample.is_some_and(|sample| sample.by == SampleBy::Source);
        !options.only_sources.is_empty() || samples_by_source
    }

    /// Whether every datagram passes, so that none needs to be checked.
    pub(crate) fn is_open(&self) -> bool {
        self.only_sources.is_empty() && self.sample.is_none() && self.bucket.is_none()
    }

    /// Decides about one datagram. Call it once per datagram: a second call would count twice. A datagram with an unknown source
    /// was received before any target asked for sources. It passes wherever the source decides.
    ///
    /// # Errors
    /// The reason why the datagram does not pass.
    pub(crate) fn decide(&mut self, source: &Source, now_ns: u64) -> Result<(), Reason> {
        let is_listed = |sources: &PrefixSet| source.is_unknown() || sources.contains(source);
        if !self.only_sources.is_empty() && !is_listed(&self.only_sources) {
            return Err(Reason::Filtered);
        }

        if let Some(sample) = self.sample {
            let ticket = match sample.by {
                SampleBy::Random => self.next_random(),
                SampleBy::Source => source.ip_bytes().map_or(0, hash_of_address),
            };
            if !ticket.is_multiple_of(u64::from(sample.one_in.get())) {
                return Err(Reason::Sampled);
            }
        }

        // Checked last: datagrams that were filtered or sampled out use up no credit.
        let has_credit = self.bucket.as_mut().is_none_or(|bucket| bucket.take(now_ns));
        if has_credit { Ok(()) } else { Err(Reason::RateLimited) }
    }

    fn next_random(&mut self) -> u64 {
        // Marsaglia's xorshift64; the low bits are mixed because `is_multiple_of` looks at those.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        mix(self.random)
    }
}

fn hash_of_address(ip: &[u8; 16]) -> u64 {
    let bits = u128::from_be_bytes(*ip);
    mix(mix(bits as u64) ^ (bits >> 64) as u64)
}

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A token bucket that holds a tenth of a second's worth, at least one datagram.
///
/// Credit is counted in nanoseconds times datagrams per second, so every whole rate is exact.
#[derive(Debug)]
struct Bucket {
    per_sec: u64,
    credit: u64,
    updated_ns: u64,
}

/// Credit that one datagram costs.
const COST: u64 = 1_000_000_000;

impl Bucket {
    fn new(per_sec: NonZeroU32) -> Bucket {
        let per_sec = u64::from(per_sec.get());
        Bucket { per_sec, credit: depth(per_sec), updated_ns: 0 }
    }

    fn take(&mut self, now_ns: u64) -> bool {
        let earned = now_ns.saturating_sub(self.updated_ns).saturating_mul(self.per_sec);
        self.updated_ns = self.updated_ns.max(now_ns);
        self.credit = self.credit.saturating_add(earned).min(depth(self.per_sec));
        if self.credit < COST {
            return false;
        }
        self.credit -= COST;
        true
    }
}

fn depth(per_sec: u64) -> u64 {
    (per_sec * COST / 10).max(COST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(n: u32) -> Source {
        Source::from(std::net::SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + n), 9)))
    }

    fn gate(change: impl FnOnce(&mut TargetOptions)) -> Gate {
        let mut options = TargetOptions::default();
        change(&mut options);
        Gate::new(&options, 7)
    }

    fn sample(by: SampleBy) -> Option<Sample> {
        Some(Sample { one_in: NonZeroU32::new(10).unwrap(), by })
    }

    #[test]
    fn random_sample_takes_a_tenth() {
        let mut gate = gate(|options| options.sample = sample(SampleBy::Random));
        let taken = (0..100_000).filter(|_| gate.decide(&source(1), 0).is_ok()).count();
        // Binomial with n = 100,000 and p = 0.1: six standard deviations are 570.
        assert!((9_430..10_570).contains(&taken), "{taken}");
    }

    #[test]
    fn sample_by_source_takes_whole_sources() {
        let mut gate = gate(|options| options.sample = sample(SampleBy::Source));
        let mut taken = 0;
        for n in 0..10_000 {
            let first = gate.decide(&source(n), 0);
            assert_eq!(gate.decide(&source(n), 1), first);
            taken += u32::from(first.is_ok());
        }
        assert!((820..1_180).contains(&taken), "{taken}");
    }

    #[test]
    fn rate_limit_passes_the_rate_and_a_burst_of_a_tenth_of_a_second() {
        let mut gate = gate(|options| options.rate_limit_per_sec = NonZeroU32::new(1_000));
        let second = 1_000_000_000;
        let burst = (0..1_000).filter(|_| gate.decide(&source(1), second).is_ok()).count();
        assert_eq!(burst, 100);
        let steps = (1..=20_000_u64).map(|step| second + step * 100_000);
        let taken = steps.filter(|&now| gate.decide(&source(1), now).is_ok()).count();
        assert_eq!(taken, 2_000);
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_credit() {
        let mut bucket = Bucket::new(NonZeroU32::new(1).unwrap());
        assert!(bucket.take(5_000_000_000));
        assert!(!bucket.take(1_000_000_000));
        assert!(!bucket.take(5_999_999_999));
        assert!(bucket.take(6_000_000_000));
    }

    #[test]
    fn reasons_are_asked_in_order() {
        let mut gate = gate(|options| {
            options.only_sources = vec!["10.0.0.1".parse().unwrap()];
            options.rate_limit_per_sec = NonZeroU32::new(10);
        });
        assert_eq!(gate.decide(&source(1), 1_000_000_000), Ok(()));
        assert_eq!(gate.decide(&source(2), 1_000_000_000), Err(Reason::Filtered));
        assert_eq!(gate.decide(&source(1), 1_000_000_000), Err(Reason::RateLimited));
    }

    #[test]
    fn what_came_before_sources_were_asked_for_passes() {
        let mut gate = gate(|options| {
            options.only_sources = vec!["10.0.0.1".parse().unwrap()];
            options.sample = sample(SampleBy::Source);
        });
        assert_eq!(gate.decide(&Source::UNKNOWN, 0), Ok(()));
        assert_eq!(gate.decide(&Source::NONE, 0), Err(Reason::Filtered));
    }
}
