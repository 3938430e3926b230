//! The values of one field in the rows of one row group, on their way to a Parquet column.

use super::layout::moment_of;
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::writer::SerializedRowGroupWriter;
use ::record::{Cell, Field, Kind, Words};

/// A row group that is being written into memory.
pub(super) type RowGroup<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// A column that grows a value at a time. A row without a value costs nothing: the gap is filled when the next value comes, or when
/// the row group ends.
pub(super) struct Column {
    field: &'static Field,
    /// The values that are there, without gaps.
    values: Values,
    /// Rows of which it is known whether they have a value.
    rows: usize,
    /// Parquet's definition levels: 1 for a row with a value, 0 for one without. Empty while no row is without.
    levels: Vec<i16>,
}

enum Values {
    /// Yes and no, and numbers of up to 32 bits.
    Narrow(Vec<u32>),
    Wide(Vec<i64>),
    /// Numbers, and the text of each.
    Words(Vec<u8>, Box<[ByteArray]>),
    Texts(Texts),
}

/// Texts one after another; one that is the same as the one before is there once.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    spans: Vec<(u32, u32)>,
}

/// Memory in which columns are made what Parquet takes, one after another.
#[derive(Default)]
pub(super) struct Scratch {
    bools: Vec<bool>,
    int32: Vec<i32>,
    int64: Vec<i64>,
    texts: Vec<ByteArray>,
    levels: Vec<i16>,
}

impl Column {
    pub(super) fn new(field: &'static Field) -> Column {
        let values = match field.kind {
            Kind::Bool | Kind::U8 | Kind::U16 | Kind::U32 => Values::Narrow(Vec::new()),
            Kind::U64 | Kind::Fixed64 => Values::Wide(Vec::new()),
            Kind::Word(words) => Values::Words(Vec::new(), texts_of(words)),
            Kind::Text | Kind::Bytes | Kind::Data | Kind::Address | Kind::Tags => {
                Values::Texts(Texts::default())
            }
        };
        Column { field, values, rows: 0, levels: Vec::new() }
    }

    /// The value of the row before which there are `row` rows. A second one of the same row takes the place of the first.
    #[inline(always)]
    pub(super) fn put(&mut self, row: usize, cell: Cell<'_>) {
        match self.rows {
            rows if rows > row => self.take_back(row),
            rows if rows < row => self.fill_up(row),
            _ => {}
        }

        match (&mut self.values, cell) {
            (Values::Narrow(values), Cell::Number(number)) => values.push(number as u32),
            (Values::Wide(values), Cell::Number(number)) => values.push(number as i64),
            (Values::Words(values, _), Cell::Number(number)) => values.push(number as u8),
            (Values::Texts(texts), cell) => texts.push(&cell),
            // The field's kind decides both, so that there is no other pair.
            _ => return,
        }

        self.rows = row + 1;
        if !self.levels.is_empty() {
            self.levels.push(1);
        }
    }

    /// Takes away the value of the row before which there are `row` rows, if it has one.
    #[cold]
    pub(super) fn take_back(&mut self, row: usize) {
        if self.rows <= row {
            return;
        }
        match &mut self.values {
            Values::Narrow(values) => drop(values.pop()),
            Values::Wide(values) => drop(values.pop()),
            Values::Words(values, _) => drop(values.pop()),
            Values::Texts(texts) => drop(texts.spans.pop()),
        }
        self.levels.pop();
        self.rows = row;
    }

    /// Notes that the rows from where it is up to the one at `row` have no value.
    #[inline(never)]
    fn fill_up(&mut self, row: usize) {
        if self.levels.is_empty() {
            self.levels.resize(self.rows, 1);
        }
        self.levels.resize(row, 0);
        self.rows = row;
    }

    /// Memory of its values.
    pub(super) fn memory_bytes(&self) -> usize {
        let values = match &self.values {
            Values::Narrow(values) => values.len() * 4,
            Values::Wide(values) => values.len() * 8,
            Values::Words(values, _) => values.len(),
            Values::Texts(texts) => texts.bytes.len() + texts.spans.len() * 8,
        };
        values + self.levels.len() * 2
    }

