//! One sampler: what its samples stand for, and where some were lost.
//!
//! Each sample says how many frames its sampler has looked at so far (`sample_pool`), so that the difference to the last sample that
//! *arrived* is what the samples between them stood for, also those that were lost. A sample's scale follows that difference, as an average over the last
//! hundred samples, and what the average has given away too little or too much is made up for by the samples after. So the
//! scales add up to the frames that were looked at, whatever was lost on the way.

use crate::sequence::{Seen, Sequence, SequenceTotals};

/// Samples over which rates are averaged.
pub(crate) const SAMPLES: f64 = 128.0;

/// How far a scale may be from the configured rate. What the pool says beyond is counted as unattributed.
const SCALE_MIN: f64 = 0.25;
const SCALE_MAX: f64 = 64.0;

/// The same where each frame is one, as of dropped packets: an agent tells of few in a storm, and counts the others.
const SCALE_MAX_OF_ONE: f64 = 1e6;

/// The largest scale, as a multiple of the configured rate.
fn scale_max(sampling_rate: f64) -> f64 {
    if sampling_rate <= 1.0 { SCALE_MAX_OF_ONE } else { SCALE_MAX }
}

/// Samples that are missing at once, for longer than [`OUTAGE_MS`]: traffic in so long a hole is not attributed to the flows after it.
const OUTAGE_SAMPLES: u32 = 64;
const OUTAGE_MS: u32 = 1_000;

/// What a flow sample says of its sampler (sFlow version 5, `flow_sample`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Counts the samples that the sampler made.
    pub sequence: u32,
    /// One in so many frames is to be sampled.
    pub sampling_rate: u32,
    /// Frames that could have been sampled so far; wraps. Some agents always send 0.
    pub pool: u32,
    /// Samples that were lost inside the agent so far; wraps.
    pub drops: u32,
    /// The agent's clock, in milliseconds since it started; wraps after 49.7 days.
    pub uptime_ms: u32,
}

/// What one sample is worth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Worth {
    /// It stands for so many frames.
    Frames(f64),
    /// It has been counted already.
    Duplicate,
}

/// The rates of a sampler, averaged over about the last hundred samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// One in so many, as the agent says.
    pub configured: u32,
    /// Frames for each sample that the agent numbered: differs from `configured` if the agent does not do what it says.
    pub agent: f64,
    /// Frames for each sample that arrived: what figures are scaled by.
    pub collector: f64,
    /// Share of samples that the agent lost before it numbered them, as far as it knows.
    pub agent_loss: f64,
    /// Share of the numbered samples that did not arrive: lost on the network or at our socket.
    pub path_loss: f64,
}

/// One sampler.
#[derive(Clone, Debug)]
pub struct Sampler {
    sequence: Sequence,
    last: Reading,
    /// Averages for each sample that arrived: frames looked at, as a multiple of the configured rate;
    /// numbers used; samples that the agent lost.
    pool_ratio: f64,
    numbers: f64,
    agent_drops: f64,
    /// Milliseconds between two numbers.
    ms_for_each: f64,
    /// Samples in the averages, up to [`SAMPLES`].
    depth: f64,
    /// Frames that the pool counted and no sample has been given yet; negative: too much was given.
    owed: f64,
    totals: SamplerTotals,
}

/// What was counted of a sampler so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SamplerTotals {
    /// Samples by their numbers.
    pub samples: SequenceTotals,
    /// Samples that the agent says it lost before it numbered them.
    pub agent_dropped: u64,
    /// Frames that the sampler looked at, as far as it says.
    pub frames: u64,
    /// Of these, frames for which no flow got anything: they passed while nothing arrived.
    pub unattributed_frames: f64,
    /// How often the configured rate changed.
    pub rate_changes: u64,
}

impl Sampler {
    /// A sampler whose first sample says this.
    fn new(first: Reading) -> Sampler {
        Sampler {
            sequence: Sequence::default(),
            last: first,
            pool_ratio: 1.0,
            numbers: 1.0,
            agent_drops: 0.0,
            ms_for_each: 0.0,
            // The configured rate counts as a few samples.
            depth: 8.0,
            owed: 0.0,
            totals: SamplerTotals::default(),
        }
    }

    /// Takes the sample that comes first.
    pub fn begin(first: Reading) -> (Sampler, Worth) {
        let mut sampler = Sampler::new(first);
        let worth = sampler.take(first);
        (sampler, worth)
    }

    /// The agent has begun anew, so that nothing it says can be compared.
    pub fn restart(&mut self) {
        self.sequence.restart();
    }

    /// What was counted so far.
    pub fn totals(&self) -> SamplerTotals {
        SamplerTotals { samples: self.sequence.totals(), ..self.totals }
    }

