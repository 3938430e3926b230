//! Experiments: runs of transports over a path that loses packets, and their measurements.

mod disturbance;
pub mod flow;
pub mod model;
pub mod preset;
pub(crate) mod probe;
pub mod runner;

use crate::About;
use crate::network::Privilege;
use model::{Experiment, LossIs, Settings};
use preset::Plan;
use runner::Results;
use std::time::Duration;

/// Time between two samples of the age of information.
pub const AGE_INTERVAL: Duration = Duration::from_millis(10);

impl Experiment {
    /// Combines a plan and its results. `loss_is` is how the loss rates on the command line were
    /// meant.
    pub fn of(
        plan: &Plan,
        loss_is: LossIs,
        privilege: Privilege,
        results: Results,
        about: About,
    ) -> Experiment {
        let transports = results.transports.iter().map(|(name, _)| name.clone()).collect();
        let options = results.transports.into_iter().filter(|(_, options)| !options.is_empty());

        let settings = Settings {
            message_bytes: plan.message_bytes,
            rate_per_sec: plan.rate_per_sec,
            duration_s: plan.duration.as_secs_f64(),
            runs: plan.runs,
            loss_is,
            schedules: plan.schedules.clone(),
            transports,
            age_sample_interval_ms: AGE_INTERVAL.as_secs_f64() * 1e3,
            injector: results.loss_at.label().to_owned(),
            privilege: privilege.label().to_owned(),
            round_trip_ms: plan.span.round_trip.as_secs_f64() * 1e3,
            path_bits_per_sec: plan.span.bits_per_sec,
            loss_burst_packets: plan.span.burst_packets,
            mtu_bytes: results.properties.mtu_bytes,
            gso_max_segs: results.properties.gso_max_segs,
            parallel_runs: (plan.flows_of_one_loss() * plan.parallel_losses()) as u32,
            transport_options: options.collect(),
        };

        let preset = plan.preset.to_owned();
        Experiment { about, preset, settings, points: results.points }
    }
}
