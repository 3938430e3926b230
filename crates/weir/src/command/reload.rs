//! `weir reload`: makes the running daemon read its file again, and reports the result.

use crate::ask;
use crate::exit::{self, Failure};
use crate::running::Daemon;
use crate::screen::Room;
use std::io;
use std::process::ExitCode;
use std::time::Duration;
use text::units::{display_duration, parse_duration};

/// Make the running daemon read its file again, and report what changed or why nothing did
///
/// Finds the daemon's process by its admin address, sends SIGHUP and waits for the result. Exit code 0: the file is in force; 78:
/// it was refused, and the former configuration stays in force; 69: no daemon answers, or a part of the change failed.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: ask::Daemon,
    /// Longest wait for the result
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let admin = &args.daemon;
    let daemon = Daemon::find(admin)?;
    if daemon.config_file.is_none() {
        return Err(Failure::Usage.error(
            "this daemon has no file to read again, as it was started by `weir relay` or `weir run -c -`. Fix: stop it and start it anew",
        ));
    }

    let said = daemon.reload(admin, args.timeout)?.ok_or_else(|| {
        let what = match daemon.is_there() {
            true => format!(
                "the daemon (process {}) has not said within {} how the reload went, or answers at another address now",
                daemon.pid,
                display_duration(args.timeout)
            ),
            false => format!("the daemon (process {}) has ended", daemon.pid),
        };
        Failure::Unavailable.error(format!("{what}. Fix: read its log"))
    })?;

    match said.code {
        0 => {
            let text = Room::of(&io::stdout()).folded(&said.text());
            exit::print_and_end(&text, ExitCode::SUCCESS)
        }
        code => {
            crate::daemon::say_folded(&said.text());
            Ok(ExitCode::from(code))
        }
    }
}
