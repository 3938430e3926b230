//! Rows of one source, encoded once and immutable: what a source passes to all its sinks, and what a spool stores.
//!
//! A row is one protobuf message without a length prefix: readers of protobuf skip unknown fields, so a later version can read a
//! chunk that waited on disk.

use crate::protobuf::ProtobufWriter;
use crate::{
    CounterRecord, DatagramRecord, Field, FlowRecord, FlowTotals, PollTotals, SocketRecord,
};

/// The kind of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RowKind {
    /// A [`SocketRecord`].
    Record = 1,
    /// A [`PollTotals`].
    Totals = 2,
    /// A datagram that a listener received.
    Datagram = 3,
    /// The result of a flow: a [`FlowRecord`].
    Flow = 5,
    /// A [`CounterRecord`].
    Counters = 6,
    /// A [`FlowTotals`].
    FlowTotals = 7,
}

impl RowKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [RowKind; 6] = [
        RowKind::Record,
        RowKind::Totals,
        RowKind::Datagram,
        RowKind::Flow,
        RowKind::Counters,
        RowKind::FlowTotals,
    ];

    /// The fields of its table.
    pub fn fields(self) -> &'static [Field] {
        match self {
            RowKind::Record => SocketRecord::FIELDS,
            RowKind::Totals => PollTotals::FIELDS,
            RowKind::Datagram => DatagramRecord::FIELDS,
            RowKind::Flow => FlowRecord::FIELDS,
            RowKind::Counters => CounterRecord::FIELDS,
            RowKind::FlowTotals => FlowTotals::FIELDS,
        }
    }

    /// The name of its table in stores and file names.
    pub fn table(self) -> &'static str {
        match self {
            RowKind::Record => "sockets",
            RowKind::Totals => "polls",
            RowKind::Datagram => "datagrams",
            RowKind::Flow => "flows",
            RowKind::Counters => "counters",
            RowKind::FlowTotals => "flow_totals",
        }
    }

    /// The word in a broker message that names its kind.
    pub fn word(self) -> &'static str {
        match self {
            RowKind::Record => "record",
            RowKind::Totals => "totals",
            RowKind::Datagram => "datagram",
            RowKind::Flow => "flow",
            RowKind::Counters => "counters",
            RowKind::FlowTotals => "flow_totals",
        }
    }

    fn from_number(number: u8) -> Option<RowKind> {
        RowKind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// One row of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'c> {
    pub kind: RowKind,
    /// Shared by rows that belong together: the socket's cookie, or a hash of the sender's address, of a flow's key or of an
    /// agent.
    pub key: u64,
    /// Its number in its stream, from 0, without gaps.
    pub number: u64,
    /// When the rows of its chunk arrived.
    pub arrivals: Arrivals,
    /// One protobuf message.
    pub bytes: &'c [u8],
}

/// When rows arrived at this host or were made here, by the host's clock. The times in the rows themselves may be of other hosts:
/// of datagrams that came over a link. They are information; what is kept, where and for how long, follows from these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrivals {
    /// In nanoseconds since 1970, UTC; 0 if unknown.
    pub oldest_unix_ns: u64,
    /// Likewise.
    pub newest_unix_ns: u64,
}

impl Arrivals {
    /// The time that is nearest to this one.
    pub fn nearest(self, unix_ns: u64) -> u64 {
        unix_ns.min(self.newest_unix_ns).max(self.oldest_unix_ns)
    }

    fn add(&mut self, unix_ns: u64) {
        self.newest_unix_ns = self.newest_unix_ns.max(unix_ns);
        if self.oldest_unix_ns == 0 || unix_ns < self.oldest_unix_ns {
            self.oldest_unix_ns = unix_ns;
        }
    }
}

/// Rows of one source. Immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    header: Header,
    rows: Vec<Meta>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    stream: u64,
    first: u64,
    source_id: [u8; 16],
    arrivals: Arrivals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meta {
    /// End offset of the row in the bytes.
    end: u32,
    kind: RowKind,
    key: u64,
}

