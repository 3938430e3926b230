//! Sweeps over the test's own relay, which forwards and drops a known number of datagrams.

use lab::relay_sweep::{self, Combination, Curve, Plan, Quantiles, Relay, Sample, Sweep};
use lab::report::RelayReport;
use load::Address;
use load::join::{Lost, RelayLedger};
use load::search::{Knee, Rates};
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

type Failed = Box<dyn Error + Send + Sync>;

/// Forwards every datagram to all targets, except every `keeps_each`-th.
struct Forwarder {
    keeps_each: u64,
    running: Option<(JoinHandle<()>, Arc<AtomicBool>, Arc<AtomicU64>)>,
}

impl Relay for Forwarder {
    fn receivers(&self, targets: usize) -> Vec<Address> {
        vec![Address::Udp("127.0.0.1:0".parse().unwrap()); targets]
    }

    fn start(&mut self, targets: &[Address]) -> Result<Address, Failed> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let address = socket.local_addr()?;
        let to_socket = |target: &Address| match target {
            Address::Udp(addr) => *addr,
            Address::Unix(_) => panic!("no unix socket was asked for"),
        };
        let targets: Vec<SocketAddr> = targets.iter().map(to_socket).collect();
        let (ended, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count, keeps_each) =
            (Arc::clone(&ended), Arc::clone(&received), self.keeps_each);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2_048];
            while !stop.load(Ordering::Relaxed) {
                let Ok(len) = socket.recv(&mut buffer) else { continue };
                if !(count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(keeps_each) {
                    targets.iter().for_each(|to| drop(socket.send_to(&buffer[..len], to)));
                }
            }
        });
        self.running = Some((thread, ended, received));
        Ok(Address::Udp(address))
    }

    fn stop(&mut self) -> Result<Option<RelayLedger>, Failed> {
        let (thread, ended, received) = self.running.take().ok_or("it does not run")?;
        ended.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let received = received.load(Ordering::Relaxed);
        Ok(Some(RelayLedger { received, balanced: true, ..RelayLedger::default() }))
    }
}

fn plan(rates: Rates) -> Plan {
    Plan {
        combinations: Combination::one_at_a_time(&[64, 200], &[1, 2], &[1, 3]),
        rates,
        duration: Duration::from_millis(200),
        tolerance: 0.01,
    }
}

fn run(plan: &Plan, keeps_each: u64) -> Vec<Curve> {
    let mut relay = Forwarder { keeps_each, running: None };
    relay_sweep::run(plan, &mut relay, &AtomicBool::new(false), &|_| {}).unwrap()
}

#[test]
fn a_relay_that_forwards_everything_has_no_knee() {
    let curves = run(&plan(Rates::List(vec![200, 400])), u64::MAX);
    let combinations: Vec<_> = curves
        .iter()
        .map(|c| (c.combination.size_bytes, c.combination.targets, c.combination.flows))
        .collect();
    assert_eq!(combinations, [(64, 1, 1), (200, 1, 1), (64, 2, 1), (64, 1, 3)]);
    for curve in &curves {
        // A busy machine may prevent the sender from reaching its rate; still nothing is lost.
        assert_eq!(curve.knee.lossy_per_sec(), None, "{curve:?}");
        for sample in &curve.samples {
            assert_eq!(sample.expected, sample.sent * curve.combination.targets as u64);
            assert_eq!((sample.received, sample.missing), (sample.expected, 0), "{sample:?}");
            let ledger = sample.ledger.as_ref().unwrap();
            assert_eq!(ledger.received, sample.sent);
            let latency = sample.latency.unwrap();
            assert!(latency.p50_ns > 0 && latency.p50_ns <= latency.max_ns);
        }
    }
}

