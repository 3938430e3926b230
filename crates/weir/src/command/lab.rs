//! `weir lab`: experiments in networks that the program creates.

mod flows;
mod privilege;
mod relay;
mod udp_vs_tcp;

use crate::command::version::COMMIT;
use crate::exit::{self, Failure};
use crate::screen::{Room, ink_of};
use lab::Beginning;
use lab::report::{Earlier, Folder, ReportError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use sys::signal::stop_flag;
use text::Ink;

/// Measure transports, relays and traffic figures under packet loss, in temporary networks
///
/// The host's own network is never touched: everything happens in network namespaces that live as long as the command,
/// in a user namespace if it is not started by root.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(clap::Subcommand)]
enum Experiment {
    UdpVsTcp(udp_vs_tcp::Args),
    Relay(relay::Args),
    Flows(flows::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.experiment {
        Experiment::UdpVsTcp(args) => udp_vs_tcp::run(args),
        Experiment::Relay(args) => relay::run(args),
        Experiment::Flows(args) => flows::run(args),
    }
}

/// Where the report goes.
#[derive(clap::Args)]
struct Out {
    /// Where the report goes [default: weir-lab-EXPERIMENT-DATE-TIME]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Replace the report of an earlier run in that folder
    #[arg(long, requires = "out")]
    overwrite: bool,
}

/// A running experiment: when it began, where its report goes, and whether it should end early.
struct Running {
    beginning: Beginning,
    folder: Folder,
    stop: &'static AtomicBool,
}

impl Running {
    /// Begins an experiment. This starts a thread, so acquire privileges before.
    fn begin(out: &Out, name: &str) -> anyhow::Result<Running> {
        let beginning = beginning();
        let earlier = if out.overwrite { Earlier::IsReplaced } else { Earlier::Stays };
        let folder = Folder::make(out.out.as_deref(), earlier, name, beginning.unix_ns)
            .map_err(no_folder)?;
        Ok(Running { beginning, folder, stop: stop_flag()? })
    }

    /// Writes the report, prints `text` and the report's path, and ends with the verdict.
    fn end(
        mut self,
        write: impl FnOnce(&Path) -> Result<Vec<PathBuf>, ReportError>,
        text: &str,
        verdict: ExitCode,
    ) -> anyhow::Result<ExitCode> {
        let folder = self.folder.keep();
        write(folder).map_err(report_error)?;

        let ended = exit::print_and_end(text, verdict)?;
        // Not on standard output, which is for the figures.
        let _ = writeln!(io::stderr(), "the report: {}", folder.join("report.html").display());
        Ok(ended)
    }
}

/// The tables of a report, as wide as the terminal, and its sentences folded to fit.
fn for_people(tables: impl FnOnce(Option<usize>, Ink) -> String) -> String {
    let room = Room::of(&io::stdout());
    room.folded(&tables(room.columns, ink_of(&io::stdout())))
}

/// The circumstances at the start of an experiment.
fn beginning() -> Beginning {
    let commit = if COMMIT == "unknown" { "" } else { COMMIT };
    Beginning::now(command_line(), commit)
}

/// Removes repeated values, keeping the first of each.
fn each_once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

/// The error for a folder that cannot be created or written, whatever the reason. It never means a missing input.
fn no_folder(error: io::Error) -> anyhow::Error {
    let failure = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            return Failure::Usage
                .error(format!("{error}. Fix: choose another --out, or add --overwrite"));
        }
        io::ErrorKind::PermissionDenied => Failure::Permission,
        _ => Failure::Io,
    };
    failure.error(error)
}

fn report_error(error: ReportError) -> anyhow::Error {
    match &error {
        ReportError::Write { source, .. } => Failure::Io.error(format!("{error}: {source}")),
        ReportError::Chart { .. } => anyhow::Error::new(error),
    }
}

/// The command in a form that can be pasted into a shell.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("weir".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=%+@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("0,5.5"), "0,5.5");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
