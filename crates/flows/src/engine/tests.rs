mod contradictions;
mod shares;
mod vantages;

use super::*;
use crate::definition::{Aggregation, Direction, Measure, Traffic};
use crate::estimate::Estimate;
use crate::field::Value;
use crate::key::Part;
use crate::source::Source;
use load::Random;
use load::sflow::{Agent as Played, AgentOptions, TrueFlow};
use std::collections::BTreeMap;
use wire::sflow::{
    DataFormat, DataSource, Datagram, FlowSample, Form, Interface, RawRecord, Records, Writer,
};

const SECOND_NS: u64 = 1_000_000_000;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

fn definition(keys: &[&str]) -> Definition {
    Definition {
        name: "test".into(),
        keys: keys.iter().map(|key| Part::parse(key).unwrap()).collect(),
        traffic: Traffic::Sampled,
        measure: Measure::Bytes,
        filter: None,
        direction: Direction::Any,
        aggregation: Aggregation::Sum,
        smoothing: Duration::from_secs(2),
        top: 100,
        active_timeout: Duration::from_secs(60),
        flows_max: 1_000,
    }
}

fn engine(definitions: Vec<Definition>) -> Engine {
    Engine::new(Limits::default(), Groups::default(), HashSet::new(), definitions)
}

/// Three flows of different sizes and rates: 60, 30 and 10 out of 100 frames.
fn flows() -> Vec<TrueFlow> {
    let flow = |last: u8, frame_bytes, frames_per_s| TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, last),
        dst: Ipv4Addr::new(198, 51, 100, 1),
        protocol: 17,
        src_port: 53,
        dst_port: 40_000 + u16::from(last),
        frame_bytes,
        frames_per_s,
    };
    vec![flow(1, 1_518, 600_000.0), flow(2, 200, 300_000.0), flow(3, 800, 100_000.0)]
}

/// The result of a run for the three flows, each divided by the true value.
struct Shown {
    corrected: Vec<Estimate>,
    /// Samples times the configured rate, as other collectors compute it.
    raw: Vec<f64>,
}

fn run(loss: f64, seed: u64, seconds: f64) -> Shown {
    let mut agent = Played::new(AgentOptions::default(), flows(), seed);
    let mut engine = engine(vec![definition(&["src"])]);
    let (mut random, mut bytes) = (Random::seeded(!seed), Vec::new());
    while agent.now().as_secs_f64() < seconds {
        let at = agent.next_datagram(&mut bytes);
        if random.unit() >= loss {
            engine.datagram(&bytes, PEER, SECOND_NS + at.as_nanos() as u64, &mut ());
        }
    }

    let passed_s = agent.now().as_secs_f64();
    let mut figures = engine.counting()[0].top(SECOND_NS + agent.now().as_nanos() as u64);
    figures.sort_by_key(|figure| figure.key[0]);
    let truth = |at: usize| {
        let flow = agent.flows()[at];
        flow.frames_per_s * f64::from(flow.frame_bytes) * passed_s
    };
    let figures = figures.iter().enumerate();
    let (corrected, raw) = figures
        .map(|(at, figure)| {
            let frame_bytes = f64::from(agent.flows()[at].frame_bytes);
            let raw = figure.samples as f64 * 1_000.0 * frame_bytes / truth(at);
            (figure.total.times(1.0 / truth(at)), raw)
        })
        .unzip();
    Shown { corrected, raw }
}

#[test]
fn figures_are_right_under_loss_and_their_intervals_hold_the_truth() {
    const RUNS: u64 = 400;
    for loss in [0.0, 0.05, 0.2, 0.5] {
        let (mut held, mut sum, mut raw) = (0, 0.0, 0.0);
        for seed in 1..=RUNS {
            let shown = run(loss, seed, 3.0);
            assert_eq!(shown.corrected.len(), 3, "seed {seed}");
            for estimate in &shown.corrected {
                sum += estimate.value;
                held += u64::from((estimate.low..=estimate.high).contains(&1.0));
            }
            raw += shown.raw.iter().sum::<f64>();
        }
        let of = (3 * RUNS) as f64;
        let (bias, coverage, raw) = (sum / of - 1.0, held as f64 / of, raw / of);
        println!("loss {loss}: bias {bias:+.4}, coverage {coverage:.4}, raw {raw:.4}");
        assert!(bias.abs() < 0.01, "loss {loss}: bias {bias}");
        assert!((0.93..=0.97).contains(&coverage), "loss {loss}: coverage {coverage}");
        assert!((raw - (1.0 - loss)).abs() < 0.01, "loss {loss}: raw {raw}");
    }
}

