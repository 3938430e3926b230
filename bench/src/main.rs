//! `make bench`: relays side by side, on one machine, in one run.
//!
//! See `bench/README.md` for what is measured and how.

#![forbid(unsafe_code)]

mod case;
mod contender;
mod dead_end;
mod estimate;
mod fleet;
mod host;
mod machine;
mod measure;
mod measured;
mod process;
#[cfg(feature = "quic")]
mod quic;
mod relay;
mod report;
mod requirement;
mod search;
mod selection;
mod site;
mod sockets;
mod stage;
mod start;

use anyhow::Context;
use clap::{Parser, Subcommand};
use contender::Programs;
use host::Placement;
use machine::Machine;
use report::Report;
use selection::Selection;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Compares relays side by side: highest rate with nothing lost, CPU per copy, added latency, memory, start.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// Exit with 1 if a requirement is missed.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    selection: Selection,
    /// Processors for generator and receivers, as taskset(1) writes them; one is enough.
    #[arg(long, default_value = "0")]
    load_cpus: String,
    /// Processors for the relays.
    #[arg(long, default_value = "1")]
    relay_cpus: String,
    /// Processors for the receiving thread of Weir's threaded schedule; the threads that send have those of the relays. [default:
    /// 2, or with two processors that of the load]
    #[arg(long)]
    receive_cpus: Option<String>,
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
    Fleet(fleet::FleetArgs),
    #[cfg(feature = "quic")]
    Quic(quic::QuicArgs),
    #[command(hide = true)]
    Hold(sockets::HoldArgs),
    #[command(hide = true)]
    Traffic(fleet::TrafficArgs),
}

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|error| {
        // If this fails, there is nowhere left to report it.
        let _ = say(&format!("bench: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.other {
        Some(Other::Sockets(args)) => return sockets::run(args).map(|()| ExitCode::SUCCESS),
        Some(Other::Fleet(args)) => return fleet::run(args).map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "quic")]
        Some(Other::Quic(args)) => return quic::run(args).map(|()| ExitCode::SUCCESS),
        Some(Other::Traffic(args)) => return fleet::traffic(args).map(|()| ExitCode::SUCCESS),
        Some(Other::Hold(args)) => return sockets::hold(args).map(|()| ExitCode::SUCCESS),
        None => {}
    }

    if let Some(niceness) = args.nice {
        host::set_niceness(niceness)?;
    }

    let programs = programs(args)?;
    let placement = placement(args);
    let machine = Machine::read();
    let began = Instant::now();

    let chosen = args.selection.choose(&programs)?;
    for one in &chosen.skipped {
        say(&format!("skipped: {one}"))?;
    }
    let expected: Duration =
        chosen.cases.iter().map(|(case, plan, relays)| plan.duration(*case, relays)).sum();
    say(&format!("{} cases, about {:.0} minutes", chosen.cases.len(), minutes(expected).ceil()))?;

    let starts = start::measure(&chosen.starts, &programs)?;
    let mut report = Report {
        machine,
        placement,
        elapsed_s: 0.0,
        results: Vec::new(),
        starts,
        skipped: chosen.skipped,
        requirements: Vec::new(),
    };

    for (case, plan, contenders) in chosen.cases {
        say(&case.label())?;
        let placement = &report.placement;
        report.results.push(measure::measure(
            case,
            plan,
            &contenders,
            &programs,
            placement,
            |m| say(&report::progress_line(m)),
        )?);
        report.requirements = requirement::check(&report.results, &report.starts);
        report.elapsed_s = began.elapsed().as_secs_f64();
        // Saved after every case, so that an error half an hour later does not lose it.
        if let Some(folder) = &args.save {
            report::save(&report, folder)?;
        }
    }

    // A run without requirements proves nothing, so it does not pass.
    let all = &report.requirements;
    let is_met = !all.is_empty() && all.iter().all(|one| one.is_met);
    std::io::stdout().lock().write_all(report.markdown().as_bytes())?;
    Ok(ExitCode::from(u8::from(args.strict && !is_met)))
}

fn minutes(duration: Duration) -> f64 {
    duration.as_secs_f64() / 60.0
}

fn placement(args: &Args) -> Placement {
    let receive_cpus = args.receive_cpus.clone().unwrap_or_else(|| {
        if sys::process::cpu_count() > 2 { "2".to_owned() } else { args.load_cpus.clone() }
    });
    let (load_cpus, relay_cpus) = (args.load_cpus.clone(), args.relay_cpus.clone());
    Placement { load_cpus, relay_cpus, receive_cpus }
}

/// Prints progress to standard error.
fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr().lock(), "{line}").context("writing to standard error")
}

fn programs(args: &Args) -> anyhow::Result<Programs> {
    let weir = args.weir.canonicalize().with_context(|| {
        format!("{} is missing: cargo build --release -p weir", args.weir.display())
    })?;
    let limitrelay = std::env::current_exe()?.with_file_name("limitrelay");
    relay::build_limitrelay(&limitrelay)?;
    let rawrelay = limitrelay.with_file_name("rawrelay");
    relay::build_rawrelay(&rawrelay)?;
    let socat = program("socat");
    Ok(Programs { weir, limitrelay, rawrelay, socat })
}

/// Finds a program in PATH.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|at| at.is_file())
}
