//! `[daemon]`: the daemon's life.

use crate::address::socket_path;
use crate::form::{Choice, Span, path};
use crate::keys::{Section, keys};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub(crate) const SECTION: Section = Section {
    path: "daemon",
    header: "[daemon]",
    tables: &[DaemonConfig::TABLE],
    subsections: &[],
};

const DRAIN_GRACE: Span = Span(Duration::ZERO, Duration::from_secs(3_600));

keys! {
    /// Running the daemon.
    pub struct DaemonConfig in "daemon" {
        /// How long targets may go on sending what was already received when the daemon stops. What is
        /// left then is counted as `shutdown` and printed.
        drain_grace => drain_grace: Duration = DRAIN_GRACE, default(Duration::from_secs(10));
        /// The least important messages that are written to standard error.
        log_level => log_level: LogLevel = LOG_LEVELS, default(LogLevel::Info);
        /// What messages look like: for people (`text`), a JSON object per line with `time`, `level`, `message` and fields (`json`),
        /// or with priorities for the journal (`journald`). `auto` is `journald` where standard error is the journal, else `text`.
        log_format => log_format: LogFormat = LOG_FORMATS, default(LogFormat::Auto);
        /// The privileged helper (`weir namespace-helper`) that loads the eBPF drop counter for listeners with
        /// `receive = "gro"`, so that this process needs no capability.
        helper => helper: Option<PathBuf> = path("path of the helper's socket", socket_path),
            unset("this process does it itself");
    }
}

/// Parses `--drain-grace`: a duration within the range of the key `daemon.drain_grace`.
///
/// # Errors
/// What is wrong with it.
pub fn drain_grace(text: &str) -> Result<Duration, String> {
    DRAIN_GRACE.parse(text)
}

/// The least severe messages that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

const LOG_LEVELS: Choice<LogLevel> = Choice(&[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
]);

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<LogLevel, String> {
        LOG_LEVELS.parse(text)
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LOG_LEVELS.word(*self))
    }
}

/// The format of log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Journald if standard error is the journal, otherwise text.
    Auto,
    /// For people to read.
    Text,
    /// A JSON object per line.
    Json,
    /// With the priorities of sd-daemon(3).
    Journald,
}

const LOG_FORMATS: Choice<LogFormat> = Choice(&[
    ("auto", LogFormat::Auto),
    ("text", LogFormat::Text),
    ("json", LogFormat::Json),
    ("journald", LogFormat::Journald),
]);

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        LOG_FORMATS.parse(text)
    }
}
