//! A line on standard error that shows a command's progress.

use crate::live;
use crate::screen::Room;
use clap::ValueEnum;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use text::cut;

/// Whether and how progress is shown on standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Rewritten in place on a terminal, else new lines every ten seconds where something has happened.
    Auto,
    /// New lines every second where something has happened.
    Lines,
    /// None.
    Off,
}

/// Whether the stream is a terminal on which a line can be overwritten.
pub(crate) fn rewrites_lines(stream: &impl IsTerminal) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    stream.is_terminal() && !is_dumb
}

/// The longest line on standard error that can be overwritten: the cursor must stay in the row, even if `^C` follows.
fn columns_to_rewrite() -> usize {
    Room::of(&io::stderr()).columns.map_or(usize::MAX, |columns| columns.saturating_sub(3))
}

/// What a line says beyond the time that has passed (`3.0 s` at its beginning) and averages over that time (`12/s`): both change
/// although nothing happens.
fn news(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let begins_with_time = words.get(1) == Some(&"s");
    let words = words.into_iter().skip(if begins_with_time { 2 } else { 0 });
    words.filter(|word| !word.ends_with("/s")).collect::<Vec<_>>().join(" ")
}

/// Runs `work` while progress lines go to standard error.
pub(crate) fn with_progress<T>(
    mode: ProgressMode,
    line: impl Fn() -> String + Send,
    work: impl FnOnce() -> T,
) -> T {
    let on_terminal = rewrites_lines(&io::stderr());
    let every = match mode {
        ProgressMode::Off => {
            let result = work();
            live::end();
            return result;
        }
        ProgressMode::Lines => Duration::from_secs(1),
        ProgressMode::Auto if on_terminal => Duration::from_millis(500),
        ProgressMode::Auto => Duration::from_secs(10),
    };
    let rewrites = on_terminal && mode == ProgressMode::Auto;

    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut before = String::new();
            // Progress is a courtesy, so write errors are ignored.
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let line = line();
                let news = news(&line);
                if !rewrites && news == before {
                    continue;
                }
                before = news;
                let text = match rewrites {
                    // A line that wraps would leave a copy, because only its last row is cleared.
                    true => format!("\r\x1b[K{}", cut(&line, columns_to_rewrite())),
                    false => line + "\n",
                };
                let _ = io::stderr().write_all(text.as_bytes());
            }
            live::end();
        });
        let result = work();
        drop(end);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_passes_is_no_news() {
        assert_eq!(news("3.0 s  sent 12  4/s"), news("4.0 s  sent 12  3/s"));
        assert_ne!(news("3.0 s  sent 12  4/s"), news("3.0 s  sent 13  4/s"));
        assert_eq!(news("part 1 of 3: starting"), "part 1 of 3: starting");
    }
}
