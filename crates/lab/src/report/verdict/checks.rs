//! What must hold for an experiment to be worth believing, and the effect that it is about.

use super::claims::{crossing_text, rate_crossing};
use super::{Evidence, Outcome, Verdict, near, not_tested};
use crate::experiment::model::{KernelCounters, TransportName};
use crate::report::estimates::time_estimate;
use crate::statistics::{Bootstrap, Summary};
use std::collections::BTreeMap;
use text::{grouped, percent, time};

/// M1 to M7.
pub(in crate::report) fn checks(evidence: &Evidence<'_>, bootstrap: Bootstrap) -> Vec<Verdict> {
    vec![
        measured_loss(evidence),
        local_drops(evidence),
        ended_early(evidence),
        udp_delay(evidence),
        udp_share(evidence),
        tcp_delay(evidence),
        order(evidence, bootstrap),
    ]
}

fn measured_loss(evidence: &Evidence<'_>) -> Verdict {
    const CLAIM: &str = "Measured one-way loss is the configured one, within its 99.9 % interval";
    let measured: Vec<_> =
        evidence.summaries.iter().filter_map(|s| Some((s, s.measured_loss?))).collect();
    if measured.is_empty() {
        return not_tested("M1", CLAIM, "Loss was not measured.");
    }
    let outside = measured.iter().filter(|(summary, loss)| {
        summary.configured_loss < loss.interval.low - 1e-9
            || summary.configured_loss > loss.interval.high + 1e-9
    });
    let names: Vec<String> = outside
        .map(|(s, loss)| {
            format!("{} {} ({:.2} %)", s.transport, percent(s.configured_loss), loss.share * 100.0)
        })
        .collect();
    let packets = measured.iter().map(|(_, loss)| loss.packets).sum();
    Verdict {
        id: "M1",
        claim: CLAIM.to_owned(),
        here: format!(
            "{} of {} points, {} packets",
            measured.len() - names.len(),
            measured.len(),
            grouped(packets)
        ),
        outcome: holds(names.is_empty()),
        difference: if names.is_empty() {
            String::new()
        } else {
            format!("outside: {}", names.join(", "))
        },
        caveat: String::new(),
    }
}

fn local_drops(evidence: &Evidence<'_>) -> Verdict {
    const CLAIM: &str =
        "TCP sees no drops on its own host (TCPRetransFail is 0), and no receive buffer overflows";
    // The flows of one loss share their hosts, and so their counters.
    let kernel = |of: fn(&KernelCounters) -> u64| -> u64 {
        let mut by_loss: BTreeMap<u64, u64> = BTreeMap::new();
        for point in evidence.points {
            let counted = point.runs.iter().map(|run| of(&run.kernel)).max().unwrap_or(0);
            let most = by_loss.entry(point.configured_loss.to_bits()).or_default();
            *most = counted.max(*most);
        }
        by_loss.values().sum()
    };
    let (failures, overruns) =
        (kernel(|k| k.retransmit_failures), kernel(|k| k.udp_receive_buffer_errors));
    Verdict {
        id: "M2",
        claim: CLAIM.to_owned(),
        here: format!(
            "{} failed retransmissions, {} dropped in the buffer",
            grouped(failures),
            grouped(overruns)
        ),
        outcome: holds(failures + overruns == 0),
        difference: String::new(),
        caveat: String::new(),
    }
}

fn ended_early(evidence: &Evidence<'_>) -> Verdict {
    let runs = || evidence.points.iter().flat_map(|point| &point.runs);
    let mut failures: Vec<&str> =
        runs().map(|run| run.failure.as_str()).filter(|failure| !failure.is_empty()).collect();
    let failed = failures.len();
    failures.sort_unstable();
    failures.dedup();
    Verdict {
        id: "M3",
        claim: "Every run lasted its time".to_owned(),
        here: format!("{} of {} runs", runs().count() - failed, runs().count()),
        outcome: holds(failed == 0),
        difference: failures.join(", "),
        caveat: String::new(),
    }
}

fn udp_delay(evidence: &Evidence<'_>) -> Verdict {
    const CLAIM: &str = "UDP's mean delay is below 1 ms at every loss rate";
    let udp = evidence.closed_loop(TransportName::UDP);
    let highest = udp.iter().filter_map(|(_, s)| Some(s.mean_ns?.value)).max_by(f64::total_cmp);
    let Some(highest) = highest else { return not_tested("M4", CLAIM, "No closed-loop UDP runs.") };
    check("M4", CLAIM, format!("at most {}", time(highest)), highest < 1e6)
}

fn udp_share(evidence: &Evidence<'_>) -> Verdict {
    const CLAIM: &str = "The share of UDP messages that arrive is within 2 % of 1 - loss";
    let udp = evidence.closed_loop(TransportName::UDP);
    let off = |s: &Summary| Some((s.arrived_share?.value / (1.0 - s.configured_loss) - 1.0).abs());
    let furthest = udp.iter().filter_map(|(_, s)| off(s)).max_by(f64::total_cmp);
    let Some(furthest) = furthest else {
        return not_tested("M5", CLAIM, "No closed-loop UDP runs.");
    };
    check("M5", CLAIM, format!("at most {:.2} % off", furthest * 100.0), furthest <= 0.02)
}

fn tcp_delay(evidence: &Evidence<'_>) -> Verdict {
    const CLAIM: &str = "TCP's mean delay is above 0.5 s at 14 % loss and above 2 s at 20 %";
    let tcp = evidence.closed_loop(TransportName::TCP);
    let mean = |loss: f64| near(&tcp, loss).and_then(|(_, summary)| summary.mean_ns);
    let (Some(at_14), Some(at_20)) = (mean(0.14), mean(0.20)) else {
        return not_tested("M6", CLAIM, "No closed-loop tcp-cubic runs at 14 and 20 % loss.");
    };
    let here = format!("{} and {}", time_estimate(&at_14), time_estimate(&at_20));
    check("M6", CLAIM, here, at_14.value > 0.5e9 && at_20.value > 2e9)
}

fn order(evidence: &Evidence<'_>, bootstrap: Bootstrap) -> Verdict {
    const CLAIM: &str = "TCP carries more than UDP at low loss and less at high loss";
    let (udp, tcp) =
        (evidence.closed_loop(TransportName::UDP), evidence.closed_loop(TransportName::TCP));
    let Some(found) = rate_crossing(&udp, &tcp, bootstrap) else {
        return not_tested(
            "M7",
            CLAIM,
            "No closed-loop UDP and tcp-cubic runs at the same losses.",
        );
    };
    check(
        "M7",
        CLAIM,
        format!("the rates cross at {}", crossing_text(&found, &tcp)),
        found.at.is_finite(),
    )
}

fn check(id: &'static str, claim: &str, here: String, held: bool) -> Verdict {
    Verdict { here, outcome: holds(held), ..not_tested(id, claim, "") }
}

fn holds(held: bool) -> Outcome {
    if held { Outcome::Reproduced } else { Outcome::Differs }
}
