//! Records printed one by one, as they arrive.

use super::args::{Args, Show};
use super::columns::View;
use super::show::tell_left_out;
use super::table::Lines;
use record::{Encoder, PollTotals, SocketRecord};
use sockets::Transport;
use sockets::attribution::Users;

/// Turns records into lines of a table, or into any encoding.
pub(super) struct Stream {
    form: Form,
    users: Users,
    line: String,
}

enum Form {
    Lines(Lines),
    Records(Encoder),
}

impl Stream {
    /// Makes the form that the command line asks for. Refuses sorting.
    ///
    /// # Errors
    /// The command line is wrong.
    pub(super) fn new(args: &Args) -> anyhow::Result<Stream> {
        let form = match args.show(Transport::Tcp)? {
            Show::Table { mut columns, details, .. } => {
                columns.extend(details);
                let lines = Lines::new(columns, &args.look());
                tell_left_out(&lines.left_out());
                Form::Lines(lines)
            }
            Show::Records(encoder) => Form::Records(encoder),
        };
        Ok(Stream { form, users: Users::read().unwrap_or_default(), line: String::new() })
    }

    /// Appends what comes before the first record.
    pub(super) fn begin(&mut self, out: &mut Vec<u8>) {
        match &mut self.form {
            Form::Lines(lines) => out.extend_from_slice(lines.title().as_bytes()),
            Form::Records(encoder) => encoder.begin(out),
        }
    }

    pub(super) fn record(&mut self, record: &SocketRecord<'_>, out: &mut Vec<u8>) {
        match &mut self.form {
            Form::Lines(lines) => {
                lines.row(&View::of(record, &self.users), &mut self.line);
                out.extend_from_slice(self.line.as_bytes());
            }
            Form::Records(encoder) => encoder.encode(record, out),
        }
    }

    /// Appends the totals of a poll, if the form has a place for them.
    pub(super) fn totals(&mut self, totals: &PollTotals<'_>, out: &mut Vec<u8>) {
        if let Form::Records(encoder) = &mut self.form {
            encoder.totals(totals, out);
        }
    }

    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if let Form::Records(encoder) = &mut self.form {
            encoder.end(out);
        }
    }
}
