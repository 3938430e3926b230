//! The presets: length of a run, number of runs, and loss rates.

use super::flow::DRAIN;
use super::model::Schedule;
use crate::network::Span;
use crate::transport;
use std::time::Duration;

/// What an experiment is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the preset on which this plan is based.
    pub preset: &'static str,
    /// One-way loss rates of the whole path, 0 to 1, in the order in which they run.
    pub losses: Vec<f64>,
    /// Names of transports.
    pub transports: Vec<String>,
    pub schedules: Vec<Schedule>,
    /// Independent runs of each transport and schedule at each loss; at least 1.
    pub runs: u32,
    /// Length of a run.
    pub duration: Duration,
    /// At least 16.
    pub message_bytes: usize,
    /// Messages per second.
    pub rate_per_sec: f64,
    /// Delay and bandwidth between the hosts.
    pub span: Span,
}

/// As in the article: 1,000 bytes, 100 messages per second.
const MESSAGE_BYTES: usize = 1_000;
const RATE_PER_SEC: f64 = 100.0;
/// Messages per second over all flows of all networks that two CPUs handle without one flow delaying another.
const MESSAGES_AT_ONCE_PER_SEC: f64 = 8_000.0;
/// Time to build networks and connect the flows.
const SETUP: Duration = Duration::from_millis(500);

impl Plan {
    /// What fits into 90 seconds: the order of the transports and the direction of the effect, but not the tail.
    pub fn quick() -> Plan {
        Plan {
            preset: "quick",
            losses: percent(&[0, 5, 10, 14, 20]),
            transports: names(&["udp", "tcp-cubic", "weir-hop"]),
            schedules: vec![Schedule::ClosedLoop],
            runs: 5,
            duration: Duration::from_secs(60),
            message_bytes: MESSAGE_BYTES,
            rate_per_sec: RATE_PER_SEC,
            span: Span::default(),
        }
    }

    /// All transports except the one that differs only in its framing, on both schedules; about 15 minutes.
    pub fn standard() -> Plan {
        Plan {
            preset: "default",
            losses: percent(&[0, 2, 5, 8, 10, 12, 14, 16, 18, 20]),
            transports: {
                let all = transport::all().into_iter().map(|one| one.name().0);
                all.filter(|name| name != "tcp-cubic-syslog").collect()
            },
            schedules: vec![Schedule::ClosedLoop, Schedule::OpenLoop],
            duration: Duration::from_secs(85),
            ..Plan::quick()
        }
    }

    /// The article's two transports and its schedule, in runs long enough for its results at 20 % loss; about 40
    /// minutes.
    pub fn article() -> Plan {
        Plan {
            preset: "article",
            losses: percent(&[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
            transports: names(&["udp", "tcp-cubic"]),
            runs: 6,
            duration: Duration::from_secs(1_200),
            ..Plan::quick()
        }
    }

    /// Number of flows at one loss rate. They share a network.
    pub fn flows_of_one_loss(&self) -> usize {
        self.transports.len() * self.schedules.len() * self.runs as usize
    }

    /// Whether the flows of a single loss rate are already more than two CPUs handle without delays.
    pub fn is_heavy(&self) -> bool {
        self.flows_of_one_loss() as f64 * self.rate_per_sec > MESSAGES_AT_ONCE_PER_SEC
    }

    /// Number of loss rates that run at the same time, each in its own network: as many as do not disturb each other.
    pub fn parallel_losses(&self) -> usize {
        let messages_per_sec = self.flows_of_one_loss() as f64 * self.rate_per_sec;
        let fit = (MESSAGES_AT_ONCE_PER_SEC / messages_per_sec) as usize;
        fit.clamp(1, self.losses.len().max(1))
    }

    /// Number of groups of loss rates that run one after another, of about equal size.
    pub fn rounds(&self) -> usize {
        self.losses.len().div_ceil(self.parallel_losses())
    }

    /// Approximate length of a round.
    pub fn expected_round(&self) -> Duration {
        SETUP + self.duration + DRAIN
    }

    /// Approximate length of the whole experiment.
    pub fn expected(&self) -> Duration {
        self.expected_round() * self.rounds() as u32
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
        let check = |plan: Plan, rounds: usize, from_s: u64, to_s: u64| {
            assert_eq!(plan.rounds(), rounds, "{}", plan.preset);
            let expected = plan.expected().as_secs();
            assert!((from_s..to_s).contains(&expected), "{}: {expected} s", plan.preset);
        };
        check(Plan::quick(), 1, 30, 80);
        check(Plan::standard(), 10, 13 * 60, 15 * 60);
        check(Plan::article(), 2, 35 * 60, 41 * 60);
    }

    #[test]
    fn a_heavy_loss_is_run_alone() {
        let plan = Plan { rate_per_sec: 10_000.0, ..Plan::quick() };
        assert_eq!((plan.parallel_losses(), plan.rounds(), plan.is_heavy()), (1, 5, true));
        assert!(!Plan::quick().is_heavy() && !Plan::standard().is_heavy());
    }

    #[test]
    fn every_transport_of_a_preset_exists() {
        for plan in [Plan::quick(), Plan::standard(), Plan::article()] {
            assert!(plan.transports.iter().all(|name| transport::named(name).is_some()));
        }
    }
}
