//! `weir lab`: experiments in networks of the program's own.

mod machine;
mod privilege;
mod relay;
mod report_folder;
mod telemetry;
mod udp_vs_tcp;

use std::process::ExitCode;

/// Measure transports under packet loss, in networks that are made for it and gone afterwards
///
/// The host's own network is never touched: everything happens in network namespaces that live as long as the command,
/// in a user namespace if it is not started by root.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(clap::Subcommand)]
enum Experiment {
    UdpVsTcp(udp_vs_tcp::Args),
    Relay(relay::Args),
    Telemetry(telemetry::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.experiment {
        Experiment::UdpVsTcp(args) => udp_vs_tcp::run(args),
        Experiment::Relay(args) => relay::run(args),
        Experiment::Telemetry(args) => telemetry::run(args),
    }
}
