//! Records in, payloads out: each record is encoded once for all sinks that take it in the same form.

use crate::datagrams::Datagrams;
use crate::{Destination, Error, Framing, Payload, QueueLimits, Sink};
use ledger::{Amount, Meter};
use record::{Encoder, Encoding, FieldSet, PollTotals, SocketRecord};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A payload is cut when it has reached this many bytes, so that it is longer by less than one record.
const PAYLOAD_BYTES: usize = 64 * 1024;

/// Full payloads whose memory is kept for the next: as many as a sink's thread and the one that fills them have in hand. Memory that
/// one thread allocates and another frees is given back to the kernel each time, and taken again page by page.
const KEPT_PAYLOADS: usize = 8;

/// Room for the record that goes beyond the mark.
const RECORD_BYTES: usize = 4 * 1024;

/// A sink and what it takes.
pub struct SinkOptions {
    /// The name in the ledger, of which there is one.
    pub name: String,
    /// How much waits for the destination at most.
    pub queue: QueueLimits,
    /// Where the records go.
    pub destination: Box<dyn Destination>,
    /// How they are written. Datagrams are protobuf only.
    pub encoding: Encoding,
    /// Which fields of socket records are written. Totals are always whole.
    pub fields: FieldSet,
}

/// All sinks of one source of records.
///
/// Nothing here waits for a destination, and a record costs no allocation; a payload costs one at most.
#[derive(Default)]
pub struct Fanout {
    groups: Vec<Group>,
    datagrams: Vec<Datagrams>,
}

/// Sinks that take the same bytes.
struct Group {
    encoding: Encoding,
    fields: FieldSet,
    encoder: Encoder,
    /// What a payload begins and ends with, in an encoding of which each payload is whole in itself.
    wraps: bool,
    buffer: Vec<u8>,
    /// The last full payloads, the oldest first.
    kept: VecDeque<Payload>,
    records: u64,
    sinks: Vec<Sink>,
}

impl Fanout {
    /// Opens the sinks. `origin` is what makes the records, for the ledger.
    ///
    /// # Errors
    /// Two sinks of one name; datagrams in another encoding than protobuf; what [`Sink::open`] says.
    pub fn open(origin: &str, sinks: Vec<SinkOptions>) -> Result<Fanout, Error> {
        let mut fanout = Fanout::default();
        for (at, options) in sinks.iter().enumerate() {
            if sinks.iter().take(at).any(|other| other.name == options.name) {
                return Err(Error::SameName { name: options.name.clone() });
            }
        }

        for options in sinks {
            match options.destination.datagram_limit() {
                Some(_) => fanout.datagrams.push(Datagrams::open(origin, options)?),
                None => fanout.add(origin, options)?,
            }
        }

        Ok(fanout)
    }

    fn add(&mut self, origin: &str, options: SinkOptions) -> Result<(), Error> {
        let (encoding, fields) = (options.encoding, options.fields);
        let framing = framing_of(encoding, &fields);
        let sink = Sink::open(origin, &options.name, options.queue, options.destination, framing)?;

        let same = |group: &&mut Group| group.encoding == encoding && group.fields == fields;
        match self.groups.iter_mut().find(same) {
            Some(group) => group.sinks.push(sink),
            None => self.groups.push(Group::new(encoding, fields, sink)),
        }
        Ok(())
    }

    /// What the ledger reads: one meter a sink.
    pub fn meters(&self) -> Vec<Arc<dyn Meter>> {
        self.sinks().map(Sink::meter).collect()
    }

    fn sinks(&self) -> impl Iterator<Item = &Sink> {
        let in_groups = self.groups.iter().flat_map(|group| &group.sinks);
        in_groups.chain(self.datagrams.iter().map(Datagrams::sink))
    }

    /// Takes a record. It is on its way once its payload is full, or with [`flush`](Self::flush), or at the end of the
    /// poll.
    pub fn record(&mut self, record: &SocketRecord<'_>) {
        for group in &mut self.groups {
            group.put(|encoder, out| encoder.encode(record, out));
        }
        for datagrams in &mut self.datagrams {
            datagrams.record(record);
        }
    }

    /// Takes the totals of a poll, and sends everything on its way.
    pub fn end_of_poll(&mut self, totals: &PollTotals<'_>) {
        for group in &mut self.groups {
            group.put(|encoder, out| encoder.totals(totals, out));
            group.send();
        }
        for datagrams in &mut self.datagrams {
            datagrams.end_of_poll(totals);
        }
    }

