//! Blocks in ClickHouse's format `Native`: one column after another, each with its name and its type
//! (<https://clickhouse.com/docs/interfaces/formats/Native>). The engine matches columns by name and casts those whose type
//! differs in the table; a column missing from a block gets the table's default for absent values.

use crate::protobuf::put_varint;
use crate::{Cell, CellReader, DecodeError, Field, FieldSet, Kind, RowKind, Tags};

/// How a ClickHouse table stores a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Never NULL: 0 or empty if absent.
    Always,
    /// NULL if absent.
    Nullable,
    /// A text stored as the 16 bytes of its UUID; NULL if absent or not a UUID.
    NullableUuid,
}

/// Fields in a table's sorting key, or present in every row.
const ALWAYS: &[&str] = &[
    "record_kind",
    "time_unix_ns",
    "cookie",
    "host",
    "tags",
    "listener",
    "source_address",
    "payload",
    "definition",
    "key",
    "agent",
];

impl Presence {
    /// How the field with this name is stored.
    pub(crate) const fn of(name: &str) -> Presence {
        let mut at = 0;
        while at < ALWAYS.len() {
            if is_same(ALWAYS[at], name) {
                return Presence::Always;
            }
            at += 1;
        }
        if is_same("boot_id", name) { Presence::NullableUuid } else { Presence::Nullable }
    }
}

/// A const function cannot compare texts with `==`.
const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// The type of values of this kind, when present.
pub(crate) fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::U8 | Kind::Word(_) => "UInt8",
        Kind::U16 => "UInt16",
        Kind::U32 => "UInt32",
        Kind::U64 | Kind::Fixed64 => "UInt64",
        Kind::Bool => "Bool",
        Kind::Text | Kind::Bytes | Kind::Data => "String",
        Kind::Address => "IPv6",
        Kind::Tags => "Map(String, String)",
    }
}

/// Rows between checks of the columns' length.
const LOOK_ROWS: usize = 64;

/// Collects rows of one of the tables in `deploy/clickhouse`, column by column.
pub struct Native {
    reader: CellReader,
    columns: Vec<Column>,
    rows: usize,
    /// Length of the columns at the last check.
    column_bytes: usize,
    /// Length of the messages added since then.
    message_bytes: usize,
}

impl Native {
    /// A writer of rows of this kind. Socket records have only these fields.
    pub fn new(kind: RowKind, fields: &FieldSet) -> Native {
        let fields = chosen(kind, fields);
        Native {
            reader: CellReader::new(&fields),
            columns: fields.into_iter().map(Column::new).collect(),
            rows: 0,
            column_bytes: 0,
            message_bytes: 0,
        }
    }

    /// The table for rows of this kind.
    pub fn table(kind: RowKind) -> &'static str {
        kind.table()
    }

    /// All column names, separated by commas, for an `INSERT`.
    pub fn columns(kind: RowKind) -> String {
        let names: Vec<&str> = kind.fields().iter().map(|field| field.name).collect();
        names.join(",")
    }

    /// The columns that a block may have, with their types as declared in the block. Socket records have only these fields.
    pub fn types(kind: RowKind, fields: &FieldSet) -> impl Iterator<Item = (&'static str, String)> {
        chosen(kind, fields).into_iter().map(|field| (field.name, column_type(field)))
    }

    /// Adds a row given as its protobuf message.
    ///
    /// # Errors
    /// The message is not one of this table; nothing was added.
    pub fn push(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let (row, columns) = (self.rows, &mut self.columns);
        let read = self.reader.read(message, |column, cell| {
            if let Some(column) = columns.get_mut(column) {
                column.put(row, cell);
            }
        });
        if read.is_err() {
            columns.iter_mut().for_each(|column| column.take_back(row));
            return read;
        }

        self.rows += 1;
        self.message_bytes += message.len();
        if self.rows.is_multiple_of(LOOK_ROWS) {
            self.message_bytes = 0;
            self.column_bytes = self.columns.iter().map(Column::bytes).sum();
        }
        Ok(())
    }

    /// Bytes of the block so far; the most recent rows are estimated by the length of their messages.
    pub fn bytes(&self) -> usize {
        self.column_bytes + self.message_bytes
    }

    /// Completes the block and begins the next. It contains the columns with a value in at least one row, and always the first
    /// one.
    pub fn finish(&mut self) -> Vec<u8> {
        let rows = std::mem::take(&mut self.rows);
        (self.column_bytes, self.message_bytes) = (0, 0);
        let mut is_first = true;
        let is_there = |column: &&mut Column| std::mem::take(&mut is_first) || column.rows > 0;
        let mut columns: Vec<&mut Column> = self.columns.iter_mut().filter(is_there).collect();
        columns.iter_mut().for_each(|column| column.fill_up(rows));

        let bytes: usize = columns.iter().map(|column| column.bytes() + HEADER_BYTES).sum();
        let mut out = Vec::with_capacity(bytes);
        put_varint(columns.len() as u64, &mut out);
        put_varint(rows as u64, &mut out);
        columns.into_iter().for_each(|column| column.drain_into(&mut out));
        out
    }
}

