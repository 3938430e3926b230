//! `weir mitigate`: checks that a BGP speaker takes our routes, and runs the program that ExaBGP starts.

use crate::exit::{self, Failure};
use crate::refused;
use anyhow::Context;
use config::SpeakerAddress;
use mitigate::speaker::bridge;
use mitigate::{
    Action, Attack, AuditLog, Community, Control, Entry, Event, Flow, Limits, Mode, OnStop,
    Options, Policy, Prefix, Verdict,
};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use sys::signal::stop_flag;
use text::units::parse_duration;

/// Time between two checks for a signal.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The name of the test attack.
const NAME: &str = "check";

/// Have routers drop attacks, by routes that a BGP speaker announces
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    Check(CheckArgs),
    Bridge(BridgeArgs),
}

/// Judge a route as in an attack, and announce it for a while with --announce
///
/// Announces nothing without --announce. With it, the route is withdrawn after --for, and at Ctrl-C. Exits with 1 if the
/// rules refuse the route, 69 if the speaker does not take it.
#[derive(clap::Args)]
struct CheckArgs {
    /// The address or prefix that is attacked
    target: Prefix,
    /// The BGP speaker: `gobgp://HOST:PORT` or `exabgp:/PATH/TO/SOCKET`
    #[arg(long, value_name = "ADDRESS", default_value = "gobgp://127.0.0.1:50051")]
    speaker: String,
    /// A network of your own; nothing outside is announced; may be given several times
    #[arg(long, value_name = "PREFIX", required = true)]
    own_network: Vec<Prefix>,
    /// A prefix that is never touched; may be given several times
    #[arg(long, value_name = "PREFIX")]
    allow: Vec<Prefix>,
    /// Announce a blackhole with this next hop
    #[arg(long, value_name = "ADDRESS", required_unless_present = "flowspec")]
    next_hop: Option<IpAddr>,
    /// A community of the blackhole; may be given several times
    #[arg(long, value_name = "N:N", default_value = "65535:666")]
    community: Vec<Community>,
    /// Announce a Flowspec rule that discards, instead of a blackhole
    #[arg(long, conflicts_with_all = ["next_hop", "community"])]
    flowspec: bool,
    /// Really announce it
    #[arg(long)]
    announce: bool,
    /// How long the route stays
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    stay: Duration,
    /// Longest time for the speaker's answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
    /// Append everything to this file too, as JSON lines
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
}

/// Connect ExaBGP's standard input and output to Weir's socket
///
/// ExaBGP starts it: process weir { run /usr/bin/weir mitigate bridge /run/weir/exabgp.sock; encoder text; }
#[derive(clap::Args)]
struct BridgeArgs {
    /// The socket that Weir listens on
    socket: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.task {
        Task::Check(args) => check(args),
        Task::Bridge(args) => {
            bridge(&args.socket, io::stdin(), io::stdout()).context("ExaBGP does not read")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_flag().context("cannot prepare for signals")?;
    let open = |path: &Path| {
        AuditLog::open(path).map_err(|error| refused::unwritable("cannot append to", path, &error))
    };
    let mut log = args.audit_log.as_deref().map(open).transpose()?;
    let (sender, entries) = mpsc::channel();
    // The receiver outlives the thread that sends.
    let observer = Box::new(move |entry: &Entry| drop(sender.send(entry.clone())));
    let address = args.speaker.parse::<SpeakerAddress>();
    let address = address
        .map_err(|error| Failure::Usage.error(format!("--speaker {}: {error}", args.speaker)))?;
    let speaker = address.open()?;
    let control =
        Control::start(Options { policies: vec![policy(args)], speaker, observer, journal: None })?;

    let flow = Flow::to(args.target);
    let attack = Attack {
        id: NAME.to_owned(),
        threshold: NAME.to_owned(),
        flow,
        value: 0.0,
        measured: String::new(),
    };
    control.tell(Event::Raised(attack))?;
    let mut hear = |entry: &Entry| -> anyhow::Result<()> {
        exit::print(&format!("{}\n", entry.to_json()))?;
        match &mut log {
            Some(log) => Ok(log.append(entry, sys::clock::realtime_ns())?),
            None => Ok(()),
        }
    };

    let code = follow(args, &entries, stop, &mut hear);
    control.stop(Instant::now() + args.timeout, || ());
    for entry in entries.try_iter() {
        hear(&entry)?;
    }
    code
}

/// Waits for the verdict, and for as long as the route should stay.
fn follow(
    args: &CheckArgs,
    entries: &Receiver<Entry>,
    stop: &AtomicBool,
    hear: &mut impl FnMut(&Entry) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let mut deadline = Instant::now() + args.timeout;
    let mut code = Failure::Unavailable.code();
    while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
        let entry = match entries.recv_timeout(LOOK_INTERVAL) {
            Ok(entry) => entry,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        hear(&entry)?;
        match &entry {
            Entry::Decided { decision, mode, .. } => match decision.verdict {
                Verdict::Refuse => return Ok(Failure::CheckFailed.code()),
                _ if *mode == Mode::DryRun => return Ok(ExitCode::SUCCESS),
                _ => {}
            },
            Entry::Accepted { .. } => {
                code = ExitCode::SUCCESS;
                deadline = Instant::now() + args.stay;
            }
            _ => {}
        }
    }
    Ok(code)
}

/// The policy of a check: one route at most, for the requested time.
fn policy(args: &CheckArgs) -> Policy {
    let action = match args.next_hop {
        _ if args.flowspec => Action::Flowspec { rate_limit_bytes_per_sec: 0.0 },
        next_hop => Action::Blackhole {
            next_hop_v4: next_hop
                .and_then(|ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None }),
            next_hop_v6: next_hop
                .and_then(|ip| if let IpAddr::V6(ip) = ip { Some(ip) } else { None }),
            communities: args.community.clone(),
        },
    };
    Policy {
        name: NAME.to_owned(),
        thresholds: vec![NAME.to_owned()],
        action,
        mode: if args.announce { Mode::Announce } else { Mode::DryRun },
        own_networks: args.own_network.clone(),
        allow_list: args.allow.clone(),
        limits: Limits {
            routes_max: 1,
            new_routes_per_minute_max: 1,
            shortest_v4_bits: 32,
            shortest_v6_bits: 128,
            withdraw_after: Duration::ZERO,
            hold: Duration::ZERO,
            expiry: args.timeout + args.stay,
        },
        on_stop: OnStop::Withdraw,
    }
}
