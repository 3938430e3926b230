//! Encoding protobuf: <https://protobuf.dev/programming-guides/encoding/>.
//!
//! Numbers go through a fixed-size buffer with one 8-byte store each: key and varint are combined in a register. Texts and
//! bytes follow, written directly to the output; their length is added up first, because the message is preceded by its
//! length.

use crate::schema::Message;
use crate::value::Visitor;
use crate::{Field, FieldSet, Kind, PollTotals, SocketRecord, Tags};
use std::net::IpAddr;

/// Room for all numbers and addresses of a message at their largest, rounded up to a power of two.
const NUMBERS_MAX_BYTES: usize = 2048;

/// A writer of messages, with its buffer.
pub(crate) struct ProtobufWriter {
    numbers: Box<[u8; NUMBERS_MAX_BYTES + 16]>,
}

impl ProtobufWriter {
    pub(crate) fn new() -> ProtobufWriter {
        ProtobufWriter { numbers: Box::new([0; NUMBERS_MAX_BYTES + 16]) }
    }

    /// Appends a complete record, preceded by what `head` writes for its length.
    pub(crate) fn write_record(
        &mut self,
        record: &SocketRecord<'_>,
        out: &mut Vec<u8>,
        head: impl FnOnce(usize, &mut Vec<u8>),
    ) {
        self.write(record, None, out, head);
    }

    /// The same with chosen fields. Both ways have separate code, so that a complete record need not check the choice.
    pub(crate) fn write_fields(
        &mut self,
        record: &SocketRecord<'_>,
        fields: &FieldSet,
        out: &mut Vec<u8>,
        head: impl FnOnce(usize, &mut Vec<u8>),
    ) {
        self.write(record, Some(fields), out, head);
    }

    /// The same for totals.
    pub(crate) fn write_totals(
        &mut self,
        totals: &PollTotals<'_>,
        out: &mut Vec<u8>,
        head: impl FnOnce(usize, &mut Vec<u8>),
    ) {
        self.write(totals, None, out, head);
    }

    /// The same for a row of another table, which is always complete.
    pub(crate) fn write_row<'a>(
        &mut self,
        row: &impl Message<'a>,
        out: &mut Vec<u8>,
        head: impl FnOnce(usize, &mut Vec<u8>),
    ) {
        self.write(row, None, out, head);
    }

    #[inline(always)]
    fn write<'a, M: Message<'a>>(
        &mut self,
        message: &M,
        set: Option<&FieldSet>,
        out: &mut Vec<u8>,
        head: impl FnOnce(usize, &mut Vec<u8>),
    ) {
        // Smaller than the buffer: a length equal to the buffer's would be masked to 0.
        const { assert!(largest(M::FIELDS) < NUMBERS_MAX_BYTES) };

        let mut numbers = Numbers { buffer: &mut self.numbers, at: 0 };
        message.visit(set, &mut numbers);
        // Below the buffer's length, as asserted. The mask lets the compiler omit its bounds check.
        let numbers_len = numbers.at & (NUMBERS_MAX_BYTES - 1);
        let mut len = Length(numbers_len);
        message.visit(set, &mut len);

        head(len.0, out);
        out.extend_from_slice(&self.numbers[..numbers_len]);
        message.visit(set, &mut Texts(out));
    }
}

/// The most bytes that the numbers and addresses of these fields can take.
pub(crate) const fn largest(fields: &[Field]) -> usize {
    let (mut sum, mut at) = (0, 0);

    // A const function has no `for`.
    while at < fields.len() {
        sum += key_len(fields[at].number)
            + match fields[at].kind {
                Kind::Bool => 1,
                Kind::U8 | Kind::Word(_) => 2,
                Kind::U16 => 3,
                Kind::U32 => 5,
                Kind::U64 => 10,
                Kind::Fixed64 => 8,
                Kind::Address => 17,
                Kind::Text | Kind::Bytes | Kind::Data | Kind::Tags => 0,
            };
        at += 1;
    }

    sum
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// The bytes of a field's key, in little-endian order.
const fn key(number: u32, wire_type: u64) -> u64 {
    assert!(number > 0 && number < 1 << 11, "keys of at most two bytes");
    let key = (number as u64) << 3 | wire_type;
    if key < 0x80 { key } else { key & 0x7f | 0x80 | (key >> 7) << 8 }
}

const fn key_len(number: u32) -> usize {
    if number < 16 { 1 } else { 2 }
}

/// First visit: numbers and addresses.
struct Numbers<'b> {
    buffer: &'b mut [u8; NUMBERS_MAX_BYTES + 16],
    at: usize,
}

