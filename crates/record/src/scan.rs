//! Reads a row from its message without building a record: first the position of each field, and then the fields in the order of
//! the table.
//!
//! A record is a struct of some two kilobytes, whose decoder has code for each field. Here the table drives one short loop.

use crate::decode::{Fields, take_short};
use crate::schema::Visit;
use crate::value::{Payload, Visitor, text};
use crate::{DecodeError, Field, FieldSet, Kind, Tags};
use std::net::Ipv6Addr;

/// Reads messages of one table, one after the other.
pub(crate) struct Scan {
    table: &'static [Field],
    /// Indexed by field number. The data that the loop needs is kept together, apart from the rest of a field's description.
    forms: Vec<Option<(Form, u8)>>,
    /// By column.
    slots: Vec<Slot>,
    /// Number of the current message: slots with another number are empty.
    turn: u64,
}

/// The value of a field in a message.
#[derive(Clone, Copy, Default)]
struct Slot {
    turn: u64,
    /// A number, or the start and end of bytes in the message (two 32-bit halves).
    value: u64,
}

/// How a field is represented in a message.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// A number up to this maximum.
    Varint(u64),
    Fixed64,
    Bytes,
    Text,
    Address,
    Tags,
}

impl Form {
    pub(crate) fn of(kind: Kind) -> Form {
        match kind {
            Kind::Bool => Form::Varint(1),
            Kind::U8 | Kind::Word(_) => Form::Varint(u8::MAX.into()),
            Kind::U16 => Form::Varint(u16::MAX.into()),
            Kind::U32 => Form::Varint(u32::MAX.into()),
            Kind::U64 => Form::Varint(u64::MAX),
            Kind::Fixed64 => Form::Fixed64,
            Kind::Bytes | Kind::Data => Form::Bytes,
            Kind::Text => Form::Text,
            Kind::Address => Form::Address,
            Kind::Tags => Form::Tags,
        }
    }
}

impl Scan {
    pub(crate) fn new(table: &'static [Field]) -> Scan {
        let numbers = table.iter().map(|field| field.number as usize + 1).max().unwrap_or(0);
        let mut forms = vec![None; numbers];
        for (column, field) in table.iter().enumerate() {
            forms[field.number as usize] = Some((Form::of(field.kind), column as u8));
        }
        Scan { table, forms, slots: vec![Slot::default(); table.len()], turn: 0 }
    }

    /// Reads a message: the same fields that the table's struct would have.
    ///
    /// # Errors
    /// The message contradicts the table.
    pub(crate) fn read<'m>(&mut self, message: &'m [u8]) -> Result<Scanned<'_, 'm>, DecodeError> {
        if u32::try_from(message.len()).is_err() {
            return Err(DecodeError::Truncated);
        }

        self.turn += 1;
        let mut rest = message;
        loop {
            // Nearly all fields are numbers, which take the fast path.
            while let Some((number, value)) = take_short(&mut rest) {
                self.number(number, value)?;
            }
            if rest.is_empty() {
                return Ok(Scanned { scan: self, message });
            }
            self.other(message, &mut rest)?;
        }
    }

    #[inline(always)]
    fn number(&mut self, number: u32, value: u64) -> Result<(), DecodeError> {
        let Some(&Some((form, column))) = self.forms.get(number as usize) else { return Ok(()) };
        match form {
            Form::Varint(max) if value <= max => {}
            Form::Varint(_) => return Err(DecodeError::OutOfRange { number }),
            _ => return Err(DecodeError::WrongType { number }),
        }
        if let Some(slot) = self.slots.get_mut(usize::from(column)) {
            *slot = Slot { turn: self.turn, value };
        }
        Ok(())
    }

    /// Reads a field of any form.
    fn other(&mut self, message: &[u8], rest: &mut &[u8]) -> Result<(), DecodeError> {
        let start = message.len() - rest.len();
        let Some(wire) = Fields::new(rest).next() else { return Ok(()) };
        let wire = wire?;
        let (number, end) = (wire.number, start + wire.end);
        *rest = rest.get(wire.end..).unwrap_or_default();

        if let Payload::Varint(value) = wire.payload {
            return self.number(number, value);
        }
        let Some(&Some((form, column))) = self.forms.get(number as usize) else { return Ok(()) };
        let Some(slot) = self.slots.get_mut(usize::from(column)) else { return Ok(()) };
        let value = match (form, wire.payload) {
            (Form::Fixed64, Payload::Fixed64(value)) => value,
            (Form::Bytes | Form::Text | Form::Address | Form::Tags, Payload::Bytes(bytes)) => {
                check(form, number, bytes)?;
                match form {
                    // All entries lie between the start of the first and the end of the last.
                    Form::Tags if slot.turn == self.turn => place(range(slot.value).0, end),
                    Form::Tags => place(start, end),
                    _ => place(end - bytes.len(), end),
                }
            }
            _ => return Err(DecodeError::WrongType { number }),
        };
        *slot = Slot { turn: self.turn, value };
        Ok(())
    }
}

