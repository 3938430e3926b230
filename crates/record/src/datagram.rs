//! Records in datagrams: each datagram can be read alone and carries its position in its stream, so that a receiver knows
//! exactly how many records are missing.

use crate::decode::{Fields, decode_totals};
use crate::protobuf::{ProtobufWriter, put_key, put_number, put_stream_id};
use crate::value::{Payload, WireField};
use crate::{DecodeError, FieldSet, PollTotals, SocketRecord, decode_protobuf};

pub(crate) const STREAM_ID: u32 = 1;
const SEQUENCE: u32 = 2;
const FIRST_RECORD: u32 = 3;
const POLL: u32 = 4;
const RECORD: u32 = 5;
const TOTALS: u32 = 6;

/// The smallest limit that a packer accepts, in bytes: what QUIC also requires of every path (RFC 9000 section 14). Totals
/// always fit.
pub const DATAGRAM_MIN_BYTES: usize = 1200;

/// Packs records into the datagrams of one stream. Allocates nothing after the first few records.
pub struct DatagramPacker {
    stream_id: u64,
    max_bytes: usize,
    fields: Option<FieldSet>,
    writer: ProtobufWriter,
    /// The datagram being filled.
    filling: Filling,
    /// The previous one, which was returned to the caller.
    finished: Vec<u8>,
    datagrams: u64,
    records: u64,
    too_big: u64,
    totals: Vec<u8>,
}

#[derive(Default)]
struct Filling {
    bytes: Vec<u8>,
    records: u64,
}

/// A finished datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'p> {
    /// The bytes to send.
    pub bytes: &'p [u8],
    /// Records in it; 0 if it holds only totals.
    pub records: u64,
}

/// The datagrams that end a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastDatagrams<'p> {
    /// The datagram that was being filled, if the totals did not fit in it. Send it first.
    pub before: Option<Datagram<'p>>,
    /// The datagram with the totals.
    pub last: Datagram<'p>,
}

/// A record that alone exceeds the size of a datagram. It is omitted, and the totals count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("one record takes {bytes} bytes, more than a datagram may have")]
pub struct TooBig {
    /// Size of a datagram with only this record.
    pub bytes: usize,
}

impl DatagramPacker {
    /// A packer for the stream `stream_id`, which should be random, with datagrams of at most `max_bytes`. A limit below
    /// [`DATAGRAM_MIN_BYTES`] is raised to that.
    pub fn new(stream_id: u64, max_bytes: usize, fields: &FieldSet) -> DatagramPacker {
        let max_bytes = max_bytes.max(DATAGRAM_MIN_BYTES);
        // Twice the limit: a record is written after the others before it is known whether it fits.
        let buffer = || Vec::with_capacity(2 * max_bytes);

        DatagramPacker {
            stream_id,
            max_bytes,
            fields: (!fields.is_all()).then_some(*fields),
            writer: ProtobufWriter::new(),
            filling: Filling { bytes: buffer(), records: 0 },
            finished: buffer(),
            datagrams: 0,
            records: 0,
            too_big: 0,
            totals: Vec::with_capacity(max_bytes),
        }
    }

