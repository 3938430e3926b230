//! Events of a running daemon, as they happen: a long poll at its admin address.

use super::Args;
use crate::ask::{Daemon, ask};
use crate::exit::{self, Failure, Reader};
use ::text::{date, escaped};
use serde_json::Value as Json;
use std::io::Write as _;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// How long the daemon waits for an event before it answers that there is none.
const WAIT: Duration = Duration::from_secs(20);
/// How much longer than that its answer may take.
const GRACE: Duration = Duration::from_secs(10);
/// Pause before asking again after a failed request.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints the events that the daemon still has, then each new one, until --duration has passed or the reader of the output goes
/// away. Waits for a daemon that restarts.
pub(super) fn follow(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.threshold.is_empty() {
        let wanted = "--threshold needs --listen or --pcap. Fix: leave it out, as a daemon has its own in its file";
        return Err(Failure::Usage.error(wanted));
    }
    let end = args.duration.map(|duration| Instant::now() + duration);
    let mut after = 0;
    // The first answer decides whether there is a daemon with [flows] at all.
    let mut answer = poll(&args.daemon, after, Duration::ZERO)?;
    loop {
        let (last, reader) = print(&answer, after, args.json)?;
        after = last;
        let left = end.map_or(WAIT, |end| end.saturating_duration_since(Instant::now()));
        if reader == Reader::Gone || left.is_zero() {
            return Ok(ExitCode::SUCCESS);
        }

        answer = match poll(&args.daemon, after, left.min(WAIT)) {
            Ok(answer) => answer,
            Err(error) => {
                // Ignore the error: standard error may be closed.
                let _ = writeln!(std::io::stderr(), "weir: {error}; trying again");
                thread::sleep(PAUSE.min(left));
                Json::Null
            }
        };
    }
}

fn poll(daemon: &Daemon, after: u64, wait: Duration) -> anyhow::Result<Json> {
    let page = format!("/flows/events?after={after}&wait={}ms", wait.as_millis());
    let body = ask(daemon, &page, wait + GRACE)?;
    serde_json::from_str(&body).map_err(|error| {
        Failure::Unavailable.error(format!("{}{page} is no JSON ({error})", daemon.admin))
    })
}

/// Prints the events of an answer. Returns the number of the last event seen.
fn print(answer: &Json, after: u64, as_json: bool) -> anyhow::Result<(u64, Reader)> {
    // A restarted daemon numbers events from the beginning.
    if answer["last_event"].as_u64().is_some_and(|last| last < after) {
        return Ok((0, Reader::Listens));
    }
    let missed = answer["missed"].as_u64().unwrap_or(0);
    if missed > 0 {
        let why = "the daemon has them no more: see events_max in [flows]";
        let _ = writeln!(std::io::stderr(), "weir: {missed} events are not shown, {why}");
    }

    let mut last = after;
    for event in answer["events"].as_array().into_iter().flatten() {
        let text = if as_json { format!("{event}\n") } else { line(event) };
        if exit::print(&text)? == Reader::Gone {
            return Ok((last, Reader::Gone));
        }
        last = event["id"].as_u64().unwrap_or(last);
    }
    Ok((last, Reader::Listens))
}

fn line(event: &Json) -> String {
    let time_ns = event["time_unix_ns"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    format!("{}  {}\n", date(time_ns), escaped(event["text"].as_str().unwrap_or_default()))
}
