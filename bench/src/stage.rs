//! Sets up one case: receivers, the relays to compare, and runs of load through each of them.

use crate::case::{Case, Question};
use crate::contender::{Contender, Programs};
use crate::dead_end::DeadEnds;
use crate::host::{self, Placement};
use crate::process::{self, TICK_NS};
use crate::relay::{Relay, udp};
use crate::site::Site;
use anyhow::Context;
use load::Address;
use load::spin::{self, Offer, Outcome, Receiver, Times};
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Purpose {
    Warmup,
    Saturation,
    Rate,
    /// At nine tenths of the rate that a relay sustains without a dead end.
    Hold,
    Cpu,
    Latency,
    DirectLatency,
}

/// One run through one relay.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trial {
    /// `None`: directly to the first receiver.
    pub(crate) contender: Option<Contender>,
    pub(crate) purpose: Purpose,
    pub(crate) outcome: Outcome,
    pub(crate) relay_cpu_ns: u64,
    /// Dropped by the kernel at the relay's sockets.
    pub(crate) relay_drops: u64,
    /// Share of the machine's processors that other processes used during the run.
    pub(crate) foreign_share: f64,
    /// Share that the host gave to other machines.
    pub(crate) stolen_share: f64,
}

impl Trial {
    /// The relay's CPU time for each copy that arrived.
    pub(crate) fn cpu_ns_per_copy(&self) -> f64 {
        self.relay_cpu_ns as f64 / self.outcome.copies().max(1) as f64
    }
}

/// A run ends when nothing has arrived for this long after the last datagram was sent.
const QUIET: Duration = Duration::from_millis(100);

/// Receivers read only the first bytes of long datagrams.
const READ_BYTES: usize = 2_048;

pub(crate) struct Stage {
    pub(crate) case: Case,
    pub(crate) relays: Vec<Relay>,
    pub(crate) trials: Vec<Trial>,
    receivers: Vec<Receiver>,
    load_cpus: String,
    runs: u32,
    // Near the end, so that the relays stop before their targets close.
    _dead_ends: Option<DeadEnds>,
    site: Site,
}

impl Stage {
    /// Opens the receivers and starts the relays.
    pub(crate) fn set_up(
        case: Case,
        contenders: &[Contender],
        programs: &Programs,
        placement: &Placement,
    ) -> anyhow::Result<Stage> {
        let site = Site::open(case.reach)?;
        let mut receivers = Vec::new();
        for _ in 0..case.targets {
            receivers.push(site.receiver(READ_BYTES)?);
        }

        let dead_ends = match case.question {
            Question::Isolation(_) => Some(DeadEnds::open(&site, programs.socat.as_deref())?),
            Question::Compare | Question::Steady => None,
        };

        let targets: Vec<SocketAddr> = receivers.iter().map(udp).collect::<anyhow::Result<_>>()?;
        let mut relays = Vec::new();
        for contender in contenders {
            let relay = site.at_relays(|| {
                let mut relay = Relay::spawn(*contender, programs, &targets, dead_ends.as_ref())?;
                relay.wait_until_ready(&mut receivers)?;
                anyhow::Ok(relay)
            })??;
            relay.pin(placement)?;
            relays.push(relay);
        }

        Ok(Stage {
            case,
            relays,
            trials: Vec::new(),
            receivers,
            load_cpus: placement.load_cpus.clone(),
            runs: 0,
            _dead_ends: dead_ends,
            site,
        })
    }

    /// Offers load in bursts to a relay.
    pub(crate) fn offer(
        &mut self,
        relay: usize,
        purpose: Purpose,
        rate_per_sec: f64,
        duration: Duration,
    ) -> anyhow::Result<&mut Trial> {
        let burst = self.case.burst();
        self.run(Some(relay), purpose, (rate_per_sec, duration), burst, Times::Ignore)
    }

    /// Offers evenly spaced datagrams, to a relay or directly to the first receiver, and records their latencies.
    pub(crate) fn time(
        &mut self,
        relay: Option<usize>,
        rate_per_sec: f64,
        duration: Duration,
    ) -> anyhow::Result<&mut Trial> {
        let purpose = if relay.is_some() { Purpose::Latency } else { Purpose::DirectLatency };
        self.run(relay, purpose, (rate_per_sec, duration), 1, Times::Note)
    }

