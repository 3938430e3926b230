//! `--at` in a build that has no HTTP client.

use super::Args;
use crate::exit::Failure;
use std::process::ExitCode;

pub(super) fn run(_: &Args, _: &str, _: Option<&str>, _: &str) -> anyhow::Result<ExitCode> {
    let text =
        "this build cannot ask ClickHouse. Fix: cargo build --release -p weir --features http";
    Err(Failure::Usage.error(text))
}

pub(super) fn schema(args: &Args, at: &str) -> anyhow::Result<ExitCode> {
    run(args, at, None, "")
}
