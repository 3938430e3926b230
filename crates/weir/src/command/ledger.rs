//! `weir ledger`: what was received, what left, what was lost, where and why.

use crate::exit::{self, Failure, Reader};
use crate::progress::rewrites_lines;
use ledger::{HopKind, HopSnapshot, Snapshot, waterfall};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use text::grouped;
use text::units::parse_duration;

/// Show what was received, what left, what was lost, where and why
///
/// Asks a running daemon for one snapshot of every hop. Exit code 0: every datagram is accounted for; 1: with
/// --fail-on-loss, datagrams were lost that nobody asked to drop; 2: the ledger does not balance, which is a bug of
/// Weir's; 69: no daemon answers.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The daemon's admin address
    #[arg(long, env = "WEIR_URL", default_value = "http://127.0.0.1:9464")]
    url: String,
    /// Ask again and again, and show rates; with --fail-on-loss, until something is lost
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s", value_parser = parse_duration)]
    watch: Option<Duration>,
    /// Print the snapshot as the daemon sends it
    #[arg(long)]
    json: bool,
    /// Exit with 1 if datagrams were lost, other than by sampling, filters and limits that were asked for
    #[arg(long)]
    fail_on_loss: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args.watch {
        Some(interval) => watch(args, interval),
        None => {
            let (body, snapshot) = fetch_with_body(&args.url)?;
            let text = if args.json { body + "\n" } else { waterfall(&snapshot) };
            exit::print_and_end(&text, verdict(args, &snapshot))
        }
    }
}

fn watch(args: &Args, interval: Duration) -> anyhow::Result<ExitCode> {
    let redraws = rewrites_lines(&io::stdout()) && !args.json;
    // The first answer decides whether there is a daemon at all; after it, a daemon that restarts is waited for.
    let mut latest = Some(fetch_with_body(&args.url)?);
    let mut before: Option<Snapshot> = None;

    loop {
        if let Some((body, snapshot)) = latest.take() {
            let text = match (args.json, redraws) {
                (true, _) => body + "\n",
                (false, true) => format!("\x1b[H\x1b[J{}", page(before.as_ref(), &snapshot)),
                (false, false) => page(before.as_ref(), &snapshot) + "\n",
            };

            let code = verdict(args, &snapshot);
            if args.fail_on_loss && code != ExitCode::SUCCESS {
                return exit::print_and_end(&text, code);
            }
            if exit::print(&text)? == Reader::Gone {
                return Ok(code);
            }
            before = Some(snapshot);
        }

        thread::sleep(interval);
        match fetch_with_body(&args.url) {
            Ok(answer) => latest = Some(answer),
            // Said next to the figures, which stay as they are until the daemon is back.
            Err(error) => drop(writeln!(io::stderr(), "weir: {error}; trying again")),
        }
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

/// Asks the daemon at `url` for a snapshot. `url` is its admin address, with or without scheme and path.
pub(crate) fn fetch(url: &str) -> anyhow::Result<Snapshot> {
    fetch_with_body(url).map(|(_, snapshot)| snapshot)
}

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer: some 100,000 hops.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

fn fetch_with_body(url: &str) -> anyhow::Result<(String, Snapshot)> {
    let url = ledger_url(url)?;

    let agent: ureq::Agent = ureq::Agent::config_builder()
        // The daemon is on this host or a neighbor: a proxy from the environment is for something else.
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(ANSWER_TIMEOUT))
        .build()
        .into();

    let mut response = agent.get(&url).call().map_err(|error| no_answer(&url, &error))?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    let body = body.map_err(|error| no_answer(&url, &error))?.trim_end().to_owned();

    if !status.is_success() {
        let why = body.lines().next().unwrap_or_default();
        return Err(Failure::Unavailable.error(format!("{url} answered {status}: {why}")));
    }

    let snapshot = serde_json::from_str(&body).map_err(|error| {
        Failure::Unavailable.error(format!(
            "{url} is not a ledger ({error}); is it the admin address of a daemon of this version?"
        ))
    })?;

    Ok((body, snapshot))
}

fn no_answer(url: &str, error: &ureq::Error) -> anyhow::Error {
    if matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_)) {
        return Failure::Usage
            .error(format!("{url} is not an address ({error}); write http://HOST:PORT"));
    }
    let why = match error {
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    };
    Failure::Unavailable.error(format!(
        "no daemon answers at {url}: {why}; start one with `weir run -c weir.toml`, give `weir relay` --admin 127.0.0.1:9464, or name \
         another admin address with --url"
    ))
}

