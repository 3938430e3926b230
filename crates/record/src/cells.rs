//! A row as the columns of a table take it: which field, and its value as a number or as text.

use crate::decode::Fields;
use crate::json::put_tags;
use crate::text::put_address;
use crate::value::{Payload, Value, WireField, text};
use crate::{DecodeError, Field, Kind, Tags};
use std::net::IpAddr;

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// A number, a word's number, or 0 and 1 for no and yes.
    Number(u64),
    /// Text, bytes as they are, an address in canonical text, or tags as a JSON object.
    Bytes(&'a [u8]),
}

/// Reads protobuf messages of one table value by value, without a record in between, so that fields that are absent cost nothing.
pub struct CellReader {
    fields: Vec<&'static Field>,
    /// The column of each field number; `NO_COLUMN` for numbers without a field.
    columns: Vec<u8>,
    /// Where addresses and tags become text.
    text: Vec<u8>,
}

const NO_COLUMN: u8 = u8::MAX;

/// Most fields of tags in a table.
const TAGS_MAX: usize = 2;

impl CellReader {
    /// A reader of these fields, all of one table. A column is a field's place among them.
    ///
    /// # Panics
    /// If there are more than 254 fields.
    pub fn new(fields: &[&'static Field]) -> CellReader {
        assert!(fields.len() < usize::from(NO_COLUMN), "a column is a byte");
        let largest = fields.iter().map(|field| field.number).max().unwrap_or(0);
        let mut columns = vec![NO_COLUMN; largest as usize + 1];
        for (column, field) in fields.iter().enumerate() {
            columns[field.number as usize] = column as u8;
        }
        CellReader { fields: fields.to_vec(), columns, text: Vec::new() }
    }

    /// Gives each value of `message` to `put` with its column. Other fields are skipped, and so are numbers that stand for no value.
    /// If a message has a field twice, both are given; the later one counts, as protobuf says.
    ///
    /// # Errors
    /// What contradicts the table. The values given before are then part of no row.
    #[inline]
    pub fn read(
        &mut self,
        message: &[u8],
        mut put: impl FnMut(usize, Cell<'_>),
    ) -> Result<(), DecodeError> {
        let mut tags = [(usize::MAX, None); TAGS_MAX];
        for wire in Fields::new(message) {
            let wire = wire?;
            let column = self.columns.get(wire.number as usize).map_or(NO_COLUMN, |column| *column);
            let column = usize::from(column);
            let Some(field) = self.fields.get(column) else { continue };

            match field.kind {
                Kind::Text => {
                    put(column, Cell::Bytes(text(wire.number, wire.bytes()?)?.as_bytes()))
                }
                Kind::Bytes | Kind::Data => put(column, Cell::Bytes(wire.bytes()?)),
                Kind::Address => put(column, Cell::Bytes(self.address(&wire)?)),
                // Each entry is a field of its own.
                Kind::Tags => {
                    let slot = tags.iter_mut().find(|(of, tags)| *of == column || tags.is_none());
                    if let Some(slot) = slot {
                        Tags::take_entry(&mut slot.1, &wire)?;
                        slot.0 = column;
                    }
                }
                kind => {
                    let number = number(kind, &wire)?;
                    if field.none != Some(number) {
                        put(column, Cell::Number(number));
                    }
                }
            }
        }

        for (column, tags) in tags {
            let Some(tags) = tags else { continue };
            self.text.clear();
            put_tags(tags, &mut self.text);
            put(column, Cell::Bytes(&self.text));
        }
        Ok(())
    }

    fn address(&mut self, wire: &WireField<'_>) -> Result<&[u8], DecodeError> {
        let mut address: Option<IpAddr> = None;
        Value::take(&mut address, Kind::Address, wire)?;
        self.text.clear();
        if let Some(address) = address {
            put_address(address, &mut self.text);
        }
        Ok(&self.text)
    }
}

#[inline(always)]
fn number(kind: Kind, wire: &WireField<'_>) -> Result<u64, DecodeError> {
    match (kind, wire.payload) {
        (Kind::Fixed64, Payload::Fixed64(value)) => Ok(value),
        (Kind::Bool, _) => wire.number_up_to(1),
        (Kind::U8 | Kind::Word(_), _) => wire.number_up_to(u8::MAX.into()),
        (Kind::U16, _) => wire.number_up_to(u16::MAX.into()),
        (Kind::U32, _) => wire.number_up_to(u32::MAX.into()),
        (Kind::U64, _) => wire.number_up_to(u64::MAX),
        _ => Err(wire.wrong_type()),
    }
}