/// The fields of rows of this kind.
fn chosen(kind: RowKind, fields: &FieldSet) -> Vec<&'static Field> {
    match kind {
        RowKind::Record => fields.fields().collect(),
        _ => kind.fields().iter().collect(),
    }
}

/// The type that a block declares for a field's column.
fn column_type(field: &Field) -> String {
    match field.presence {
        Presence::Always => type_of(field.kind).to_owned(),
        Presence::Nullable => format!("Nullable({})", type_of(field.kind)),
        Presence::NullableUuid => "Nullable(UUID)".to_owned(),
    }
}

/// Upper bound on the name and type of a column.
const HEADER_BYTES: usize = 96;

/// A column that grows one value at a time. A row without a value costs nothing: the gap is filled when the next value arrives,
/// or when the block ends.
struct Column {
    field: &'static Field,
    /// Number of rows so far, including gaps.
    rows: usize,
    /// Values in the block's format, zeros where there is none; for tags, the cumulative number of entries after each row.
    values: Vec<u8>,
    /// Length of `values` before the last one.
    last: usize,
    /// 1 where there is no value. Empty if the column is never NULL.
    nulls: Vec<u8>,
    /// Names and values of tags; empty for all other kinds.
    entries: Entries,
}

#[derive(Default)]
struct Entries {
    count: u64,
    names: Vec<u8>,
    values: Vec<u8>,
    /// All three before the last row.
    last: (u64, usize, usize),
}

impl Column {
    fn new(field: &'static Field) -> Column {
        let entries = Entries::default();
        Column { field, rows: 0, values: Vec::new(), last: 0, nulls: Vec::new(), entries }
    }

    fn bytes(&self) -> usize {
        self.values.len() + self.nulls.len() + self.entries.names.len() + self.entries.values.len()
    }

    /// Stores the value of row number `row`. A second value for the same row replaces the first.
    #[inline(always)]
    fn put(&mut self, row: usize, cell: Cell<'_>) {
        if self.rows != row {
            self.come_to(row);
        }
        self.last = self.values.len();
        let is_known = match cell {
            Cell::Number(number) => self.put_number(number),
            Cell::Bytes(bytes) => self.put_bytes(bytes),
            Cell::Address(address) => {
                self.values.extend_from_slice(address);
                true
            }
            Cell::Tags(tags) => {
                self.entries.put(tags);
                self.values.extend_from_slice(&self.entries.count.to_le_bytes());
                true
            }
        };

        if self.field.presence != Presence::Always {
            self.nulls.push(u8::from(!is_known));
        }
        self.rows = row + 1;
    }

