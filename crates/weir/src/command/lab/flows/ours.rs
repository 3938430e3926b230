//! Our own engine as the lab's collector, as `weir flows` has it.

use flows::{
    Aggregation, Counting, Definition, Direction, Engine, Judge, Limits, Measure, Part, Threshold,
    Traffic, Value, Watch,
};
use lab::sflow::{Bytes, Collector, LIMIT_BITS_PER_S};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The time constant that `weir flows` has by default.
const SMOOTHING: Duration = Duration::from_secs(2);

struct Ours {
    engine: Engine,
    watch: Watch,
}

/// An engine that counts bytes by destination, and watches the lab's limit.
pub(super) fn make() -> Box<dyn Collector> {
    let definition = Definition {
        name: "lab".into(),
        keys: Part::parse("dst").into_iter().collect(),
        traffic: Traffic::Sampled,
        measure: Measure::Bytes,
        filter: None,
        direction: Direction::Any,
        aggregation: Aggregation::Max,
        smoothing: SMOOTHING,
        top: 100_000,
        active_timeout: Duration::from_secs(60),
        flows_max: 100_000,
    };
    let limit = LIMIT_BITS_PER_S / 8.0;
    let watch = Watch::new(Threshold {
        name: "attack".into(),
        limit,
        clear: limit * 0.8,
        clear_after: Duration::from_secs(10),
        judge: Judge::Value,
        raised_max: 10_000,
    });
    let groups = flows::Groups::default();
    let engine = Engine::new(Limits::default(), groups, HashSet::new(), vec![definition]);
    Box::new(Ours { engine, watch })
}

impl Ours {
    fn counting(&self) -> &Counting {
        &self.engine.counting()[0]
    }
}

impl Collector for Ours {
    fn datagram(&mut self, bytes: &[u8], now_ns: u64) {
        self.engine.datagram(bytes, flows::NO_ADDRESS, now_ns, &mut ());
    }

    fn bytes(&self, now_ns: u64) -> Vec<Bytes> {
        let figures = self.counting().top(now_ns).into_iter();
        let of = |figure: flows::Figure| {
            let flows::Estimate { value, low, high } = figure.total;
            destination(&figure.key).map(|dst| Bytes { dst, value, low, high })
        };
        figures.filter_map(of).collect()
    }

    fn passed(&mut self, now_ns: u64) -> Vec<Ipv4Addr> {
        self.engine.tick(now_ns, &mut ());
        let Ours { engine, watch } = self;
        let counting = &engine.counting()[0];
        let mut passed = Vec::new();
        watch.look(now_ns, counting.rates(now_ns), &mut passed);
        let raised = passed.iter().filter(|one| one.change == flows::Change::Raised);
        raised.filter_map(|one| destination(&counting.values(&one.key))).collect()
    }
}

fn destination(key: &[Value]) -> Option<Ipv4Addr> {
    match key.first() {
        Some(Value::Address(IpAddr::V4(dst))) => Some(*dst),
        _ => None,
    }
}
