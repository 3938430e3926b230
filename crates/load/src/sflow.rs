//! sFlow from simulated agents: known traffic, sampled at random, as datagrams.
//!
//! Every figure that a collector can derive from it is known in advance: each flow has a fixed rate and frame size. Only the
//! choice of sampled frames is random, as in a switch: each has the same probability, independent of earlier ones.

mod packet;

pub use packet::{Fragment, Packet};

mod flood;

pub use flood::Flood;

use crate::Random;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use wire::sflow::counter::IfCounters;
use wire::sflow::flow::SampledHeader;
use wire::sflow::{
    Counter32, Counter64, CounterRecord, CountersSample, DataSource, Datagram, FlowRecord,
    FlowSample, Form, Interface, Writer,
};

/// How long samples may wait for others (sFlow version 5, section 4.3).
const HOLD: Duration = Duration::from_secs(1);

/// A constant UDP or TCP flow over IPv4.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TrueFlow {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// IP protocol: 6 or 17.
    pub protocol: u8,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Frame size in bytes, including the check sequence: 64 to 9,216.
    pub frame_bytes: u32,
    /// Frames per second.
    pub frames_per_s: f64,
}

/// Options of a simulated agent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AgentOptions {
    /// The address that the agent reports.
    pub address: IpAddr,
    /// Its part of the agent.
    pub sub_agent: u32,
    /// One in this many frames is sampled.
    pub sampling_rate: u32,
    /// The interface at which frames arrive and are sampled.
    pub if_index: u32,
    /// The speed that the interface reports.
    pub speed_bits_per_s: u64,
    /// Most samples in a datagram.
    pub samples_max: usize,
    /// How often to send the interface's counters.
    pub counters_every: Duration,
}

impl Default for AgentOptions {
    fn default() -> AgentOptions {
        AgentOptions {
            address: Ipv4Addr::new(192, 0, 2, 1).into(),
            sub_agent: 0,
            sampling_rate: 1_000,
            if_index: 1,
            speed_bits_per_s: 10_000_000_000,
            samples_max: 5,
            counters_every: Duration::from_secs(20),
        }
    }
}

/// One agent with one interface.
pub struct Agent {
    options: AgentOptions,
    flows: Vec<TrueFlow>,
    /// The first bytes of a frame of each flow, and its size.
    frames: Vec<(Vec<u8>, u32)>,
    /// For each flow, the cumulative share of frames up to and including it.
    shares: Vec<f64>,
    frames_per_s: f64,
    bytes_per_s: f64,
    /// Octets received so far.
    octets: f64,
    random: Random,
    /// Time of the last sample since the agent started; `pool` counts the frames up to it.
    now_s: f64,
    pool: u64,
    sequence: u32,
    flow_sequence: u32,
    counter_sequence: u32,
    counters_due_s: f64,
}

impl Agent {
    /// An agent that has not sent anything. The same seed gives the same datagrams.
    pub fn new(options: AgentOptions, flows: Vec<TrueFlow>, seed: u64) -> Agent {
        let mut agent = Agent {
            options,
            frames: Vec::new(),
            shares: Vec::new(),
            flows: Vec::new(),
            frames_per_s: 0.0,
            bytes_per_s: 0.0,
            octets: 0.0,
            random: Random::seeded(seed),
            now_s: 0.0,
            pool: 0,
            sequence: 0,
            flow_sequence: 0,
            counter_sequence: 0,
            counters_due_s: 0.0,
        };
        agent.set_flows(flows);
        agent
    }

    /// Replaces the traffic through the interface by these flows. At least one.
    pub fn set_flows(&mut self, flows: Vec<TrueFlow>) {
        let streams = flows.iter().map(|flow| (Packet::from(flow), flow.frames_per_s));
        self.set_packets(&streams.collect::<Vec<_>>());
        self.flows = flows;
    }

    /// Replaces the traffic through the interface by these packets with their rates per second, instead of [`TrueFlow`]s. At
    /// least one.
    pub fn set_packets(&mut self, streams: &[(Packet, f64)]) {
        self.flows.clear();
        self.frames_per_s = streams.iter().map(|(_, per_s)| per_s).sum();
        let bytes = streams.iter().map(|(packet, per_s)| per_s * f64::from(packet.frame_bytes));
        self.bytes_per_s = bytes.sum();

        let mut sum = 0.0;
        let shares = streams.iter().map(|(_, per_s)| {
            sum += per_s;
            sum / self.frames_per_s
        });
        self.shares = shares.collect();
        let frames = streams.iter().map(|(packet, _)| (packet.header(), packet.frame_bytes));
        self.frames = frames.collect();
    }