    /// The rates now.
    pub fn rates(&self) -> Rates {
        let collector = self.pool_ratio * f64::from(self.last.sampling_rate);
        let made = self.numbers + self.agent_drops;
        Rates {
            configured: self.last.sampling_rate,
            agent: collector / self.numbers,
            collector,
            agent_loss: self.agent_drops / made,
            path_loss: (1.0 - 1.0 / self.numbers).max(0.0),
        }
    }

    /// Takes the next sample, and says how many frames it stands for.
    pub fn take(&mut self, reading: Reading) -> Worth {
        let elapsed_ms = reading.uptime_ms.wrapping_sub(self.last.uptime_ms);
        // A clock that went back tells no time.
        let elapsed_ms = if elapsed_ms <= u32::MAX / 2 { elapsed_ms } else { 0 };
        let seen = self.sequence.take(reading.sequence, self.gap_max(elapsed_ms));
        if seen == Seen::Duplicate {
            return Worth::Duplicate;
        }
        // What a late one stands for was given when it was missing; of a strange one nothing can be compared.
        if seen == Seen::Strange {
            self.cover(self.pool_ratio * f64::from(reading.sampling_rate));
        }
        if seen == Seen::Late {
            // One sample more for the same frames and numbers.
            self.average(0.0, 0.0, 0.0);
        }
        if matches!(seen, Seen::Late | Seen::Strange) {
            return Worth::Frames(self.scale(reading.sampling_rate));
        }

        self.totals.rate_changes += u64::from(reading.sampling_rate != self.last.sampling_rate);
        match seen.advance() {
            Some(numbers) => self.advance(numbers, reading, elapsed_ms),
            None => self.cover(f64::from(reading.sampling_rate)),
        }
        self.last = reading;
        Worth::Frames(self.scale(reading.sampling_rate))
    }

    /// The sampler went on by `numbers` samples.
    fn advance(&mut self, numbers: u32, reading: Reading, elapsed_ms: u32) {
        let pool = reading.pool.wrapping_sub(self.last.pool);
        let dropped = reading.drops.wrapping_sub(self.last.drops);
        let rate = f64::from(reading.sampling_rate);
        let expected = rate * f64::from(numbers);
        // A pool that stands still, goes back or leaps says nothing: the numbers do. A small step is chance.
        let is_usable = pool > 0 && f64::from(pool) <= expected * scale_max(rate);
        let frames = if is_usable { f64::from(pool) } else { expected };
        let dropped = if dropped <= u32::MAX / 2 { dropped } else { 0 };

        self.totals.agent_dropped += u64::from(dropped);
        let lost = numbers.saturating_sub(1);
        if lost >= OUTAGE_SAMPLES && elapsed_ms > OUTAGE_MS {
            // The sample itself stands for what it usually does.
            let own = frames / f64::from(numbers);
            self.totals.frames += (frames - own) as u64;
            self.totals.unattributed_frames += frames - own;
            self.cover(own);
            return;
        }

        self.cover(frames);
        if rate > 0.0 {
            self.average(frames / rate, f64::from(numbers), f64::from(dropped));
            let each_ms = f64::from(elapsed_ms) / f64::from(numbers);
            self.ms_for_each += (each_ms - self.ms_for_each) / self.depth;
        }
    }

    /// Takes what one sample covers into the averages: frames as a multiple of the configured rate, numbers, samples that the agent lost.
    fn average(&mut self, frames_ratio: f64, numbers: f64, dropped: f64) {
        let share = 1.0 / self.depth;
        self.pool_ratio += (frames_ratio - self.pool_ratio) * share;
        self.numbers += (numbers - self.numbers) * share;
        self.agent_drops += (dropped - self.agent_drops) * share;
        self.depth = (self.depth + 1.0).min(SAMPLES);
    }

    fn cover(&mut self, frames: f64) {
        self.totals.frames += frames as u64;
        self.owed += frames;
    }

    /// What the sample at hand stands for.
    fn scale(&mut self, configured: u32) -> f64 {
        let configured = f64::from(configured);
        let usual = self.pool_ratio * configured;
        // `owed` holds what this sample stands for itself.
        let scale = usual + (self.owed - usual) / SAMPLES;
        let scale = scale.clamp(configured * SCALE_MIN, configured * scale_max(configured));
        self.owed -= scale;

        // More than the samples to come could make up for.
        let owed_max = usual * SAMPLES;
        if self.owed > owed_max {
            self.totals.unattributed_frames += self.owed - owed_max;
            self.owed = owed_max;
        }
        self.owed = self.owed.max(-owed_max);
        scale
    }

    /// How many numbers may be missing after so long a silence: four times what is usual in it.
    fn gap_max(&self, elapsed_ms: u32) -> u32 {
        if self.ms_for_each > 0.0 {
            (4.0 * f64::from(elapsed_ms) / self.ms_for_each) as u32
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests;