impl Numbers<'_> {
    /// Stores 8 bytes, of which the first `len` count.
    #[inline(always)]
    fn put(&mut self, word: u64, len: usize) {
        // `largest` proves that `at` stays below. The mask lets the compiler omit its bounds check.
        let at = self.at & (NUMBERS_MAX_BYTES - 1);
        self.buffer[at..at + 8].copy_from_slice(&word.to_le_bytes());
        self.at = at + len;
    }

    /// Writes a key and a varint of up to 35 bits.
    #[inline(always)]
    fn put_short<const NUMBER: u32>(&mut self, value: u64) {
        let (key, key_len) = const { (key(NUMBER, VARINT), key_len(NUMBER)) };
        if value < 0x80 {
            self.put(key | value << (8 * key_len), key_len + 1);
        } else {
            let (varint, len) = varint56(value);
            self.put(key | varint << (8 * key_len), key_len + len);
        }
    }
}

/// The varint of a value below 2^56, in little-endian order, and its length: groups of 7 bits spread over bytes, with the
/// continuation bits of all but the last set.
#[inline(always)]
fn varint56(value: u64) -> (u64, usize) {
    // In three steps, the upper half of every unit moves up to where its own unit begins. Moving a part up by n bits means
    // adding it 2^n - 1 times.
    let spread = value + (value & 0x00ff_ffff_f000_0000) * 15;
    let spread = spread + (spread & 0x0fff_c000_0fff_c000) * 3;
    let spread = spread + (spread & 0x3f80_3f80_3f80_3f80);

    let (more, len) = SHAPES[(value | 1).ilog2() as usize & 63];
    (spread | more, len)
}

/// For each position of a number's highest set bit: the continuation bits of its varint, and the varint's length.
static SHAPES: [(u64, usize); 64] = {
    let mut shapes = [(0x8080_8080_8080_8080, 10); 64];
    let mut highest_bit = 0;
    while highest_bit < 56 {
        let len = highest_bit / 7 + 1;
        shapes[highest_bit] = (0x0080_8080_8080_8080 & ((1 << (8 * (len - 1))) - 1), len);
        highest_bit += 1;
    }
    shapes
};

impl Visitor for Numbers<'_> {
    #[inline(always)]
    fn u8<const NUMBER: u32>(&mut self, _: &'static Field, value: u8) {
        // At most two bytes, without a branch.
        let (key, key_len) = const { (key(NUMBER, VARINT), key_len(NUMBER)) };
        let (value, high) = (u64::from(value), u64::from(value >> 7));
        self.put(key | (value | high << 8) << (8 * key_len), key_len + 1 + high as usize);
    }

    #[inline(always)]
    fn u16<const NUMBER: u32>(&mut self, _: &'static Field, value: u16) {
        self.put_short::<NUMBER>(value.into());
    }

    #[inline(always)]
    fn u32<const NUMBER: u32>(&mut self, _: &'static Field, value: u32) {
        self.put_short::<NUMBER>(value.into());
    }

    #[inline(always)]
    fn unsigned<const NUMBER: u32>(&mut self, field: &'static Field, value: u64) {
        let key_len = const { key_len(NUMBER) };
        if matches!(field.kind, Kind::Fixed64) {
            self.put(const { key(NUMBER, FIXED64) }, key_len);
            self.put(value, 8);
            return;
        }

        // Key and varint take at most 7 bytes, so one store suffices.
        if value < 1 << 35 {
            return self.put_short::<NUMBER>(value);
        }

        self.put(const { key(NUMBER, VARINT) }, key_len);
        if value < 1 << 56 {
            let (varint, len) = varint56(value);
            self.put(varint, len);
        } else {
            // Eight full groups, and the rest in one or two bytes.
            let (varint, _) = varint56(value & ((1 << 56) - 1));
            self.put(varint | 0x8080_8080_8080_8080, 8);
            let rest = value >> 56;
            let high = rest >> 7;
            self.put(rest | high << 8, 1 + high as usize);
        }
    }

    #[inline(always)]
    fn bool<const NUMBER: u32>(&mut self, _: &'static Field, value: bool) {
        let (key, key_len) = const { (key(NUMBER, VARINT), key_len(NUMBER)) };
        self.put(key | u64::from(value) << (8 * key_len), key_len + 1);
    }

    #[inline(always)]
    fn word<const NUMBER: u32>(
        &mut self,
        field: &'static Field,
        value: u8,
        _: Option<&'static str>,
    ) {
        self.u8::<NUMBER>(field, value);
    }

    #[inline(always)]
    fn address<const NUMBER: u32>(&mut self, _: &'static Field, value: IpAddr) {
        let (key, key_len) = const { (key(NUMBER, BYTES), key_len(NUMBER)) };
        self.put(key | 16 << (8 * key_len), key_len + 1);

        let [low, high] = match value {
            // `::ffff:a.b.c.d`, both halves in little-endian order.
            IpAddr::V4(v4) => [0, 0xffff_0000 | u64::from(u32::from_le_bytes(v4.octets())) << 32],
            IpAddr::V6(v6) => {
                let address = u128::from_le_bytes(v6.octets());
                [address as u64, (address >> 64) as u64]
            }
        };

        self.put(low, 8);
        self.put(high, 8);
    }

    #[inline(always)]
    fn text<const NUMBER: u32>(&mut self, _: &'static Field, _: &str) {}
    #[inline(always)]
    fn bytes<const NUMBER: u32>(&mut self, _: &'static Field, _: &[u8]) {}
    #[inline(always)]
    fn tags<const NUMBER: u32>(&mut self, _: &'static Field, _: Tags<'_>) {}
}

/// Second visit: the total length.
struct Length(usize);

/// Third visit: texts, bytes and tags.
struct Texts<'o>(&'o mut Vec<u8>);

