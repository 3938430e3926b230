//! A small measurement in a network of its own: what an observer sees with and without loss.

use lab::experiment::model::TransportName;
use lab::report::TelemetryReport;
use lab::statistics::Bootstrap;
use lab::telemetry::{self, Plan, Results, Telemetry};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use testkit::skip;

fn small() -> Plan {
    Plan {
        losses: vec![0.0, 0.3],
        transports: ["udp", "tcp-cubic"].map(String::from).to_vec(),
        runs: 2,
        duration: Duration::from_secs(4),
        // A busy machine may stop everything for half a second.
        window: Duration::from_secs(2),
        ..Plan::default()
    }
}

/// Runs it, or says why it cannot be run here.
fn run(plan: &Plan, stop: &AtomicBool) -> Option<Results> {
    match telemetry::run(plan, stop, &|_| {}) {
        Ok(results) => Some(results),
        Err(error) => {
            skip(&format!("no network of the lab's own here: {error}"), &["REQUIRE_NETNS"]);
            None
        }
    }
}

#[test]
fn without_loss_all_is_on_screen_and_with_loss_udp_loses_events_but_not_the_counter() {
    let Some(results) = run(&small(), &AtomicBool::new(false)) else { return };
    assert!(results.notes.iter().all(|note| note.contains("busy")), "{:?}", results.notes);
    assert_eq!(results.points.len(), 4);
    for point in &results.points {
        assert_eq!(point.runs.len(), 2);
        for run in &point.runs {
            assert_eq!((run.events, run.steps), (400, 4_000));
            assert!(run.events_on_screen <= run.events_seen && run.received <= run.sent, "{run:?}");
            assert_eq!((run.failure.as_str(), run.ages_ns.len()), ("", 401));
        }
        let figures = point.figures(Bootstrap { resamples: 50, seed: 1 });
        let value = |estimate: Option<lab::statistics::Estimate>| estimate.unwrap().value;
        let (events, steps) = (value(figures.events_on_screen), value(figures.steps_on_screen));
        match (point.transport.as_str(), point.configured_loss > 0.0) {
            (_, false) => assert_eq!((events, steps), (1.0, 1.0), "{point:?}"),
            ("udp", true) => {
                // 0.3 of 0.7 or so of the messages arrive, and the next one brings the counter.
                assert!((0.55..0.85).contains(&events), "{events}");
                assert!(steps > 0.98, "{steps}");
                let lost = point.measured_loss.unwrap().share().unwrap();
                assert!((0.2..0.4).contains(&lost), "{lost}");
            }
            (_, true) => assert!(value(figures.age_max_ns) > 100e6, "TCP met no loss"),
        }
    }
}

#[test]
fn a_measurement_that_is_stopped_ends_at_once() {
    let plan = Plan { duration: Duration::from_secs(600), losses: vec![0.0], ..small() };
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let results = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&plan, &stop));
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        running.join().unwrap()
    });
    assert!(began.elapsed() < Duration::from_secs(20));
    if let Some(results) = results {
        assert!(results.interrupted && results.points.is_empty());
    }
}

#[test]
fn plans_that_mean_nothing_are_refused() {
    let refused = |plan: Plan| {
        telemetry::run(&plan, &AtomicBool::new(false), &|_| {}).unwrap_err().to_string()
    };
    assert_eq!(
        refused(Plan { losses: vec![1.5], ..small() }),
        "a loss of 1.5 is not between 0 and 1"
    );
    assert_eq!(
        refused(Plan { transports: vec!["pigeon".into()], ..small() }),
        "there is no transport pigeon"
    );
}

#[test]
fn a_measurement_is_reported_whole() {
    let run = |on_screen: u64, ages_ns: &[u64]| telemetry::Run {
        events: 100,
        events_on_screen: on_screen,
        events_seen: on_screen + 5,
        steps: 1_000,
        steps_on_screen: 990,
        ages_ns: ages_ns.to_vec(),
        ..telemetry::Run::default()
    };
    let point = |name: &str, configured_loss: f64| telemetry::Point {
        transport: TransportName::new(name),
        configured_loss,
        measured_loss: None,
        runs: vec![run(80, &[1_000_000, 30_000_000]), run(90, &[2_000_000, 1_500_000_000])],
    };
    let measured = Telemetry {
        settings: telemetry::Settings {
            injector: "a <test>".to_owned(),
            ..telemetry::Settings::of(&small(), None)
        },
        points: vec![point("udp", 0.0), point("udp", 0.3), point("tcp-cubic", 0.3)],
        ..Telemetry::default()
    };
    let report = TelemetryReport::new(&measured, Bootstrap { resamples: 50, seed: 1 });
    let folder = std::env::temp_dir().join(format!("weir-lab-telemetry-{}", std::process::id()));
    assert_eq!(report.write(&folder).unwrap().len(), 4 + 3);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(json["figures"][0]["events_on_screen"]["value"], 0.85);
    assert_eq!(json["points"][2]["transport"], "tcp-cubic");
    assert_eq!(read("points.csv").lines().count(), 1 + 3);
    assert_eq!(read("runs.csv").lines().count(), 1 + 3 * 2);
    let page = read("report.html");
    assert!(page.contains("a &lt;test&gt;") && page.matches("<svg").count() == 3);
    let text = report.terminal();
    assert!(
        text.starts_with("On screen within 2 s at 30 % loss: udp: 85 % of events, 99 % of"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
    std::fs::remove_dir_all(&folder).unwrap();
}
