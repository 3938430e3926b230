//! Headers that say who sent a datagram first, put there by senders that are trusted with it.

use crate::Prefix;
use crate::prefix::PrefixSet;
use crate::ring::Writer;
use sys::Source;
use sys::recv::{BATCH, Payload, Received};

/// Whose headers are believed, and what those of the last batch say.
pub(crate) struct Trust {
    from: PrefixSet,
    /// One for each datagram of the batch, in order.
    seen: Vec<Seen>,
}

/// What is in front of one datagram.
#[derive(Clone, Copy)]
enum Seen {
    /// Nothing that is looked at: its sender is not trusted, or a part of it is missing anyway.
    Plain,
    Header {
        bytes: usize,
        sender: Source,
    },
    /// No header, although its sender is trusted.
    Bad,
}

/// A datagram without a valid header.
pub(crate) struct BadHeader;

impl Trust {
    /// `None` if nobody is trusted.
    pub(crate) fn new(from: &[Prefix]) -> Option<Trust> {
        let from = PrefixSet::new(from);
        (!from.is_empty()).then(|| Trust { from, seen: Vec::with_capacity(BATCH) })
    }

    /// Looks at a batch, some of which may lie in the writer's room, and returns how many bytes of it are headers.
    pub(crate) fn look_at<'a>(
        &mut self,
        datagrams: impl Iterator<Item = Received<'a>>,
        writer: &Writer,
    ) -> u64 {
        self.seen.clear();
        let mut headers_bytes = 0;
        for datagram in datagrams {
            let seen = self.look(&datagram, writer);
            if let Seen::Header { bytes, .. } = seen {
                headers_bytes += bytes as u64;
            }
            self.seen.push(seen);
        }
        headers_bytes
    }

    fn look(&self, datagram: &Received<'_>, writer: &Writer) -> Seen {
        if datagram.truncated || !self.from.contains(&datagram.source) {
            return Seen::Plain;
        }
        let payload = match datagram.payload {
            Payload::Bytes(bytes) => bytes,
            Payload::InRoom { offset, len } => writer.in_room(offset, len),
        };
        match wire::proxy::read(payload) {
            Some(header) => Seen::Header {
                bytes: header.header_bytes,
                // It says nothing of another: then the one in front is the sender.
                sender: header.sender.map_or(datagram.source, Source::from),
            },
            None => Seen::Bad,
        }
    }

    /// Takes the header off the datagram at this place of the batch that was looked at last, and makes its sender the one it names.
    pub(crate) fn take_off(&self, at: usize, datagram: &mut Received<'_>) -> Result<(), BadHeader> {
        match self.seen[at] {
            Seen::Plain => {}
            Seen::Header { bytes, sender } => {
                datagram.payload = datagram.payload.behind(bytes);
                datagram.source = sender;
            }
            Seen::Bad => return Err(BadHeader),
        }
        Ok(())
    }
}
