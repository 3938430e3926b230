//! Encodes batches as Parquet files.

use crate::batch::{Encoded, Part, PartKey};
use crate::destination::{BatchEncoder, Form, Pushed};
use crate::encode::NumberEncoding;
use ::parquet::errors::ParquetError;
use ::record::{FieldSet, Row, RowKind};
use columns::Table;
use columns::{GROUP_MEMORY_MAX_BYTES, TableWriter};
use ledger::Reason;

/// Most memory of a column while it becomes compressed pages: its values as Parquet types, a dictionary, and a page.
const COLUMN_MAX_BYTES: usize = 8 << 20;

/// One file for each table, with these fields of sockets.
pub(crate) fn form(fields: &FieldSet, numbers: NumberEncoding) -> Form {
    let encoder = |kind| {
        let table = match kind {
            RowKind::Record => Table::sockets(fields),
            kind => Table::of(kind),
        };
        (kind, Box::new(ParquetEncoder::new(table, numbers)) as Box<dyn BatchEncoder>)
    };
    Form::ByKind(RowKind::ALL.map(encoder).into())
}

struct ParquetEncoder {
    writer: TableWriter,
    part: Option<Part>,
}

impl ParquetEncoder {
    fn new(table: Table, numbers: NumberEncoding) -> ParquetEncoder {
        let writer = in_memory(TableWriter::new(table));
        let writer = match numbers {
            NumberEncoding::Delta => writer,
            NumberEncoding::Plain => writer.with_plain_numbers(),
        };
        ParquetEncoder { writer, part: None }
    }
}

impl BatchEncoder for ParquetEncoder {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        if self.writer.push(row.bytes).is_err() {
            return Pushed::Skipped(Reason::EncodeError);
        }
        let part = self.part.get_or_insert(Part { end: 0, rows: 0, row_bytes: 0, key });
        part.rows += 1;
        part.row_bytes += row.bytes.len() as u64;
        part.key = key;

        in_memory(self.writer.end_full_group());
        Pushed::Taken
    }

    fn bytes(&self) -> usize {
        self.writer.bytes()
    }

    fn finish(&mut self) -> Encoded {
        let bytes = in_memory(self.writer.finish());
        let part = self.part.take().map(|part| Part { end: bytes.len(), ..part });
        Encoded { bytes, parts: part.into_iter().collect() }
    }

    fn memory_max_bytes(&self, batch_bytes: usize) -> usize {
        batch_bytes + GROUP_MEMORY_MAX_BYTES + COLUMN_MAX_BYTES
    }
}

/// In memory, writing a file fails only because of a bug in the library or in ours. The sink survives that: it counts the rows
/// as lost to a panic, and creates a new encoder.
fn in_memory<T>(written: Result<T, ParquetError>) -> T {
    written.expect("a Parquet file in memory can be written")
}
