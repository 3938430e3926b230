//! The ten claims with numbers of "UDP vs TCP for telemetry" (blog.sflow.com, 2022-02-14).

use super::{Evidence, Outcome, Verdict, factor, judge, judge_estimate, near, not_tested};
use crate::experiment::model::{Point, Run, TransportName};
use crate::report::estimates::{rate_estimate, runs_by_length, time_estimate};
use crate::statistics::{Bootstrap, Crossing, Ratio, Summary, crossing, mean_delay_s, rate};
use text::{percent, time};

type Series<'a> = Vec<(&'a Point, &'a Summary)>;

const MS: f64 = 1e6;
const S: f64 = 1e9;

/// C1 to C10, on the article's own pair of transports and schedule.
pub(in crate::report) fn claims(evidence: &Evidence<'_>, bootstrap: Bootstrap) -> Vec<Verdict> {
    let udp = evidence.closed_loop(TransportName::UDP);
    let tcp = evidence.closed_loop(TransportName::TCP);
    let mut verdicts = vec![
        udp_mean(&udp),
        udp_max(&udp),
        tcp_passes_one_second(&tcp, bootstrap),
        tcp_mean_at_20(&tcp),
        tcp_max_at_20(&tcp),
        both_without_loss(&udp, &tcp),
        udp_rate_at_20(&udp),
        tcp_flat_until_10(&tcp),
        rates_cross(&udp, &tcp, bootstrap),
        tcp_rate_at_20(&tcp),
    ];
    let settings = evidence.settings;
    if (settings.message_bytes, settings.rate_per_sec) != (1_000, 100.0) {
        let caveat = format!(
            "The article sent 1,000 bytes 100 times a second; here {} bytes {} times.",
            settings.message_bytes, settings.rate_per_sec
        );
        verdicts.iter_mut().for_each(|verdict| add(&mut verdict.caveat, &caveat));
    }
    verdicts
}

fn udp_mean(udp: &Series<'_>) -> Verdict {
    const CLAIM: &str = "UDP's mean delay is 160 µs at every loss rate";
    let means = || udp.iter().filter_map(|(_, summary)| summary.mean_ns);
    let Some(highest) = means().map(|m| m.value).max_by(f64::total_cmp) else {
        return not_tested("C1", CLAIM, "No closed-loop UDP runs.");
    };
    let lowest = means().map(|m| m.value).fold(highest, f64::min);
    let outcome = match (highest <= MS, highest <= 3.0 * lowest) {
        (true, true) => Outcome::Reproduced,
        (true, false) => Outcome::DirectionOnly,
        _ => Outcome::Differs,
    };
    Verdict {
        id: "C1",
        claim: CLAIM.to_owned(),
        here: format!("{} to {} over {} loss rates", time(lowest), time(highest), udp.len()),
        outcome,
        difference: format!(
            "{:.2} to {}; band: all below 1 ms, highest at most 3 × lowest",
            lowest / 160e3,
            factor(highest, 160e3)
        ),
        caveat: few_runs(udp),
    }
}

fn udp_max(udp: &Series<'_>) -> Verdict {
    const CLAIM: &str = "UDP's delay is never above 8 ms";
    let Some((_, worst)) = udp.iter().max_by(|a, b| of_max(a.1).total_cmp(&of_max(b.1))) else {
        return not_tested("C2", CLAIM, "No closed-loop UDP runs.");
    };
    let value = of_max(worst);
    let outcome = match value {
        v if v <= 8.0 * MS => Outcome::Reproduced,
        v if v <= 100.0 * MS => Outcome::DirectionOnly,
        _ => Outcome::Differs,
    };
    Verdict {
        id: "C2",
        claim: CLAIM.to_owned(),
        here: format!("{}, at {} loss", time(value), percent(worst.configured_loss)),
        outcome,
        difference: format!("{}; in direction: up to 100 ms", factor(value, 8.0 * MS)),
        caveat: "A maximum grows with run length and shows what else the host was doing, not the network.".to_owned(),
    }
}

fn tcp_passes_one_second(tcp: &Series<'_>, bootstrap: Bootstrap) -> Verdict {
    const CLAIM: &str = "TCP's mean delay passes 1 s at 14 % loss";
    let points: Vec<_> = tcp
        .iter()
        .map(|(point, summary)| {
            (summary.configured_loss, Ratio::level(1.0), mean_delay_s(&point.runs))
        })
        .collect();
    let Some(found) = crossing(&points, bootstrap) else {
        return not_tested("C3", CLAIM, "No closed-loop tcp-cubic runs at several losses.");
    };
    let outcome = judge(found.at, found.interval, (0.12, 0.16));
    Verdict {
        id: "C3",
        claim: CLAIM.to_owned(),
        here: format!("passes 1 s at {}", crossing_text(&found, tcp)),
        outcome,
        difference: crossing_difference(&found, 0.14),
        caveat: join(&[unstated(outcome), &few_runs(tcp)]),
    }
}

