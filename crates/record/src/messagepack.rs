//! MessagePack: each record is a map with names as keys (<https://github.com/msgpack/msgpack/blob/master/spec.md>). Numbers
//! take their shortest form, addresses are text, bytes are `bin`.

use crate::schema::Visit;
use crate::text::put_address;
use crate::value::Visitor;
use crate::{Field, FieldSet, Kind, Tags};
use std::net::IpAddr;

/// Appends one map.
#[inline(never)]
pub(crate) fn put_map<M: Visit>(message: &M, set: Option<&FieldSet>, out: &mut Vec<u8>) {
    let start = out.len();
    // A map with a 16-bit count, which is filled in at the end.
    out.extend_from_slice(&[0xde, 0, 0]);
    let mut entries = Entries { out, count: 0 };
    message.visit(set, &mut entries);

    let count = entries.count.to_be_bytes();
    if let Some(place) = out.get_mut(start + 1..start + 3) {
        place.copy_from_slice(&count);
    }
}

/// Appends a text.
pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    match text.len() {
        len @ ..32 => out.push(0xa0 | len as u8),
        len => put_len(len, [0xd9, 0xda, 0xdb], out),
    }
    out.extend_from_slice(text.as_bytes());
}

/// Writes a length in 1, 2 or 4 bytes, after the marker for that size. Nothing here reaches 4 GiB.
fn put_len(len: usize, markers: [u8; 3], out: &mut Vec<u8>) {
    match len {
        ..0x100 => out.extend_from_slice(&[markers[0], len as u8]),
        0x100..0x1_0000 => {
            out.push(markers[1]);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(markers[2]);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

fn put_unsigned(value: u64, out: &mut Vec<u8>) {
    match value {
        0..0x80 => out.push(value as u8),
        0x80..0x100 => out.extend_from_slice(&[0xcc, value as u8]),
        0x100..0x1_0000 => {
            out.push(0xcd);
            out.extend_from_slice(&(value as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(0xce);
            out.extend_from_slice(&(value as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

struct Entries<'o> {
    out: &'o mut Vec<u8>,
    count: u16,
}

impl Entries<'_> {
    #[inline(always)]
    fn key(&mut self, field: &'static Field) {
        put_text(field.name, self.out);
        self.count += 1;
    }
}

impl Visitor for Entries<'_> {
    #[inline(always)]
    fn unsigned<const NUMBER: u32>(&mut self, field: &'static Field, value: u64) {
        self.key(field);
        put_unsigned(value, self.out);
    }

    fn bool<const NUMBER: u32>(&mut self, field: &'static Field, value: bool) {
        self.key(field);
        self.out.push(0xc2 | u8::from(value));
    }

    fn word<const NUMBER: u32>(
        &mut self,
        field: &'static Field,
        value: u8,
        word: Option<&'static str>,
    ) {
        self.key(field);
        match word {
            Some(word) => put_text(word, self.out),
            None => put_unsigned(value.into(), self.out),
        }
    }

    fn text<const NUMBER: u32>(&mut self, field: &'static Field, value: &str) {
        self.key(field);
        put_text(value, self.out);
    }

    fn bytes<const NUMBER: u32>(&mut self, field: &'static Field, value: &[u8]) {
        if matches!(field.kind, Kind::Data)
            && let Ok(text) = str::from_utf8(value)
        {
            return self.text::<NUMBER>(field, text);
        }

        self.key(field);
        put_len(value.len(), [0xc4, 0xc5, 0xc6], self.out);
        self.out.extend_from_slice(value);
    }

    fn address<const NUMBER: u32>(&mut self, field: &'static Field, value: IpAddr) {
        self.key(field);
        // At most 39 characters: one byte of length, which is filled in afterwards.
        let at = self.out.len();
        self.out.extend_from_slice(&[0xd9, 0]);
        put_address(value, self.out);
        let len = self.out.len() - at - 2;
        if let Some(place) = self.out.get_mut(at + 1) {
            *place = len as u8;
        }
    }

    fn tags<const NUMBER: u32>(&mut self, field: &'static Field, value: Tags<'_>) {
        let count = value.iter().count();
        if count == 0 {
            return;
        }

        self.key(field);
        self.out.push(0xdf);
        self.out.extend_from_slice(&(count as u32).to_be_bytes());
        for (name, value) in value.iter() {
            put_text(name, self.out);
            put_text(value, self.out);
        }
    }
}
