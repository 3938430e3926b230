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
#[cfg(all(feature = "store", feature = "http"))]
mod fleet;
mod flow_json;
mod live;
mod log;
mod progress;
#[cfg(feature = "store")]
mod question;
mod refused;
mod run_token;
mod running;
mod screen;
mod usage;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use command::{
    completions, config, doctor, flows, r#gen, health, help, hop, lab, ledger, man, mitigate,
    namespace_helper, relay, reload, run, sink, sockets, stop, syslog, top, ui, verify, version,
};
#[cfg(feature = "store")]
use command::{query, query_helper, view};
use screen::{Color, Room};
use std::ffi::OsString;
use std::process::ExitCode;
use std::{env, io};

/// Telemetry that must survive congestion: a datagram tee that accounts for every datagram.
#[derive(Parser)]
#[command(name = "weir", version = version::VERSION_AND_COMMIT, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// When to color the output
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Color::Auto)]
    color: Color,
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
    Health(health::Args),
    Ledger(ledger::Args),
    Mitigate(mitigate::Args),
    Sink(sink::Args),
    Sockets(sockets::Args),
    Syslog(syslog::Args),
    Top(top::Args),
    Ui(ui::Args),
    Verify(verify::Args),
    #[cfg(feature = "store")]
    Query(query::Args),
    #[cfg(feature = "store")]
    #[command(hide = true)]
    QueryHelper(query_helper::Args),
    #[cfg(feature = "store")]
    View(view::Args),
    Reload(reload::Args),
    Stop(stop::Args),
    Completions(completions::Args),
    Man(man::Args),
    Version(version::Args),
    Help(help::Args),
}

fn main() -> ExitCode {
    screen::choose(color_of(env::args_os()));
    let cli = match parse(env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };

    exit::from_result(run(&cli))
}

/// Parses a command line. Help is as wide as the terminal.
fn parse(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    // 0 means lines of any length.
    let columns = Room::of(&io::stdout()).columns.unwrap_or(0);
    let matches = Cli::command().term_width(columns).try_get_matches_from(words)?;
    Cli::from_arg_matches(&matches)
}

/// The value of `--color`, even on a command line that is wrong or asks for help.
fn color_of(words: impl Iterator<Item = OsString>) -> Color {
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let at = words.iter().position(|word| word == "--color").map(|at| at + 1);
    let after = at.and_then(|at| words.get(at)).map(String::as_str);
    let within = || words.iter().find_map(|word| word.strip_prefix("--color="));
    let named = after.or_else(within).and_then(|name| Color::from_str(name, false).ok());
    named.unwrap_or(Color::Auto)
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
        Command::Health(args) => health::run(args),
        Command::Ledger(args) => ledger::run(args),
        Command::Mitigate(args) => mitigate::run(args),
        Command::Sink(args) => sink::run(args),
        Command::Sockets(args) => sockets::run(args),
        Command::Syslog(args) => syslog::run(args),
        Command::Top(args) => top::run(args),
        Command::Ui(args) => ui::run(args),
        Command::Verify(args) => verify::run(args),
        #[cfg(feature = "store")]
        Command::Query(args) => query::run(args),
        #[cfg(feature = "store")]
        Command::QueryHelper(args) => query_helper::run(args),
        #[cfg(feature = "store")]
        Command::View(args) => view::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Stop(args) => stop::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
        Command::Version(args) => version::run(args),
        Command::Help(args) => help::run(args),
    }
}
