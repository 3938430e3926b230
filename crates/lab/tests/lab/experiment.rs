//! A small experiment in a separate network: both transports, with and without loss.

use lab::experiment::flow::{Flow, FlowPlan};
use lab::experiment::model::{Point, Schedule};
use lab::experiment::preset::Plan;
use lab::experiment::runner::{self, Progress, Results};
use lab::network::{self, LossAt, Network, PathLoss, Span};
use lab::transport;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::skip;

fn small() -> Plan {
    Plan {
        losses: vec![0.0, 0.2],
        transports: ["udp", "tcp-cubic", "tcp-cubic-bounded", "tcp-cubic-syslog"]
            .map(String::from)
            .to_vec(),
        schedules: vec![Schedule::ClosedLoop, Schedule::OpenLoop],
        runs: 2,
        duration: Duration::from_secs(4),
        ..Plan::quick()
    }
}

/// Runs the plan; `None`, with a message, if this is not possible here.
fn run(plan: &Plan) -> Option<Results> {
    match runner::run(plan, &AtomicBool::new(false), &Progress::default()) {
        Ok(results) => Some(results),
        Err(error) => {
            skip(&format!("no network of the lab's own here: {error}"), &["REQUIRE_NETNS"]);
            None
        }
    }
}

fn point<'r>(results: &'r Results, transport: &str, schedule: Schedule, loss: f64) -> &'r Point {
    let is_it = |point: &&Point| {
        point.transport.as_str() == transport
            && point.schedule == schedule
            && point.configured_loss == loss
    };
    results.points.iter().find(is_it).unwrap_or_else(|| panic!("no {transport} at {loss}"))
}

#[test]
fn without_loss_everything_arrives_and_with_loss_udp_misses_its_share() {
    let Some(results) = run(&small()) else { return };
    // Other tests keep the host busy.
    assert!(
        results.notes.iter().all(|note| note.starts_with("The host was busy")),
        "{:?}",
        results.notes
    );
    assert_eq!(results.points.len(), 2 * 4 * 2);
    for one in &results.points {
        assert_eq!(one.runs.len(), 2);
        for run in &one.runs {
            // A sender that is blocked, or refuses messages, makes fewer.
            assert!(
                run.sent > 0 && run.delivered <= run.sent && run.sent <= run.offered,
                "{one:?}"
            );
            assert!(run.delivered + run.censored_ns.len() as u64 <= run.offered, "{one:?}");
            assert_eq!((run.duration_ns, run.offered), (4_000_000_000, 400));
            assert_eq!(run.failure, "");
            assert_eq!((run.duplicates, run.kernel.retransmit_failures), (0, 0));
            assert!(run.age_ns.len() == 401);
        }
    }
    for schedule in [Schedule::ClosedLoop, Schedule::OpenLoop] {
        for transport in ["udp", "tcp-cubic", "tcp-cubic-bounded", "tcp-cubic-syslog"] {
            for run in &point(&results, transport, schedule, 0.0).runs {
                // Almost all: at the end, a host that is busy for seconds may delay some.
                assert!(run.delivered * 100 >= run.sent * 95, "{transport} {schedule:?}");
            }
        }
        for run in &point(&results, "udp", schedule, 0.2).runs {
            let share = run.delivered as f64 / run.sent as f64;
            assert!((0.65..0.92).contains(&share), "{share}");
            let probe = run.measured_loss.unwrap();
            let lost = probe.share().unwrap();
            assert!(probe.packets > 300 && (0.1..0.3).contains(&lost), "{probe:?}");
        }
        for run in &point(&results, "tcp-cubic", schedule, 0.2).runs {
            let tcp = run.tcp.as_ref().unwrap();
            assert!(
                tcp.retransmits > 0 && tcp.congestion_control == "cubic" && tcp.samples.len() > 5
            );
        }
    }
}