/// The bytes are not a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a chunk of this version")]
pub struct ChunkError;

/// Version of the stored format.
const VERSION: u8 = 2;
const HEADER_BYTES: usize = 1 + 8 + 8 + 16 + 8 + 8 + 4;
const META_BYTES: usize = 4 + 1 + 8;

impl Chunk {
    /// Random id of the source's life, within which rows are numbered.
    pub fn stream(&self) -> u64 {
        self.header.stream
    }

    /// Number of the first row.
    pub fn first(&self) -> u64 {
        self.header.first
    }

    /// Where the rows were made: the host's boot.
    pub fn source_id(&self) -> [u8; 16] {
        self.header.source_id
    }

    /// When its rows arrived.
    pub fn arrivals(&self) -> Arrivals {
        self.header.arrivals
    }

    /// The number of rows.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// The bytes of all rows.
    pub fn row_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The memory that it uses.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Chunk>() + self.bytes.capacity() + self.rows.capacity() * size_of::<Meta>()
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let starts = std::iter::once(0).chain(self.rows.iter().map(|meta| meta.end));
        let rows = self.rows.iter().zip(starts).zip(self.header.first..);
        rows.map(|((meta, start), number)| {
            // The constructors ensure that ends ascend and lie within the bytes.
            let bytes = self.bytes.get(start as usize..meta.end as usize).unwrap_or_default();
            let arrivals = self.header.arrivals;
            Row { kind: meta.kind, key: meta.key, number, arrivals, bytes }
        })
    }

    /// Appends the stored format.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Header { stream, first, source_id, arrivals } = self.header;
        out.reserve(HEADER_BYTES + self.rows.len() * META_BYTES + self.bytes.len());
        out.push(VERSION);
        out.extend_from_slice(&stream.to_le_bytes());
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&source_id);
        out.extend_from_slice(&arrivals.oldest_unix_ns.to_le_bytes());
        out.extend_from_slice(&arrivals.newest_unix_ns.to_le_bytes());
        out.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());

        for meta in &self.rows {
            out.extend_from_slice(&meta.end.to_le_bytes());
            out.push(meta.kind as u8);
            out.extend_from_slice(&meta.key.to_le_bytes());
        }
        out.extend_from_slice(&self.bytes);
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// The bytes are anything else, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Chunk, ChunkError> {
        let mut rest = Rest(bytes);
        let [VERSION] = rest.take()? else { return Err(ChunkError) };
        let header = Header {
            stream: u64::from_le_bytes(rest.take()?),
            first: u64::from_le_bytes(rest.take()?),
            source_id: rest.take()?,
            arrivals: Arrivals {
                oldest_unix_ns: u64::from_le_bytes(rest.take()?),
                newest_unix_ns: u64::from_le_bytes(rest.take()?),
            },
        };

        let count = u32::from_le_bytes(rest.take()?) as usize;
        if count.saturating_mul(META_BYTES) > rest.0.len() {
            return Err(ChunkError);
        }
        let mut rows = Vec::with_capacity(count);
        let mut last = 0;
        for _ in 0..count {
            let end = u32::from_le_bytes(rest.take()?);
            let [kind] = rest.take()?;
            let kind = RowKind::from_number(kind).ok_or(ChunkError)?;
            let key = u64::from_le_bytes(rest.take()?);
            if end < last {
                return Err(ChunkError);
            }
            last = end;
            rows.push(Meta { end, kind, key });
        }

        if last as usize != rest.0.len() || header.first.checked_add(count as u64).is_none() {
            return Err(ChunkError);
        }
        Ok(Chunk { header, rows, bytes: rest.0.to_vec() })
    }
}

/// The bytes still to be read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ChunkError> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(ChunkError)?;
        self.0 = rest;
        Ok(*bytes)
    }
}

