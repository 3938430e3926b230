//! How long, how often, and at which losses: the presets.

use super::model::Schedule;
use crate::transport;
use std::time::Duration;

/// Everything that an experiment is told.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the preset that this began as.
    pub preset: &'static str,
    /// One-way losses of the whole path, 0 to 1, in the order in which they are run.
    pub losses: Vec<f64>,
    /// Names of transports.
    pub transports: Vec<String>,
    pub schedules: Vec<Schedule>,
    /// Independent runs of each transport and schedule at each loss.
    pub runs: u32,
    /// Length of a run.
    pub duration: Duration,
    /// At least 16.
    pub message_bytes: usize,
    /// Messages per second.
    pub rate_per_sec: f64,
    /// Losses that are run at the same time, each in a network of its own.
    pub parallel_losses: usize,
}

/// The article's: 1,000 bytes, 100 a second.
const MESSAGE_BYTES: usize = 1_000;
const RATE_PER_SEC: f64 = 100.0;

impl Plan {
    /// What can be seen in under 90 seconds: the order and the direction, not the tail.
    pub fn quick() -> Plan {
        Plan {
            preset: "quick",
            losses: percent(&[0, 5, 10, 14, 20]),
            transports: names(&["udp", "tcp-cubic", "tcp-bbr"]),
            schedules: vec![Schedule::ClosedLoop],
            runs: 4,
            duration: Duration::from_secs(60),
            message_bytes: MESSAGE_BYTES,
            rate_per_sec: RATE_PER_SEC,
            parallel_losses: 5,
        }
    }

    /// All transports, on both schedules; about 15 minutes.
    pub fn standard() -> Plan {
        Plan {
            preset: "default",
            losses: percent(&[0, 2, 5, 8, 10, 12, 14, 16, 18, 20]),
            transports: transport::all().iter().map(|one| one.name().0).collect(),
            schedules: vec![Schedule::ClosedLoop, Schedule::OpenLoop],
            runs: 5,
            duration: Duration::from_secs(85),
            parallel_losses: 1,
            ..Plan::quick()
        }
    }

    /// The article's two transports and its schedule, in runs long enough for what it says of 20 % loss; about an hour.
    pub fn article() -> Plan {
        Plan {
            preset: "article",
            losses: percent(&[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
            transports: names(&["udp", "tcp-cubic"]),
            runs: 6,
            duration: Duration::from_secs(1_200),
            parallel_losses: 4,
            ..Plan::quick()
        }
    }

    /// Networks that are run one after another.
    pub fn rounds(&self) -> usize {
        self.losses.len().div_ceil(self.parallel_losses.max(1))
    }

    /// How long it takes, about: rounds of runs, and a few seconds for each to connect.
    pub fn expected(&self) -> Duration {
        (self.duration + Duration::from_secs(3)) * self.rounds() as u32
    }

    /// Flows that are under way at the same time.
    pub fn flows_at_once(&self) -> usize {
        let of_one_loss = self.transports.len() * self.schedules.len() * self.runs as usize;
        of_one_loss * self.parallel_losses.min(self.losses.len())
    }
}

fn percent(losses: &[u32]) -> Vec<f64> {
    losses.iter().map(|&loss| f64::from(loss) / 100.0).collect()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_take_as_long_as_they_say() {
        assert!(Plan::quick().expected() < Duration::from_secs(90));
        let standard = Plan::standard().expected();
        assert!(standard > Duration::from_secs(600) && standard < Duration::from_secs(1_000));
        assert!(Plan::article().expected() < Duration::from_secs(3_700));
    }

    #[test]
    fn every_transport_of_a_preset_exists() {
        for plan in [Plan::quick(), Plan::standard(), Plan::article()] {
            assert!(plan.transports.iter().all(|name| transport::named(name).is_some()));
        }
    }
}