/// Rates from few samples, at the start and later, are never further from the truth than they state.
#[test]
fn rates_are_right_from_the_beginning_and_of_few_samples() {
    const RUNS: u64 = 300;
    for (samples_per_s, seconds) in
        [(1_000.0, 1.0), (1_000.0, 2.0), (20.0, 12.0), (60.0, 12.0), (200.0, 8.0)]
    {
        let (mut held, mut sum, mut of) = (0.0, 0.0, 0.0);
        for seed in 1..=RUNS {
            let slower = |flow: &TrueFlow| TrueFlow {
                frames_per_s: flow.frames_per_s * samples_per_s / 1_000.0,
                ..*flow
            };
            let flows: Vec<_> = flows().iter().map(slower).collect();
            let mut agent = Played::new(AgentOptions::default(), flows, seed);
            let mut engine = engine(vec![definition(&["src"])]);
            let mut bytes = Vec::new();
            // Checked when nothing has just arrived: checking at each arrival sees more than there is.
            let end = Duration::from_secs_f64(seconds);
            while let Some(at) = Some(agent.next_datagram(&mut bytes)).filter(|at| *at <= end) {
                engine.datagram(&bytes, PEER, SECOND_NS + at.as_nanos() as u64, &mut ());
            }
            let now_ns = SECOND_NS + end.as_nanos() as u64;
            for figure in engine.counting()[0].top(now_ns) {
                let Value::Address(IpAddr::V4(src)) = figure.key[0] else { panic!("{figure:?}") };
                let flow = agent.flows()[usize::from(src.octets()[3]) - 1];
                let rate = figure.rate.times(1.0 / flow.frames_per_s / f64::from(flow.frame_bytes));
                held += f64::from(u8::from((rate.low..=rate.high).contains(&1.0)));
                sum += rate.value;
                of += 1.0;
            }
        }
        let (bias, coverage) = (sum / of - 1.0, held / of);
        println!("{samples_per_s} samples/s, {seconds} s: bias {bias:+.4}, coverage {coverage:.4}");
        assert!(bias.abs() < 0.02, "{samples_per_s} {seconds}: bias {bias}");
        assert!(coverage >= 0.93, "{samples_per_s} {seconds}: coverage {coverage}");
    }
}

/// A datagram of agent 192.0.2.`agent` with one flow sample from its interface 1, of a 100-byte frame.
fn datagram(agent: u8, sequence: u32, uptime_ms: u32, pool: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let address = IpAddr::from([192, 0, 2, agent]).into();
    let mut writer = Writer::begin(&mut bytes, &Datagram::new(address, 0, sequence, uptime_ms));
    writer.flow(&sample(sequence, pool), &[]);
    bytes
}

fn sample(sequence: u32, pool: u32) -> FlowSample<'static> {
    FlowSample {
        form: Form::Compact,
        sequence,
        source: DataSource::interface(1),
        sampling_rate: 100,
        sample_pool: pool,
        drops: 0,
        input: Interface::Index(1),
        output: Interface::Index(2),
        raw_records: Records::EMPTY,
    }
}

/// All frames that the only flow stands for.
fn frames(engine: &Engine, now_ns: u64) -> f64 {
    engine.counting()[0].top(now_ns).first().map_or(0.0, |figure| figure.total.value)
}

fn frames_of_everything() -> Engine {
    engine(vec![Definition { measure: Measure::Frames, ..definition(&[]) }])
}

#[test]
fn a_datagram_that_comes_twice_counts_once() {
    let mut engine = frames_of_everything();
    for sequence in 1..=10 {
        let bytes = datagram(1, sequence, sequence * 100, sequence * 100);
        assert_eq!(engine.datagram(&bytes, PEER, SECOND_NS, &mut ()), Taken::Read);
        assert_eq!(engine.datagram(&bytes, PEER, SECOND_NS, &mut ()), Taken::Duplicate);
    }
    assert!((frames(&engine, SECOND_NS) - 1_000.0).abs() < 1.0);
    let totals = engine.totals();
    assert_eq!((totals.datagrams, totals.read, totals.duplicate), (20, 10, 10));
    let (id, agent) = engine.agents().next().unwrap();
    assert_eq!(id.address, IpAddr::from([192, 0, 2, 1]));
    assert_eq!(agent.datagrams().duplicate, 10);
}

