//! Datagrams with broken content: each is counted once, and nothing panics.

use flows::{
    Aggregation, Definition, Direction, Engine, Groups, Limits, Measure, NO_ADDRESS, Part, Taken,
    Traffic,
};
use load::Random;
use load::sflow::{Agent, AgentOptions, TrueFlow};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Duration;
use wire::sflow::{CounterRecord, Datagram, FlowRecord, Malformed, Sample};

const SECOND_NS: u64 = 1_000_000_000;

fn engine() -> Engine {
    let definition = |keys: &[&str], traffic| Definition {
        name: keys.join(","),
        keys: keys.iter().map(|key| Part::parse(key).unwrap()).collect(),
        traffic,
        measure: Measure::Bytes,
        filter: None,
        direction: Direction::Any,
        aggregation: Aggregation::Max,
        smoothing: Duration::from_secs(2),
        top: 20,
        active_timeout: Duration::from_secs(60),
        flows_max: 1_000,
    };
    let definitions = vec![
        definition(&["src", "dst", "src_port", "dst_port", "protocol"], Traffic::Sampled),
        definition(&["agent", "input", "output", "vlan"], Traffic::Sampled),
        definition(&["drop_reason", "input"], Traffic::Dropped),
    ];
    let limits = Limits { agents_max: 500, sources_max: 2_000, ..Limits::default() };
    Engine::new(limits, Groups::default(), HashSet::new(), definitions)
}

/// Datagrams of an agent: flow samples, and counters in the first.
fn whole() -> Vec<Vec<u8>> {
    let flow = |last: u8, protocol| TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, last),
        dst: Ipv4Addr::new(198, 51, 100, 1),
        protocol,
        src_port: 443,
        dst_port: 40_000,
        frame_bytes: 1_500,
        frames_per_s: 100_000.0,
    };
    let options = AgentOptions { counters_every: Duration::ZERO, ..AgentOptions::default() };
    let mut agent = Agent::new(options, vec![flow(1, 6), flow(2, 17)], 1);
    let mut next = || {
        let mut bytes = Vec::new();
        agent.next_datagram(&mut bytes);
        bytes
    };
    (0..50).map(|_| next()).collect()
}

/// Position of the sequence number in a datagram of an agent with an IPv4 address.
const SEQUENCE: Range<usize> = 16..20;

/// Changes some bytes, a word that may be a length or a count, or the end.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let below = |random: &mut Random, most: usize| (random.unit() * most as f64) as usize;
    for _ in 0..=below(random, 3) {
        if bytes.is_empty() {
            return;
        }
        let at = below(random, bytes.len());
        match below(random, 5) {
            0 => bytes[at] ^= 1 << below(random, 8),
            1 => bytes.truncate(at),
            2 => {
                let lies = [0, 1, 2, 4, 5, 0x7fff_ffff, u32::MAX - 3, u32::MAX];
                let lie = lies[below(random, lies.len())];
                if let Some(word) = bytes.get_mut(at & !3..(at & !3) + 4) {
                    word.copy_from_slice(&u32::to_be_bytes(lie));
                }
            }
            3 => {
                let piece = bytes[at..(at + 40).min(bytes.len())].to_vec();
                let to = below(random, bytes.len()) & !3;
                bytes.splice(to..to, piece);
            }
            _ => {
                let len = below(random, 40).min(bytes.len() - at);
                bytes.drain(at..at + len);
            }
        }
    }
}

/// The content of datagrams, counted independently of the engine.
#[derive(Default, PartialEq, Debug)]
struct Counted {
    flow_samples: u64,
    dropped_packets: u64,
    counter_samples: u64,
    faults: u64,
    unknown: u64,
}

impl Counted {
    fn records<'a, T: 'a>(
        &mut self,
        records: impl Iterator<Item = Result<T, Malformed>>,
        is_unknown: impl Fn(&T) -> bool,
    ) {
        for record in records {
            match record {
                Ok(record) => self.unknown += u64::from(is_unknown(&record)),
                Err(_) => self.faults += 1,
            }
        }
    }

