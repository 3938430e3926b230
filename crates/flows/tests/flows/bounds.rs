//! Memory stays within what is stated, and a datagram with known content allocates none.

use allocation_counter::measure;
use flows::{
    Aggregation, Definition, Direction, Engine, Groups, Limits, Measure, NO_ADDRESS, Part, Taken,
    Traffic,
};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::Duration;
use wire::sflow::counter::IfCounters;
use wire::sflow::flow::SampledHeader;
use wire::sflow::{
    Counter32, Counter64, CounterRecord, CountersSample, DataSource, Datagram, FlowRecord,
    FlowSample, Form, Interface, Records, Writer,
};

const SECOND_NS: u64 = 1_000_000_000;
const PORTS: u32 = 100;

fn definition(keys: &[&str], flows_max: usize) -> Definition {
    Definition {
        name: keys.join(","),
        keys: keys.iter().map(|key| Part::parse(key).unwrap()).collect(),
        traffic: Traffic::Sampled,
        measure: Measure::Bytes,
        filter: None,
        direction: Direction::Any,
        aggregation: Aggregation::Max,
        smoothing: Duration::from_secs(2),
        top: 20,
        active_timeout: Duration::from_secs(60),
        flows_max,
    }
}

/// Datagram number `sequence` of an agent, with one interface for each of `ports`, each with a frame from another address,
/// starting at `src`.
fn datagram(bytes: &mut Vec<u8>, agent: u32, sequence: u32, ports: Range<u32>, src: u32) {
    bytes.clear();
    let address = IpAddr::from(Ipv4Addr::from_bits(0xc000_0000 + agent)).into();
    let mut writer = Writer::begin(bytes, &Datagram::new(address, 0, sequence, sequence * 100));
    for (at, port) in (0..).zip(ports) {
        of_port(&mut writer, port, sequence, src + at);
    }
}

/// The counters of an interface, and a sample of a frame from `src`.
fn of_port(writer: &mut Writer<'_>, port: u32, sequence: u32, src: u32) {
    let (form, source) = (Form::Compact, DataSource::interface(port));
    let counters = CountersSample { form, sequence, source, raw_records: Records::EMPTY };
    writer.counters(&counters, &[CounterRecord::Interface(counters_of(port, sequence))]);

    let sample = FlowSample {
        form,
        sequence,
        source,
        sampling_rate: 1_000,
        sample_pool: sequence * 1_000,
        drops: 0,
        input: Interface::Index(port),
        output: Interface::Unknown,
        raw_records: Records::EMPTY,
    };
    let frame = frame(src);
    let header =
        SampledHeader { protocol: 1, frame_length_bytes: 1_000, stripped_bytes: 4, header: &frame };
    writer.flow(&sample, &[FlowRecord::SampledHeader(header)]);
}

/// A frame with Ethernet, IPv4 from this address, and UDP.
fn frame(src: u32) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[23] = 17;
    frame[26..30].copy_from_slice(&src.to_be_bytes());
    frame[30..34].copy_from_slice(&[198, 51, 100, 1]);
    frame
}

fn counters_of(port: u32, sequence: u32) -> IfCounters {
    let frames = Counter32(sequence * 10);
    IfCounters {
        if_index: port,
        if_type: 6,
        speed_bits_per_sec: 10_000_000_000,
        direction: 1,
        status: 3,
        in_octets: Counter64(u64::from(sequence) * 1_000),
        in_ucast_packets: frames,
        in_multicast_packets: frames,
        in_broadcast_packets: frames,
        in_discards: frames,
        in_errors: frames,
        in_unknown_protos: frames,
        out_octets: Counter64(u64::from(sequence) * 1_000),
        out_ucast_packets: frames,
        out_multicast_packets: frames,
        out_broadcast_packets: frames,
        out_discards: frames,
        out_errors: frames,
        promiscuous_mode: 2,
    }
}

/// The interfaces of part `part`, five at a time.
fn five(part: u32) -> Range<u32> {
    1 + part * 5..6 + part * 5
}

/// Plays `rounds` datagrams for each five interfaces of each agent, each frame from another of `keys` addresses.
fn play(engine: &mut Engine, agents: u32, rounds: u32, keys: u32) {
    let (mut bytes, mut src) = (Vec::new(), 0);
    for round in 0..rounds {
        for agent in 0..agents {
            for part in 0..PORTS / 5 {
                let sequence = round * (PORTS / 5) + part + 1;
                datagram(&mut bytes, agent, sequence, five(part), src % keys);
                src += 5;
                let now_ns = SECOND_NS + u64::from(sequence) * 100_000_000;
                engine.datagram(&bytes, NO_ADDRESS, now_ns, &mut ());
            }
        }
        engine.tick(SECOND_NS + u64::from(round) * 2 * SECOND_NS, &mut ());
    }
}

