//! What one datagram says, or what comes at one moment, raises no event, whatever it claims.

use super::*;
use crate::threshold::Judge;
use wire::sflow::counter::IfCounters;
use wire::sflow::{
    Counter32, Counter64, CounterRecord, CountersSample, DataSource, Datagram, Form, Records,
    Writer,
};

/// Traffic that an agent really sees, in frames per second, and a limit that it does not pass by chance.
const USUAL: f64 = 60_000.0;
const LIMIT: f64 = 100_000.0;

/// Five samples that claim 2³⁰ frames to `victim` each, as the first datagram of an agent.
fn forged(agent: IpAddr, victim: Ipv4Addr) -> Vec<u8> {
    let options = AgentOptions { address: agent, sampling_rate: 1 << 30, ..Default::default() };
    let flow = TrueFlow { dst: victim, frames_per_s: 1e12, ..flood(1.0) };
    let mut bytes = Vec::new();
    Played::new(options, vec![flow], 3).next_datagram(&mut bytes);
    bytes
}

fn watched(judge: Judge, raised_max: usize) -> Analysis {
    let mut analysis = analysis();
    let threshold = Threshold { judge, raised_max, ..threshold(LIMIT) };
    analysis.watch(Watched::Flow("victims".into()), threshold);
    analysis
}

fn seconds(from: u64, until: u64) -> (u64, u64) {
    (1.max(from * SECOND_NS), until * SECOND_NS)
}

/// An ordinary agent, and a forged datagram while it plays: of an agent that nobody knows, and of the agent itself.
#[test]
fn one_forged_datagram_raises_nothing() {
    let known = AgentOptions::default().address;
    for address in [IpAddr::from([203, 0, 113, 5]), known] {
        for (judge, aggregation) in
            [(Judge::Value, Aggregation::Sum), (Judge::Sure, Aggregation::Max)]
        {
            let mut analysis = watched(judge, 1_000);
            let same = analysis.counting("victims").unwrap().definition().clone();
            analysis.define(Definition { aggregation, ..same }, Author::File);
            let mut agents = agents(1, USUAL);
            play(&mut analysis, &mut agents, seconds(0, 6), &mut || false);
            assert_eq!(
                analysis.datagram(&forged(address, VICTIM), PEER, 6 * SECOND_NS, &mut ()),
                Taken::Read
            );
            play(&mut analysis, &mut agents, seconds(6, 40), &mut || false);
            assert_eq!(told(&analysis), [], "{address}, {judge:?}, {aggregation:?}");
            assert!(analysis.engine().totals().implausible_samples > 0, "{address}");
            assert_eq!(analysis.engine().contradictions(), 0);
        }
    }
}

/// A thousand of them within one tick, at any moment between two ticks, of a thousand agents.
#[test]
fn a_burst_of_forged_datagrams_within_a_tick_raises_nothing() {
    for offset_ms in [1, 30, 60, 95] {
        let mut analysis = watched(Judge::Value, 1_000);
        let mut agents = agents(1, USUAL);
        play(&mut analysis, &mut agents, seconds(0, 6), &mut || false);
        let begin_ns = 6 * SECOND_NS + offset_ms * 1_000_000;
        let mut ticked = false;
        for number in 0..1_000u64 {
            let now_ns = begin_ns + number * 90_000;
            if now_ns >= 6 * SECOND_NS + SECOND_NS / 10 && !std::mem::replace(&mut ticked, true) {
                analysis.tick(moment(6 * SECOND_NS + SECOND_NS / 10), &mut ());
            }
            let agent = Ipv4Addr::from_bits(0xcb00_7100 + number as u32).into();
            analysis.datagram(&forged(agent, VICTIM), PEER, now_ns, &mut ());
        }
        let from_ns = begin_ns + 100_000_000;
        play(&mut analysis, &mut agents, (from_ns, 60 * SECOND_NS), &mut || false);
        assert_eq!(told(&analysis), [], "{offset_ms} ms after a tick");
    }
}