/// A visitor that only handles texts, bytes and tags.
macro_rules! skip_numbers {
    () => {
        #[inline(always)]
        fn unsigned<const NUMBER: u32>(&mut self, _: &'static Field, _: u64) {}
        #[inline(always)]
        fn bool<const NUMBER: u32>(&mut self, _: &'static Field, _: bool) {}
        #[inline(always)]
        fn word<const NUMBER: u32>(&mut self, _: &'static Field, _: u8, _: Option<&'static str>) {}
        #[inline(always)]
        fn address<const NUMBER: u32>(&mut self, _: &'static Field, _: IpAddr) {}
        #[inline(always)]
        fn text<const NUMBER: u32>(&mut self, field: &'static Field, value: &str) {
            self.bytes::<NUMBER>(field, value.as_bytes());
        }
    };
}

impl Visitor for Length {
    skip_numbers!();

    #[inline(always)]
    fn bytes<const NUMBER: u32>(&mut self, _: &'static Field, value: &[u8]) {
        self.0 += field_len(NUMBER, value.len());
    }

    fn tags<const NUMBER: u32>(&mut self, _: &'static Field, value: Tags<'_>) {
        for (name, value) in value.iter() {
            self.0 += field_len(NUMBER, field_len(1, name.len()) + field_len(2, value.len()));
        }
    }
}

impl Visitor for Texts<'_> {
    skip_numbers!();

    #[inline(always)]
    fn bytes<const NUMBER: u32>(&mut self, _: &'static Field, value: &[u8]) {
        put_key(NUMBER, value.len(), self.0);
        self.0.extend_from_slice(value);
    }

    fn tags<const NUMBER: u32>(&mut self, _: &'static Field, value: Tags<'_>) {
        for (name, value) in value.iter() {
            put_key(NUMBER, field_len(1, name.len()) + field_len(2, value.len()), self.0);
            put_key(1, name.len(), self.0);
            self.0.extend_from_slice(name.as_bytes());
            put_key(2, value.len(), self.0);
            self.0.extend_from_slice(value.as_bytes());
        }
    }
}

/// The size of a length-delimited field.
pub(crate) fn field_len(number: u32, len: usize) -> usize {
    key_len(number) + varint_len(len as u64) + len
}

/// One byte per 7 bits, at least one. `(bits * 9 + 64) / 64` is `bits / 7` rounded up, for 1 to 64 bits.
#[inline(always)]
pub(crate) fn varint_len(value: u64) -> usize {
    ((u64::BITS - (value | 1).leading_zeros()) as usize * 9 + 64) >> 6
}

/// Writes the key and length of a length-delimited field.
#[inline(always)]
pub(crate) fn put_key(number: u32, len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&key(number, BYTES).to_le_bytes()[..key_len(number)]);
    put_varint(len as u64, out);
}

/// Writes the field `stream_id` of a datagram.
pub(crate) fn put_stream_id(value: u64, out: &mut Vec<u8>) {
    out.push(key(crate::datagram::STREAM_ID, FIXED64) as u8);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes the key and value of a varint field.
pub(crate) fn put_number(number: u32, value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&key(number, VARINT).to_le_bytes()[..key_len(number)]);
    put_varint(value, out);
}

#[inline(always)]
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
