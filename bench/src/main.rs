//! `make bench`: relays side by side, on one machine, in one run.
//!
//! See `bench/README.md` for what is measured and how.

#![forbid(unsafe_code)]

mod contender;
mod host;
mod load;
mod measure;
mod process;
mod report;
mod requirement;
mod search;
mod sink;
mod sockets;
mod stage;
mod start;

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use contender::{Contender, Programs};
use host::{Machine, Placement};
use load::Sizes;
use report::Report;
use search::Plan;
use stage::Case;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// 200 bytes in the mean, as lines of a log vary.
const VARYING: Sizes = Sizes::Varying { min: 64, max: 336 };

/// Compares relays side by side: highest rate with nothing lost, CPU per copy, added latency, memory, start.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// Only 200 bytes to two targets, only what is required: under 90 seconds.
    #[arg(long)]
    quick: bool,
    /// Exit with 1 if a requirement is missed.
    #[arg(long)]
    strict: bool,
    /// Only these datagram lengths: 64, 200, 1400, 64000, varying.
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<String>,
    /// Only these numbers of targets.
    #[arg(long, value_delimiter = ',')]
    targets: Vec<usize>,
    /// Only these relays.
    #[arg(long, value_delimiter = ',')]
    relays: Vec<RelayName>,
    /// Repetitions of each measurement.
    #[arg(long)]
    repetitions: Option<usize>,
    /// Processors for generator and receivers, as taskset(1) writes them; one is enough.
    #[arg(long, default_value = "0")]
    load_cpus: String,
    /// Processors for the relays.
    #[arg(long, default_value = "1")]
    relay_cpus: String,
    /// Priority of load and relays, as nice(1) has it: below 0 to measure on a machine that others use too.
    #[arg(long, allow_negative_numbers = true)]
    nice: Option<i32>,
    /// The weir binary.
    #[arg(long, default_value = "target/release/weir")]
    weir: PathBuf,
    /// Folder for README.md and raw.json of this run.
    #[arg(long)]
    save: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Other {
    Sockets(sockets::SocketsArgs),
    #[command(hide = true)]
    Hold(sockets::HoldArgs),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RelayName {
    Inline,
    Threaded,
    LimitRuns,
    Limit,
    Socat,
}

const RELAYS: [(RelayName, Contender); 5] = [
    (RelayName::Inline, Contender::WeirInline),
    (RelayName::Threaded, Contender::WeirThreaded),
    (RelayName::LimitRuns, Contender::LimitRelayRuns),
    (RelayName::Limit, Contender::LimitRelay),
    (RelayName::Socat, Contender::Socat),
];

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|error| {
        // Nowhere else is left to say so.
        let _ = say(&format!("bench: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.other {
        Some(Other::Sockets(args)) => return sockets::run(args).map(|()| ExitCode::SUCCESS),
        Some(Other::Hold(args)) => return sockets::hold(args).map(|()| ExitCode::SUCCESS),
        None => {}
    }
    if let Some(niceness) = args.nice {
        host::set_niceness(niceness)?;
    }
    let programs = programs(args)?;
    let placement =
        Placement { load_cpus: args.load_cpus.clone(), relay_cpus: args.relay_cpus.clone() };
    let machine = Machine::read();
    let starts = start::measure(&contenders(args, &programs, None), &programs)?;
    let mut results = Vec::new();
    for case in cases(args)? {
        say(&case.label())?;
        let contenders = contenders(args, &programs, Some(case));
        let plan = plan(args, case);
        results.push(measure::measure(case, plan, &contenders, &programs, &placement, |_, m| {
            say(&report::progress_line(m))
        })?);
    }
    let requirements = requirement::check(&results, &starts);
    let is_met = requirements.iter().all(|one| one.is_met);
    let report = Report { machine, placement, results, starts, requirements };
    std::io::stdout().lock().write_all(report.markdown().as_bytes())?;
    if let Some(folder) = &args.save {
        report::save(&report, folder)?;
    }
    Ok(ExitCode::from(u8::from(args.strict && !is_met)))
}

/// Tells those who wait.
fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr().lock(), "{line}").context("writing to standard error")
}

fn cases(args: &Args) -> anyhow::Result<Vec<Case>> {
    let all = ["64", "200", "varying", "1400", "64000"];
    let chosen: Vec<&str> = match (args.sizes.is_empty(), args.quick) {
        (false, _) => args.sizes.iter().map(String::as_str).collect(),
        (true, true) => vec!["200", "varying"],
        (true, false) => all.to_vec(),
    };
    let targets = match (args.targets.is_empty(), args.quick) {
        (false, _) => args.targets.clone(),
        (true, true) => vec![2],
        (true, false) => vec![1, 2, 4],
    };
    let mut cases = Vec::new();
    for text in chosen {
        let sizes = if text == "varying" { VARYING } else { Sizes::Equal(text.parse()?) };
        let is_valid = (load::HEADER_BYTES..=65_507).contains(&sizes.mean_bytes());
        anyhow::ensure!(is_valid, "a datagram of {text} bytes cannot be sent or marked");
        for targets in targets.iter().copied() {
            // Varying lengths are one question; the number of targets is another.
            if sizes != VARYING || targets == 2 || !args.sizes.is_empty() {
                cases.push(Case { sizes, targets });
            }
        }
    }
    Ok(cases)
}

/// The relays to compare; quick runs have only those that requirements name.
fn contenders(args: &Args, programs: &Programs, case: Option<Case>) -> Vec<Contender> {
    let is_wanted = |name: RelayName, contender: Contender| {
        if !args.relays.is_empty() {
            return args.relays.contains(&name);
        }
        let is_required = contender == Contender::WeirInline
            || case.is_some_and(|case| contender == requirement::yardstick(case.sizes));
        !args.quick || is_required
    };
    let all = RELAYS.into_iter().filter(|(name, contender)| is_wanted(*name, *contender));
    let all = all.map(|(_, contender)| contender);
    all.filter(|contender| *contender != Contender::Socat || programs.socat.is_some()).collect()
}

/// What requirements are about is measured longer.
fn plan(args: &Args, case: Case) -> Plan {
    let is_required = case.targets == 2 && case.sizes.mean_bytes() == 200;
    let ms = Duration::from_millis;
    let mut plan = match (args.quick, is_required) {
        (false, true) => Plan {
            repetitions: 5,
            saturation: ms(400),
            attempt: ms(1_000),
            steps: 4,
            cpu: ms(1_000),
            latency: ms(1_000),
        },
        (true, _) => Plan {
            repetitions: 3,
            saturation: ms(300),
            attempt: ms(600),
            steps: 4,
            cpu: ms(600),
            latency: ms(600),
        },
        (false, false) => Plan {
            repetitions: 3,
            saturation: ms(250),
            attempt: ms(400),
            steps: 3,
            cpu: ms(300),
            latency: ms(300),
        },
    };
    plan.repetitions = args.repetitions.unwrap_or(plan.repetitions);
    plan
}

fn programs(args: &Args) -> anyhow::Result<Programs> {
    let weir = args.weir.canonicalize().with_context(|| {
        format!("{} is missing: cargo build --release -p weir", args.weir.display())
    })?;
    let limitrelay = std::env::current_exe()?.with_file_name("limitrelay");
    contender::build_limitrelay(&limitrelay)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let socat = std::env::split_paths(&path).map(|dir| dir.join("socat")).find(|at| at.is_file());
    Ok(Programs { weir, limitrelay, socat })
}
