//! JSON with the table's names: numbers as numbers, however large; words as words, addresses as text, bytes in base64. Absent
//! fields are omitted.

use crate::schema::Visit;
use crate::text::{DIGITS_BYTES, SHORT_BYTES, decimal, put_address, put_base64, put_json_text};
use crate::value::{Visitor, address_bytes};
use crate::{Field, FieldSet, Kind, Tags};
use std::net::IpAddr;

/// Appends one object.
#[inline(never)]
pub(crate) fn put_object<M: Visit>(message: &M, set: Option<&FieldSet>, out: &mut Vec<u8>) {
    put::<M, false>(message, set, out);
}

/// Appends one object in protobuf's JSON mapping (<https://protobuf.dev/programming-guides/json/>).
#[inline(never)]
pub(crate) fn put_canonical<M: Visit>(message: &M, set: Option<&FieldSet>, out: &mut Vec<u8>) {
    put::<M, true>(message, set, out);
}

#[inline(always)]
fn put<M: Visit, const CANONICAL: bool>(message: &M, set: Option<&FieldSet>, out: &mut Vec<u8>) {
    let start = out.len();
    let mut object = Object::<CANONICAL> { out, buffer: [0; BUFFER_BYTES + SPARE_BYTES], at: 0 };
    message.visit(set, &mut object);
    object.flush();

    // Every key was preceded by a comma; the first comma becomes the opening brace.
    match out.get_mut(start) {
        Some(comma) => *comma = b'{',
        None => out.push(b'{'),
    }
    out.push(b'}');
}

/// Appends tags as an object.
pub(crate) fn put_tags(tags: Tags<'_>, out: &mut Vec<u8>) {
    let mut separator = b'{';
    for (name, value) in tags.iter() {
        out.push(separator);
        put_json_text(name, out);
        out.push(b':');
        put_json_text(value, out);
        separator = b',';
    }
    out.push(b'}');
}

/// Keys and numbers go through a fixed-size buffer, by fixed-size copies; it is flushed when full, and before each text.
struct Object<'o, const CANONICAL: bool> {
    out: &'o mut Vec<u8>,
    buffer: [u8; BUFFER_BYTES + SPARE_BYTES],
    at: usize,
}

const BUFFER_BYTES: usize = 1024;

/// More than one key and one number take in the buffer.
const SPARE_BYTES: usize = SHORT_BYTES + DIGITS_BYTES + 16;

impl<const CANONICAL: bool> Object<'_, CANONICAL> {
    /// Copies a padded text, of which `len` bytes count.
    #[inline(always)]
    fn put<const N: usize>(&mut self, padded: &[u8; N], len: usize) {
        if let Some(place) = self.buffer.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *place = *padded;
        }
        self.at += len;
    }

    /// The same code for all fields: with separate code for each field, a record's encoder would not fit into the CPU's
    /// cache.
    #[inline(never)]
    fn number(&mut self, field: &'static Field, value: u64) {
        self.key(field);
        // Readers of the canonical form may keep numbers as doubles, so 64-bit numbers are strings there.
        let is_text = CANONICAL && matches!(field.kind, Kind::U64 | Kind::Fixed64);
        if is_text {
            self.put(b"\"", 1);
        }
        decimal(value, |digits, len| self.put(&digits, len));
        if is_text {
            self.put(b"\"", 1);
        }
    }

    #[inline(always)]
    fn key(&mut self, field: &'static Field) {
        if self.at >= BUFFER_BYTES {
            self.flush();
        }
        if CANONICAL {
            self.flush();
            self.out.extend_from_slice(b",\"");
            self.out.extend_from_slice(field.json_name.as_bytes());
            self.out.extend_from_slice(b"\":");
        } else {
            let (padded, len) = field.json_key.padded();
            self.put(padded, len);
        }
    }

    /// Writes a key, and returns the output for the caller to write the value to.
    #[inline(never)]
    fn key_of_text(&mut self, field: &'static Field) -> &mut Vec<u8> {
        self.key(field);
        self.flush();
        self.out
    }

    #[inline(never)]
    fn flush(&mut self) {
        self.out.extend_from_slice(self.buffer.get(..self.at).unwrap_or_default());
        self.at = 0;
    }
}

impl<const CANONICAL: bool> Visitor for Object<'_, CANONICAL> {
    #[inline(always)]
    fn unsigned<const NUMBER: u32>(&mut self, field: &'static Field, value: u64) {
        self.number(field, value);
    }

    fn bool<const NUMBER: u32>(&mut self, field: &'static Field, value: bool) {
        self.key(field);
        match value {
            true => self.put(b"true", 4),
            false => self.put(b"false", 5),
        }
    }

    fn word<const NUMBER: u32>(
        &mut self,
        field: &'static Field,
        value: u8,
        word: Option<&'static str>,
    ) {
        let Some(word) = word else { return self.unsigned::<NUMBER>(field, value.into()) };
        let out = self.key_of_text(field);
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }

    fn text<const NUMBER: u32>(&mut self, field: &'static Field, value: &str) {
        put_json_text(value, self.key_of_text(field));
    }

    fn bytes<const NUMBER: u32>(&mut self, field: &'static Field, value: &[u8]) {
        if !CANONICAL && matches!(field.kind, Kind::Data) {
            if let Ok(text) = str::from_utf8(value) {
                return self.text::<NUMBER>(field, text);
            }
            self.flush();
            self.out.extend_from_slice(b",\"");
            self.out.extend_from_slice(field.name.as_bytes());
            self.out.extend_from_slice(b"_base64\":");
        } else {
            self.key_of_text(field);
        }

        self.out.push(b'"');
        put_base64(value, self.out);
        self.out.push(b'"');
    }

    fn address<const NUMBER: u32>(&mut self, field: &'static Field, value: IpAddr) {
        if CANONICAL {
            return self.bytes::<NUMBER>(field, &address_bytes(value));
        }
        let out = self.key_of_text(field);
        out.push(b'"');
        put_address(value, out);
        out.push(b'"');
    }

    fn tags<const NUMBER: u32>(&mut self, field: &'static Field, value: Tags<'_>) {
        if !value.is_empty() {
            put_tags(value, self.key_of_text(field));
        }
    }
}
