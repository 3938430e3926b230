//! `weir help`: prints what `COMMAND --help` prints.

use crate::screen::Room;
use crate::{exit, parse};
use std::ffi::OsString;
use std::io;
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
        let text = Room::of(&io::stdout()).folded(&lines.collect::<String>());
        return exit::print_and_end(&text, ExitCode::SUCCESS);
    }
    let words = args.words.iter().map(String::as_str);
    match parse(["weir"].into_iter().chain(words).chain(["--help"]).map(OsString::from)) {
        // To clap, the output of `--help` is an error.
        Err(said) => Ok(exit::usage(&said)),
        // A command that accepts any word explains itself.
        Ok(cli) => crate::run(&cli),
    }
}
