//! One sampler: what its samples stand for, and where some were lost.
//!
//! Each sample says how many frames its sampler has examined so far (`sample_pool`). So the difference from the last sample that
//! *arrived* is what the samples since then stood for, including lost ones. A sample's scale follows that difference as an
//! average over about the last hundred samples, and later samples make up for what the average assigned too little or too much.
//! So the scales add up to the frames that were examined, whatever was lost on the way.

use crate::sequence::{Seen, Sequence, SequenceTotals};

/// Number of samples over which rates are averaged.
pub(crate) const SAMPLES: f64 = 128.0;

/// Bounds of the scale, as multiples of the configured rate. Frames in the pool beyond that are counted as unattributed.
const SCALE_MIN: f64 = 0.25;
const SCALE_MAX: f64 = 64.0;

/// The upper bound if each frame is sampled, as with dropped packets: in a storm, an agent reports few and counts the others.
const SCALE_MAX_OF_ONE: f64 = 1e6;

/// The largest scale, as a multiple of the configured rate.
fn scale_max(sampling_rate: f64) -> f64 {
    if sampling_rate <= 1.0 { SCALE_MAX_OF_ONE } else { SCALE_MAX }
}

/// Frames between two samples are this often chance, as a multiple of those that are usual for the numbers between them: in one of
/// 20,000 cases. More of them are not attributed, as anybody can send a sample that says so.
const CHANCE_MAX: f64 = 10.0;

/// Number of samples missing in a row, over more than [`OUTAGE_MS`], that make an outage: traffic in such a long gap is not
/// attributed to the flows after it.
const OUTAGE_SAMPLES: u32 = 64;
const OUTAGE_MS: u32 = 1_000;

/// Numbers between two readings of an agent that states no rate, beyond which their pools are not compared.
const NUMBERS_MAX: u32 = 1 << 16;

/// What a flow sample says about its sampler (sFlow version 5, `flow_sample`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Counts the samples that the sampler has taken.
    pub sequence: u32,
    /// One in this many frames should be sampled. 0 if the agent does not say.
    pub sampling_rate: u32,
    /// Frames that could have been sampled so far; wraps. Some agents always send 0.
    pub pool: u32,
    /// Samples lost inside the agent so far; wraps.
    pub drops: u32,
    /// The agent's clock, in milliseconds since it started; wraps after 49.7 days.
    pub uptime_ms: u32,
    /// Whether it cannot have arrived before, by the number of its datagram.
    pub is_new: bool,
}

/// What one sample is worth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Worth {
    /// It stands for this many frames.
    Frames(f64),
    /// It has already been counted.
    Duplicate,
}

/// The rates of a sampler, averaged over about the last hundred samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// One in this many frames, according to the agent.
    pub configured: u32,
    /// Frames per sample that the agent numbered. Differs from `configured` if the agent does not do what it says.
    pub agent: f64,
    /// Frames per sample that arrived. Figures are scaled by this.
    pub collector: f64,
    /// Share of samples that the agent lost before numbering them, as far as it knows.
    pub agent_loss: f64,
    /// Share of the numbered samples that did not arrive: lost on the network or at our socket.
    pub path_loss: f64,
}

/// One sampler.
#[derive(Clone, Debug)]
pub struct Sampler {
    sequence: Sequence,
    last: Reading,
    /// Averages per sample that arrived: frames examined, as a multiple of the configured rate; numbers used; samples that the
    /// agent lost.
    pool_ratio: f64,
    numbers: f64,
    agent_drops: f64,
    /// Milliseconds between two numbers.
    ms_for_each: f64,
    /// Number of samples in the averages, up to [`SAMPLES`].
    depth: f64,
    /// Frames that the pool counted but no sample was assigned yet. Negative if too many were assigned.
    owed: f64,
    /// Frames for each number by the pool alone, of an agent that states no rate; and how many samples that is known from.
    by_pool: Option<(f64, f64)>,
    /// Samples for which it counts as several samplers that number their samples separately.
    shared: u32,
    /// Samples with numbers that others had.
    shared_samples: u64,
    totals: SamplerTotals,
}

