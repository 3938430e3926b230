//! How soon a relay forwards after its process has started.

use crate::contender::{Contender, Programs};
use crate::estimate::median;
use crate::relay::start_time;
use crate::site::{Reach, Site};
use serde::Serialize;

const STARTS: usize = 20;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct StartResult {
    pub(crate) contender: Contender,
    pub(crate) start_ms: Vec<f64>,
}

impl StartResult {
    pub(crate) fn median_ms(&self) -> f64 {
        median(self.start_ms.iter().copied())
    }

    pub(crate) fn max_ms(&self) -> f64 {
        self.start_ms.iter().copied().fold(f64::NAN, f64::max)
    }
}

/// Starts every relay 20 times, in turn, with one target and without pinning.
pub(crate) fn measure(
    contenders: &[Contender],
    programs: &Programs,
) -> anyhow::Result<Vec<StartResult>> {
    let blank = |contender: &Contender| StartResult { contender: *contender, start_ms: Vec::new() };
    let mut results: Vec<_> = contenders.iter().map(blank).collect();

    for _ in 0..STARTS {
        for result in &mut results {
            // A new receiver, which has no datagrams of an earlier relay.
            let mut receiver = Site::open(Reach::Loopback)?.receiver(2_048)?;
            let time = start_time(result.contender, programs, &mut receiver)?;
            result.start_ms.push(time.as_secs_f64() * 1e3);
        }
    }

    Ok(results)
}