/// 10,000 agents with 100 interfaces each, every interface with a sampler, and 1,000,000 keys: ten for each of `WEIR_TEST_ROWS`.
#[test]
fn memory_stays_within_what_is_stated() {
    let keys = 10 * testkit::rows() as u32;
    let agents = keys / PORTS;
    let limits =
        Limits { agents_max: agents as usize, sources_max: 2 * keys as usize, ..Limits::default() };
    let definitions = vec![definition(&["src"], keys as usize)];
    let stated = Engine::memory_max_bytes(&limits, &definitions);

    let mut played = None;
    let held = measure(|| {
        let mut engine = Engine::new(limits, Groups::default(), HashSet::new(), definitions);
        play(&mut engine, agents, 2, keys);
        played = Some(engine);
    });
    let engine = played.unwrap();
    let (totals, flows) = (engine.totals(), engine.counting()[0].flows());
    assert_eq!((engine.agents().count(), flows), (agents as usize, keys as usize));
    assert_eq!((totals.source_limit, totals.agent_limit, totals.malformed), (0, 0, 0));

    let (now, most) = (held.bytes_current as u64, held.bytes_max);
    println!("{agents} agents, {keys} keys: {now} bytes, {most} while it grew, stated {stated}");
    assert!(most <= stated as u64, "{most} of {stated}");
    // Not much more than that either: hash tables may be half empty.
    assert!(stated as u64 <= 3 * now, "{stated} stated, {now} used");

    // More agents, interfaces and keys than allowed take no more memory.
    let mut engine = engine;
    let more = measure(|| play(&mut engine, agents + agents / 10, 1, keys * 2));
    assert!(engine.totals().agent_limit > 0);
    assert!(now as i64 + more.bytes_current <= stated as i64, "{more:?}");
}

/// Small hash tables have room for more than they hold.
#[test]
fn agents_with_one_interface_each_are_within_what_is_stated() {
    const AGENTS: usize = 20_000;
    let limits = Limits { agents_max: AGENTS, sources_max: 2 * AGENTS, ..Limits::default() };
    let stated = Engine::memory_max_bytes(&limits, &[]);
    let held = measure(|| {
        let mut engine = Engine::new(limits, Groups::default(), HashSet::new(), Vec::new());
        let mut bytes = Vec::new();
        for agent in 0..AGENTS as u32 {
            datagram(&mut bytes, agent, 1, 1..2, 0);
            engine.datagram(&bytes, NO_ADDRESS, SECOND_NS, &mut ());
        }
        assert_eq!(engine.totals().source_limit, 0);
        drop(engine);
    });
    assert!(held.bytes_max <= stated as u64, "{} of {stated}", held.bytes_max);
}

/// Ten times as many agents as have a place, each from an address of its own: those without one are counted, and heard later.
#[test]
fn a_hundred_thousand_agents_stay_within_the_limit_and_each_is_counted() {
    const AGENTS: u32 = 100_000;
    let limits = Limits::default();
    let definitions = vec![definition(&["agent"], 1_000)];
    let stated = Engine::memory_max_bytes(&limits, &definitions);
    let held = measure(|| {
        let mut engine = Engine::new(limits, Groups::default(), HashSet::new(), definitions);
        let (mut bytes, mut refused) = (Vec::new(), 0);
        for agent in 0..AGENTS {
            datagram(&mut bytes, agent, 1, 1..2, 0);
            let sender = IpAddr::from(Ipv4Addr::from_bits(0xc000_0000 + agent));
            let taken = engine.datagram(&bytes, sender, SECOND_NS, &mut ());
            refused += u64::from(taken == Taken::AgentLimit);
        }
        let totals = engine.totals();
        assert_eq!(engine.agents().len(), limits.agents_max);
        assert_eq!((totals.read, totals.agent_limit), (limits.agents_max as u64, refused));
        assert_eq!(totals.read + refused, u64::from(AGENTS));
        assert_eq!(engine.contradictions(), 0);

        // Once the known ones are silent for long enough, their places are others'.
        let later_ns = SECOND_NS + 2 * limits.agent_timeout.as_nanos() as u64;
        engine.tick(later_ns, &mut ());
        assert_eq!(engine.agents().len(), 0);
        let taken = engine.datagram(&bytes, NO_ADDRESS, later_ns, &mut ());
        assert_eq!(taken, Taken::Read);
    });
    assert!(held.bytes_max <= stated as u64, "{} of {stated}", held.bytes_max);
}

#[test]
fn a_datagram_of_what_is_known_allocates_nothing() {
    let definitions = vec![
        definition(&["src", "dst", "protocol"], 100_000),
        definition(&["src/24", "input"], 1_000),
        definition(&[], 10),
    ];
    let mut engine = Engine::new(Limits::default(), Groups::default(), HashSet::new(), definitions);
    play(&mut engine, 3, 4, 500);

    let (mut bytes, mut allocations) = (Vec::new(), 0);
    for round in 4..20 {
        for part in 0..PORTS / 5 {
            let sequence = round * (PORTS / 5) + part + 1;
            datagram(&mut bytes, 1, sequence, five(part), (round * 100 + part * 5) % 500);
            let now_ns = SECOND_NS + u64::from(sequence) * 100_000_000;
            let taken = measure(|| _ = engine.datagram(&bytes, NO_ADDRESS, now_ns, &mut ()));
            allocations += taken.count_total;
        }
    }
    assert_eq!(allocations, 0);
}

/// Each sample has a new key, which takes the place of another.
#[test]
fn a_key_that_takes_anothers_place_allocates_nothing() {
    let mut engine = Engine::new(
        Limits::default(),
        Groups::default(),
        HashSet::new(),
        vec![definition(&["src"], 1_000)],
    );
    play(&mut engine, 1, 200, u32::MAX);
    let evicted = engine.counting()[0].evicted();
    assert!(evicted > 10_000, "{evicted}");
    let mut allocations = 0;
    let mut bytes = Vec::new();
    for number in 0..10_000 {
        let (sequence, part) = (4_001 + number, number % (PORTS / 5));
        datagram(&mut bytes, 0, sequence, five(part), 0x4000_0000 + number * 5);
        let now_ns = 1_000 * SECOND_NS;
        let taken = measure(|| _ = engine.datagram(&bytes, NO_ADDRESS, now_ns, &mut ()));
        allocations += taken.count_total;
    }
    assert!(engine.counting()[0].evicted() >= evicted + 40_000);
    assert_eq!(allocations, 0);
}