/// Builds chunks from one source's rows, and numbers the rows.
pub struct ChunkBuilder {
    writer: ProtobufWriter,
    filling: Chunk,
}

impl ChunkBuilder {
    /// A builder for the source `stream` (random), which runs on `source_id`.
    pub fn new(stream: u64, source_id: [u8; 16]) -> ChunkBuilder {
        let header = Header { stream, first: 0, source_id, arrivals: Arrivals::default() };
        let filling = Chunk { header, rows: Vec::new(), bytes: Vec::new() };
        ChunkBuilder { writer: ProtobufWriter::new(), filling }
    }

    /// The id of its source.
    pub fn stream(&self) -> u64 {
        self.filling.header.stream
    }

    /// Bytes of the rows since the last chunk.
    pub fn row_bytes(&self) -> usize {
        self.filling.bytes.len()
    }

    /// Rows since the last chunk.
    pub fn row_count(&self) -> usize {
        self.filling.rows.len()
    }

    /// Adds a record.
    pub fn record(&mut self, record: &SocketRecord<'_>) {
        self.writer.write_record(record, &mut self.filling.bytes, |_, _| {});
        let key = record.cookie.unwrap_or_default();
        self.added(RowKind::Record, key, record.time_unix_ns);
    }

    /// Adds the totals of a poll.
    pub fn totals(&mut self, totals: &PollTotals<'_>) {
        self.writer.write_totals(totals, &mut self.filling.bytes, |_, _| {});
        self.added(RowKind::Totals, 0, totals.time_unix_ns);
    }

    /// Adds a datagram that arrived at this host at `arrived_unix_ns`; its own time may be of another host. Datagrams with the
    /// same key come from one sender.
    pub fn datagram(&mut self, datagram: &DatagramRecord<'_>, key: u64, arrived_unix_ns: u64) {
        self.writer.write_row(datagram, &mut self.filling.bytes, |_, _| {});
        self.added(RowKind::Datagram, key, Some(arrived_unix_ns));
    }

    /// Adds a flow. Flows with the same key belong to one definition.
    pub fn flow(&mut self, flow: &FlowRecord<'_>, key: u64) {
        self.writer.write_row(flow, &mut self.filling.bytes, |_, _| {});
        self.added(RowKind::Flow, key, flow.time_unix_ns);
    }

    /// Adds counters. Counters with the same key belong to one agent.
    pub fn counters(&mut self, counters: &CounterRecord<'_>, key: u64) {
        self.writer.write_row(counters, &mut self.filling.bytes, |_, _| {});
        self.added(RowKind::Counters, key, counters.time_unix_ns);
    }

    /// Adds the totals of flow and counter rows.
    pub fn flow_totals(&mut self, totals: &FlowTotals<'_>) {
        self.writer.write_row(totals, &mut self.filling.bytes, |_, _| {});
        self.added(RowKind::FlowTotals, 0, totals.time_unix_ns);
    }

    /// Counts a row that no sink takes: its number is used up, and it is in no chunk. Only between two chunks.
    pub fn skip(&mut self) {
        debug_assert!(self.filling.rows.is_empty(), "the numbers in a chunk have no gap");
        self.filling.header.first += 1;
    }

    fn added(&mut self, kind: RowKind, key: u64, arrived_unix_ns: Option<u64>) {
        let Chunk { header, rows, bytes } = &mut self.filling;
        rows.push(Meta { end: bytes.len() as u32, kind, key });
        if let Some(unix_ns) = arrived_unix_ns {
            header.arrivals.add(unix_ns);
        }
    }