    #[inline(always)]
    fn put_number(&mut self, number: u64) -> bool {
        // Copies of known length are one instruction each.
        let (bytes, values) = (number.to_le_bytes(), &mut self.values);
        match self.field.kind {
            Kind::U64 | Kind::Fixed64 => values.extend_from_slice(&bytes),
            Kind::U32 => values.extend_from_slice(&bytes[..4]),
            Kind::U16 => values.extend_from_slice(&bytes[..2]),
            _ => values.push(number as u8),
        }
        true
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> bool {
        if self.field.presence != Presence::NullableUuid {
            put_text(bytes, &mut self.values);
            return true;
        }

        let uuid = uuid(bytes);
        // Two 64-bit halves, the higher first, each little-endian.
        let halves = uuid.map_or([0; 2], |uuid| [(uuid >> 64) as u64, uuid as u64]);
        halves.iter().for_each(|half| self.values.extend_from_slice(&half.to_le_bytes()));
        uuid.is_some()
    }

    /// Size of an absent value.
    fn gap_bytes(&self) -> usize {
        match self.field.kind {
            Kind::Text if self.field.presence == Presence::NullableUuid => 16,
            Kind::Address => 16,
            Kind::U64 | Kind::Fixed64 | Kind::Tags => 8,
            Kind::U32 => 4,
            Kind::U16 => 2,
            // An empty text is just its length.
            Kind::U8 | Kind::Bool | Kind::Word(_) | Kind::Text | Kind::Bytes | Kind::Data => 1,
        }
    }

    #[inline(never)]
    fn come_to(&mut self, row: usize) {
        if self.rows > row { self.take_back(row) } else { self.fill_up(row) }
    }

    /// Removes the value of row number `row`, if it has one.
    #[cold]
    fn take_back(&mut self, row: usize) {
        if self.rows <= row {
            return;
        }
        self.values.truncate(self.last);
        self.nulls.pop();
        self.entries.take_back();
        self.rows = row;
    }

    /// Fills the rows from the current one up to `row` with absent values.
    fn fill_up(&mut self, row: usize) {
        let missing = row.saturating_sub(self.rows);
        if self.field.kind == Kind::Tags {
            let count = self.entries.count.to_le_bytes();
            (0..missing).for_each(|_| self.values.extend_from_slice(&count));
        } else {
            self.values.resize(self.values.len() + missing * self.gap_bytes(), 0);
        }
        if self.field.presence != Presence::Always {
            self.nulls.resize(row, 1);
        }
        self.rows = row;
    }

    /// Appends the column with its name and type, and starts over.
    fn drain_into(&mut self, out: &mut Vec<u8>) {
        put_text(self.field.name.as_bytes(), out);
        put_text(column_type(self.field).as_bytes(), out);

        let Entries { names, values, .. } = &mut self.entries;
        for part in [&mut self.nulls, &mut self.values, names, values] {
            out.extend_from_slice(part);
            part.clear();
        }
        self.entries.count = 0;
        self.rows = 0;
    }
}

impl Entries {
    fn put(&mut self, tags: Tags<'_>) {
        self.last = (self.count, self.names.len(), self.values.len());
        for (name, value) in tags.iter() {
            self.count += 1;
            put_text(name.as_bytes(), &mut self.names);
            put_text(value.as_bytes(), &mut self.values);
        }
    }

    fn take_back(&mut self) {
        let (count, names, values) = self.last;
        self.count = count;
        self.names.truncate(names);
        self.values.truncate(values);
    }
}

#[inline(always)]
fn put_text(text: &[u8], out: &mut Vec<u8>) {
    put_varint(text.len() as u64, out);
    out.extend_from_slice(text);
}

/// Parses a UUID: 32 hexadecimal digits, with hyphens after the 8th, 12th, 16th and 20th.
fn uuid(text: &[u8]) -> Option<u128> {
    let bytes: &[u8; 36] = text.try_into().ok()?;
    let mut uuid = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
        } else {
            uuid = uuid << 4 | u128::from((byte as char).to_digit(16)?);
        }
    }
    Some(uuid)
}
