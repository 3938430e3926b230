//! The engine's decisions, case by case.

use mitigate::{
    Action, Attack, Community, Decision, Engine, Flow, KeyError, Limits, Mode, Nlri, OnStop,
    Policy, Verdict,
};
use std::time::{Duration, Instant};

pub(crate) fn policy() -> Policy {
    Policy {
        name: "edge".to_owned(),
        thresholds: vec!["flood".to_owned()],
        action: Action::Blackhole {
            next_hop_v4: Some("10.9.0.1".parse().unwrap()),
            next_hop_v6: Some("2001:db8:9::1".parse().unwrap()),
            communities: vec![Community::BLACKHOLE],
        },
        mode: Mode::Announce,
        own_networks: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        allow_list: vec!["192.0.2.53/32".parse().unwrap()],
        limits: Limits {
            routes_max: 2,
            new_routes_per_minute_max: 3,
            shortest_v4_bits: 32,
            shortest_v6_bits: 128,
            withdraw_after: Duration::from_secs(10),
            hold: Duration::from_secs(60),
            expiry: Duration::from_secs(600),
        },
        on_stop: OnStop::Withdraw,
    }
}

pub(crate) fn attack(target: &str) -> Attack {
    Attack {
        id: target.to_owned(),
        threshold: "flood".to_owned(),
        flow: Flow::to(target.parse().unwrap()),
        value: 1e6,
        measured: "1 Mbit/s".to_owned(),
    }
}

fn raise(engine: &mut Engine, target: &str, now: Instant) -> Decision {
    engine.raise(attack(target), now).unwrap()
}

fn wanted(engine: &Engine) -> Vec<String> {
    engine.wanted().map(|(nlri, _)| nlri.to_string()).collect()
}

#[test]
fn what_is_not_ours_to_touch_is_refused_with_the_reason() {
    let mut engine = Engine::new(policy());
    let now = Instant::now();
    let mut refused = |target: &str, why: &str| {
        let decision = raise(&mut engine, target, now);
        assert_eq!(decision.verdict, Verdict::Refuse);
        assert!(decision.reason.contains(why), "{target}: {}", decision.reason);
    };

    refused("192.0.2.53", "192.0.2.53/32 is on the allow-list");
    refused("192.0.2.0/24", "192.0.2.53/32 is on the allow-list");
    refused("198.51.100.1", "is not in own_networks");
    refused("192.0.2.128/25", "is shorter than /32");
    refused("2001:db8::/64", "is shorter than /128");
    refused("2001:db9::1", "is not in own_networks");
    assert_eq!(engine.held(), 0);
}

#[test]
fn an_attack_of_another_threshold_is_not_heard() {
    let mut engine = Engine::new(policy());
    let other = Attack { threshold: "other".to_owned(), ..attack("192.0.2.1") };
    assert_eq!(engine.raise(other, Instant::now()), None);
    assert_eq!(engine.held(), 0);
}

#[test]
fn a_dry_run_decides_and_wants_nothing() {
    let mut engine = Engine::new(Policy { mode: Mode::DryRun, ..policy() });
    let decision = raise(&mut engine, "192.0.2.1", Instant::now());
    assert_eq!(decision.verdict, Verdict::Announce);
    assert_eq!((engine.held(), wanted(&engine)), (1, vec![]));
}

#[test]
fn a_route_goes_when_the_traffic_is_gone_and_not_before_it_was_held() {
    let mut engine = Engine::new(policy());
    let begin = Instant::now();
    let at = |s| begin + Duration::from_secs(s);
    let begun = raise(&mut engine, "192.0.2.1", begin);
    assert_eq!(begun.reason, "flood is at 1 Mbit/s");

    engine.clear("192.0.2.1", at(5));
    assert_eq!(engine.tick(at(59)), []);
    let gone = engine.tick(at(60));
    assert_eq!((gone.len(), gone[0].verdict), (1, Verdict::Withdraw));
    assert_eq!(gone[0].reason, "the traffic is gone");
    assert_eq!(gone[0].attack, begun.attack, "the same words as of the announcement");
    assert!(wanted(&engine).is_empty());
}

