use super::*;
use crate::counting::Counting;
use crate::definition::{Aggregation, Direction, Measure, Traffic};
use crate::field::{Facts, Field};
use crate::lookup::Author;
use std::collections::HashMap;
use testkit::Random;

const SECOND_NS: u64 = 1_000_000_000;

struct From(u64);

impl Facts for From {
    fn value(&self, field: Field) -> Value {
        if field == Field::SrcPort { Value::Number(self.0) } else { Value::Absent }
    }
}

fn definition(aggregation: Aggregation, flows_max: usize) -> Definition {
    Definition {
        name: "ports".into(),
        keys: vec![Part::parse("src_port").unwrap()],
        traffic: Traffic::Sampled,
        measure: Measure::Bytes,
        filter: None,
        direction: Direction::Any,
        aggregation,
        smoothing: Duration::from_secs(2),
        top: 10,
        active_timeout: Duration::from_secs(30),
        flows_max,
    }
}

/// Accepts a limited number of portions between two ticks.
#[derive(Default)]
struct Taker {
    room: u64,
    taken: Amounts,
    by_cause: HashMap<String, u64>,
    by_key: HashMap<u64, u64>,
}

impl Told for Taker {
    fn flow(&mut self, portion: &Portion<'_>) -> Accepted {
        if portion.cause != Cause::Merged {
            let Some(room) = self.room.checked_sub(1) else { return Accepted::No };
            self.room = room;
        }
        assert!(portion.amounts.samples > 0 && portion.first_ns <= portion.last_ns);
        assert!(portion.bytes.low <= portion.amounts.bytes as f64);
        assert!(portion.bytes.high >= portion.amounts.bytes as f64);
        self.taken.add(&portion.amounts);
        *self.by_cause.entry(format!("{:?}", portion.cause)).or_default() += portion.flows;
        for (_, value) in portion.values() {
            let Value::Number(port) = value else { panic!("{value:?}") };
            *self.by_key.entry(port).or_default() += portion.amounts.samples;
        }
        Accepted::Yes
    }
}

fn sample(random: &mut Random, now_ns: u64) -> Sample {
    Sample {
        traffic: Traffic::Sampled,
        vantage: random.below(2) as u32,
        sampler: 1,
        is_once: true,
        direction: Direction::Ingress,
        is_edge: true,
        // As on a lossy path: up to a third more than configured.
        frames: 1_000.0 + random.below(1_000) as f64 / 3.0,
        configured_rate: 1_000,
        frame_bytes: 64 + random.below(1_400) as u32,
        now_ns,
    }
}

/// Many keys pass through few places, and not every portion is accepted when it is reported.
#[test]
fn portions_add_up_to_what_was_counted_exactly() {
    for (seed, room, flows_max) in [(1, 0, 20), (2, 3, 20), (3, u64::MAX, 20), (4, 50, 5_000)] {
        for aggregation in [Aggregation::Max, Aggregation::Sum] {
            let mut random = Random(seed);
            let definition = definition(aggregation, flows_max);
            let mut counting =
                Counting::new(definition, Author::File).telling(Some(Duration::from_secs(10)));
            let (groups, mut taker) = (Groups::default(), Taker::default());
            let mut truth = HashMap::<u64, u64>::new();
            let (mut frames, mut bytes) = (0.0, 0.0);
            for step in 0..40_000_u64 {
                let now_ns = (1 + step) * 5_000_000;
                if step % 20 == 0 {
                    taker.room = room;
                    counting.sweep(now_ns, &groups, &mut taker);
                }
                let port = random.below(30) * random.below(30);
                let sample = sample(&mut random, now_ns);
                frames += sample.frames;
                bytes += sample.frames * f64::from(sample.frame_bytes);
                counting.count(&sample, &From(port), &groups, &mut taker);
                // Up to twice as many as are batched together.
                if step % 29 == 0 {
                    counting.settle(&groups, &mut taker);
                }
                *truth.entry(port).or_default() += 1;
            }
            taker.room = room;
            counting.settle(&groups, &mut taker);
            counting.tell_all(&groups, &mut taker);

            assert_eq!(Some(taker.taken), counting.counted());
            assert_eq!(taker.taken.samples, counting.totals().counted);
            assert_eq!(taker.taken.raw_frames, 40_000_000);
            // Whole units lose less than one.
            assert!(
                (taker.taken.frames as f64 - frames).abs() < 1.5,
                "{taken:?}",
                taken = taker.taken
            );
            assert!((taker.taken.bytes as f64 - bytes).abs() < 3.0);
            let merged = taker.by_cause.get("Merged").copied().unwrap_or(0);
            assert_eq!(merged == 0, room == u64::MAX, "{:?}", taker.by_cause);
            if room == u64::MAX {
                assert_eq!(taker.by_key, truth);
                assert!(taker.by_cause["Evicted"] > 1_000);
            }
            // Everything is reported: a second call reports nothing.
            let before = taker.taken;
            taker.room = u64::MAX;
            counting.tell_all(&groups, &mut taker);
            assert_eq!(taker.taken, before);
        }
    }
}

#[test]
fn a_flow_that_goes_on_is_told_in_time_and_one_that_ended_once() {
    let mut counting = Counting::new(definition(Aggregation::Sum, 100), Author::File)
        .telling(Some(Duration::from_secs(10)));
    let (groups, mut taker) = (Groups::default(), Taker { room: u64::MAX, ..Taker::default() });
    let mut random = Random(9);
    for second in 1..=35 {
        if second <= 25 {
            let sample = sample(&mut random, second * SECOND_NS);
            counting.count(&sample, &From(7), &groups, &mut taker);
            counting.settle(&groups, &mut taker);
        }
        counting.sweep(second * SECOND_NS, &groups, &mut taker);
    }
    // After 10 s and 21 s; the rest at the end waits for its ten seconds.
    assert_eq!(taker.by_cause, HashMap::from([("Active".to_owned(), 3)]));
    counting.sweep(56 * SECOND_NS, &groups, &mut taker);
    assert_eq!((counting.flows(), taker.by_key[&7]), (0, 25));
    assert_eq!(taker.by_cause, HashMap::from([("Active".to_owned(), 3)]));
}
