//! Rows for ClickHouse's format `RowBinary`: each column of a table in `deploy/clickhouse` that is not computed there, in the
//! order of our tables (<https://clickhouse.com/docs/interfaces/formats/RowBinary>). No lengths and no names stand between
//! them, so an `INSERT` must name these columns in this order.

use crate::protobuf::put_varint;
use crate::schema::Message;
use crate::value::{Visitor, address_bytes};
use crate::{
    DatagramRecord, DecodeError, Field, Kind, PollTotals, RowKind, SocketRecord, Tags,
    decode_counter_record, decode_datagram_record, decode_flow_record, decode_flow_totals,
    decode_protobuf, decode_totals,
};
use std::net::IpAddr;

/// How a table of ClickHouse has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Never NULL: 0 or empty if it is absent.
    Always,
    /// NULL if it is absent.
    Nullable,
    /// A text that is kept as the 16 bytes it stands for; NULL if it is absent, or no UUID.
    NullableUuid,
}

/// Fields that sort a table or that every row has.
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

impl Column {
    /// The column of the field with this name.
    pub(crate) const fn of(name: &str) -> Column {
        let mut at = 0;
        while at < ALWAYS.len() {
            if is_same(ALWAYS[at], name) {
                return Column::Always;
            }
            at += 1;
        }
        if is_same("boot_id", name) { Column::NullableUuid } else { Column::Nullable }
    }
}

/// Texts cannot be compared by `==` in a const function.
const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Room for all columns of a row but texts at their largest, rounded up to a power of two.
const BUFFER_BYTES: usize = 2048;

/// Writes rows of the tables of `deploy/clickhouse`. It appends to what it is given and allocates nothing else.
pub struct RowBinary {
    buffer: Box<[u8; BUFFER_BYTES + 16]>,
}

impl Default for RowBinary {
    fn default() -> RowBinary {
        RowBinary::new()
    }
}

impl RowBinary {
    /// A writer with its buffer.
    pub fn new() -> RowBinary {
        RowBinary { buffer: Box::new([0; BUFFER_BYTES + 16]) }
    }

    /// The table that takes rows of this kind.
    pub fn table(kind: RowKind) -> &'static str {
        kind.table()
    }

    /// The columns of a row with commas between them, as an `INSERT` must name them.
    pub fn columns(kind: RowKind) -> String {
        let names: Vec<&str> = kind.fields().iter().map(|field| field.name).collect();
        names.join(",")
    }

    /// Appends a row that is given as its protobuf message.
    pub fn row(
        &mut self,
        kind: RowKind,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        match kind {
            RowKind::Record => self.record(&decode_protobuf(message)?, out),
            RowKind::Totals => self.totals(&decode_totals(message)?, out),
            RowKind::Datagram => self.datagram(&decode_datagram_record(message)?, out),
            RowKind::Flow => self.put(&decode_flow_record(message)?, out),
            RowKind::Counters => self.put(&decode_counter_record(message)?, out),
            RowKind::FlowTotals => self.put(&decode_flow_totals(message)?, out),
        }
        Ok(())
    }

    /// Appends a row of `sockets`.
    pub fn record(&mut self, record: &SocketRecord<'_>, out: &mut Vec<u8>) {
        self.put(record, out);
    }

    /// Appends a row of `polls`.
    pub fn totals(&mut self, totals: &PollTotals<'_>, out: &mut Vec<u8>) {
        self.put(totals, out);
    }

    /// Appends a row of `datagrams`.
    pub fn datagram(&mut self, datagram: &DatagramRecord<'_>, out: &mut Vec<u8>) {
        self.put(datagram, out);
    }

    #[inline(always)]
    fn put<'a, M: Message<'a>>(&mut self, message: &M, out: &mut Vec<u8>) {
        const { assert!(largest(M::FIELDS) < BUFFER_BYTES) };

        let mut columns = Columns { buffer: &mut self.buffer, at: 0, out };
        message.visit(None, &mut columns);
        columns.flush();
    }
}

/// The most bytes that columns of these fields take, texts left out but for what stands before them.
const fn largest(fields: &[Field]) -> usize {
    let (mut sum, mut at) = (0, 0);

    // A const function has no `for`.
    while at < fields.len() {
        sum += 1 + width(fields[at].kind);
        at += 1;
    }

    sum
}

