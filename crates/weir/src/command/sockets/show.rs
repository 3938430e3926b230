//! Prints polls: as tables, or as records while they arrive.

use super::args::{Args, Show, rows_of_terminal, tell};
use super::assemble::{Counts, Take};
use super::columns::View;
use super::out::Out;
use super::summary::Summary;
use super::table::{Look, Table};
use crate::exit::Reader;
use record::Encoder;
use sockets::Transport;
use sys::clock::realtime_ns;
use text::{plural, time_of_day};

/// Prints one poll or several.
pub(super) struct Printer {
    out: Out,
    form: Form,
}

enum Form {
    Table { table: Table, look: Look, screen: Screen },
    Records(Encoder),
    Summary(Summary),
}

/// How one table follows another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Screen {
    /// There is only one table.
    Once,
    /// Each below the one before.
    Below,
    /// Each replaces the one before.
    Redrawn,
}

impl Printer {
    pub(super) fn new(args: &Args) -> anyhow::Result<Printer> {
        let mut out = Out::to_stdout();
        if let Some(style) = args.summary()? {
            return Ok(Printer { out, form: Form::Summary(Summary::new(style)) });
        }

        let transport = args.transports().first().copied().unwrap_or_default();
        let form = match args.show(transport)? {
            Show::Table { columns, details, sort, direction } => {
                let redraws = crate::progress::rewrites_lines(&std::io::stdout());
                let screen = match (args.watch, redraws) {
                    (None, _) => Screen::Once,
                    (Some(_), false) => Screen::Below,
                    (Some(_), true) => Screen::Redrawn,
                };
                Form::Table {
                    table: Table::new(columns, details, sort, direction),
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

    /// Switches to another protocol, whose table has other columns.
    ///
    /// # Errors
    /// The command line does not fit this protocol.
    pub(super) fn turn_to(&mut self, args: &Args, transport: Transport) -> anyhow::Result<()> {
        if let Form::Table { table, .. } = &mut self.form
            && let Show::Table { columns, details, sort, direction } = args.show(transport)?
        {
            *table = Table::new(columns, details, sort, direction);
            self.out.push(b"\n");
        }
        Ok(())
    }

    /// Prints what was gathered, and how much it is.
    pub(super) fn end_of_poll(&mut self, counts: &Counts) {
        match &mut self.form {
            Form::Records(_) | Form::Summary(_) => tell_malformed(counts),
            Form::Table { table, look, screen: Screen::Redrawn } => {
                redraw(table, look, &summary(counts), &mut self.out);
            }
            Form::Table { table, look, screen } => {
                if *screen == Screen::Below {
                    self.out.push(format!("{} UTC\n", time_of_day(realtime_ns())).as_bytes());
                }

                let rendered = table.render(look, usize::MAX, &mut self.out);
                if *screen == Screen::Below {
                    self.out.push(b"\n");
                }

                table.clear();
                self.out.flush();
                tell(format_args!("{}", summary(counts)));
                tell_left_out(&rendered.left_out);
                tell_malformed(counts);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        self.out.flush();
    }

    /// Whether the reader has gone or a write has failed.
    pub(super) fn is_over(&self) -> bool {
        self.out.is_over()
    }

    /// Ends the output.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn finish(mut self) -> anyhow::Result<Reader> {
        match &mut self.form {
            Form::Records(encoder) => self.out.with(|buffer| encoder.end(buffer)),
            Form::Summary(summary) => self.out.push(summary.text().as_bytes()),
            Form::Table { .. } => {}
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
            Form::Summary(summary) => summary.count(view.record),
        }
    }
}

/// Redraws the terminal: title, as many rows as fit, and the summary.
fn redraw(table: &mut Table, look: &Look, summary: &str, out: &mut Out) {
    // The summary, and the line that the cursor is left on.
    const OTHER_LINES: usize = 2;
    let lines = rows_of_terminal().map_or(usize::MAX, |height| height.saturating_sub(OTHER_LINES));
    out.push(b"\x1b[H\x1b[J");

    let rendered = table.render(look, lines, out);
    let mut text = format!("{} UTC: {summary}", time_of_day(realtime_ns()));
    if rendered.rows_below > 0 {
        text += &format!("; {} more do not fit", rendered.rows_below);
    }
    if !rendered.left_out.is_empty() {
        text += &format!("; no room for {}", rendered.left_out.join(", "));
    }

    // A line that wraps would push the title off the screen.
    out.push((text::cut(&text, look.width.unwrap_or(usize::MAX)) + "\n").as_bytes());
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

/// Reports columns that did not fit.
pub(super) fn tell_left_out(columns: &[&str]) {
    if !columns.is_empty() {
        tell(format_args!("no room for {}", columns.join(", ")));
    }
}