#[test]
fn traffic_that_comes_back_keeps_the_route() {
    let mut engine = Engine::new(policy());
    let begin = Instant::now();
    let at = |s| begin + Duration::from_secs(s);
    raise(&mut engine, "192.0.2.1", begin);
    engine.clear("192.0.2.1", at(100));
    assert_eq!(engine.raise(attack("192.0.2.1"), at(105)), None);
    assert_eq!(engine.tick(at(200)), []);

    let expired = engine.tick(at(600));
    assert_eq!(expired[0].reason, "it has expired");
}

#[test]
fn attacks_wait_for_room() {
    let mut engine = Engine::new(policy());
    let begin = Instant::now();
    let at = |s| begin + Duration::from_secs(s);
    raise(&mut engine, "192.0.2.1", begin);
    raise(&mut engine, "192.0.2.2", begin);
    let third = raise(&mut engine, "192.0.2.3", begin);
    assert_eq!(third.verdict, Verdict::Wait);
    assert!(third.reason.contains("routes_max = 2"));

    engine.clear("192.0.2.1", begin);
    let decisions = engine.tick(at(61));
    let verdicts: Vec<_> = decisions.iter().map(|decision| decision.verdict).collect();
    assert_eq!(verdicts, [Verdict::Withdraw, Verdict::Announce]);
    assert_eq!(wanted(&engine), ["192.0.2.2/32", "192.0.2.3/32"]);
}

#[test]
fn routes_begin_no_faster_than_the_limit() {
    let mut policy = policy();
    policy.limits.routes_max = 100;
    let mut engine = Engine::new(policy);
    let begin = Instant::now();
    for host in 1..=5 {
        raise(&mut engine, &format!("192.0.2.{host}"), begin);
    }
    assert_eq!(engine.held(), 3);
    assert_eq!(engine.tick(begin + Duration::from_secs(59)), []);
    assert_eq!(engine.tick(begin + Duration::from_secs(60)).len(), 2);
}

#[test]
fn at_the_end_routes_go_or_stay_as_the_policy_says() {
    for (on_stop, left) in [(OnStop::Withdraw, 0), (OnStop::Keep, 1)] {
        let mut engine = Engine::new(Policy { on_stop, ..policy() });
        raise(&mut engine, "192.0.2.1", Instant::now());
        assert_eq!(engine.stop().len(), 1 - left);
        assert_eq!(wanted(&engine).len(), left);
    }
}

#[test]
fn flowspec_of_fragments_names_no_ports() {
    let action = Action::Flowspec { rate_limit_bytes_per_sec: 0.0 };
    let mut engine = Engine::new(Policy { action, ..policy() });
    let mut attack = attack("192.0.2.1");
    (attack.flow.is_fragment, attack.flow.source_port) = (true, Some(53));
    engine.raise(attack, Instant::now());
    let (nlri, _) = engine.wanted().next().unwrap();
    let Nlri::Flowspec(flow) = nlri else { panic!("{nlri}") };
    assert_eq!((flow.is_fragment, flow.source_port), (true, None));
}

#[test]
fn keys_of_a_flow_become_what_is_matched() {
    let keys = [("dst", "192.0.2.1"), ("protocol", "17"), ("src_port", "53"), ("input", "7")];
    let expected = Flow {
        protocol: Some(17),
        source_port: Some(53),
        ..Flow::to("192.0.2.1/32".parse().unwrap())
    };
    assert_eq!(Flow::of_keys(keys), Ok(expected));

    let prefix = Flow::of_keys([("dst", "2001:db8::/64"), ("fragment", "1"), ("tcp_flags", "0")]);
    let fragments = Flow { is_fragment: true, ..Flow::to("2001:db8::/64".parse().unwrap()) };
    assert_eq!(prefix, Ok(fragments));
    assert_eq!(Flow::of_keys([("src", "192.0.2.1")]), Err(KeyError::NoTarget));
    let wrong = KeyError::Value("protocol".to_owned(), "udp".to_owned());
    assert_eq!(Flow::of_keys([("dst", "192.0.2.1"), ("protocol", "udp")]), Err(wrong));
}

