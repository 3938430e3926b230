//! Counts what arrived from one agent in the simplest way, from which other collectors compute their figures.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use wire::sflow::{Datagram, FlowRecord, Sample};

/// Position of the destination in an IPv4 header after an untagged Ethernet header, as the lab's agents send it.
const DST: std::ops::Range<usize> = 30..34;

/// The datagrams and samples of one agent.
#[derive(Default)]
pub(super) struct Tally {
    datagrams: u64,
    numbers: Option<(u32, u32)>,
    samples: HashMap<Ipv4Addr, u64>,
    /// Sample pool and number of the first and the last sample.
    readings: Option<[(u32, u32); 2]>,
}

/// The agent's number in a datagram of the lab, as assigned by [`Played`](super::played::Played).
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

    /// Number of datagrams that arrived.
    pub(super) fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// The first and the last number that arrived.
    pub(super) fn numbers(&self) -> Option<(u32, u32)> {
        self.numbers
    }

    /// Samples of frames to this destination.
    pub(super) fn samples_of(&self, dst: Ipv4Addr) -> u64 {
        self.samples.get(&dst).copied().unwrap_or(0)
    }

    /// Frames per sample, from the agent's counters; 0 with fewer than two samples.
    pub(super) fn agent_rate(&self) -> f64 {
        let Some([first, last]) = self.readings else { return 0.0 };
        let (pool, numbers) = (last.0.wrapping_sub(first.0), last.1.wrapping_sub(first.1));
        f64::from(pool) / f64::from(numbers).max(1.0)
    }
}
