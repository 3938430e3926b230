//! `weir verify`: receives what `weir gen` sent and accounts for every datagram.

mod text;

use crate::addresses;
use crate::ask::{Daemon, Proof};
use crate::exit::{self, Failure};
use crate::progress::{ProgressMode, with_progress};
use crate::refused::by_receiver;
use crate::screen::{Room, ink_of};
use ::ledger::Snapshot;
use ::load::join::{self, Join, Observed};
use ::load::verify::{Done, Options, Progress, Report, Until, Verifier};
use ::text::grouped;
use ::text::units::{parse_count, parse_count_of, parse_duration, parse_size};
use config::ListenAddress;
use serde::Serialize;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::signal::stop_flag;

/// Receive datagrams from `weir gen` and account for every one
///
/// Ends by Ctrl-C, --duration, --count or --until-done, whichever comes first, and exits with 1 if anything is missing,
/// duplicate, corrupt or truncated, or if nothing arrived. Start it before the generator: a run is judged from its
/// first datagram.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen: udp://HOST:PORT, HOST:PORT, :PORT, a multicast group, or unix:/path; may be given several times
    #[arg(long, value_name = "ADDR", required = true)]
    listen: Vec<ListenAddress>,
    /// Interface that joins multicast groups: a name, or its IPv4 address
    #[arg(long, value_name = "NAME")]
    multicast_interface: Option<String>,
    /// Receive buffer to ask for
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size::<usize>)]
    receive_buffer: usize,
    /// Stop after this time
    #[arg(long, value_name = "TIME", visible_alias = "deadline", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Stop when each listener has received N different datagrams
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    count: Option<u64>,
    /// Stop when the senders have said that they are done
    #[arg(long)]
    until_done: bool,
    /// Runs of the generator to wait for, with --until-done
    #[arg(long, value_name = "N", default_value = "1", requires = "until_done", value_parser = parse_count::<usize>)]
    runs: usize,
    /// Silence to wait for after the end while datagrams are missing, with --until-done
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "until_done", value_parser = parse_duration)]
    idle: Duration,
    /// Silence after which the end must have been lost, with --until-done
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "until_done", value_parser = parse_duration)]
    silence: Duration,
    /// Age from which a datagram counts as late
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    late_after: Duration,
    /// Sequence numbers of a stream within which duplicates are distinguished from late datagrams; each costs a bit
    #[arg(long, value_name = "N", default_value = "1Mi", value_parser = parse_count_of::<1, { 1 << 30 }, usize>)]
    window: usize,
    /// Streams (sender and flow of a run) to follow on each listener
    #[arg(long, value_name = "N", default_value = "1024", value_parser = parse_count::<usize>)]
    streams_max: usize,
    /// Pause between two reads: less CPU, but latencies include it
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    read_interval: Duration,
    /// Admin address of a relay in between: say where each datagram was lost, by its ledger
    #[arg(long, alias = "ledger", value_name = "ADDR")]
    admin: Option<String>,
    #[command(flatten)]
    proof: Proof,
    /// The relay's target that sends here, by its name in the ledger; for several listeners in their order
    #[arg(long, value_name = "NAME", requires = "admin")]
    ledger_target: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// No report for people and no progress
    #[arg(long, short)]
    quiet: bool,
    /// Progress on standard error
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let verifier = Verifier::bind(options(args)?).map_err(|error| by_receiver(&error))?;
    let stop = stop_flag()?;

    // The generator may start as soon as we say that we listen, so ask the relay before.
    let daemon = args.admin.as_deref().map(|admin| Daemon::at(admin, &args.proof));
    let before = daemon.as_ref().map(first_ledger).transpose()?;
    if !args.quiet {
        announce(args, &verifier);
    }

    let progress = verifier.progress();
    let start = Instant::now();
    let mode = if args.quiet { ProgressMode::Off } else { args.progress };
    let report =
        with_progress(mode, || progress_line(&progress, start.elapsed()), || verifier.run(stop));

    let joined = match &daemon {
        Some(daemon) => join_all(args, daemon, before.as_ref(), &report),
        None => Ok(Vec::new()),
    };
    let text = result(args, &report, joined.as_deref().unwrap_or_default())?;
    let verdict = if report.clean { ExitCode::SUCCESS } else { Failure::CheckFailed.code() };

    let ended = exit::print_and_end(&text, verdict);
    joined?;
    ended
}

