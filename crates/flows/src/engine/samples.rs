//! Passes the samples of a datagram on to flows and interfaces.

use super::Rest;
use crate::agent::{Agent, AgentId, Known, Statements, Weighed};
use crate::allowance::{Allowance, FRAME_BYTES_MAX};
use crate::definition::{Direction, Sample, Traffic};
use crate::discrepancy::Discrepancy;
use crate::observed::{Length, Observed};
use crate::port::{Port, Times};
use crate::portion::{CounterReading, Told};
use crate::sampler::{Reading, Worth};
use wire::sflow::counter::IfCounters;
use wire::sflow::{
    self, CounterRecord, CountersSample, Datagram, DroppedPacket, FlowRecords, FlowSample,
};

/// The sampler of samples that have none of their own, because there is no room for one.
const NO_SAMPLER: u32 = u32::MAX;

/// The fault of a sample whose frame is longer than frames can be.
const FRAME_LENGTH: &str = "frame_length";

/// Speed of an interface that is not known, when its sampling rate is judged, in bits per second.
const USUAL_BITS_PER_SEC: u64 = 10_000_000_000;

/// Usual length of a frame, in bits.
const USUAL_BITS: u64 = 8_000;

/// A datagram whose samples are read.
#[derive(Clone, Copy)]
pub(super) struct Heard {
    /// Whose it is.
    pub(super) id: AgentId,
    /// Whether it cannot have been read before.
    pub(super) is_new: bool,
    /// When it arrived.
    pub(super) now_ns: u64,
}

/// What one sample is worth, and its sampler.
struct Weight {
    frames: f64,
    configured_rate: u32,
    sampler: u32,
}

/// Where a sample was taken.
struct Spot {
    direction: Direction,
    /// The vantage of the direction.
    vantage: u32,
    /// The place of the agent's device.
    device: u32,
    is_edge: bool,
}