/// Counts of a sampler so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SamplerTotals {
    /// Samples by sequence number.
    pub samples: SequenceTotals,
    /// Samples that the agent says it lost before numbering them.
    pub agent_dropped: u64,
    /// Frames that the sampler examined, as far as it reports.
    pub frames: u64,
    /// Of these, frames that were attributed to no flow, because they passed while nothing arrived.
    pub unattributed_frames: f64,
    /// How often the configured rate changed.
    pub rate_changes: u64,
}

impl Sampler {
    /// A sampler with this first reading.
    fn new(first: Reading) -> Sampler {
        Sampler {
            sequence: Sequence::default(),
            // One that states no rate stands for itself until the pool has grown.
            last: Reading { sampling_rate: first.sampling_rate.max(1), ..first },
            pool_ratio: 1.0,
            numbers: 1.0,
            agent_drops: 0.0,
            ms_for_each: 0.0,
            // The configured rate counts as a few samples.
            depth: 8.0,
            owed: 0.0,
            by_pool: None,
            shared: 0,
            shared_samples: 0,
            totals: SamplerTotals::default(),
        }
    }

    /// Starts a sampler with its first sample.
    pub fn begin(first: Reading) -> (Sampler, Worth) {
        let mut sampler = Sampler::new(first);
        let worth = sampler.take(first);
        (sampler, worth)
    }

    /// The agent has restarted, so its readings cannot be compared with the previous ones.
    pub fn restart(&mut self) {
        self.sequence.restart();
    }

    /// The counts so far.
    pub fn totals(&self) -> SamplerTotals {
        let mut samples = self.sequence.totals();
        samples.received += self.shared_samples;
        samples.duplicate -= self.shared_samples;
        SamplerTotals { samples, ..self.totals }
    }

    /// Samples that the agent says it lost before numbering them.
    pub(crate) fn agent_dropped(&self) -> u64 {
        self.totals.agent_dropped
    }

    /// Whether it is several samplers behind one source, which number their samples separately.
    pub fn is_shared(&self) -> bool {
        self.shared > 0
    }

