//! examples/ddos.toml: each class of attack passes its own threshold and no other, and ordinary traffic passes none.

use config::Config;
use flows::{Analysis, Change, Engine, Moment};
use load::sflow::{Agent, AgentOptions, Fragment, Packet};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The pack as the daemon has it.
fn analysis() -> Analysis {
    let path = testkit::root().join("examples/ddos.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let config =
        Config::parse(&text, "ddos.toml").unwrap_or_else(|e| panic!("{}", config::list(&e)));
    let flows = config.flows.expect("the pack has [flows]");
    let (groups, internal) = (flows.built_groups(), flows.built_internal());
    let engine = Engine::new(flows.limits(), groups.clone(), internal, flows.built_definitions());
    let mut analysis = Analysis::new(engine, flows.events_max);
    for threshold in &config.thresholds {
        analysis.watch(threshold.watched().unwrap(), threshold.threshold(&groups).unwrap());
    }
    analysis
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn address(self, last: u16) -> IpAddr {
        let [high, low] = last.to_be_bytes();
        match self {
            Family::V4 => Ipv4Addr::new(198, 18, high, low).into(),
            Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into(),
        }
    }

    /// A packet from one host to another.
    fn packet(self, (src, dst): (u16, u16), protocol: u8, frame_bytes: u32) -> Packet {
        let protocol = if protocol == ICMP && self == Family::V6 { 58 } else { protocol };
        Packet {
            src: self.address(src),
            dst: self.address(dst),
            protocol,
            src_port: 443,
            dst_port: 40_000 + src,
            tcp_flags: ACK,
            icmp_type: 0,
            fragment: Fragment::Whole,
            frame_bytes,
        }
    }
}

/// What flows on any day: downloads and their acknowledgments, DNS, NTP, QUIC, some pings, some new connections, a fragment here and there.
fn ordinary(family: Family) -> Vec<(Packet, f64)> {
    let mut all = Vec::new();
    for host in 1..=20 {
        let pair = (host + 100, host);
        let of = |protocol, frame_bytes| family.packet(pair, protocol, frame_bytes);
        all.extend([
            (of(TCP, 1_500), 5_000.0),
            (
                Packet {
                    src: family.address(host),
                    dst: family.address(host + 100),
                    ..of(TCP, 66)
                },
                2_500.0,
            ),
            (Packet { tcp_flags: SYN, ..of(TCP, 74) }, 100.0),
            (Packet { tcp_flags: SYN | ACK, ..of(TCP, 74) }, 100.0),
            (Packet { tcp_flags: RST | ACK, ..of(TCP, 64) }, 50.0),
            (Packet { tcp_flags: FIN | ACK, ..of(TCP, 64) }, 50.0),
            (Packet { src_port: 53, ..of(UDP, 300) }, 200.0),
            (Packet { src_port: 123, ..of(UDP, 94) }, 20.0),
            (of(UDP, 1_250), 2_000.0),
            (of(ICMP, 102), 20.0),
            (Packet { fragment: Fragment::Later, ..of(UDP, 900) }, 10.0),
        ]);
    }
    all
}

/// The thresholds that are passed when this comes to one address as well.
fn raised_by(attack: &[(Packet, f64)], family: Family, seed: u64) -> BTreeSet<String> {
    let mut analysis = analysis();
    let mut streams = ordinary(family);
    let mut agent = Agent::new(AgentOptions::default(), Vec::new(), seed);
    agent.set_packets(&streams);
    let mut bytes = Vec::new();
    let mut until = |agent: &mut Agent, analysis: &mut Analysis, span: std::ops::Range<u64>| {
        for tenth in span {
            let now_ns = (tenth + 1) * SECOND_NS / 10;
            while agent.now() < Duration::from_nanos(now_ns) {
                let at_ns = agent.next_datagram(&mut bytes).as_nanos() as u64;
                analysis.datagram(&bytes, PEER, at_ns.max(1), &mut ());
            }
            analysis.tick(Moment { clock_ns: now_ns, unix_ns: now_ns }, &mut ());
        }
    };
    until(&mut agent, &mut analysis, 0..50);
    assert_eq!(analysis.events().last_id(), 0, "ordinary traffic, {family:?}, seed {seed}");

    streams.extend(attack);
    agent.set_packets(&streams);
    until(&mut agent, &mut analysis, 50..80);
    let events = analysis.events().after(0);
    let raised = events.filter(|event| event.change == Change::Raised);
    raised.map(|event| event.threshold.to_string()).collect()
}

/// One attack on one address, as IPv4 and as IPv6, over some seeds.
fn check(
    name: &str,
    attack: impl Fn(Packet) -> Packet,
    protocol: u8,
    frame_bytes: u32,
    per_s: f64,
) {
    for family in [Family::V4, Family::V6] {
        for seed in 1..=3 {
            // From a hundred sources.
            let from = |src| attack(family.packet((src, 1), protocol, frame_bytes));
            let streams: Vec<_> = (1_000..1_100).map(|src| (from(src), per_s / 100.0)).collect();
            let expected = BTreeSet::from([name.to_owned()]);
            assert_eq!(
                raised_by(&streams, family, seed),
                expected,
                "{name}, {family:?}, seed {seed}"
            );
        }
    }
}

#[test]
fn ordinary_traffic_passes_no_threshold() {
    for family in [Family::V4, Family::V6] {
        for seed in 1..=20 {
            assert_eq!(raised_by(&[], family, seed), BTreeSet::new(), "{family:?}, seed {seed}");
        }
    }
}

#[test]
fn amplified_answers_pass_the_threshold_of_their_protocol() {
    for (name, src_port, frame_bytes) in [
        ("qotd", 17, 500),
        ("chargen", 19, 1_000),
        ("dns", 53, 1_400),
        ("tftp", 69, 558),
        ("portmap", 111, 500),
        ("ntp", 123, 486),
        ("netbios", 137, 300),
        ("snmp", 161, 1_400),
        ("cldap", 389, 1_400),
        ("slp", 427, 1_400),
        ("rip", 520, 546),
        ("mssql", 1_434, 600),
        ("ssdp", 1_900, 350),
        ("ard", 3_283, 1_000),
        ("rdp", 3_389, 1_200),
        ("stun", 3_478, 1_400),
        ("ws-discovery", 3_702, 1_400),
        ("sentinel", 5_093, 1_400),
        ("mdns", 5_353, 800),
        ("coap", 5_683, 1_000),
        ("tp240", 10_074, 1_100),
        ("memcached", 11_211, 1_400),
        ("steam", 27_015, 1_200),
        ("dvr", 37_810, 700),
    ] {
        let name = format!("amplification-{name}");
        // 1.5 Gbit/s.
        let per_s = 1.5e9 / 8.0 / f64::from(frame_bytes);
        check(&name, |packet| Packet { src_port, ..packet }, UDP, frame_bytes, per_s);
    }
}

#[test]
fn floods_pass_their_thresholds() {
    let tcp = |name: &str, tcp_flags, per_s| {
        check(name, |packet| Packet { tcp_flags, ..packet }, TCP, 64, per_s);
    };
    tcp("syn-flood", SYN, 300_000.0);
    tcp("syn-ack-flood", SYN | ACK, 300_000.0);
    tcp("ack-flood", ACK, 500_000.0);
    tcp("rst-flood", RST, 300_000.0);
    tcp("tcp-nonsense", 0, 100_000.0);
    check("udp-flood", |packet| Packet { src_port: 5_000, ..packet }, UDP, 512, 400_000.0);
    check("icmp-flood", |packet| packet, ICMP, 102, 200_000.0);
    check(
        "fragments",
        |packet| Packet { fragment: Fragment::Later, ..packet },
        UDP,
        1_400,
        200_000.0,
    );
    check("tunnel-flood", |packet| packet, GRE, 554, 300_000.0);
    check("tunnel-flood", |packet| packet, 4, 554, 300_000.0);
    check("other-flood", |packet| packet, 253, 300, 300_000.0);
}

#[test]
fn what_is_more_than_a_link_takes_is_told_whatever_it_is() {
    // Of so many kinds that none of them is above its limit.
    let mut streams = Vec::new();
    for src in 1_000..1_100 {
        streams.push((Family::V4.packet((src, 1), TCP, 1_500), 6_000.0));
    }
    assert_eq!(raised_by(&streams, Family::V4, 1), BTreeSet::from(["total-bits".to_owned()]));
    let streams: Vec<_> = streams
        .iter()
        .map(|(packet, _)| (Packet { frame_bytes: 110, ..*packet }, 15_000.0))
        .collect();
    assert_eq!(raised_by(&streams, Family::V4, 1), BTreeSet::from(["total-frames".to_owned()]));
}

/// 8 Gbit/s to one address in equal parts over four uplinks of one router, of which none carries the limit of 5.
#[test]
fn an_attack_over_four_uplinks_is_told_within_a_second_at_a_fifth_lost() {
    let mut waits_s = Vec::new();
    for seed in 1..=20 {
        let mut analysis = analysis();
        // Each uplink is a line card, with numbers of its own.
        let card =
            |card| AgentOptions { sub_agent: card, if_index: card, ..AgentOptions::default() };
        let mut cards: Vec<Agent> = (1..=4)
            .map(|one| Agent::new(card(one), Vec::new(), seed * 10 + u64::from(one)))
            .collect();
        let (mut random, mut bytes) = (load::Random::seeded(seed), Vec::new());
        let attack: Vec<_> = (1_000..1_100)
            .map(|src| (Family::V4.packet((src, 1), TCP, 1_500), 2e9 / 8.0 / 1_500.0 / 100.0))
            .collect();
        let quarter = ordinary(Family::V4).into_iter().map(|(packet, per_s)| (packet, per_s / 4.0));
        let mut streams: Vec<_> = quarter.collect();
        cards.iter_mut().for_each(|card| card.set_packets(&streams));
        for tenth in 0..70 {
            if tenth == 50 {
                streams.extend(&attack);
                cards.iter_mut().for_each(|card| card.set_packets(&streams));
            }
            let now_ns = (tenth + 1) * SECOND_NS / 10;
            for card in &mut cards {
                while card.now() < Duration::from_nanos(now_ns) {
                    let at_ns = card.next_datagram(&mut bytes).as_nanos() as u64;
                    if random.unit() >= 0.2 {
                        analysis.datagram(&bytes, PEER, at_ns.max(1), &mut ());
                    }
                }
            }
            analysis.tick(Moment { clock_ns: now_ns, unix_ns: now_ns }, &mut ());
        }
        let raised: Vec<_> = analysis.events().after(0).collect();
        let names: BTreeSet<_> = raised.iter().map(|event| event.threshold.to_string()).collect();
        assert_eq!(names, BTreeSet::from(["total-bits".to_owned()]), "seed {seed}");
        waits_s.push(raised[0].time_unix_ns as f64 / 1e9 - 5.0);
    }
    assert!(waits_s.iter().all(|wait| (0.0..=1.0).contains(wait)), "{waits_s:?}");
}
