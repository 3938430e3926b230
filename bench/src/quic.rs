//! `bench quic`: compares Weir's repaired link with QUIC in the lab's network, run like the lab's own transports.

mod report;
mod tls;
mod transport;

use crate::machine::Machine;
use anyhow::Context;
use lab::experiment::model::Schedule;
use lab::experiment::preset::Plan;
use lab::experiment::runner::{self, Progress};
use lab::network::{Privilege, Span};
use lab::transport::Transport;
use report::Report;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Compares Weir's repaired link with QUIC (quinn) over a path that loses packets: what arrives, how late, and in how many packets.
/// Needs root.
#[derive(clap::Args)]
pub(crate) struct QuicArgs {
    /// Losses in percent, one way, of the whole path.
    #[arg(long, value_delimiter = ',', default_value = "5,20")]
    loss: Vec<f64>,
    /// Packets of a flow that are lost one after another, on average. [default: each by itself]
    #[arg(long)]
    loss_burst: Option<f64>,
    /// Time there and back that the network adds, in milliseconds.
    #[arg(long, default_value_t = 20)]
    round_trip_ms: u64,
    /// Messages per second of each flow.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Length of a run in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Runs of each transport at each loss, all at the same time.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Which transports: those of `weir lab udp-vs-tcp`, and quic-bbr, quic-bbr-acks, quic-cubic.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "udp,weir-hop,quic-bbr,quic-bbr-acks,quic-cubic"
    )]
    transports: Vec<String>,
    /// Folder to whose README.md and runs.csv this is added.
    #[arg(long)]
    save: Option<PathBuf>,
}

pub(crate) fn run(args: &QuicArgs) -> anyhow::Result<()> {
    let plan = plan(args);
    Privilege::acquire().context("building the lab's network")?;
    let machine = Machine::read();
    let mut results =
        runner::run_among(&known(), &plan, &AtomicBool::new(false), &Progress::default())?;
    let place = |name: &str| plan.transports.iter().position(|one| one == name);
    results.points.sort_by(|a, b| {
        let by_loss = a.configured_loss.total_cmp(&b.configured_loss);
        by_loss.then(place(a.transport.as_str()).cmp(&place(b.transport.as_str())))
    });

    let report = Report { machine, plan, results };
    report.print()?;
    match &args.save {
        Some(folder) => report.add_to(folder),
        None => Ok(()),
    }
}

/// Messages of 1,000 bytes that are due at fixed times, independent of earlier ones.
fn plan(args: &QuicArgs) -> Plan {
    Plan {
        preset: "",
        losses: args.loss.iter().map(|percent| percent / 100.0).collect(),
        transports: args.transports.clone(),
        schedules: vec![Schedule::OpenLoop],
        runs: args.runs,
        duration: Duration::from_secs(args.seconds),
        rate_per_sec: args.rate.into(),
        span: Span {
            round_trip: Duration::from_millis(args.round_trip_ms),
            bits_per_sec: None,
            burst_packets: args.loss_burst,
        },
        ..Plan::quick()
    }
}

/// The lab's transports, and QUIC.
fn known() -> Vec<Box<dyn Transport>> {
    let quic = transport::all().into_iter().map(|quic| Box::new(quic) as Box<dyn Transport>);
    lab::transport::all().into_iter().chain(quic).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::need_root_netns;

    #[test]
    fn quic_delivers_every_message_where_a_fifth_is_lost() {
        if !need_root_netns() {
            return;
        }
        let transports = ["quic-bbr", "quic-bbr-acks"].map(str::to_owned).to_vec();
        let plan = Plan {
            preset: "",
            losses: vec![0.2],
            transports,
            schedules: vec![Schedule::OpenLoop],
            runs: 1,
            duration: Duration::from_secs(3),
            ..Plan::quick()
        };
        let results =
            runner::run_among(&known(), &plan, &AtomicBool::new(false), &Progress::default())
                .unwrap();
        assert_eq!(results.points.len(), 2, "{:?}", results.notes);
        for run in results.points.iter().flat_map(|point| &point.runs) {
            assert_eq!((run.failure.as_str(), run.duplicates, run.offered), ("", 0, 300));
            // A busy host may delay the last messages by more than the second that they have.
            assert!(run.delivered > 250, "{} of {}", run.delivered, run.sent);
            let link = run.link.unwrap();
            assert!(link.is_agreed() && link.packets > run.delivered, "{link:?}");
            assert!(link.report_bytes > 0, "{link:?}");
        }
    }
}
