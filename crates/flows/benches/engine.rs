//! From a datagram to a figure. The unit of each benchmark is one datagram of about 1.2 kB with five flow samples, with agents
//! and flows that the generator simulates.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flows::{
    Aggregation, Definition, Direction, Engine, Filter, Groups, Limits, Measure, Part, Traffic,
};
use load::sflow::{Agent, AgentOptions, TrueFlow};
use std::collections::HashSet;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use testkit::{MmdbField, mmdb};

const DATAGRAMS: usize = 10_000;

fn definition(keys: &[&str], filter: Option<&str>) -> Definition {
    let groups = Groups::default();
    Definition {
        name: "bench".into(),
        keys: keys.iter().filter_map(|key| Part::parse(key).ok()).collect(),
        traffic: Traffic::Sampled,
        measure: Measure::Bytes,
        filter: filter.and_then(|filter| Filter::parse(filter, &groups).ok()),
        direction: Direction::Any,
        aggregation: Aggregation::Max,
        smoothing: Duration::from_secs(2),
        top: 20,
        active_timeout: Duration::from_secs(60),
        flows_max: 100_000,
    }
}

/// What 100 agents send, each with 200 flows.
fn datagrams() -> Vec<(Vec<u8>, u64)> {
    let flow = |number: u32| TrueFlow {
        src: Ipv4Addr::from_bits(0x0a00_0001 + number),
        dst: Ipv4Addr::new(198, 51, 100, (number % 250) as u8),
        protocol: if number.is_multiple_of(2) { 6 } else { 17 },
        src_port: 1_024 + number as u16,
        dst_port: 443,
        frame_bytes: 64 + number * 7,
        frames_per_s: 10_000.0,
    };
    let mut agents: Vec<Agent> = (0..100u8)
        .map(|number| {
            let address = Ipv4Addr::new(192, 0, 2, number).into();
            let options = AgentOptions { address, ..AgentOptions::default() };
            Agent::new(options, (0..200).map(flow).collect(), number.into())
        })
        .collect();
    let mut all = Vec::with_capacity(DATAGRAMS);
    for number in 0..DATAGRAMS {
        let mut bytes = Vec::new();
        let at = agents[number % 100].next_datagram(&mut bytes);
        all.push((bytes, 1_000_000_000 + at.as_nanos() as u64));
    }
    all
}

/// A file in MaxMind's format that knows one in 64 of the /24 networks that the agents see.
fn groups() -> Groups {
    let fields = [
        ("autonomous_system_number", MmdbField::Number(64_496)),
        ("country/iso_code", MmdbField::Text("DE")),
    ];
    let networks: Vec<String> =
        (0..1_024).map(|at| format!("10.{}.{}.0/24", at / 4, at % 4 * 64)).collect();
    let networks: Vec<_> = networks.iter().map(|network| (network.as_str(), &fields[..])).collect();
    let mut groups = Groups::default();
    if let Err(error) = groups.add_places(mmdb("bench", &networks)) {
        panic!("{error}");
    }
    groups
}

fn engine(criterion: &mut Criterion) {
    let datagrams = datagrams();
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let groups = groups();
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(DATAGRAMS as u64));
    for (name, definitions) in [
        ("no definition", vec![]),
        ("addresses", vec![definition(&["src", "dst"], None)]),
        ("systems and countries", vec![definition(&["asn(src)", "country(src)"], None)]),
        (
            "addresses and ports of tcp",
            vec![definition(
                &["src", "dst", "protocol", "src_port", "dst_port"],
                Some("protocol = tcp and dst_port = 1-1023"),
            )],
        ),
    ] {
        // What all iterations share is warm, as in a running collector. Numbers that come again would be duplicates, so each gets
        // a fresh engine.
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || {
                    Engine::new(
                        Limits::default(),
                        groups.clone(),
                        HashSet::new(),
                        definitions.clone(),
                    )
                },
                |engine| {
                    for (bytes, at_ns) in &datagrams {
                        black_box(engine.datagram(black_box(bytes), peer, *at_ns, &mut ()));
                    }
                },
                criterion::BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
