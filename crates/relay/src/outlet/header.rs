//! What is inserted into datagrams to name their senders.

use crate::Header;
use crate::target::Sources;
use sys::send::{BATCH, Insert, Message};
use wire::proxy;
use wire::syslog::{ORIGIN_BYTES_MAX, write_origin};

const ROOM_BYTES: usize = 64;
const _: () = assert!(ROOM_BYTES >= ORIGIN_BYTES_MAX && ROOM_BYTES >= proxy::HEADER_BYTES_MAX);

/// What is inserted into the datagrams of one batch, in memory that is reused for the next.
pub(super) struct Headers {
    header: Header,
    of: Box<[OfOne; BATCH]>,
}

#[derive(Clone, Copy)]
struct OfOne {
    room: [u8; ROOM_BYTES],
    text_bytes: usize,
    at: usize,
    replaced_bytes: usize,
    /// Whether the sender is named.
    is_said: bool,
}

impl Headers {
    pub(super) fn new(header: Header) -> Headers {
        let none = OfOne { room: [0; _], text_bytes: 0, at: 0, replaced_bytes: 0, is_said: false };
        Headers { header, of: Box::new([none; BATCH]) }
    }

    /// Prepares the insertions of a batch.
    pub(super) fn write(&mut self, messages: &[Message<'_>], sources: Sources<'_>) {
        for (at, (message, of)) in messages.iter().zip(self.of.iter_mut()).enumerate() {
            let sender = sources(at).address();
            (of.at, of.replaced_bytes, of.text_bytes) = (0, 0, 0);
            of.is_said = sender.is_some();

            match self.header {
                Header::ProxyV2 { received_at } => {
                    let room = of.room.first_chunk_mut().expect("ROOM_BYTES are enough");
                    of.text_bytes = proxy::write(sender, received_at, room);
                }
                Header::SyslogOrigin => {
                    let place = sender
                        .and_then(|sender| write_origin(message.bytes, sender.ip(), &mut of.room));
                    of.is_said = place.is_some();
                    if let Some(place) = place {
                        (of.at, of.replaced_bytes) = (place.at, place.replaced_bytes);
                        of.text_bytes = place.text_bytes;
                    }
                }
            }
        }
    }

    /// What is inserted into the message at index `at`.
    pub(super) fn insert(&self, at: usize) -> Insert<'_> {
        let of = &self.of[at];
        let bytes = &of.room[..of.text_bytes];
        Insert { at: of.at, replaced_bytes: of.replaced_bytes, bytes }
    }

    /// How many of the first messages do not name their sender.
    pub(super) fn unsaid(&self, messages: usize) -> u64 {
        self.of[..messages].iter().filter(|of| !of.is_said).count() as u64
    }
}
