//! `weir lab`, in a build without it.

use crate::exit::Failure;
use std::ffi::OsString;
use std::process::ExitCode;

/// Measure transports under packet loss (not in this build)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whatever the command would take: all of it gets the same answer.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let words: String = args.words.iter().map(|word| format!(" {}", word.display())).collect();
    Err(Failure::Unavailable.error(format!(
        "cannot run `weir lab{words}`: this build of weir has no lab, as in the container image. Fix: use one that was built with \
         `cargo build --release --package weir`"
    )))
}