#[test]
fn a_route_that_expires_while_its_attack_goes_on_comes_again_after_a_rest() {
    let mut engine = Engine::new(policy());
    let begin = Instant::now();
    let at = |secs| begin + Duration::from_secs(secs);
    raise(&mut engine, "192.0.2.1", begin);
    raise(&mut engine, "192.0.2.2", begin);
    let expired = engine.tick(at(600));
    assert_eq!(expired.len(), 2);
    assert_eq!(engine.raise(attack("192.0.2.1"), at(601)), None, "it rests");
    engine.clear("192.0.2.2", at(610));

    assert_eq!(engine.tick(at(659)), []);
    let again = engine.tick(at(660));
    assert_eq!((again.len(), again[0].verdict), (1, Verdict::Announce));
    assert_eq!(wanted(&engine), ["192.0.2.1/32"]);
    engine.clear("192.0.2.1", at(661));
    engine.tick(at(800));
    assert_eq!(engine.held(), 0);
}

#[test]
fn what_was_missed_is_made_up_for() {
    let mut engine = Engine::new(policy());
    let begin = Instant::now();
    raise(&mut engine, "192.0.2.1", begin);
    let decisions = engine.set(&[attack("192.0.2.2")], begin);
    assert_eq!(decisions.len(), 1);
    engine.tick(begin + Duration::from_secs(60));
    assert_eq!(wanted(&engine), ["192.0.2.2/32"], "the first one's end was missed");
}

#[test]
fn a_route_is_read_as_it_is_shown() {
    let whole = Flow {
        source: Some("198.51.100.0/24".parse().unwrap()),
        protocol: Some(6),
        source_port: Some(1_024),
        destination_port: Some(80),
        tcp_flags: Some(0x12),
        length_min_bytes: Some(1_000),
        is_fragment: true,
        ..Flow::to("192.0.2.0/24".parse().unwrap())
    };
    let all = [
        Nlri::Unicast("2001:db8::1".parse().unwrap()),
        Nlri::Flowspec(Flow::to("192.0.2.1".parse().unwrap())),
        Nlri::Flowspec(whole),
    ];
    for nlri in all {
        assert_eq!(nlri.to_string().parse::<Nlri>().as_ref(), Ok(&nlri));
    }
    for wrong in
        ["", "flow to", "flow to 192.0.2.1/32 protocol", "flow to 192.0.2.1/32 tcp-flags 2"]
    {
        assert!(wrong.parse::<Nlri>().is_err(), "{wrong}");
    }
}

/// Of more attacks on one route than are recorded by name, nobody knows when the last one is over: the route stays until all that go
/// on are named.
#[test]
fn a_route_stays_while_any_of_many_attacks_goes_on() {
    for count in [1_001, 100_001] {
        let mut engine = Engine::new(policy());
        let now = Instant::now();
        let one = |number: u32| Attack { id: number.to_string(), ..attack("192.0.2.1/32") };
        for number in 0..count {
            engine.raise(one(number), now);
        }
        (0..count - 1).for_each(|number| engine.clear(&number.to_string(), now));
        let later = now + Duration::from_secs(300);
        assert_eq!(engine.tick(later), [], "{count}");
        assert_eq!(wanted(&engine), ["192.0.2.1/32"]);

        engine.set(&[one(count - 1)], later);
        engine.clear(&(count - 1).to_string(), later);
        let gone = later + Duration::from_secs(11);
        let verdicts: Vec<_> = engine.tick(gone).iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts, [Verdict::Withdraw], "{count}");
    }
}
