//! sFlow at the highest rate: datagrams are made once and sent repeatedly, each time with advanced sequence numbers.

use super::{Agent, AgentOptions, TrueFlow};
use std::net::Ipv4Addr;
use std::time::Duration;
use wire::sflow::flow::{Router, Switch};
use wire::sflow::{Address, Datagram, FlowRecord, FlowSample, Records, Sample, Writer};

/// Flow samples in each datagram.
const SAMPLES: usize = 5;

/// Number of datagrams to keep, or one per agent if there are more agents.
const KEPT: u32 = 4_096;

/// Offsets of the numbers in a datagram of an agent with an IPv4 address (sFlow version 5, section 5.1, `sample_datagram_v5`):
/// after version, address type, address and sub-agent.
const SEQUENCE_AT: usize = 16;
const UPTIME_AT: usize = 20;
const SAMPLES_AT: usize = 28;

/// The same in a flow sample (section 5.3, `flow_sample`): after format and length; the pool after source and rate.
const SAMPLE_SEQUENCE_AT: usize = 8;
const SAMPLE_POOL_AT: usize = 20;

/// Datagrams of equal length from many agents in turn.
pub struct Flood {
    bytes: Vec<u8>,
    datagram_bytes: usize,
    /// How far each datagram's numbers advance per turn: `rounds` for its sequence number and, per agent, milliseconds and
    /// frames.
    rounds: u32,
    spans: Vec<(u32, u32)>,
}

impl Flood {
    /// The datagrams of this many agents, at least one, with addresses from 192.0.2.1 on. Each samples `flows` flows with 10
    /// Gbit/s in total, which no other agent has.
    pub fn new(agents: u32, flows: u32) -> Flood {
        let rounds = (KEPT / agents.max(1)).max(1);
        let mut players: Vec<Agent> = (0..agents.max(1)).map(|one| player(one, flows)).collect();
        let (mut bytes, mut datagram, mut made) = (Vec::new(), Vec::new(), Vec::new());
        // The first datagram contains counters.
        players.iter_mut().for_each(|agent| _ = agent.next_datagram(&mut made));
        let began: Vec<_> = players.iter().map(|agent| (agent.now(), agent.pool)).collect();

        for round in 0..rounds {
            for agent in &mut players {
                agent.next_datagram(&mut made);
                rewrite(&made, round + 1, &mut datagram);
                bytes.extend(&datagram);
            }
        }

        let spans = players.iter().zip(began).map(|(agent, (now, pool))| {
            ((agent.now() - now).as_millis() as u32, (agent.pool - pool) as u32)
        });
        Flood { bytes, datagram_bytes: datagram.len(), rounds, spans: spans.collect() }
    }

    /// All datagrams, concatenated in sending order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Size of each datagram: about 1,200 bytes.
    pub fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    /// Advances all numbers, so that the same datagrams count as new ones.
    pub fn go_on(&mut self) {
        let sample_bytes = (self.datagram_bytes - SAMPLES_AT) / SAMPLES;
        let datagrams = self.bytes.chunks_exact_mut(self.datagram_bytes);
        for (datagram, (span_ms, frames)) in datagrams.zip(self.spans.iter().cycle()) {
            add(datagram, SEQUENCE_AT, self.rounds);
            add(datagram, UPTIME_AT, *span_ms);
            for sample in datagram[SAMPLES_AT..].chunks_exact_mut(sample_bytes) {
                add(sample, SAMPLE_SEQUENCE_AT, self.rounds * SAMPLES as u32);
                add(sample, SAMPLE_POOL_AT, *frames);
            }
        }
    }
}

/// Adds to the number at this offset.
fn add(bytes: &mut [u8], at: usize, by: u32) {
    if let Some(place) = bytes[at..].first_chunk_mut() {
        *place = u32::from_be_bytes(*place).wrapping_add(by).to_be_bytes();
    }
}

fn player(number: u32, flows: u32) -> Agent {
    let options = AgentOptions {
        address: Ipv4Addr::from_bits(Ipv4Addr::new(192, 0, 2, 1).to_bits() + number).into(),
        samples_max: SAMPLES,
        counters_every: Duration::MAX,
        ..AgentOptions::default()
    };
    let flow = |flow: u32| TrueFlow {
        src: Ipv4Addr::from_bits(0x0a00_0001u32.wrapping_add(number * flows + flow)),
        dst: Ipv4Addr::new(198, 51, 100, 1),
        protocol: 17,
        src_port: 53,
        dst_port: 40_000,
        frame_bytes: 1_000,
        frames_per_s: 1.25e6 / f64::from(flows),
    };
    Agent::new(options, (0..flows).map(flow).collect(), number.into())
}

/// Copies the samples, with this sequence number and the records that a routing switch adds to each.
fn rewrite(made: &[u8], sequence: u32, out: &mut Vec<u8>) {
    out.clear();
    let Ok(from) = Datagram::parse(made) else { return };
    let mut writer =
        Writer::begin(out, &Datagram::new(from.agent, from.sub_agent, sequence, from.uptime_ms));
    let next_hop = Address::V4(Ipv4Addr::new(10, 9, 9, 9));
    let (switch, router) = (
        Switch { src_vlan: 100, src_priority: 0, dst_vlan: 100, dst_priority: 0 },
        Router { next_hop, src_mask_bits: 24, dst_mask_bits: 16 },
    );
    let mut number = (sequence - 1) * SAMPLES as u32;
    for sample in from.samples() {
        let Ok(Sample::Flow(flow)) = sample else { continue };
        let Some(Ok(header)) = flow.records().next() else { continue };
        number += 1;
        let sample = FlowSample { sequence: number, raw_records: Records::EMPTY, ..flow };
        let records =
            [header, FlowRecord::ExtendedSwitch(switch), FlowRecord::ExtendedRouter(router)];
        writer.flow(&sample, &records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequence, clock, and the number and pool of each sample.
    fn numbers(bytes: &[u8]) -> (u32, u32, Vec<(u32, u32)>) {
        let datagram = Datagram::parse(bytes).unwrap();
        let samples = datagram.samples().map(|sample| {
            let Ok(Sample::Flow(flow)) = sample else { panic!("{sample:?}") };
            assert_eq!(flow.records().filter(Result::is_ok).count(), 3);
            (flow.sequence, flow.sample_pool)
        });
        (datagram.sequence, datagram.uptime_ms, samples.collect())
    }

    #[test]
    fn numbers_go_on_over_turns() {
        let mut flood = Flood::new(3, 4);
        let datagrams = flood.bytes().len() / flood.datagram_bytes();
        assert_eq!(flood.bytes().len() % flood.datagram_bytes(), 0);
        assert!((1_200..1_300).contains(&flood.datagram_bytes()), "{}", flood.datagram_bytes());

        let (mut next, mut sample, mut pool, mut clock) = (1, 1, 0, 0);
        for _ in 0..3 {
            // The datagrams of the second agent.
            let all = flood.bytes().chunks(flood.datagram_bytes()).collect::<Vec<_>>();
            for at in (1..datagrams).step_by(3) {
                let (sequence, uptime_ms, samples) = numbers(all[at]);
                assert_eq!(sequence, next);
                assert!(uptime_ms >= clock, "{uptime_ms} after {clock}");
                for (number, frames) in &samples {
                    assert_eq!(*number, sample);
                    assert!(*frames > pool && *frames < pool + 50_000, "{frames} after {pool}");
                    (sample, pool) = (sample + 1, *frames);
                }
                assert_eq!(samples.len(), SAMPLES);
                (next, clock) = (next + 1, uptime_ms);
            }
            flood.go_on();
        }
    }
}
