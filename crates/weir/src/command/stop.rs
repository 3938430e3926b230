//! `weir stop`: stops the running daemon, and reports whether everything was delivered.

use crate::ask;
use crate::command::ledger::tint;
use crate::exit::{self, Failure};
use crate::running::Daemon;
use crate::screen;
use std::io;
use std::process::ExitCode;
use std::time::Duration;
use text::units::{display_duration, parse_duration};

/// Stop the running daemon, and report what was left behind
///
/// Finds the daemon's process by its admin address, sends SIGTERM, waits until it has sent what it received, and ends with the
/// code that the daemon ends with. Exit code 0: everything was accounted for; 75: something was left behind, and is named; 2: the
/// ledger does not balance; 69: no daemon answers.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: ask::Daemon,
    /// Longest wait for the end; longer than the daemon's drain_grace
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let admin = &args.daemon;
    let daemon = Daemon::find(admin)?;

    let said = daemon.stop(admin, args.timeout)?.ok_or_else(|| {
        let what = match daemon.is_there() {
            true => format!(
                "the daemon (process {}) has not ended within {}",
                daemon.pid,
                display_duration(args.timeout)
            ),
            false => format!("the daemon (process {}) has ended without saying how", daemon.pid),
        };
        Failure::Unavailable.error(format!("{what}. Fix: read its log"))
    })?;

    // So that the addresses are free when the next daemon starts.
    daemon.wait_to_end(args.timeout);
    let text = screen::for_people(&io::stdout(), &said.text(), tint);
    exit::print_and_end(&text, ExitCode::from(said.code))
}
