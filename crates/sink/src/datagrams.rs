//! Records into datagrams for one UDP sink: each can be read alone and says where in its stream it is.

use crate::{Error, Framing, Payload, Sink, SinkOptions};
use ledger::{Amount, Reason};
use record::{DatagramPacker, Encoding, PollTotals, SocketRecord};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A UDP sink and the stream that it sends.
pub(crate) struct Datagrams {
    sink: Sink,
    packer: DatagramPacker,
}

impl Datagrams {
    pub(crate) fn open(origin: &str, options: SinkOptions) -> Result<Datagrams, Error> {
        if options.encoding != Encoding::Protobuf {
            return Err(Error::Encoding { name: options.name, encoding: options.encoding });
        }
        let (name, destination) = (options.name, options.destination);
        let sink = Sink::open(origin, &name, options.queue, destination, Framing::default())?;
        let packer = DatagramPacker::new(random(), limit_of(&sink), &options.fields);
        Ok(Datagrams { sink, packer })
    }

    pub(crate) fn sink(&self) -> &Sink {
        &self.sink
    }

    pub(crate) fn into_sink(self) -> Sink {
        self.sink
    }

    pub(crate) fn record(&mut self, record: &SocketRecord<'_>) {
        // The path may change at any time; until a datagram keeps to it, the kernel cuts into fragments what is too large.
        self.packer.set_max_bytes(limit_of(&self.sink));
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
    }

    pub(crate) fn flush(&mut self) {
        if let Some(rest) = self.packer.flush() {
            self.sink.offer(&Payload::new(rest.bytes, rest.records));
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
