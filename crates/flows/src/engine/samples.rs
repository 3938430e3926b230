//! Passes samples on to flows and interfaces, whatever protocol brings them.

use super::Rest;
use crate::agent::{Agent, AgentId, Known, Statements, Weighed};
use crate::allowance::{Allowance, FRAME_BYTES_MAX};
use crate::counting::Counting;
use crate::definition::{Direction, Sample, Traffic};
use crate::discrepancy::Discrepancy;
use crate::field::Facts;
use crate::port::{Port, PortCounters, Times};
use crate::portion::{CounterReading, Told};
use crate::sampler::Worth;
use crate::source::{End, Head, Length};

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
pub(crate) struct Heard {
    /// Whose it is.
    pub(crate) id: AgentId,
    /// Whether it cannot have been read before.
    pub(crate) is_new: bool,
    /// When it arrived.
    pub(crate) now_ns: u64,
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

/// What is read of a sampled frame.
pub(crate) trait Content: Facts {
    /// Length of the frame on the wire in bytes, as the agent states it. 0 if it does not.
    fn frame_bytes(&self) -> u32;

    /// Replaces it by a better one.
    fn set_frame_bytes(&mut self, bytes: u32);

    /// Compares it with the packet's.
    fn measure(&self) -> Length;

    /// Whether the frame was read as something else than the agent called it.
    fn is_other_link(&self) -> bool;
}

impl Rest {
    /// A sample was found.
    #[inline]
    pub(crate) fn note_sample(&mut self) {
        self.totals.samples += 1;
    }

    /// It is part of no figure.
    #[inline]
    pub(crate) fn note_other(&mut self) {
        self.totals.other_samples += 1;
    }

    /// It is one of counters.
    #[inline]
    pub(crate) fn note_counters(&mut self) {
        self.totals.counter_samples += 1;
    }

    /// The samples of a datagram are all there.
    #[inline]
    pub(super) fn settle(&mut self, told: &mut impl Told) {
        for counting in &mut self.counting {
            counting.settle(self.groups.of(counting.author()), told);
        }
    }

    /// Counts a sampled frame, unless it has been counted. `read` reads its content, into a place because it is large.
    #[inline]
    pub(crate) fn frame<C: Content>(
        &mut self,
        head: &Head,
        heard: Heard,
        agent: &mut Agent,
        told: &mut impl Told,
        content: &mut C,
        read: impl FnOnce(&mut Rest, &mut C),
    ) {
        let spot = self.spot(head, heard, agent);
        let sampling_rate = head.reading.sampling_rate;
        let mut weighed = agent.weigh(head.source, head.traffic, head.reading, &mut self.shares);
        if !self.note_fate(&weighed) {
            return;
        }
        match head.traffic {
            Traffic::Sampled => self.totals.flow_samples += 1,
            Traffic::Dropped => self.totals.dropped_packets += 1,
        }

        self.note_sampled(&spot, head, &mut weighed, heard.now_ns);
        read(self, content);
        self.judge_length(content, weighed.statements);
        if head.traffic == Traffic::Sampled {
            let port = weighed.port.as_deref();
            self.judge_rate(sampling_rate, port, &weighed.known, weighed.statements);
        }
        let frame_bytes = content.frame_bytes();
        let (weight, port) = self.grant(weighed, sampling_rate, frame_bytes, heard.now_ns);

        if let (Some(port), Traffic::Sampled) = (port, head.traffic) {
            let bytes = weight.frames * f64::from(frame_bytes);
            match spot.direction {
                Direction::Ingress => port.sampled_in(bytes),
                Direction::Egress => port.sampled_out(bytes),
                Direction::Any => {}
            }
        }
        self.count(head, &weight, &spot, content, heard.now_ns, told);
    }

