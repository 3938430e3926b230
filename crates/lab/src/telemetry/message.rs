//! One message of the exporter: a header of big-endian 64-bit numbers, events, and filler up to the fixed length.

/// Time of the counter's value, the value, the number of events.
pub(super) const HEADER_BYTES: usize = 24;
/// Its number.
pub(super) const EVENT_BYTES: usize = 8;

/// What a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Message {
    /// When the counter had its value, on the monotonic clock.
    pub(super) at_ns: u64,
    pub(super) counter: u64,
    /// Events by number.
    pub(super) events: Vec<u64>,
}

/// Events that a message of this many bytes can carry.
pub(super) fn capacity(message_bytes: usize) -> usize {
    message_bytes.saturating_sub(HEADER_BYTES) / EVENT_BYTES
}

impl Message {
    /// Writes it. Events beyond the [`capacity`] of the buffer are left out.
    pub(super) fn encode(&self, into: &mut [u8]) {
        let events = &self.events[..self.events.len().min(capacity(into.len()))];
        let header = [self.at_ns, self.counter, events.len() as u64];
        let mut words = into.chunks_exact_mut(8);
        for (word, value) in words.by_ref().zip(header.iter().chain(events)) {
            word.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Reads it; `None` if it is not one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_be_bytes(*word));
        let (at_ns, counter, count) = (words.next()?, words.next()?, words.next()?);
        let count = usize::try_from(count).ok().filter(|count| *count <= capacity(bytes.len()))?;
        Some(Message { at_ns, counter, events: words.take(count).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_of_encode_is_the_message() {
        let message = Message { at_ns: 7, counter: u64::MAX, events: vec![3, 4, 9] };
        for bytes in [48, 50, 1_000] {
            let mut buffer = vec![0xff; bytes];
            message.encode(&mut buffer);
            assert_eq!(Message::decode(&buffer), Some(message.clone()));
        }
        assert_eq!((capacity(48), capacity(47), capacity(3)), (3, 2, 0));
    }

    #[test]
    fn what_is_no_message_is_none() {
        assert_eq!(Message::decode(&[0; 23]), None);
        assert_eq!(Message::decode(&[0xff; 1_000]), None);
        assert!(Message::decode(&[0; 24]).is_some());
    }
}