fn tcp_mean_at_20(tcp: &Series<'_>) -> Verdict {
    const CLAIM: &str = "TCP's mean delay at 20 % loss is 30 s";
    let Some((point, summary)) = near(tcp, 0.20) else {
        return not_tested("C4", CLAIM, "No closed-loop tcp-cubic runs at 20 % loss.");
    };
    let Some(mean) = summary.mean_ns else {
        return not_tested("C4", CLAIM, "No message was sent at 20 % loss.");
    };
    let outcome = match judge_estimate(&mean, (15.0 * S, 60.0 * S)) {
        Outcome::Differs | Outcome::Unclear if mean.value > S => Outcome::DirectionOnly,
        outcome => outcome,
    };
    let mut caveat = join(&[&spread_of_means(point), unstated(outcome), &few_runs(tcp)]);
    if summary.longest_run_s < 1_000.0 {
        let length = runs_by_length(summary.runs, summary.longest_run_s);
        add(
            &mut caveat,
            &format!(
                "Rare stalls of minutes make this mean; {length} rarely hold one (1000 s and more do)."
            ),
        );
    }
    add(&mut caveat, &bound_note(summary));
    Verdict {
        id: "C4",
        claim: CLAIM.to_owned(),
        here: at(summary, &time_estimate(&mean)),
        outcome,
        difference: format!(
            "{}; band: 15 to 60 s, in direction: above 1 s",
            factor(mean.value, 30.0 * S)
        ),
        caveat,
    }
}

fn tcp_max_at_20(tcp: &Series<'_>) -> Verdict {
    const CLAIM: &str = "TCP's longest delay at 20 % loss is 14 min";
    let Some((_, summary)) = near(tcp, 0.20) else {
        return not_tested("C5", CLAIM, "No closed-loop tcp-cubic runs at 20 % loss.");
    };
    let Some(max) = summary.max_ns else {
        return not_tested("C5", CLAIM, "No message was sent at 20 % loss.");
    };
    let here = at(summary, &time_estimate(&max));
    if summary.longest_run_s < 840.0 {
        let reason =
            format!("Runs of {} s cannot hold a delay of 14 min.", summary.longest_run_s.round());
        return Verdict {
            here,
            difference: factor(max.value, 840.0 * S),
            ..not_tested("C5", CLAIM, &reason)
        };
    }
    let outcome = match judge_estimate(&max, (420.0 * S, 1_680.0 * S)) {
        Outcome::Differs | Outcome::Unclear if max.value > 10.0 * S => Outcome::DirectionOnly,
        outcome => outcome,
    };
    Verdict {
        id: "C5",
        claim: CLAIM.to_owned(),
        here,
        outcome,
        difference: format!("{}; band: 7 to 28 min, in direction: above 10 s", factor(max.value, 840.0 * S)),
        caveat: "One stall makes a maximum; it grows with run length. The article states neither runs nor length.".to_owned(),
    }
}

fn both_without_loss(udp: &Series<'_>, tcp: &Series<'_>) -> Verdict {
    const CLAIM: &str = "Without loss both carry 96 messages a second";
    let of = |series: &Series<'_>| near(series, 0.0).and_then(|(_, summary)| summary.rate_per_sec);
    let (Some(udp_rate), Some(tcp_rate)) = (of(udp), of(tcp)) else {
        return not_tested("C6", CLAIM, "No closed-loop UDP and tcp-cubic runs without loss.");
    };
    let outcomes = [udp_rate, tcp_rate].map(|rate| judge_estimate(&rate, within(96.0, 0.05)));
    Verdict {
        id: "C6",
        claim: CLAIM.to_owned(),
        here: format!("UDP {}, TCP {}", rate_estimate(&udp_rate), rate_estimate(&tcp_rate)),
        outcome: worse(outcomes[0], outcomes[1]),
        difference: format!("{:+.1} and {:+.1} messages/s; band: ± 5 %", udp_rate.value - 96.0, tcp_rate.value - 96.0),
        caveat: "The pause between messages is longer than asked for by what the scheduler adds, which depends on the host.".to_owned(),
    }
}