    /// Where a sample was taken. Dropped packets went neither in nor out.
    #[inline]
    fn spot(&self, head: &Head, heard: Heard, agent: &Agent) -> Spot {
        let direction = match head.traffic {
            Traffic::Sampled => direction_of(head, agent),
            Traffic::Dropped => Direction::Any,
        };
        let input = || head.input.if_index().unwrap_or(0);
        let is_inside = || self.internal.contains(&(heard.id.address, input()));
        let is_edge =
            head.traffic == Traffic::Dropped || (direction != Direction::Egress && !is_inside());
        Spot { direction, vantage: agent.vantage(direction), device: agent.place(), is_edge }
    }

    /// Notes from time to time at which end of its way a sampler takes frames.
    #[inline]
    fn note_sampled(&mut self, spot: &Spot, head: &Head, weighed: &mut Weighed<'_>, now_ns: u64) {
        let end = match spot.direction {
            Direction::Ingress => head.input,
            Direction::Egress => head.output,
            Direction::Any => return,
        };
        if let (Some(known), End::Port(if_index)) = (&mut weighed.known, end)
            && let next_ns = &mut known.next_note_ns[spot.direction as usize]
            && now_ns >= *next_ns
        {
            let samplers_max = self.shares.sources_max();
            *next_ns = self.devices.note_sampled((spot.vantage, if_index), now_ns, samplers_max);
        }
    }

    /// Compares the length of a frame with that of its packet, and keeps the better one.
    #[inline]
    fn judge_length(&mut self, content: &mut impl Content, statements: &mut Statements) {
        if content.frame_bytes() > FRAME_BYTES_MAX {
            content.set_frame_bytes(0);
            self.fault(FRAME_LENGTH);
        }
        match content.measure() {
            Length::Plausible => {}
            Length::Stated => statements.long += 1,
            Length::Short { frame_bytes } => {
                statements.short += 1;
                if statements.is_length_of_sample() || content.frame_bytes() == 0 {
                    content.set_frame_bytes(frame_bytes);
                    self.note(statements, Discrepancy::FrameLength);
                } else {
                    self.note(statements, Discrepancy::PacketLength);
                }
            }
        }
        if content.is_other_link() {
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

    /// Takes the counters of an interface, with their number.
    pub(crate) fn interface(
        &mut self,
        (sequence, counters): (u32, PortCounters),
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
            let (id, now_ns, uptime_ms) = (heard.id, heard.now_ns, times.uptime_ms);
            told.counters(&CounterReading { id, uptime_ms, port, compared, now_ns });
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
        frame_bytes: u32,
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
        let frames = allowance.take(claimed, frame_bytes, now_ns, speed);
        let mut configured_rate = sampling_rate;
        if frames < claimed {
            self.totals.implausible_samples += 1;
            configured_rate = configured_rate.min(frames.ceil() as u32);
        }
        (Weight { frames, configured_rate, sampler }, port)
    }

    #[inline]
    fn count(
        &mut self,
        head: &Head,
        weight: &Weight,
        spot: &Spot,
        content: &impl Content,
        now_ns: u64,
        told: &mut impl Told,
    ) {
        let Weight { frames, configured_rate, sampler } = *weight;
        let Spot { direction, vantage, device, is_edge } = *spot;
        let traffic = head.traffic;
        let is_once = match traffic {
            Traffic::Sampled => {
                self.devices.see(device, direction, frames)
                    || (self.counting.iter().any(Counting::takes_once)
                        && self.devices.is_alone(vantage, head.other_end(direction), now_ns))
            }
            Traffic::Dropped => true,
        };
        let sample = Sample {
            traffic,
            vantage,
            sampler,
            direction,
            is_edge,
            is_once,
            frames,
            configured_rate,
            frame_bytes: content.frame_bytes(),
            now_ns,
        };
        for counting in &mut self.counting {
            counting.count(&sample, content, self.groups.of(counting.author()), told);
        }
    }
}

/// The side of its interface on which a sample was taken. The samples of a port of an aggregated link may name the whole link.
#[inline]
fn direction_of(head: &Head, agent: &Agent) -> Direction {
    match head.direction() {
        Direction::Any => {
            let port = head.source.if_index().and_then(|index| agent.port_of(index));
            let link = port.and_then(Port::aggregate);
            link.map_or(Direction::Any, |link| head.direction_at(link))
        }
        side => side,
    }
}
