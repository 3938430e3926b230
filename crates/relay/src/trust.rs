//! Headers that name the original sender of a datagram, added by senders that are trusted to do so.

use crate::Prefix;
use crate::prefix::PrefixSet;
use crate::ring::Writer;
use sys::Source;
use sys::recv::{BATCH, Payload, Received};

/// Whose headers are trusted, and the headers of the last batch.
pub(crate) struct Trust {
    from: PrefixSet,
    /// One entry per datagram of the batch, in order.
    seen: Vec<Seen>,
}

/// What precedes one datagram.
#[derive(Clone, Copy)]
enum Seen {
    /// Nothing to look at: its sender is not trusted, or the datagram is incomplete anyway.
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

    /// Examines a batch, parts of which may lie in the writer's room. Returns how many bytes of it are headers.
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
                // The header names no other sender, so the direct sender is the source.
                sender: header.sender.map_or(datagram.source, Source::from),
            },
            None => Seen::Bad,
        }
    }

    /// Removes the header from datagram `at` of the batch examined last, and sets its source to the sender that the header names.
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