fn udp_rate_at_20(udp: &Series<'_>) -> Verdict {
    const CLAIM: &str =
        "UDP carries 77 messages a second at 20 % loss, having fallen in proportion";
    let at_20 = near(udp, 0.20).and_then(|(_, summary)| Some((summary, summary.rate_per_sec?)));
    let Some((summary, rate)) = at_20 else {
        return not_tested("C7", CLAIM, "No closed-loop UDP runs at 20 % loss.");
    };
    let off_line = |summary: &Summary| {
        Some((summary.arrived_share?.value - (1.0 - summary.configured_loss)).abs())
    };
    let furthest = udp.iter().filter_map(|(_, summary)| off_line(summary)).fold(0.0, f64::max);
    let outcome = match judge_estimate(&rate, within(77.0, 0.05)) {
        Outcome::Reproduced if furthest > 0.02 => Outcome::DirectionOnly,
        outcome => outcome,
    };
    Verdict {
        id: "C7",
        claim: CLAIM.to_owned(),
        here: format!(
            "{}; share arrived at most {:.1} points from 1 - loss",
            at(summary, &rate_estimate(&rate)),
            furthest * 100.0
        ),
        outcome,
        difference: format!(
            "{:+.1} messages/s; band: ± 5 %, and within 2 points of the line",
            rate.value - 77.0
        ),
        caveat: String::new(),
    }
}

fn tcp_flat_until_10(tcp: &Series<'_>) -> Verdict {
    const CLAIM: &str = "TCP's rate stays flat until 10 % loss, and is 90 messages a second there";
    let rate_at = |loss: f64| {
        near(tcp, loss).and_then(|(point, summary)| Some((point, summary, summary.rate_per_sec?)))
    };
    let (Some((point, summary, rate)), Some((.., without))) = (rate_at(0.10), rate_at(0.0)) else {
        return not_tested("C8", CLAIM, "No closed-loop tcp-cubic runs at 0 and 10 % loss.");
    };
    let flat =
        tcp.iter().filter(|(_, s)| s.rate_per_sec.is_some_and(|r| r.value >= 0.95 * without.value));
    let flat_until = flat.map(|(_, s)| s.configured_loss).fold(0.0, f64::max);
    let outcome = match judge_estimate(&rate, within(90.0, 0.05)) {
        Outcome::Differs if rate.value >= 0.75 * without.value => Outcome::DirectionOnly,
        outcome => outcome,
    };
    Verdict {
        id: "C8",
        claim: CLAIM.to_owned(),
        here: format!(
            "{}; within 5 % of the rate without loss up to {}",
            at(summary, &rate_estimate(&rate)),
            percent(flat_until)
        ),
        outcome,
        difference: format!("{:+.1} messages/s; band: ± 5 %", rate.value - 90.0),
        caveat: join(&[&spread_of_rates(point), unstated(outcome), &few_runs(tcp)]),
    }
}

fn rates_cross(udp: &Series<'_>, tcp: &Series<'_>, bootstrap: Bootstrap) -> Verdict {
    const CLAIM: &str = "TCP's rate falls below UDP's at 12 % loss, at 85 messages a second";
    let Some(found) = rate_crossing(udp, tcp, bootstrap) else {
        return not_tested(
            "C9",
            CLAIM,
            "No closed-loop UDP and tcp-cubic runs at the same losses.",
        );
    };
    let rate = near(udp, found.at).and_then(|(_, summary)| summary.rate_per_sec);
    let rate = rate.map(|rate| format!(", near {:.0} messages/s", rate.value)).unwrap_or_default();
    let outcome = judge(found.at, found.interval, (0.10, 0.14));
    Verdict {
        id: "C9",
        claim: CLAIM.to_owned(),
        here: format!("falls below at {}{rate}", crossing_text(&found, tcp)),
        outcome,
        difference: crossing_difference(&found, 0.12),
        caveat: join(&[unstated(outcome), &few_runs(tcp)]),
    }
}

/// Where TCP's rate falls below UDP's for good, over the losses that both were run at.
pub(super) fn rate_crossing(
    udp: &Series<'_>,
    tcp: &Series<'_>,
    bootstrap: Bootstrap,
) -> Option<Crossing> {
    let same =
        |loss: f64| udp.iter().find(|(point, _)| (point.configured_loss - loss).abs() < 1e-6);
    let pair = |(point, _): &(&Point, &Summary)| {
        let (udp_point, _) = same(point.configured_loss)?;
        Some((point.configured_loss, rate(&point.runs), rate(&udp_point.runs)))
    };
    crossing(&tcp.iter().filter_map(pair).collect::<Vec<_>>(), bootstrap)
}

