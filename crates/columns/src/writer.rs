//! Writes a whole Parquet file in memory.

use crate::column::{Column, RowGroup};
use crate::layout::Table;
use crate::pages::Pages;
use ::parquet::basic::Encoding;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterPropertiesPtr;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{SchemaDescriptor, TypePtr};
use ::record::{CellReader, DecodeError, SCHEMA_VERSION};

/// Most rows of a row group: readers skip row groups by their statistics, and decode one at a time.
const GROUP_ROWS_MAX: usize = 65_536;

/// Most memory for the values of a row group, which then ends.
pub const GROUP_MEMORY_MAX_BYTES: usize = 32 << 20;

/// Bytes of messages between two measurements of that memory.
const LOOK_BYTES: usize = 256 << 10;

/// Most run ids that the file's metadata lists.
const RUN_IDS_MAX: usize = 64;

/// Writes the rows of a table to one file after another, in memory. One row group at a time is turned into columns and
/// compressed.
pub struct TableWriter {
    table: Table,
    schema: TypePtr,
    descriptor: SchemaDescriptor,
    properties: WriterPropertiesPtr,
    reader: CellReader,
    columns: Vec<Column>,
    pages: Pages,
    number_encoding: Encoding,
    group: Group,
    run_ids: Vec<u64>,
    file: SerializedFileWriter<Vec<u8>>,
}

/// The row group in progress.
#[derive(Default)]
struct Group {
    rows: usize,
    /// Memory of its values when last measured.
    memory_bytes: usize,
    /// Bytes of messages since then.
    message_bytes: usize,
}

impl TableWriter {
    /// Creates a writer for this table, and begins its first file.
    ///
    /// # Errors
    /// The table has no valid schema, or zstd cannot allocate memory.
    pub fn new(table: Table) -> Result<TableWriter, ParquetError> {
        let (schema, properties) = (table.schema()?, table.properties()?);
        let file = SerializedFileWriter::new(Vec::new(), schema.clone(), properties.clone())?;
        Ok(TableWriter {
            descriptor: SchemaDescriptor::new(schema.clone()),
            schema,
            properties,
            reader: CellReader::new(&table.fields),
            columns: table.fields.iter().map(|field| Column::new(field)).collect(),
            pages: Pages::new()?,
            number_encoding: Encoding::DELTA_BINARY_PACKED,
            group: Group::default(),
            run_ids: Vec::new(),
            file,
            table,
        })
    }

    /// The same writer, with numbers in the encoding that every reader takes (`PLAIN`) instead of as differences
    /// (`DELTA_BINARY_PACKED`).
    #[must_use]
    pub fn with_plain_numbers(self) -> TableWriter {
        TableWriter { number_encoding: Encoding::PLAIN, ..self }
    }

    /// Adds a row, given as a protobuf message.
    ///
    /// # Errors
    /// The message is not valid for this table; nothing was added.
    #[inline]
    pub fn push(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let (row, columns) = (self.group.rows, &mut self.columns);
        let read = self.reader.read(message, |column, cell| {
            if let Some(column) = columns.get_mut(column) {
                column.put(row, cell);
            }
        });
        if read.is_err() {
            columns.iter_mut().for_each(|column| column.take_back(row));
            return read;
        }
        self.group.rows += 1;
        self.group.message_bytes += message.len();
        Ok(())
    }

    /// Ends the row group if it is large enough. Call it after each row.
    ///
    /// # Errors
    /// None that is known: files are written to memory.
    #[inline]
    pub fn end_full_group(&mut self) -> Result<(), ParquetError> {
        if self.group.message_bytes >= LOOK_BYTES {
            self.group.message_bytes = 0;
            self.group.memory_bytes = self.columns.iter().map(Column::memory_bytes).sum();
        }
        let is_full =
            self.group.rows >= GROUP_ROWS_MAX || self.group.memory_bytes >= GROUP_MEMORY_MAX_BYTES;
        if is_full { self.end_group() } else { Ok(()) }
    }

    /// Bytes of the file so far, including rows that are not compressed yet.
    pub fn bytes(&self) -> usize {
        self.file.bytes_written() + self.group.memory_bytes + self.group.message_bytes
    }

    /// Ends the file and begins the next.
    ///
    /// # Errors
    /// None that is known: files are written to memory.
    pub fn finish(&mut self) -> Result<Vec<u8>, ParquetError> {
        self.end_group()?;
        let next =
            SerializedFileWriter::new(Vec::new(), self.schema.clone(), self.properties.clone())?;
        let mut file = std::mem::replace(&mut self.file, next);

        let run_ids: Vec<String> = self.run_ids.drain(..).map(|id| id.to_string()).collect();
        for (key, value) in [
            ("weir.table", self.table.name.to_owned()),
            ("weir.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("weir.schema_version", SCHEMA_VERSION.to_string()),
            ("weir.run_ids", run_ids.join(",")),
        ] {
            file.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        file.into_inner()
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        let Group { rows, .. } = std::mem::take(&mut self.group);
        if rows == 0 {
            return Ok(());
        }
        self.note_run_ids();

        let mut group = RowGroup {
            group: self.file.next_row_group()?,
            schema: &self.descriptor,
            pages: &mut self.pages,
            rows,
            number_encoding: self.number_encoding,
            columns: 0,
        };
        for column in &mut self.columns {
            column.write(&mut group)?;
        }
        group.group.close()?;
        Ok(())
    }

    fn note_run_ids(&mut self) {
        let at = self.table.fields.iter().position(|field| field.name == "run_id");
        let Some(column) = at.and_then(|at| self.columns.get(at)) else { return };
        for id in column.changes() {
            if !self.run_ids.contains(&id) && self.run_ids.len() < RUN_IDS_MAX {
                self.run_ids.push(id);
            }
        }
    }
}
