//! Rows of an unsealed segment, which are messages as they arrived.

use super::values::Form;
use super::{BATCH_ROWS, Batch, Bounds, number_of};
use crate::catalog::Segment;
use crate::error::{Error, sqlite};
use crate::sockets::{COOKIE_COLUMN, TIME_COLUMN, socket_columns};
use record::{Cell, CellReader, Field, Kind};
use rusqlite::{Connection, params};

/// The reading position in a segment.
pub(super) struct HotPart {
    id: i64,
    select: String,
    after: i64,
    reader: CellReader,
    /// Fields that are read, and their columns.
    fields: Vec<(&'static Field, usize)>,
}

impl HotPart {
    pub(super) fn new(id: i64, used: &[usize]) -> HotPart {
        let all = socket_columns();
        let fields: Vec<_> =
            used.iter().filter_map(|&column| Some((*all.get(column)?, column))).collect();
        let wanted: Vec<_> = fields.iter().map(|(field, _)| *field).collect();
        let table = Segment::table(id);
        HotPart {
            id,
            select: format!(
                "SELECT rowid, time_unix_ns, cookie, message FROM {table} WHERE rowid > ?1 ORDER BY rowid LIMIT ?2"
            ),
            after: 0,
            reader: CellReader::new(&wanted),
            fields,
        }
    }

    /// Reads the next rows. Returns whether there were any.
    pub(super) fn next(
        &mut self,
        connection: &Connection,
        bounds: &Bounds,
        used: &[usize],
        batch: &mut Batch,
    ) -> Result<bool, Error> {
        for &(field, column) in &self.fields {
            batch.columns[column].clear(form_of(field.kind));
        }
        batch.chosen.clear();
        let read = self.read(connection, bounds, used, batch);
        read.map_err(sqlite("cannot read a segment"))
    }

    fn read(
        &mut self,
        connection: &Connection,
        bounds: &Bounds,
        used: &[usize],
        batch: &mut Batch,
    ) -> rusqlite::Result<bool> {
        let mut statement = connection.prepare_cached(&self.select)?;
        let mut rows = statement.query(params![self.after, BATCH_ROWS as i64])?;
        let mut is_there = false;
        let mut at = 0;
        while let Some(row) = rows.next()? {
            is_there = true;
            self.after = row.get(0)?;
            let (time_unix_ns, cookie) = (row.get(1)?, row.get(2)?);
            if !bounds.has(Some(time_unix_ns), Some(cookie)) {
                continue;
            }

            let message = row.get_ref(3)?.as_blob()?;
            let fields = &self.fields;
            // Only readable messages were inserted.
            let _ = self.reader.read(message, |place, cell| {
                if let Some(&(field, column)) = fields.get(place) {
                    put(&mut batch.columns[column], at, field.kind, &cell);
                }
            });
            // The segment's own time and cookie fill in for fields that the message lacks, because rows are found by them.
            for (column, value) in [(TIME_COLUMN, time_unix_ns), (COOKIE_COLUMN, cookie)] {
                if used.contains(&column)
                    && batch.columns[column].integer(at).is_none()
                    && value != 0
                {
                    batch.columns[column].put_integer(at, value);
                }
            }
            batch.chosen.push((at as u32, number_of(self.id, self.after)));
            at += 1;
        }
        Ok(is_there)
    }
}

fn form_of(kind: Kind) -> Form {
    match kind {
        Kind::Bool | Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 | Kind::Fixed64 => Form::Integer,
        Kind::Text | Kind::Address | Kind::Tags | Kind::Word(_) => Form::Text,
        Kind::Bytes | Kind::Data => Form::Blob,
    }
}

fn put(values: &mut super::Values, row: usize, kind: Kind, cell: &Cell<'_>) {
    match (kind, cell) {
        (Kind::Word(words), Cell::Number(number)) => {
            let word = u8::try_from(*number).ok().and_then(|number| words.word(number));
            values.put_bytes(row, |out| match word {
                Some(word) => out.extend_from_slice(word.as_bytes()),
                None => out.extend_from_slice(number.to_string().as_bytes()),
            });
        }
        (_, Cell::Number(number)) => values.put_integer(row, *number as i64),
        (_, cell) => values.put_bytes(row, |out| cell.put_text(out)),
    }
}
