//! `weir view` in a build that has no HTTP client.

use crate::exit::Failure;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(_: &str, _: Option<&str>, _: &Path, _: SocketAddr) -> anyhow::Result<ExitCode> {
    let text =
        "this build cannot ask ClickHouse. Fix: cargo build --release -p weir --features http";
    Err(Failure::Usage.error(text))
}