    /// Completes the chunk and begins the next, in the memory of `reuse` if given. `None` if there is no row.
    pub fn cut(&mut self, reuse: Option<Chunk>) -> Option<Chunk> {
        if self.filling.rows.is_empty() {
            return None;
        }

        let first = self.filling.header.first + self.filling.rows.len() as u64;
        let header = Header { first, arrivals: Arrivals::default(), ..self.filling.header };

        // A few rows in the memory of many: copy them, so that a waiting chunk uses only what it needs.
        if self.filling.bytes.len() < self.filling.bytes.capacity() / 2 {
            let chunk = self.filling.clone();
            self.filling.header = header;
            self.filling.rows.clear();
            self.filling.bytes.clear();
            return Some(chunk);
        }

        let mut next = reuse.unwrap_or(Chunk { header, rows: Vec::new(), bytes: Vec::new() });
        next.header = header;
        next.rows.clear();
        next.bytes.clear();
        Some(std::mem::replace(&mut self.filling, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, decode_protobuf, decode_record, decode_totals};

    fn chunk() -> Chunk {
        let mut builder = ChunkBuilder::new(7, [3; 16]);
        let record = |cookie, time| SocketRecord {
            cookie: Some(cookie),
            time_unix_ns: Some(time),
            ..SocketRecord::default()
        };
        builder.record(&record(5, 900));
        builder.record(&record(6, 800));
        assert_eq!(builder.cut(None).map(|chunk| chunk.row_count()), Some(2));
        assert_eq!(builder.cut(None), None);
        builder.skip();
        builder.record(&record(8, 700));
        let (poll, time_unix_ns) = (Some(4), Some(750));
        builder.totals(&PollTotals { poll, time_unix_ns, ..PollTotals::default() });
        builder.cut(None).unwrap()
    }

    #[test]
    fn rows_are_messages_with_numbers_that_go_on() {
        let chunk = chunk();
        let rows: Vec<_> = chunk.rows().collect();
        assert_eq!((chunk.first(), rows.len()), (3, 2));
        let arrivals = chunk.arrivals();
        assert_eq!((arrivals.oldest_unix_ns, arrivals.newest_unix_ns), (700, 750));
        assert_eq!((rows[0].number, rows[0].key, rows[0].kind), (3, 8, RowKind::Record));
        assert_eq!(decode_protobuf(rows[0].bytes).unwrap().cookie, Some(8));
        assert!(matches!(decode_record(rows[0].bytes), Ok(Record::Socket(_))));
        assert_eq!((rows[1].number, rows[1].kind), (4, RowKind::Totals));
        assert_eq!(decode_totals(rows[1].bytes).unwrap().poll, Some(4));
    }

    #[test]
    fn rows_know_when_they_arrived_and_not_when_another_host_says() {
        let mut builder = ChunkBuilder::new(7, [3; 16]);
        let far = |unix_ns| DatagramRecord { time_unix_ns: Some(unix_ns), ..DatagramRecord::new() };
        for (said, arrived) in [(1, 900), (u64::MAX, 950), (920, 920)] {
            builder.datagram(&far(said), 1, arrived);
        }
        let chunk = builder.cut(None).unwrap();
        let arrivals = Arrivals { oldest_unix_ns: 900, newest_unix_ns: 950 };
        assert!(chunk.rows().all(|row| row.arrivals == arrivals));
        assert_eq!([1, 920, u64::MAX].map(|said| arrivals.nearest(said)), [900, 920, 950]);
    }

    #[test]
    fn what_was_kept_comes_back_and_nothing_else_does() {
        let chunk = chunk();
        let mut kept = Vec::new();
        chunk.encode(&mut kept);
        assert_eq!(Chunk::decode(&kept), Ok(chunk));

        for cut in 0..kept.len() {
            assert_eq!(Chunk::decode(&kept[..cut]), Err(ChunkError), "{cut} bytes");
        }
        for at in 0..kept.len() {
            let mut changed = kept.clone();
            changed[at] ^= 0xff;
            // A changed byte may give another valid chunk, which must then be readable.
            if let Ok(other) = Chunk::decode(&changed) {
                assert_eq!(
                    other.rows().map(|row| row.bytes.len()).sum::<usize>(),
                    other.row_bytes()
                );
            }
        }
    }
}
