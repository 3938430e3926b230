//! The form of a log line: text, JSON, or with the journal's priorities.

use crate::screen;
use config::LogFormat;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use text::Tint;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The requested format. Until one is set, it depends on what standard error is.
static ASKED: Mutex<LogFormat> = Mutex::new(LogFormat::Auto);

/// Whether standard error is the journal.
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let file = || io::stderr().as_fd().try_clone_to_owned().map(std::fs::File::from);
    let named = std::env::var("JOURNAL_STREAM").ok();
    named.is_some_and(|named| {
        // The variable is inherited, so compare device and inode to detect a stream that was redirected since
        // (systemd.exec(5)).
        let is_it = |one: std::fs::Metadata| format!("{}:{}", one.dev(), one.ino()) == named;
        file().and_then(|file| file.metadata()).is_ok_and(is_it)
    })
});

/// Lines written so far.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Lines written so far, so that code that redraws the screen can tell whether a log line has appeared below.
pub(crate) fn lines_written() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

/// Sets the format of everything logged from now on.
pub(crate) fn choose(format: LogFormat) {
    *ASKED.lock().unwrap_or_else(PoisonError::into_inner) = format;
}

/// The form of a line, once it is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Text,
    Json,
    /// With the priorities of sd-daemon(3). The journal adds its own time.
    Journald,
}

impl Form {
    /// The form in use.
    pub(crate) fn now() -> Form {
        match *ASKED.lock().unwrap_or_else(PoisonError::into_inner) {
            LogFormat::Auto if *IS_JOURNAL => Form::Journald,
            LogFormat::Auto | LogFormat::Text => Form::Text,
            LogFormat::Json => Form::Json,
            LogFormat::Journald => Form::Journald,
        }
    }

    /// Formats text of several lines that is not a log line: the banner, a ledger, an error that ends the program.
    fn talk(self, level: Level, text: &str) -> String {
        match self {
            Form::Text => text.to_owned(),
            Form::Json => {
                let mut time = String::new();
                // Writing to a string cannot fail.
                let _ = SystemTime.format_time(&mut Writer::new(&mut time));
                json(&time, level, text.trim_matches('\n'), &[])
            }
            Form::Journald => prefixed(level, text.trim_matches('\n')),
        }
    }
}

/// Writes to standard error. This is a courtesy, so write errors are ignored.
pub(crate) fn say(level: Level, text: &str) {
    let _ = io::stderr().lock().write_all(Form::now().talk(level, text).as_bytes());
}

/// As [`say`], folded to the terminal's width and with colors if people read it.
pub(crate) fn say_to_people(level: Level, text: &str, tint: impl Fn(&str) -> Tint) {
    match Form::now() {
        Form::Text => say(level, &screen::for_people(&io::stderr(), text, tint)),
        Form::Json | Form::Journald => say(level, text),
    }
}

/// Counts a line, and returns the stream to write it to.
pub(super) fn counted() -> io::Stderr {
    WRITTEN.fetch_add(1, Ordering::Relaxed);
    io::stderr()
}

/// Formats log lines in the form in use.
pub(super) struct Lines {
    text: Format<Full, SystemTime>,
}

impl Lines {
    pub(super) fn new() -> Lines {
        let text = tracing_subscriber::fmt::format();
        Lines { text: text.with_ansi(false).with_target(false) }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let form = Form::now();
        if form == Form::Text {
            return self.text.format_event(context, writer, event);
        }

        let mut said = Said::default();
        event.record(&mut said);
        let level = *event.metadata().level();
        if form == Form::Journald {
            let fields = said.fields.iter().map(|(name, value)| format!(" {name}={value}"));
            let text = said.message + &fields.collect::<String>();
            return writer.write_str(&prefixed(level, &text));
        }
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        writer.write_str(&json(&time, level, &said.message, &said.fields))
    }
}

/// An event's message and its fields.
#[derive(Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, serde_json::Value)>,
}

impl Said {
    fn put(&mut self, field: &Field, value: serde_json::Value) {
        self.fields.push((field.name(), value));
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.put(field, format!("{value:?}").into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.put(field, value.into()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

/// One line of JSON: time, level, message, and the fields under their own names.
fn json(time: &str, level: Level, message: &str, fields: &[(&str, serde_json::Value)]) -> String {
    let level = level.as_str().to_ascii_lowercase();
    let text = |text: &str| serde_json::Value::from(text);
    let (time, level, message) = (text(time), text(&level), text(message));
    let mut line = format!("{{\"time\":{time},\"level\":{level},\"message\":{message}");
    for (name, value) in fields {
        let _ = write!(line, ",{}:{value}", text(name));
    }
    line + "}\n"
}

/// Prefixes each line with its priority: the journal takes every line as a separate message.
fn prefixed(level: Level, text: &str) -> String {
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    text.lines().map(|line| format!("<{priority}>{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_two_lines_has_its_priority_on_both() {
        let check = |level, wanted| assert_eq!(prefixed(level, "a\nb"), wanted);
        check(Level::ERROR, "<3>a\n<3>b\n");
        check(Level::WARN, "<4>a\n<4>b\n");
        check(Level::INFO, "<6>a\n<6>b\n");
        check(Level::DEBUG, "<7>a\n<7>b\n");
    }

    #[test]
    fn json_is_one_line_with_time_level_message_and_fields() {
        let fields = [("lost", 7_u64.into()), ("why", "a \"b\"\n".into())];
        let line = json("2026-11-25T17:00:00.5Z", Level::WARN, "two\nlines", &fields);
        assert_eq!(
            line,
            "{\"time\":\"2026-11-25T17:00:00.5Z\",\"level\":\"warn\",\"message\":\"two\\nlines\",\
             \"lost\":7,\"why\":\"a \\\"b\\\"\\n\"}\n"
        );
    }
}
