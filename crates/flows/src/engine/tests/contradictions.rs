//! Agents that contradict themselves: the better half is used, and each is counted by agent.

use super::*;
use crate::field::Word;
use wire::sflow::flow::{Gateway, SampledHeader, Switch};
use wire::sflow::{Address, AsPath, FlowRecord, List};

const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 10));

/// An Ethernet frame of 128 sampled bytes with an IPv4 packet whose header states this length, to port 53 of 203.0.113.`last`.
fn frame(total: u16, last: u8) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1, 203, 0, 113, last, 0x13, 0x88, 0, 53]);
    bytes.resize(128, 0);
    bytes
}

fn header(frame: &[u8], frame_length_bytes: u32) -> FlowRecord<'_> {
    FlowRecord::SampledHeader(SampledHeader {
        protocol: 1,
        frame_length_bytes,
        stripped_bytes: 4,
        header: frame,
    })
}

/// A datagram of the agent with this address with these samples of 1 in 100, each of one record.
fn of(agent: IpAddr, sequence: u32, samples: &[(FlowSample<'_>, FlowRecord<'_>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let datagram = Datagram::new(agent.into(), 0, sequence, sequence * 20);
    let mut writer = Writer::begin(&mut bytes, &datagram);
    samples.iter().for_each(|(sample, record)| writer.flow(sample, std::slice::from_ref(record)));
    bytes
}

const AGENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Bytes by key, and what the only agent contradicts.
fn play(
    keys: &[&str],
    datagrams: impl IntoIterator<Item = Vec<u8>>,
) -> (BTreeMap<String, f64>, Vec<Discrepancy>) {
    let mut engine = engine(vec![Definition { aggregation: Aggregation::Max, ..definition(keys) }]);
    for bytes in datagrams {
        engine.datagram(&bytes, PEER, SECOND_NS, &mut ());
    }
    let counting = &engine.counting()[0];
    let flows = counting.top(SECOND_NS);
    let shown = |values: &[Value]| counting.shown(values, engine.groups()).join(",");
    let flows = flows.iter().map(|one| (shown(&one.key), one.total.value)).collect();
    let (_, agent) = engine.agents().next().unwrap();
    (flows, agent.discrepancies().seen().map(|(of, _)| of).collect())
}

/// Bytes of everything in 100 datagrams of one sample of a frame, as multiples of 100 × 100 of these lengths.
fn lengths(frames: impl Fn(u32) -> (Vec<u8>, u32)) -> (f64, Vec<Discrepancy>) {
    let datagrams = (1..=100).map(|n| {
        let (frame, length) = frames(n);
        of(AGENT, n, &[(sample(n, n * 100), header(&frame, length))])
    });
    let (flows, discrepancies) = play(&[], datagrams);
    (flows[""] / 10_000.0, discrepancies)
}

#[test]
fn a_frame_shorter_than_its_packet_has_the_packet_s_length() {
    assert_eq!(lengths(|_| (frame(1_500, 9), 132)), (1_518.0, vec![Discrepancy::FrameLength]));
    assert_eq!(lengths(|_| (frame(1_500, 9), 0)), (1_518.0, vec![Discrepancy::FrameLength]));
    // As long as the packet is no contradiction, with and without a check sequence.
    assert_eq!(lengths(|_| (frame(1_500, 9), 1_518)), (1_518.0, vec![]));
    assert_eq!(lengths(|_| (frame(1_500, 9), 1_514)), (1_514.0, vec![]));
    // The sender has left the length to its network card.
    assert_eq!(lengths(|_| (frame(0, 9), 1_400)), (1_400.0, vec![]));
}

#[test]
fn a_packet_that_lies_makes_no_traffic() {
    // One frame in ten says how long it is, so the agent is right about the others.
    let (bytes, discrepancies) =
        lengths(|n| if n % 10 == 1 { (frame(1_500, 9), 1_518) } else { (frame(65_000, 9), 132) });
    assert!((bytes - 270.6).abs() < 5.0, "{bytes}");
    assert_eq!(discrepancies, [Discrepancy::PacketLength]);
}

#[test]
fn without_a_rate_the_pool_or_the_sample_counts() {
    let frame = frame(1_000, 9);
    let of_rate = |pool: fn(u32) -> u32| {
        let datagrams = (1..=100).map(|n| {
            let sample = FlowSample { sampling_rate: 0, ..sample(n, pool(n)) };
            of(AGENT, n, &[(sample, header(&frame, 1_018))])
        });
        play(&["dst"], datagrams)
    };
    let (flows, discrepancies) = of_rate(|n| n * 1_000);
    assert!((flows["203.0.113.9"] / 1_018.0 / 99_000.0 - 1.0).abs() < 0.01, "{flows:?}");
    // The first sample has nothing to be compared with.
    assert_eq!(discrepancies, [Discrepancy::NoRate, Discrepancy::NoPool]);
    let (flows, discrepancies) = of_rate(|_| 0);
    assert_eq!((flows["203.0.113.9"], discrepancies), (101_800.0, vec![Discrepancy::NoPool]));
}

#[test]
fn samples_that_share_their_numbers_count_all() {
    let (one, other) = (frame(1_000, 9), frame(1_000, 10));
    let datagrams = (1..=100).map(|n| {
        let [a, b] = [&one, &other].map(|frame| (sample(n, n * 100), header(frame, 1_018)));
        of(AGENT, n, &[a, b])
    });
    let (flows, discrepancies) = play(&["dst"], datagrams);
    for last in [9, 10] {
        let bytes = flows[&format!("203.0.113.{last}")];
        assert!((bytes / 1_018.0 / 10_000.0 - 1.0).abs() < 0.03, "{flows:?}");
    }
    assert_eq!(discrepancies, [Discrepancy::SampleNumbers]);
}

#[test]
fn several_agents_with_one_address_are_told_apart_by_sender() {
    for (agent, apart) in [(NO_ADDRESS, 0), (AGENT, 0), (AGENT, 7_000)] {
        let mut engine = engine(vec![definition(&["dst"])]);
        for n in 1..=100 {
            for (sender, last, number) in [(PEER, 9, n), (SENDER, 10, n + apart)] {
                let frame = frame(1_000, last);
                let bytes = of(agent, number, &[(sample(n, n * 100), header(&frame, 1_018))]);
                engine.datagram(&bytes, sender, u64::from(n) * SECOND_NS / 50, &mut ());
            }
        }
        let flows = engine.counting()[0].top(2 * SECOND_NS);
        assert_eq!((flows.len(), engine.agents().len()), (2, 2));
        for flow in flows {
            let share = flow.total.value / 1_018.0 / 10_000.0;
            assert!((share - 1.0).abs() < 0.1, "{agent} {apart}: {share}");
        }
        let noted = engine.totals().discrepancies.count(Discrepancy::Senders);
        assert_eq!(noted > 100, agent == AGENT, "{noted}");
    }
}

#[test]
fn old_versions_are_named_with_their_sender() {
    let mut engine = engine(Vec::new());
    for version in [2u8, 4, 4, 9] {
        engine.datagram(&[0, 0, 0, version, 0, 0, 0, 1], SENDER, SECOND_NS, &mut ());
    }
    assert_eq!(engine.totals().versions, BTreeMap::from([(2, (1, SENDER)), (4, (2, SENDER))]));
    assert_eq!(engine.totals().faults, BTreeMap::from([("version", 4)]));
}

/// The values of these keys in one sample, with what it is in.
fn keys(keys: &[&str], sample: FlowSample<'_>, record: FlowRecord<'_>) -> Vec<Value> {
    let mut engine = engine(vec![definition(keys)]);
    engine.datagram(&of(AGENT, 1, &[(sample, record)]), PEER, SECOND_NS, &mut ());
    let flows = engine.counting()[0].top(SECOND_NS);
    let lacking = engine.counting()[0].lacking().map(|(_, samples)| samples).sum::<u64>();
    assert_eq!(flows.len() as u64 + lacking, 1);
    flows.first().map(|one| one.key.clone()).unwrap_or_default()
}

#[test]
fn ends_that_are_no_interface_and_ports_that_are_none_are_values() {
    let words = |words: [Word; 2]| words.map(Value::Word).to_vec();
    let whole = frame(1_000, 9);
    for (end, word) in [
        (Interface::Internal, Word::Internal),
        (Interface::Unknown, Word::Unknown),
        (Interface::Multiple(0), Word::Several),
        (Interface::Discarded(wire::sflow::DropReason(0)), Word::Discarded),
    ] {
        let sample = FlowSample { input: end, output: end, ..sample(1, 100) };
        assert_eq!(keys(&["input", "output"], sample, header(&whole, 1_018)), words([word; 2]));
    }
    let mut later = whole.clone();
    later[20..22].copy_from_slice(&185u16.to_be_bytes());
    let ports = keys(&["src_port", "dst_port"], sample(1, 100), header(&later, 1_018));
    assert_eq!(ports, words([Word::None; 2]));
    // What is not IP lacks ports.
    let arp = [&whole[..12], &[8, 6], &[0; 50]].concat();
    assert_eq!(keys(&["src_port"], sample(1, 100), header(&arp, 64)), []);
    assert_eq!(keys(&["vlan"], sample(1, 100), header(&arp, 64)), [Value::Word(Word::None)]);
}

#[test]
fn a_switch_and_a_gateway_say_what_they_know() {
    let number = |number: u64| Value::Number(number);
    let switch = |src_vlan, dst_vlan| {
        FlowRecord::ExtendedSwitch(Switch { src_vlan, src_priority: 0, dst_vlan, dst_priority: 0 })
    };
    let vlans = |record| keys(&["vlan", "out_vlan"], sample(1, 100), record);
    assert_eq!(vlans(switch(42, 43)), [number(42), number(43)]);
    assert_eq!(vlans(switch(0, 0)), [Value::Word(Word::None); 2]);
    assert_eq!(vlans(switch(u32::MAX, 43)), []);

    let (mut path, mut communities) = (Vec::new(), Vec::new());
    let next_hop = Ipv4Addr::new(192, 0, 2, 254);
    let mut systems = |src_as, hops: &[u32]| {
        let segments = [(2, hops)];
        let gateway = FlowRecord::ExtendedGateway(Gateway {
            next_hop: Address::V4(next_hop),
            router_as: 64_500,
            src_as,
            src_peer_as: 0,
            dst_as_path: AsPath::write(if hops.is_empty() { &[] } else { &segments }, &mut path),
            communities: List::write(&[0xfbf4_0064, 7], &mut communities),
            local_pref: 100,
        });
        keys(
            &["src_as", "dst_as", "peer_as", "dst_peer_as", "router_as", "community"],
            sample(1, 100),
            gateway,
        )
    };
    let own = 64_500;
    let community = number(0xfbf4_0064);
    assert_eq!(
        systems(0, &[]),
        [number(own), number(own), number(own), number(own), number(own), community]
    );
    assert_eq!(
        systems(64_501, &[64_502, 64_503]),
        [number(64_501), number(64_503), number(own), number(64_502), number(own), community]
    );
}
