mod forged;

use super::*;
use crate::definition::{Aggregation, Direction, Measure, Traffic};
use crate::engine::Limits;
use crate::event::{Event, Subject};
use crate::field::Value;
use crate::filter::Filter;
use crate::key::Part;
use crate::threshold::Change;
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
    Threshold { clear_after: Duration::from_secs(3), ..Threshold::new("flood", limit) }
}

/// Plays 20 s of traffic, and then 20 s without any.
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
    let Subject::Flow { definition, key, shown, .. } = &raised.subject else {
        panic!("{raised:?}")
    };
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
    assert_eq!(
        subject,
        Some(Subject::Source { figure: "in_use", agent, sub_agent: 0, if_index: Some(1) })
    );
}

#[test]
fn what_is_the_same_goes_on_and_what_changes_begins_anew() {
    let mut analysis = analysis();
    run(&mut analysis);
    let same = analysis.counting("victims").unwrap().definition().clone();
    analysis.define(same.clone(), Author::File);
    assert_eq!(analysis.counting("victims").unwrap().flows(), 1);
    analysis.define(Definition { top: 5, ..same }, Author::File);
    assert_eq!(analysis.counting("victims").unwrap().flows(), 0);
    assert!(analysis.undefine("victims") && !analysis.undefine("victims"));
}

/// The events, in short form.
fn told(analysis: &Analysis) -> Vec<(Change, Subject)> {
    let events = analysis.events().after(0);
    events.map(|event: &std::sync::Arc<Event>| (event.change, event.subject.clone())).collect()
}

fn moment(clock_ns: u64) -> Moment {
    Moment { clock_ns, unix_ns: 1_700_000_000 * SECOND_NS + clock_ns }
}

/// A flow to the victim with this many frames per second.
fn flood(frames_per_s: f64) -> TrueFlow {
    TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: VICTIM,
        protocol: 17,
        src_port: 53,
        dst_port: 4_000,
        frame_bytes: 1_000,
        frames_per_s,
    }
}

/// Plays agents simultaneously until `end_ns`, with a tick every 100 ms. Datagrams for which `lost` returns true do not arrive.
fn play(
    analysis: &mut Analysis,
    agents: &mut [Played],
    (begin_ns, end_ns): (u64, u64),
    lost: &mut impl FnMut() -> bool,
) {
    let mut bytes = Vec::new();
    for now_ns in (begin_ns..=end_ns).step_by(SECOND_NS as usize / 10) {
        for agent in &mut *agents {
            while (agent.now().as_nanos() as u64) < now_ns {
                let at_ns = agent.next_datagram(&mut bytes).as_nanos() as u64;
                if !lost() {
                    analysis.datagram(&bytes, PEER, at_ns.max(1), &mut ());
                }
            }
        }
        analysis.tick(moment(now_ns), &mut ());
    }
}

fn agents(count: u8, frames_per_s: f64) -> Vec<Played> {
    let agent = |last: u8| {
        let address = Ipv4Addr::new(192, 0, 2, last).into();
        let options = AgentOptions { address, ..AgentOptions::default() };
        Played::new(options, vec![flood(frames_per_s)], last.into())
    };
    (1..=count).map(agent).collect()
}

#[test]
fn a_flow_that_several_samplers_see_is_one_event() {
    let mut analysis = analysis();
    let sum = analysis.counting("victims").unwrap().definition().clone();
    analysis.define(Definition { aggregation: Aggregation::Max, ..sum }, Author::File);
    analysis.watch(Watched::Flow("victims".into()), threshold(400_000.0));
    let mut agents = agents(3, 800_000.0);
    play(&mut analysis, &mut agents, (1, 10 * SECOND_NS), &mut || false);

    let [(Change::Raised, Subject::Flow { key, .. })] = &told(&analysis)[..] else {
        panic!("{:?}", told(&analysis))
    };
    assert_eq!(key[..], [Value::Address(VICTIM.into())]);
    // One agent alone keeps it above.
    play(&mut analysis, &mut agents[..1], (10 * SECOND_NS, 30 * SECOND_NS), &mut || false);
    assert_eq!(told(&analysis).len(), 1);
    play(&mut analysis, &mut [], (30 * SECOND_NS, 40 * SECOND_NS), &mut || false);
    assert_eq!(told(&analysis).len(), 2);
}

