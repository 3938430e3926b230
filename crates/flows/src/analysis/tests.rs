use super::*;
use crate::definition::{Aggregation, Direction, Measure, Traffic};
use crate::engine::Limits;
use crate::key::Part;
use crate::threshold::Judge;
use load::sflow::{Agent as Played, AgentOptions, TrueFlow};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
const VICTIM: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

fn analysis() -> Analysis {
    let definition = Definition {
        name: "victims".into(),
        keys: vec![Part::parse("dst").unwrap()],
        traffic: Traffic::Sampled,
        measure: Measure::Frames,
        filter: None,
        direction: Direction::Any,
        aggregation: Aggregation::Sum,
        smoothing: Duration::from_secs(1),
        top: 10,
        active_timeout: Duration::from_secs(60),
        flows_max: 1_000,
    };
    let engine =
        Engine::new(Limits::default(), Groups::default(), HashSet::new(), vec![definition]);
    Analysis::new(engine, 100)
}

fn threshold(limit: f64) -> Threshold {
    Threshold {
        name: "flood".into(),
        limit,
        clear: limit * 0.8,
        clear_after: Duration::from_secs(3),
        judge: Judge::Value,
        raised_max: 100,
    }
}

/// Half of 20 s of traffic, and then 20 s without any.
fn run(analysis: &mut Analysis) {
    let flow = TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: VICTIM,
        protocol: 17,
        src_port: 53,
        dst_port: 4_000,
        frame_bytes: 1_000,
        frames_per_s: 800_000.0,
    };
    let options =
        AgentOptions { counters_every: Duration::from_secs(1), ..AgentOptions::default() };
    let mut agent = Played::new(options, vec![flow], 7);
    let mut bytes = Vec::new();
    let moment = |clock_ns| Moment { clock_ns, unix_ns: 1_700_000_000 * SECOND_NS + clock_ns };
    let mut ticked_ns = 0;
    while agent.now().as_secs() < 20 {
        let at_ns = agent.next_datagram(&mut bytes).as_nanos() as u64;
        analysis.datagram(&bytes, PEER, at_ns, &mut ());
        if at_ns >= ticked_ns + SECOND_NS / 10 {
            ticked_ns = at_ns;
            analysis.tick(moment(at_ns), &mut ());
        }
    }
    for tenth in 200..400 {
        analysis.tick(moment(tenth * SECOND_NS / 10), &mut ());
    }
}

#[test]
fn a_flow_that_passes_its_threshold_is_an_event_and_another_when_it_is_down() {
    let mut analysis = analysis();
    analysis.watch(Watched::Flow("victims".into()), threshold(400_000.0));
    run(&mut analysis);

    let events: Vec<_> = analysis.events().after(0).cloned().collect();
    let [raised, cleared] = &events[..] else { panic!("{events:?}") };
    assert_eq!((raised.id, raised.raised_id, raised.change), (1, 1, Change::Raised));
    assert_eq!((cleared.id, cleared.raised_id, cleared.change), (2, 1, Change::Cleared));
    let Subject::Flow { definition, key, shown } = &raised.subject else { panic!("{raised:?}") };
    assert_eq!((&**definition, &key[..]), ("victims", &[Value::Address(VICTIM.into())][..]));
    assert_eq!(shown[..], [("dst".to_owned(), VICTIM.to_string())]);
    assert_eq!(cleared.raised_unix_ns, raised.time_unix_ns);
    assert!(cleared.peak > 700_000.0 && cleared.figure.value < 320_000.0, "{cleared:?}");
    assert_eq!(analysis.events().after(1).count(), 1);
}

#[test]
fn an_interface_in_use_is_an_event() {
    let mut analysis = analysis();
    // 6.4 of 10 Gbit/s.
    analysis.watch(Watched::Port(PortFigure::InUse), threshold(0.6));
    run(&mut analysis);

    let first = analysis.events().after(0).next().cloned();
    let subject = first.map(|event| event.subject.clone());
    let agent = AgentOptions::default().address;
    assert_eq!(subject, Some(Subject::Source { agent, sub_agent: 0, if_index: Some(1) }));
}

#[test]
fn what_is_the_same_goes_on_and_what_changes_begins_anew() {
    let mut analysis = analysis();
    run(&mut analysis);
    let same = analysis.counting("victims").unwrap().definition().clone();
    analysis.define(same.clone());
    assert_eq!(analysis.counting("victims").unwrap().flows(), 1);
    analysis.define(Definition { top: 5, ..same });
    assert_eq!(analysis.counting("victims").unwrap().flows(), 0);
    assert!(analysis.undefine("victims") && !analysis.undefine("victims"));
}
