//! `weir view`: a fleet's page.

#[cfg_attr(not(feature = "http"), path = "view/no_serve.rs")]
mod serve;

use crate::exit::Failure;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Look at a fleet in a browser: whose records are complete, and what is slowest, from ClickHouse
///
/// Serves the page on this machine alone, until Ctrl-C: open http://127.0.0.1:9465/. Its figures are the answers of `weir query --at`
/// with the same address, and it can change nothing. Every program on this machine can ask what the database's user may read.
///
/// Example: weir view --at clickhouse://ch.example.net:8123/weir
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The fleet's ClickHouse: its address, with the keys of a sink as options, or the name of a sink in the configuration
    #[arg(long, value_name = "ADDRESS|NAME")]
    at: String,
    /// The host to show unless the page asks for another; else all of them
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The configuration that has the sink
    #[arg(short, long, value_name = "FILE", env = "WEIR_CONFIG", default_value = "weir.toml")]
    config: PathBuf,
    /// Where to serve the page: a loopback address
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9465")]
    listen: SocketAddr,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.listen.ip().is_loopback() {
        return Err(Failure::Usage.error(format!(
            "--listen {}: a fleet's page has no access control, so it is served on this machine alone. Fix: write --listen \
             127.0.0.1:{port}, and from elsewhere: ssh -L {port}:127.0.0.1:{port} HOST",
            args.listen,
            port = args.listen.port()
        )));
    }
    serve::run(&args.at, args.host.as_deref(), &args.config, args.listen)
}