#[test]
fn what_is_defined_anew_or_watched_no_longer_is_cleared() {
    let mut analysis = analysis();
    analysis.watch(Watched::Flow("victims".into()), threshold(400_000.0));
    let mut agents = agents(1, 800_000.0);
    play(&mut analysis, &mut agents, (1, 10 * SECOND_NS), &mut || false);
    let same = analysis.counting("victims").unwrap().definition().clone();
    let keys = vec![Part::parse("src").unwrap(), Part::parse("dst").unwrap()];
    analysis.define(Definition { keys, ..same }, Author::File);
    play(&mut analysis, &mut agents, (10 * SECOND_NS, 12 * SECOND_NS), &mut || false);
    analysis.unwatch("flood");
    analysis.tick(moment(12 * SECOND_NS), &mut ());

    let told = told(&analysis);
    let changes: Vec<_> = told.iter().map(|(change, _)| *change).collect();
    assert_eq!(changes, [Change::Raised, Change::Cleared, Change::Raised, Change::Cleared]);
    // What is cleared is what was raised, with its own key.
    assert_eq!((&told[0].1, &told[2].1), (&told[1].1, &told[3].1));
    assert_ne!(told[0].1, told[2].1);
}

#[test]
fn only_flows_that_pass_the_filter_are_told() {
    for (filter, expected) in [("dst in 198.51.100.0/24", 1), ("not dst in 198.51.100.0/24", 0)] {
        let mut analysis = analysis();
        let filter = Some(Filter::parse(filter, analysis.engine().groups()).unwrap());
        let threshold = Threshold { filter, ..threshold(400_000.0) };
        analysis.watch(Watched::Flow("victims".into()), threshold);
        play(&mut analysis, &mut agents(1, 800_000.0), (1, 5 * SECOND_NS), &mut || false);
        assert_eq!(told(&analysis).len(), expected, "{expected}");
    }
}

#[test]
fn an_agent_that_loses_datagrams_and_one_that_falls_silent_are_events() {
    let mut analysis = analysis();
    analysis.watch(Watched::Agent(AgentFigure::Loss), Threshold::new("loss", 0.3));
    analysis.watch(Watched::Agent(AgentFigure::Silent), Threshold::new("silent", 30.0));
    let mut agents = agents(1, 800_000.0);
    let mut random = load::Random::seeded(1);
    play(&mut analysis, &mut agents, (1, 10 * SECOND_NS), &mut || random.unit() < 0.5);
    let figures = |analysis: &Analysis| -> Vec<_> {
        let figure = |(change, subject)| match subject {
            Subject::Source { figure, if_index: None, .. } => (figure, change),
            other => panic!("{other:?}"),
        };
        told(analysis).into_iter().map(figure).collect()
    };
    assert_eq!(figures(&analysis), [("loss", Change::Raised)]);
    play(&mut analysis, &mut agents, (10 * SECOND_NS, 60 * SECOND_NS), &mut || false);
    assert_eq!(figures(&analysis)[1..], [("loss", Change::Cleared)]);

    // Silent until after it was forgotten, and then heard again.
    play(&mut analysis, &mut [], (60 * SECOND_NS, 700 * SECOND_NS), &mut || false);
    assert_eq!(analysis.engine().agents().count(), 0);
    assert_eq!(figures(&analysis)[2..], [("silent", Change::Raised)]);
    let mut agents = self::agents(1, 800_000.0);
    let mut bytes = Vec::new();
    for second in 700..720 {
        agents[0].next_datagram(&mut bytes);
        analysis.datagram(&bytes, PEER, second * SECOND_NS, &mut ());
        analysis.tick(moment(second * SECOND_NS), &mut ());
    }
    assert_eq!(figures(&analysis)[3..], [("silent", Change::Cleared)]);
}