/// Longest wait for a relay that is started at the same time.
const RELAY_WAIT: Duration = Duration::from_secs(2);
/// Time between two attempts to reach the relay.
const RELAY_ASK_INTERVAL: Duration = Duration::from_millis(100);

fn first_ledger(daemon: &Daemon) -> anyhow::Result<Snapshot> {
    let start = Instant::now();
    loop {
        match crate::command::ledger::fetch(daemon) {
            Err(_) if start.elapsed() < RELAY_WAIT => thread::sleep(RELAY_ASK_INTERVAL),
            answer => return answer,
        }
    }
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let done =
        args.until_done.then_some(Done { runs: args.runs, idle: args.idle, silence: args.silence });
    Ok(Options {
        listeners: args.listen.iter().map(addresses::listener).collect::<Result<_, _>>()?,
        multicast_interface: args.multicast_interface.clone(),
        receive_buffer_bytes: args.receive_buffer,
        until: Until { duration: args.duration, count: args.count, done },
        late_after: args.late_after,
        streams_max: args.streams_max,
        window: args.window,
        read_interval: args.read_interval,
    })
}

/// Reports on standard error that the sockets are bound. A script that waits for this line may then start the generator.
fn announce(args: &Args, verifier: &Verifier) {
    let mut text = String::new();

    for (address, granted) in verifier.addresses().iter().zip(verifier.receive_buffers_bytes()) {
        let datagrams = granted / sys::socket::charged_bytes(200);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "listening on {address}, receive buffer {} bytes: about {} datagrams of 200 bytes",
            grouped(granted as u64),
            grouped(datagrams as u64),
        );
        if granted < args.receive_buffer {
            let _ = write!(
                text,
                " (asked for {}; `sysctl -w net.core.rmem_max={}` allows it)",
                grouped(args.receive_buffer as u64),
                args.receive_buffer.div_ceil(2),
            );
        }
        text.push('\n');
    }
    crate::daemon::say_folded(&text);
}

fn progress_line(listeners: &[Progress], elapsed: Duration) -> String {
    let mut line = format!("{:.1} s", elapsed.as_secs_f64());
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);

    for listener in listeners {
        // Writing to a string does not fail.
        let _ = write!(
            line,
            "  [received {}  missing {}",
            grouped(count(&listener.received)),
            grouped(count(&listener.missing)),
        );
        for (label, counted) in
            [("faulty", &listener.faulty), ("dropped by our kernel", &listener.kernel_dropped)]
        {
            let count = count(counted);
            if count > 0 {
                let _ = write!(line, "  {label} {}", grouped(count));
            }
        }
        line.push(']');
    }

    line
}

/// Joins each listener's report with the relay's ledger, in the order of the listeners.
fn join_all(
    args: &Args,
    daemon: &Daemon,
    before: Option<&Snapshot>,
    report: &Report,
) -> anyhow::Result<Vec<Join>> {
    let after = crate::command::ledger::fetch(daemon)?;

    let listeners = report.listeners.iter().enumerate();
    listeners
        .map(|(idx, listener)| {
            let wanted = args.ledger_target.get(idx).map(String::as_str);
            let route = join::route(&after, &listener.listen, wanted)
                .map_err(|message| Failure::Usage.error(message))?;
            Ok(join::join(before, &after, &route, Observed::of(listener)))
        })
        .collect()
}

/// The JSON report.
#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// One entry per listener, with `--admin`.
    #[serde(skip_serializing_if = "<[Join]>::is_empty")]
    ledger: &'a [Join],
}

fn result(args: &Args, report: &Report, joined: &[Join]) -> serde_json::Result<String> {
    Ok(match (args.json, args.quiet) {
        (true, _) => serde_json::to_string_pretty(&Output { report, ledger: joined })? + "\n",
        (false, true) => String::new(),
        (false, false) => {
            let out = io::stdout();
            ink_of(&out).paint(&text::report(report, joined, Room::of(&out)), text::tint)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_progress() {
        let progress = Progress::default();
        for (counter, count) in [
            (&progress.received, 12_345_678),
            (&progress.missing, 12_345),
            (&progress.faulty, 67),
            (&progress.kernel_dropped, 8_901),
        ] {
            counter.store(count, Ordering::Relaxed);
        }
        let line = progress_line(&[progress, Progress::default()], Duration::from_secs(61));
        crate::screen::check("verify-progress", |room| room.filled(&line));
    }
}
