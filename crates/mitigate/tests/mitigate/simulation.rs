//! The engine and the control thread over many seeds: what must hold in every case.

use crate::engine::{attack, policy};
use mitigate::{Engine, Verdict};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use testkit::Random;

const SEEDS: u64 = 2_000;
const STEPS: u64 = 300;

#[test]
fn no_seed_breaks_a_limit_or_leaves_a_route() {
    for seed in 0..SEEDS {
        run(seed);
    }
}

fn run(seed: u64) {
    let policy = policy();
    let (limits, begin) = (policy.limits.clone(), Instant::now());
    let mut random = Random(seed);
    let mut engine = Engine::new(policy.clone());
    let mut announced = BTreeSet::new();
    let mut begun = Vec::new();
    let mut now = begin;

    for step in 0..STEPS {
        now += Duration::from_secs(random.below(30));
        // Some are outside our own networks, one is on the allow-list, some are too short.
        let target = match random.below(12) {
            0 => "198.51.100.7".to_owned(),
            1 => "192.0.2.53".to_owned(),
            2 => "192.0.2.0/24".to_owned(),
            3 => "2001:db8::1".to_owned(),
            host => format!("192.0.2.{host}"),
        };

        let mut decisions = match random.below(3) {
            0 => engine.raise(attack(&target), now).into_iter().collect(),
            1 => {
                engine.clear(&attack(&target).id, now);
                Vec::new()
            }
            _ => Vec::new(),
        };
        decisions.extend(engine.tick(now));

        for decision in decisions {
            let place = format!("seed {seed}, step {step}: {decision:?}");
            match (decision.verdict, decision.route) {
                (Verdict::Announce, Some((nlri, _))) => {
                    let target = nlri.destination();
                    assert!(
                        !policy.allow_list.iter().any(|kept| kept.overlaps(&target)),
                        "{place}"
                    );
                    assert!(policy.own_networks.iter().any(|own| own.covers(&target)), "{place}");
                    assert!(announced.insert(nlri), "{place}");
                    begun.push(now);
                }
                (Verdict::Withdraw, Some((nlri, _))) => assert!(announced.remove(&nlri), "{place}"),
                _ => {}
            }
        }

        let wanted: BTreeSet<_> = engine.wanted().map(|(nlri, _)| nlri.clone()).collect();
        assert_eq!(wanted, announced, "seed {seed}, step {step}");
        assert!(announced.len() <= limits.routes_max, "seed {seed}, step {step}");
        let recent = begun.iter().filter(|at| now.duration_since(**at) < Duration::from_secs(60));
        assert!(recent.count() <= limits.new_routes_per_minute_max, "seed {seed}, step {step}");
    }

    // Every route ends after its traffic is gone, and at the latest at its expiry.
    if seed.is_multiple_of(2) {
        for target in
            (2..12).map(|host| format!("192.0.2.{host}")).chain(["2001:db8::1".to_owned()])
        {
            engine.clear(&target, now);
        }
        engine.tick(now + limits.hold + limits.withdraw_after);
    } else {
        engine.stop();
    }
    assert_eq!(engine.wanted().count(), 0, "seed {seed}");
}