/// The address of the ledger on the daemon that `url` names.
fn ledger_url(url: &str) -> anyhow::Result<String> {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => {
            let message =
                format!("{url} does not start with http://, which is what a daemon speaks");
            return Err(Failure::Usage.error(message));
        }
        None => url,
    };
    let host = rest.trim_end_matches('/');
    let host = host.strip_suffix("/ledger").unwrap_or(host);
    Ok(format!("http://{host}/ledger"))
}

/// What `--watch` shows: the water-fall, and the rates since the snapshot before.
fn page(before: Option<&Snapshot>, now: &Snapshot) -> String {
    let uptime_s = now.uptime_ms as f64 / 1e3;
    let mut text = format!("run {}, up {uptime_s:.1} s\n\n{}", now.run_id, waterfall(now));
    match before {
        None => {}
        Some(before) if before.run_id != now.run_id => {
            text.push_str("\nthe daemon has restarted: its counters began again\n");
        }
        Some(before) => text.push_str(&rates(before, now)),
    }
    text
}

fn rates(before: &Snapshot, now: &Snapshot) -> String {
    let elapsed_s = now.uptime_ms.saturating_sub(before.uptime_ms) as f64 / 1e3;
    if elapsed_s <= 0.0 {
        return String::new();
    }

    let mut text =
        format!("\n{:<34}    {:>15}      {:>15}       {:>12}\n", "per second", "in", "out", "lost");
    for hop in &now.hops {
        let earlier = before.hop(hop.hop, &hop.origin, hop.target.as_deref());
        let per_second = |count: &dyn Fn(&HopSnapshot) -> u64| {
            let gained = count(hop).saturating_sub(earlier.map_or(0, count));
            grouped((gained as f64 / elapsed_s).round() as u64)
        };

        let name = match (&hop.target, hop.hop) {
            (None, kind) => format!("{} {}", hop.origin, kind.label()),
            (Some(target), HopKind::Egress) => format!("{} -> {target}, network", hop.origin),
            (Some(target), HopKind::Receiver) => format!("{} -> {target}, receiver", hop.origin),
            (Some(target), _) => format!("{} -> {target}", hop.origin),
        };
        let name = match name.chars().count() {
            0..=34 => name,
            _ => format!("{name}\n{:<34}", ""),
        };

        writeln!(
            text,
            "{name:<34}    {:>15}      {:>15}       {:>12}",
            per_second(&|hop| hop.received.count),
            per_second(&|hop| hop.delivered.count),
            per_second(&|hop| hop.dropped_total().count),
        )
        .expect("writing to a string cannot fail");
    }

    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder, Reason};

    fn snapshot(run_id: &str, uptime_ms: u64, received: u64, dropped: u64) -> Snapshot {
        let amount = |count| Amount { count, bytes: count * 10 };
        let hop = HopBuilder::new(HopKind::Target, "syslog", Some("old"), amount(0))
            .delivered(amount(received - dropped))
            .dropped(Reason::QueueFull, amount(dropped))
            .finish(amount(received));
        Snapshot { run_id: run_id.into(), uptime_ms, hops: vec![hop], ..Snapshot::default() }
    }

    #[test]
    fn rates_are_per_second_of_the_daemon_s_clock() {
        let text = rates(&snapshot("a", 1_000, 100, 0), &snapshot("a", 3_000, 20_100, 1_000));
        let line = text.lines().find(|line| line.starts_with("syslog -> old")).unwrap();
        let columns: Vec<_> = line.split_whitespace().collect();
        assert_eq!(columns, ["syslog", "->", "old", "10,000", "9,500", "500"]);
    }

    #[test]
    fn a_restart_shows_no_rates() {
        let text = page(Some(&snapshot("a", 9_000, 100, 0)), &snapshot("b", 1_000, 5, 0));
        assert!(text.contains("restarted"), "{text}");
        assert!(!text.contains("per second"), "{text}");
    }

    #[test]
    fn addresses_with_and_without_scheme_and_path() {
        for url in [
            "127.0.0.1:9464",
            "http://127.0.0.1:9464",
            "http://127.0.0.1:9464/",
            "http://127.0.0.1:9464/ledger",
        ] {
            assert_eq!(ledger_url(url).unwrap(), "http://127.0.0.1:9464/ledger");
        }
        assert!(ledger_url("https://127.0.0.1:9464").is_err());
    }
}