    /// Sends everything on its way: for records that come between polls.
    pub fn flush(&mut self) {
        self.groups.iter_mut().for_each(Group::send);
        self.datagrams.iter_mut().for_each(Datagrams::flush);
    }

    /// Sends everything on its way, waits until it has left or the deadline is there, and ends all sinks. Returns what did
    /// not leave, by sink; it is counted as dropped.
    pub fn stop(mut self, deadline: Instant) -> Vec<(String, Amount)> {
        self.flush();
        let in_groups = self.groups.into_iter().flat_map(|group| group.sinks);
        let sinks: Vec<_> =
            in_groups.chain(self.datagrams.into_iter().map(Datagrams::into_sink)).collect();

        sinks.iter().for_each(|sink| sink.close(deadline));
        let left = |sink: Sink| (sink.name().to_owned(), sink.wait(deadline));
        sinks.into_iter().map(left).filter(|(_, left)| !left.is_zero()).collect()
    }
}

impl Group {
    fn new(encoding: Encoding, fields: FieldSet, first: Sink) -> Group {
        Group {
            encoding,
            fields,
            encoder: Encoder::new(encoding, &fields),
            wraps: is_whole_by_payload(encoding, &fields),
            buffer: new_buffer(),
            kept: VecDeque::new(),
            records: 0,
            sinks: vec![first],
        }
    }

    fn put(&mut self, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        if self.wraps && self.buffer.is_empty() {
            self.encoder.begin(&mut self.buffer);
        }

        let before = self.buffer.len();
        write(&mut self.encoder, &mut self.buffer);
        // Tables have no form for totals.
        self.records += u64::from(self.buffer.len() > before);
        if self.buffer.len() >= PAYLOAD_BYTES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.records == 0 {
            return;
        }
        if self.wraps {
            self.encoder.end(&mut self.buffer);
        }

        let records = std::mem::take(&mut self.records);
        // A part of a payload is copied, so that the buffer and its room stay here.
        if self.buffer.len() < PAYLOAD_BYTES {
            let payload = Payload::new(&self.buffer, records);
            self.buffer.clear();
            self.sinks.iter().for_each(|sink| sink.offer_more(&payload));
            return;
        }

        let next = self.empty_buffer();
        let payload = Payload::whole(std::mem::replace(&mut self.buffer, next), records);
        self.sinks.iter().for_each(|sink| sink.offer_more(&payload));
        self.kept.push_back(payload);
    }

    /// A buffer that no sink needs any longer, or a new one.
    fn empty_buffer(&mut self) -> Vec<u8> {
        let is_free = self.kept.front().is_some_and(Payload::is_alone);
        if !is_free && self.kept.len() < KEPT_PAYLOADS {
            return new_buffer();
        }
        // A sink that is slow keeps it.
        let mut buffer =
            self.kept.pop_front().and_then(Payload::into_buffer).unwrap_or_else(new_buffer);
        buffer.clear();
        buffer
    }

    /// Sends what there is on its way.
    fn send(&mut self) {
        self.cut();
        self.sinks.iter().for_each(Sink::wake);
    }
}

fn new_buffer() -> Vec<u8> {
    Vec::with_capacity(PAYLOAD_BYTES + RECORD_BYTES)
}

/// Whether an encoding closes what it opens, as a JSON array does. No stream that goes on has an end, so there each
/// payload is opened and closed.
fn is_whole_by_payload(encoding: Encoding, fields: &FieldSet) -> bool {
    let mut end = Vec::new();
    Encoder::new(encoding, fields).end(&mut end);
    !end.is_empty()
}

/// What a stream or file in this encoding begins with, and what each of its records ends with.
fn framing_of(encoding: Encoding, fields: &FieldSet) -> Framing {
    let mut framing = Framing::default();
    if !is_whole_by_payload(encoding, fields) {
        Encoder::new(encoding, fields).begin(&mut framing.header);
    }

    framing.record_end = match encoding {
        Encoding::Protobuf | Encoding::MessagePack => None,
        Encoding::Prototext
        | Encoding::Protojson
        | Encoding::Jsonl
        | Encoding::Json
        | Encoding::Csv
        | Encoding::Tsv => Some(b'\n'),
    };
    framing
}
