//! The values of one field in one row group, before they become a Parquet column.

use crate::encodings::{put_differences, put_indices, put_plain};
use crate::layout::moment_of;
use crate::pages::{MadeColumn, Pages, Presence};
use crate::texts::Texts;
use ::parquet::basic::Encoding;
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::statistics::{Statistics, ValueStatistics};
use ::parquet::file::writer::SerializedRowGroupWriter;
use ::parquet::schema::types::SchemaDescriptor;
use ::record::{Cell, Field, Kind, Words};

/// Longer texts are left out of statistics, which exist for each column of each row group.
const BOUND_MAX_BYTES: usize = 256;

/// A column that grows by one value at a time. A row without a value costs nothing: the gap is recorded with the next value, or
/// at the end of the row group.
pub(crate) struct Column {
    field: &'static Field,
    /// The values, without gaps.
    values: Values,
    /// Number of rows for which it is known whether they have a value.
    rows: usize,
    /// The rows at which presence changes; the first rows have values.
    changes: Vec<u32>,
}

enum Values {
    Bools(Vec<bool>),
    /// Numbers of up to 32 bits.
    Narrow(Vec<u32>),
    Wide(Vec<i64>),
    /// Word numbers, and the words that they stand for.
    Words(Vec<u8>, &'static Words),
    Texts(Box<Texts>),
}

/// A row group that is written to memory, column by column.
pub(crate) struct RowGroup<'f> {
    pub(crate) group: SerializedRowGroupWriter<'f, Vec<u8>>,
    pub(crate) schema: &'f SchemaDescriptor,
    pub(crate) pages: &'f mut Pages,
    pub(crate) rows: usize,
    /// How numbers are stored: `PLAIN` or `DELTA_BINARY_PACKED`.
    pub(crate) number_encoding: Encoding,
    /// Columns written so far.
    pub(crate) columns: usize,
}

impl Column {
    pub(crate) fn new(field: &'static Field) -> Column {
        let values = match field.kind {
            Kind::Bool => Values::Bools(Vec::new()),
            Kind::U8 | Kind::U16 | Kind::U32 => Values::Narrow(Vec::new()),
            Kind::U64 | Kind::Fixed64 => Values::Wide(Vec::new()),
            Kind::Word(words) => Values::Words(Vec::new(), words),
            Kind::Text | Kind::Bytes | Kind::Data | Kind::Address | Kind::Tags => {
                Values::Texts(Box::new(Texts::of(field.kind)))
            }
        };
        Column { field, values, rows: 0, changes: Vec::new() }
    }

    /// Sets the value in row `row` (from 0). A second value in the same row replaces the first.
    #[inline(always)]
    pub(crate) fn put(&mut self, row: usize, cell: Cell<'_>) {
        if self.rows != row {
            self.come_to(row);
        }

        match cell {
            Cell::Number(number) => self.put_number(number),
            cell => self.put_text(&cell),
        }
        self.rows = row + 1;
    }

    #[inline(always)]
    fn put_number(&mut self, number: u64) {
        match &mut self.values {
            Values::Narrow(values) => values.push(number as u32),
            Values::Wide(values) => values.push(number as i64),
            Values::Words(values, _) => values.push(number as u8),
            Values::Bools(values) => values.push(number != 0),
            // The field's kind selects the variant, so a number never gets here.
            Values::Texts(_) => {}
        }
    }

    #[inline(never)]
    fn put_text(&mut self, cell: &Cell<'_>) {
        if let Values::Texts(texts) = &mut self.values {
            texts.push(cell);
        }
    }

    #[inline(never)]
    fn come_to(&mut self, row: usize) {
        if self.rows > row {
            return self.take_back(row);
        }
        // The rows up to `row` have no value. If the last value was taken back, the gap before it is extended.
        match self.changes.last_mut() {
            Some(end) if *end as usize == self.rows => *end = row as u32,
            _ => self.changes.extend([self.rows as u32, row as u32]),
        }
        self.rows = row;
    }

    /// Removes the value of row `row` (from 0), if it has one.
    #[cold]
    pub(crate) fn take_back(&mut self, row: usize) {
        if self.rows <= row {
            return;
        }
        match &mut self.values {
            Values::Bools(values) => drop(values.pop()),
            Values::Narrow(values) => drop(values.pop()),
            Values::Wide(values) => drop(values.pop()),
            Values::Words(values, _) => drop(values.pop()),
            Values::Texts(texts) => texts.pop(),
        }
        self.rows = row;
    }

    /// Memory of its values.
    pub(crate) fn memory_bytes(&self) -> usize {
        let values = match &self.values {
            Values::Bools(values) => values.len(),
            Values::Narrow(values) => values.len() * 4,
            Values::Wide(values) => values.len() * 8,
            Values::Words(values, _) => values.len(),
            Values::Texts(texts) => texts.memory_bytes(),
        };
        values + self.changes.len() * 4
    }

    /// Its 64-bit numbers, with repetitions of the previous one left out.
    pub(crate) fn changes(&self) -> impl Iterator<Item = u64> {
        let values = if let Values::Wide(values) = &self.values { values.as_slice() } else { &[] };
        values.chunk_by(|a, b| a == b).filter_map(|run| run.first()).map(|value| *value as u64)
    }

