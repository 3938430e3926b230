//! sFlow into samples: the one place of this crate that knows the protocol. What it makes of a datagram is what the engine takes.

mod observed;

use crate::agent::{Agent, AgentId};
use crate::definition::Traffic;
use crate::engine::{Engine, Heard, Mark, Rest, Taken};
use crate::port::{PortCounters, Times};
use crate::portion::Told;
use crate::sampler::Reading;
use crate::source::{End, Head, Source, Structure};
pub use observed::Observed;
use std::net::IpAddr;
use wire::sflow::counter::IfCounters;
use wire::sflow::{
    self, CounterRecord, CountersSample, DataFormat, DataSource, Datagram, DroppedPacket, Fault,
    FlowRecord, FlowSample, Interface, Records,
};

/// The versions that some devices still send. Anything else is not sFlow.
const OLD_VERSIONS: [u32; 2] = [2, 4];

impl Engine {
    /// Processes a datagram of sFlow. `source` is its sender, for agents that do not know their own address. `now_ns` is its time of
    /// arrival, on a clock that never goes back.
    pub fn datagram(
        &mut self,
        bytes: &[u8],
        source: IpAddr,
        now_ns: u64,
        told: &mut impl Told,
    ) -> Taken {
        let datagram = match Datagram::parse(bytes) {
            Ok(datagram) => datagram,
            Err(malformed) => {
                let old = match malformed.fault {
                    Fault::Version(version) if OLD_VERSIONS.contains(&version) => Some(version),
                    _ => None,
                };
                return self.malformed(malformed.class(), old, source);
            }
        };
        // An address that nobody has is no address: agents send it before they have one.
        let address = datagram.agent.ip().filter(|address| !address.is_unspecified());
        let id = AgentId { address: address.unwrap_or(source), sub_agent: datagram.sub_agent };
        let Datagram { sequence, uptime_ms, .. } = datagram;
        let mark = Mark { sequence, uptime_ms, bytes, sender: source, now_ns };
        self.take(id, mark, told, |rest, heard, agent, told| {
            Reader { rest, datagram: &datagram, heard, agent, told }.samples();
        })
    }
}

/// A datagram that is read into the engine.
struct Reader<'e, 'd, T> {
    rest: &'e mut Rest,
    datagram: &'e Datagram<'d>,
    heard: Heard,
    agent: &'e mut Agent,
    told: &'e mut T,
}

impl<T: Told> Reader<'_, '_, T> {
    #[inline]
    fn samples(&mut self) {
        for sample in self.datagram.samples() {
            self.rest.note_sample();
            // By reference: a sample would be copied.
            match &sample {
                Ok(sflow::Sample::Flow(flow)) => self.flow(flow),
                Ok(sflow::Sample::Dropped(dropped)) => self.dropped(dropped),
                Ok(sflow::Sample::Counters(counters)) => self.counters(counters),
                Ok(sflow::Sample::Metrics(_) | sflow::Sample::RtFlow(_)) => {
                    self.rest.note_other();
                }
                Ok(sflow::Sample::Unknown(raw)) => {
                    self.rest.note_other();
                    self.rest.unknown(structure(raw.format));
                }
                Err(malformed) => {
                    self.rest.note_other();
                    self.rest.fault(malformed.class());
                }
            }
        }
    }

    #[inline]
    fn flow(&mut self, flow: &FlowSample<'_>) {
        let head = Head {
            traffic: Traffic::Sampled,
            source: flow.source.into(),
            input: flow.input.into(),
            output: flow.output.into(),
            reading: Reading {
                sequence: flow.sequence,
                sampling_rate: flow.sampling_rate,
                pool: flow.sample_pool,
                drops: flow.drops,
                uptime_ms: self.datagram.uptime_ms,
                is_new: self.heard.is_new,
            },
        };
        let AgentId { address, sub_agent } = self.heard.id;
        let mut observed = Observed::of_flow(address, sub_agent, flow);
        self.rest.frame(
            &head,
            self.heard,
            self.agent,
            self.told,
            &mut observed,
            |rest, observed| {
                read(rest, flow.raw_records, observed);
            },
        );
    }

