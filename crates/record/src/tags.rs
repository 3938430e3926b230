//! Names and values that the configuration adds to every record.

use crate::DecodeError;
use crate::decode::Fields;
use crate::value::{Payload, WireField, text};

/// Names and values: given as pairs, or as a range of a decoded message.
#[derive(Clone, Copy)]
pub struct Tags<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Pairs(&'a [(&'a str, &'a str)]),
    /// `message[start..end]` begins and ends with an entry; other fields may lie between.
    Encoded {
        number: u32,
        message: &'a [u8],
        start: usize,
        end: usize,
    },
}

impl<'a> Tags<'a> {
    /// Tags from pairs, in this order. Names should be distinct: readers of protobuf keep the last value of a name.
    /// No pairs are the same as no tags in every encoding.
    pub const fn new(pairs: &'a [(&'a str, &'a str)]) -> Tags<'a> {
        Tags(Form::Pairs(pairs))
    }

    /// Every name with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let (pairs, encoded): (&[_], _) = match self.0 {
            Form::Pairs(pairs) => (pairs, None),
            Form::Encoded { number, message, start, end } => {
                (&[], Some((number, message.get(start..end).unwrap_or_default())))
            }
        };

        let read = encoded.into_iter().flat_map(|(number, bytes)| {
            // Invalid entries were refused when they were decoded.
            Fields::new(bytes).filter_map(Result::ok).filter_map(move |field| match field.payload {
                Payload::Bytes(entry) if field.number == number => entry_of(number, entry).ok(),
                _ => None,
            })
        });

        pairs.iter().copied().chain(read)
    }

    /// Whether there are no tags.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The tags of a message: `message[start..end]` begins and ends with an entry, and all of them were validated.
    pub(crate) fn between(number: u32, message: &'a [u8], start: usize, end: usize) -> Tags<'a> {
        Tags(Form::Encoded { number, message, start, end })
    }

    pub(crate) fn take_entry(
        slot: &mut Option<Tags<'a>>,
        field: &WireField<'a>,
    ) -> Result<(), DecodeError> {
        Tags::check_entry(field.number, field.bytes()?)?;
        let start = match slot {
            Some(Tags(Form::Encoded { start, .. })) => *start,
            _ => field.start,
        };

        // All entries of one message lie between the start of the first and the end of the last.
        let WireField { number, message, end, .. } = *field;
        *slot = Some(Tags(Form::Encoded { number, message, start, end }));
        Ok(())
    }
}

impl Tags<'_> {
    /// Validates one entry of the tags field with this number.
    pub(crate) fn check_entry(number: u32, entry: &[u8]) -> Result<(), DecodeError> {
        entry_of(number, entry).map(drop)
    }
}

impl PartialEq for Tags<'_> {
    fn eq(&self, other: &Tags<'_>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl std::fmt::Debug for Tags<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A map entry is a separate message, with the name as field 1 and the value as field 2; either may be omitted.
fn entry_of(number: u32, entry: &[u8]) -> Result<(&str, &str), DecodeError> {
    let mut pair = ("", "");
    for field in Fields::new(entry) {
        let field = field?;
        match field.number {
            1 => pair.0 = text(number, field.bytes()?)?,
            2 => pair.1 = text(number, field.bytes()?)?,
            _ => {}
        }
    }
    Ok(pair)
}
