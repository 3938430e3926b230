//! Questions to a fleet, `--at`.

use super::{Args, finish, question};
use crate::exit;
use crate::fleet::{Fleet, failed};
use std::process::ExitCode;
use store::Limits;

/// The columns of every table, with their meaning.
const SCHEMA: &str = "SELECT table, name, type, comment FROM system.columns WHERE database = currentDatabase() \
    ORDER BY table, position";

/// Asks about one host or, with `None`, about all, and prints the answer.
pub(super) fn run(
    args: &Args,
    at: &str,
    host: Option<&str>,
    text: &str,
) -> anyhow::Result<ExitCode> {
    let fleet = Fleet::open(at, &args.config, host.map(str::to_owned), args.timeout)?;
    let question = question(args, text, Some(&fleet.tables))?;
    let limits = Limits { time: args.timeout, rows_max: args.max_rows, ..Limits::default() };
    if args.explain {
        let plan = format!("EXPLAIN {}", question.statement);
        let plan = fleet.ask(&plan, limits).map_err(|error| failed(&error))?;
        let lines = plan.rows.iter().flatten().map(crate::question::as_text);
        let lines: Vec<String> = lines.collect();
        let text = format!("{}\n\n{}\n", question.statement.trim(), lines.join("\n"));
        return exit::print_and_end(&text, ExitCode::SUCCESS);
    }

    let answer = fleet.ask(&question.statement, limits).map_err(|error| failed(&error))?;
    finish(args, answer, question.named)
}

/// Prints the fleet's tables and columns.
pub(super) fn schema(args: &Args, at: &str) -> anyhow::Result<ExitCode> {
    let fleet = Fleet::open(at, &args.config, None, args.timeout)?;
    let limits = Limits { time: args.timeout, ..Limits::default() };
    let answer = fleet.ask(SCHEMA, limits).map_err(|error| failed(&error))?;
    finish(args, answer, None)
}
