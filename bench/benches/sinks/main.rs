//! Sinks as they are shipped beside clients of others: the same rows into the same server, in turns. `make bench BENCH_ARGS=sinks`;
//! `bench/README.md` says what is measured and how.

#![expect(clippy::print_stderr, reason = "it says how far it is")]

#[path = "../../src/machine.rs"]
mod machine;
mod ours;
mod place;
mod report;
#[path = "../../../crates/record/tests/record/support.rs"]
mod support;

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use machine::Machine;
use ours::{Attempt, Pace};
use place::{Kind, Place};
use report::{Contest, Report, Side};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::TempDir;
use testkit::servers::unique;

/// Compares the sinks with other clients of the same servers: rows and processor time for each, and memory.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    child: Option<Child>,
    /// These destinations alone, with commas between them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Rows that each side sends in a round.
    #[arg(long, default_value_t = 300_000)]
    rows: u64,
    /// Rounds, of which the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Folder for README.md and raw.json of this run.
    #[arg(long)]
    save: Option<PathBuf>,
    /// What cargo tells every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(clap::Subcommand)]
enum Child {
    /// Sends rows through the sink of a configuration.
    #[command(hide = true)]
    Ours { config: PathBuf, rows: u64, pace: Pace },
}

/// Weir with the making and encoding of the rows, which other clients have ready.
const WITH_SOURCE: &str = "weir_with_source";

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(Child::Ours { config, rows, pace }) = &args.child {
        return Ok(serde_json::to_writer(std::io::stdout(), &ours::run(config, *rows, *pace)?)?);
    }

    let folder = TempDir::new();
    let file = folder.file("rows");
    let row_bytes = ours::write_rows(&file, args.rows)? as f64 / args.rows as f64;
    let kinds = if args.only.is_empty() { Kind::ALL.to_vec() } else { args.only.clone() };
    let mut report = Report::new(machine(), row_bytes);
    for kind in kinds {
        eprintln!("{kind:?}");
        let Some(place) = kind.place(folder.path())? else { continue };
        report.contests.push(contest(&place, &file, &args)?);
        // After each: what was measured in minutes is not lost with the rest.
        if let Some(folder) = &args.save {
            report.save(folder)?;
        }
    }
    report.print()
}

/// With the command that a person gives, not cargo's.
fn machine() -> Machine {
    let args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let command =
        ["make bench BENCH_ARGS=sinks".to_owned()].into_iter().chain(args).collect::<Vec<_>>();
    Machine { command: command.join(" "), ..Machine::read() }
}

/// Weir and the other clients in turns. The first run of Weir does not count; what it leaves is what clients of columns read.
fn contest(place: &Place<'_>, rows: &Path, args: &Args) -> anyhow::Result<Contest> {
    let reference = place.make(&unique("reference"));
    ours(place, &reference, args.rows, Pace::AsTaken)?;

    let named = |name: &&str| Side { client: (*name).to_owned(), attempts: Vec::new() };
    let ours_both = ["weir", WITH_SOURCE];
    let mut sides: Vec<Side> = ours_both.iter().chain(place.kind.clients()).map(named).collect();
    for round in 0..args.rounds {
        for side in &mut sides {
            let name = place.make(&unique("rows"));
            let attempt = match side.client.as_str() {
                "weir" => ours(place, &name, args.rows, Pace::Ready)?,
                WITH_SOURCE => ours(place, &name, args.rows, Pace::AsTaken)?,
                client => theirs(place, client, &name, [rows, Path::new(&reference)])?,
            };
            place.remove(&name)?;
            let rate = attempt.rows as f64 / attempt.seconds;
            eprintln!("  round {} {}: {rate:.0} rows/s, {attempt:?}", round + 1, side.client);
            side.attempts.push(attempt);
        }
    }

    place.remove(&reference)?;
    let name = place.make(&unique("flood"));
    let flood = ours(place, &name, args.rows, Pace::Flood)?;
    place.remove(&name)?;
    Ok(Contest { destination: format!("{:?}", place.kind), sides, flood })
}

fn ours(place: &Place<'_>, name: &str, rows: u64, pace: Pace) -> anyhow::Result<Attempt> {
    let folder = TempDir::new();
    let config = folder.file("weir.toml");
    fs::write(&config, place.config(name, pace))?;
    let output = Command::new(std::env::current_exe()?)
        .arg("ours")
        .arg(config)
        .arg(rows.to_string())
        .arg(pace.to_possible_value().context("it has a name")?.get_name())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the sink: {}", output.status);
    serde_json::from_slice(&output.stdout).context("what the sink's process says")
}

fn theirs(
    place: &Place<'_>,
    client: &str,
    name: &str,
    args: [&Path; 2],
) -> anyhow::Result<Attempt> {
    let said = place::client(client, place.addr, name, &args)?;
    serde_json::from_str(&said).with_context(|| format!("{client} says {said}"))
}
