//! Messages of protobuf, written and read by hand: <https://protobuf.dev/programming-guides/encoding/>. And their frames in gRPC:
//! a byte that says that it is not compressed, and its length.

/// A message that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(pub Vec<u8>);

const VARINT: u64 = 0;
const BYTES: u64 = 2;

impl Message {
    /// Adds a number.
    pub fn number(mut self, field: u32, value: u64) -> Message {
        varint(u64::from(field) << 3 | VARINT, &mut self.0);
        varint(value, &mut self.0);
        self
    }

    /// Adds a text, bytes or a message.
    pub fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Message {
        let value = value.as_ref();
        varint(u64::from(field) << 3 | BYTES, &mut self.0);
        varint(value.len() as u64, &mut self.0);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds one entry of a map from texts to numbers.
    pub fn entry(self, field: u32, key: &str, value: u64) -> Message {
        self.bytes(field, Message::default().bytes(1, key).number(2, value).0)
    }

    /// The frame of a message.
    pub fn framed(&self) -> Vec<u8> {
        let len = u32::try_from(self.0.len()).expect("messages are far below 4 GiB");
        let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + self.0.len());
        frame.push(0);
        frame.extend_from_slice(&len.to_be_bytes());
        frame.extend_from_slice(&self.0);
        frame
    }
}

/// Bytes of a frame before its message.
pub const FRAME_HEAD_BYTES: usize = 5;

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Its text.
    ///
    /// # Errors
    /// It is none.
    pub fn text(self) -> Result<&'a str, String> {
        match self {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).map_err(|error| error.to_string()),
            Value::Number(_) => Err("a number where a text belongs".to_owned()),
        }
    }

    /// Its number.
    ///
    /// # Errors
    /// It is none.
    pub fn number(self) -> Result<u64, String> {
        match self {
            Value::Number(number) => Ok(number),
            Value::Bytes(_) => Err("bytes where a number belongs".to_owned()),
        }
    }
}

/// The fields of a message, in their order.
///
/// # Errors
/// It is no message.
pub fn fields(mut rest: &[u8]) -> Result<Vec<(u32, Value<'_>)>, String> {
    let broken = || "it is no protobuf message".to_owned();
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let key = take_varint(&mut rest).ok_or_else(broken)?;
        let number = u32::try_from(key >> 3).map_err(|_| broken())?;
        let value = match key & 7 {
            VARINT => Value::Number(take_varint(&mut rest).ok_or_else(broken)?),
            1 => Value::Bytes(take(&mut rest, 8).ok_or_else(broken)?),
            BYTES => {
                let len = take_varint(&mut rest).and_then(|len| usize::try_from(len).ok());
                Value::Bytes(len.and_then(|len| take(&mut rest, len)).ok_or_else(broken)?)
            }
            5 => Value::Bytes(take(&mut rest, 4).ok_or_else(broken)?),
            _ => return Err(broken()),
        };
        fields.push((number, value));
    }
    Ok(fields)
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(taken)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let message = Message::default().number(1, u64::MAX).bytes(300, "text").number(2, 0);
        let expected =
            [(1, Value::Number(u64::MAX)), (300, Value::Bytes(b"text")), (2, Value::Number(0))];
        assert_eq!(fields(&message.0).unwrap(), expected);
        assert_eq!(message.framed().len(), message.0.len() + FRAME_HEAD_BYTES);
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut random = testkit::Random(1);
        let whole = Message::default().number(1, 300).bytes(2, "text").bytes(300, [0; 200]).0;
        for _ in 0..200_000 {
            let mut bytes = whole.clone();
            bytes.truncate(random.index(bytes.len()) + 1);
            for _ in 0..=random.below(3) {
                let at = random.index(bytes.len());
                bytes[at] = random.next() as u8;
            }
            // What is read lies within the bytes.
            let read = fields(&bytes).unwrap_or_default();
            let of_field = |(_, value): &(u32, Value<'_>)| match value {
                Value::Bytes(bytes) => bytes.len(),
                Value::Number(_) => 1,
            };
            assert!(read.iter().map(of_field).sum::<usize>() <= bytes.len());
        }
    }

    #[test]
    fn no_beginning_of_a_field_is_a_message() {
        let whole = Message::default().bytes(300, "text").0;
        for len in 1..whole.len() {
            assert!(fields(&whole[..len]).is_err(), "{len}");
        }
        for bytes in [&[0x0b][..], &[0x80; 11], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert!(fields(bytes).is_err(), "{bytes:?}");
        }
    }
}
