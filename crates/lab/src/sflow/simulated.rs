//! Runs in memory: the agent determines the time, and a seed determines what is lost.

use super::played::{Played, Shown, steady};
use super::tally::Tally;
use super::{Make, Path, Plan, finished};
use load::Random;
use std::sync::atomic::AtomicBool;
use wire::sflow::Datagram;

/// Mean number of datagrams in a burst of loss.
const BURST_DATAGRAMS: f64 = 10.0;

/// Agents begin at this time instead of 0, which a collector may interpret as "never".
const BEGIN_NS: u64 = 1_000_000_000;

/// Decides which datagrams are lost.
struct Loss {
    random: Random,
    share: f64,
    /// With bursts: whether the model is in one.
    burst: Option<bool>,
}

impl Loss {
    fn new(path: Path, share: f64, seed: u64) -> Loss {
        let mut random = Random::seeded(seed);
        let begins_lost = random.unit() < share;
        let burst = (path == Path::SimulatedBursts).then_some(begins_lost);
        Loss { random, share, burst }
    }

    fn is_next_lost(&mut self) -> bool {
        let unit = self.random.unit();
        let Some(is_lost) = &mut self.burst else { return unit < self.share };
        // Gilbert's two states, with the probabilities that give the required share and length of
        // bursts.
        let ends = 1.0 / BURST_DATAGRAMS;
        let begins = ends * self.share / (1.0 - self.share);
        *is_lost = if *is_lost { unit >= ends } else { unit < begins };
        *is_lost
    }
}

/// Makes as many runs as the plan has, or fewer if stopped.
pub(super) fn runs(
    plan: &Plan,
    path: Path,
    loss: f64,
    make: Make<'_>,
    stop: &AtomicBool,
) -> Vec<Shown> {
    let runs = 0..u64::from(plan.simulated_runs);
    let running = runs.take_while(|_| finished(stop));
    // Each path and loss has separate seeds; otherwise all would be right or wrong together.
    let place = (path as u64) << 40 | ((loss * 1e6) as u64) << 20;
    running.filter_map(|run| one(plan, path, loss, plan.seed << 50 ^ place ^ run, make)).collect()
}

fn one(plan: &Plan, path: Path, loss: f64, seed: u64, make: Make<'_>) -> Option<Shown> {
    let mut played = Played::new(1, steady(1), seed);
    let (mut loss, mut tally) = (Loss::new(path, loss, !seed), Tally::default());
    let (mut collector, mut bytes) = (make(), Vec::new());

    let mut now_ns = BEGIN_NS;
    loop {
        let at_s = played.next_datagram(&mut bytes);
        if at_s > plan.run_s {
            break;
        }
        if loss.is_next_lost() {
            continue;
        }
        now_ns = BEGIN_NS + (at_s * 1e9) as u64;
        collector.datagram(&bytes, now_ns);
        if let Ok(datagram) = Datagram::parse(&bytes) {
            tally.take(&datagram);
        }
    }
    played.shown(&tally, &collector.bytes(now_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_patterns_lose_their_share_and_bursts_last() {
        for (path, burst) in [(Path::Simulated, 1.25), (Path::SimulatedBursts, 10.0)] {
            let mut loss = Loss::new(path, 0.2, 7);
            let lost: Vec<bool> = (0..200_000).map(|_| loss.is_next_lost()).collect();
            let count = lost.iter().filter(|lost| **lost).count() as f64;
            let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
            assert!((count / 200_000.0 - 0.2).abs() < 0.01, "{path:?}: {count}");
            assert!((count / bursts / burst - 1.0).abs() < 0.05, "{path:?}: {}", count / bursts);
        }
    }
}
