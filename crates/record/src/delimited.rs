//! Text tables: a header line, then one line per record with a cell for every chosen field. An absent field is an empty
//! cell.
//!
//! CSV quotes as in RFC 4180; an empty text is `""`. TSV escapes tab, line feed, carriage return and backslash with a
//! backslash; an empty text looks like an absent field there. Texts are written unchanged, including those that a
//! spreadsheet would interpret as a formula (`=…`): import such columns as text.

use crate::schema::Visit;
use crate::text::{put_address, put_base64, put_decimal};
use crate::value::Visitor;
use crate::{Field, FieldSet, Kind, Tags, json};
use std::net::IpAddr;

/// A column order that differs from the table's, and a buffer for a line in the table's order.
pub(crate) struct Order {
    fields: Vec<&'static Field>,
    /// For each column, the index of its field among the chosen ones in the table's order.
    places: Vec<usize>,
    line: Vec<u8>,
    /// Where the cells of `line` end, including their separators.
    ends: Vec<usize>,
}

impl Order {
    /// `None` if it is the table's own order.
    pub(crate) fn of(fields: &[&'static Field]) -> Option<Order> {
        let by_table: Vec<u32> = FieldSet::of(fields).fields().map(|field| field.number).collect();
        let place = |field: &&Field| by_table.iter().position(|number| *number == field.number);
        let places: Vec<usize> = fields.iter().filter_map(place).collect();

        (!places.is_sorted()).then(|| Order {
            fields: fields.to_vec(),
            places,
            line: Vec::new(),
            ends: Vec::new(),
        })
    }

    /// Appends the cells in this order.
    fn put(&self, out: &mut Vec<u8>) {
        for &place in &self.places {
            let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
            out.extend_from_slice(&self.line[start..self.ends[place]]);
        }
    }
}

/// Appends the header line with the names of these fields, or of those in `order`.
pub(crate) fn put_header<'f>(
    fields: impl Iterator<Item = &'f Field>,
    order: Option<&Order>,
    separator: u8,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let mut put = |field: &Field| {
        out.extend_from_slice(field.name.as_bytes());
        out.push(separator);
        if matches!(field.kind, Kind::Data) {
            out.extend_from_slice(field.name.as_bytes());
            out.extend_from_slice(b"_base64");
            out.push(separator);
        }
    };

    match order {
        Some(order) => order.fields.iter().for_each(|field| put(field)),
        None => fields.for_each(put),
    }

    end_line(start, out);
}

/// Appends one line of comma-separated values.
#[inline(never)]
pub(crate) fn put_csv<M: Visit>(
    message: &M,
    set: Option<&FieldSet>,
    order: Option<&mut Order>,
    out: &mut Vec<u8>,
) {
    put_line::<M, b','>(message, set, order, out);
}

/// Appends one line of tab-separated values.
#[inline(never)]
pub(crate) fn put_tsv<M: Visit>(
    message: &M,
    set: Option<&FieldSet>,
    order: Option<&mut Order>,
    out: &mut Vec<u8>,
) {
    put_line::<M, b'\t'>(message, set, order, out);
}

#[inline(always)]
fn put_line<M: Visit, const SEPARATOR: u8>(
    message: &M,
    set: Option<&FieldSet>,
    order: Option<&mut Order>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    match order {
        None => message.visit(set, &mut Cells::<SEPARATOR> { out, ends: None }),
        Some(order) => {
            order.line.clear();
            order.ends.clear();
            // `visit` only knows the table's order; the cells are rearranged afterwards.
            let (line, ends) = (&mut order.line, Some(&mut order.ends));
            message.visit(set, &mut Cells::<SEPARATOR> { out: line, ends });
            order.put(out);
        }
    }

    end_line(start, out);
}

/// Every cell ends with a separator; the last one becomes the end of the line.
fn end_line(start: usize, out: &mut Vec<u8>) {
    match out.get_mut(start..).and_then(<[u8]>::last_mut) {
        Some(separator) => *separator = b'\n',
        None => out.push(b'\n'),
    }
}

/// Doubles every `byte` from `start` on.
fn double(byte: u8, start: usize, out: &mut Vec<u8>) {
    let mut from = out.len();
    let more = out.iter().skip(start).filter(|&&other| other == byte).count();
    let mut to = from + more;
    out.resize(to, 0);

    // In place and backwards, so that each byte is read before it is overwritten.
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

struct Cells<'o, const SEPARATOR: u8> {
    out: &'o mut Vec<u8>,
    /// Where each cell ends, if requested.
    ends: Option<&'o mut Vec<usize>>,
}

impl<const SEPARATOR: u8> Cells<'_, SEPARATOR> {
    #[inline(always)]
    fn end(&mut self) {
        self.out.push(SEPARATOR);
        if let Some(ends) = &mut self.ends {
            ends.push(self.out.len());
        }
    }

    fn put_quoted(&mut self, text: &str) {
        let special = |byte: u8| matches!(byte, b'"' | b',' | b'\n' | b'\r');
        if !text.is_empty() && !text.bytes().any(special) {
            return self.out.extend_from_slice(text.as_bytes());
        }

        self.out.push(b'"');
        for byte in text.bytes() {
            self.out.push(byte);
            if byte == b'"' {
                self.out.push(b'"');
            }
        }
        self.out.push(b'"');
    }

    fn put_escaped(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                _ => self.out.push(byte),
            }
        }
    }
}

impl<const SEPARATOR: u8> Visitor for Cells<'_, SEPARATOR> {
    #[inline(always)]
    fn absent(&mut self, field: &'static Field) {
        self.end();
        if matches!(field.kind, Kind::Data) {
            self.end();
        }
    }

    #[inline(always)]
    fn unsigned<const NUMBER: u32>(&mut self, _: &'static Field, value: u64) {
        put_decimal(value, self.out);
        self.end();
    }

    fn bool<const NUMBER: u32>(&mut self, _: &'static Field, value: bool) {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        self.end();
    }

    fn word<const NUMBER: u32>(
        &mut self,
        _: &'static Field,
        value: u8,
        word: Option<&'static str>,
    ) {
        match word {
            Some(word) => self.out.extend_from_slice(word.as_bytes()),
            None => put_decimal(value.into(), self.out),
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

    fn bytes<const NUMBER: u32>(&mut self, field: &'static Field, value: &[u8]) {
        if matches!(field.kind, Kind::Data) {
            // Two cells, one of which is empty.
            if let Ok(text) = str::from_utf8(value) {
                self.text::<NUMBER>(field, text);
                return self.end();
            }
            self.end();
        }

        put_base64(value, self.out);
        self.end();
    }

    fn address<const NUMBER: u32>(&mut self, _: &'static Field, value: IpAddr) {
        put_address(value, self.out);
        self.end();
    }

    fn tags<const NUMBER: u32>(&mut self, field: &'static Field, value: Tags<'_>) {
        if value.is_empty() {
            return self.absent(field);
        }

        // JSON contains no raw tab or line feed, so only one byte needs escaping: CSV's quote, TSV's backslash.
        let quote = if SEPARATOR == b',' { b'"' } else { b'\\' };
        if SEPARATOR == b',' {
            self.out.push(quote);
        }

        let start = self.out.len();
        json::put_tags(value, self.out);
        double(quote, start, self.out);
        if SEPARATOR == b',' {
            self.out.push(quote);
        }

        self.end();
    }
}