fn tcp_rate_at_20(tcp: &Series<'_>) -> Verdict {
    const CLAIM: &str = "TCP carries 10 messages a second at 20 % loss";
    let at_20 =
        near(tcp, 0.20).and_then(|(point, summary)| Some((point, summary, summary.rate_per_sec?)));
    let Some((point, summary, rate)) = at_20 else {
        return not_tested("C10", CLAIM, "No closed-loop tcp-cubic runs at 20 % loss.");
    };
    let outcome = match judge_estimate(&rate, (5.0, 20.0)) {
        Outcome::Differs if rate.value < 48.0 => Outcome::DirectionOnly,
        outcome => outcome,
    };
    Verdict {
        id: "C10",
        claim: CLAIM.to_owned(),
        here: at(summary, &rate_estimate(&rate)),
        outcome,
        difference: format!(
            "{}; band: 5 to 20, in direction: below half of the rate without loss",
            factor(rate.value, 10.0)
        ),
        caveat: join(&[&spread_of_rates(point), unstated(outcome), &few_runs(tcp)]),
    }
}

fn of_max(summary: &Summary) -> f64 {
    summary.max_ns.map_or(0.0, |max| max.value)
}

fn within(value: f64, share: f64) -> (f64, f64) {
    (value * (1.0 - share), value * (1.0 + share))
}

fn worse(a: Outcome, b: Outcome) -> Outcome {
    let rank = |outcome| match outcome {
        Outcome::Reproduced => 0,
        Outcome::DirectionOnly => 1,
        Outcome::Unclear => 2,
        Outcome::Differs => 3,
        Outcome::NotTested => 4,
    };
    if rank(a) >= rank(b) { a } else { b }
}

/// The text, with the loss it stands for where that is not the article's 20 or 10 % exactly.
fn at(summary: &Summary, text: &str) -> String {
    let loss = summary.configured_loss;
    if [0.10, 0.20].iter().any(|named| (named - loss).abs() < 1e-6) {
        text.to_owned()
    } else {
        format!("{text} (at {})", percent(loss))
    }
}

/// What the article leaves open, where its figures and ours part.
fn unstated(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Reproduced | Outcome::NotTested => "",
        _ => {
            "The article names neither kernel nor congestion control nor run length, and shows one run."
        }
    }
}

/// How far single runs at one loss lie apart; empty with fewer than two.
fn spread(point: &Point, of: impl Fn(&Run) -> f64, text: impl Fn(f64) -> String) -> String {
    let values = || point.runs.iter().map(&of).filter(|value| value.is_finite());
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if values().count() < 2 {
        String::new()
    } else {
        format!("Single runs: {} to {}.", text(low), text(high))
    }
}

fn spread_of_rates(point: &Point) -> String {
    spread(
        point,
        |run| run.delivered as f64 / (run.duration_ns as f64 / S),
        |rate| format!("{rate:.1}/s"),
    )
}

fn spread_of_means(point: &Point) -> String {
    spread(point, |run| mean_delay_s(std::slice::from_ref(run)).value() * S, time)
}

fn few_runs(series: &Series<'_>) -> String {
    let fewest = series.iter().map(|(_, summary)| summary.runs).min().unwrap_or(0);
    match fewest {
        0 | 1 => "One run per point has no interval.".to_owned(),
        2..5 => format!("{fewest} runs per point make an interval too narrow; five are a minimum."),
        _ => String::new(),
    }
}

fn bound_note(summary: &Summary) -> String {
    match summary.censored {
        0 => String::new(),
        1 => "One message was under way at the end: a lower bound.".to_owned(),
        n => format!("{n} messages were under way at the end: a lower bound."),
    }
}

fn join(sentences: &[&str]) -> String {
    let mut text = String::new();
    sentences.iter().for_each(|sentence| add(&mut text, sentence));
    text
}

fn add(caveat: &mut String, sentence: &str) {
    if !sentence.is_empty() && !caveat.is_empty() {
        caveat.push(' ');
    }
    caveat.push_str(sentence);
}

pub(super) fn crossing_text(found: &Crossing, series: &Series<'_>) -> String {
    let last = series.last().map_or(1.0, |(_, summary)| summary.configured_loss);
    let first = series.first().map_or(0.0, |(_, summary)| summary.configured_loss);
    let loss = |at: f64| match at {
        f64::INFINITY => format!("above {}", percent(last)),
        f64::NEG_INFINITY => format!("below {}", percent(first)),
        at => format!("{:.1} %", at * 100.0),
    };
    let interval = found.interval.map(|i| format!(" ({} to {})", loss(i.low), loss(i.high)));
    format!("{}{}", loss(found.at), interval.unwrap_or_default())
}

fn crossing_difference(found: &Crossing, article: f64) -> String {
    let points = (found.at - article) * 100.0;
    let band = "band: ± 2 points";
    if points.is_finite() {
        format!("{points:+.1} points; {band}")
    } else {
        format!("outside of what was run; {band}")
    }
}