#[test]
fn a_relay_that_loses_a_tenth_is_found_out_twice() {
    let plan = Plan {
        combinations: Combination::all(&[200], &[2], &[1]),
        ..plan(Rates::Search { first: 1_000, highest: 4_000 })
    };
    let curves = run(&plan, 10);
    let samples = &curves[0].samples;
    assert!(matches!(curves[0].knee, Knee::Below { .. }), "{:?}", curves[0].knee);
    assert!(samples.iter().all(|sample| sample.offered_per_sec <= 1_000));
    let first: Vec<_> = samples.iter().filter(|sample| sample.offered_per_sec == 1_000).collect();
    assert_eq!(first.len(), 2, "a rate that lost is measured again");
    for sample in first {
        assert!((0.05..0.15).contains(&sample.missing_share), "{sample:?}");
        assert_eq!(sample.missing, sample.expected - sample.received);
    }
}

#[test]
fn a_sweep_is_reported_whole() {
    let sample = |offered_per_sec: u64, missing: u64| Sample {
        offered_per_sec,
        sent_per_sec: offered_per_sec as f64,
        expected: offered_per_sec,
        missing,
        missing_share: missing as f64 / offered_per_sec as f64,
        latency: Some(Quantiles {
            p50_ns: 20_000,
            p99_ns: 90_000,
            p99_9_ns: 1_000_000,
            max_ns: 3_000_000,
        }),
        ledger: Some(RelayLedger {
            balanced: true,
            lost: vec![Lost { at: "socket: socket_buffer".to_owned(), copies: missing }],
            ..RelayLedger::default()
        }),
        ..Sample::default()
    };
    let curve = |combination| Curve {
        combination,
        knee: Knee::Between { lossless_per_sec: 400, lossy_per_sec: 800 },
        samples: vec![sample(400, 0), sample(800, 8)],
    };
    let combinations = plan(Rates::List(Vec::new())).combinations;
    let curves = combinations.into_iter().map(curve).collect();
    let sweep =
        Sweep { relay: "a <relay>".to_owned(), duration_s: 0.2, curves, ..Sweep::default() };
    let report = RelayReport::new(&sweep);
    let folder = std::env::temp_dir().join(format!("weir-lab-relay-{}", std::process::id()));
    let written = report.write(&folder).unwrap();
    let names: Vec<&str> =
        written.iter().map(|path| path.strip_prefix(&folder).unwrap().to_str().unwrap()).collect();
    for name in [
        "report.html",
        "report.json",
        "samples.csv",
        "knees.csv",
        "charts/loss.svg",
        "charts/latency.svg",
        "charts/places.svg",
    ] {
        assert!(names.contains(&name), "{name} is missing: {names:?}");
    }
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(json["curves"][0]["samples"].as_array().unwrap().len(), 2);
    assert_eq!(json["curves"][0]["knee"]["is"], "between");
    assert_eq!(read("samples.csv").lines().count(), 1 + 4 * 2);
    assert_eq!(read("knees.csv").lines().count(), 1 + 4);
    let page = read("report.html");
    assert!(page.contains("a &lt;relay&gt;") && !page.contains("<relay>"));
    assert!(!page.contains("<script") && page.matches("<svg").count() == 3);
    let text = report.terminal(None, text::Ink::Plain);
    assert!(text.contains("64 bytes, 1 target, 1 flow: between 400/s and 800/s"), "{text}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_sweep_that_is_stopped_has_measured_nothing() {
    let mut relay = Forwarder { keeps_each: u64::MAX, running: None };
    let plan = plan(Rates::List(vec![500]));
    let curves = relay_sweep::run(&plan, &mut relay, &AtomicBool::new(true), &|_| {}).unwrap();
    assert!(curves.is_empty());
}

#[test]
fn a_rate_at_which_a_sweep_was_stopped_says_nothing() {
    let mut relay = Forwarder { keeps_each: u64::MAX, running: None };
    let stop = AtomicBool::new(false);
    let progress = |now: relay_sweep::Progress| {
        stop.store(now.offered_per_sec == 1_000, Ordering::Relaxed);
    };
    let plan = plan(Rates::List(vec![500, 1_000, 2_000]));
    let curves = relay_sweep::run(&plan, &mut relay, &stop, &progress).unwrap();
    assert_eq!(curves.len(), 1);
    assert_eq!((curves[0].samples.len(), curves[0].knee.lossy_per_sec()), (1, None));
}
