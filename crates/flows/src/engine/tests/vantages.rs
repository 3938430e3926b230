//! Frames that are sampled at several ports, in both directions, at several agents: each counts once.

use super::*;
use crate::portion::{CounterReading, Told};
use wire::sflow::counter::{IfCounters, LagPort};
use wire::sflow::{Counter32, Counter64, CounterRecord, CountersSample, Mac};

const RATE: u32 = 100;
const DATAGRAMS: u32 = 100;

/// Where one sample is taken: at `source`, of a frame that comes in at `input` and leaves at `output`.
#[derive(Clone, Copy)]
struct Port {
    source: u32,
    input: u32,
    output: u32,
}

fn ingress(port: u32) -> Port {
    Port { source: port, input: port, output: 9 }
}

fn egress(port: u32) -> Port {
    Port { source: 9, input: port, output: 9 }
}

/// One part of an agent, with the sample numbers of its sources.
struct Part {
    agent: u8,
    sub_agent: u32,
    ports: Vec<Port>,
}

fn part(agent: u8, sub_agent: u32, ports: impl IntoIterator<Item = Port>) -> Part {
    Part { agent, sub_agent, ports: ports.into_iter().collect() }
}

impl Part {
    fn datagram(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let address = IpAddr::from([192, 0, 2, self.agent]).into();
        let header = Datagram::new(address, self.sub_agent, sequence, sequence * 100);
        let mut writer = Writer::begin(&mut bytes, &header);
        for (at, Port { source, input, output }) in self.ports.iter().enumerate() {
            // Samples of one source are numbered together.
            let before = self.ports[..at].iter().filter(|one| one.source == *source).count() as u32;
            let each = self.ports.iter().filter(|one| one.source == *source).count() as u32;
            let number = (sequence - 1) * each + before + 1;
            let flow = FlowSample {
                source: DataSource::interface(*source),
                sampling_rate: RATE,
                input: Interface::Index(*input),
                output: Interface::Index(*output),
                ..sample(number, number * RATE)
            };
            writer.flow(&flow, &[]);
        }
        bytes
    }
}

/// Frames by each aggregation of what these parts see, as multiples of one port's.
fn seen(parts: &[Part], lost: impl Fn(u32) -> bool) -> [f64; 2] {
    let of = |aggregation| Definition { aggregation, measure: Measure::Frames, ..definition(&[]) };
    let mut engine = engine([Aggregation::Max, Aggregation::Sum].map(of).into());
    play(&mut engine, parts, lost);
    let truth = f64::from(DATAGRAMS * RATE);
    let counting = engine.counting();
    let figures = [0, 1].map(|at| counting[at].top(SECOND_NS)[0].total);
    // What the table says, the largest of its vantages is.
    let hot = |at: usize| counting[at].hot(SECOND_NS).map(|one| one.rate.value).fold(0.0, f64::max);
    for at in [0, 1] {
        let rate = counting[at].top(SECOND_NS)[0].rate.value;
        assert!((hot(at) - rate).abs() < 1e-6 * rate, "{} {rate}", hot(at));
    }
    figures.map(|figure| {
        assert!(figure.low <= figure.value && figure.value <= figure.high);
        figure.value / truth
    })
}

fn play(engine: &mut Engine, parts: &[Part], lost: impl Fn(u32) -> bool) {
    engine.rest.counting.iter_mut().for_each(|one| one.watch(1.0, SECOND_NS));
    for sequence in (1..=DATAGRAMS).filter(|number| !lost(*number)) {
        for part in parts {
            engine.datagram(&part.datagram(sequence), PEER, SECOND_NS, &mut ());
        }
    }
}

#[track_caller]
fn check(parts: &[Part], expected: [f64; 2]) {
    for (lost, within) in [(0, 0.01), (5, 0.05)] {
        let found = seen(parts, |number| lost > 0 && number % lost == 2);
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < within, "{found} for {expected}, lost {lost}");
        }
    }
}

#[test]
fn ports_where_frames_enter_add_up() {
    for uplinks in 1..=8 {
        let once = f64::from(uplinks);
        check(&[part(1, 0, (1..=uplinks).map(ingress))], [once, once]);
    }
}

