//! Collectors that are wrong in a known way: the verdict must detect it.

use lab::About;
use lab::report::SflowReport;
use lab::sflow::{
    self, Bytes, Collector, Experiment, LIMIT_BITS_PER_S, Path, Plan, Rule, SAMPLING_RATE,
};
use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;
use testkit::{TempDir, need_root_netns};
use wire::sflow::{Datagram, FlowRecord, Sample};

/// Multiplies each sample by the configured rate, as most collectors do, and compares the average over its whole time with the
/// limit.
#[derive(Default)]
struct MultipliesByN {
    bytes: HashMap<Ipv4Addr, (u64, f64)>,
    began_ns: u64,
    told: Vec<Ipv4Addr>,
}

impl Collector for MultipliesByN {
    fn datagram(&mut self, bytes: &[u8], now_ns: u64) {
        if self.began_ns == 0 {
            self.began_ns = now_ns;
        }
        for sample in Datagram::parse(bytes).unwrap().samples().flatten() {
            let Sample::Flow(sample) = sample else { continue };
            for record in sample.records().flatten() {
                let FlowRecord::SampledHeader(record) = record else { continue };
                let dst: [u8; 4] = record.header[30..34].try_into().unwrap();
                let (samples, bytes) = self.bytes.entry(dst.into()).or_default();
                *samples += 1;
                *bytes += f64::from(record.frame_length_bytes) * f64::from(SAMPLING_RATE);
            }
        }
    }

    fn bytes(&self, _now_ns: u64) -> Vec<Bytes> {
        let all = self.bytes.iter().map(|(&dst, &(samples, value))| {
            let half = 1.96 * value / (samples as f64).sqrt();
            Bytes { dst, value, low: value - half, high: value + half }
        });
        all.collect()
    }

    fn passed(&mut self, now_ns: u64) -> Vec<Ipv4Addr> {
        let seconds = (now_ns - self.began_ns) as f64 / 1e9;
        // Less than a second is too short for an average.
        let is_over =
            |bytes: f64| self.began_ns > 0 && bytes * 8.0 / seconds.max(1.0) > LIMIT_BITS_PER_S;
        let over =
            self.bytes.iter().filter(|(dst, one)| is_over(one.1) && !self.told.contains(dst));
        let over: Vec<Ipv4Addr> = over.map(|(&dst, _)| dst).collect();
        self.told.extend(&over);
        over
    }
}

#[test]
fn a_collector_that_multiplies_by_n_fails_where_something_is_lost() {
    if !need_root_netns() {
        return;
    }
    let plan = Plan {
        losses: vec![0.0, 0.2],
        simulated_runs: 60,
        path_rounds: 1,
        attack_losses: vec![0.5],
        attack_rounds: 1,
        ..Plan::quick()
    };
    let make = || Box::new(MultipliesByN::default()) as Box<dyn Collector>;
    let results = sflow::run(&plan, &make, &AtomicBool::new(false), &|_| {}).unwrap();

    // The lab's own estimates account correctly for loss, wherever it happened.
    assert_eq!(results.points.len(), 5);
    for point in &results.points {
        assert!((point.measured_loss - point.loss).abs() < 0.03, "{point:?}");
        assert!(point.raw_beyond_loss.abs() < 0.03, "{point:?}");
        assert_eq!(point.accuracy[0].mean, point.accuracy[2].mean);
    }
    let network = results.points.iter().filter(|point| point.path == Path::Network);
    assert_eq!(
        network.map(|point| (point.loss, point.runs)).collect::<Vec<_>>(),
        [(0.0, 20), (0.2, 20)]
    );

    let about = About::default();
    let experiment = Experiment::of(plan, about, results);
    assert!(!experiment.holds());
    for check in &experiment.checks {
        let is_lost = !check.place.ends_with(", 0 % lost");
        let wrong = matches!(check.rule, Rule::Bias | Rule::Coverage | Rule::Detection) && is_lost;
        assert_eq!(check.holds, !wrong, "{check:?}");
    }

    let folder = TempDir::new();
    let report = SflowReport::new(&experiment);
    let text = report.terminal(None, text::Ink::Plain);
    assert!(text.contains("of 17 checks fail"), "{text}");
    let written = report.write(folder.path()).unwrap();
    let names = written.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
    let expected = ["report.json", "report.html", "points.csv", "attacks.csv", "figures.svg"];
    assert_eq!(names.clone().take(5).collect::<Vec<_>>(), expected);
    // There is no chart of times, because no attack was noticed.
    assert_eq!(names.count(), 7);
    for path in written {
        assert!(fs::metadata(&path).unwrap().len() > 10, "{}", path.display());
    }
}
