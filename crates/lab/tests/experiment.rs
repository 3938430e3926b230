//! A small experiment in a network of its own: both transports, with and without loss.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::experiment::model::{Point, Schedule};
use lab::experiment::preset::Plan;
use lab::experiment::runner::{self, Results};
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn small() -> Plan {
    Plan {
        losses: vec![0.0, 0.2],
        transports: ["udp", "tcp-cubic", "tcp-cubic-bounded", "tcp-cubic-syslog"]
            .map(String::from)
            .to_vec(),
        schedules: vec![Schedule::ClosedLoop, Schedule::OpenLoop],
        runs: 2,
        duration: Duration::from_secs(4),
        parallel_losses: 2,
        ..Plan::quick()
    }
}

/// Runs it, or says why it cannot be run here.
fn run(plan: &Plan) -> Option<Results> {
    match runner::run(plan, &AtomicBool::new(false), &|_| {}) {
        Ok(results) => Some(results),
        Err(error) => {
            assert_ne!(std::env::var("REQUIRE_NETNS").as_deref(), Ok("1"), "{error}");
            // Straight to the descriptor: the test harness captures `eprintln!` of tests that pass.
            let mut err = std::io::stderr();
            writeln!(err, "skipped: no network of the lab's own here: {error}").unwrap();
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
    assert_eq!(results.notes, Vec::<String>::new());
    assert_eq!(results.points.len(), 2 * 4 * 2);
    for one in &results.points {
        assert_eq!(one.runs.len(), 2);
        for run in &one.runs {
            // A sender that is blocked, or refuses, makes few.
            assert!(run.sent > 0 && run.delivered <= run.sent, "{one:?}");
            assert!(run.delivered + run.censored_ns.len() as u64 <= run.sent, "{one:?}");
            assert_eq!((run.duplicates, run.kernel.retransmit_failures), (0, 0));
            assert!(run.age_ns.len() > 50);
        }
    }
    for schedule in [Schedule::ClosedLoop, Schedule::OpenLoop] {
        for transport in ["udp", "tcp-cubic", "tcp-cubic-bounded", "tcp-cubic-syslog"] {
            for run in &point(&results, transport, schedule, 0.0).runs {
                assert_eq!(run.delivered, run.sent, "{transport} {schedule:?}");
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
fn a_stop_ends_it_at_once() {
    let plan = Plan { losses: vec![0.0], duration: Duration::from_secs(600), ..small() };
    let began = std::time::Instant::now();
    let stop = AtomicBool::new(false);
    let results = std::thread::scope(|scope| {
        let running = scope.spawn(|| runner::run(&plan, &stop, &|_| {}));
        while !running.is_finished() && began.elapsed() < Duration::from_secs(2) {
            std::thread::yield_now();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        running.join().unwrap()
    });
    if let Ok(results) = results {
        assert!(results.interrupted);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
