//! `weir health`: whether a daemon gets data through, as an exit code.

use crate::ask::{Daemon, Refused, ask_or_hear_why_not};
use crate::exit::{self, Failure};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Say whether a daemon gets data through
///
/// Exit code 0: it does; 1: it does not, and the output says why and what helps; 69: no daemon answers. Unhealthy is a daemon whose
/// data loops hang, one that has not bound its listeners yet, one whose sinks all fail, one where nothing of a listener or of a
/// collector gets through, and one whose ledger did not balance within the last five minutes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: Daemon,
    /// Ask only whether its data loops move, for a supervisor that restarts what is unhealthy: a restart starts no store
    #[arg(long)]
    alive: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Longest wait for an answer. Below the time that container engines give a health check.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The status of an unhealthy daemon.
const UNHEALTHY: u16 = 503;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let page = if args.alive { "/healthz" } else { "/health" };
    let (text, code) = match ask_or_hear_why_not(&args.daemon, page, ANSWER_TIMEOUT)? {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(Refused { status: UNHEALTHY, text }) => (text, Failure::CheckFailed.code()),
        Err(Refused { status, text }) => {
            let why = text.lines().next().unwrap_or_default();
            return Err(Failure::Unavailable.error(format!(
                "{} answered {status}: {why}. Fix: name the admin address of a daemon of this version with --admin",
                args.daemon.admin
            )));
        }
    };
    let printed = if args.json {
        let lines: Vec<_> = text.lines().collect();
        format!("{:#}\n", json!({ "healthy": code == ExitCode::SUCCESS, "lines": lines }))
    } else {
        text + "\n"
    };
    exit::print_and_end(&printed, code)
}
