//! `weir help`: what a command is for and takes, as its `--help` says it.

use crate::{Cli, exit};
use clap::Parser;
use std::process::ExitCode;

/// Explain a command
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command, such as `config check`, or exit-codes; without one, all commands are listed
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.words == ["exit-codes"] {
        let lines = exit::codes().map(|(code, meaning)| format!("{code:>3}  {meaning}\n"));
        return exit::print_and_end(&lines.collect::<String>(), ExitCode::SUCCESS);
    }
    let words = args.words.iter().map(String::as_str);
    match Cli::try_parse_from(["weir"].into_iter().chain(words).chain(["--help"])) {
        // What `--help` prints is an error to clap.
        Err(said) => Ok(exit::usage(&said)),
        // A command that takes every word says itself what it is.
        Ok(cli) => crate::run(&cli),
    }
}