impl Rest {
    /// Processes the content of a datagram, sample by sample.
    pub(super) fn samples(
        &mut self,
        datagram: &Datagram<'_>,
        heard: Heard,
        agent: &mut Agent,
        told: &mut impl Told,
    ) {
        for sample in datagram.samples() {
            self.totals.samples += 1;
            match sample {
                Ok(sflow::Sample::Flow(flow)) => {
                    self.flow(datagram, &flow, heard, agent, told);
                }
                Ok(sflow::Sample::Dropped(dropped)) => {
                    self.dropped(datagram, &dropped, heard, agent, told);
                }
                Ok(sflow::Sample::Counters(counters)) => {
                    self.counters(datagram, &counters, heard, agent, told);
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
        heard: Heard,
        agent: &mut Agent,
        told: &mut impl Told,
    ) {
        let reading = Reading {
            sequence: flow.sequence,
            sampling_rate: flow.sampling_rate,
            pool: flow.sample_pool,
            drops: flow.drops,
            uptime_ms: datagram.uptime_ms,
            is_new: heard.is_new,
        };
        let direction = direction_of(flow, agent);
        let input = flow.input.if_index().unwrap_or(0);
        let is_edge =
            direction != Direction::Egress && !self.internal.contains(&(heard.id.address, input));
        let (vantage, device) = (agent.vantage(direction), agent.place());
        let spot = Spot { direction, vantage, device, is_edge };

        let weighed = agent.weigh(flow.source, Traffic::Sampled, reading, &mut self.shares);
        if !self.note_fate(&weighed) {
            return;
        }
        self.totals.flow_samples += 1;

        let mut observed = Observed::of_flow(heard.id.address, heard.id.sub_agent, flow);
        self.observe(flow.records(), &mut observed, weighed.statements);
        self.judge_rate(
            reading.sampling_rate,
            weighed.port.as_deref(),
            &weighed.known,
            weighed.statements,
        );
        let (weight, port) = self.grant(weighed, reading.sampling_rate, &observed, heard.now_ns);

        let bytes = weight.frames * f64::from(observed.frame_bytes);
        if let Some(port) = port {
            match direction {
                Direction::Ingress => port.sampled_in(bytes),
                Direction::Egress => port.sampled_out(bytes),
                Direction::Any => {}
            }
        }
        self.count(Traffic::Sampled, &weight, &spot, &observed, heard.now_ns, told);
    }

    /// Collects what records say about a frame.
    fn observe<'a>(
        &mut self,
        records: FlowRecords<'a>,
        observed: &mut Observed<'a>,
        statements: &mut Statements,
    ) {
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
        match observed.measure() {
            Length::Plausible => {}
            Length::Stated => statements.long += 1,
            Length::Short { frame_bytes } => {
                statements.short += 1;
                if statements.is_length_of_sample() || observed.frame_bytes == 0 {
                    observed.frame_bytes = frame_bytes;
                    self.note(statements, Discrepancy::FrameLength);
                } else {
                    self.note(statements, Discrepancy::PacketLength);
                }
            }
        }
        if observed.is_other_link() {
            self.note(statements, Discrepancy::LinkType);
        }
    }

    #[cold]
    fn note(&mut self, statements: &mut Statements, of: Discrepancy) {
        statements.discrepancies.note(of);
        self.totals.discrepancies.note(of);
    }

    /// Notes what is wrong with a sampler's numbers and rate.
    #[inline]
    fn judge_rate(
        &mut self,
        sampling_rate: u32,
        port: Option<&Port>,
        known: &Option<Known<'_>>,
        statements: &mut Statements,
    ) {
        if known.as_ref().is_some_and(|known| known.is_shared) {
            self.note(statements, Discrepancy::SampleNumbers);
        }
        if sampling_rate == 0 {
            let has_pool = known.as_ref().is_some_and(|known| known.has_pool);
            let of = if has_pool { Discrepancy::NoRate } else { Discrepancy::NoPool };
            return self.note(statements, of);
        }
        // Less than a sample a second of the usual frames at full speed.
        let bits = u64::from(sampling_rate) * USUAL_BITS;
        if bits > USUAL_BITS_PER_SEC / 1_000 {
            let speed = port.and_then(Port::speed_bits_per_sec).unwrap_or(USUAL_BITS_PER_SEC);
            if bits > speed {
                self.note(statements, Discrepancy::RareSamples);
            }
        }
    }

    fn dropped(
        &mut self,
        datagram: &Datagram<'_>,
        dropped: &DroppedPacket<'_>,
        heard: Heard,
        agent: &mut Agent,
        told: &mut impl Told,
    ) {
        // Each dropped packet stands for one, and those not reported are counted in `drops`.
        let reading = Reading {
            sequence: dropped.sequence,
            sampling_rate: 1,
            pool: dropped.sequence.wrapping_add(dropped.drops),
            drops: dropped.drops,
            uptime_ms: datagram.uptime_ms,
            is_new: heard.is_new,
        };
        let direction = Direction::Any;
        let (vantage, device) = (agent.vantage(direction), agent.place());
        let spot = Spot { direction, vantage, device, is_edge: true };
        let weighed = agent.weigh(dropped.source, Traffic::Dropped, reading, &mut self.shares);
        if !self.note_fate(&weighed) {
            return;
        }
        self.totals.dropped_packets += 1;

        let mut observed = Observed::of_dropped(heard.id.address, heard.id.sub_agent, dropped);
        self.observe(dropped.records(), &mut observed, weighed.statements);
        let (weight, _) = self.grant(weighed, reading.sampling_rate, &observed, heard.now_ns);
        self.count(Traffic::Dropped, &weight, &spot, &observed, heard.now_ns, told);
    }

    fn counters(
        &mut self,
        datagram: &Datagram<'_>,
        counters: &CountersSample<'_>,
        heard: Heard,
        agent: &mut Agent,
        told: &mut impl Told,
    ) {
        self.totals.counter_samples += 1;
        let times = Times { uptime_ms: datagram.uptime_ms, arrival_ns: heard.now_ns };
        for record in counters.records() {
            match record {
                Ok(CounterRecord::Interface(port)) => {
                    self.interface(port, counters.sequence, times, heard, agent, told);
                }
                Ok(CounterRecord::LagPort(member)) => {
                    let index = counters.source.if_index();
                    if let Some(port) = index.and_then(|index| agent.port_mut(index)) {
                        port.set_aggregate(member.attached_agg_id);
                    }
                }
                Ok(CounterRecord::Unknown(raw)) => self.unknown(raw.format),
                Ok(_) => {}
                Err(malformed) => self.fault(&malformed),
            }
        }
    }

    fn interface(
        &mut self,
        counters: IfCounters,
        sequence: u32,
        times: Times,
        heard: Heard,
        agent: &mut Agent,
        told: &mut impl Told,
    ) {
        let index = counters.if_index;
        let Some((port, statements)) = agent.port_or_new(index, &mut self.shares) else {
            self.totals.source_limit += 1;
            return;
        };
        let seen = port.take(sequence, times, counters, |of| {
            statements.discrepancies.note(of);
            self.totals.discrepancies.note(of);
        });
        self.changed.note(heard.id, index);
        if let (Some(compared), Some(port)) = (seen, agent.port_of(index)) {
            let (id, now_ns) = (heard.id, heard.now_ns);
            told.counters(&CounterReading { id, agent, port, compared, now_ns });
        }
    }

    /// Counts what the sampler says was lost. Returns whether the sample counts: it does unless it was counted before.
    #[inline]
    fn note_fate(&mut self, weighed: &Weighed<'_>) -> bool {
        let Some(Known { worth, dropped, .. }) = &weighed.known else {
            self.totals.source_limit += 1;
            return true;
        };
        self.totals.agent_dropped_samples += dropped;
        let is_duplicate = *worth == Worth::Duplicate;
        self.totals.duplicate_samples += u64::from(is_duplicate);
        !is_duplicate
    }

    /// What a sample stands for: no more than its interface can have carried.
    #[inline]
    fn grant<'a>(
        &mut self,
        weighed: Weighed<'a>,
        sampling_rate: u32,
        observed: &Observed<'_>,
        now_ns: u64,
    ) -> (Weight, Option<&'a mut Port>) {
        let Weighed { known, port, .. } = weighed;
        // Each of those without a sampler is a first one.
        let mut first = Allowance::default();
        let (claimed, sampler, allowance) = match known {
            Some(Known { worth: Worth::Frames(frames), number, allowance, .. }) => {
                (frames, number, allowance)
            }
            Some(Known { worth: Worth::Duplicate, number, allowance, .. }) => {
                (0.0, number, allowance)
            }
            None => (sampling_rate.max(1).into(), NO_SAMPLER, &mut first),
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

    fn count(
        &mut self,
        traffic: Traffic,
        weight: &Weight,
        spot: &Spot,
        observed: &Observed<'_>,
        now_ns: u64,
        told: &mut impl Told,
    ) {
        let Weight { frames, configured_rate, sampler } = *weight;
        let Spot { direction, vantage, device, is_edge } = *spot;
        let is_main = match traffic {
            Traffic::Sampled => self.devices.see(device, direction, frames),
            Traffic::Dropped => true,
        };
        let sample = Sample {
            traffic,
            vantage,
            sampler,
            direction,
            is_edge,
            is_main,
            frames,
            configured_rate,
            frame_bytes: observed.frame_bytes,
            now_ns,
        };
        for counting in &mut self.counting {
            counting.count(&sample, observed, self.groups.of(counting.author()), told);
        }
    }
}

/// The side of its interface on which a sample was taken. The samples of a port of an aggregated link may name the whole link.
#[inline]
fn direction_of(flow: &FlowSample<'_>, agent: &Agent) -> Direction {
    let of = |side| match side {
        sflow::Direction::Ingress => Direction::Ingress,
        sflow::Direction::Egress => Direction::Egress,
        sflow::Direction::Unknown => Direction::Any,
    };
    match flow.direction() {
        sflow::Direction::Unknown => {
            let port = flow.source.if_index().and_then(|index| agent.port_of(index));
            let link = port.and_then(Port::aggregate);
            link.map_or(Direction::Any, |link| of(flow.direction_at(link)))
        }
        side => of(side),
    }
}