#[test]
fn an_agent_that_restarts_makes_no_spike_and_no_duplicates() {
    let mut engine = frames_of_everything();
    for sequence in 1..=100 {
        let bytes = datagram(1, sequence, 1_000_000 + sequence * 100, sequence * 100);
        engine.datagram(&bytes, PEER, SECOND_NS, &mut ());
    }
    // Its numbers are among those seen lately, but its clock shows that they are new.
    for sequence in 1..=100 {
        let bytes = datagram(1, sequence, sequence * 100, sequence * 100);
        assert_eq!(engine.datagram(&bytes, PEER, SECOND_NS, &mut ()), Taken::Read);
    }
    let frames = frames(&engine, SECOND_NS);
    assert!((19_000.0..21_000.0).contains(&frames), "{frames}");
    let (_, agent) = engine.agents().next().unwrap();
    assert_eq!((agent.datagrams().resets, agent.datagrams().lost), (1, 0));
}

#[test]
fn two_agents_behind_one_address_are_two() {
    let mut engine = frames_of_everything();
    for sequence in 1..=100 {
        for (agent, start) in [(1, 0), (2, 50_000)] {
            let number = start + sequence;
            let bytes = datagram(agent, number, number * 100, number * 100);
            engine.datagram(&bytes, PEER, SECOND_NS, &mut ());
        }
    }
    assert_eq!(engine.agents().count(), 2);
    assert!(engine.agents().all(|(_, agent)| agent.datagrams().lost == 0));
    let frames = frames(&engine, SECOND_NS);
    assert!((19_500.0..20_500.0).contains(&frames), "{frames}");
}

/// With two machines claiming to be the same agent, no rate spikes, and it is visible that something is wrong.
#[test]
fn one_identity_of_two_agents_makes_no_spike() {
    let mut engine = frames_of_everything();
    for sequence in 1..=1_000 {
        for start in [0, 1_000_000] {
            let number = start + sequence;
            let bytes = datagram(1, number, sequence * 100, number * 100);
            engine.datagram(&bytes, PEER, SECOND_NS, &mut ());
        }
    }
    let frames = frames(&engine, SECOND_NS);
    assert!((180_000.0..220_000.0).contains(&frames), "{frames}");
}

#[test]
fn what_is_unknown_or_broken_is_counted_and_takes_nothing_with_it() {
    let mut engine = frames_of_everything();
    let mut bytes = Vec::new();
    let address = IpAddr::from([192, 0, 2, 1]).into();
    let mut writer = Writer::begin(&mut bytes, &Datagram::new(address, 0, 1, 100));
    writer.raw(&RawRecord { format: DataFormat::new(4_300, 77), body: &[0; 12] });
    // Too short for its fields.
    writer.raw(&RawRecord { format: DataFormat::new(0, 1), body: &[0; 8] });
    writer.flow(&sample(1, 100), &[]);
    assert_eq!(engine.datagram(&bytes, PEER, SECOND_NS, &mut ()), Taken::Read);
    assert!(matches!(engine.datagram(b"GET / HTTP", PEER, 0, &mut ()), Taken::Malformed));

    let totals = engine.totals();
    assert_eq!(totals.unknown, BTreeMap::from([(Structure { enterprise: 4_300, number: 77 }, 1)]));
    assert_eq!(totals.faults, BTreeMap::from([("short", 1), ("version", 1)]));
    assert_eq!((totals.flow_samples, totals.malformed, totals.read), (1, 1, 1));
}

#[test]
fn agents_and_samplers_are_bounded_and_those_beyond_counted() {
    let limits = Limits { agents_max: 2, sources_max: 1, ..Limits::default() };
    let definitions = vec![Definition { measure: Measure::Frames, ..definition(&[]) }];
    let mut engine = Engine::new(limits, Groups::default(), HashSet::new(), definitions);
    let taken = (1..=3)
        .map(|agent| engine.datagram(&datagram(agent, 1, 100, 100), PEER, SECOND_NS, &mut ()));
    assert_eq!(taken.collect::<Vec<_>>(), [Taken::Read, Taken::Read, Taken::AgentLimit]);
    assert_eq!((engine.totals().agent_limit, engine.totals().source_limit), (1, 1));
    // The second agent has no sampler, so its sample stands for what it says.
    assert!((frames(&engine, SECOND_NS) - 200.0).abs() < 1.0);

    engine.tick(1_000 * SECOND_NS, &mut ());
    assert_eq!(engine.agents().count(), 0);
    let bytes = datagram(3, 1, 100, 100);
    assert_eq!(engine.datagram(&bytes, PEER, 1_000 * SECOND_NS, &mut ()), Taken::Read);
    assert_eq!(engine.totals().source_limit, 1);
}

