//! All traffic of a vantage, whatever flows it is part of.

use crate::definition::Sample;
use crate::estimate::Sums;
use crate::sampler::SAMPLES;

/// Totals of all samples of a vantage, including those in no flow, in frames.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Everything {
    /// Decayed like the flows.
    pub recent: Sums,
    /// Since the table was created.
    pub total: Sums,
    /// A bit for each sampler of late; some share one if there are many.
    samplers: u64,
    /// What one of its samples stands for, according to the agent. 0 before the first.
    configured_rate: u32,
    /// Whether samples of late stand for different numbers of frames.
    is_mixed: bool,
}

impl Everything {
    /// How many samples a sum of its traffic is effectively known from. Infinite if that is not known better than each sample:
    /// the scale follows the pool with a delay of some samples of each sampler, so over that few samples the sum is as uncertain as
    /// their number; and a share of samples that stand for different amounts says little about the sum.
    pub(crate) fn known_samples(&self, of: &Sums) -> f64 {
        let samples = of.effective_samples();
        let known = samples - f64::from(self.samplers.count_ones()) * SAMPLES;
        if known > 0.0 && !self.is_mixed { samples * samples / known } else { f64::INFINITY }
    }

    pub(super) fn add(&mut self, sample: &Sample, weight: f64) {
        self.recent.add(sample.frames, weight);
        self.total.add(sample.frames, 1.0);
        self.samplers |= 1 << (sample.sampler % u64::BITS);
        if self.configured_rate != sample.configured_rate {
            self.is_mixed |= self.configured_rate > 0;
            self.configured_rate = sample.configured_rate;
        }
    }

    /// Scales what decays, and forgets which samplers there were.
    pub(super) fn rebase(&mut self, factor: f64) {
        self.recent.scale(factor);
        (self.samplers, self.configured_rate, self.is_mixed) = (0, 0, false);
    }
}
