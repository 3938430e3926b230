//! JSON with the table's names: numbers as numbers, however large, words as words, addresses as text, bytes in base64.
//! Absent fields are left out.

use crate::schema::Message;
use crate::text::{put_address, put_base64, put_decimal, put_json_text};
use crate::value::{Visitor, address_bytes};
use crate::{Field, FieldSet, Kind, Tags};
use std::net::IpAddr;

/// Appends one object.
#[inline(never)]
pub(crate) fn put_object<'a, M: Message<'a>>(
    message: &M,
    set: Option<&FieldSet>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    message.visit(set, &mut Object::<false>(out));
    close(start, out);
}

/// Appends one object as protobuf's JSON mapping has it (<https://protobuf.dev/programming-guides/json/>).
#[inline(never)]
pub(crate) fn put_canonical<'a, M: Message<'a>>(
    message: &M,
    set: Option<&FieldSet>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    message.visit(set, &mut Object::<true>(out));
    close(start, out);
}

/// Every key came with a comma before it; the first one's place is the brace's.
fn close(start: usize, out: &mut Vec<u8>) {
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

struct Object<'o, const CANONICAL: bool>(&'o mut Vec<u8>);

impl<const CANONICAL: bool> Object<'_, CANONICAL> {
    #[inline(always)]
    fn key(&mut self, field: &'static Field) {
        if CANONICAL {
            self.0.extend_from_slice(b",\"");
            self.0.extend_from_slice(field.json_name.as_bytes());
            self.0.extend_from_slice(b"\":");
        } else {
            self.0.extend_from_slice(field.json_key.as_bytes());
        }
    }
}

impl<const CANONICAL: bool> Visitor for Object<'_, CANONICAL> {
    #[inline(always)]
    fn unsigned<const NUMBER: u32>(&mut self, field: &'static Field, value: u64) {
        self.key(field);
        // Readers of the canonical form may keep numbers as doubles, so 64-bit ones are texts there.
        let is_text = CANONICAL && matches!(field.kind, Kind::U64 | Kind::Fixed64);
        if is_text {
            self.0.push(b'"');
        }
        put_decimal(value, self.0);
        if is_text {
            self.0.push(b'"');
        }
    }

    fn bool<const NUMBER: u32>(&mut self, field: &'static Field, value: bool) {
        self.key(field);
        self.0.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn word<const NUMBER: u32>(
        &mut self,
        field: &'static Field,
        value: u8,
        word: Option<&'static str>,
    ) {
        self.key(field);
        match word {
            Some(word) => {
                self.0.push(b'"');
                self.0.extend_from_slice(word.as_bytes());
                self.0.push(b'"');
            }
            None => put_decimal(value.into(), self.0),
        }
    }

    fn text<const NUMBER: u32>(&mut self, field: &'static Field, value: &str) {
        self.key(field);
        put_json_text(value, self.0);
    }

    fn bytes<const NUMBER: u32>(&mut self, field: &'static Field, value: &[u8]) {
        if !CANONICAL && matches!(field.kind, Kind::Data) {
            if let Ok(text) = str::from_utf8(value) {
                return self.text::<NUMBER>(field, text);
            }
            self.0.extend_from_slice(b",\"");
            self.0.extend_from_slice(field.name.as_bytes());
            self.0.extend_from_slice(b"_base64\":");
        } else {
            self.key(field);
        }

        self.0.push(b'"');
        put_base64(value, self.0);
        self.0.push(b'"');
    }

    fn address<const NUMBER: u32>(&mut self, field: &'static Field, value: IpAddr) {
        if CANONICAL {
            return self.bytes::<NUMBER>(field, &address_bytes(value));
        }
        self.key(field);
        self.0.push(b'"');
        put_address(value, self.0);
        self.0.push(b'"');
    }

    fn tags<const NUMBER: u32>(&mut self, field: &'static Field, value: Tags<'_>) {
        if !value.is_empty() {
            self.key(field);
            put_tags(value, self.0);
        }
    }
}
