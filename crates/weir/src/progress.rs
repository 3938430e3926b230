//! A line on standard error that says how far a command is.

use clap::ValueEnum;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Whether and how progress is shown on standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Rewritten in place on a terminal, else new lines every ten seconds.
    Auto,
    /// New lines every second.
    Lines,
    /// None.
    Off,
}

/// Whether it is a terminal on which a line can be written over.
pub(crate) fn rewrites_lines(stream: &impl IsTerminal) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    stream.is_terminal() && !is_dumb
}

/// Runs `work` while lines about it go to standard error.
pub(crate) fn with_progress<T>(
    mode: ProgressMode,
    line: impl Fn() -> String + Send,
    work: impl FnOnce() -> T,
) -> T {
    let on_terminal = rewrites_lines(&io::stderr());
    let every = match mode {
        ProgressMode::Off => return work(),
        ProgressMode::Lines => Duration::from_secs(1),
        ProgressMode::Auto if on_terminal => Duration::from_millis(500),
        ProgressMode::Auto => Duration::from_secs(10),
    };
    let rewrites = on_terminal && mode == ProgressMode::Auto;

    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Progress is a courtesy: nothing depends on whether it can be written.
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let (before, after) = if rewrites { ("\r\x1b[K", "") } else { ("", "\n") };
                let _ = write!(io::stderr(), "{before}{}{after}", line());
            }
            if rewrites {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        let result = work();
        drop(end);
        result
    })
}