#[test]
fn frames_that_are_sampled_on_both_sides_count_once() {
    for uplinks in 1..=8 {
        let once = f64::from(uplinks);
        let both = (1..=uplinks).map(ingress).chain((1..=uplinks).map(egress));
        check(&[part(1, 0, both)], [once, once]);
        // Of some, only one side is sampled.
        let most = (1..=uplinks).map(ingress).chain([egress(1)]);
        check(&[part(1, 0, most)], [once, once]);
    }
}

/// Who asks for one direction gets it, whichever the agent samples most.
#[test]
fn a_sum_in_one_direction_is_that_of_the_direction() {
    for (direction, expected) in [(Direction::Ingress, 4.0), (Direction::Egress, 1.0)] {
        let aggregation = Aggregation::Sum;
        let of = Definition { direction, aggregation, measure: Measure::Frames, ..definition(&[]) };
        let mut engine = engine(vec![of]);
        play(&mut engine, &[part(1, 0, (1..=4).map(ingress).chain([egress(1)]))], |_| false);
        let figures = engine.counting()[0].top(SECOND_NS);
        let total = figures.first().map_or(0.0, |figure| figure.total.value);
        let found = total / f64::from(DATAGRAMS * RATE);
        assert!((found / expected - 1.0).abs() < 0.01, "{direction:?}: {found} for {expected}");
    }
}

/// One flow is sampled where it enters, another where it leaves, a third at both ends, a fourth goes to the agent itself.
#[test]
fn a_sum_takes_what_is_sampled_on_either_side_alone() {
    let on = |source, input, output| Port { source, input, output };
    let uplinks = [on(1, 1, 9), on(1, 1, 9), on(3, 2, 3)];
    check(&[part(1, 0, uplinks)], [2.0, 3.0]);
    // The same with the more on exit, and between parts of one agent.
    check(&[part(1, 1, [on(1, 1, 9)]), part(1, 2, [on(3, 2, 3), on(3, 2, 3)])], [2.0, 3.0]);
    // Of these, the third is what one of the first two is.
    check(&[part(1, 0, [on(1, 1, 3), on(1, 1, 9), on(3, 1, 3)])], [2.0, 2.0]);
    check(&[part(1, 1, [on(3, 1, 3), on(3, 1, 3)]), part(1, 2, [on(1, 1, 3)])], [2.0, 2.0]);
    // Nothing says that a frame of an unknown port was not sampled where it came in.
    check(&[part(1, 0, [on(1, 1, 3), on(1, 1, 9), on(3, 0, 3)])], [2.0, 2.0]);
    // 0x3fffffff is the agent: what it makes itself came in nowhere.
    check(&[part(1, 0, [on(1, 1, 3), on(1, 1, 9), on(3, 0x3fff_ffff, 3)])], [2.0, 3.0]);
}

#[test]
fn two_routers_on_the_way_count_once_as_maximum_and_twice_as_sum() {
    let router = |agent| part(agent, 0, (1..=4).map(ingress).chain((1..=4).map(egress)));
    check(&[router(1), router(2)], [4.0, 8.0]);
}

#[test]
fn parts_of_one_agent_add_up() {
    let cards = [part(1, 1, [ingress(1), ingress(2)]), part(1, 2, [ingress(3)])];
    check(&cards, [3.0, 3.0]);
    // Frames enter at one card and leave at another.
    check(&[part(1, 1, [ingress(1), ingress(2)]), part(1, 2, [egress(1), egress(2)])], [2.0, 2.0]);
}

/// Ports of an aggregated link whose samples name the link.
fn members(source: std::ops::Range<u32>, of: impl Fn(u32) -> (u32, u32)) -> Vec<Port> {
    source
        .map(|source| (source, of(source)))
        .map(|(source, (input, output))| Port { source, input, output })
        .collect()
}