    /// Changes the limit, for example when the path MTU changes. The datagram being filled keeps its contents, so the next
    /// datagram may still have the size of the old limit.
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes.max(DATAGRAM_MIN_BYTES);
    }

    /// Adds a record. If it does not fit after those before it, their datagram is completed and returned.
    pub fn push(&mut self, record: &SocketRecord<'_>) -> Result<Option<Datagram<'_>>, TooBig> {
        let poll = record.poll.unwrap_or(0);
        self.begin(poll);

        // Written before it is known whether it fits, because only the encoder knows its length.
        let start = self.filling.bytes.len();
        let head = |len: usize, out: &mut Vec<u8>| put_key(RECORD, len, out);
        match &self.fields {
            None => self.writer.write_record(record, &mut self.filling.bytes, head),
            Some(fields) => self.writer.write_fields(record, fields, &mut self.filling.bytes, head),
        }

        if self.filling.bytes.len() <= self.max_bytes {
            self.added();
            return Ok(None);
        }

        let record_bytes = self.filling.bytes.len() - start;
        let alone = self.head_len(poll) + record_bytes;
        if alone > self.max_bytes {
            self.filling.bytes.truncate(start);
            self.too_big += 1;
            return Err(TooBig { bytes: alone });
        }

        // The record moves to the next datagram.
        self.finished.clear();
        std::mem::swap(&mut self.finished, &mut self.filling.bytes);
        let finished_records = std::mem::take(&mut self.filling.records);
        self.datagrams += 1;
        // After `datagrams` is incremented and before `records` is: the head says how many of both come before this datagram.
        self.begin(poll);
        let (finished, moved) = self.finished.split_at(start);
        self.filling.bytes.extend_from_slice(moved);
        self.filling.records = 1;
        self.records += 1;

        Ok(Some(Datagram { bytes: finished, records: finished_records }))
    }

    /// Completes the datagram being filled, if it has any records.
    pub fn flush(&mut self) -> Option<Datagram<'_>> {
        (self.filling.records > 0).then(|| self.finish())
    }

    /// Completes a poll: the last datagram carries its totals, with the stream's own figures filled in.
    pub fn totals(&mut self, totals: &PollTotals<'_>) -> LastDatagrams<'_> {
        let poll = totals.poll.unwrap_or(0);
        self.begin(poll);
        self.encode_totals(totals, self.datagrams);

        if self.filling.bytes.len() + self.totals.len() <= self.max_bytes {
            self.filling.bytes.extend_from_slice(&self.totals);
            return LastDatagrams { before: None, last: self.finish() };
        }

        // No room: the datagram being filled goes out first, and the totals count it.
        let records = self.filling.records;
        self.finish();
        self.encode_totals(totals, self.datagrams);

        // Written where the next datagram is filled: `begin` starts that one anew.
        self.begin(poll);
        self.filling.bytes.extend_from_slice(&self.totals);
        self.datagrams += 1;

        LastDatagrams {
            before: Some(Datagram { bytes: &self.finished, records }),
            last: Datagram { bytes: &self.filling.bytes, records: 0 },
        }
    }

    /// Records packed so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Records omitted so far because they were too big.
    pub fn too_big(&self) -> u64 {
        self.too_big
    }

    fn added(&mut self) {
        self.filling.records += 1;
        self.records += 1;
    }

    /// Starts a datagram, unless one with records in it is being filled.
    fn begin(&mut self, poll: u64) {
        if self.filling.records == 0 {
            let out = &mut self.filling.bytes;
            out.clear();
            put_stream_id(self.stream_id, out);
            put_number(SEQUENCE, self.datagrams, out);
            put_number(FIRST_RECORD, self.records, out);
            put_number(POLL, poll, out);
        }
    }

    fn finish(&mut self) -> Datagram<'_> {
        self.finished.clear();
        std::mem::swap(&mut self.finished, &mut self.filling.bytes);
        self.datagrams += 1;
        Datagram { bytes: &self.finished, records: std::mem::take(&mut self.filling.records) }
    }

    /// The length of the head of the datagram after the one being filled.
    fn head_len(&self, poll: u64) -> usize {
        use crate::protobuf::varint_len;
        // The stream id takes 9 bytes with its key, and the other three keys take one each.
        9 + 3 + varint_len(self.datagrams + 1) + varint_len(self.records) + varint_len(poll)
    }

    /// Encodes the totals field into `self.totals`. Texts are omitted if it would be too large with them.
    fn encode_totals(&mut self, totals: &PollTotals<'_>, datagrams: u64) {
        let mut totals = PollTotals {
            stream_id: Some(self.stream_id),
            records_sent: Some(self.records),
            datagrams_sent: Some(datagrams),
            records_too_big: Some(self.too_big),
            ..*totals
        };

        loop {
            self.totals.clear();
            self.writer
                .write_totals(&totals, &mut self.totals, |len, out| put_key(TOTALS, len, out));
            if self.totals.len() + HEAD_MAX_BYTES <= self.max_bytes || !leave_out_texts(&mut totals)
            {
                return;
            }
        }
    }
}

/// Removes the tags, or else the other texts. Returns whether there were any.
fn leave_out_texts(totals: &mut PollTotals<'_>) -> bool {
    if totals.tags.take().is_some() {
        return true;
    }
    let PollTotals { host, boot_id, host_id, kernel_release, weir_version, .. } = totals;
    let texts = [host, boot_id, host_id, kernel_release, weir_version];
    texts.into_iter().filter_map(Option::take).count() > 0
}

// The stream id with its key, and three varints of at most 10 bytes with theirs.
const HEAD_MAX_BYTES: usize = 9 + 3 * 11;
const _: () = assert!(
    HEAD_MAX_BYTES + 4 + crate::protobuf::largest(PollTotals::FIELDS) <= DATAGRAM_MIN_BYTES,
    "totals without texts always fit"
);

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct DatagramView<'a> {
    /// The stream it belongs to.
    pub stream_id: u64,
    /// Its number in the stream, from 0.
    pub sequence: u64,
    /// Records of this stream before this datagram.
    pub first_record: u64,
    /// The poll to which its first record or its totals belong.
    pub poll: u64,
    /// Records in it.
    pub record_count: u64,
    /// The totals of the poll, in its last datagram.
    pub totals: Option<PollTotals<'a>>,
    bytes: &'a [u8],
}

impl<'a> DatagramView<'a> {
    /// Every record, in order.
    pub fn records(&self) -> impl Iterator<Item = Result<SocketRecord<'a>, DecodeError>> + use<'a> {
        Fields::new(self.bytes)
            .filter_map(Result::ok)
            .filter(|field| field.number == RECORD)
            .map(|field| decode_protobuf(field.bytes()?))
    }
}

/// Decodes a datagram. Its records are decoded later, one by one.
pub fn decode_datagram(bytes: &[u8]) -> Result<DatagramView<'_>, DecodeError> {
    let mut view = DatagramView {
        stream_id: 0,
        sequence: 0,
        first_record: 0,
        poll: 0,
        record_count: 0,
        totals: None,
        bytes,
    };

    let mut has_stream_id = false;
    for field in Fields::new(bytes) {
        let field = field?;
        match field.number {
            STREAM_ID => {
                view.stream_id = fixed64(&field)?;
                has_stream_id = true;
            }
            SEQUENCE => view.sequence = field.number_up_to(u64::MAX)?,
            FIRST_RECORD => view.first_record = field.number_up_to(u64::MAX)?,
            POLL => view.poll = field.number_up_to(u64::MAX)?,
            RECORD => {
                // Only its type is checked; `records` decodes it.
                field.bytes()?;
                view.record_count += 1;
            }
            TOTALS => view.totals = Some(decode_totals(field.bytes()?)?),
            // A field added by a later version.
            _ => {}
        }
    }

    if has_stream_id { Ok(view) } else { Err(DecodeError::NoStream) }
}

fn fixed64(field: &WireField<'_>) -> Result<u64, DecodeError> {
    match field.payload {
        Payload::Fixed64(value) => Ok(value),
        _ => Err(DecodeError::WrongType { number: field.number }),
    }
}
