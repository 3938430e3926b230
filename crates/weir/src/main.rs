//! `weir`: the command line. Glue only: parse, call a library crate, print, exit with the right code.

#![forbid(unsafe_code)]

mod addresses;
mod allowed;
mod command;
mod daemon;
mod exit;
mod r#gen;
#[cfg(feature = "lab")]
mod lab_command;
#[cfg(not(feature = "lab"))]
mod no_lab;
mod progress;
mod refused;
mod verify;

use clap::{Parser, Subcommand};
use command::{config, doctor, ledger, namespace_helper, relay, run, sockets};
#[cfg(not(feature = "lab"))]
use no_lab as lab_command;
use std::process::ExitCode;

/// Telemetry that must survive congestion: a datagram tee that accounts for every datagram.
#[derive(Parser)]
#[command(name = "weir", version, propagate_version = true, disable_help_subcommand = true)]
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
    Gen(r#gen::Args),
    Lab(lab_command::Args),
    Ledger(ledger::Args),
    Sockets(sockets::Args),
    Verify(verify::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };

    let result = match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Relay(args) => relay::run(args),
        Command::NamespaceHelper(args) => namespace_helper::run(args),
        Command::Config(args) => config::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Gen(args) => r#gen::run(args),
        Command::Lab(args) => lab_command::run(args),
        Command::Ledger(args) => ledger::run(args),
        Command::Sockets(args) => sockets::run(args),
        Command::Verify(args) => verify::run(args),
    };
    exit::from_result(result)
}
