//! An analysis that has just seen known traffic.

use super::super::flows::Shared;
use admin::service::{Action, Asked, Asker, Body, Service, Told};
use flows::{
    Aggregation, Analysis, Definition, Direction, Engine, Groups, Limits, Measure, Part, Traffic,
};
use load::sflow::{Agent, AgentOptions, TrueFlow};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const AGENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

pub(crate) fn definition(name: &str, keys: &str) -> Definition {
    Definition {
        name: name.into(),
        keys: keys.split(',').map(|key| Part::parse(key).unwrap()).collect(),
        traffic: Traffic::Sampled,
        measure: Measure::Bytes,
        filter: None,
        direction: Direction::Any,
        aggregation: Aggregation::Max,
        smoothing: Duration::from_secs(2),
        top: 20,
        active_timeout: Duration::from_secs(60),
        flows_max: 10_000,
    }
}

pub(crate) fn shared(definitions: Vec<Definition>) -> Arc<Shared> {
    let engine = Engine::new(Limits::default(), Groups::default(), HashSet::new(), definitions);
    Shared::alone(Analysis::new(engine, 100))
}

/// Ten seconds of traffic through one interface of each of two agents: 800 Mbit/s of UDP to a victim, and 80 Mbit/s of TCP.
pub(crate) fn play(shared: &Shared) {
    let udp = TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(192, 0, 2, 7),
        protocol: 17,
        src_port: 53,
        dst_port: 4_000,
        frame_bytes: 1_000,
        frames_per_s: 100_000.0,
    };
    let tcp = TrueFlow {
        dst: Ipv4Addr::new(192, 0, 2, 8),
        protocol: 6,
        src_port: 40_000,
        dst_port: 443,
        frames_per_s: 10_000.0,
        ..udp
    };
    let end_ns = sys::clock::monotonic_ns();
    for (address, if_index) in [(AGENT, 3), (Ipv4Addr::new(10, 0, 0, 253), 4)] {
        let address = IpAddr::V4(address);
        let counters_every = Duration::from_secs(1);
        let options = AgentOptions { address, if_index, counters_every, ..AgentOptions::default() };
        let mut agent = Agent::new(options, vec![udp, tcp], 11);
        let mut bytes = Vec::new();
        loop {
            let at = agent.next_datagram(&mut bytes);
            if at > Duration::from_secs(10) {
                break;
            }
            let at_ns = (end_ns + at.as_nanos() as u64).saturating_sub(10_000_000_000);
            shared.with(|analysis| analysis.datagram(&bytes, address, at_ns, &mut ()));
        }
    }
    shared.tick();
}

/// An answer as a client sees it.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, 200, "{}", self.text);
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

pub(crate) fn ask(service: &Service, action: Action, target: &str, body: &str) -> Answer {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let asked = Asked {
        action,
        path: path.into(),
        query: query.into(),
        body: body.as_bytes().to_vec(),
        asker: Asker::Anyone,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let Told { status, body, .. } = runtime.block_on(service(asked));
    let bytes = match body {
        Body::Whole(bytes) => bytes,
        Body::Pieces(pieces) => pieces.flat_map(|piece| piece.unwrap()).collect(),
    };
    Answer { status, text: String::from_utf8(bytes).unwrap() }
}

pub(crate) fn get(service: &Service, target: &str) -> Answer {
    ask(service, Action::Read, target, "")
}
