//! Rows of a sealed segment, which is a Parquet file.

use super::values::{Form, Values};
use super::{BATCH_ROWS, Batch, Bounds, number_of};
use crate::error::Error;
use crate::sockets::{COOKIE_COLUMN, TIME_COLUMN, socket_columns};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The reading position in a file.
pub(super) struct FilePart {
    path: PathBuf,
    segment: i64,
    reader: SerializedFileReader<File>,
    /// The position in the file of each column of `sockets`; files of older versions may lack it.
    places: Vec<Option<usize>>,
    next_group: usize,
    group: Option<Group>,
    scratch: Scratch,
}

/// A row group in progress.
struct Group {
    /// The position of its next row in the file.
    place: i64,
    rows_left: usize,
    /// Columns of `sockets` and their readers; the columns that bounds apply to come first.
    readers: Vec<(usize, ColumnReader)>,
    /// Number of columns that bounds apply to.
    deciding: usize,
}

#[derive(Default)]
struct Scratch {
    levels: Vec<i16>,
    bools: Vec<bool>,
    narrow: Vec<i32>,
    texts: Vec<ByteArray>,
}

impl FilePart {
    /// Opens a file; `None` if retention removed it after the snapshot began.
    pub(super) fn open(path: &Path, segment: i64) -> Result<Option<FilePart>, Error> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::File { path: path.to_owned(), source }),
        };
        let parquet = |source| Error::Parquet { path: path.to_owned(), source };
        let reader = SerializedFileReader::new(file).map_err(parquet)?;

        let schema = reader.metadata().file_metadata().schema_descr();
        let place = |name: &str| schema.columns().iter().position(|column| column.name() == name);
        let places = socket_columns().iter().map(|field| place(field.name)).collect();
        let path = path.to_owned();
        let (next_group, group, scratch) = (0, None, Scratch::default());
        Ok(Some(FilePart { path, segment, reader, places, next_group, group, scratch }))
    }

    /// Reads the next rows. Returns whether there were any.
    pub(super) fn next(
        &mut self,
        bounds: &Bounds,
        used: &[usize],
        batch: &mut Batch,
    ) -> Result<bool, Error> {
        let read = self.read(bounds, used, batch);
        read.map_err(|source| Error::Parquet { path: self.path.clone(), source })
    }

    fn read(
        &mut self,
        bounds: &Bounds,
        used: &[usize],
        batch: &mut Batch,
    ) -> Result<bool, ParquetError> {
        if self.group.as_ref().is_none_or(|group| group.rows_left == 0) {
            self.group = self.open_group(bounds, used, batch)?;
        }
        let Some(group) = &mut self.group else { return Ok(false) };
        let rows = group.rows_left.min(BATCH_ROWS);
        group.rows_left -= rows;
        let first = number_of(self.segment, group.place);
        group.place += rows as i64;
        batch.chosen.clear();

        // The columns with bounds come first; the others are skipped if no row is within the bounds.
        let deciding = group.deciding;
        let scratch = &mut self.scratch;
        for (at, (column, reader)) in group.readers.iter_mut().enumerate() {
            if at == deciding {
                choose(batch, bounds, first..first + rows as i64);
            }
            match at >= deciding && batch.chosen.is_empty() {
                true => skip(reader, rows)?,
                false => read_column(reader, rows, &mut batch.columns[*column], scratch)?,
            }
        }
        if group.readers.len() <= deciding {
            choose(batch, bounds, first..first + rows as i64);
        }
        Ok(true)
    }

    fn open_group(
        &mut self,
        bounds: &Bounds,
        used: &[usize],
        batch: &mut Batch,
    ) -> Result<Option<Group>, ParquetError> {
        let groups = self.reader.metadata().num_row_groups();
        let may_have = |at: &usize| self.may_have(self.reader.metadata().row_group(*at), bounds);
        let Some(at) = (self.next_group..groups).find(may_have) else {
            self.next_group = groups;
            return Ok(None);
        };
        self.next_group = at + 1;

        let group = self.reader.get_row_group(at)?;
        let rows_left = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
        let before = (0..at).map(|at| self.reader.metadata().row_group(at).num_rows());
        let place = before.sum();
        let mut columns: Vec<usize> = used.to_vec();
        if !bounds.is_all() {
            columns.retain(|column| ![TIME_COLUMN, COOKIE_COLUMN].contains(column));
            columns.splice(..0, [TIME_COLUMN, COOKIE_COLUMN]);
        }
        let (mut readers, mut deciding) = (Vec::new(), 0);
        for column in columns {
            match self.places.get(column).copied().flatten() {
                Some(place) => {
                    let decides =
                        !bounds.is_all() && [TIME_COLUMN, COOKIE_COLUMN].contains(&column);
                    deciding += usize::from(decides);
                    readers.push((column, group.get_column_reader(place)?));
                }
                // The batch has the values of an earlier group.
                None => batch.columns[column].clear(Form::Integer),
            }
        }
        Ok(Some(Group { place, rows_left, readers, deciding }))
    }

    fn may_have(&self, group: &RowGroupMetaData, bounds: &Bounds) -> bool {
        let within = |column: usize, first: i64, last: i64| {
            let place = self.places.get(column).copied().flatten();
            match place.and_then(|place| group.column(place).statistics()) {
                Some(Statistics::Int64(values)) => {
                    values.max_opt().is_none_or(|max| *max >= first)
                        && values.min_opt().is_none_or(|min| *min <= last)
                }
                _ => true,
            }
        };
        within(TIME_COLUMN, bounds.first_unix_ns, bounds.last_unix_ns)
            && bounds.cookie.is_none_or(|cookie| within(COOKIE_COLUMN, cookie, cookie))
    }
}

