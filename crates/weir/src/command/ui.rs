//! `weir ui`: prints the link to the page of a running daemon, or opens it.

mod open;

use crate::ask::{Daemon, ask, link};
use crate::exit::{self, Failure};
use std::process::ExitCode;
use std::time::Duration;

/// Print the link to the page of a running daemon, for a browser
///
/// Asks the daemon first, so a link that is printed works. A daemon that shows known users more than others has a token for each of
/// its runs, which its user, root and those of admin.socket_users can read: the link has it, or that of --token-file, behind its `#`,
/// which the browser keeps to itself. Whoever has the link has the token. Exit code 0: the link is printed; 64: a browser cannot open
/// this address; 69: no daemon answers; 77: it answers only with a token.
///
/// Example: weir ui --open
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: Daemon,
    /// Open the page in this user's browser instead, with no token on any command line
    #[arg(long)]
    open: bool,
}

/// Longest wait for an answer that the daemon has ready.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let admin = &args.daemon.admin;
    if admin.starts_with("unix:") || admin.starts_with('/') {
        return Err(Failure::Usage.error(format!(
            "--admin {admin}: a browser cannot open a unix socket. Fix: set [admin] listen to \"127.0.0.1:9464\" and leave out --admin"
        )));
    }

    let link = link(&args.daemon)?;
    // The page's own first question, which needs the token where there is one.
    ask(&args.daemon, "/ledger", ANSWER_TIMEOUT)?;
    if args.open {
        open::open(&link)?;
        return Ok(ExitCode::SUCCESS);
    }
    exit::print_and_end(&format!("{link}\n"), ExitCode::SUCCESS)
}