    /// The flows through the interface, unless [`set_packets`](Self::set_packets) replaced them.
    pub fn flows(&self) -> &[TrueFlow] {
        &self.flows
    }

    /// Time of its last datagram, since the agent started.
    pub fn now(&self) -> Duration {
        Duration::from_secs_f64(self.now_s)
    }

    /// Writes the next datagram to `out`, which is cleared first. Returns its time of sending, since the agent started.
    pub fn next_datagram(&mut self, out: &mut Vec<u8>) -> Duration {
        let mut picked = Vec::with_capacity(self.options.samples_max);
        let until_s = self.now_s + HOLD.as_secs_f64();
        while picked.len() < self.options.samples_max && self.now_s < until_s {
            let frames = self.until_next_sample();
            self.pool += frames;
            let passed_s = frames as f64 / self.frames_per_s;
            self.now_s += passed_s;
            self.octets += self.bytes_per_s * passed_s;
            let at = self.random.unit();
            let flow = self.shares.partition_point(|share| *share <= at).min(self.frames.len() - 1);
            picked.push((flow, self.pool));
        }

        out.clear();
        self.sequence = self.sequence.wrapping_add(1);
        let (address, sub_agent) = (self.options.address.into(), self.options.sub_agent);
        let uptime_ms = (self.now_s * 1e3) as u64 as u32;
        let datagram = Datagram::new(address, sub_agent, self.sequence, uptime_ms);
        let mut writer = Writer::begin(out, &datagram);
        for (flow, pool) in picked {
            self.flow_sequence = self.flow_sequence.wrapping_add(1);
            let sample = FlowSample {
                form: Form::Compact,
                sequence: self.flow_sequence,
                source: DataSource::interface(self.options.if_index),
                sampling_rate: self.options.sampling_rate,
                sample_pool: pool as u32,
                drops: 0,
                input: Interface::Index(self.options.if_index),
                output: Interface::Unknown,
                raw_records: wire::sflow::Records::EMPTY,
            };
            let (header, frame_length_bytes) = &self.frames[flow];
            let header = SampledHeader {
                protocol: 1,
                frame_length_bytes: *frame_length_bytes,
                stripped_bytes: 4,
                header,
            };
            writer.flow(&sample, &[FlowRecord::SampledHeader(header)]);
        }
        if self.now_s >= self.counters_due_s {
            self.counters_due_s = self.now_s + self.options.counters_every.as_secs_f64();
            self.counter_sequence = self.counter_sequence.wrapping_add(1);
            let sample = CountersSample {
                form: Form::Compact,
                sequence: self.counter_sequence,
                source: DataSource::interface(self.options.if_index),
                raw_records: wire::sflow::Records::EMPTY,
            };
            writer.counters(&sample, &[CounterRecord::Interface(self.counters())]);
        }
        self.now()
    }

    /// How many frames pass up to and including the next sampled one: each frame has the same probability.
    fn until_next_sample(&mut self) -> u64 {
        if self.options.sampling_rate <= 1 {
            return 1;
        }
        let chance = 1.0 / f64::from(self.options.sampling_rate);
        // From just above 0, never 0, to 1.
        let unit = 1.0 - self.random.unit();
        (unit.ln() / (1.0 - chance).ln()).floor() as u64 + 1
    }

    fn counters(&self) -> IfCounters {
        let none = Counter32(0);
        IfCounters {
            if_index: self.options.if_index,
            if_type: 6,
            speed_bits_per_sec: self.options.speed_bits_per_s,
            direction: 1,
            status: 3,
            in_octets: Counter64(self.octets as u64),
            in_ucast_packets: Counter32(self.pool as u32),
            in_multicast_packets: none,
            in_broadcast_packets: none,
            in_discards: none,
            in_errors: none,
            in_unknown_protos: none,
            out_octets: Counter64(0),
            out_ucast_packets: none,
            out_multicast_packets: none,
            out_broadcast_packets: none,
            out_discards: none,
            out_errors: none,
            promiscuous_mode: 2,
        }
    }
}