/// Chooses the rows within the bounds. `numbers` has the numbers of all rows.
fn choose(batch: &mut Batch, bounds: &Bounds, numbers: Range<i64>) {
    let (time, cookie) = (&batch.columns[TIME_COLUMN], &batch.columns[COOKIE_COLUMN]);
    let is_chosen =
        |row: usize| bounds.is_all() || bounds.has(time.integer(row), cookie.integer(row));
    let rows = numbers.enumerate().filter(|(row, _)| is_chosen(*row));
    batch.chosen.extend(rows.map(|(row, number)| (row as u32, number)));
}

fn skip(reader: &mut ColumnReader, rows: usize) -> Result<(), ParquetError> {
    match reader {
        ColumnReader::BoolColumnReader(reader) => reader.skip_records(rows)?,
        ColumnReader::Int32ColumnReader(reader) => reader.skip_records(rows)?,
        ColumnReader::Int64ColumnReader(reader) => reader.skip_records(rows)?,
        ColumnReader::ByteArrayColumnReader(reader) => reader.skip_records(rows)?,
        _ => return Err(not_ours()),
    };
    Ok(())
}

fn read_column(
    reader: &mut ColumnReader,
    rows: usize,
    values: &mut Values,
    scratch: &mut Scratch,
) -> Result<(), ParquetError> {
    let levels = &mut scratch.levels;
    levels.clear();
    match reader {
        ColumnReader::BoolColumnReader(reader) => {
            values.clear(Form::Integer);
            read_all::<BoolType>(reader, rows, levels, &mut scratch.bools)?;
            values.integers.extend(scratch.bools.iter().map(|value| i64::from(*value)));
        }
        ColumnReader::Int32ColumnReader(reader) => {
            values.clear(Form::Integer);
            read_all::<Int32Type>(reader, rows, levels, &mut scratch.narrow)?;
            values.integers.extend(scratch.narrow.iter().map(|value| i64::from(*value)));
        }
        ColumnReader::Int64ColumnReader(reader) => {
            values.clear(Form::Integer);
            read_all::<Int64Type>(reader, rows, levels, &mut values.integers)?;
        }
        ColumnReader::ByteArrayColumnReader(reader) => {
            values.clear(Form::Text);
            read_all::<ByteArrayType>(reader, rows, levels, &mut scratch.texts)?;
            let mut texts = scratch.texts.iter();
            for (row, _) in levels.iter().enumerate().filter(|(_, level)| **level > 0) {
                let Some(text) = texts.next() else { return Err(not_ours()) };
                values.put_bytes(row, |out| out.extend_from_slice(text.data()));
            }
            return Ok(());
        }
        _ => return Err(not_ours()),
    }

    let mut place = 0;
    values.places.extend(levels.iter().map(|level| {
        place += u32::from(*level > 0);
        if *level > 0 { place } else { 0 }
    }));
    Ok(())
}

fn read_all<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    values.clear();
    let mut read = 0;
    while read < rows {
        let (records, _, _) = reader.read_records(rows - read, Some(levels), None, values)?;
        if records == 0 {
            return Err(not_ours());
        }
        read += records;
    }
    Ok(())
}

/// In our files every column has one definition level and one of four types.
fn not_ours() -> ParquetError {
    ParquetError::General("it is not a file of this store, or a damaged one".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use columns::{Table, TableWriter};
    use record::{ChunkBuilder, FieldSet, SocketRecord};
    use rusqlite::types::ValueRef;
    use testkit::TempDir;

    /// Writes a file with one record, which has only these fields.
    fn write(path: &Path, fields: &FieldSet) {
        let mut builder = ChunkBuilder::new(1, [0; 16]);
        builder.record(&SocketRecord {
            time_unix_ns: Some(5),
            cookie: Some(7),
            rtt_us: Some(100),
            ..SocketRecord::default()
        });
        let chunk = builder.cut(None).unwrap();
        let mut writer = TableWriter::new(Table::sockets(fields)).unwrap();
        chunk.rows().for_each(|row| writer.push(row.bytes).unwrap());
        std::fs::write(path, writer.finish().unwrap()).unwrap();
    }

    #[test]
    fn a_column_that_an_older_file_lacks_has_no_values_of_another_file() {
        let dir = TempDir::new();
        let rtt_us = socket_columns().iter().position(|field| field.name == "rtt_us").unwrap();
        let used = [TIME_COLUMN, COOKIE_COLUMN, rtt_us];
        let narrow = Bounds { cookie: Some(7), ..Bounds::ALL };
        for bounds in [Bounds::ALL, narrow] {
            let mut batch = Batch::default();
            batch.columns.resize_with(socket_columns().len(), Values::default);
            let mut read = |name: &str, lacking: &str| {
                let path = dir.file(name);
                write(&path, &FieldSet::ALL.without(&FieldSet::named(lacking).unwrap()));
                let mut part = FilePart::open(&path, 1).unwrap().unwrap();
                assert!(part.next(&bounds, &used, &mut batch).unwrap());
                let value = batch.columns[rtt_us].value(0);
                (batch.chosen.len(), matches!(value, ValueRef::Integer(100)))
            };
            assert_eq!(read("whole", "uid"), (1, true));
            assert_eq!(read("older", "rtt_us"), (1, false), "{bounds:?}");
            // Without the column that decides, no row is known to be within the bounds.
            let chosen = usize::from(bounds.is_all());
            assert_eq!(read("oldest", "cookie").0, chosen, "{bounds:?}");
        }
    }
}
