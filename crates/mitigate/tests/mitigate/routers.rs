//! Routes in a real router, through real speakers: GoBGP 3 and 4, and ExaBGP.

use crate::engine::{attack, policy};
use crate::rig::{Program, Rig, rig};
use mitigate::{Action, Attack, Entry, Event, Flow, Limits, OnStop, Policy, Verdict};
use std::time::{Duration, Instant};
use testkit::{say, wait_for};

/// How soon after the event the router must have the route.
const ROUTE_LIMIT: Duration = Duration::from_secs(2);

/// A policy that responds at once and forgets at once.
fn quick() -> Policy {
    let limits = Limits { withdraw_after: Duration::ZERO, hold: Duration::ZERO, ..policy().limits };
    Policy { limits: Limits { new_routes_per_minute_max: 100, ..limits }, ..policy() }
}

/// Waits until the router's routes contain, or do not contain, all of these texts. Returns how long it
/// took.
fn wait_for_routes(rig: &Rig, texts: &[&str], present: Present) -> Duration {
    let begin = Instant::now();
    wait_for(
        || format!("{present:?} {texts:?}; the router has {}\n{}", rig.routes(), rig.log()),
        || {
            let routes = rig.routes();
            let found = texts.iter().filter(|text| routes.contains(**text)).count();
            let wanted = if present == Present::All { texts.len() } else { 0 };
            (found == wanted).then_some(())
        },
    );
    begin.elapsed()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Present {
    All,
    None,
}

fn blackhole_comes_and_goes(program: Program) {
    let Some(mut rig) = rig(program) else { return };
    let control = rig.control(quick());
    let routes = ["192.0.2.1/32", "2001:db8::1/128"];

    for route in routes {
        let target = route.split('/').next().unwrap();
        control.tell(Event::Raised(attack(target))).unwrap();
        let took = wait_for_routes(&rig, &[route, "(65535,666)"], Present::All);
        say(&format!("{program:?}: the router has {route} {took:?} after the event"));
        assert!(took <= ROUTE_LIMIT, "{took:?}");
    }

    // Never anything on the allow-list, nor more than the limit of two.
    control.tell(Event::Raised(attack("192.0.2.53"))).unwrap();
    control.tell(Event::Raised(attack("192.0.2.3"))).unwrap();
    let verdicts = [Verdict::Refuse, Verdict::Wait];
    wait_for("both decisions", || {
        let entries = rig.entries.lock().unwrap();
        let has = |verdict| {
            let is = |entry: &Entry| matches!(entry, Entry::Decided { decision, .. } if decision.verdict == verdict);
            entries.iter().any(is)
        };
        verdicts.into_iter().all(has).then_some(())
    });

    // The end of an attack makes room.
    control.tell(Event::Cleared("192.0.2.1".to_owned())).unwrap();
    wait_for_routes(&rig, &["192.0.2.1/32"], Present::None);
    wait_for_routes(&rig, &["192.0.2.3/32", "2001:db8::1/128"], Present::All);
    assert!(!rig.routes().contains("192.0.2.53"));

    // The router loses its routes.
    rig.stop_router();
    rig.start_router();
    wait_for_routes(&rig, &["192.0.2.3/32", "2001:db8::1/128"], Present::All);

    // So does the speaker. A route cleared in the meantime stays away.
    rig.stop_speaker();
    wait_for_routes(&rig, &["192.0.2.3/32", "2001:db8::1/128"], Present::None);
    control.tell(Event::Cleared("192.0.2.3".to_owned())).unwrap();
    rig.start_speaker();
    wait_for_routes(&rig, &["2001:db8::1/128"], Present::All);
    assert!(!rig.routes().contains("192.0.2.3"));

    assert!(control.stop(Instant::now() + Duration::from_secs(5), || ()));
    wait_for_routes(&rig, &["2001:db8::1/128"], Present::None);
}

fn flowspec_comes_and_goes(program: Program) {
    let Some(rig) = rig(program) else { return };
    let action = Action::Flowspec { rate_limit_bytes_per_sec: 0.0 };
    let control = rig.control(Policy { action, ..quick() });

    let dns = |target: &str| {
        let to = Flow::to(target.parse().unwrap());
        let flow = Flow { protocol: Some(17), source_port: Some(53), ..to };
        Event::Raised(Attack { flow, ..attack(target) })
    };
    let v4 = ["192.0.2.1/32", "proto 17", "sport 53", "generic, 0x80060000, 0x0"];
    let v6 = ["2001:db8::1/128", "next header 17"];
    for (target, texts) in [("192.0.2.1", &v4[..]), ("2001:db8::1", &v6[..])] {
        control.tell(dns(target)).unwrap();
        let took = wait_for_routes(&rig, texts, Present::All);
        say(&format!("{program:?}: the router has the flow to {target} {took:?} after the event"));
        assert!(took <= ROUTE_LIMIT, "{took:?}");
    }

    for target in ["192.0.2.1", "2001:db8::1"] {
        control.tell(Event::Cleared(target.to_owned())).unwrap();
    }
    wait_for_routes(&rig, &["192.0.2.1/32", "2001:db8::1/128"], Present::None);

    // Everything that can be matched.
    let whole = Flow {
        source: Some("198.51.100.0/24".parse().unwrap()),
        protocol: Some(6),
        source_port: Some(1_024),
        destination_port: Some(80),
        tcp_flags: Some(2),
        length_min_bytes: Some(1_000),
        ..Flow::to("192.0.2.2".parse().unwrap())
    };
    let fragments = Flow { is_fragment: true, ..Flow::to("192.0.2.3".parse().unwrap()) };
    control.tell(Event::Raised(Attack { flow: whole, ..attack("192.0.2.2") })).unwrap();
    control.tell(Event::Raised(Attack { flow: fragments, ..attack("192.0.2.3") })).unwrap();
    let texts = [
        "198.51.100.0/24",
        "proto 6",
        "sport 1024",
        "dport 80",
        "tcp flags",
        "length",
        "is_fragment",
    ];
    wait_for_routes(&rig, &texts, Present::All);

    assert!(control.stop(Instant::now() + Duration::from_secs(5), || ()));
    wait_for_routes(&rig, &["192.0.2.2/32", "192.0.2.3/32"], Present::None);
}

#[test]
fn routes_stay_if_they_are_to_be_kept() {
    let Some(rig) = rig(Program::GoBgp3) else { return };
    let control = rig.control(Policy { on_stop: OnStop::Keep, ..quick() });
    control.tell(Event::Raised(attack("192.0.2.1"))).unwrap();
    wait_for_routes(&rig, &["192.0.2.1/32"], Present::All);
    assert!(control.stop(Instant::now() + Duration::from_secs(5), || ()));

    assert!(rig.routes().contains("192.0.2.1/32"));
    assert!(rig.log().contains("on_stop is keep"), "{}", rig.log());
}

#[test]
fn gobgp_3_blackholes() {
    blackhole_comes_and_goes(Program::GoBgp3);
}

#[test]
fn gobgp_4_blackholes() {
    blackhole_comes_and_goes(Program::GoBgp4);
}

#[test]
fn exabgp_blackholes() {
    blackhole_comes_and_goes(Program::ExaBgp);
}

#[test]
fn gobgp_3_flowspec() {
    flowspec_comes_and_goes(Program::GoBgp3);
}

#[test]
fn gobgp_4_flowspec() {
    flowspec_comes_and_goes(Program::GoBgp4);
}

#[test]
fn exabgp_flowspec() {
    flowspec_comes_and_goes(Program::ExaBgp);
}
