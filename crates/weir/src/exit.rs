//! Exit codes: sysexits(3), and three of our own.

use crate::screen::Room;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why the program ends with a code other than 0. Attach one to an [`anyhow::Error`] with [`Failure::error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Failure {
    /// A check that the user asked for did not hold: loss, or a bad file found by `config check`.
    CheckFailed = 1,
    /// The ledger does not balance: Weir's own fault.
    Accounting = 2,
    /// The command line is wrong.
    Usage = 64,
    /// An input file is damaged or not whole; what could be read of it was dealt with.
    BadData = 65,
    /// An input file is missing or cannot be read.
    InputMissing = 66,
    /// An address is taken, a name does not resolve, a daemon does not answer.
    Unavailable = 69,
    /// Reading or writing failed.
    Io = 74,
    /// Stopped before everything was delivered; the ledger names the rest.
    DrainedIncompletely = 75,
    /// A privilege is missing.
    Permission = 77,
    /// The configuration is wrong.
    Config = 78,
}

impl Failure {
    /// An error that ends the program with this code.
    pub(crate) fn error(self, message: impl fmt::Display) -> anyhow::Error {
        anyhow::Error::new(Exit { failure: self, message: message.to_string() })
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

/// Whether somebody still reads what is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    Listens,
    /// The other end of the pipe is closed, as by `| head`.
    Gone,
}

/// Writes to standard output. A reader that went away is not an error.
///
/// # Errors
/// It cannot be written, for instance to a full disk.
pub(crate) fn print(text: &str) -> io::Result<Reader> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error),
    }
}

/// Prints the result and ends with the verdict, which stands whatever becomes of the text.
///
/// # Errors
/// All is well but that the text cannot be written.
pub(crate) fn print_and_end(text: &str, verdict: ExitCode) -> anyhow::Result<ExitCode> {
    const WHAT: &str = "cannot write to standard output";
    match print(text) {
        Ok(_) => Ok(verdict),
        Err(error) if verdict == ExitCode::SUCCESS => Err(anyhow::Error::new(error).context(WHAT)),
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
    // There is nowhere left to say it when standard error is closed too.
    let text = Room::of(&io::stderr()).folded(&format!("weir: {error:#}\n"));
    let _ = io::stderr().write_all(text.as_bytes());
    failure_of(&error).code()
}

fn failure_of(error: &anyhow::Error) -> Failure {
    for cause in error.chain() {
        if let Some(exit) = cause.downcast_ref::<Exit>() {
            return exit.failure;
        }
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return match io.kind() {
                io::ErrorKind::PermissionDenied => Failure::Permission,
                io::ErrorKind::NotFound => Failure::InputMissing,
                io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => Failure::Unavailable,
                _ => Failure::Io,
            };
        }
    }
    Failure::Io
}

/// Prints what clap has to say: help and version on standard output with code 0, mistakes on standard error with 64.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { Failure::Usage.code() } else { ExitCode::SUCCESS }
}