    fn dropped(&mut self, dropped: &DroppedPacket<'_>) {
        let head = Head {
            traffic: Traffic::Dropped,
            source: dropped.source.into(),
            input: End::Unknown,
            output: End::Unknown,
            // Each dropped packet stands for one, and those not reported are counted in `drops`.
            reading: Reading {
                sequence: dropped.sequence,
                sampling_rate: 1,
                pool: dropped.sequence.wrapping_add(dropped.drops),
                drops: dropped.drops,
                uptime_ms: self.datagram.uptime_ms,
                is_new: self.heard.is_new,
            },
        };
        let AgentId { address, sub_agent } = self.heard.id;
        let mut observed = Observed::of_dropped(address, sub_agent, dropped);
        self.rest.frame(
            &head,
            self.heard,
            self.agent,
            self.told,
            &mut observed,
            |rest, observed| {
                read(rest, dropped.raw_records, observed);
            },
        );
    }

    fn counters(&mut self, counters: &CountersSample<'_>) {
        self.rest.note_counters();
        let times = Times { uptime_ms: self.datagram.uptime_ms, arrival_ns: self.heard.now_ns };
        for record in counters.records() {
            match record {
                Ok(CounterRecord::Interface(port)) => {
                    let numbered = (counters.sequence, port.into());
                    self.rest.interface(numbered, times, self.heard, self.agent, self.told);
                }
                Ok(CounterRecord::LagPort(member)) => {
                    let index = counters.source.if_index();
                    if let Some(port) = index.and_then(|index| self.agent.port_mut(index)) {
                        port.set_aggregate(member.attached_agg_id);
                    }
                }
                Ok(CounterRecord::Unknown(raw)) => self.rest.unknown(structure(raw.format)),
                Ok(_) => {}
                Err(malformed) => self.rest.fault(malformed.class()),
            }
        }
    }
}

/// Collects what records say about a frame. Each is decoded here, not by [`FlowSample::records`], and used where it lies: a record is
/// large, and copying it takes longer than reading it.
#[inline]
fn read<'a>(rest: &mut Rest, records: Records<'a>, observed: &mut Observed<'a>) {
    for raw in records {
        let raw = match raw {
            Ok(raw) => raw,
            Err(malformed) => {
                rest.fault(malformed.class());
                continue;
            }
        };
        match &FlowRecord::decode(&raw) {
            Ok(FlowRecord::Unknown(raw)) => rest.unknown(structure(raw.format)),
            Ok(record) => observed.add(record),
            Err(fault) => rest.fault(fault.class()),
        }
    }
}

fn structure(format: DataFormat) -> Structure {
    Structure { enterprise: format.enterprise(), number: format.format() }
}

impl From<DataSource> for Source {
    #[inline]
    fn from(DataSource { class, index }: DataSource) -> Source {
        Source { class, index }
    }
}

impl From<Interface> for End {
    #[inline]
    fn from(of: Interface) -> End {
        match of {
            Interface::Index(index) => End::Port(index),
            Interface::Internal | Interface::Discarded(_) => End::Inside,
            Interface::Unknown | Interface::Multiple(_) | Interface::Other { .. } => End::Unknown,
        }
    }
}

impl From<IfCounters> for PortCounters {
    fn from(of: IfCounters) -> PortCounters {
        PortCounters {
            if_index: of.if_index,
            if_type: of.if_type,
            speed_bits_per_sec: of.speed_bits_per_sec,
            direction: of.direction,
            status: of.status,
            in_octets: of.in_octets.0,
            in_ucast_packets: of.in_ucast_packets.0,
            in_multicast_packets: of.in_multicast_packets.0,
            in_broadcast_packets: of.in_broadcast_packets.0,
            in_discards: of.in_discards.0,
            in_errors: of.in_errors.0,
            in_unknown_protos: of.in_unknown_protos.0,
            out_octets: of.out_octets.0,
            out_ucast_packets: of.out_ucast_packets.0,
            out_multicast_packets: of.out_multicast_packets.0,
            out_broadcast_packets: of.out_broadcast_packets.0,
            out_discards: of.out_discards.0,
            out_errors: of.out_errors.0,
            promiscuous_mode: of.promiscuous_mode,
        }
    }
}