    /// Its numbers of 64 bits, those that are the same as the one before left out.
    pub(super) fn changes(&self) -> impl Iterator<Item = u64> {
        let values = if let Values::Wide(values) = &self.values { values.as_slice() } else { &[] };
        values.chunk_by(|a, b| a == b).filter_map(|run| run.first()).map(|value| *value as u64)
    }

    /// Writes the column, and the moment that belongs to it, for a row group of `rows` rows, and begins the next.
    pub(super) fn write(
        &mut self,
        rows: usize,
        group: &mut RowGroup<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ParquetError> {
        let Scratch { bools, int32, int64, texts, levels } = scratch;
        levels.clear();
        match self.levels.as_slice() {
            [] => levels.resize(self.rows, 1),
            known => levels.extend_from_slice(known),
        }
        levels.resize(rows, 0);

        match (&mut self.values, self.field.kind) {
            (Values::Narrow(values), Kind::Bool) => {
                refill(bools, values.drain(..).map(|value| value != 0));
                write_column::<BoolType>(group, bools, levels)?;
            }
            (Values::Narrow(values), Kind::U32) => {
                refill(int64, values.drain(..).map(i64::from));
                write_column::<Int64Type>(group, int64, levels)?;
            }
            (Values::Narrow(values), _) => {
                refill(int32, values.drain(..).map(|value| value as i32));
                write_column::<Int32Type>(group, int32, levels)?;
            }
            (Values::Wide(values), _) => {
                write_column::<Int64Type>(group, values, levels)?;
                if moment_of(self.field).is_some() {
                    refill(int64, values.iter().map(|ns| (*ns as u64 / 1_000) as i64));
                    write_column::<Int64Type>(group, int64, levels)?;
                }
                values.clear();
            }
            (Values::Words(values, words), _) => {
                refill(
                    texts,
                    values.drain(..).filter_map(|value| words.get(usize::from(value)).cloned()),
                );
                write_column::<ByteArrayType>(group, texts, levels)?;
            }
            (Values::Texts(values), _) => {
                values.drain_into(texts);
                write_column::<ByteArrayType>(group, texts, levels)?;
            }
        }

        texts.clear();
        self.levels.clear();
        self.rows = 0;
        Ok(())
    }
}

impl Texts {
    #[inline(always)]
    fn push(&mut self, cell: &Cell<'_>) {
        // A row group ends long before 4 GiB.
        let start = self.bytes.len();
        cell.put_text(&mut self.bytes);
        if let Some(&last) = self.spans.last()
            && self.bytes.get(last.0 as usize..last.1 as usize) == self.bytes.get(start..)
        {
            self.bytes.truncate(start);
            return self.spans.push(last);
        }
        self.spans.push((start as u32, self.bytes.len() as u32));
    }

    fn drain_into(&mut self, texts: &mut Vec<ByteArray>) {
        let all = ByteArray::from(std::mem::take(&mut self.bytes));
        refill(
            texts,
            self.spans
                .drain(..)
                .map(|(start, end)| all.slice(start as usize, (end - start) as usize)),
        );
    }
}

/// The text of every number that a word may have.
fn texts_of(words: &Words) -> Box<[ByteArray]> {
    let text = |value| words.word(value).map_or_else(|| value.to_string(), str::to_owned);
    (0..=u8::MAX).map(|value| ByteArray::from(text(value).into_bytes())).collect()
}

fn refill<T>(scratch: &mut Vec<T>, values: impl Iterator<Item = T>) {
    scratch.clear();
    scratch.extend(values);
}

fn write_column<T: DataType>(
    group: &mut RowGroup<'_>,
    values: &[T::T],
    levels: &[i16],
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("more columns than the schema has".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, Some(levels), None)?;
    column.close()
}
