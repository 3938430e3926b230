//! `weir relay`: the daemon, configured by flags.

use crate::command::run::Common;
use crate::daemon::{self, Setup, Source};
use crate::exit::Failure;
use crate::progress::ProgressMode;
use config::{AdminListen, Config, list};
use std::process::ExitCode;

/// Tee datagrams from any number of addresses to any number of targets; no file needed.
///
/// Addresses are udp://HOST:PORT, HOST:PORT, :PORT (listen only), unix:/path, stdin: (listen only), and for targets file:/path,
/// stdout: and null:. Lines of stdin: are datagrams, and the relay ends when they end; - is stdin: or stdout:.
/// Options of the configuration file ride behind a question mark: 'udp://10.0.0.2:514?rate_limit=1000&sample=10'.
///
/// Ctrl-C sends what was received, for at most --drain-grace, and prints what became of every datagram. Exit code 0:
/// everything was dealt with; 75: something was left, and is named; 1: lost something, with --fail-on-loss.
///
/// Example: weir relay --listen 127.0.0.1:5514 --to 10.0.0.1:514 --to file:copy.log
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to receive; may be given several times.
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<String>,
    /// Where to send every datagram; may be given several times.
    #[arg(long, value_name = "ADDRESS", required = true)]
    to: Vec<String>,
    /// Receive buffer to ask the kernel for, such as 16MiB.
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<String>,
    /// How the kernel hands datagrams over: single, gro (together) or auto.
    #[arg(long, value_name = "MODE")]
    receive: Option<String>,
    /// Memory for what targets have still to send, such as 8MiB.
    #[arg(long, value_name = "SIZE")]
    ring_size: Option<String>,
    /// Who sends: auto, inline or threaded.
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// How many sockets read the address, each with a thread: a number, or auto.
    #[arg(long, value_name = "COUNT")]
    sockets: Option<String>,
    /// How long a datagram may be kept waiting for others where many arrive, such as 80us, or off.
    #[arg(long, value_name = "DURATION")]
    gather: Option<String>,
    /// Progress on standard error, with a line for each target.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let listen: Vec<_> = args.listen.iter().map(|address| with_options(address, args)).collect();
    let mut config = Config::from_addresses(&listen, &args.to)
        .map_err(|errors| Failure::Usage.error(list(&errors)))?;
    config.admin.listen = AdminListen::Off;
    daemon::run(Setup {
        config: config.overridden_by(&args.common.overrides()?),
        source: Source::ReadOnce,
        progress: args.progress,
        last_ledger: args.common.last_ledger(),
    })
}

/// The address with the flags as its options; options that it has already go first.
fn with_options(address: &str, args: &Args) -> String {
    let (_, own) = config::split_options(address);
    let mut text = address.to_owned();

    for (key, value) in [
        ("receive_buffer", &args.receive_buffer),
        ("receive", &args.receive),
        ("ring_size", &args.ring_size),
        ("schedule", &args.schedule),
        ("sockets", &args.sockets),
        ("gather", &args.gather),
    ] {
        // What waits in a unix socket is charged to its senders: there is no buffer to ask for.
        let means_nothing = matches!(key, "receive_buffer" | "receive" | "sockets")
            && ["unix:/", "stdin:", "-"].iter().any(|begin| address.starts_with(begin));
        if let Some(value) = value
            && !means_nothing
            && !own.iter().any(|(own, _)| *own == key)
        {
            text.push(if text.contains('?') { '&' } else { '?' });
            text.push_str(&format!("{key}={value}"));
        }
    }
    text
}
