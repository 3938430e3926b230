//! Decoding protobuf. Unknown fields are skipped; a contradiction of the schema is an error. Nothing is copied.

use crate::schema::Message;
use crate::value::{Payload, WireField};
use crate::{
    CounterRecord, DatagramRecord, FlowRecord, FlowTotals, PollTotals, RecordKind, SocketRecord,
};

/// Why bytes are not a message of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("the message ends inside a field")]
    Truncated,
    /// A number is longer than 64 bits.
    #[error("a varint is longer than 10 bytes or than 64 bits")]
    Varint,
    /// A field key with number 0 or above 2^29 - 1, or with a wire type that proto3 does not have.
    #[error("a field key is invalid")]
    Key,
    /// A known field has a different wire type than in the schema.
    #[error("field {number} has the wrong wire type")]
    WrongType {
        /// The field's number.
        number: u32,
    },
    /// A known field holds a number that its type cannot.
    #[error("the value of field {number} is out of range")]
    OutOfRange {
        /// The field's number.
        number: u32,
    },
    /// An address is not 16 bytes long.
    #[error("the address in field {number} is not 16 bytes long")]
    AddressLength {
        /// The field's number.
        number: u32,
    },
    /// The datagram has no stream ID, so another program sent it.
    #[error("the datagram does not name its stream")]
    NoStream,
    /// Text is not UTF-8.
    #[error("the text in field {number} is not UTF-8")]
    NotUtf8 {
        /// The field's number.
        number: u32,
    },
}

/// Decodes one [`SocketRecord`] message. The totals inside a record of kind `totals` are not decoded; see [`decode_record`].
pub fn decode_protobuf(bytes: &[u8]) -> Result<SocketRecord<'_>, DecodeError> {
    decode(bytes)
}

/// Decodes one [`PollTotals`] message.
pub fn decode_totals(bytes: &[u8]) -> Result<PollTotals<'_>, DecodeError> {
    decode(bytes)
}

/// One message of a stream of records.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack for the time of one record")]
pub enum Record<'a> {
    /// A socket or a close.
    Socket(SocketRecord<'a>),
    /// The totals of a poll.
    Totals(PollTotals<'a>),
    /// A datagram that a listener received.
    Datagram(DatagramRecord<'a>),
    /// The result of a flow.
    Flow(FlowRecord<'a>),
    /// Counters of an interface, or figures of an agent.
    Counters(CounterRecord<'a>),
    /// The totals of flow and counter rows.
    FlowTotals(FlowTotals<'a>),
}

/// Decodes one [`DatagramRecord`] message.
pub fn decode_datagram_record(bytes: &[u8]) -> Result<DatagramRecord<'_>, DecodeError> {
    decode(bytes)
}

/// Decodes one [`FlowRecord`] message.
pub fn decode_flow_record(bytes: &[u8]) -> Result<FlowRecord<'_>, DecodeError> {
    decode(bytes)
}

/// Decodes one [`CounterRecord`] message.
pub fn decode_counter_record(bytes: &[u8]) -> Result<CounterRecord<'_>, DecodeError> {
    decode(bytes)
}

/// Decodes one [`FlowTotals`] message.
pub fn decode_flow_totals(bytes: &[u8]) -> Result<FlowTotals<'_>, DecodeError> {
    decode(bytes)
}

/// Decodes one message of a mixed stream, whose kind is in `record_kind`. Without that field it is a socket record.
pub fn decode_record(bytes: &[u8]) -> Result<Record<'_>, DecodeError> {
    // The kind may be anywhere in the message, so all fields are scanned before it is decoded.
    let (mut totals, mut kind) = (None, RecordKind::UNSPECIFIED);
    for field in Fields::new(bytes) {
        let field = field?;
        match field.number {
            crate::TOTALS_NUMBER => totals = Some(decode_totals(field.bytes()?)?),
            crate::KIND_NUMBER => {
                kind = RecordKind(field.number_up_to(u8::MAX.into())? as u8);
            }
            _ => {}
        }
    }

    Ok(match (totals, kind) {
        (Some(totals), _) => Record::Totals(totals),
        (None, RecordKind::DATAGRAM) => Record::Datagram(decode(bytes)?),
        (None, RecordKind::FLOW) => Record::Flow(decode(bytes)?),
        (None, RecordKind::COUNTERS) => Record::Counters(decode(bytes)?),
        (None, RecordKind::FLOW_TOTALS) => Record::FlowTotals(decode(bytes)?),
        (None, _) => Record::Socket(decode(bytes)?),
    })
}

/// The messages of a length-delimited stream. Ends after an error.
pub struct Delimited<'a> {
    rest: &'a [u8],
}

