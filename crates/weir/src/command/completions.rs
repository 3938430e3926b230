//! `weir completions`: a shell script that completes commands and options.

use crate::{Cli, exit};
use clap::{CommandFactory, ValueEnum};
use clap_complete::generate;
use clap_complete::shells;
use std::process::ExitCode;

/// Print the completions for a shell
///
/// bash: weir completions bash > /etc/bash_completion.d/weir
/// zsh:  weir completions zsh > /usr/local/share/zsh/site-functions/_weir
/// fish: weir completions fish > ~/.config/fish/completions/weir.fish
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut command, mut script) = (Cli::command(), Vec::new());
    match args.shell {
        Shell::Bash => generate(shells::Bash, &mut command, "weir", &mut script),
        Shell::Zsh => generate(shells::Zsh, &mut command, "weir", &mut script),
        Shell::Fish => generate(shells::Fish, &mut command, "weir", &mut script),
    }
    exit::print_and_end(&String::from_utf8(script)?, ExitCode::SUCCESS)
}
