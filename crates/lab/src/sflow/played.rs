//! A simulated agent, the truth about its traffic, and what was seen of it.

use super::tally::Tally;
use super::{Bytes, Estimator, SAMPLING_RATE};
use load::sflow::{Agent, AgentOptions, TrueFlow};
use std::net::Ipv4Addr;

/// How often the interface's counters are sent: never during a run, because a run is about samples.
const COUNTERS_EVERY: std::time::Duration = std::time::Duration::from_secs(3_600);

/// One agent of an experiment.
pub(super) struct Played {
    pub(super) agent: Agent,
    /// When each datagram left, by its number; the first number is 1, and entry 0 is the beginning.
    departures_s: Vec<f64>,
}

impl Played {
    /// Creates the agent with this number, 1 to 250.
    pub(super) fn new(number: u8, flows: Vec<TrueFlow>, seed: u64) -> Played {
        let options = AgentOptions {
            address: Ipv4Addr::new(192, 0, 2, number).into(),
            sampling_rate: SAMPLING_RATE,
            counters_every: COUNTERS_EVERY,
            ..AgentOptions::default()
        };
        Played { agent: Agent::new(options, flows, seed), departures_s: vec![0.0] }
    }

    /// Writes the next datagram to `out`. Returns when it leaves, in seconds since the agent began.
    pub(super) fn next_datagram(&mut self, out: &mut Vec<u8>) -> f64 {
        let at_s = self.agent.next_datagram(out).as_secs_f64();
        self.departures_s.push(at_s);
        at_s
    }

    /// Compares the estimates for the agent's traffic with the truth. `None` if nothing arrived.
    ///
    /// The truth is the traffic from the first datagram that arrived to the last: earlier and later traffic cannot be known from
    /// these datagrams.
    pub(super) fn shown(&self, tally: &Tally, said: &[Bytes]) -> Option<Shown> {
        let (first, last) = tally.numbers()?;
        let departed = |number: u32| self.departures_s.get(number as usize).copied();
        let passed_s = departed(last)? - departed(first.checked_sub(1)?)?;
        let sent = f64::from(last - first) + 1.0;

        let figures = self.agent.flows().iter().map(|flow| {
            let truth = flow.frames_per_s * f64::from(flow.frame_bytes) * passed_s;
            let samples = tally.samples_of(flow.dst);
            let scaled = |rate: f64| Ratio::of_samples(samples, rate, flow.frame_bytes, truth);
            let collector = said.iter().find(|bytes| bytes.dst == flow.dst);
            [
                scaled(f64::from(SAMPLING_RATE)),
                scaled(tally.agent_rate()),
                collector.map_or(Ratio::NOTHING, |bytes| Ratio {
                    value: bytes.value / truth,
                    low: bytes.low / truth,
                    high: bytes.high / truth,
                }),
            ]
        });
        let figures: Vec<[Ratio; 3]> = figures.collect();
        let by = |estimator: usize| figures.iter().map(|figure| figure[estimator]).collect();
        Some(Shown {
            by_estimator: [by(0), by(1), by(2)],
            lost_share: 1.0 - tally.datagrams() as f64 / sent,
        })
    }
}

/// The results of one run.
pub(super) struct Shown {
    by_estimator: [Vec<Ratio>; 3],
    /// Share of datagrams lost between the first and the last that arrived.
    pub(super) lost_share: f64,
}

impl Shown {
    /// A figure for each flow.
    pub(super) fn of(&self, estimator: Estimator) -> &[Ratio] {
        &self.by_estimator[estimator as usize]
    }
}

/// A figure with its 95 % interval, as multiples of the truth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ratio {
    pub(super) value: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    const NOTHING: Ratio = Ratio { value: 0.0, low: 0.0, high: 0.0 };

    /// Computes the figure of samples that represent `rate` frames each. Its interval follows sFlow's packet sampling theory: 196
    /// × √(1/samples) percent.
    fn of_samples(samples: u64, rate: f64, frame_bytes: u32, truth: f64) -> Ratio {
        let value = samples as f64 * rate * f64::from(frame_bytes) / truth;
        let half = 1.96 * value / (samples.max(1) as f64).sqrt();
        Ratio { value, low: value - half, high: value + half }
    }

    /// Whether the interval contains the truth.
    pub(super) fn holds(&self) -> bool {
        (self.low..=self.high).contains(&1.0)
    }
}

/// A port of 10 Gbit/s with 8.4 Gbit/s of traffic: three flows with 60, 30 and 10 % of the frames, to destinations of the agent
/// with this number.
pub(super) fn steady(number: u8) -> Vec<TrueFlow> {
    let shapes = [(1_518, 600_000.0), (200, 300_000.0), (800, 100_000.0)];
    let flows = shapes.into_iter().zip(1..);
    flows.map(|((bytes, rate), last)| flow(number, last, bytes, rate)).collect()
}

/// A flow to destination number `last` of an agent.
pub(super) fn flow(number: u8, last: u8, frame_bytes: u32, frames_per_s: f64) -> TrueFlow {
    TrueFlow {
        src: Ipv4Addr::new(10, 0, number, last),
        dst: Ipv4Addr::new(172, 16, number, last),
        protocol: 17,
        src_port: 53,
        dst_port: 40_000 + u16::from(last),
        frame_bytes,
        frames_per_s,
    }
}
