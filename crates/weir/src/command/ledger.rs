//! `weir ledger`: what was received, what left, what was lost, where and why.

mod fit;
mod through;
mod watch;

use crate::ask::{Daemon, ask};
use crate::exit::{self, Failure, Reader};
use crate::live::{self, Next, wait};
use crate::progress::rewrites_lines;
use crate::screen::{self, Room, ink_of};
use ledger::{Snapshot, waterfall};
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use sys::signal::stop_flag;
use text::units::parse_duration;
use text::{Tint, cut};

/// Show what was received, what left, what was lost, where and why
///
/// Asks a running daemon for one snapshot of every hop. Exit code 0: every datagram and record is accounted for; 1: with
/// --fail-on-loss, something was lost that no setting asked for, was rejected by a store, or is uncertain; 2: the ledger
/// does not balance, or two ends of a link disagree, which is a defect of Weir; 69: no daemon answers.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: Daemon,
    /// The Weirs behind that one, in the order of the path: shows all their ledgers, whether both ends of each link agree,
    /// and what was lost from end to end
    #[arg(long, value_name = "ADDR", num_args = 1.., conflicts_with = "watch")]
    through: Vec<String>,
    /// Ask repeatedly, and show rates and the state of each sink; with --fail-on-loss, until something is lost
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s", value_parser = parse_duration)]
    watch: Option<Duration>,
    /// Print the snapshot as the daemon sends it
    #[arg(long)]
    json: bool,
    /// Exit with 1 if anything was lost, rejected or uncertain, other than by sampling, filters and limits that were asked for
    #[arg(long)]
    fail_on_loss: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.through.is_empty() {
        let others = args.through.iter().map(|admin| Daemon::at(admin, &args.daemon.proof));
        let all: Vec<Daemon> = std::iter::once(args.daemon.clone()).chain(others).collect();
        return through::run(&all, args.fail_on_loss, args.json);
    }
    match args.watch {
        Some(interval) => watch(args, interval),
        None => {
            let (body, snapshot) = fetch_with_body(&args.daemon)?;
            let text = if args.json { body + "\n" } else { for_people(&waterfall(&snapshot)) };
            exit::print_and_end(&text, verdict(args, &snapshot))
        }
    }
}

fn watch(args: &Args, interval: Duration) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let redraws = rewrites_lines(&io::stdout()) && !args.json;
    // The first answer decides whether there is a daemon at all. After that, wait for a daemon that restarts.
    let mut latest = Some(fetch_with_body(&args.daemon)?);
    let mut before: Option<Snapshot> = None;
    let mut code = ExitCode::SUCCESS;

    loop {
        if let Some((body, snapshot)) = latest.take() {
            let page = |room| watch::page(before.as_ref(), &snapshot, room);
            let room = Room::of(&io::stdout());
            let text = match (args.json, redraws) {
                (true, _) => body + "\n",
                (false, true) => {
                    let page = ink_of(&io::stdout()).paint(&page(room), tint);
                    format!("\x1b[H\x1b[J{page}")
                }
                (false, false) => page(Room { rows: None, ..room }) + "\n",
            };

            code = verdict(args, &snapshot);
            if args.fail_on_loss && code != ExitCode::SUCCESS {
                return exit::print_and_end(&text, code);
            }
            if exit::print(&text)? == Reader::Gone {
                return Ok(code);
            }
            before = Some(snapshot);
        }

        if wait(stop, Instant::now() + interval) == Next::Stop {
            live::end();
            return Ok(code);
        }
        match fetch_with_body(&args.daemon) {
            Ok(answer) => latest = Some(answer),
            // Shown next to the figures, which stay as they are until the daemon is back.
            Err(error) => say_trouble(
                &format!("weir: {error}; trying again"),
                redraws.then(|| Room::of(&io::stdout())),
            ),
        }
    }
}

/// Prints a message below the figures. If the figures are redrawn, it repeatedly overwrites one line, cut to `drawn_over`.
fn say_trouble(text: &str, drawn_over: Option<Room>) {
    let text = match drawn_over {
        Some(room) => {
            format!("\r\x1b[K{}", cut(text, room.columns.unwrap_or(usize::MAX).saturating_sub(3)))
        }
        None => format!("{text}\n"),
    };
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The text folded to the terminal's width and with its colors.
fn for_people(text: &str) -> String {
    screen::for_people(&io::stdout(), text, tint)
}

/// The tint of a ledger line.
pub(crate) fn tint(line: &str) -> Tint {
    let is_inside = line.starts_with(' ');
    match line.split_whitespace().next() {
        Some("lost" | "rejected" | "uncertain" | "UNACCOUNTED" | "trouble:") if is_inside => {
            Tint::Alarm
        }
        Some("skip") if is_inside => Tint::Dim,
        _ if line.starts_with("largest loss: ") => Tint::Alarm,
        _ if line.starts_with("left behind: ") => Tint::Alarm,
        _ if line.starts_with("nothing lost") => Tint::Good,
        _ if line.contains("THE ENDS DISAGREE") => Tint::Alarm,
        _ => Tint::Plain,
    }
}

fn verdict(args: &Args, snapshot: &Snapshot) -> ExitCode {
    if !snapshot.is_balanced() {
        Failure::Accounting.code()
    } else if args.fail_on_loss && !snapshot.unintended_losses().is_empty() {
        Failure::CheckFailed.code()
    } else {
        ExitCode::SUCCESS
    }
}

/// Asks a daemon for a snapshot.
pub(crate) fn fetch(daemon: &Daemon) -> anyhow::Result<Snapshot> {
    fetch_with_body(daemon).map(|(_, snapshot)| snapshot)
}

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

fn fetch_with_body(daemon: &Daemon) -> anyhow::Result<(String, Snapshot)> {
    let body = ask(daemon, "/ledger", ANSWER_TIMEOUT)?;
    let snapshot = serde_json::from_str(&body).map_err(|error| {
        Failure::Unavailable.error(format!(
            "{} is not a ledger ({error}); is it the admin address of a daemon of this version?",
            daemon.admin
        ))
    })?;

    Ok((body, snapshot))
}