#[test]
fn members_of_an_aggregated_link_add_up_in_the_direction_of_the_link() {
    // Two members in, of link 1000, and two out, of link 2000.
    let incoming = members(1..3, |_| (1_000, 2_000));
    let outgoing = members(3..5, |_| (1_000, 2_000));
    check(&[part(1, 0, incoming.clone())], [2.0, 2.0]);

    let of = |direction| Definition {
        direction,
        measure: Measure::Frames,
        aggregation: Aggregation::Max,
        ..definition(&[])
    };
    let mut engine = engine([Direction::Ingress, Direction::Egress, Direction::Any].map(of).into());
    let mut bytes = Vec::new();
    let header = Datagram::new(IpAddr::from([192, 0, 2, 1]).into(), 7, 1, 100);
    let mut writer = Writer::begin(&mut bytes, &header);
    for (member, link) in [(1, 1_000), (2, 1_000), (3, 2_000), (4, 2_000)] {
        let sample = CountersSample {
            form: Form::Compact,
            sequence: 1,
            source: DataSource::interface(member),
            raw_records: Records::EMPTY,
        };
        writer.counters(
            &sample,
            &[CounterRecord::Interface(counters(member)), CounterRecord::LagPort(lag(link))],
        );
    }
    engine.datagram(&bytes, PEER, SECOND_NS, &mut ());
    play(&mut engine, &[part(1, 7, incoming.into_iter().chain(outgoing))], |number| number == 1);
    let frames = engine.counting().iter().map(|one| one.top(SECOND_NS)[0].total.value);
    let ports: Vec<f64> = frames.map(|frames| frames / f64::from(DATAGRAMS * RATE)).collect();
    assert!(ports.iter().all(|ports| (ports / 2.0 - 1.0).abs() < 0.02), "{ports:?}");
}

/// The clocks that counters were read by.
#[derive(Default)]
struct Clocks(Vec<u32>);

impl Told for Clocks {
    fn counters(&mut self, reading: &CounterReading<'_>) {
        self.0.push(reading.uptime_ms);
    }
}

#[test]
fn counters_of_a_late_datagram_have_its_clock() {
    let (mut engine, mut clocks) = (engine(Vec::new()), Clocks::default());
    for (sequence, uptime_ms, interface) in [(1, 1_000, 1), (3, 2_200, 1), (2, 2_000, 2)] {
        let mut bytes = Vec::new();
        let header = Datagram::new(IpAddr::from([192, 0, 2, 1]).into(), 7, sequence, uptime_ms);
        let mut writer = Writer::begin(&mut bytes, &header);
        let sample = CountersSample {
            form: Form::Compact,
            sequence,
            source: DataSource::interface(interface),
            raw_records: Records::EMPTY,
        };
        writer.counters(&sample, &[CounterRecord::Interface(counters(interface))]);
        engine.datagram(&bytes, PEER, SECOND_NS, &mut clocks);
    }
    assert_eq!(clocks.0, [1_000, 2_200, 2_000]);
}

fn lag(attached_agg_id: u32) -> LagPort {
    let (mac, zero) = (Mac([2, 0, 0, 0, 0, 1]), Counter32(0));
    LagPort {
        actor_system: mac,
        partner_system: mac,
        attached_agg_id,
        states: [0; 4],
        lacp_pdus_rx: zero,
        marker_pdus_rx: zero,
        marker_response_pdus_rx: zero,
        unknown_rx: zero,
        illegal_rx: zero,
        lacp_pdus_tx: zero,
        marker_pdus_tx: zero,
        marker_response_pdus_tx: zero,
    }
}

fn counters(if_index: u32) -> IfCounters {
    let (octets, zero) = (Counter64(0), Counter32(0));
    IfCounters {
        if_index,
        if_type: 6,
        speed_bits_per_sec: 10_000_000_000,
        direction: 1,
        status: 3,
        in_octets: octets,
        in_ucast_packets: zero,
        in_multicast_packets: zero,
        in_broadcast_packets: zero,
        in_discards: zero,
        in_errors: zero,
        in_unknown_protos: zero,
        out_octets: octets,
        out_ucast_packets: zero,
        out_multicast_packets: zero,
        out_broadcast_packets: zero,
        out_discards: zero,
        out_errors: zero,
        promiscuous_mode: 2,
    }
}
