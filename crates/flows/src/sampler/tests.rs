use super::*;

/// An agent that samples one in `rate` frames, and a path that loses samples, both driven by a seeded generator.
struct Agent {
    reading: Reading,
    rate: u32,
    random: u64,
    /// Frames that have passed.
    frames: u64,
}

impl Agent {
    fn new(rate: u32, seed: u64) -> Agent {
        let reading = Reading { sequence: 0, sampling_rate: rate, ..reading(0, 0) };
        Agent { reading, rate, random: seed, frames: 0 }
    }

    /// A number between 0 and 1 (xorshift64*).
    fn chance(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The next sampled frame, after a geometrically distributed number of frames.
    fn next(&mut self) -> Reading {
        let chance = 1.0 / f64::from(self.rate);
        let skipped = (self.chance().ln() / (1.0 - chance).ln()).floor() as u32 + 1;
        self.frames += u64::from(skipped);
        self.reading.pool = self.reading.pool.wrapping_add(skipped);
        self.reading.sequence += 1;
        self.reading.uptime_ms += 10;
        self.reading
    }
}

/// The sum of the scales of all samples, as a share of the frames that passed.
fn attributed(samples: u32, loss: f64, seed: u64) -> f64 {
    let mut agent = Agent::new(400, seed);
    let mut sampler: Option<Sampler> = None;
    let mut sum = 0.0;
    for _ in 0..samples {
        let reading = agent.next();
        if agent.chance() < loss {
            continue;
        }
        let worth = match &mut sampler {
            Some(sampler) => sampler.take(reading),
            none => {
                let (first, worth) = Sampler::begin(reading);
                *none = Some(first);
                worth
            }
        };
        let Worth::Frames(frames) = worth else { panic!("no duplicate was sent") };
        sum += frames;
    }
    sum / agent.frames as f64
}

#[test]
fn scales_add_up_to_the_frames_that_passed_whatever_was_lost() {
    for loss in [0.0, 0.05, 0.2, 0.5, 0.8] {
        let shares: Vec<f64> = (1..=20).map(|seed| attributed(20_000, loss, seed)).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!((mean - 1.0).abs() < 0.005, "{loss}: {mean} of {shares:?}");
    }
}

fn run(sampler: &mut Sampler, readings: impl IntoIterator<Item = Reading>) -> f64 {
    let frames = |worth| if let Worth::Frames(frames) = worth { frames } else { 0.0 };
    readings.into_iter().map(|reading| frames(sampler.take(reading))).sum()
}

fn reading(sequence: u32, pool: u32) -> Reading {
    let uptime_ms = sequence * 10;
    Reading { sequence, sampling_rate: 100, pool, drops: 0, uptime_ms, is_new: false }
}

#[test]
fn an_agent_that_samples_less_than_it_says_is_seen_in_its_rate() {
    let (mut sampler, _) = Sampler::begin(reading(1, 0));
    run(&mut sampler, (2..2_000).map(|n| reading(n, n * 200)));
    let rates = sampler.rates();
    assert_eq!(rates.configured, 100);
    assert!((rates.agent - 200.0).abs() < 1.0, "{rates:?}");
    assert_eq!(rates.path_loss, 0.0);
}

#[test]
fn loss_on_the_path_raises_the_collectors_rate_alone() {
    let (mut sampler, _) = Sampler::begin(reading(1, 0));
    run(&mut sampler, (2..4_000).filter(|n| n % 2 == 0).map(|n| reading(n, n * 100)));
    let rates = sampler.rates();
    assert!((rates.agent - 100.0).abs() < 1.0, "{rates:?}");
    assert!((rates.collector - 200.0).abs() < 1.0, "{rates:?}");
    assert!((rates.path_loss - 0.5).abs() < 0.01, "{rates:?}");
}

#[test]
fn an_agent_that_sends_no_pool_is_scaled_by_its_numbers() {
    let (mut sampler, _) = Sampler::begin(reading(1, 0));
    let frames = run(&mut sampler, (2..4_000).filter(|n| n % 4 == 0).map(|n| reading(n, 0)));
    assert!((frames / 400_000.0 - 1.0).abs() < 0.01, "{frames}");
}

#[test]
fn what_the_agent_dropped_is_its_own_share() {
    let (mut sampler, _) = Sampler::begin(reading(1, 0));
    run(&mut sampler, (2..2_000).map(|n| Reading { drops: n * 3, ..reading(n, n * 400) }));
    let rates = sampler.rates();
    assert!((rates.agent_loss - 0.75).abs() < 0.01, "{rates:?}");
    assert!((rates.collector - 400.0).abs() < 2.0, "{rates:?}");
    assert_eq!(sampler.totals().agent_dropped, 3 * 1_999);
}

#[test]
fn a_pool_that_wraps_is_a_pool() {
    let (mut sampler, _) = Sampler::begin(reading(1, u32::MAX - 50));
    let frames = run(&mut sampler, [reading(2, 50), reading(3, 150)]);
    assert!((190.0..215.0).contains(&frames), "{frames}");
    assert_eq!(sampler.totals().frames, 100 + 101 + 100);
}

#[test]
fn a_pool_that_leaps_or_goes_back_makes_no_spike() {
    for odd in [u32::MAX, 4_000_000_000, 3] {
        let (mut sampler, _) = Sampler::begin(reading(1, 100));
        run(&mut sampler, (2..200).map(|n| reading(n, n * 100)));
        let Worth::Frames(frames) = sampler.take(reading(200, odd)) else { panic!() };
        assert!((90.0..110.0).contains(&frames), "{odd}: {frames}");
        let Worth::Frames(frames) = sampler.take(reading(201, 20_100)) else { panic!() };
        assert!((90.0..110.0).contains(&frames), "{odd}: {frames}");
    }
}

#[test]
fn an_agent_that_begins_anew_makes_no_spike() {
    let (mut sampler, _) = Sampler::begin(reading(1, 100));
    run(&mut sampler, (2..10_000).map(|n| reading(n, n * 100)));
    for told in [true, false] {
        if told {
            sampler.restart();
        }
        let frames = run(&mut sampler, (1..=100).map(|n| reading(n, n * 100)));
        assert!((9_500.0..10_500.0).contains(&frames), "told {told}: {frames}");
        run(&mut sampler, (101..10_000).map(|n| reading(n, n * 100)));
    }
    assert_eq!(sampler.totals().samples.resets, 2);
}

#[test]
fn a_rate_that_changes_is_followed_at_once() {
    let (mut sampler, _) = Sampler::begin(reading(1, 100));
    run(&mut sampler, (2..500).map(|n| reading(n, n * 100)));
    let doubled = |n: u32| Reading { sampling_rate: 200, ..reading(500 + n, 50_000 + n * 200) };
    let frames = run(&mut sampler, (0..100).map(doubled));
    assert!((frames / 20_000.0 - 1.0).abs() < 0.02, "{frames}");
    assert_eq!(sampler.totals().rate_changes, 1);
}

#[test]
fn traffic_in_a_long_outage_is_not_given_to_the_flows_after_it() {
    let (mut sampler, _) = Sampler::begin(reading(1, 100));
    run(&mut sampler, (2..1_000).map(|n| reading(n, n * 100)));
    let frames = run(&mut sampler, (3_000..3_100).map(|n| reading(n, n * 100)));
    assert!((9_500.0..10_500.0).contains(&frames), "{frames}");
    let totals = sampler.totals();
    assert_eq!(totals.samples.lost, 2_000);
    assert!((totals.unattributed_frames - 200_000.0).abs() < 1.0, "{totals:?}");
}

#[test]
fn a_duplicate_is_worth_nothing() {
    let (mut sampler, _) = Sampler::begin(reading(1, 100));
    sampler.take(reading(2, 200));
    assert_eq!(sampler.take(reading(2, 200)), Worth::Duplicate);
}

#[test]
fn without_a_rate_the_pool_says_it() {
    // One in a thousand by the pool, whatever is lost.
    for each in [1, 4] {
        let zero = |n| Reading { sampling_rate: 0, ..reading(n, n * 1_000) };
        let (mut sampler, worth) = Sampler::begin(zero(1));
        assert_eq!(worth, Worth::Frames(1.0));
        let frames = run(&mut sampler, (1..1_000).map(|n| zero(1 + n * each)));
        assert!((frames / 999_000.0 / f64::from(each) - 1.0).abs() < 0.02, "{frames}");
        assert_eq!(sampler.totals().rate_changes, 0);
    }
    // A pool that stands still says nothing: each sample is a frame.
    let still = |n| Reading { sampling_rate: 0, ..reading(n, 7) };
    let (mut sampler, _) = Sampler::begin(still(1));
    assert_eq!(run(&mut sampler, (2..100).map(still)), 98.0);
    assert!(sampler.rates().collector.is_finite());
}

/// Two threads that number their samples of one interface separately, with a pool each.
#[test]
fn samples_that_share_numbers_in_new_datagrams_all_count() {
    for (behind, pool_behind) in [(0, 0), (3, 300), (20, 50_000), (1_000, 7)] {
        let of = |n: u32, pool| Reading { is_new: true, ..reading(n, pool) };
        let (mut sampler, _) = Sampler::begin(of(5_000, 500_000));
        let both =
            (5_001..6_000).flat_map(|n| [of(n, n * 100), of(n - behind, n * 100 - pool_behind)]);
        let frames = run(&mut sampler, both);
        assert!((frames / 199_800.0 - 1.0).abs() < 0.05, "{behind} {pool_behind}: {frames}");
    }
}