    /// Writes the column, and its timestamp column if it has one, and clears it for the next row group.
    pub(crate) fn write(&mut self, group: &mut RowGroup<'_>) -> Result<(), ParquetError> {
        if self.rows != group.rows {
            self.come_to(group.rows);
        }
        let changes = self.changes.as_slice();
        match &mut self.values {
            Values::Bools(values) => {
                group.left_to_library::<BoolType>(changes, values)?;
                values.clear();
            }
            Values::Narrow(values) if self.field.kind == Kind::U32 => {
                let bounds = bounds(values).map(|(min, max)| (min.into(), max.into()));
                group.numbers::<Int64Type, _>(changes, values, bounds)?;
                values.clear();
            }
            Values::Narrow(values) => {
                let bounds = bounds(values).map(|(min, max)| (min as i32, max as i32));
                group.numbers::<Int32Type, _>(changes, values, bounds)?;
                values.clear();
            }
            Values::Wide(values) => {
                group.numbers::<Int64Type, _>(changes, values, bounds(values))?;
                if moment_of(self.field).is_some() {
                    values.iter_mut().for_each(|ns| *ns = (*ns as u64 / 1_000) as i64);
                    group.numbers::<Int64Type, _>(changes, values, bounds(values))?;
                }
                values.clear();
            }
            Values::Words(values, words) => {
                group.words(changes, values, words)?;
                values.clear();
            }
            Values::Texts(texts) => {
                let texts = std::mem::replace(texts.as_mut(), Texts::of(self.field.kind));
                if let Some((indices, entries)) = texts.dictionary() {
                    group.dictionary(changes, indices, entries)?;
                } else {
                    group.left_to_library::<ByteArrayType>(changes, &texts.into_values())?;
                }
            }
        }

        self.changes.clear();
        self.rows = 0;
        Ok(())
    }
}

impl RowGroup<'_> {
    /// Writes numbers, with their minimum and maximum.
    fn numbers<D: DataType, T: Copy + Into<i64>>(
        &mut self,
        changes: &[u32],
        values: &[T],
        bounds: Option<(D::T, D::T)>,
    ) -> Result<(), ParquetError> {
        let encoding = if values.is_empty() { Encoding::PLAIN } else { self.number_encoding };
        let presence = Presence { changes, rows: self.rows };
        let put = |page: &mut Vec<u8>| match encoding {
            Encoding::DELTA_BINARY_PACKED => put_differences(values, page),
            _ => put_plain(values, size_of::<D::T>(), page),
        };
        let column = self.pages.column().values(presence, encoding, put)?;
        let bounds = statistics::<D>(bounds, self.rows - values.len());
        self.append(column, Statistics::from(bounds.with_backwards_compatible_min_max(true)))
    }

    fn words(&mut self, changes: &[u32], values: &[u8], words: &Words) -> Result<(), ParquetError> {
        let mut is_there = [false; 256];
        values.iter().for_each(|value| is_there[usize::from(*value)] = true);
        let numbers: Vec<u8> =
            (0..=u8::MAX).filter(|value| is_there[usize::from(*value)]).collect();
        let mut places = [0; 256];
        for (place, value) in (0..).zip(&numbers) {
            places[usize::from(*value)] = place;
        }

        let text = |value: &u8| words.word(*value).map_or_else(|| value.to_string(), str::to_owned);
        let texts: Vec<String> = numbers.iter().map(text).collect();
        let indices: Vec<u32> = values.iter().map(|value| places[usize::from(*value)]).collect();
        self.dictionary(changes, &indices, texts.iter().map(String::as_bytes))
    }

    /// Writes texts as indices into a dictionary.
    fn dictionary<'t>(
        &mut self,
        changes: &[u32],
        indices: &[u32],
        texts: impl Iterator<Item = &'t [u8]> + Clone,
    ) -> Result<(), ParquetError> {
        let count = texts.clone().count();
        let mut column = self.pages.column();
        let mut encoding = Encoding::PLAIN;
        if count > 0 {
            encoding = Encoding::RLE_DICTIONARY;
            column.dictionary(count, |page| {
                for text in texts.clone() {
                    page.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    page.extend_from_slice(text);
                }
            })?;
        }

        let presence = Presence { changes, rows: self.rows };
        let column = column.values(presence, encoding, |page| {
            if count > 0 {
                put_indices(indices, count, page);
            }
        })?;
        let bounds = texts.clone().min().zip(texts.max());
        let bounds = bounds.filter(|(min, max)| min.len().max(max.len()) <= BOUND_MAX_BYTES);
        let bounds = bounds.map(|(min, max)| (ByteArray::from(min), ByteArray::from(max)));
        let missing = self.rows - indices.len();
        self.append(column, Statistics::from(statistics::<ByteArrayType>(bounds, missing)))
    }

    fn append(&mut self, column: MadeColumn, statistics: Statistics) -> Result<(), ParquetError> {
        let descriptor = self.schema.column(self.columns);
        self.columns += 1;
        column.append(&mut self.group, descriptor, statistics)
    }

    /// Writes a column with crate `parquet`, value by value.
    fn left_to_library<D: DataType>(
        &mut self,
        changes: &[u32],
        values: &[D::T],
    ) -> Result<(), ParquetError> {
        let mut levels: Vec<i16> = Vec::with_capacity(self.rows);
        for (end, level) in changes
            .iter()
            .map(|end| *end as usize)
            .chain([self.rows])
            .zip([1, 0].into_iter().cycle())
        {
            levels.resize(end, level);
        }

        let missing = || ParquetError::General("more columns than the schema has".to_owned());
        let mut column = self.group.next_column()?.ok_or_else(missing)?;
        self.columns += 1;
        column.typed::<D>().write_batch(values, Some(&levels), None)?;
        column.close()
    }
}

fn bounds<T: Copy + Ord>(values: &[T]) -> Option<(T, T)> {
    values.iter().copied().min().zip(values.iter().copied().max())
}

fn statistics<D: DataType>(bounds: Option<(D::T, D::T)>, missing: usize) -> ValueStatistics<D::T> {
    let (min, max) = bounds.unzip();
    ValueStatistics::new(min, max, None, Some(missing as u64), false)
}