/// Bytes of a value; of an empty one, where values differ in length.
const fn width(kind: Kind) -> usize {
    match kind {
        Kind::Bool | Kind::U8 | Kind::Word(_) => 1,
        Kind::U16 => 2,
        Kind::U32 => 4,
        Kind::U64 | Kind::Fixed64 => 8,
        Kind::Address => 16,
        Kind::Text | Kind::Bytes | Kind::Data | Kind::Tags => 1,
    }
}

/// What says that a nullable column has a value, and that it has none.
const VALUE: u64 = 0;
const NULL: u64 = 1;

/// Numbers go through a buffer of fixed size with one 8-byte store each; it is put out before each text.
struct Columns<'b> {
    buffer: &'b mut [u8; BUFFER_BYTES + 16],
    at: usize,
    out: &'b mut Vec<u8>,
}

impl Columns<'_> {
    /// Stores 8 bytes, of which the first `len` count.
    #[inline(always)]
    fn store(&mut self, word: u64, len: usize) {
        // `largest` shows that `at` stays below; the mask says so to the compiler, which then leaves out its check.
        let at = self.at & (BUFFER_BYTES - 1);
        self.buffer[at..at + 8].copy_from_slice(&word.to_le_bytes());
        self.at = at + len;
    }

    /// A number of `len` bytes, 8 at most.
    #[inline(always)]
    fn number(&mut self, field: &'static Field, value: u64, len: usize) {
        if field.column == Column::Always {
            self.store(value, len);
        } else if len < 8 {
            self.store(value << 8 | VALUE, len + 1);
        } else {
            self.store(VALUE, 1);
            self.store(value, 8);
        }
    }

    #[inline(always)]
    fn flag(&mut self, field: &'static Field, flag: u64) {
        if field.column != Column::Always {
            self.store(flag, 1);
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.out.extend_from_slice(&self.buffer[..self.at & (BUFFER_BYTES - 1)]);
        self.at = 0;
    }
}

impl Visitor for Columns<'_> {
    #[inline(always)]
    fn absent(&mut self, field: &'static Field) {
        match (field.column, field.kind) {
            (Column::Always, Kind::Address) => {
                self.store(0, 8);
                self.store(0, 8);
            }
            (Column::Always, kind) => self.store(0, width(kind)),
            _ => self.store(NULL, 1),
        }
    }

    #[inline(always)]
    fn unsigned<const NUMBER: u32>(&mut self, field: &'static Field, value: u64) {
        self.number(field, value, width(field.kind));
    }

    #[inline(always)]
    fn bool<const NUMBER: u32>(&mut self, field: &'static Field, value: bool) {
        self.number(field, value.into(), 1);
    }

    #[inline(always)]
    fn word<const NUMBER: u32>(
        &mut self,
        field: &'static Field,
        value: u8,
        _: Option<&'static str>,
    ) {
        self.number(field, value.into(), 1);
    }

    #[inline(always)]
    fn address<const NUMBER: u32>(&mut self, field: &'static Field, value: IpAddr) {
        self.flag(field, VALUE);
        let address = u128::from_le_bytes(address_bytes(value));
        self.store(address as u64, 8);
        self.store((address >> 64) as u64, 8);
    }

    #[inline(always)]
    fn text<const NUMBER: u32>(&mut self, field: &'static Field, value: &str) {
        if field.column != Column::NullableUuid {
            return self.bytes::<NUMBER>(field, value.as_bytes());
        }

        match uuid(value) {
            // Two halves of 64 bits, the higher first, each in little-endian order.
            Some(uuid) => {
                self.store(VALUE, 1);
                self.store((uuid >> 64) as u64, 8);
                self.store(uuid as u64, 8);
            }
            None => self.store(NULL, 1),
        }
    }

    #[inline(always)]
    fn bytes<const NUMBER: u32>(&mut self, field: &'static Field, value: &[u8]) {
        self.flag(field, VALUE);
        self.flush();
        put_bytes(value, self.out);
    }

    fn tags<const NUMBER: u32>(&mut self, field: &'static Field, value: Tags<'_>) {
        self.flag(field, VALUE);
        self.flush();
        put_varint(value.iter().count() as u64, self.out);
        for (name, value) in value.iter() {
            put_bytes(name.as_bytes(), self.out);
            put_bytes(value.as_bytes(), self.out);
        }
    }
}

#[inline(always)]
fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The number that a text stands for: 32 hexadecimal digits, with hyphens behind the 8th, 12th, 16th and 20th.
fn uuid(text: &str) -> Option<u128> {
    let bytes: &[u8; 36] = text.as_bytes().try_into().ok()?;
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
