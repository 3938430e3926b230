//! Passes the samples of a datagram on to flows and interfaces.

use super::Rest;
use crate::agent::{Agent, AgentId, Known, Weighed};
use crate::allowance::{Allowance, FRAME_BYTES_MAX};
use crate::definition::{Direction, Sample, Traffic};
use crate::observed::Observed;
use crate::port::Port;
use crate::portion::{CounterReading, Told};
use crate::sampler::{Reading, Worth};
use wire::sflow::{
    self, CounterRecord, CountersSample, DataSource, Datagram, DroppedPacket, FlowRecords,
    FlowSample,
};

/// The sampler of samples that have none of their own, because there is no room for one.
const NO_SAMPLER: u32 = u32::MAX;

/// The fault of a sample whose frame is longer than frames can be.
const FRAME_LENGTH: &str = "frame_length";

/// What one sample is worth, and its sampler.
struct Weight {
    frames: f64,
    configured_rate: u32,
    sampler: u32,
}

impl Rest {
    /// Processes the content of a datagram, sample by sample.
    pub(super) fn samples(
        &mut self,
        datagram: &Datagram<'_>,
        id: AgentId,
        agent: &mut Agent,
        now_ns: u64,
        told: &mut impl Told,
    ) {
        for sample in datagram.samples() {
            self.totals.samples += 1;
            match sample {
                Ok(sflow::Sample::Flow(flow)) => {
                    self.flow(datagram, &flow, id, agent, now_ns, told);
                }
                Ok(sflow::Sample::Dropped(dropped)) => {
                    self.dropped(datagram, &dropped, id, agent, now_ns, told);
                }
                Ok(sflow::Sample::Counters(counters)) => {
                    self.counters(datagram, &counters, id, agent, now_ns, told);
                }
                Ok(sflow::Sample::Metrics(_) | sflow::Sample::RtFlow(_)) => {
                    self.totals.other_samples += 1;
                }
                Ok(sflow::Sample::Unknown(raw)) => {
                    self.totals.other_samples += 1;
                    self.unknown(raw.format);
                }
                Err(malformed) => {
                    self.totals.other_samples += 1;
                    self.fault(&malformed);
                }
            }
        }
        for counting in &mut self.counting {
            counting.settle(self.groups.of(counting.author()), told);
        }
    }

    fn flow(
        &mut self,
        datagram: &Datagram<'_>,
        flow: &FlowSample<'_>,
        id: AgentId,
        agent: &mut Agent,
        now_ns: u64,
        told: &mut impl Told,
    ) {
        let reading = Reading {
            sequence: flow.sequence,
            sampling_rate: flow.sampling_rate,
            pool: flow.sample_pool,
            drops: flow.drops,
            uptime_ms: datagram.uptime_ms,
        };
        let Some(weighed) = self.weigh(agent, flow.source, Traffic::Sampled, reading) else {
            self.totals.duplicate_samples += 1;
            return;
        };
        self.totals.flow_samples += 1;

        let mut observed = Observed::of_flow(id.address, id.sub_agent, flow);
        self.observe(flow.records(), &mut observed);
        let (weight, port) = self.grant(weighed, reading.sampling_rate, &observed, now_ns);

        let bytes = weight.frames * f64::from(observed.frame_bytes);
        let direction = match flow.direction() {
            sflow::Direction::Ingress => Direction::Ingress,
            sflow::Direction::Egress => Direction::Egress,
            sflow::Direction::Unknown => Direction::Any,
        };
        if let Some(port) = port {
            match direction {
                Direction::Ingress => port.sampled_in(bytes),
                Direction::Egress => port.sampled_out(bytes),
                Direction::Any => {}
            }
        }
        let input = flow.input.if_index().unwrap_or(0);
        let is_edge =
            direction != Direction::Egress && !self.internal.contains(&(id.address, input));
        self.count(Traffic::Sampled, weight, direction, is_edge, &observed, now_ns, told);
    }

    /// Collects what records say about a frame.
    fn observe(&mut self, records: FlowRecords<'_>, observed: &mut Observed) {
        for record in records {
            // By reference: a record is large and would be copied.
            match &record {
                Ok(sflow::FlowRecord::Unknown(raw)) => self.unknown(raw.format),
                Ok(record) => observed.add(record),
                Err(malformed) => self.fault(malformed),
            }
        }
        if observed.frame_bytes > FRAME_BYTES_MAX {
            observed.frame_bytes = 0;
            *self.totals.faults.entry(FRAME_LENGTH).or_default() += 1;
        }
    }

