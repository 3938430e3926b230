//! How long it takes until an attack is noticed.

use super::path::{Player, numbers, round_of, seed};
use super::played::{Played, flow};
use super::{Error, Make, Plan, finished};
use crate::network::Network;
use load::Random;
use load::sflow::TrueFlow;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;

/// Ordinary flows of a port, none of which comes near the limit: 40 of 100 Mbit/s.
const FLOWS: u8 = 40;
const FLOW_FRAMES_PER_S: f64 = 12_500.0;
const FRAME_BYTES: u32 = 1_000;

/// The attack adds 6 Gbit/s, which fills the port and yields 1,250 samples per second.
const ATTACK_FRAMES_PER_S: f64 = 750_000.0;
const VICTIM: u8 = 200;

/// Attacks begin within this range: each at a different time before the next query, and only when an average over two seconds
/// is complete.
const ATTACK_S: std::ops::Range<f64> = 6.0..7.0;

/// How long to wait for the event after the last attack began.
const PATIENCE_S: f64 = 1.5;

/// Attacks at one loss: time from the first frame of the attack to the event, as measured on the collector's host.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Detection {
    /// Share of datagrams to lose.
    pub loss: f64,
    /// Number of attacks.
    pub attacks: u64,
    /// Number of attacks that were noticed.
    pub noticed: u64,
    /// Events for other flows, or before the attack began.
    pub false_alarms: u64,
    /// Half of all attacks were noticed within this many seconds; `None` if fewer than half were noticed.
    pub median_s: Option<f64>,
    /// 99 % of all attacks were noticed within this many seconds; `None` if fewer were noticed.
    pub p99_s: Option<f64>,
    /// The longest time of an attack that was noticed.
    pub max_s: Option<f64>,
    /// All times, in ascending order.
    pub times_s: Vec<f64>,
}

impl Detection {
    pub(super) fn of(
        loss: f64,
        attacks: u64,
        false_alarms: u64,
        mut times_s: Vec<f64>,
    ) -> Detection {
        times_s.sort_unstable_by(f64::total_cmp);
        // By nearest rank among all attacks: an attack that was not noticed took longer than all others.
        let within = |share: f64| {
            let rank = (share * attacks as f64).ceil() as usize;
            times_s.get(rank.saturating_sub(1)).copied()
        };
        Detection {
            loss,
            attacks,
            noticed: times_s.len() as u64,
            false_alarms,
            median_s: within(0.5),
            p99_s: within(0.99),
            max_s: times_s.last().copied(),
            times_s,
        }
    }
}

/// Runs as many attacks as the plan has agents and rounds.
pub(super) fn detections(
    network: &Network,
    plan: &Plan,
    loss: f64,
    make: Make<'_>,
    stop: &AtomicBool,
) -> Result<Detection, Error> {
    let (mut attacks, mut false_alarms, mut times_s) = (0, 0, Vec::new());
    for round in (0..u64::from(plan.attack_rounds)).take_while(|_| finished(stop)) {
        let player = |number| player(number, seed(plan, loss, round, number));
        let mut players: Vec<Player> = numbers(plan).map(player).collect();
        let seconds = ATTACK_S.end + PATIENCE_S;
        let heard = round_of(network, &mut players, seconds, make(), stop)?;

        for (dst, at_s) in heard.passed {
            let attacked_s = players.iter().zip(numbers(plan)).find_map(|(player, number)| {
                player.attacked_s.filter(|_| dst == victim(number).dst)
            });
            match attacked_s.map(|attacked_s| at_s - attacked_s) {
                Some(time_s) if time_s >= 0.0 => times_s.push(time_s),
                _ => false_alarms += 1,
            }
        }
        attacks += players.len() as u64;
    }
    Ok(Detection::of(loss, attacks, false_alarms, times_s))
}

fn player(number: u8, seed: u64) -> Player {
    let ordinary = |last| flow(number, last, FRAME_BYTES, FLOW_FRAMES_PER_S);
    let mut random = Random::seeded(!seed);
    let at_s = ATTACK_S.start + random.unit() * (ATTACK_S.end - ATTACK_S.start);
    let played = Played::new(number, (1..=FLOWS).map(ordinary).collect(), seed);
    Player { attack: Some((at_s, victim(number))), ..Player::new(played) }
}

fn victim(number: u8) -> TrueFlow {
    // A separate source address, which stands for many.
    TrueFlow {
        src: Ipv4Addr::new(198, 18, number, 1),
        ..flow(number, VICTIM, FRAME_BYTES, ATTACK_FRAMES_PER_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_that_was_not_noticed_took_longer_than_any() {
        let times = |count: u32| (1..=count).map(|n| f64::from(n) / 1_000.0).collect();
        let all = Detection::of(0.0, 100, 0, times(100));
        assert_eq!((all.median_s, all.p99_s, all.max_s), (Some(0.05), Some(0.099), Some(0.1)));
        let two_missing = Detection::of(0.0, 100, 0, times(98));
        assert_eq!((two_missing.median_s, two_missing.p99_s), (Some(0.05), None));
        assert_eq!(Detection::of(0.0, 0, 0, Vec::new()).median_s, None);
    }
}
