//! Prints polls: as tables, or as records while they come.

use super::args::{Args, Show, rows_of_terminal, tell};
use super::assemble::{Counts, Take};
use super::columns::View;
use super::out::Out;
use super::table::{Look, Table};
use crate::exit::Reader;
use record::Encoder;
use sys::clock::realtime_ns;
use text::{plural, time_of_day};

/// What one poll or several are printed with.
pub(super) struct Printer {
    out: Out,
    form: Form,
}

enum Form {
    Table { table: Table, look: Look, screen: Screen },
    Records(Encoder),
}

/// How one table follows another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Screen {
    /// There is only one.
    Once,
    /// One below the other.
    Below,
    /// Each takes the place of the one before.
    Redrawn,
}

impl Printer {
    pub(super) fn new(args: &Args) -> anyhow::Result<Printer> {
        let mut out = Out::to_stdout();
        let form = match args.show()? {
            Show::Table { columns, sort, direction } => {
                let redraws = crate::progress::rewrites_lines(&std::io::stdout());
                let screen = match (args.watch, redraws) {
                    (None, _) => Screen::Once,
                    (Some(_), false) => Screen::Below,
                    (Some(_), true) => Screen::Redrawn,
                };
                Form::Table {
                    table: Table::new(columns, sort, direction),
                    look: args.look(),
                    screen,
                }
            }
            Show::Records(mut encoder) => {
                out.with(|buffer| encoder.begin(buffer));
                Form::Records(encoder)
            }
        };

        Ok(Printer { out, form })
    }

    /// Prints what was gathered, and says how much it is.
    pub(super) fn end_of_poll(&mut self, counts: &Counts) {
        match &mut self.form {
            Form::Records(_) => tell_malformed(counts),
            Form::Table { table, look, screen: Screen::Redrawn } => {
                redraw(table, look, &summary(counts), &mut self.out);
            }
            Form::Table { table, look, screen } => {
                if *screen == Screen::Below {
                    self.out.push(format!("{} UTC\n", time_of_day(realtime_ns())).as_bytes());
                }

                let dropped = table.render(look, usize::MAX, &mut self.out);
                if *screen == Screen::Below {
                    self.out.push(b"\n");
                }

                table.clear();
                self.out.flush();
                tell(format_args!("{}{}", summary(counts), left_out(&dropped)));
                tell_malformed(counts);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        self.out.flush();
    }

    /// Whether nobody reads it any more.
    pub(super) fn is_over(&self) -> bool {
        self.out.is_over()
    }

    /// Ends the output.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn finish(mut self) -> anyhow::Result<Reader> {
        if let Form::Records(encoder) = &mut self.form {
            self.out.with(|buffer| encoder.end(buffer));
        }
        self.out.finish()
    }
}

impl Take for Printer {
    fn take(&mut self, view: &View<'_>, _raw: &[u8]) {
        match &mut self.form {
            Form::Table { table, .. } => table.push(view),
            Form::Records(encoder) if !self.out.is_over() => {
                self.out.with(|buffer| encoder.encode(view.record, buffer));
            }
            Form::Records(_) => {}
        }
    }
}

/// Redraws the terminal: title, as many rows as fit, and the summary.
fn redraw(table: &mut Table, look: &Look, summary: &str, out: &mut Out) {
    // Title, summary, and the line that the cursor is left on.
    const OTHER_LINES: usize = 3;
    let rows = rows_of_terminal().map_or(usize::MAX, |height| height.saturating_sub(OTHER_LINES));
    out.push(b"\x1b[H\x1b[J");
    let dropped = table.render(look, rows, out);
    let line = time_of_day(realtime_ns());
    let below = table.len().saturating_sub(rows);
    let more = if below > 0 { format!("; {below} more do not fit") } else { String::new() };
    out.push(format!("{line} UTC: {summary}{more}{}\n", left_out(&dropped)).as_bytes());
    table.clear();
}

pub(super) fn summary(counts: &Counts) -> String {
    let mut text = plural(counts.shown, "socket", "sockets");
    if counts.filtered > 0 {
        text += &format!(", {} more left out by the filter here", counts.filtered);
    }
    if counts.doubled > 0 {
        text += &format!(", {} listed twice by the kernel and shown once", counts.doubled);
    }
    text
}

pub(super) fn tell_malformed(counts: &Counts) {
    if counts.malformed > 0 {
        let messages =
            plural(counts.malformed, "message of the kernel's", "messages of the kernel's");
        tell(format_args!("{messages} could not be decoded; such sockets are missing"));
    }
}

fn left_out(columns: &[&str]) -> String {
    match columns {
        [] => String::new(),
        _ => format!("; no room for {}", columns.join(", ")),
    }
}
