//! Our own engine as the lab's collector, set up like `weir flows`.

use flows::{
    Aggregation, Analysis, Change, Definition, Direction, Engine, Limits, Measure, Moment, Part,
    Subject, Threshold, Traffic, Value, Watched,
};
use lab::sflow::{Bytes, Collector, LIMIT_BITS_PER_S};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The default time constant of `weir flows`.
const SMOOTHING: Duration = Duration::from_secs(2);

/// Most events kept, which is more than come between two looks.
const EVENTS_MAX: usize = 100_000;

struct Ours(Analysis);

/// An engine that counts bytes by destination, with a threshold at the lab's limit.
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
    let groups = flows::Groups::default();
    let engine = Engine::new(Limits::default(), groups, HashSet::new(), vec![definition]);
    let mut analysis = Analysis::new(engine, EVENTS_MAX);
    let threshold = Threshold::new("attack", LIMIT_BITS_PER_S / 8.0);
    analysis.watch(Watched::Flow("lab".into()), threshold);
    Box::new(Ours(analysis))
}

impl Collector for Ours {
    fn datagram(&mut self, bytes: &[u8], now_ns: u64) {
        self.0.datagram(bytes, flows::NO_ADDRESS, now_ns, &mut ());
    }

    fn bytes(&self, now_ns: u64) -> Vec<Bytes> {
        let counting = self.0.counting("lab").into_iter();
        let figures = counting.flat_map(|counting| counting.top(now_ns));
        let of = |figure: flows::Figure| {
            let flows::Estimate { value, low, high } = figure.total;
            destination(&figure.key).map(|dst| Bytes { dst, value, low, high })
        };
        figures.filter_map(of).collect()
    }

    fn passed(&mut self, now_ns: u64) -> Vec<Ipv4Addr> {
        let before = self.0.events().last_id();
        self.0.tick(Moment { clock_ns: now_ns, unix_ns: now_ns }, &mut ());
        let events = self.0.events().after(before);
        let raised = events.filter(|event| event.change == Change::Raised);
        let destination = |event: &std::sync::Arc<flows::Event>| match &event.subject {
            Subject::Flow { key, .. } => destination(key),
            Subject::Source { .. } => None,
        };
        raised.filter_map(destination).collect()
    }
}

fn destination(key: &[Value]) -> Option<Ipv4Addr> {
    match key.first() {
        Some(Value::Address(IpAddr::V4(dst))) => Some(*dst),
        _ => None,
    }
}
