use super::binomial::clopper_pearson;
use super::bootstrap::{Bootstrap, Estimate, Interval};
use super::pool::{Figure, Pool};
use crate::experiment::model::{LinkSummary, Point, Run, Schedule, TransportName};
use serde::Serialize;

/// The combined results of a point's runs. Delays and ages are in nanoseconds; a figure is `None` if nothing was
/// measured.
///
/// Delays are over all messages of all runs; messages in flight at the end count as lower bounds. Messages that a
/// transport lost permanently have no delay; [`Summary::delivered_share`] shows them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub transport: TransportName,
    pub schedule: Schedule,
    pub configured_loss: f64,
    pub runs: u32,
    /// Length of the shortest and the longest run, in seconds.
    pub shortest_run_s: f64,
    pub longest_run_s: f64,
    pub offered: u64,
    pub sent: u64,
    pub delivered: u64,
    pub duplicates: u64,
    /// Messages in flight at the end of their run.
    pub censored: u64,
    /// Runs whose flow ended early.
    pub failed_runs: u32,
    /// Measured one-way loss over all runs; `None` if nothing was measured.
    pub measured_loss: Option<Loss>,
    /// Delivered messages per second.
    pub rate_per_sec: Option<Estimate>,
    /// Delivered over offered messages, 0 to 1.
    pub delivered_share: Option<Estimate>,
    /// Delivered over sent messages, 0 to 1: the share that the path let through.
    pub arrived_share: Option<Estimate>,
    pub mean_ns: Option<Estimate>,
    pub p50_ns: Option<Estimate>,
    pub p90_ns: Option<Estimate>,
    pub p99_ns: Option<Estimate>,
    pub p99_9_ns: Option<Estimate>,
    pub max_ns: Option<Estimate>,
    pub age_mean_ns: Option<Estimate>,
    pub age_p50_ns: Option<Estimate>,
    pub age_p99_ns: Option<Estimate>,
    pub age_max_ns: Option<Estimate>,
    /// Share of the time during which the newest message was older than one second, 0 to 1.
    pub age_over_1s_share: Option<Estimate>,
    /// What both ends of Weir's own link counted, over all runs.
    pub link: Option<LinkSummary>,
    /// Segments that TCP retransmitted, or packets that Weir's link retransmitted, over all runs; `None` for other
    /// transports.
    pub retransmits: Option<u64>,
    pub timeouts: Option<u64>,
    /// `TCPRetransFail` of the sending host, which the runs share. Any value but 0 means that the loss was visible to
    /// the sender.
    pub retransmit_failures: u64,
}

/// A measured loss rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Loss {
    pub share: f64,
    /// The exact 99.9 % interval of the true rate (Clopper and Pearson).
    pub interval: Interval,
    pub packets: u64,
}

impl Summary {
    pub fn of(point: &Point, bootstrap: Bootstrap) -> Summary {
        let runs = &point.runs;
        let delays = Pool::new(
            runs.iter().map(|run| (run.delays_ns.as_slice(), run.censored_ns.as_slice())),
        );
        let ages = Pool::new(runs.iter().map(|run| (run.age_ns.as_slice(), &[][..])));

        let over = |pool: &dyn Fn(&[u32]) -> Option<Figure>| bootstrap.estimate(runs.len(), pool);
        let delay = |share: f64| over(&|weights| delays.quantile(weights, share));
        let age = |share: f64| over(&|weights| ages.quantile(weights, share));
        let ratio = |ratio: Ratio| over(&|weights| ratio.figure(weights));

        let sum = |of: fn(&Run) -> u64| runs.iter().map(of).sum::<u64>();
        let seconds = runs.iter().map(|run| run.duration_ns as f64 / 1e9);
        let tcp = |of: fn(&crate::experiment::model::TcpSummary) -> u64| {
            let of_runs: Vec<u64> =
                runs.iter().filter_map(|run| run.tcp.as_ref()).map(of).collect();
            (!of_runs.is_empty()).then(|| of_runs.iter().sum())
        };

        let link = runs.iter().filter_map(|run| run.link).reduce(|mut sum, more| {
            sum += more;
            sum
        });

        Summary {
            transport: point.transport.clone(),
            schedule: point.schedule,
            configured_loss: point.configured_loss,
            runs: runs.len() as u32,
            shortest_run_s: if runs.is_empty() {
                0.0
            } else {
                seconds.clone().fold(f64::INFINITY, f64::min)
            },
            longest_run_s: seconds.fold(0.0, f64::max),
            offered: sum(|run| run.offered),
            sent: sum(|run| run.sent),
            delivered: sum(|run| run.delivered),
            duplicates: sum(|run| run.duplicates),
            censored: sum(|run| run.censored_ns.len() as u64),
            failed_runs: runs.iter().filter(|run| !run.failure.is_empty()).count() as u32,
            measured_loss: measured_loss(runs),
            rate_per_sec: ratio(rate(runs)),
            delivered_share: ratio(share(runs, |run| run.delivered, |run| run.offered)),
            arrived_share: ratio(share(runs, |run| run.delivered, |run| run.sent)),
            mean_ns: over(&|weights| delays.mean(weights)),
            p50_ns: delay(0.5),
            p90_ns: delay(0.9),
            p99_ns: delay(0.99),
            p99_9_ns: delay(0.999),
            max_ns: delay(1.0),
            age_mean_ns: over(&|weights| ages.mean(weights)),
            age_p50_ns: age(0.5),
            age_p99_ns: age(0.99),
            age_max_ns: age(1.0),
            age_over_1s_share: ratio(share(
                runs,
                |run| {
                    (run.age_ns.len() - run.age_ns.partition_point(|&age| age <= 1_000_000_000))
                        as u64
                },
                |run| run.age_ns.len() as u64,
            )),
            link,
            retransmits: tcp(|tcp| tcp.retransmits).or(link.map(|link| link.repairs)),
            timeouts: tcp(|tcp| tcp.timeouts),
            retransmit_failures: runs
                .iter()
                .map(|run| run.kernel.retransmit_failures)
                .max()
                .unwrap_or(0),
        }
    }
}

