//! Decoding sFlow beside the crate `sflow-parser`, by turns; then flows by source and destination, as they become more. Prints nanoseconds for
//! a datagram: of 1,228 bytes with five flow samples of three records each (`weir gen sflow --rate`) for decoders, of 988 bytes with
//! five flow samples of a sampled header for flows. Without `--bench` it runs once, for a moment. With a path: writes the first datagram
//! there, for decoders in other languages (`bench/flows/goflow2`). `--keys=KEYS --flows=N` is one case of flows alone, shorter, for a
//! profiler: what counts is in `taken`.

#![expect(clippy::print_stdout, reason = "what a bench finds out goes to standard output")]

use flows::{
    Aggregation, Counting, Definition, Direction, Engine, Groups, Limits, Measure, NO_ADDRESS,
    Part, Traffic,
};
use load::sflow::{Agent, AgentOptions, Flood, TrueFlow};
use std::collections::HashSet;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use std::{env, fs, io};
use wire::sflow::{Datagram, FlowRecord, Sample};

/// Turns, and datagrams in each.
const FULL: (usize, u64) = (9, 200_000);
const MOMENT: (usize, u64) = (1, 100);

/// Decodes a datagram, and returns how many records it read.
type Decode = fn(&[u8]) -> usize;

fn main() -> io::Result<()> {
    let flood = Flood::new(1, 100);
    let bytes = &flood.bytes()[..flood.datagram_bytes()];
    let option =
        |name: &str| env::args().find_map(|word| Some(word.strip_prefix(name)?.to_owned()));
    if let (Some(keys), Some(flows)) = (option("--keys="), option("--flows=")) {
        let keys: Vec<_> = keys.split(',').filter(|key| !key.is_empty()).collect();
        engine(flows.parse().unwrap_or(1_000), &keys, BATCHES_OF_CASE);
        return Ok(());
    }
    let mut paths = env::args().skip(1).filter(|word| !word.starts_with("--"));
    if let Some(path) = paths.next() {
        return fs::write(path, bytes);
    }
    assert_eq!((wire(bytes), wire_with_packets(bytes), sflow_parser(bytes)), (15, 15, 15));

    let decoders: [(&str, Decode); 3] = [
        ("wire, records", wire),
        ("wire, records and what sampled headers say", wire_with_packets),
        ("sflow-parser, records", sflow_parser),
    ];
    let is_full = env::args().any(|word| word == "--bench");
    let (turns, datagrams) = if is_full { FULL } else { MOMENT };
    let mut each_ns = decoders.map(|_| Vec::new());
    for _ in 0..turns {
        for ((_, decode), each_ns) in decoders.iter().zip(&mut each_ns) {
            let start = Instant::now();
            for _ in 0..datagrams {
                black_box(decode(black_box(bytes)));
            }
            each_ns.push(start.elapsed().as_nanos() as u64 / datagrams);
        }
    }
    for ((name, _), mut each_ns) in decoders.into_iter().zip(each_ns) {
        let all = format!("{each_ns:?}");
        each_ns.sort_unstable();
        println!("{name}: {} ns a datagram, of {all}", each_ns[turns / 2]);
    }
    for flows in if is_full { &[1_000, 10_000, 100_000, 1_000_000][..] } else { &[1_000] } {
        // Of five samples for each flow, e^-5 of the flows meet none.
        engine(*flows, &["src", "dst"], (*flows / BATCH).max(BATCHES_MIN));
    }
    Ok(())
}

const BATCH: u32 = 5_000;
const BATCHES_MIN: u32 = 20;
const BATCHES_OF_CASE: u32 = 4;

