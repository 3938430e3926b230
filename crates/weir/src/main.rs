//! `weir`: the command line. Parses it, runs the command, and ends with its exit code.

#![forbid(unsafe_code)]

mod addresses;
mod allowed;
mod ask;
mod command;
mod daemon;
#[cfg(test)]
mod documented;
mod event_text;
mod exit;
mod flow_json;
mod live;
mod progress;
mod refused;
mod running;
mod screen;

use clap::{Parser, Subcommand};
use command::{
    completions, config, doctor, flows, r#gen, help, hop, lab, ledger, man, mitigate,
    namespace_helper, relay, reload, run, sink, sockets, stop, top, verify, version,
};
use std::process::ExitCode;

/// Telemetry that must survive congestion: a datagram tee that accounts for every datagram.
#[derive(Parser)]
#[command(name = "weir", version = version::VERSION_AND_COMMIT, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Relay(relay::Args),
    NamespaceHelper(namespace_helper::Args),
    Config(config::Args),
    Doctor(doctor::Args),
    Flows(flows::Args),
    Gen(r#gen::Args),
    Hop(hop::Args),
    Lab(lab::Args),
    Ledger(ledger::Args),
    Mitigate(mitigate::Args),
    Sink(sink::Args),
    Sockets(sockets::Args),
    Top(top::Args),
    Verify(verify::Args),
    Reload(reload::Args),
    Stop(stop::Args),
    Completions(completions::Args),
    Man(man::Args),
    Version(version::Args),
    Help(help::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };

    exit::from_result(run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Relay(args) => relay::run(args),
        Command::NamespaceHelper(args) => namespace_helper::run(args),
        Command::Config(args) => config::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Flows(args) => flows::run(args),
        Command::Gen(args) => r#gen::run(args),
        Command::Hop(args) => hop::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Ledger(args) => ledger::run(args),
        Command::Mitigate(args) => mitigate::run(args),
        Command::Sink(args) => sink::run(args),
        Command::Sockets(args) => sockets::run(args),
        Command::Top(args) => top::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Stop(args) => stop::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
        Command::Version(args) => version::run(args),
        Command::Help(args) => help::run(args),
    }
}
