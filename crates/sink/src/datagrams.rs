//! Records into datagrams for one UDP sink: each can be read alone and says where in its stream it is.

use crate::{Error, Framing, Payload, Sink, SinkOptions};
use ledger::{Amount, Reason};
use record::{DatagramPacker, Encoding, FieldSet, PollTotals, SocketRecord};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A UDP sink and the stream that it sends.
pub(crate) struct Datagrams {
    sink: Sink,
    fields: FieldSet,
    packer: DatagramPacker,
    /// What the packer keeps to.
    limit_bytes: usize,
    /// Nothing was packed since the last totals.
    is_complete: bool,
}

impl Datagrams {
    pub(crate) fn open(origin: &str, options: SinkOptions) -> Result<Datagrams, Error> {
        if options.encoding != Encoding::Protobuf {
            return Err(Error::Encoding { name: options.name, encoding: options.encoding });
        }
        let (name, destination) = (options.name, options.destination);
        let sink = Sink::open(origin, &name, options.queue, destination, Framing::default())?;
        let limit_bytes = limit_of(&sink);
        let packer = DatagramPacker::new(random(), limit_bytes, &options.fields);
        Ok(Datagrams { sink, fields: options.fields, packer, limit_bytes, is_complete: true })
    }

    pub(crate) fn sink(&self) -> &Sink {
        &self.sink
    }

    pub(crate) fn into_sink(self) -> Sink {
        self.sink
    }

    pub(crate) fn record(&mut self, record: &SocketRecord<'_>) {
        if std::mem::take(&mut self.is_complete) {
            self.follow_path();
        }
        match self.packer.push(record) {
            Ok(None) => {}
            Ok(Some(full)) => self.sink.offer(&Payload::new(full.bytes, full.records)),
            Err(too_big) => self.sink.refuse(Amount::one(too_big.bytes), Reason::TooBig),
        }
    }

    pub(crate) fn end_of_poll(&mut self, totals: &PollTotals<'_>) {
        let end = self.packer.totals(totals);
        if let Some(before) = end.before {
            self.sink.offer(&Payload::new(before.bytes, before.records));
        }
        self.sink.offer(&Payload::new(end.last.bytes, end.last.records + 1));
        self.is_complete = true;
    }

    pub(crate) fn flush(&mut self) {
        if let Some(rest) = self.packer.flush() {
            self.sink.offer(&Payload::new(rest.bytes, rest.records));
        }
    }

    /// Keeps to what the path takes. A packer keeps its limit for life, so that another limit is another stream; it begins
    /// behind totals, where the stream before it is complete. Until then the kernel cuts into fragments what is too
    /// large for the path.
    fn follow_path(&mut self) {
        let limit_bytes = limit_of(&self.sink);
        if limit_bytes != self.limit_bytes {
            self.limit_bytes = limit_bytes;
            self.packer = DatagramPacker::new(random(), limit_bytes, &self.fields);
        }
    }
}

fn limit_of(sink: &Sink) -> usize {
    sink.payload_bytes_max().unwrap_or(record::DATAGRAM_MIN_BYTES)
}

/// A number that no other stream has. The standard library seeds its hash maps from the kernel's random numbers.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