#[test]
fn weirs_own_link_delivers_all_where_a_fifth_is_lost() {
    let plan = Plan {
        losses: vec![0.0, 0.2],
        transports: vec!["weir-hop".to_owned()],
        schedules: vec![Schedule::OpenLoop],
        span: Span { round_trip: Duration::from_millis(20), ..Span::default() },
        ..small()
    };
    let Some(results) = run(&plan) else { return };
    for loss in [0.0, 0.2] {
        for run in &point(&results, "weir-hop", Schedule::OpenLoop, loss).runs {
            assert_eq!((run.failure.as_str(), run.duplicates), ("", 0));
            assert_eq!((run.delivered, run.sent), (400, 400), "{loss}");
            assert!(run.delays_ns[0] >= 10_000_000, "{}", run.delays_ns[0]);
            let link = run.link.unwrap();
            assert!(link.is_agreed(), "{link:?}");
            assert_eq!((link.delivered, link.accepted), (400, 400), "{link:?}");
            assert_eq!(link.packets, 400 + link.repairs);
            assert!(link.report_bytes <= link.sent_bytes, "{link:?}");
        }
    }
}

/// The loss is high enough to block TCP for a long time.
#[test]
fn a_stop_ends_it_at_once_and_keeps_what_was_measured() {
    let plan = Plan { losses: vec![0.4], duration: Duration::from_secs(600), ..small() };
    let (stop, progress) = (AtomicBool::new(false), Progress::default());
    let (results, took) = std::thread::scope(|scope| {
        let running = scope.spawn(|| runner::run(&plan, &stop, &progress));
        let has_run = |seconds| progress.now().is_some_and(|now| now.share() > seconds / 602.0);
        while !running.is_finished() && !has_run(4.0) {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        let stopped = Instant::now();
        (running.join().unwrap(), stopped.elapsed())
    });
    let Ok(results) = results else { return };
    assert!(results.interrupted && took < Duration::from_secs(4), "{took:?}");
    assert!(results.notes.iter().any(|note| note.contains("ended after")), "{:?}", results.notes);
    assert_eq!(results.points.len(), 8);
    for run in results.points.iter().flat_map(|point| &point.runs) {
        let seconds = run.duration_ns as f64 / 1e9;
        assert!((2.0..60.0).contains(&seconds), "{seconds}");
        assert!(run.offered.abs_diff((seconds * 100.0) as u64) < 2, "{seconds} {}", run.offered);
    }
}

/// As on a kernel that cannot drop packets at links: messages and acknowledgments are lost.
#[test]
fn sockets_that_drop_by_themselves_lose_as_much() {
    let plan = network::Plan { loss_at: Some(LossAt::Sockets), ..network::Plan::default() };
    let Ok(mut network) = Network::build(&plan) else { return };
    let transports = ["udp", "tcp-cubic"].map(|name| transport::named(name).unwrap());
    let flows = transports.each_ref().map(|one| Flow::connect(&**one, &network).unwrap());
    network.set_loss(PathLoss::per_path(0.2).unwrap()).unwrap();
    let plan = FlowPlan {
        message_bytes: 100,
        interval: Duration::from_millis(5),
        duration: Duration::from_secs(4),
        schedule: Schedule::OpenLoop,
        age_interval: Duration::from_millis(10),
        begin: Instant::now() + Duration::from_millis(100),
        seed: 1,
    };
    let stop = AtomicBool::new(false);
    let [udp, tcp] = std::thread::scope(|scope| {
        let running = flows.map(|flow| {
            flow.prepare(&network).unwrap();
            scope.spawn(|| flow.run("x", plan, &stop).unwrap())
        });
        running.map(|one| one.join().unwrap())
    });
    let share = udp.delivered as f64 / udp.sent as f64;
    assert!(udp.sent > 700 && (0.7..0.9).contains(&share), "{} {share}", udp.sent);
    assert_eq!(tcp.delivered + tcp.censored_ns.len() as u64, 800);
    let summary = tcp.tcp.unwrap();
    assert!(summary.retransmits > 0, "{summary:?}");
}

#[test]
fn a_transport_that_nobody_knows_is_an_error() {
    let plan =
        Plan { transports: vec!["nosuch".to_owned()], duration: Duration::from_secs(1), ..small() };
    match runner::run(&plan, &AtomicBool::new(false), &Progress::default()) {
        Err(runner::Error::UnknownTransport(name)) => assert_eq!(name, "nosuch"),
        Err(runner::Error::Network(_)) => {}
        other => panic!("{other:?}"),
    }
}
