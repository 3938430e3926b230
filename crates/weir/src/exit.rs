//! Exit codes: sysexits(3), and three of our own.

use crate::log;
use crate::screen::{self, ink_of};
use crate::usage::told;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use text::{Ink, Tint};
use tracing::Level;

/// The failures, each with its exit code and the meaning shown to users.
macro_rules! failures {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $meaning:literal;)*) => {
        /// Why the program ends with a code other than 0. Attach one to an [`anyhow::Error`] with [`Failure::error`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Failure {
            $($(#[$doc])* $name = $code,)*
        }

        /// The meaning of each code except 0.
        const MEANINGS: &[(u8, &str)] = &[$(($code, $meaning),)*];
    };
}

failures! {
    /// A check that the user asked for did not hold: loss, or a bad file found by `config check`.
    CheckFailed = 1, "A check failed: something was lost, a file has mistakes, or this host has a limit that loses data";
    /// The ledger does not balance: Weir's own fault.
    Accounting = 2, "The ledger does not balance, or the two ends of a link disagree: a defect of Weir";
    /// The command line is wrong.
    Usage = 64, "The command line is wrong";
    /// An input file is damaged or incomplete; what could be read of it was used.
    BadData = 65, "An input file is damaged or incomplete; what could be read of it was used";
    /// An input file is missing, or is of another kind.
    InputMissing = 66, "An input file is missing, or is of another kind";
    /// An address is taken, a name does not resolve, a daemon does not answer.
    Unavailable = 69, "An address is in use, a name does not resolve, or a daemon, a store or a speaker does not answer";
    /// Reading or writing failed.
    Io = 74, "Reading or writing failed";
    /// Stopped before everything was delivered; the ledger names the rest.
    DrainedIncompletely = 75, "Stopped before everything was delivered; the last ledger says what was left behind";
    /// A privilege is missing.
    Permission = 77, "A permission or a privilege is missing";
    /// The configuration is wrong.
    Config = 78, "The configuration is wrong";
}

/// Every exit code and what it means.
pub(crate) fn codes() -> impl Iterator<Item = (u8, &'static str)> {
    [(0, "Success")].into_iter().chain(MEANINGS.iter().copied())
}

impl Failure {
    /// An error that ends the program with this code.
    pub(crate) fn error(self, message: impl fmt::Display) -> anyhow::Error {
        anyhow::Error::new(Exit { failure: self, message: message.to_string() })
    }

    /// The failure for a system error about which nothing else is known.
    pub(crate) fn of(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::Permission,
            io::ErrorKind::NotFound => Failure::InputMissing,
            io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => Failure::Unavailable,
            _ => Failure::Io,
        }
    }

    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

#[derive(Debug)]
struct Exit {
    failure: Failure,
    message: String,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Exit {}

/// Whether the output still has a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    Listens,
    /// The other end of the pipe is closed, as by `| head`.
    Gone,
}

/// Writes to standard output. A reader that has gone is not an error.
///
/// # Errors
/// The output cannot be written, for instance because the disk is full.
pub(crate) fn print(text: &str) -> io::Result<Reader> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error),
    }
}

/// Prints the result and returns the verdict. A failed write does not change a verdict other than success.
///
/// # Errors
/// The verdict is success, but the text cannot be written.
pub(crate) fn print_and_end(text: &str, verdict: ExitCode) -> anyhow::Result<ExitCode> {
    const WHAT: &str = "cannot write to standard output";
    match print(text) {
        Ok(_) => Ok(verdict),
        Err(error) if verdict == ExitCode::SUCCESS => {
            let fix = "send it to a place that can be written, which `df .` shows";
            Err(Failure::Io.error(format!("{WHAT}: {error}. Fix: {fix}")))
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "weir: {WHAT}: {error}");
            Ok(verdict)
        }
    }
}

/// Prints the error, if any, to standard error and picks the exit code.
pub(crate) fn from_result(result: anyhow::Result<ExitCode>) -> ExitCode {
    let error = match result {
        Ok(code) => return code,
        Err(error) => error,
    };
    // If standard error is closed too, there is nowhere left to write it.
    log::say_to_people(Level::ERROR, &format!("weir: {error:#}\n"), tint);
    failure_of(&error).code()
}

/// The tint of an error's line: what went wrong, one of several mistakes, or the fix.
fn tint(line: &str) -> Tint {
    match line {
        _ if line.starts_with("weir: ") => Tint::Alarm,
        _ if line.trim_start().starts_with("Fix: ") => Tint::Good,
        _ => Tint::Notice,
    }
}

/// As [`tint`], but lines below a mistake of the command line are usage text and stay plain.
fn tint_of_usage(line: &str) -> Tint {
    match tint(line) {
        Tint::Notice => Tint::Plain,
        known => known,
    }
}

fn failure_of(error: &anyhow::Error) -> Failure {
    for cause in error.chain() {
        if let Some(exit) = cause.downcast_ref::<Exit>() {
            return exit.failure;
        }
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return Failure::of(io);
        }
    }
    Failure::Io
}

/// Prints clap's output: help and version on standard output with code 0, mistakes on standard error with code 64.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let styled = error.render();
        let text = match ink_of(&io::stdout()) {
            Ink::Plain => styled.to_string(),
            Ink::Color => styled.ansi().to_string(),
        };
        let _ = print(&text);
        return ExitCode::SUCCESS;
    }
    let text = screen::for_people(&io::stderr(), &told(error), tint_of_usage);
    let _ = io::stderr().write_all(text.as_bytes());
    Failure::Usage.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: [&str; 2] = ["<!-- codes: begin -->\n", "<!-- codes: end -->"];

    #[test]
    fn the_documented_table_is_generated() {
        let rows = codes().map(|(code, meaning)| format!("| {code} | {meaning} |\n"));
        let text = format!("\n| code | meaning |\n|---|---|\n{}\n", rows.collect::<String>());
        testkit::generated_part("docs/exit-codes.md", MARKS, &text);
    }
}
