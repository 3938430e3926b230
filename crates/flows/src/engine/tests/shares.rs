//! Who has a place when agents and sources are more than may be known.

use super::*;

/// Limits that are small.
fn limited(agents_max: usize, sources_max: usize, agent_sources_max: usize) -> Engine {
    let limits = Limits { agents_max, sources_max, agent_sources_max, ..Limits::default() };
    let definitions = vec![Definition { measure: Measure::Frames, ..definition(&[]) }];
    Engine::new(limits, Groups::default(), HashSet::new(), definitions)
}

fn sender(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0xcb00_7100 + number).into()
}

/// A datagram of an agent with samples of these interfaces.
fn samples(agent: u32, sequence: u32, sources: std::ops::Range<u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + agent)).into();
    let mut writer = Writer::begin(&mut bytes, &Datagram::new(address, 0, sequence, sequence));
    for source in sources {
        let source = DataSource::interface(source);
        writer.flow(&FlowSample { source, ..sample(sequence, sequence * 100) }, &[]);
    }
    bytes
}

/// One datagram of an agent, and what became of it.
fn hear(engine: &mut Engine, from: u32, agent: u32, sequence: u32, second: u64) -> Taken {
    engine.datagram(&samples(agent, sequence, 1..2), sender(from), second * SECOND_NS, &mut ())
}

/// The address, in the numbers of [`samples`], of agents that are known.
fn known(engine: &Engine) -> Vec<u32> {
    let number = |id: &AgentId| match id.address {
        IpAddr::V4(address) => address.to_bits() - 0x0a00_0000,
        IpAddr::V6(_) => panic!("{id:?}"),
    };
    engine.agents().map(|(id, _)| number(id)).collect()
}

#[test]
fn who_floods_with_agents_gives_way_to_those_who_have_fewer() {
    let mut engine = limited(1_000, 10_000, 100);
    // Twenty agents that are heard all the time, behind one address each; and one address with as many agents as it likes.
    for (sequence, second) in (1..).zip(1..60) {
        (0..20).for_each(|honest| _ = hear(&mut engine, honest, honest, sequence, second));
        for number in 0..1_000 {
            hear(&mut engine, 999, 1_000 + second as u32 * 1_000 + number, 1, second);
        }
        engine.tick(second * SECOND_NS, &mut ());
    }
    assert_eq!(engine.agents().len(), 1_000);
    assert!((0..20).all(|honest| known(&engine).contains(&honest)));
    assert!(engine.totals().agent_limit > 10_000, "{:?}", engine.totals());

    // Thirty more come later, and one restarts behind another address. Each is refused until the next second at most.
    for honest in 100..130 {
        hear(&mut engine, honest, honest, 1, 60);
    }
    engine.tick(60 * SECOND_NS, &mut ());
    for honest in 100..130 {
        assert_eq!(hear(&mut engine, honest, honest, 2, 61), Taken::Read, "{honest}");
    }
    let totals = engine.totals();
    assert_eq!(totals.agents_evicted, 30);
    let fates = totals.read + totals.malformed + totals.duplicate + totals.agent_limit;
    assert_eq!(totals.datagrams, fates);
    assert_eq!(engine.contradictions(), 0);
}

/// With an address for each datagram there is nobody who has more. Whoever is heard all the time stays, and who was silent for a
/// minute gives way.
#[test]
fn forged_senders_drive_out_nobody_who_is_heard() {
    let mut engine = limited(1_000, 10_000, 100);
    let mut forged = 1_000;
    for (sequence, second) in (1..).zip(1..300) {
        (0..20).for_each(|honest| _ = hear(&mut engine, honest, honest, sequence, second));
        for _ in 0..100 {
            forged += 1;
            hear(&mut engine, forged, forged, 1, second);
        }
        engine.tick(second * SECOND_NS, &mut ());
    }
    assert!((0..20).all(|honest| known(&engine).contains(&honest)));
    assert_eq!(engine.agents().len(), 1_000);
    assert!(engine.totals().agents_evicted > 1_000, "{:?}", engine.totals());
}

#[test]
fn senders_with_more_than_there_is_keep_what_they_have() {
    let mut engine = limited(100, 10_000, 100);
    for second in 1..100 {
        for (from, agents) in [(1, 0..80), (2, 100..180)] {
            agents.for_each(|agent| _ = hear(&mut engine, from, agent, second as u32, second));
        }
        engine.tick(second * SECOND_NS, &mut ());
    }
    // The one that came later has got its half, and then nothing changes hands.
    assert_eq!(known(&engine).iter().filter(|agent| **agent >= 100).count(), 50);
    assert_eq!(engine.totals().agents_evicted, 30);
}

#[test]
fn one_agent_cannot_have_all_sources() {
    let mut engine = limited(1_000, 100_000, 2_048);
    for at in 0..1_000 {
        let bytes = samples(1, at + 1, at * 100 + 1..at * 100 + 101);
        engine.datagram(&bytes, sender(1), SECOND_NS, &mut ());
    }
    let (_, agent) = engine.agents().next().unwrap();
    assert_eq!(agent.samplers().count(), 2_048);
    assert_eq!(engine.totals().source_limit, 100_000 - 2_048);
    hear(&mut engine, 2, 2, 1, 1);
    assert_eq!(engine.totals().source_limit, 100_000 - 2_048);
}

#[test]
fn who_has_most_sources_gives_way() {
    let mut engine = limited(1_000, 1_000, 100);
    for agent in 0..10 {
        engine.datagram(&samples(agent, 1, 1..101), sender(1), SECOND_NS, &mut ());
    }
    let taken = |engine: &mut Engine, sequence, second| {
        let before = engine.totals().source_limit;
        hear(engine, 2, 500, sequence, second);
        engine.tick(second * SECOND_NS, &mut ());
        engine.totals().source_limit == before
    };
    assert!(!taken(&mut engine, 1, 2));
    // It has found whose places these are, and the sample after the next one has a place.
    assert!(!taken(&mut engine, 2, 3));
    assert!(taken(&mut engine, 3, 4));
    assert_eq!(engine.totals().agents_evicted, 1);
    assert_eq!(engine.contradictions(), 0);
}

/// A planted fault: a sample that the engine counts twice.
#[test]
fn a_sample_with_two_fates_is_a_contradiction() {
    let mut engine = limited(10, 10, 10);
    hear(&mut engine, 1, 1, 1, 1);
    assert_eq!(engine.contradictions(), 0);
    engine.rest.totals.duplicate_samples += 1;
    assert_eq!(engine.contradictions(), 1);
}

/// A definition that begins later, and one that is gone, agree with the engine as well.
#[test]
fn definitions_that_come_and_go_agree_with_the_engine() {
    let mut engine = limited(10, 10, 10);
    engine.tell_every(Duration::from_secs(1));
    for second in 1..20 {
        hear(&mut engine, 1, 1, second, second.into());
        if second == 5 {
            engine.define(Definition { name: "later".into(), ..definition(&[]) }, Author::File);
        }
        if second == 10 {
            engine.undefine("test");
        }
        engine.tick(u64::from(second) * SECOND_NS, &mut ());
        assert_eq!(engine.contradictions(), 0, "{second}");
    }
    engine.tell_all(&mut ());
    assert_eq!(engine.reported_samples(), 10 + 14);
    assert_eq!(engine.contradictions(), 0);
}