/// Delivered messages per second over the total length of the runs.
fn rate(runs: &[Run]) -> Ratio {
    Ratio(runs.iter().map(|run| (run.delivered as f64, run.duration_ns as f64 / 1e9)).collect())
}

fn share(runs: &[Run], part: fn(&Run) -> u64, whole: fn(&Run) -> u64) -> Ratio {
    Ratio(runs.iter().map(|run| (part(run) as f64, whole(run) as f64)).collect())
}

/// A quotient of sums over runs: the numerator and the denominator of each run, for example messages and seconds.
struct Ratio(Vec<(f64, f64)>);

impl Ratio {
    /// The quotient, with each run counted according to its weight; `None` if it is not a finite number.
    fn figure(&self, weights: &[u32]) -> Option<Figure> {
        let sum = |of: fn(&(f64, f64)) -> f64| -> f64 {
            self.0.iter().zip(weights).map(|(run, &weight)| of(run) * f64::from(weight)).sum()
        };
        let value = sum(|run| run.0) / sum(|run| run.1);
        value.is_finite().then_some(Figure { value, at_least: false })
    }
}

fn measured_loss(runs: &[Run]) -> Option<Loss> {
    let measured = runs.iter().filter_map(|run| run.measured_loss);
    let (packets, lost) =
        measured.fold((0, 0), |(packets, lost), run| (packets + run.packets, lost + run.lost));
    let interval = clopper_pearson(lost, packets, 0.999);
    (packets > 0).then(|| Loss { share: lost as f64 / packets as f64, interval, packets })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(delays_ns: &[u64], censored_ns: &[u64]) -> Run {
        Run {
            duration_ns: 2_000_000_000,
            offered: 10,
            sent: 8,
            delivered: delays_ns.len() as u64,
            delays_ns: delays_ns.to_vec(),
            censored_ns: censored_ns.to_vec(),
            age_ns: vec![5, 500, 2_000_000_000, 3_000_000_000],
            ..Run::default()
        }
    }

    #[test]
    fn a_point_sums_its_runs() {
        let runs = vec![run(&[10, 20, 30, 40], &[]), run(&[50, 60], &[45])];
        let summary = Summary::of(&Point { runs, ..Point::default() }, Bootstrap::default());
        assert_eq!(
            (summary.offered, summary.sent, summary.delivered, summary.censored),
            (20, 16, 6, 1)
        );
        assert_eq!(summary.rate_per_sec.unwrap().value, 1.5);
        assert_eq!(summary.delivered_share.unwrap().value, 0.3);
        assert_eq!(summary.arrived_share.unwrap().value, 0.375);
        let mean = summary.mean_ns.unwrap();
        assert_eq!((mean.value, mean.at_least), (255.0 / 7.0, true));
        // Sorted: 10 20 30 40 45+ 50 60. The fourth is known; the bound may be any of the fifth and above.
        assert_eq!(
            (summary.p50_ns.unwrap().value, summary.p50_ns.unwrap().at_least),
            (40.0, false)
        );
        assert!(summary.p90_ns.unwrap().at_least);
        assert_eq!(summary.max_ns.unwrap().value, 60.0);
        assert_eq!(summary.age_over_1s_share.unwrap().value, 0.5);
        assert_eq!((summary.retransmits, summary.measured_loss), (None, None));
    }

    #[test]
    fn a_point_without_runs_has_no_figures() {
        let summary = Summary::of(&Point::default(), Bootstrap::default());
        assert_eq!((summary.runs, summary.shortest_run_s, summary.longest_run_s), (0, 0.0, 0.0));
        assert!(
            summary.mean_ns.is_none()
                && summary.rate_per_sec.is_none()
                && summary.age_p99_ns.is_none()
        );
    }
}