/// Each second another agent attacks another address in one datagram. A real attack meanwhile is told in time, however few may be
/// raised at once.
#[test]
fn forged_agents_take_no_place_of_what_is_real() {
    let mut analysis = watched(Judge::Sure, 2);
    let mut agents = agents(1, 2.0 * LIMIT);
    agents[0].set_flows(vec![TrueFlow { dst: Ipv4Addr::new(198, 51, 100, 7), ..flood(USUAL) }]);
    for second in 0..60 {
        let now_ns = 1.max(second * SECOND_NS);
        for number in 0..100 {
            let number = second as u32 * 100 + number;
            let victim = Ipv4Addr::from_bits(0xc000_0200 + number);
            let agent = Ipv4Addr::from_bits(0xcb00_7100 + number).into();
            analysis.datagram(&forged(agent, victim), PEER, now_ns, &mut ());
        }
        if second == 30 {
            assert_eq!(told(&analysis), []);
            agents[0].set_flows(vec![flood(2.0 * LIMIT)]);
        }
        play(&mut analysis, &mut agents, seconds(second, second + 1), &mut || false);
    }
    let first = analysis.events().after(0).next().unwrap().clone();
    let after_ns = first.time_unix_ns - moment(30 * SECOND_NS).unix_ns;
    let (_, subject) = told(&analysis).remove(0);
    let Subject::Flow { key, .. } = subject else { panic!("{first:?}") };
    assert_eq!(key[..], [Value::Address(VICTIM.into())]);
    assert!(after_ns <= 2 * SECOND_NS, "{after_ns}");
}

fn counters(sequence: u32, uptime_ms: u32, octets: u64) -> Vec<u8> {
    let none = Counter32(u32::MAX);
    let record = CounterRecord::Interface(IfCounters {
        if_index: 1,
        if_type: 6,
        speed_bits_per_sec: 10_000_000_000,
        direction: 1,
        status: 3,
        in_octets: Counter64(octets),
        in_ucast_packets: none,
        in_multicast_packets: none,
        in_broadcast_packets: none,
        in_discards: none,
        in_errors: none,
        in_unknown_protos: none,
        out_octets: Counter64(0),
        out_ucast_packets: none,
        out_multicast_packets: none,
        out_broadcast_packets: none,
        out_discards: none,
        out_errors: none,
        promiscuous_mode: 2,
    });
    let mut bytes = Vec::new();
    let address = IpAddr::from([192, 0, 2, 1]).into();
    let header = Datagram::new(address, 0, sequence, uptime_ms);
    let sample = CountersSample {
        form: Form::Compact,
        sequence,
        source: DataSource::interface(1),
        raw_records: Records::EMPTY,
    };
    Writer::begin(&mut bytes, &header).counters(&sample, &[record]);
    bytes
}

/// Counters of an idle interface, and in between one that claims that it was full, or several at one moment.
#[test]
fn one_reading_of_counters_raises_nothing_and_two_do() {
    for forged in [1, 10] {
        let mut analysis = analysis();
        analysis.watch(Watched::Port(PortFigure::InUse), threshold(0.5));
        let mut sequence = 0;
        let mut take = |analysis: &mut Analysis, second: u64, octets| {
            sequence += 1;
            let bytes = counters(sequence, second as u32 * 1_000 + sequence, octets);
            assert_eq!(analysis.datagram(&bytes, PEER, second * SECOND_NS, &mut ()), Taken::Read);
        };
        for second in 1..10 {
            take(&mut analysis, second, second);
            analysis.tick(moment(second * SECOND_NS), &mut ());
        }
        (0..forged).for_each(|number| take(&mut analysis, 10, 1_000_000_000 + number));
        analysis.tick(moment(10 * SECOND_NS), &mut ());
        for second in 11..20 {
            take(&mut analysis, second, 1_000_000_100 + second);
            analysis.tick(moment(second * SECOND_NS), &mut ());
        }
        assert_eq!(told(&analysis), [], "{forged}");

        for second in 20..23 {
            take(&mut analysis, second, second * 1_000_000_000);
            analysis.tick(moment(second * SECOND_NS), &mut ());
        }
        assert_eq!(told(&analysis).len(), 1, "{forged}");
    }
}

#[test]
fn an_agent_of_one_datagram_is_not_missed_when_it_is_silent() {
    let mut analysis = analysis();
    analysis.watch(Watched::Agent(AgentFigure::Silent), Threshold::new("silent", 30.0));
    for number in 0..100u32 {
        let agent = Ipv4Addr::from_bits(0xcb00_7100 + number).into();
        analysis.datagram(&forged(agent, VICTIM), PEER, SECOND_NS, &mut ());
    }
    play(&mut analysis, &mut [], seconds(1, 100), &mut || false);
    assert_eq!(told(&analysis), []);
}
