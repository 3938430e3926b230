//! What arrived of one agent, counted by the simplest means: what other collectors make their figures of.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use wire::sflow::{Datagram, FlowRecord, Sample};

/// Where an IPv4 header behind an Ethernet header without tags, as the lab's agents send it, has its destination.
const DST: std::ops::Range<usize> = 30..34;

/// One agent's datagrams and samples.
#[derive(Default)]
pub(super) struct Tally {
    datagrams: u64,
    numbers: Option<(u32, u32)>,
    samples: HashMap<Ipv4Addr, u64>,
    /// Pool and number of the first sample and of the last.
    readings: Option<[(u32, u32); 2]>,
}

/// The number of the agent in a datagram of the lab's, as [`Played`](super::played::Played) has it.
pub(super) fn agent_of(datagram: &Datagram<'_>) -> Option<u8> {
    match datagram.agent.ip() {
        Some(IpAddr::V4(address)) => Some(address.octets()[3]),
        _ => None,
    }
}

impl Tally {
    /// Counts a datagram.
    pub(super) fn take(&mut self, datagram: &Datagram<'_>) {
        self.datagrams += 1;
        let number = datagram.sequence;
        let (first, last) = self.numbers.unwrap_or((number, number));
        self.numbers = Some((first.min(number), last.max(number)));

        for sample in datagram.samples().flatten() {
            let Sample::Flow(sample) = sample else { continue };
            let reading = (sample.sample_pool, sample.sequence);
            let [first, _] = self.readings.unwrap_or([reading; 2]);
            self.readings = Some([first, reading]);
            for record in sample.records().flatten() {
                let FlowRecord::SampledHeader(record) = record else { continue };
                let dst: Option<[u8; 4]> =
                    record.header.get(DST).and_then(|bytes| bytes.try_into().ok());
                *self.samples.entry(dst.unwrap_or_default().into()).or_default() += 1;
            }
        }
    }

    /// How many arrived.
    pub(super) fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// The first number that arrived, and the last.
    pub(super) fn numbers(&self) -> Option<(u32, u32)> {
        self.numbers
    }

    /// Samples of frames to this destination.
    pub(super) fn samples_of(&self, dst: Ipv4Addr) -> u64 {
        self.samples.get(&dst).copied().unwrap_or(0)
    }

    /// Frames for each sample that the agent numbered; 0 if there are fewer than two.
    pub(super) fn agent_rate(&self) -> f64 {
        let Some([first, last]) = self.readings else { return 0.0 };
        let (pool, numbers) = (last.0.wrapping_sub(first.0), last.1.wrapping_sub(first.1));
        f64::from(pool) / f64::from(numbers).max(1.0)
    }
}