#[test]
fn a_sampler_that_is_silent_is_forgotten_while_its_agent_is_not() {
    let limits = Limits { sources_max: 1, ..Limits::default() };
    let definitions = vec![Definition { measure: Measure::Frames, ..definition(&[]) }];
    let mut engine = Engine::new(limits, Groups::default(), HashSet::new(), definitions);
    let take = |engine: &mut Engine, sequence, source, second: u64| {
        let mut bytes = Vec::new();
        let address = IpAddr::from([192, 0, 2, 1]).into();
        let header = Datagram::new(address, 0, sequence, second as u32 * 1_000);
        let source = DataSource::interface(source);
        let mut writer = Writer::begin(&mut bytes, &header);
        writer.flow(&FlowSample { source, ..sample(sequence, sequence * 100) }, &[]);
        engine.datagram(&bytes, PEER, second * SECOND_NS, &mut ());
        engine.tick(second * SECOND_NS, &mut ());
    };

    take(&mut engine, 1, 1, 100);
    take(&mut engine, 2, 2, 101);
    assert_eq!(engine.totals().source_limit, 1);
    // The agent goes on, but its first interface does not.
    (3..80).for_each(|sequence| take(&mut engine, sequence, 2, 100 + u64::from(sequence) * 10));
    let (_, agent) = engine.agents().next().unwrap();
    let sources: Vec<Source> = agent.samplers().map(|(_, source, _)| source).collect();
    assert_eq!(sources, [Source::interface(2)]);
    let limit = engine.totals().source_limit;
    take(&mut engine, 80, 2, 901);
    assert_eq!(engine.totals().source_limit, limit);
}

/// The same frame, sampled at two switches on its way.
#[test]
fn a_frame_that_two_switches_see_counts_once_as_maximum_and_twice_as_sum() {
    let keyless =
        |aggregation| Definition { aggregation, measure: Measure::Frames, ..definition(&[]) };
    let internal = HashSet::from([(IpAddr::from([192, 0, 2, 2]), 1)]);
    let definitions = [Aggregation::Max, Aggregation::Sum, Aggregation::Edge].map(keyless);
    let mut engine =
        Engine::new(Limits::default(), Groups::default(), internal, definitions.into());
    for sequence in 1..=100 {
        for agent in [1, 2] {
            let bytes = datagram(agent, sequence, sequence * 100, sequence * 100);
            engine.datagram(&bytes, PEER, SECOND_NS, &mut ());
        }
    }
    let frames: Vec<f64> = engine
        .counting()
        .iter()
        .map(|counting| counting.top(SECOND_NS)[0].total.value.round())
        .collect();
    assert_eq!(frames, [10_000.0, 20_000.0, 10_000.0]);
}

#[test]
fn an_interface_has_rates_and_its_samples_agree_with_them() {
    let mut agent = Played::new(AgentOptions::default(), flows(), 7);
    let mut engine = engine(vec![definition(&["src"])]);
    let mut bytes = Vec::new();
    while agent.now() < Duration::from_secs(45) {
        let at = agent.next_datagram(&mut bytes);
        engine.datagram(&bytes, PEER, SECOND_NS + at.as_nanos() as u64, &mut ());
    }

    let (_, seen) = engine.agents().next().unwrap();
    let (index, port) = seen.ports().next().unwrap();
    let rates = port.rates().unwrap();
    let bits = flows().iter().map(|f| f.frames_per_s * f64::from(f.frame_bytes) * 8.0).sum::<f64>();
    assert_eq!(index, 1);
    assert!((rates.input.bits_per_s.unwrap() / bits - 1.0).abs() < 0.001, "{rates:?}");
    assert!((rates.input.frames_per_s.unwrap() / 1e6 - 1.0).abs() < 0.001, "{rates:?}");
    assert!((rates.sampled_ratio.unwrap() - 1.0).abs() < 0.02, "{rates:?}");
    assert_eq!(rates.output.bits_per_s, Some(0.0));
}

#[test]
fn keys_hold_what_the_frame_says() {
    let mut agent = Played::new(AgentOptions::default(), flows(), 1);
    let keys =
        ["agent", "src/24", "dst_port", "protocol", "src_mac", "frame_size", "input", "ip_version"];
    let mut engine = engine(vec![definition(&keys)]);
    let mut bytes = Vec::new();
    for _ in 0..100 {
        agent.next_datagram(&mut bytes);
        engine.datagram(&bytes, PEER, SECOND_NS, &mut ());
    }
    let counting = &engine.counting()[0];
    let top = counting.top(SECOND_NS);
    let shown = counting.shown(&top[0].key, engine.groups());
    let expected =
        ["192.0.2.1", "10.0.0.0/24", "40001", "17", "02:00:00:00:00:01", "1518", "1", "4"];
    assert_eq!(shown, expected);
    assert_eq!(top[0].key[3], Value::Number(17));
    let totals = counting.totals();
    assert_eq!((totals.seen, totals.counted), (500, 500));
}