    fn run(
        &mut self,
        relay: Option<usize>,
        purpose: Purpose,
        (rate_per_sec, duration): (f64, Duration),
        burst: usize,
        times: Times,
    ) -> anyhow::Result<&mut Trial> {
        let to = match relay {
            Some(relay) => Address::Udp(self.relays[relay].addr),
            None => self.receivers[0].address().clone(),
        };
        let (sizes, flows) = (self.case.sizes, self.case.senders.unwrap_or(1));
        let offer = Offer { to, flows, rate_per_sec, duration, sizes, burst, quiet: QUIET, times };

        self.runs += 1;
        let run = self.runs;
        let count = if relay.is_some() { self.receivers.len() } else { 1 };
        let receivers = &mut self.receivers[..count];
        let (site, load_cpus) = (&self.site, &self.load_cpus);
        let relay = relay.map(|relay| &self.relays[relay]);

        let usage = || -> anyhow::Result<(u64, u64)> {
            Ok((relay.map_or(Ok(0), Relay::cpu_ns)?, relay.map_or(0, Relay::drops)))
        };
        let own = || process::cpu_ns(std::process::id());
        let before = (usage()?, own()?, process::ticks());
        let (outcome, load_ns) = thread::scope(|scope| {
            let load = scope.spawn(|| {
                site.move_this_thread()?;
                host::pin_this_thread(load_cpus)?;
                let begin_ns = sys::clock::thread_cpu_ns();
                let outcome = spin::run(&offer, run, receivers, &AtomicBool::new(false))?;
                anyhow::Ok((outcome, sys::clock::thread_cpu_ns() - begin_ns))
            });
            load.join().ok().context("the load's thread panicked")?
        })?;

        let after = (usage()?, own()?, process::ticks());
        let relay_cpu_ns = after.0.0 - before.0.0;
        let machine_ns = outcome.elapsed_ns as f64 * sys::process::cpu_count() as f64;
        let busy_ns = (after.2.busy - before.2.busy) * TICK_NS;
        let ours_ns = relay_cpu_ns + load_ns + after.1.saturating_sub(before.1);

        self.trials.push(Trial {
            contender: relay.map(|relay| relay.contender),
            purpose,
            relay_cpu_ns,
            relay_drops: after.0.1 - before.0.1,
            foreign_share: busy_ns.saturating_sub(ours_ns) as f64 / machine_ns,
            stolen_share: ((after.2.stolen - before.2.stolen) * TICK_NS) as f64 / machine_ns,
            outcome,
        });
        self.trials.last_mut().context("a trial was just added")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::VARYING;
    use crate::relay::build_limitrelay;
    use crate::site::Reach;
    use load::spin::Sizes;

    #[test]
    fn the_yardstick_forwards_everything_with_and_without_runs() {
        for sizes in [Sizes::Equal(200), VARYING, Sizes::Equal(60_000)] {
            check(Case::new(Question::Compare, sizes, 2));
        }
    }

    #[test]
    fn the_yardstick_forwards_everything_over_a_cable() {
        if let Some(obstacle) = Site::obstacle(Reach::Cable) {
            assert!(std::env::var_os("REQUIRE_NETNS").is_none(), "{obstacle}");
            println!("skipped: {obstacle}");
            return;
        }
        check(Case::new(Question::Compare, VARYING, 2).over_cable());
    }

    fn check(case: Case) {
        let name = format!("weir-bench-limitrelay-{}-{:?}", std::process::id(), case.reach);
        let limitrelay = std::env::temp_dir().join(name);
        build_limitrelay(&limitrelay).unwrap();
        let weir = "/nonexistent".into();
        let rawrelay = std::path::PathBuf::from("rawrelay");
        let programs = Programs { weir, limitrelay: limitrelay.clone(), rawrelay, socat: None };
        let cpus = || "0".to_owned();
        let placement = Placement { load_cpus: cpus(), relay_cpus: cpus(), receive_cpus: cpus() };
        let contenders = [Contender::LimitRelay, Contender::LimitRelayRuns];
        let mut stage = Stage::set_up(case, &contenders, &programs, &placement).unwrap();
        for relay in 0..contenders.len() {
            let duration = Duration::from_millis(200);
            let trial = stage.offer(relay, Purpose::Warmup, 2_000.0, duration).unwrap();
            assert!(trial.outcome.is_complete(), "{trial:#?}");
            assert_eq!(trial.outcome.copies(), 2 * 400);
            assert!(trial.relay_cpu_ns > 0);
        }
        std::fs::remove_file(limitrelay).unwrap();
    }
}