    fn dropped(
        &mut self,
        datagram: &Datagram<'_>,
        dropped: &DroppedPacket<'_>,
        id: AgentId,
        agent: &mut Agent,
        now_ns: u64,
        told: &mut impl Told,
    ) {
        // Each dropped packet stands for one, and those not reported are counted in `drops`.
        let reading = Reading {
            sequence: dropped.sequence,
            sampling_rate: 1,
            pool: dropped.sequence.wrapping_add(dropped.drops),
            drops: dropped.drops,
            uptime_ms: datagram.uptime_ms,
        };
        let Some(weighed) = self.weigh(agent, dropped.source, Traffic::Dropped, reading) else {
            self.totals.duplicate_samples += 1;
            return;
        };
        self.totals.dropped_packets += 1;

        let mut observed = Observed::of_dropped(id.address, id.sub_agent, dropped);
        self.observe(dropped.records(), &mut observed);
        let (weight, _) = self.grant(weighed, reading.sampling_rate, &observed, now_ns);
        self.count(Traffic::Dropped, weight, Direction::Any, true, &observed, now_ns, told);
    }

    fn counters(
        &mut self,
        datagram: &Datagram<'_>,
        counters: &CountersSample<'_>,
        id: AgentId,
        agent: &mut Agent,
        now_ns: u64,
        told: &mut impl Told,
    ) {
        self.totals.counter_samples += 1;
        for record in counters.records() {
            match record {
                Ok(CounterRecord::Interface(port)) => {
                    match agent.port_or_new(port.if_index, &mut self.shares) {
                        Some(at) => {
                            let index = port.if_index;
                            let seen = at.take(counters.sequence, datagram.uptime_ms, port);
                            self.changed.note(id, index);
                            if let (Some(compared), Some(port)) = (seen, agent.port_of(index)) {
                                let reading = CounterReading { id, agent, port, compared, now_ns };
                                told.counters(&reading);
                            }
                        }
                        None => self.totals.source_limit += 1,
                    }
                }
                Ok(CounterRecord::Unknown(raw)) => self.unknown(raw.format),
                Ok(_) => {}
                Err(malformed) => self.fault(&malformed),
            }
        }
    }

    /// What a sample is worth. `None` if it was already counted.
    #[inline]
    fn weigh<'a>(
        &mut self,
        agent: &'a mut Agent,
        source: DataSource,
        traffic: Traffic,
        reading: Reading,
    ) -> Option<Weighed<'a>> {
        let weighed = agent.weigh(source, traffic, reading, &mut self.shares);
        match &weighed.known {
            None => self.totals.source_limit += 1,
            Some(Known { worth: Worth::Duplicate, dropped, .. }) => {
                self.totals.agent_dropped_samples += dropped;
                return None;
            }
            Some(Known { dropped, .. }) => self.totals.agent_dropped_samples += dropped,
        }
        Some(weighed)
    }

    /// What a sample stands for: no more than its interface can have carried.
    #[inline]
    fn grant<'a>(
        &mut self,
        weighed: Weighed<'a>,
        sampling_rate: u32,
        observed: &Observed,
        now_ns: u64,
    ) -> (Weight, Option<&'a mut Port>) {
        let Weighed { known, port } = weighed;
        // Each of those without a sampler is a first one.
        let mut first = Allowance::default();
        let (claimed, sampler, allowance) = match known {
            Some(Known { worth: Worth::Frames(frames), number, allowance, .. }) => {
                (frames, number, allowance)
            }
            Some(Known { worth: Worth::Duplicate, number, allowance, .. }) => {
                (0.0, number, allowance)
            }
            None => (sampling_rate.into(), NO_SAMPLER, &mut first),
        };
        let speed = || port.as_ref()?.speed_bits_per_sec();
        let frames = allowance.take(claimed, observed.frame_bytes, now_ns, speed);
        let mut configured_rate = sampling_rate;
        if frames < claimed {
            self.totals.implausible_samples += 1;
            configured_rate = configured_rate.min(frames.ceil() as u32);
        }
        (Weight { frames, configured_rate, sampler }, port)
    }

    #[expect(clippy::too_many_arguments, reason = "what a sample is, and where its flows go")]
    fn count(
        &mut self,
        traffic: Traffic,
        weight: Weight,
        direction: Direction,
        is_edge: bool,
        observed: &Observed,
        now_ns: u64,
        told: &mut impl Told,
    ) {
        let Weight { frames, configured_rate, sampler } = weight;
        let frame_bytes = observed.frame_bytes;
        let sample = Sample {
            traffic,
            sampler,
            direction,
            is_edge,
            frames,
            configured_rate,
            frame_bytes,
            now_ns,
        };
        for counting in &mut self.counting {
            counting.count(&sample, observed, self.groups.of(counting.author()), told);
        }
    }
}
