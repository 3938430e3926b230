//! `weir relay`: the daemon, configured by flags.

use crate::command::run::Common;
use crate::daemon::{self, Setup, Source};
use crate::exit::Failure;
use crate::progress::ProgressMode;
use config::{AdminListen, Config, ConfigError, list};
use std::process::ExitCode;

/// Tee datagrams from any number of addresses to any number of targets; no file needed.
///
/// Addresses are udp://HOST:PORT, HOST:PORT, :PORT (listen only), unix:/path, file:/path (targets) or null: (targets).
/// Keys of the configuration file may follow a question mark: 'udp://10.0.0.2:514?rate_limit=1000&sample=10'.
///
/// Ctrl-C sends what was received, for at most --drain-grace, and prints what happened to every datagram. Exit code 0:
/// everything was accounted for; 75: something was left, and is named; 1: something was lost, with --fail-on-loss.
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
    /// Memory for datagrams that targets have not sent yet, such as 8MiB.
    #[arg(long, value_name = "SIZE")]
    ring_size: Option<String>,
    /// Who sends: auto, inline or threaded.
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// How many sockets read the address, each with a thread: a number, or auto.
    #[arg(long, value_name = "COUNT")]
    sockets: Option<String>,
    /// How long a datagram may wait for others at high rates, such as 80us, or off.
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
        .map_err(|errors| Failure::Usage.error(list(&as_typed(errors, args))))?;
    config.admin.listen = AdminListen::Off;
    daemon::run(Setup {
        config: config.overridden_by(&args.common.overrides()?),
        source: Source::ReadOnce,
        progress: args.progress,
        last_ledger: args.common.last_ledger(),
    })
}

/// The flags that become options of every listener, by key.
fn listener_options(args: &Args) -> [(&'static str, &Option<String>); 6] {
    [
        ("receive_buffer", &args.receive_buffer),
        ("receive", &args.receive),
        ("ring_size", &args.ring_size),
        ("schedule", &args.schedule),
        ("sockets", &args.sockets),
        ("gather", &args.gather),
    ]
}

/// The address with the flags added as options. Options it already has take precedence.
fn with_options(address: &str, args: &Args) -> String {
    let (_, own) = config::split_options(address);
    let mut text = address.to_owned();

    for (key, value) in listener_options(args) {
        // What waits in a unix socket is charged to its senders: there is no receive buffer to set.
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

/// Attributes the mistakes to the flags as they were typed.
fn as_typed(mut errors: Vec<ConfigError>, args: &Args) -> Vec<ConfigError> {
    for error in &mut errors {
        let flag = listener_options(args).into_iter().find_map(|(key, value)| {
            let value = value.as_ref()?;
            let is_this = error.key == format!("listener.{key}")
                && error.origin.contains(&format!("{key}={value}"));
            is_this.then(|| format!("--{} {value}", key.replace('_', "-")))
        });
        // The message has the address itself, without what may be a password.
        let address = match error.key.as_str() {
            "listener.listen" if error.origin.starts_with("--listen ") => Some("--listen"),
            "listener.target.to" if error.origin.starts_with("--to ") => Some("--to"),
            _ => None,
        };
        if let Some(flag) = flag.or(address.map(str::to_owned)) {
            error.origin = flag;
            error.key.clear();
        }
    }
    errors.dedup();
    errors
}