/// Validates bytes whose form is restricted.
pub(crate) fn check(form: Form, number: u32, bytes: &[u8]) -> Result<(), DecodeError> {
    match form {
        Form::Text => text(number, bytes).map(drop),
        Form::Address if bytes.len() != 16 => Err(DecodeError::AddressLength { number }),
        Form::Tags => Tags::check_entry(number, bytes),
        _ => Ok(()),
    }
}

fn place(start: usize, end: usize) -> u64 {
    (start as u64) << 32 | end as u64
}

fn range(place: u64) -> (usize, usize) {
    ((place >> 32) as usize, place as u32 as usize)
}

/// A message that was read.
pub(crate) struct Scanned<'s, 'm> {
    scan: &'s Scan,
    message: &'m [u8],
}

impl<'m> Scanned<'_, 'm> {
    #[inline(always)]
    fn give<V: Visitor>(&self, field: &'static Field, value: u64, visitor: &mut V) {
        // No encoder that gets here uses the number.
        const N: u32 = 0;
        match field.kind {
            Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 | Kind::Fixed64 => {
                visitor.unsigned::<N>(field, value);
            }
            Kind::Bool => visitor.bool::<N>(field, value != 0),
            Kind::Word(words) => {
                visitor.word::<N>(field, value as u8, words.word(value as u8));
            }
            // Validated when it was read.
            Kind::Text => {
                visitor.text::<N>(field, str::from_utf8(self.bytes(value)).unwrap_or_default());
            }
            Kind::Bytes | Kind::Data => visitor.bytes::<N>(field, self.bytes(value)),
            Kind::Address => {
                let bytes: [u8; 16] = self.bytes(value).try_into().unwrap_or_default();
                visitor.address::<N>(field, Ipv6Addr::from(bytes).into());
            }
            Kind::Tags => {
                let (start, end) = range(value);
                let tags = Tags::between(field.number, self.message, start, end);
                visitor.tags::<N>(field, tags);
            }
        }
    }

    fn bytes(&self, place: u64) -> &'m [u8] {
        let (start, end) = range(place);
        self.message.get(start..end).unwrap_or_default()
    }
}

impl Visit for Scanned<'_, '_> {
    #[inline(always)]
    fn visit<V: Visitor>(&self, set: Option<&FieldSet>, visitor: &mut V) {
        for (column, (field, slot)) in self.scan.table.iter().zip(&self.scan.slots).enumerate() {
            if set.is_some_and(|set| !set.has_index(column)) {
                continue;
            }
            // A number that stands for "no value" counts as absent.
            if slot.turn == self.scan.turn && field.none != Some(slot.value) {
                self.give(field, slot.value, visitor);
            } else {
                visitor.absent(field);
            }
        }
    }
}