/// From datagrams to so many flows that are sampled equally often, or to no definition: each batch is made, then timed.
fn engine(flows: u32, keys: &[&str], batches: u32) {
    const AGENTS: u32 = 100;
    let mut agents: Vec<Agent> = (0..AGENTS).map(|agent| player(agent, flows / AGENTS)).collect();
    let definitions: Vec<_> =
        (!keys.is_empty()).then(|| definition(keys, flows as usize)).into_iter().collect();
    let mut engine = Engine::new(Limits::default(), Groups::default(), HashSet::new(), definitions);

    let mut each_ns = Vec::new();
    let mut made = vec![Vec::new(); BATCH as usize];
    for _ in 0..batches {
        let arrived = made.iter_mut().zip((0..agents.len()).cycle());
        let arrived = arrived.map(|(bytes, agent)| agents[agent].next_datagram(bytes));
        let at_ns: Vec<_> = arrived.map(|at| 1_000_000_000 + at.as_nanos() as u64).collect();
        let start = Instant::now();
        taken(&mut engine, &made, &at_ns);
        each_ns.push(start.elapsed().as_nanos() as u64 / u64::from(BATCH));
    }

    let kept = engine.counting().first().map_or(0, Counting::flows);
    let last = &mut each_ns[batches as usize / 2..];
    last.sort_unstable();
    let (least, middle, most) = (last[0], last[last.len() / 2], last[last.len() - 1]);
    println!("engine, {kept} flows: {middle} ns a datagram, {least} to {most}");
}

#[inline(never)]
fn taken(engine: &mut Engine, made: &[Vec<u8>], at_ns: &[u64]) {
    for (bytes, at_ns) in made.iter().zip(at_ns) {
        black_box(engine.datagram(bytes, NO_ADDRESS, *at_ns, &mut ()));
    }
}

/// An agent with as many flows that no other has.
fn player(agent: u32, flows: u32) -> Agent {
    let flow = |flow: u32| TrueFlow {
        src: Ipv4Addr::from_bits(0x0a00_0000 + agent * flows + flow),
        dst: Ipv4Addr::new(198, 51, 100, 1),
        protocol: 17,
        src_port: 53,
        dst_port: 40_000,
        frame_bytes: 1_000,
        frames_per_s: 1_000_000.0 / f64::from(flows),
    };
    let address = Ipv4Addr::from_bits(0xc000_0200 + agent).into();
    let options = AgentOptions { address, ..AgentOptions::default() };
    Agent::new(options, (0..flows).map(flow).collect(), agent.into())
}

fn definition(keys: &[&str], flows_max: usize) -> Definition {
    Definition {
        name: "bench".into(),
        keys: keys.iter().filter_map(|key| Part::parse(key).ok()).collect(),
        traffic: Traffic::Sampled,
        measure: Measure::Bytes,
        filter: None,
        direction: Direction::Any,
        aggregation: Aggregation::Max,
        smoothing: Duration::from_secs(2),
        top: 20,
        active_timeout: Duration::from_secs(600),
        flows_max,
    }
}

fn wire(bytes: &[u8]) -> usize {
    records(bytes, |_| {})
}

fn wire_with_packets(bytes: &[u8]) -> usize {
    records(bytes, |record| {
        if let FlowRecord::SampledHeader(header) = record {
            black_box(header.packet());
        }
    })
}

fn records(bytes: &[u8], read: impl Fn(&FlowRecord<'_>)) -> usize {
    let Ok(datagram) = Datagram::parse(bytes) else { return 0 };
    let mut count = 0;
    for sample in datagram.samples() {
        let Ok(Sample::Flow(flow)) = &sample else { continue };
        for record in flow.records() {
            // By reference, as the engine does: a record is large.
            let Ok(record) = &record else { continue };
            read(black_box(record));
            count += 1;
        }
    }
    count
}

fn sflow_parser(bytes: &[u8]) -> usize {
    let Ok(datagram) = ::sflow_parser::parse_datagram(bytes) else { return 0 };
    let flows = black_box(&datagram).samples.iter().map(|sample| match &sample.sample_data {
        ::sflow_parser::SampleData::FlowSample(flow) => flow.flow_records.len(),
        _ => 0,
    });
    flows.sum()
}