    /// Adds a datagram that was read.
    fn add(&mut self, bytes: &[u8]) {
        let datagram = Datagram::parse(bytes).unwrap();
        let is_unknown = |record: &FlowRecord<'_>| matches!(record, FlowRecord::Unknown(_));
        for sample in datagram.samples() {
            match sample {
                Ok(Sample::Flow(flow)) => {
                    self.flow_samples += 1;
                    self.records(flow.records(), is_unknown);
                }
                Ok(Sample::Dropped(dropped)) => {
                    self.dropped_packets += 1;
                    self.records(dropped.records(), is_unknown);
                }
                Ok(Sample::Counters(counters)) => {
                    self.counter_samples += 1;
                    let is_unknown =
                        |one: &CounterRecord<'_>| matches!(one, CounterRecord::Unknown(_));
                    self.records(counters.records(), is_unknown);
                }
                Ok(Sample::Unknown(_)) => self.unknown += 1,
                Ok(Sample::Metrics(_) | Sample::RtFlow(_)) => {}
                Err(_) => self.faults += 1,
            }
        }
    }
}

/// Ten times `WEIR_TEST_ROWS` datagrams with changed bytes: ten million with 1,000,000.
#[test]
fn every_broken_datagram_is_counted_in_one_class() {
    let (whole, mut random, mut engine) = (whole(), Random::seeded(7), engine());
    let (mut bytes, mut counted) = (Vec::new(), Counted::default());
    let (mut malformed, mut others) = (0, 0);
    let count = 10 * testkit::rows();
    for number in 0..count {
        bytes.clone_from(&whole[number as usize % whole.len()]);
        bytes[SEQUENCE].copy_from_slice(&(number as u32).to_be_bytes());
        mutate(&mut bytes, &mut random);
        match engine.datagram(&bytes, NO_ADDRESS, SECOND_NS + number * 1_000, &mut ()) {
            Taken::Read => counted.add(&bytes),
            Taken::Malformed => malformed += 1,
            Taken::Duplicate | Taken::AgentLimit => others += 1,
        }
        if number % 1_000 == 0 {
            engine.tick(SECOND_NS + number * 1_000, &mut ());
        }
    }

    let totals = engine.totals();
    assert_eq!((totals.datagrams, totals.malformed), (count, malformed));
    assert_eq!(totals.duplicate + totals.agent_limit, others);
    assert_eq!(totals.read + totals.malformed + others, count);
    // What was already counted is not examined again, so there may be slightly fewer.
    let seen = totals.flow_samples + totals.dropped_packets + totals.duplicate_samples;
    assert_eq!(seen, counted.flow_samples + counted.dropped_packets);
    assert_eq!(totals.counter_samples, counted.counter_samples);
    // Of samples that can be read, some have frames of impossible lengths.
    let lengths = totals.faults.get("frame_length").copied().unwrap_or_default();
    assert!(totals.faults.values().sum::<u64>() - lengths <= counted.faults + malformed);
    assert!(lengths > 0 && totals.implausible_samples > 0);
    assert_eq!(engine.contradictions(), 0);
    assert!(totals.unknown.values().sum::<u64>() + totals.unknown_other <= counted.unknown);
    for counting in engine.counting() {
        let totals = counting.totals();
        assert_eq!(totals.seen, totals.counted + totals.filtered + totals.without_key);
        for figure in counting.top(SECOND_NS + count * 1_000) {
            let all = [figure.rate, figure.total];
            assert!(
                all.iter()
                    .all(|one| one.low >= 0.0 && one.low <= one.value && one.value <= one.high)
            );
        }
    }
    let broken: u64 = totals.faults.values().sum();
    println!(
        "{count}: {} read, {malformed} malformed, {others} not read, {broken} faults",
        totals.read
    );
}
