//! Tables as text: a line with the names, then one line a record, with a place for every chosen field. An absent field is an
//! empty place.
//!
//! CSV quotes as RFC 4180 says; an empty text is `""`. TSV escapes tab, line feed, carriage return and backslash with a
//! backslash; an empty text looks like an absent field there. Texts are written as they are, also those that a spreadsheet would take for a formula (`=…`): whoever
//! opens the file in one should import such columns as text.

use crate::schema::Message;
use crate::text::{put_address, put_base64, put_decimal};
use crate::value::Sink;
use crate::{Field, FieldSet, Tags, json};
use std::net::IpAddr;

/// Appends the line with the names.
pub(crate) fn put_header(set: &FieldSet, separator: u8, out: &mut Vec<u8>) {
    let start = out.len();
    for field in set.fields() {
        out.extend_from_slice(field.name.as_bytes());
        out.push(separator);
    }
    end_line(start, out);
}

/// Appends one line of comma-separated values.
#[inline(never)]
pub(crate) fn put_csv<'a, M: Message<'a>>(message: &M, set: Option<&FieldSet>, out: &mut Vec<u8>) {
    let start = out.len();
    message.visit(set, &mut Cells::<b','>(out));
    end_line(start, out);
}

/// Appends one line of tab-separated values.
#[inline(never)]
pub(crate) fn put_tsv<'a, M: Message<'a>>(message: &M, set: Option<&FieldSet>, out: &mut Vec<u8>) {
    let start = out.len();
    message.visit(set, &mut Cells::<b'\t'>(out));
    end_line(start, out);
}

/// Every place ends with a separator; the last one's becomes the line's end.
fn end_line(start: usize, out: &mut Vec<u8>) {
    match out.get_mut(start..).and_then(<[u8]>::last_mut) {
        Some(separator) => *separator = b'\n',
        None => out.push(b'\n'),
    }
}

/// Writes every `byte` from `start` on twice.
fn double(byte: u8, start: usize, out: &mut Vec<u8>) {
    let mut from = out.len();
    let more = out.iter().skip(start).filter(|&&other| other == byte).count();
    let mut to = from + more;
    out.resize(to, 0);
    while from < to {
        from -= 1;
        to -= 1;
        out[to] = out[from];
        if out[to] == byte {
            to -= 1;
            out[to] = byte;
        }
    }
}

struct Cells<'o, const SEPARATOR: u8>(&'o mut Vec<u8>);

impl<const SEPARATOR: u8> Cells<'_, SEPARATOR> {
    #[inline(always)]
    fn end(&mut self) {
        self.0.push(SEPARATOR);
    }

    fn put_quoted(&mut self, text: &str) {
        let special = |byte: u8| matches!(byte, b'"' | b',' | b'\n' | b'\r');
        if !text.is_empty() && !text.bytes().any(special) {
            return self.0.extend_from_slice(text.as_bytes());
        }
        self.0.push(b'"');
        for byte in text.bytes() {
            self.0.push(byte);
            if byte == b'"' {
                self.0.push(b'"');
            }
        }
        self.0.push(b'"');
    }

    fn put_escaped(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                b'\t' => self.0.extend_from_slice(b"\\t"),
                b'\n' => self.0.extend_from_slice(b"\\n"),
                b'\r' => self.0.extend_from_slice(b"\\r"),
                b'\\' => self.0.extend_from_slice(b"\\\\"),
                _ => self.0.push(byte),
            }
        }
    }
}

impl<const SEPARATOR: u8> Sink for Cells<'_, SEPARATOR> {
    #[inline(always)]
    fn absent(&mut self, _: &'static Field) {
        self.end();
    }

    #[inline(always)]
    fn unsigned<const NUMBER: u32>(&mut self, _: &'static Field, value: u64) {
        put_decimal(value, self.0);
        self.end();
    }

    fn bool<const NUMBER: u32>(&mut self, _: &'static Field, value: bool) {
        self.0.extend_from_slice(if value { b"true" } else { b"false" });
        self.end();
    }

    fn word<const NUMBER: u32>(
        &mut self,
        _: &'static Field,
        value: u8,
        word: Option<&'static str>,
    ) {
        match word {
            Some(word) => self.0.extend_from_slice(word.as_bytes()),
            None => put_decimal(value.into(), self.0),
        }
        self.end();
    }

    fn text<const NUMBER: u32>(&mut self, _: &'static Field, value: &str) {
        if SEPARATOR == b',' {
            self.put_quoted(value);
        } else {
            self.put_escaped(value);
        }
        self.end();
    }

    fn bytes<const NUMBER: u32>(&mut self, _: &'static Field, value: &[u8]) {
        put_base64(value, self.0);
        self.end();
    }

    fn address<const NUMBER: u32>(&mut self, _: &'static Field, value: IpAddr) {
        put_address(value, self.0);
        self.end();
    }

    fn tags<const NUMBER: u32>(&mut self, field: &'static Field, value: Tags<'_>) {
        if value.is_empty() {
            return self.absent(field);
        }
        let quote = if SEPARATOR == b',' { b'"' } else { b'\\' };
        if SEPARATOR == b',' {
            self.0.push(quote);
        }
        let start = self.0.len();
        json::put_tags(value, self.0);
        double(quote, start, self.0);
        if SEPARATOR == b',' {
            self.0.push(quote);
        }
        self.end();
    }
}