impl<'a> Delimited<'a> {
    /// Reads the format of [`Encoding::Protobuf`](crate::Encoding::Protobuf).
    pub fn new(bytes: &'a [u8]) -> Delimited<'a> {
        Delimited { rest: bytes }
    }
}

impl<'a> Iterator for Delimited<'a> {
    type Item = Result<&'a [u8], DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = take_delimited(&mut self.rest);
        if message.is_err() {
            self.rest = &[];
        }
        Some(message)
    }
}

fn decode<'a, M: Message<'a>>(bytes: &'a [u8]) -> Result<M, DecodeError> {
    let mut message = M::default();
    for field in Fields::new(bytes) {
        message.take(&field?)?;
    }
    message.finish();
    Ok(message)
}

/// The fields of one message. Ends after an error.
pub(crate) struct Fields<'a> {
    message: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { message, rest: message }
    }

    #[inline(always)]
    fn read(&mut self) -> Result<WireField<'a>, DecodeError> {
        let start = self.message.len() - self.rest.len();
        let key = take_varint(&mut self.rest)?;
        // Three bits of wire type below a 29-bit field number.
        let number = u32::try_from(key >> 3)
            .ok()
            .filter(|number| (1..1 << 29).contains(number))
            .ok_or(DecodeError::Key)?;

        let payload = match key & 7 {
            0 => Payload::Varint(take_varint(&mut self.rest)?),
            1 => Payload::Fixed64(u64::from_le_bytes(*take_array(&mut self.rest)?)),
            2 => Payload::Bytes(take_delimited(&mut self.rest)?),
            5 => take_array::<4>(&mut self.rest).map(|_| Payload::Fixed32)?,
            // 3 and 4 are groups, which proto3 does not have.
            _ => return Err(DecodeError::Key),
        };

        let end = self.message.len() - self.rest.len();
        Ok(WireField { number, payload, message: self.message, start, end })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<WireField<'a>, DecodeError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

fn take_delimited<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let len = usize::try_from(take_varint(rest)?).map_err(|_| DecodeError::Truncated)?;
    let (bytes, tail) = rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
    *rest = tail;
    Ok(bytes)
}

fn take_array<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], DecodeError> {
    let (array, tail) = rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
    *rest = tail;
    Ok(array)
}

#[inline(always)]
fn take_varint(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    // Nearly all keys, lengths and small numbers take one or two bytes: no loop for those.
    match *rest {
        [byte, tail @ ..] if *byte < 0x80 => {
            *rest = tail;
            Ok(u64::from(*byte))
        }
        [low, high, tail @ ..] if *high < 0x80 => {
            *rest = tail;
            Ok(u64::from(low & 0x7f) | u64::from(*high) << 7)
        }
        _ => take_long_varint(rest),
    }
}

/// Reads a number field on the fast path: a key of one or two bytes, and eight bytes that contain the whole number. `None` if it
/// must be read the general way.
#[inline(always)]
pub(crate) fn take_short(rest: &mut &[u8]) -> Option<(u32, u64)> {
    let window: &[u8; 10] = rest.first_chunk()?;
    let [low, high, ..] = *window;
    // The CPU can predict the length of a key, so it does not have to wait for it.
    let (key, word, key_bytes) = if low < 0x80 {
        (u32::from(low), word_at(window, 1), 1)
    } else if high < 0x80 {
        (u32::from(low & 0x7f) | u32::from(high) << 7, word_at(window, 2), 2)
    } else {
        return None;
    };

    // The length of a number is unpredictable, so all lengths are handled without a branch.
    let ends = !word & 0x8080_8080_8080_8080;
    if key & 7 != 0 || key < 8 || ends == 0 {
        return None;
    }
    *rest = rest.get(key_bytes + ends.trailing_zeros() as usize / 8 + 1..)?;
    // All bits up to the first terminator.
    Some((key >> 3, groups_of_7(word & (ends ^ (ends - 1)))))
}

#[inline(always)]
fn word_at(window: &[u8; 10], at: usize) -> u64 {
    window.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Joins the 7-bit groups of a varint; the bits in between are ignored. In three steps, the upper half of every unit moves down
/// to the end of the lower half.
#[inline(always)]
fn groups_of_7(word: u64) -> u64 {
    let pairs = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    (fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4
}

fn take_long_varint(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0;
    for (at, byte) in rest.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if at == 9 && bits > 1 {
            return Err(DecodeError::Varint);
        }

        value |= bits << (7 * at);
        if byte & 0x80 == 0 {
            *rest = rest.get(at + 1..).unwrap_or_default();
            return Ok(value);
        }
    }

    Err(if rest.len() < 10 { DecodeError::Truncated } else { DecodeError::Varint })
}
