//! A row as values for the columns of a table.

use crate::decode::{Fields, take_short};
use crate::json::put_tags;
use crate::scan::{Form, check};
use crate::text::put_address;
use crate::value::Payload;
use crate::{DecodeError, Field, Tags};
use std::net::Ipv6Addr;

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// A number, the number of a word, or 0 and 1 for no and yes.
    Number(u64),
    /// Text, or raw bytes.
    Bytes(&'a [u8]),
    /// An address; an IPv4 one is `::ffff:a.b.c.d`.
    Address(&'a [u8; 16]),
    /// Names and values.
    Tags(Tags<'a>),
}

impl Cell<'_> {
    /// Appends text and bytes unchanged, an address in canonical text, tags as a JSON object; nothing for a number.
    #[inline]
    pub fn put_text(&self, out: &mut Vec<u8>) {
        match *self {
            Cell::Number(_) => {}
            Cell::Bytes(bytes) => out.extend_from_slice(bytes),
            Cell::Address(address) => put_address(Ipv6Addr::from(*address).into(), out),
            Cell::Tags(tags) => put_tags(tags, out),
        }
    }
}

/// Reads protobuf messages of one table value by value, without building a record, so that absent fields cost nothing.
pub struct CellReader {
    /// Indexed by field number.
    places: Vec<Option<Place>>,
}

/// What the reader needs to know about a field.
#[derive(Clone, Copy)]
struct Place {
    form: Form,
    none: Option<u64>,
    column: u8,
}

/// Where the entries of a tags field are in a message; other fields may lie between them.
#[derive(Clone, Copy)]
struct TagsPlace {
    column: usize,
    number: u32,
    start: usize,
    end: usize,
}

/// Most tags fields in a table.
const TAGS_MAX: usize = 2;

impl CellReader {
    /// A reader of these fields, all of one table. A field's column is its index among them.
    ///
    /// # Panics
    /// If there are more than 256 fields.
    pub fn new(fields: &[&'static Field]) -> CellReader {
        let numbers = fields.iter().map(|field| field.number as usize + 1).max().unwrap_or(0);
        let mut places = vec![None; numbers];
        for (column, field) in fields.iter().enumerate() {
            let column = u8::try_from(column).expect("a column is a byte");
            let place = Place { form: Form::of(field.kind), none: field.none, column };
            places[field.number as usize] = Some(place);
        }
        CellReader { places }
    }

    /// Passes each value of `message` to `put`, with its column. Skips other fields, and numbers that stand for "no value". If a
    /// field occurs twice, both values are passed; the later one counts, as in protobuf.
    ///
    /// # Errors
    /// The message contradicts the table. Values passed before the error must be discarded.
    #[inline]
    pub fn read(
        &self,
        message: &[u8],
        mut put: impl FnMut(usize, Cell<'_>),
    ) -> Result<(), DecodeError> {
        let mut rest = message;
        let mut tags: [Option<TagsPlace>; TAGS_MAX] = [None; TAGS_MAX];
        loop {
            // Nearly all fields are numbers, which take the fast path.
            while let Some((number, value)) = take_short(&mut rest) {
                self.number(number, value, &mut put)?;
            }
            let start = message.len() - rest.len();
            let Some(wire) = Fields::new(rest).next() else { break };
            let wire = wire?;
            rest = rest.get(wire.end..).unwrap_or_default();

            let number = wire.number;
            if let Payload::Varint(value) = wire.payload {
                self.number(number, value, &mut put)?;
                continue;
            }
            let Some(place) = self.place(number) else { continue };
            let column = usize::from(place.column);
            match (place.form, wire.payload) {
                (Form::Fixed64, Payload::Fixed64(value)) => self.give(place, value, &mut put),
                (Form::Varint(_) | Form::Fixed64, _) => {
                    return Err(DecodeError::WrongType { number });
                }
                (form, Payload::Bytes(bytes)) => {
                    check(form, number, bytes)?;
                    match (form, bytes.try_into()) {
                        // Each entry is a separate field, and all lie between the start of the first and the end of the last.
                        (Form::Tags, _) => {
                            let end = message.len() - rest.len();
                            let is_it = |slot: &&mut Option<TagsPlace>| {
                                slot.is_none_or(|one| one.column == column)
                            };
                            if let Some(slot) = tags.iter_mut().find(is_it) {
                                let start = slot.map_or(start, |one| one.start);
                                *slot = Some(TagsPlace { column, number, start, end });
                            }
                        }
                        (Form::Address, Ok(address)) => put(column, Cell::Address(address)),
                        _ => put(column, Cell::Bytes(bytes)),
                    }
                }
                _ => return Err(DecodeError::WrongType { number }),
            }
        }

        for TagsPlace { column, number, start, end } in tags.into_iter().flatten() {
            put(column, Cell::Tags(Tags::between(number, message, start, end)));
        }
        Ok(())
    }

    #[inline(always)]
    fn place(&self, number: u32) -> Option<&Place> {
        self.places.get(number as usize)?.as_ref()
    }

    #[inline(always)]
    fn number(
        &self,
        number: u32,
        value: u64,
        put: &mut impl FnMut(usize, Cell<'_>),
    ) -> Result<(), DecodeError> {
        let Some(place) = self.place(number) else { return Ok(()) };
        match place.form {
            Form::Varint(max) if value <= max => self.give(place, value, put),
            Form::Varint(_) => return Err(DecodeError::OutOfRange { number }),
            _ => return Err(DecodeError::WrongType { number }),
        }
        Ok(())
    }

    #[inline(always)]
    fn give(&self, place: &Place, value: u64, put: &mut impl FnMut(usize, Cell<'_>)) {
        if place.none != Some(value) {
            put(usize::from(place.column), Cell::Number(value));
        }
    }
}