    /// Whether the pool says what its samples stand for.
    pub(crate) fn has_pool(&self) -> bool {
        self.by_pool.is_some()
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

    /// Processes the next sample. Returns how many frames it stands for.
    pub fn take(&mut self, reading: Reading) -> Worth {
        let reading = if reading.sampling_rate > 0 { reading } else { self.rated(reading) };
        let elapsed_ms = reading.uptime_ms.wrapping_sub(self.last.uptime_ms);
        // A clock that went back gives no time.
        let elapsed_ms = if elapsed_ms <= u32::MAX / 2 { elapsed_ms } else { 0 };
        let seen = self.sequence.take(reading.sequence, self.gap_max(elapsed_ms));
        if seen == Seen::Duplicate && !reading.is_new {
            return Worth::Duplicate;
        }
        if seen == Seen::Duplicate {
            self.shared_samples += 1;
            self.share();
        }
        if self.shared > 0 {
            // Neither numbers nor pools of several samplers can be compared.
            self.shared -= 1;
            self.last = reading;
            self.totals.frames += u64::from(reading.sampling_rate);
            return Worth::Frames(reading.sampling_rate.into());
        }
        // What a late sample stands for was assigned when it was missing; a strange one cannot be compared.
        if seen == Seen::Strange {
            self.cover(self.pool_ratio * f64::from(reading.sampling_rate));
        }
        if seen == Seen::Late {
            // One more sample for the same frames and numbers.
            self.average(0.0, 0.0, 0.0);
        }
        if matches!(seen, Seen::Late | Seen::Strange) {
            return Worth::Frames(self.scale(reading.sampling_rate));
        }

        if reading.sampling_rate != self.last.sampling_rate {
            self.totals.rate_changes += u64::from(self.by_pool.is_none());
            // What is owed by samples that stand for more is not for those that stand for less to make up for.
            let ratio =
                f64::from(reading.sampling_rate) / f64::from(self.last.sampling_rate.max(1));
            self.owed *= ratio.min(1.0);
        }
        match seen.advance() {
            Some(numbers) => self.advance(numbers, reading, elapsed_ms),
            None => self.cover(f64::from(reading.sampling_rate)),
        }
        self.last = reading;
        Worth::Frames(self.scale(reading.sampling_rate))
    }

    /// A reading that states no rate, with the one that the pool says: one in each frame until it has grown.
    #[cold]
    fn rated(&mut self, reading: Reading) -> Reading {
        let numbers = reading.sequence.wrapping_sub(self.last.sequence);
        let pool = reading.pool.wrapping_sub(self.last.pool);
        if (1..NUMBERS_MAX).contains(&numbers) && (1..u32::MAX / 2).contains(&pool) {
            let each = f64::from(pool) / f64::from(numbers);
            let (average, samples) = self.by_pool.unwrap_or((each, 0.0));
            let samples = (samples + 1.0).min(SAMPLES);
            self.by_pool = Some((average + (each - average) / samples, samples));
        }
        let each = self.by_pool.map_or(1.0, |(average, _)| average.round().max(1.0));
        Reading { sampling_rate: each as u32, ..reading }
    }

    /// Takes it for several samplers for a while, each of whose samples stands for what it says.
    fn share(&mut self) {
        self.shared = SAMPLES as u32;
        (self.pool_ratio, self.numbers, self.owed) = (1.0, 1.0, 0.0);
    }

    /// Accounts for `numbers` more samples of the sampler.
    fn advance(&mut self, numbers: u32, reading: Reading, elapsed_ms: u32) {
        let pool = reading.pool.wrapping_sub(self.last.pool);
        let dropped = reading.drops.wrapping_sub(self.last.drops);
        let rate = f64::from(reading.sampling_rate);
        let expected = rate * f64::from(numbers);
        // A pool that stands still, goes back or jumps means nothing: use the numbers. A small step is chance.
        let is_usable = pool > 0 && f64::from(pool) <= expected * scale_max(rate);
        let frames = if is_usable { f64::from(pool) } else { expected };
        let frames_max = expected * self.pool_ratio.max(1.0) * CHANCE_MAX;
        let frames = if frames > frames_max && rate > 1.0 {
            self.totals.frames += (frames - frames_max) as u64;
            self.totals.unattributed_frames += frames - frames_max;
            frames_max
        } else {
            frames
        };
        let dropped = if dropped <= u32::MAX / 2 { dropped } else { 0 };

        self.totals.agent_dropped += u64::from(dropped);
        let lost = numbers.saturating_sub(1);
        if lost >= OUTAGE_SAMPLES && elapsed_ms > OUTAGE_MS {
            // The sample itself stands for the usual share.
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

    /// Adds what one sample covers to the averages: frames as a multiple of the configured rate, numbers, and samples that the
    /// agent lost.
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

    /// What the current sample stands for.
    fn scale(&mut self, configured: u32) -> f64 {
        let configured = f64::from(configured);
        let usual = self.pool_ratio * configured;
        // `owed` includes what this sample itself stands for.
        let scale = usual + (self.owed - usual) / SAMPLES;
        let scale = scale.clamp(configured * SCALE_MIN, configured * scale_max(configured));
        self.owed -= scale;

        // More than the coming samples could make up for.
        let owed_max = usual * SAMPLES;
        if self.owed > owed_max {
            self.totals.unattributed_frames += self.owed - owed_max;
            self.owed = owed_max;
        }
        self.owed = self.owed.max(-owed_max);
        scale
    }

    /// How many numbers may be missing after this much silence: four times the usual number.
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