/// 10 Gbit/s of 1,518-byte frames at 1:1000, with half of the datagrams lost: a flow at twice its threshold is reported within a
/// second.
#[test]
fn an_attack_is_told_within_a_second_at_half_the_datagrams_lost() {
    const RUNS: u64 = 300;
    for loss in [0.0, 0.2, 0.5] {
        let mut waits_s = Vec::new();
        for seed in 1..=RUNS {
            let mut analysis = analysis();
            analysis.watch(Watched::Flow("victims".into()), threshold(200_000.0));
            let to = |last| TrueFlow { dst: [198, 51, 100, last].into(), ..flood(100_000.0) };
            let mut flows: Vec<TrueFlow> = (11..15).map(to).collect();
            let mut agent = Played::new(AgentOptions::default(), flows.clone(), seed);
            let mut random = load::Random::seeded(!seed);
            let mut lost = || random.unit() < loss;
            let agents = std::slice::from_mut(&mut agent);
            play(&mut analysis, agents, (1, 5 * SECOND_NS), &mut lost);
            assert_eq!(told(&analysis), []);

            flows.push(flood(400_000.0));
            agents[0].set_flows(flows);
            play(&mut analysis, agents, (5 * SECOND_NS, 10 * SECOND_NS), &mut lost);
            let first = analysis.events().after(0).next().map(|event| event.time_unix_ns);
            let at_ns = first.unwrap_or(u64::MAX) - moment(5 * SECOND_NS).unix_ns;
            waits_s.push(at_ns as f64 / 1e9);
            assert_eq!(told(&analysis).len(), 1, "seed {seed}");
        }
        waits_s.sort_unstable_by(f64::total_cmp);
        let (half, most) = (waits_s[RUNS as usize / 2], waits_s[(RUNS * 99 / 100) as usize]);
        println!("loss {loss}: p50 {half:.2} s, p99 {most:.2} s");
        assert!(most <= 1.0, "loss {loss}: p99 {most}");
    }
}

/// On for a second, off for a second: one event, and one more when it is over.
#[test]
fn a_flow_that_flaps_gives_no_storm() {
    let mut analysis = analysis();
    analysis.watch(Watched::Flow("victims".into()), threshold(300_000.0));
    let low = TrueFlow { dst: Ipv4Addr::new(198, 51, 100, 7), ..flood(100_000.0) };
    let mut agent = Played::new(AgentOptions::default(), vec![low], 1);
    for second in 0..120 {
        let is_on = second % 2 == 0 && second < 60;
        agent.set_flows(if is_on { vec![low, flood(800_000.0)] } else { vec![low] });
        let span = (1.max(second * SECOND_NS), (second + 1) * SECOND_NS);
        play(&mut analysis, std::slice::from_mut(&mut agent), span, &mut || false);
    }
    assert_eq!(told(&analysis).len(), 2);
}

/// The cost of a check depends on the flows close to the limit, not on how many there are.
#[test]
fn a_look_does_not_depend_on_how_many_flows_there_are() {
    let mut analysis = analysis();
    let one = analysis.counting("victims").unwrap().definition().clone();
    analysis.define(Definition { flows_max: 200_000, ..one }, Author::File);
    analysis.watch(Watched::Flow("victims".into()), threshold(400_000.0));
    let flows = (0..100_000u32)
        .map(|at| TrueFlow { dst: Ipv4Addr::from_bits(at), ..flood(8.0) })
        .chain([flood(800_000.0)])
        .collect();
    let mut agent = Played::new(AgentOptions::default(), flows, 1);
    let agents = std::slice::from_mut(&mut agent);
    play(&mut analysis, agents, (1, 60 * SECOND_NS), &mut || false);
    let counting = analysis.counting("victims").unwrap();
    assert!(counting.flows() > 20_000, "{}", counting.flows());
    assert_eq!((counting.hot(60 * SECOND_NS).count(), told(&analysis).len()), (1, 1));
}

#[test]
fn what_is_above_can_be_asked_for_after_its_event_is_gone() {
    let mut analysis = analysis();
    analysis.watch(Watched::Agent(AgentFigure::Silent), threshold(1.0));
    run(&mut analysis);
    analysis.set_events_max(1);
    let raised: Vec<_> = analysis.raised().collect();
    assert_eq!((raised.len(), raised[0].change), (1, Change::Raised));
}

/// A planted bug: arithmetic that overflows at the end of time.
#[test]
#[cfg(debug_assertions)]
fn a_panic_at_one_threshold_keeps_all() {
    let mut analysis = analysis();
    let end = Moment { clock_ns: u64::MAX, unix_ns: 0 };
    analysis.watch(Watched::Agent(AgentFigure::Loss), threshold(1.0));
    analysis.watch(Watched::Flow("victims".into()), Threshold::new("other", 1.0));
    analysis.tick(end, &mut ());
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| analysis.tick(end, &mut ())));
    assert!(panicked.is_err());
    assert_eq!(analysis.thresholds().count(), 2);
}
